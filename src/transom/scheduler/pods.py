"""Pods as the scheduler sees them: parsed once, and shared by all pods with the same specification
or labels.

A `PodShape` has the requirements of a specification, a `PodIdentity` the namespace and the labels.
Both are interned: all pods of a Deployment share them, and what plugins compute for one pod is
valid for all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

import orjson

from transom.kit.named_tuple import NamedTuple
from transom.machinery import selectors
from transom.machinery.objects import Object
from transom.machinery.selectors import LabelSelector, SelectorError
from transom.scheduler.resources import ResourceRequests, counted_request, pod_requests

ALL_ADDRESSES = "0.0.0.0"
_LARGE = 500  # terms, constraints, ports and amounts that take long to parse
_DISKS = ("gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi", "azureDisk", "cinder")


class HostPort(NamedTuple):
    ip: str
    protocol: str
    port: int


class PodIdentity:
    """Namespace and labels. `memo` caches which selectors match."""

    __slots__ = ("__weakref__", "labels", "memo", "namespace")

    def __init__(self, namespace: str, labels: dict[str, str]) -> None:
        self.namespace = namespace
        self.labels = labels
        self.memo: dict[Hashable, Any] = {}


class PodSelector:
    """Matches pods by namespace and labels; with several pairs, all must match. Use
    `intern_pod_selector`.
    """

    __slots__ = ("__weakref__", "pairs")

    def __init__(self, pairs: tuple[tuple[frozenset[str], LabelSelector], ...]) -> None:
        self.pairs = pairs

    def matches(self, identity: PodIdentity) -> bool:
        found = identity.memo.get(self)
        if found is None:
            found = identity.memo[self] = all(
                identity.namespace in namespaces and selector.matches(identity.labels)
                for namespaces, selector in self.pairs
            )
        return bool(found)


class AffinityTerm(NamedTuple):
    """A term of pod affinity or anti-affinity. `key` is the topology key."""

    pod_selector: PodSelector
    key: str
    weight: int = 0


class SpreadConstraint(NamedTuple):
    max_skew: int
    key: str
    hard: bool
    selector: LabelSelector | None  # None: that of the pod's Services and controllers
    problem: str = ""  # why the selector is invalid
    min_domains: int = 1
    honors_affinity: bool = True  # nodes that the pod cannot select do not count
    honors_taints: bool = False  # nor do those with taints that it does not tolerate


class PodAffinityTerms(NamedTuple):
    """Pod affinity and anti-affinity; `problem` is why a selector is invalid."""

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred: tuple[AffinityTerm, ...] = ()
    avoided: tuple[AffinityTerm, ...] = ()
    problem: str = ""

    @property
    def any(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.preferred or self.avoided)


class PodShape:
    """The requirements of a pod specification. `memo` is a cache for plugins, with the lifetime of
    the pods of this shape.
    """

    __slots__ = (
        "__weakref__",
        "counted_cpu",
        "counted_memory",
        "images",
        "memo",
        "node_affinity",
        "node_selector",
        "ports",
        "priority",
        "requests",
        "spec",
        "spreads",
        "terms",
        "tolerations",
    )

    def __init__(self, namespace: str, spec: Object, labels: dict[str, str]) -> None:
        self.spec = spec
        self.requests: ResourceRequests = pod_requests(spec)
        self.counted_cpu = counted_request(spec, "cpu")
        self.counted_memory = counted_request(spec, "memory")
        self.priority: int = spec.get("priority") or 0
        self.node_selector: dict[str, str] = spec.get("nodeSelector") or {}
        affinity = spec.get("affinity") or {}
        self.node_affinity: Object | None = affinity.get("nodeAffinity")
        self.tolerations: list[Object] = spec.get("tolerations") or []
        self.images = tuple(c.get("image", "") for c in spec.get("containers") or ())
        self.ports = tuple(_host_ports(spec))
        self.terms = _pod_terms(namespace, affinity)
        self.spreads: tuple[SpreadConstraint, ...] = tuple(
            parse_spread_constraint(constraint, labels)
            for constraint in spec.get("topologySpreadConstraints") or ()
        )
        self.memo: dict[Hashable, Any] = {}


def is_large_spec(spec: Object) -> bool:
    """Whether a specification takes long to parse."""
    constraints = spec.get("topologySpreadConstraints") or ()
    size = len(constraints)
    if any(selectors.takes_long_to_compile(one.get("labelSelector")) for one in constraints):
        return True
    for kind in (spec.get("affinity") or {}).values():
        for terms in kind.values():
            size += len(terms.get("nodeSelectorTerms", ()) if isinstance(terms, dict) else terms)
            if any(_takes_long(term) for term in terms):
                return True
    for container in spec.get("containers") or ():
        size += len(container.get("ports") or ())
        for amounts in (container.get("resources") or {}).values():
            size += len(amounts)
    return size > _LARGE


def _takes_long(term: Any) -> bool:
    """Whether a term of a pod affinity takes long to parse; terms of nodes are parsed later."""
    if not isinstance(term, dict):  # a name in a required node affinity
        return False
    return selectors.takes_long_to_compile(
        (term.get("podAffinityTerm") or term).get("labelSelector")
    )


class PodInfo:
    """A pod in one state. `row` is the row of its node in the snapshot, -1 without a node."""

    __slots__ = (
        "identity",
        "key",
        "name",
        "namespace",
        "pod",
        "priority",
        "row",
        "shape",
        "terminating",
        "uid",
    )

    def __init__(self, pod: Object) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        self.pod = pod
        self.name: str = meta["name"]
        self.namespace: str = meta.get("namespace", "")
        self.key = f"{self.namespace}/{self.name}"
        self.uid: str = meta.get("uid") or self.key
        self.shape = _shape(self.namespace, spec, meta.get("labels") or {})
        self.priority: int = self.shape.priority
        self.identity = _identity(self.namespace, meta.get("labels") or {})
        self.terminating = meta.get("deletionTimestamp") is not None
        self.row = -1

    @property
    def node_name(self) -> str:
        return self.pod["spec"].get("nodeName", "")

    @property
    def labels(self) -> dict[str, str]:
        return self.identity.labels

    @property
    def scheduler_name(self) -> str:
        return self.pod["spec"].get("schedulerName", "")

    @property
    def volumes(self) -> list[Object]:
        return self.pod["spec"].get("volumes") or []

    @property
    def nominated(self) -> str:
        return (self.pod.get("status") or {}).get("nominatedNodeName", "")


_shapes: WeakValueDictionary[bytes, PodShape] = WeakValueDictionary()
_identities: WeakValueDictionary[Hashable, PodIdentity] = WeakValueDictionary()
_predicates: WeakValueDictionary[Hashable, PodSelector] = WeakValueDictionary()


def _shape(namespace: str, spec: Object, labels: dict[str, str]) -> PodShape:
    get = spec.get
    keys = {
        key
        for constraint in get("topologySpreadConstraints") or ()
        for key in constraint.get("matchLabelKeys") or ()
    }
    key = orjson.dumps(
        (
            namespace,
            [(c.get("resources"), c.get("ports"), c.get("image")) for c in get("containers") or ()],
            [(c.get("resources"), c.get("restartPolicy")) for c in get("initContainers") or ()],
            get("resources"),
            sorted((key, labels[key]) for key in keys if key in labels),
            get("overhead"),
            get("nodeSelector"),
            get("affinity"),
            get("tolerations"),
            get("topologySpreadConstraints"),
            get("priority"),
            get("os"),
        )
    )
    shape = _shapes.get(key)
    if shape is None:
        shape = _shapes[key] = PodShape(namespace, spec, labels)
    return shape


def _identity(namespace: str, labels: dict[str, str]) -> PodIdentity:
    key = (namespace, frozenset(labels.items()))
    identity = _identities.get(key)
    if identity is None:
        identity = _identities[key] = PodIdentity(namespace, labels)
    return identity


def intern_pod_selector(*pairs: tuple[frozenset[str], LabelSelector]) -> PodSelector:
    found = _predicates.get(pairs)
    if found is None:
        found = _predicates[pairs] = PodSelector(pairs)
    return found


def has_disks(pod: Object) -> bool:
    """Whether the pod has volumes whose number or sharing is limited on each node."""
    return any(disk in volume for volume in pod["spec"].get("volumes") or () for disk in _DISKS)


def has_claims(pod: Object) -> bool:
    return any(
        "persistentVolumeClaim" in volume or "ephemeral" in volume
        for volume in pod["spec"].get("volumes") or ()
    )


def parse_spread_constraint(
    constraint: Object, labels: Mapping[str, str] = MappingProxyType({})
) -> SpreadConstraint:
    """`labels` are those of the pod, which `matchLabelKeys` adds to the selector."""
    selector = constraint.get("labelSelector")
    added = [
        {"key": key, "operator": "In", "values": [labels[key]]}
        for key in constraint.get("matchLabelKeys") or ()
        if key in labels
    ]
    if added and selector is not None:
        selector = {
            **selector,
            "matchExpressions": [*(selector.get("matchExpressions") or ()), *added],
        }
    problem = ""
    try:
        parsed = selectors.from_object(selector)
    except SelectorError as wrong:
        parsed, problem = selectors.nothing(), str(wrong)
    return SpreadConstraint(
        constraint.get("maxSkew", 0),
        constraint.get("topologyKey", ""),
        constraint.get("whenUnsatisfiable") == "DoNotSchedule",
        parsed,
        problem,
        constraint.get("minDomains") or 1,
        constraint.get("nodeAffinityPolicy") != "Ignore",
        constraint.get("nodeTaintsPolicy") == "Honor",
    )


def _host_ports(spec: Object) -> Iterable[HostPort]:
    for container in spec.get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("hostPort", 0) > 0:
                yield HostPort(
                    port.get("hostIP") or ALL_ADDRESSES,
                    port.get("protocol") or "TCP",
                    port["hostPort"],
                )


def _pod_terms(namespace: str, affinity: Object) -> PodAffinityTerms:
    near, far = affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}
    if not near and not far:
        return PodAffinityTerms()
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    found: list[tuple[AffinityTerm, ...]] = []
    problem = ""
    for what, entries in (
        ("requiredAffinityTerms", [(t, 0) for t in near.get(required) or ()]),
        ("requiredAntiAffinityTerms", [(t, 0) for t in far.get(required) or ()]),
        (
            "preferredAffinityTerms",
            [(t["podAffinityTerm"], t["weight"]) for t in near.get(preferred) or ()],
        ),
        (
            "preferredAntiAffinityTerms",
            [(t["podAffinityTerm"], t["weight"]) for t in far.get(preferred) or ()],
        ),
    ):
        try:
            found.append(tuple(_term(namespace, term, weight) for term, weight in entries))
        except SelectorError as wrong:
            found.append(())
            problem = f"{what}: {wrong}"
    return PodAffinityTerms(found[0], found[1], found[2], found[3], problem)


def _term(namespace: str, term: Object, weight: int) -> AffinityTerm:
    namespaces = frozenset(term.get("namespaces") or (namespace,))
    selector = selectors.from_object(term.get("labelSelector"))
    return AffinityTerm(
        intern_pod_selector((namespaces, selector)), term.get("topologyKey", ""), weight
    )
