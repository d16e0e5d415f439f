"""Which FlowSchema matches a request, with the default objects and with others."""

from __future__ import annotations

from typing import Any

import pytest

from transom.apiserver.core.context import ANONYMOUS, UserInfo
from transom.apiserver.core.requestinfo import parse_request_info
from transom.apiserver.flowcontrol import objects, rules
from transom.apiserver.flowcontrol.flows import RequestFlows, list_seats
from transom.kit.clock import VirtualClock
from transom.machinery.releases import DEFAULT

ALL = "system:authenticated"
ADMIN = UserInfo("admin", ("system:masters", ALL))
NODE = UserInfo("system:node:a", ("system:nodes", ALL))
MANAGER = UserInfo("system:kube-controller-manager", (ALL,))
SYSTEM_SA = UserInfo("system:serviceaccount:kube-system:dns", ("system:serviceaccounts", ALL))
SA = UserInfo("system:serviceaccount:default:web", ("system:serviceaccounts", ALL))
JANE = UserInfo("jane", ("dev", ALL))
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x"


def flows() -> RequestFlows:
    made = RequestFlows(VirtualClock())
    mandatory = objects.mandatory_objects(DEFAULT)
    suggested = objects.suggested_objects(DEFAULT)
    levels = [*mandatory.levels, *suggested.levels]
    for level in levels:
        limited = level["spec"].get("limited")
        if limited:
            limited["nominalConcurrencyShares"] = limited.pop("assuredConcurrencyShares")
    assert made.configure(levels, [*suggested.schemas, *mandatory.schemas]) == []
    return made


@pytest.mark.parametrize(
    ("user", "method", "path", "schema", "level"),
    [
        (ADMIN, "GET", "/api/v1/pods", "exempt", "exempt"),
        (ADMIN, "GET", "/healthz", "exempt", "exempt"),
        (ANONYMOUS, "GET", "/healthz", "probes", "exempt"),
        (ANONYMOUS, "GET", "/readyz/etcd", "probes", "exempt"),
        (ANONYMOUS, "GET", "/readyzz", "global-default", "global-default"),
        (ANONYMOUS, "POST", "/healthz", "global-default", "global-default"),
        (NODE, "PUT", LEASE, "system-nodes", "system"),
        (NODE, "GET", "/version", "system-nodes", "system"),
        (MANAGER, "PUT", LEASE, "system-leader-election", "leader-election"),
        (MANAGER, "PATCH", LEASE, "kube-controller-manager", "workload-high"),
        (
            MANAGER,
            "GET",
            "/api/v1/namespaces/kube-system/endpoints/x",
            "system-leader-election",
            "leader-election",
        ),
        (
            MANAGER,
            "GET",
            "/api/v1/namespaces/default/endpoints/x",
            "kube-controller-manager",
            "workload-high",
        ),
        (
            MANAGER,
            "GET",
            "/api/v1/namespaces/kube-system/endpoints",
            "kube-controller-manager",
            "workload-high",
        ),
        (
            SYSTEM_SA,
            "GET",
            "/api/v1/namespaces/default/configmaps/x",
            "workload-leader-election",
            "leader-election",
        ),
        (
            SYSTEM_SA,
            "GET",
            "/api/v1/namespaces/default/pods/x",
            "kube-system-service-accounts",
            "workload-high",
        ),
        (SA, "PUT", LEASE, "service-accounts", "workload-low"),
        (JANE, "GET", "/apis/apps/v1/deployments", "global-default", "global-default"),
        (UserInfo("odd", ()), "GET", "/api/v1/pods", "catch-all", "catch-all"),
    ],
)
def test_requests_of_a_new_cluster(
    user: UserInfo, method: str, path: str, schema: str, level: str
) -> None:
    flow = flows().find(user, parse_request_info(method, path))
    assert (flow.schema.name, flow.level.name) == (schema, level)


def one_rule(**rule: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "x"},
        "spec": {"rules": [{"subjects": [{"kind": "Group", "group": {"name": "*"}}], **rule}]},
    }


