"""Admission policies with large selectors and with many bindings."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.apiserver.harness import Api, start
from tests.hostile.test_large_selectors import LARGE
from tests.hostile.test_many_objects import turns_of_others

from transom.kit import time_slice
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
