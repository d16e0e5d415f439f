"""Admission policies with large selectors and with many bindings."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.apiserver.harness import Api, start
from tests.hostile.test_large_selectors import LARGE
from tests.hostile.test_many_objects import turns_of_others

from transom.kit import time_slice
from transom.kit.garbage import bound_collections
from transom.machinery import selectors

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["configmaps"],
}
MUTATION = {
    "patchType": "ApplyConfiguration",
    "applyConfiguration": {"expression": 'Object{data: {"a": "b"}}'},
}
SPECS: dict[str, dict[str, Any]] = {
    "validating": {"validations": [{"expression": "true"}]},
    "mutating": {"mutations": [MUTATION], "reinvocationPolicy": "Never"},
}


async def bind(api: Api, kind: str, name: str, **binding: Any) -> None:
    actions = {"validationActions": ["Deny"]} if kind == "validating" else {}
    body = {"metadata": {"name": name}, "spec": {"policyName": "p", **actions, **binding}}
    await api.ok("POST", f"{GROUP}/{kind}admissionpolicybindings", body)


async def with_policy(kind: str, **constraints: Any) -> Api:
    api = await start(release="1.36")
    match = {"resourceRules": [RULE], **constraints}
    spec = {"matchConstraints": match, **SPECS[kind]}
    policy = {"metadata": {"name": "p"}, "spec": spec}
    await api.ok("POST", f"{GROUP}/{kind}admissionpolicies", policy)
    return api


async def create(api: Api, name: str) -> None:
    await api.ok("POST", MAPS, {"metadata": {"name": name}})


@pytest.mark.parametrize("kind", SPECS)
async def test_large_selectors_of_policies_are_compiled_once_beside_the_loop(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    original = selectors.from_object

    def recorded(selector: Any) -> Any:
        if selectors.takes_long_to_compile(selector):
            threads.append(threading.current_thread())
        return original(selector)

    api = await with_policy(kind, namespaceSelector={}, objectSelector={})
    excluding = [{"key": f"k{i}", "operator": "DoesNotExist"} for i in range(3_000)]
    for number in range(2):
        large = {"objectSelector": {"matchExpressions": excluding}, "namespaceSelector": LARGE}
        await bind(api, kind, f"b{number}", matchResources=large)
    monkeypatch.setattr(selectors, "from_object", recorded)
    await create(api, "a")
    await bind(api, kind, "another")  # does not discard what was compiled
    await create(api, "b")
    assert len(threads) == 4 and threading.main_thread() not in threads
    await api.server.stop()


@pytest.mark.parametrize("kind", SPECS)
async def test_a_policy_with_many_bindings_yields(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = await with_policy(kind)
    other = {"objectSelector": {"matchLabels": {"a": "b"}}}
    for number in range(100):
        await bind(api, kind, f"b{number}", matchResources=other)
    monkeypatch.setattr(time_slice, "_SECONDS", 0.0)
    assert await turns_of_others(create(api, "a")) >= 100
    await api.server.stop()


@pytest.fixture
def bounded_collections() -> Iterator[None]:
    """The garbage collector as in a server; `loop_budget` measures its passes too."""
    thresholds, callbacks = gc.get_threshold(), [*gc.callbacks]
    bound_collections()
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks


@pytest.mark.usefixtures("bounded_collections")
@pytest.mark.parametrize(("validations", "bindings"), [(5_000, 1), (1, 1_500)])
async def test_policies_with_many_parts_do_not_hold_the_loop(
    validations: int, bindings: int
) -> None:
    """Each of these callbacks is limited by `loop_budget`."""
    api = await start(release="1.36")
    checks = [{"expression": f"object.metadata.name == 'a{i}'"} for i in range(validations)]
    match = {"resourceRules": [RULE]}
    policy = {"metadata": {"name": "p"}, "spec": {"matchConstraints": match, "validations": checks}}
    await api.ok("POST", f"{GROUP}/validatingadmissionpolicies", policy)
    for number in range(bindings):
        await bind(api, "validating", f"b{number:04}", validationActions=["Warn", "Audit"])
    for name in ("a", "b"):
        await create(api, name)
    await api.server.stop()
