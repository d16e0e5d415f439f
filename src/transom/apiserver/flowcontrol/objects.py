"""The default FlowSchemas and PriorityLevelConfigurations of Kubernetes 1.20, and how later
releases changed them (`in_release`).

Mandatory ones are recreated when deleted; suggested ones are created once and then belong to the
administrator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour

GROUP = "flowcontrol.apiserver.k8s.io"
VERSION = "v1beta1"
EXEMPT = "exempt"
CATCH_ALL = "catch-all"

# name -> shares, queues, hand size, queue length
_LEVELS = {
    "system": (30, 64, 6, 50),
    "leader-election": (10, 16, 4, 50),
    "workload-high": (40, 128, 6, 50),
    "workload-low": (100, 128, 6, 50),
    "global-default": (20, 128, 6, 50),
}

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


_SYSTEM_ACCOUNTS = [
    {"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}}
]
_ALL_USERS = _group("system:unauthenticated", "system:authenticated")


def _election(core_namespace: str) -> list[Object]:
    verbs = ["get", "create", "update"]
    return [
        {
            "verbs": verbs,
            "apiGroups": [""],
            "resources": ["endpoints", "configmaps"],
            "namespaces": [core_namespace],
        },
        {
            "verbs": verbs,
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "namespaces": ["*"],
        },
    ]


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


def mandatory_levels() -> Iterator[Object]:
    yield _level(
        CATCH_ALL,
        {
            "type": "Limited",
            "limited": {"assuredConcurrencyShares": 5, "limitResponse": {"type": "Reject"}},
        },
    )
    yield _level(EXEMPT, {"type": "Exempt"})


def mandatory_schemas() -> Iterator[Object]:
    yield _whole(EXEMPT, EXEMPT, 1, "", _group("system:masters"))
    yield _whole(CATCH_ALL, CATCH_ALL, 10000, "ByUser", _ALL_USERS)


def suggested_levels() -> Iterator[Object]:
    for name, (shares, queues, hand, length) in _LEVELS.items():
        queuing = {"queues": queues, "handSize": hand, "queueLengthLimit": length}
        yield _level(
            name,
            {
                "type": "Limited",
                "limited": {
                    "assuredConcurrencyShares": shares,
                    "limitResponse": {"type": "Queue", "queuing": queuing},
                },
            },
        )


def suggested_schemas() -> Iterator[Object]:
    manager, scheduler = "system:kube-controller-manager", "system:kube-scheduler"
    yield _whole("system-nodes", "system", 500, "ByUser", _group("system:nodes"))
    yield _schema(
        "probes",
        EXEMPT,
        2,
        "",
        _ALL_USERS,
        None,
        [
            {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]},
        ],
    )
    yield _schema(
        "system-leader-election",
        "leader-election",
        100,
        "ByUser",
        _user(manager, scheduler) + _SYSTEM_ACCOUNTS,
        _election("kube-system"),
    )
    yield _schema(
        "workload-leader-election",
        "leader-election",
        200,
        "ByUser",
        _SYSTEM_ACCOUNTS,
        _election("*"),
    )
    yield _whole("kube-controller-manager", "workload-high", 800, "ByNamespace", _user(manager))
    yield _whole("kube-scheduler", "workload-high", 800, "ByNamespace", _user(scheduler))
    yield _whole(
        "kube-system-service-accounts", "workload-high", 900, "ByNamespace", _SYSTEM_ACCOUNTS
    )
    yield _whole(
        "service-accounts", "workload-low", 9000, "ByUser", _group("system:serviceaccounts")
    )
    yield _whole("global-default", "global-default", 9900, "ByUser", _ALL_USERS)


_AUTO_UPDATE = {"apf.kubernetes.io/autoupdate-spec": "true"}
# The percentage of its seats that a level lends to others.
_LENDABLE = {
    "system": 33,
    "node-high": 25,
    "workload-high": 50,
    "workload-low": 90,
    "global-default": 50,
}


def newer_levels(release: Release) -> Iterator[Object]:
    """Suggested levels that 1.20 does not have."""
    if has_behaviour(release, "NodeHighLevel"):
        queuing = {"queues": 64, "handSize": 6, "queueLengthLimit": 50}
        limited = {
            "assuredConcurrencyShares": 40,
            "limitResponse": {"type": "Queue", "queuing": queuing},
        }
        yield _level("node-high", {"type": "Limited", "limited": limited})


def newer_schemas(release: Release) -> Iterator[Object]:
    """Suggested schemas that 1.20 does not have."""
    if has_behaviour(release, "NodeHighLevel"):
        nodes = {
            "verbs": ["*"],
            "apiGroups": [""],
            "resources": ["nodes", "nodes/status"],
            "clusterScope": True,
            "namespaces": ["*"],
        }
        leases = {
            "verbs": ["*"],
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "namespaces": ["*"],
        }
        yield _schema(
            "system-node-high",
            "node-high",
            400,
            "ByUser",
            _group("system:nodes"),
            [nodes, leases],
        )


def in_release(release: Release, objects: Iterable[Object]) -> Iterator[Object]:
    """The objects as the release creates them."""
    for obj in objects:
        if not has_behaviour(release, "NodeHighLevel"):
            yield obj
            continue
        meta = {**obj["metadata"], "annotations": dict(_AUTO_UPDATE)}
        name, spec = meta["name"], obj["spec"]
        if obj["kind"] == "PriorityLevelConfiguration" and has_behaviour(release, "FlowControlV1"):
            spec = _current_level(name, spec)
        version = version_in(release)
        yield {**obj, "apiVersion": f"{GROUP}/{version}", "metadata": meta, "spec": spec}


def _current_level(name: str, spec: Object) -> Object:
    if spec["type"] == "Exempt":
        return {**spec, "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}
    limited = dict(spec["limited"])
    limited["nominalConcurrencyShares"] = limited.pop("assuredConcurrencyShares")
    return {**spec, "limited": {**limited, "lendablePercent": _LENDABLE.get(name, 0)}}


def version_in(release: Release) -> str:
    """The version in which the objects are written."""
    return "v1" if has_behaviour(release, "FlowControlV1") else VERSION
