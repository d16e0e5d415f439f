"""RBAC through the whole server: what is allowed, the message of a rejection, and how fast a change
takes effect.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.apiserver.harness import Api
from tests.apiserver.security.support import (
    DEFAULT,
    RBAC,
    as_user,
    binding,
    grant,
    message,
    role,
    rule,
    run,
)

from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo

REVIEWS = "/apis/authorization.k8s.io/v1"


async def review(
    api: Api, user: str, groups: tuple[str, ...] = (), **attributes: str
) -> dict[str, Any]:
    spec: dict[str, Any] = {"user": user, "groups": list(groups)}
    spec["nonResourceAttributes" if "path" in attributes else "resourceAttributes"] = attributes
    answer = await api.ok("POST", f"{REVIEWS}/subjectaccessreviews", {"spec": spec})
    status: dict[str, Any] = answer["status"]
    return status


# rules, attributes, allowed
CASES: list[tuple[list[dict[str, Any]], dict[str, str], bool]] = [
    ([rule("get", "pods")], {"verb": "get", "resource": "pods"}, True),
    ([rule("get", "pods")], {"verb": "list", "resource": "pods"}, False),
    ([rule("get", "pods")], {"verb": "get", "resource": "pods", "subresource": "log"}, False),
    ([rule("get", "pods/log")], {"verb": "get", "resource": "pods", "subresource": "log"}, True),
    ([rule("get", "pods/log")], {"verb": "get", "resource": "pods"}, False),
    (
        [rule("update", "*/scale", "apps")],
        {"verb": "update", "resource": "deployments", "subresource": "scale", "group": "apps"},
        True,
    ),
    (
        [rule("update", "*/scale", "apps")],
        {"verb": "update", "resource": "deployments", "subresource": "status", "group": "apps"},
        False,
    ),
    (
        [rule("update", "*/scale", "apps")],
        {"verb": "update", "resource": "scale", "group": "apps"},
        False,
    ),
    ([rule("get", "*")], {"verb": "get", "resource": "pods", "subresource": "exec"}, True),
    ([rule("get", "*")], {"verb": "get", "resource": "jobs", "group": "batch"}, False),
    ([rule("get", "*", "*")], {"verb": "get", "resource": "jobs", "group": "batch"}, True),
    ([rule("*", "pods")], {"verb": "dance", "resource": "pods"}, True),
    ([rule("get", "pods", names="a b")], {"verb": "get", "resource": "pods", "name": "b"}, True),
    ([rule("get", "pods", names="a b")], {"verb": "get", "resource": "pods", "name": "c"}, False),
    ([rule("get", "pods", names="a b")], {"verb": "get", "resource": "pods"}, False),
    (
        [rule("get", "pods", names="a"), rule("get", "pods", names="c")],
        {"verb": "get", "resource": "pods", "name": "c"},
        True,
    ),
]


@pytest.mark.parametrize(("rules", "attributes", "allowed"), CASES)
async def test_a_rule_allows_just_what_it_says(
    rules: list[dict[str, Any]], attributes: dict[str, str], allowed: bool
) -> None:
    async with run() as api:
        await grant(api, "jane", *rules)
        status = await review(api, "jane", namespace="default", **attributes)
        assert status["allowed"] is allowed
        if allowed:
            assert (
                status["reason"]
                == 'RBAC: allowed by RoleBinding "r/default" of Role "r" to User "jane"'
            )
        assert (await review(api, "jane", namespace="kube-system", **attributes)) == {
            "allowed": False
        }
        assert (await review(api, "jan", namespace="default", **attributes)) == {"allowed": False}


@pytest.mark.parametrize(
    ("pattern", "path", "allowed"),
    [
        ("/probe/*", "/probe/a/b", True),
        ("/probe/*", "/probe", False),
        ("/probe*", "/probes", True),
        ("*", "/x", True),
        ("/probe", "/probe/a", False),
        ("/a*", "/b", False),
    ],
)
async def test_paths(pattern: str, path: str, allowed: bool) -> None:
    async with run() as api:
        await api.ok(
            "POST",
            f"{RBAC}/clusterroles",
            role("p", {"verbs": ["get"], "nonResourceURLs": [pattern]}),
        )
        await api.ok(
            "POST", f"{RBAC}/clusterrolebindings", binding("p", "ClusterRole", "p", "jane")
        )
        assert (await review(api, "jane", verb="get", path=path))["allowed"] is allowed
        assert not (await review(api, "jane", verb="post", path=path))["allowed"]


async def test_a_change_takes_hold_with_its_answer() -> None:
    async with run() as api:
        jane = as_user("jane")
        pods = f"{DEFAULT}/pods"
        assert await message(api, 403, "GET", pods, **jane) == (
            'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in '
            'the namespace "default"'
        )
        await grant(api, "jane", rule("list", "pods"))
        await api.ok("GET", pods, **jane)
        await api.ok("PUT", f"{RBAC}/namespaces/default/roles/r", role("r", rule("get", "pods")))
        await message(api, 403, "GET", pods, **jane)
        await api.ok("PUT", f"{RBAC}/namespaces/default/roles/r", role("r", rule("list", "pods")))
        await api.ok("GET", pods, **jane)
        await api.ok("DELETE", f"{RBAC}/namespaces/default/roles/r")
        assert (await message(api, 403, "GET", pods, **jane)).endswith(
            'in the namespace "default": RBAC: role.rbac.authorization.k8s.io "r" not found'
        )
        await api.ok("DELETE", f"{RBAC}/namespaces/default/rolebindings/r")
        assert "RBAC" not in await message(api, 403, "GET", pods, **jane)


async def test_subjects_of_all_kinds_and_their_names_in_reasons() -> None:
    async with run() as api:
        await api.ok("POST", f"{RBAC}/namespaces/default/roles", role("r", rule("get", "pods")))
        made = binding("b", "Role", "r")
        made["subjects"] = [
            {"kind": "ServiceAccount", "name": "robot"},
            {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "devs"},
        ]
        await api.ok("POST", f"{RBAC}/namespaces/default/rolebindings", made)
        what = {"verb": "get", "resource": "pods", "namespace": "default"}
        robot = await review(api, "system:serviceaccount:default:robot", **what)
        assert robot["reason"] == (
            'RBAC: allowed by RoleBinding "b/default" of Role "r" to ServiceAccount "robot/default"'
        )
        assert (await review(api, "x", ("devs",), **what))["reason"].endswith('to Group "devs"')
        # A user is not a group because their names are the same, however they are written.
        assert not (await review(api, "devs", **what))["allowed"]
        assert not (await review(api, "g:devs", **what))["allowed"]


async def test_self_rules_are_complete_except_for_nodes() -> None:
    async with run() as api:
        await grant(api, "jane", rule("get list", "configmaps", names="one"))
        target = f"{REVIEWS}/selfsubjectrulesreviews"
        mine = (
            await api.ok("POST", target, {"spec": {"namespace": "default"}}, **as_user("jane"))
        )["status"]
        assert {
            "verbs": ["get", "list"],
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["one"],
        } in (mine["resourceRules"])
        assert any("/healthz" in r["nonResourceURLs"] for r in mine["nonResourceRules"])
        assert mine["incomplete"] is False and "evaluationError" not in mine
        node = (
            await api.ok(
                "POST",
                target,
                {"spec": {"namespace": "default"}},
                **as_user("system:node:n", "system:nodes"),
            )
        )["status"]
        assert node["incomplete"] is True
        assert node["evaluationError"] == "node authorizer does not support user rule resolution"


async def test_anonymous_sees_health_and_version_only() -> None:
    async with run() as api:
        for path in ("/healthz", "/livez", "/readyz", "/version"):
            assert (await api.call("GET", path, peer=None))[0] == 200
        assert await message(api, 403, "GET", "/api", peer=None) == (
            'forbidden: User "system:anonymous" cannot get path "/api"'
        )
        await message(api, 403, "GET", "/healthz/etcd", peer=None)
        await message(api, 403, "GET", f"{DEFAULT}/pods", peer=None)
        await message(
            api, 403, "POST", f"{REVIEWS}/selfsubjectaccessreviews", {"spec": {}}, peer=None
        )
        basic = {b"authorization": b"Basic YTpi"}
        assert "system:anonymous" in await message(
            api, 403, "GET", "/api", peer=None, headers=basic
        )


async def test_a_cached_decision_costs_microseconds() -> None:
    async with run() as api:
        for i in range(200):
            await grant(api, f"user{i}", rule("get", "pods"), name=f"r{i}")
        user = UserInfo("user7", ("system:authenticated",))
        info = RequestInfo(True, "", "get", "", "v1", "default", "pods", "a")
        decide = api.server.security.decide
        assert decide(user, info).allowed
        best = min(_timed(lambda: decide(user, info)) for _ in range(5))
        assert best < 20e-6  # about 1.5 on a quiet machine


def _timed(call: Any) -> float:
    start = time.perf_counter()
    for _ in range(1000):
        call()
    return (time.perf_counter() - start) / 1000
