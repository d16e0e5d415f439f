"""Selectors of objects with thousands of requirements: compiled in a thread, once for each object."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest
from tests.apiserver.harness import Api, start
from tests.client.conftest import ADMIN

from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.informer import Informer
from transom.client.resources import POD_DISRUPTION_BUDGETS
from transom.kit.clock import RealClock
from transom.machinery import selectors
from transom.machinery.objects import Object
from transom.scheduler.pods import is_large_spec

PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
BUDGETS = "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
REQUIREMENTS = [{"key": f"k{i}", "operator": "In", "values": ["v"]} for i in range(3_000)]
LARGE: Object = {"matchExpressions": REQUIREMENTS}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Those that compile large selectors."""
    found: list[threading.Thread] = []
    original = selectors.from_object

    def recorded(selector: Any) -> Any:
        if selectors.takes_long_to_compile(selector):
            found.append(threading.current_thread())
        return original(selector)

    monkeypatch.setattr(selectors, "from_object", recorded)
    return found


@pytest.mark.parametrize(
    "selector",
    [
        LARGE,
        {"matchLabels": {f"k{i}": "v" for i in range(3_000)}},
        {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"] * 3_000}]},
    ],
    ids=["requirements", "labels", "values"],
)
def test_a_large_selector_takes_long(selector: Object) -> None:
    assert selectors.takes_long_to_compile(selector)
    assert not selectors.takes_long_to_compile({"matchLabels": {"a": "b"}, "matchExpressions": []})
    assert not selectors.takes_long_to_compile(None)


async def test_an_informer_compiles_large_selectors_ahead_of_its_handlers(
    threads: list[threading.Thread],
) -> None:
    api = await start()
    client = InProcessClient(api.server, ADMIN)
    informer = Informer(client, POD_DISRUPTION_BUDGETS, RealClock(), random.Random(1))
    built: asyncio.Future[selectors.LabelSelector] = asyncio.get_running_loop().create_future()
    informer.add_handler(add=lambda obj: built.set_result(selectors.owner_selector(obj)))
    task = asyncio.create_task(informer.run())
    await informer.synced()
    spec = {"minAvailable": 1, "selector": LARGE}
    await api.ok("POST", BUDGETS, {"metadata": {"name": "a"}, "spec": spec})
    found = await built
    task.cancel()
    assert threads and threading.main_thread() not in threads
    assert found.matches({f"k{i}": "v" for i in range(3_000)})
    await api.server.stop()


async def _with_a_running_pod() -> Api:
    api = await start()
    await api.ok("POST", ACCOUNTS, {"metadata": {"name": "default"}})
    spec = {"containers": [{"name": "a", "image": "b"}], "automountServiceAccountToken": False}
    pod = await api.ok("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
    await api.ok("PUT", f"{PODS}/p/status", {**pod, "status": {"phase": "Running"}})
    return api


async def test_an_eviction_compiles_large_selectors_beside_the_loop(
    threads: list[threading.Thread],
) -> None:
    api = await _with_a_running_pod()
    spec = {"minAvailable": 1, "selector": LARGE}
    for name in ("a", "b"):
        await api.ok("POST", BUDGETS, {"metadata": {"name": name}, "spec": spec})
    threads.clear()
    eviction = {
        "apiVersion": "policy/v1beta1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "default"},
    }
    await api.ok("POST", f"{PODS}/p/eviction", eviction)
    assert len(threads) == 2 and threading.main_thread() not in threads
    await api.server.stop()


async def test_large_selectors_of_webhooks_are_compiled_once_beside_the_loop(
    threads: list[threading.Thread],
) -> None:
    api = await start()
    await api.ok("POST", ACCOUNTS, {"metadata": {"name": "default"}})
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
    hook = {
        "name": "a.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "objectSelector": LARGE,
        "rules": [rule],
    }
    await api.ok("POST", WEBHOOKS, {"metadata": {"name": "large"}, "webhooks": [hook]})
    threads.clear()
    spec = {"containers": [{"name": "a", "image": "b"}], "automountServiceAccountToken": False}
    for name in ("p", "q"):
        await api.ok("POST", PODS, {"metadata": {"name": name}, "spec": spec})
    assert len(threads) == 1 and threading.main_thread() not in threads
    await api.server.stop()


@pytest.mark.parametrize(
    "spec",
    [
        {"topologySpreadConstraints": [{"labelSelector": LARGE}]},
        {"affinity": {"podAffinity": {"required": [{"labelSelector": LARGE}]}}},
        {
            "affinity": {
                "podAntiAffinity": {"preferred": [{"podAffinityTerm": {"labelSelector": LARGE}}]}
            }
        },
        {
            "affinity": {
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchFields": []}] * 3_000},
                    "preferred": [],
                }
            }
        },
    ],
    ids=["spread constraint", "required affinity", "preferred anti-affinity", "node terms"],
)
def test_the_scheduler_parses_pods_with_large_selectors_in_a_thread(spec: Object) -> None:
    assert is_large_spec(spec)