def resource_rule(**more: Any) -> dict[str, Any]:
    rule = {
        "verbs": ["*"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "namespaces": ["*"],
        "clusterScope": True,
        **more,
    }
    return one_rule(resourceRules=[rule])


@pytest.mark.parametrize(
    ("schema", "method", "path", "matches"),
    [
        (resource_rule(), "GET", "/api/v1/pods", True),
        (resource_rule(), "GET", "/version", False),
        (resource_rule(clusterScope=False), "GET", "/api/v1/pods", False),
        (resource_rule(clusterScope=False), "GET", "/api/v1/namespaces/a/pods", True),
        (resource_rule(namespaces=["b"]), "GET", "/api/v1/namespaces/a/pods", False),
        (resource_rule(namespaces=[]), "GET", "/api/v1/namespaces/a/pods", False),
        (resource_rule(resources=["pods"]), "GET", "/api/v1/namespaces/a/pods/x/status", False),
        (
            resource_rule(resources=["pods/status"]),
            "GET",
            "/api/v1/namespaces/a/pods/x/status",
            True,
        ),
        (resource_rule(apiGroups=["apps"]), "GET", "/api/v1/namespaces/a/pods", False),
        (resource_rule(verbs=["list"]), "GET", "/api/v1/namespaces/a/pods", True),
        (resource_rule(verbs=["get"]), "GET", "/api/v1/namespaces/a/pods", False),
        (
            one_rule(nonResourceRules=[{"verbs": ["get"], "nonResourceURLs": ["/a/*"]}]),
            "GET",
            "/a/b",
            True,
        ),
        (
            one_rule(nonResourceRules=[{"verbs": ["get"], "nonResourceURLs": ["/a/*"]}]),
            "GET",
            "/ab",
            False,
        ),
        (
            one_rule(nonResourceRules=[{"verbs": ["get"], "nonResourceURLs": ["/a"]}]),
            "GET",
            "/a/b/c",
            True,
        ),
        (
            one_rule(nonResourceRules=[{"verbs": ["*"], "nonResourceURLs": ["*"]}]),
            "GET",
            "/api/v1/pods",
            False,
        ),
    ],
)
def test_rules(schema: dict[str, Any], method: str, path: str, matches: bool) -> None:
    assert rules.matches_flow_schema(schema, JANE, parse_request_info(method, path)) is matches


def named(name: str, precedence: int, level: str = "catch-all") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": name},
        "spec": {
            **resource_rule()["spec"],
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": level},
        },
    }


def test_the_lowest_precedence_wins_then_the_name() -> None:
    made = RequestFlows(VirtualClock())
    made.configure(
        [], [named("b", 7), named("a", 7), named("c", 9), named("broken", 2, "no-such-level")]
    )
    assert made.find(JANE, parse_request_info("GET", "/api/v1/pods")).schema.name == "a"
    made.configure([], [named("a", 8), named("b", 7)])
    assert made.find(JANE, parse_request_info("GET", "/api/v1/pods")).schema.name == "b"


def test_a_schema_without_its_level_is_reported_and_not_used() -> None:
    made = RequestFlows(VirtualClock())
    dangling = made.configure([], [named("x", 2, "gone")])
    assert [obj["metadata"]["name"] for obj in dangling] == ["x"]
    assert made.find(JANE, parse_request_info("GET", "/api/v1/pods")).schema.name == "catch-all"


def test_flows_are_distinguished_by_user_or_namespace() -> None:
    made = flows()
    pods = parse_request_info("GET", "/api/v1/namespaces/a/pods")
    assert (
        made.find(SA, pods).hand
        == made.find(SA, parse_request_info("GET", "/api/v1/namespaces/b/pods")).hand
    )
    other = UserInfo("system:serviceaccount:default:db", SA.groups)
    assert made.find(SA, pods).hand != made.find(other, pods).hand
    # the schema of kube-system's accounts distinguishes namespaces
    assert (
        made.find(SYSTEM_SA, pods).hand
        != made.find(SYSTEM_SA, parse_request_info("GET", "/api/v1/namespaces/b/pods")).hand
    )


def test_seats_are_shared_out_by_shares() -> None:
    limits = {name: level.limit for name, level in flows().levels.items()}
    assert limits == {
        "exempt": 0,
        "catch-all": 15,
        "system": 88,
        "leader-election": 30,
        "workload-high": 118,
        "workload-low": 293,
        "global-default": 59,
    }


@pytest.mark.parametrize(
    ("count", "seats"), [(0, 1), (1, 1), (100, 1), (101, 2), (950, 10), (100_000, 10)]
)
def test_a_list_weighs_what_it_lists(count: int, seats: int) -> None:
    assert list_seats(count) == seats


@pytest.mark.parametrize(
    ("method", "path", "watch", "long"),
    [
        ("GET", "/api/v1/pods", True, True),
        ("GET", "/api/v1/watch/pods", False, True),
        ("GET", "/api/v1/namespaces/a/pods/x/log", False, True),
        ("POST", "/api/v1/namespaces/a/pods/x/exec", False, True),
        ("GET", "/api/v1/namespaces/a/services/x/proxy/y", False, True),
        ("GET", "/api/v1/pods", False, False),
        ("GET", "/api/v1/namespaces/a/pods/x/status", False, False),
        ("GET", "/version", False, False),
    ],
)
def test_what_runs_long_is_not_counted(method: str, path: str, watch: bool, long: bool) -> None:
    assert (
        rules.is_long_running(parse_request_info(method, path, {"watch": ["1"]} if watch else None))
        is long
    )
