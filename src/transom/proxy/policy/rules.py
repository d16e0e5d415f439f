"""The effect of network policies on one pod: whether it is isolated, and which traffic is still
allowed.

Pure functions: policies, pods and namespaces in, `PodIsolation` out. Policies only allow: a pod
that a policy selects for a direction allows, in that direction, the union of what its policies
allow and nothing else. Independent of any firewall.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.machinery import selectors
from transom.machinery.selectors import LabelSelector

log = logging.getLogger("transom.proxy")

MOST_PEERS = 2_000  # peers, excepted blocks or ports of one policy and direction
Key = tuple[str, str]
"""Namespace and name."""
Direction = Literal["ingress", "egress"]
ClauseKey = tuple[Key, Direction, int]
Object = Mapping[str, Any]
LAST_PORT = 65535


class PolicyPod(NamedTuple):
    """The properties of a pod that policies use."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    addresses: tuple[str, ...]
    node: str
    ports: tuple[tuple[str, str, int], ...] = ()  # name, protocol and number of the named ports

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    def named(self, name: str, protocol: str) -> list[int]:
        return [number for port, its, number in self.ports if port == name and its == protocol]


class PortRange(NamedTuple):
    """All ports of a protocol unless `first` is set."""

    protocol: str
    first: int = 0
    last: int = LAST_PORT

    @property
    def whole(self) -> bool:
        return self.first == 0 and self.last == LAST_PORT

    @property
    def text(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


class NamedPort(NamedTuple):
    protocol: str
    name: str


class PolicyIPBlock(NamedTuple):
    cidr: str
    excepts: tuple[str, ...] = ()


class PeerSelector(NamedTuple):
    """Pods of the policy's own namespace, or of the namespaces that the second selector matches."""

    pods: LabelSelector
    namespaces: LabelSelector | None


class PeerIndex:
    """The peers of one rule, indexed by a label that each of them requires.

    The cost of checking a pod depends on its labels and on the peers that share one of them, not on
    the total number of peers.
    """

    __slots__ = ("_by_key", "_by_value", "_rest")

    def __init__(self, peers: Iterable[PeerSelector]) -> None:
        self._by_value: dict[tuple[str, str], list[PeerSelector]] = {}
        self._by_key: dict[str, list[PeerSelector]] = {}
        self._rest: list[PeerSelector] = []  # peers that require no label
        distinct = [(peer, peer.pods.required()) for peer in dict.fromkeys(peers)]
        frequency = Counter(
            (key, value)
            for _, required in distinct
            for key, values in required
            for value in values or (None,)
        )
        for peer, required in distinct:
            if not required:
                self._rest.append(peer)
                continue
            # Index by the requirement that the fewest other peers share.
            key, values = min(
                required,
                key=lambda one: sum(frequency[one[0], value] for value in one[1] or (None,)),
            )
            if values is None:
                self._by_key.setdefault(key, []).append(peer)
                continue
            for value in values:
                self._by_value.setdefault((key, value), []).append(peer)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[PeerSelector]:
        yield from self._rest
        if len(labels) > len(self._by_value) + len(self._by_key):
            for (key, value), peers in self._by_value.items():
                if labels.get(key) == value:
                    yield from peers
            for key, peers in self._by_key.items():
                if key in labels:
                    yield from peers
            return
        for item in labels.items():
            yield from self._by_value.get(item, ())
            yield from self._by_key.get(item[0], ())


@dataclass(frozen=True, slots=True)
class PolicyClause:
    """One rule of a policy. Without peers it matches all peers, without ports all traffic."""

    policy: Key
    direction: Direction
    number: int
    all_peers: bool
    selectors: tuple[PeerSelector, ...]
    blocks: tuple[PolicyIPBlock, ...]
    everything: bool
    ports: tuple[PortRange, ...]
    named: tuple[NamedPort, ...]
    index: PeerIndex = field(compare=False, repr=False)

    @property
    def key(self) -> ClauseKey:
        return self.policy, self.direction, self.number

    @property
    def source(self) -> str:
        return f"{self.policy[0]}/{self.policy[1]}/{self.direction}/{self.number}"

    def may_select_in(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return any(
            peer.namespaces.matches(labels)
            if peer.namespaces is not None
            else namespace == self.policy[0]
            for peer in self.selectors
        )

    def selects(self, pod: PolicyPod, namespace_labels: Mapping[str, str]) -> bool:
        return any(
            peer.pods.matches(pod.labels)
            and (
                peer.namespaces.matches(namespace_labels)
                if peer.namespaces is not None
                else pod.namespace == self.policy[0]
            )
            for peer in self.index.candidates(pod.labels)
        )


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    key: Key
    subjects: LabelSelector
    ingress: tuple[PolicyClause, ...] | None  # None: the policy does not apply to this direction
    egress: tuple[PolicyClause, ...] | None

    @property
    def clauses(self) -> tuple[PolicyClause, ...]:
        return (*(self.ingress or ()), *(self.egress or ()))

    def selects(self, pod: PolicyPod) -> bool:
        return pod.namespace == self.key[0] and self.subjects.matches(pod.labels)


@dataclass(frozen=True, slots=True)
class AllowedTraffic:
    """Traffic with these peers, at these ports. `source` identifies the rule; all traffic of a
    source has the same peers.
    """

    source: str
    peers: frozenset[str] | None  # pod addresses; None: all
    blocks: tuple[PolicyIPBlock, ...]
    ports: tuple[PortRange, ...] | None  # None: all traffic, including protocols without ports


@dataclass(frozen=True, slots=True)
class PodIsolation:
    """The allowed traffic for each direction; None if the pod is not isolated in it."""

    ingress: tuple[AllowedTraffic, ...] | None = None
    egress: tuple[AllowedTraffic, ...] | None = None

    def ways(self) -> tuple[tuple[Direction, tuple[AllowedTraffic, ...] | None], ...]:
        return ("ingress", self.ingress), ("egress", self.egress)


OPEN = PodIsolation()


class PolicyPeers(NamedTuple):
    """The pods that a clause selects, and their addresses."""

    pods: tuple[PolicyPod, ...] = ()
    addresses: frozenset[str] = frozenset()


# ---- objects ----


def has_network(obj: Object) -> bool:
    """Whether the pod has, or will have, its own network: no hostNetwork, and not terminated."""
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    return not spec.get("hostNetwork") and status.get("phase") not in ("Succeeded", "Failed")


def reported_addresses(obj: Object) -> tuple[str, ...]:
    """The addresses in its status."""
    status = obj.get("status") or {}
    found = tuple(entry["ip"] for entry in status.get("podIPs") or () if entry.get("ip"))
    return found or ((status["podIP"],) if status.get("podIP") else ())


def policy_pod_of(obj: Object, given: tuple[str, ...] = ()) -> PolicyPod | None:
    """None for a pod without its own network or addresses. `given` are addresses that its status
    does not have yet.
    """
    addresses = given or reported_addresses(obj)
    if not addresses or not has_network(obj):
        return None
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    ports = tuple(
        (port["name"], port.get("protocol") or "TCP", port["containerPort"])
        for container in spec.get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("name")
    )
    labels = metadata.get("labels") or {}
    return PolicyPod(
        metadata.get("namespace", ""),
        metadata["name"],
        labels,
        addresses,
        spec.get("nodeName", ""),
        ports,
    )


def compile_policy(obj: Object) -> CompiledPolicy:
    """May raise SelectorError for a policy that validation would have rejected."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    key = (metadata.get("namespace", ""), metadata["name"])
    types = spec.get("policyTypes")
    if not types:  # the API's default
        types = ("Ingress", "Egress") if spec.get("egress") else ("Ingress",)
    return CompiledPolicy(
        key,
        selectors.from_object(spec.get("podSelector") or {}),
        _clauses(key, "ingress", spec.get("ingress"), "from") if "Ingress" in types else None,
        _clauses(key, "egress", spec.get("egress"), "to") if "Egress" in types else None,
    )


def _clauses(
    key: Key, direction: Direction, rules: Iterable[Object] | None, peers: str
) -> tuple[PolicyClause, ...]:
    out: list[PolicyClause] = []
    left = MOST_PEERS
    for number, rule in enumerate(rules or ()):
        allowed, ports = rule.get(peers) or (), rule.get("ports") or ()
        blocks = sum(len((peer.get("ipBlock") or {}).get("except") or ()) for peer in allowed)
        left -= max(len(allowed) + blocks, len(ports), 1)
        if left < 0:
            # Fewer rules allow less.
            log.warning("NetworkPolicy %s/%s: only %d peers are used", *key, MOST_PEERS)
            break
        out.append(_clause(key, direction, number, allowed, ports))
    return tuple(out)


def _clause(
    key: Key, direction: Direction, number: int, peers: Iterable[Object], ports: Iterable[Object]
) -> PolicyClause:
    peers, ports = tuple(peers), tuple(ports)
    found: list[PeerSelector] = []
    blocks: list[PolicyIPBlock] = []
    for peer in peers:
        block = peer.get("ipBlock")
        if block is not None:
            blocks.append(PolicyIPBlock(block["cidr"], tuple(block.get("except") or ())))
            continue
        pods, namespaces = peer.get("podSelector"), peer.get("namespaceSelector")
        if pods is None and namespaces is None:
            continue
        found.append(
            PeerSelector(
                selectors.from_object({} if pods is None else pods),
                None if namespaces is None else selectors.from_object(namespaces),
            )
        )
    numbers: list[PortRange] = []
    named: list[NamedPort] = []
    for port in ports:
        protocol, wanted = port.get("protocol") or "TCP", port.get("port")
        if wanted is None:
            numbers.append(PortRange(protocol))
        elif isinstance(wanted, str):
            named.append(NamedPort(protocol, wanted))
        else:
            numbers.append(PortRange(protocol, wanted, port.get("endPort") or wanted))
    return PolicyClause(
        key,
        direction,
        number,
        not peers,
        tuple(found),
        tuple(blocks),
        not ports,
        tuple(sorted(set(numbers))),
        tuple(named),
        PeerIndex(found),
    )


# ---- evaluation ----

PeersOf = Callable[[PolicyClause | None], PolicyPeers]
"""The pods that a clause selects; for None, every pod."""


def isolation_of(
    pod: PolicyPod, policies: Iterable[CompiledPolicy], peers_of: PeersOf
) -> PodIsolation:
    """The isolation of a pod by the policies that select it."""
    ingress: list[AllowedTraffic] | None = None
    egress: list[AllowedTraffic] | None = None
    for policy in policies:
        if policy.ingress is not None:
            ingress = ingress if ingress is not None else []
            for clause in policy.ingress:
                ingress += _ingress(pod, clause, peers_of)
        if policy.egress is not None:
            egress = egress if egress is not None else []
            for clause in policy.egress:
                egress += _egress(clause, peers_of)
    if ingress is None and egress is None:
        return OPEN
    return PodIsolation(
        None if ingress is None else tuple(ingress), None if egress is None else tuple(egress)
    )


def pod_isolation(
    pod: PolicyPod,
    policies: Iterable[CompiledPolicy],
    pods: Iterable[PolicyPod],
    namespaces: Mapping[str, Mapping[str, str]],
) -> PodIsolation:
    """The same from all objects: the definition that the incremental index must match."""
    everyone = sorted(pods, key=lambda other: other.key)

    def peers_of(clause: PolicyClause | None) -> PolicyPeers:
        found = [
            p
            for p in everyone
            if clause is None or clause.selects(p, namespaces.get(p.namespace, {}))
        ]
        return policy_peers(found)

    return isolation_of(
        pod, sorted((p for p in policies if p.selects(pod)), key=lambda p: p.key), peers_of
    )


def policy_peers(pods: Iterable[PolicyPod]) -> PolicyPeers:
    found = tuple(pods)
    return PolicyPeers(found, frozenset(address for pod in found for address in pod.addresses))


def _ingress(pod: PolicyPod, clause: PolicyClause, peers_of: PeersOf) -> list[AllowedTraffic]:
    """A port name refers to a port of the protected pod."""
    ports: tuple[PortRange, ...] | None = None
    if not clause.everything:
        ports = clause.ports
        if clause.named:
            numbers = {
                PortRange(p.protocol, n, n)
                for p in clause.named
                for n in pod.named(p.name, p.protocol)
            }
            ports = tuple(sorted({*ports, *numbers}))
        if not ports:
            return []
    return [
        AllowedTraffic(
            clause.source,
            None if clause.all_peers else peers_of(clause).addresses,
            clause.blocks,
            ports,
        )
    ]


def _egress(clause: PolicyClause, peers_of: PeersOf) -> list[AllowedTraffic]:
    """A port name refers to a port of the peer: peers are grouped by its number. Addresses have no
    port names.
    """
    who = None if clause.all_peers else peers_of(clause).addresses
    if clause.everything:
        return [AllowedTraffic(clause.source, who, clause.blocks, None)]
    allowed = (
        [AllowedTraffic(clause.source, who, clause.blocks, clause.ports)] if clause.ports else []
    )
    for port in clause.named:
        by_number: dict[int, list[PolicyPod]] = {}
        for pod in peers_of(None if clause.all_peers else clause).pods:
            for number in pod.named(port.name, port.protocol):
                by_number.setdefault(number, []).append(pod)
        allowed += [
            AllowedTraffic(
                f"{clause.source}/{port.protocol.lower()}/{number}",
                policy_peers(by_number[number]).addresses,
                (),
                (PortRange(port.protocol, number, number),),
            )
            for number in sorted(by_number)
        ]
    return allowed
