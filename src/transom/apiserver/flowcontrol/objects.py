"""The default FlowSchemas and PriorityLevelConfigurations of each release.

Mandatory ones are recreated when deleted. Until 1.21 suggested ones are created once and then
belong to the administrator; later releases keep them up to date while their annotation allows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour

GROUP = "flowcontrol.apiserver.k8s.io"
VERSION = "v1beta1"
EXEMPT = "exempt"
CATCH_ALL = "catch-all"
# The annotation of objects that servers since 1.22 keep up to date, or delete when a later release
# does not have them.
AUTO_UPDATE: Final = "apf.kubernetes.io/autoupdate-spec"

# name -> shares, queues, hand size, queue length
_LEVELS = {
    "system": (30, 64, 6, 50),
    "node-high": (40, 64, 6, 50),
    "leader-election": (10, 16, 4, 50),
    "workload-high": (40, 128, 6, 50),
    "workload-low": (100, 128, 6, 50),
    "global-default": (20, 128, 6, 50),
}

# The percentage of its seats that a level lends to others.
_LENDABLE = {
    "system": 33,
    "node-high": 25,
    "workload-high": 50,
    "workload-low": 90,
    "global-default": 50,
}
_EXEMPT_SHARES = {"nominalConcurrencyShares": 0, "lendablePercent": 0}

_NODE_HEALTH: list[Object] = [
    {
        "verbs": ["*"],
        "apiGroups": [""],
        "resources": ["nodes", "nodes/status"],
        "clusterScope": True,
        "namespaces": ["*"],
    },
    {
        "verbs": ["*"],
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "namespaces": ["*"],
    },
]
_EVERYTHING = [
    {
        "verbs": ["*"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "clusterScope": True,
        "namespaces": ["*"],
    }
]
_EVERY_PATH = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]


def _group(*names: str) -> list[Object]:
    return [{"kind": "Group", "group": {"name": name}} for name in names]


def _user(*names: str) -> list[Object]:
    return [{"kind": "User", "user": {"name": name}} for name in names]


def _accounts(*names: str) -> list[Object]:
    return [
        {"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": name}}
        for name in names
    ]


_ALL_USERS = _group("system:unauthenticated", "system:authenticated")


def _elections(core_namespace: str, *, by_lease: bool) -> list[Object]:
    """`by_lease`: only with Leases, as since 1.24."""
    verbs = ["get", "create", "update"]
    leases: Object = {
        "verbs": verbs,
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "namespaces": ["*"],
    }
    if by_lease:
        return [leases]
    older: Object = {
        "verbs": verbs,
        "apiGroups": [""],
        "resources": ["endpoints", "configmaps"],
        "namespaces": [core_namespace],
    }
    return [older, leases]


def _schema(
    name: str,
    level: str,
    precedence: int,
    distinguisher: str,
    subjects: list[Object],
    resources: list[Object] | None = None,
    paths: list[Object] | None = None,
) -> Object:
    rule: Object = {"subjects": subjects}
    if resources:
        rule["resourceRules"] = resources
    if paths:
        rule["nonResourceRules"] = paths
    spec: Object = {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": [rule],
    }
    if distinguisher:
        spec["distinguisherMethod"] = {"type": distinguisher}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": spec,
    }


def _whole(
    name: str, level: str, precedence: int, distinguisher: str, subjects: list[Object]
) -> Object:
    """A schema for all requests of its subjects."""
    return _schema(name, level, precedence, distinguisher, subjects, _EVERYTHING, _EVERY_PATH)


def _level(name: str, spec: Object) -> Object:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": spec,
    }


class BootstrapObjects(NamedTuple):
    schemas: list[Object]
    levels: list[Object]


def mandatory_objects(release: Release) -> BootstrapObjects:
    schemas = [
        _whole(EXEMPT, EXEMPT, 1, "", _group("system:masters")),
        _whole(CATCH_ALL, CATCH_ALL, 10000, "ByUser", _ALL_USERS),
    ]
    reject = {"assuredConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}
    levels = [
        _level(CATCH_ALL, {"type": "Limited", "limited": reject}),
        _level(EXEMPT, {"type": "Exempt"}),
    ]
    return _in_release(release, schemas, levels)


def suggested_objects(release: Release) -> BootstrapObjects:
    return _in_release(release, list(_suggested_schemas(release)), list(_suggested_levels(release)))


def _suggested_levels(release: Release) -> Iterator[Object]:
    for name, (shares, queues, hand, length) in _LEVELS.items():
        if name == "node-high" and not has_behaviour(release, "NodeHighLevel"):
            continue
        queuing = {"queues": queues, "handSize": hand, "queueLengthLimit": length}
        limited = {
            "assuredConcurrencyShares": shares,
            "limitResponse": {"type": "Queue", "queuing": queuing},
        }
        yield _level(name, {"type": "Limited", "limited": limited})


def _suggested_schemas(release: Release) -> Iterator[Object]:
    manager, scheduler = "system:kube-controller-manager", "system:kube-scheduler"
    by_lease = has_behaviour(release, "EndpointControllerSchema")
    endpoints = by_lease and not has_behaviour(release, "NoEndpointSchemas")
    yield _whole("system-nodes", "system", 500, "ByUser", _group("system:nodes"))
    if has_behaviour(release, "NodeHighLevel"):
        yield _schema(
            "system-node-high", "node-high", 400, "ByUser", _group("system:nodes"), _NODE_HEALTH
        )
    probes: list[Object] = [
        {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}
    ]
    yield _schema("probes", EXEMPT, 2, "", _ALL_USERS, None, probes)
    yield _schema(
        "system-leader-election",
        "leader-election",
        100,
        "ByUser",
        _user(manager, scheduler) + _accounts("*"),
        _elections("kube-system", by_lease=by_lease),
    )
    if not has_behaviour(release, "NoEndpointSchemas"):
        yield _schema(
            "workload-leader-election",
            "leader-election",
            200,
            "ByUser",
            _accounts("*"),
            _elections("*", by_lease=False),
        )
    if endpoints:
        rule: Object = {
            "verbs": ["get", "create", "update"],
            "apiGroups": [""],
            "resources": ["endpoints"],
            "namespaces": ["*"],
        }
        accounts = _accounts("endpoint-controller", "endpointslicemirroring-controller")
        subjects = _user(manager) + accounts
        yield _schema("endpoint-controller", "workload-high", 150, "ByUser", subjects, [rule])
    yield _whole("kube-controller-manager", "workload-high", 800, "ByNamespace", _user(manager))
    yield _whole("kube-scheduler", "workload-high", 800, "ByNamespace", _user(scheduler))
    yield _whole(
        "kube-system-service-accounts", "workload-high", 900, "ByNamespace", _accounts("*")
    )
    yield _whole(
        "service-accounts", "workload-low", 9000, "ByUser", _group("system:serviceaccounts")
    )
    yield _whole("global-default", "global-default", 9900, "ByUser", _ALL_USERS)


def _in_release(release: Release, schemas: list[Object], levels: list[Object]) -> BootstrapObjects:
    """The objects in the version in which the release writes them."""
    if has_behaviour(release, "NominalShares"):
        exempt = has_behaviour(release, "ExemptShares")
        for obj in levels:
            obj["spec"] = _with_nominal_shares(obj["metadata"]["name"], obj["spec"], exempt=exempt)
    for obj in (*schemas, *levels):
        obj["apiVersion"] = f"{GROUP}/{version_in(release)}"
        if has_behaviour(release, "NodeHighLevel"):
            obj["metadata"]["annotations"] = {AUTO_UPDATE: "true"}
    return BootstrapObjects(schemas, levels)


def _with_nominal_shares(name: str, spec: Object, *, exempt: bool) -> Object:
    if spec["type"] == "Exempt":
        return {**spec, "exempt": dict(_EXEMPT_SHARES)} if exempt else spec
    limited = dict(spec["limited"])
    limited["nominalConcurrencyShares"] = limited.pop("assuredConcurrencyShares")
    return {**spec, "limited": {**limited, "lendablePercent": _LENDABLE.get(name, 0)}}


def version_in(release: Release) -> str:
    """The version in which the objects are written."""
    if has_behaviour(release, "FlowControlV1"):
        return "v1"
    if has_behaviour(release, "NominalShares"):
        return "v1beta3"
    return "v1beta2" if has_behaviour(release, "FlowControlV1beta2") else VERSION
