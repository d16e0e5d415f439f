"""What network policies say of one pod: whether it is isolated, and what is allowed to it all the same.

Pure functions over plain values: policies, pods and namespaces in, `Isolation` out. Policies only ever allow; a pod that some
policy selects for a direction gets, in that direction, the sum of what its policies allow and nothing else. Knows no firewall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from transom.machinery import selectors
from transom.machinery.selectors import LabelSelector

Key = tuple[str, str]
"""Namespace and name."""
Direction = Literal["ingress", "egress"]
ClauseKey = tuple[Key, Direction, int]
Object = Mapping[str, Any]
LAST_PORT = 65535


class Pod(NamedTuple):
    """What policies see of a pod."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    addresses: tuple[str, ...]
    node: str
    ports: tuple[tuple[str, str, int], ...] = ()  # name, protocol, number of those that have a name

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    def named(self, name: str, protocol: str) -> list[int]:
        return [number for port, its, number in self.ports if port == name and its == protocol]


class PortRange(NamedTuple):
    """All ports of a protocol, unless `first` is given."""

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


class Block(NamedTuple):
    cidr: str
    excepts: tuple[str, ...] = ()


class PeerSelector(NamedTuple):
    """Pods of the policy's own namespace, or of those that the second selector finds."""

    pods: LabelSelector
    namespaces: LabelSelector | None


@dataclass(frozen=True, slots=True)
class Clause:
    """One rule of a policy. No peers at all means everybody, no ports at all everything."""

    policy: Key
    direction: Direction
    number: int
    everybody: bool
    selectors: tuple[PeerSelector, ...]
    blocks: tuple[Block, ...]
    everything: bool
    ports: tuple[PortRange, ...]
    named: tuple[NamedPort, ...]

    @property
    def key(self) -> ClauseKey:
        return self.policy, self.direction, self.number

    @property
    def source(self) -> str:
        return f"{self.policy[0]}/{self.policy[1]}/{self.direction}/{self.number}"

    def may_select_in(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return any(
            peer.namespaces.matches(labels) if peer.namespaces is not None else namespace == self.policy[0]
            for peer in self.selectors
        )

    def selects(self, pod: Pod, namespace_labels: Mapping[str, str]) -> bool:
        return any(
            peer.pods.matches(pod.labels)
            and (
                peer.namespaces.matches(namespace_labels)
                if peer.namespaces is not None
                else pod.namespace == self.policy[0]
            )
            for peer in self.selectors
        )


@dataclass(frozen=True, slots=True)
class Policy:
    key: Key
    subjects: LabelSelector
    ingress: tuple[Clause, ...] | None  # None: says nothing of this direction
    egress: tuple[Clause, ...] | None

    @property
    def clauses(self) -> tuple[Clause, ...]:
        return (*(self.ingress or ()), *(self.egress or ()))

    def selects(self, pod: Pod) -> bool:
        return pod.namespace == self.key[0] and self.subjects.matches(pod.labels)


@dataclass(frozen=True, slots=True)
class Allow:
    """Traffic with these peers, at these ports. `source` names the rule it comes from; one source has one set of peers."""

    source: str
    peers: frozenset[str] | None  # addresses of pods; None: everybody
    blocks: tuple[Block, ...]
    ports: tuple[PortRange, ...] | None  # None: everything, also what has no ports


@dataclass(frozen=True, slots=True)
class Isolation:
    """For each direction what is allowed, or None where the pod is not isolated."""

    ingress: tuple[Allow, ...] | None = None
    egress: tuple[Allow, ...] | None = None

    def ways(self) -> tuple[tuple[Direction, tuple[Allow, ...] | None], ...]:
        return ("ingress", self.ingress), ("egress", self.egress)


OPEN = Isolation()


class Peers(NamedTuple):
    """The pods that a clause selects, and their addresses."""

    pods: tuple[Pod, ...] = ()
    addresses: frozenset[str] = frozenset()


# ---- objects ---------------------------------------------------------------------------------------------------------


def has_network(obj: Object) -> bool:
    """Whether the pod has, or will have, one of its own: it is not on the host's, and has not ended."""
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    return not spec.get("hostNetwork") and status.get("phase") not in ("Succeeded", "Failed")


def told_addresses(obj: Object) -> tuple[str, ...]:
    """Those that its status tells."""
    status = obj.get("status") or {}
    found = tuple(entry["ip"] for entry in status.get("podIPs") or () if entry.get("ip"))
    return found or ((status["podIP"],) if status.get("podIP") else ())


def pod_of(obj: Object, given: tuple[str, ...] = ()) -> Pod | None:
    """None for a pod that has no network of its own, or not yet. `given` are addresses that its status does not tell yet."""
    addresses = given or told_addresses(obj)
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
    return Pod(metadata.get("namespace", ""), metadata["name"], labels, addresses, spec.get("nodeName", ""), ports)


def policy_of(obj: Object) -> Policy:
    """May raise SelectorError, for what validation would not have let in."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    key = (metadata.get("namespace", ""), metadata["name"])
    types = spec.get("policyTypes")
    if not types:  # as the API fills it in
        types = ("Ingress", "Egress") if spec.get("egress") else ("Ingress",)
    return Policy(
        key,
        selectors.from_object(spec.get("podSelector") or {}),
        _clauses(key, "ingress", spec.get("ingress"), "from") if "Ingress" in types else None,
        _clauses(key, "egress", spec.get("egress"), "to") if "Egress" in types else None,
    )


def _clauses(key: Key, direction: Direction, rules: Iterable[Object] | None, peers: str) -> tuple[Clause, ...]:
    return tuple(
        _clause(key, direction, number, rule.get(peers) or (), rule.get("ports") or ())
        for number, rule in enumerate(rules or ())
    )


def _clause(key: Key, direction: Direction, number: int, peers: Iterable[Object], ports: Iterable[Object]) -> Clause:
    peers, ports = tuple(peers), tuple(ports)
    found: list[PeerSelector] = []
    blocks: list[Block] = []
    for peer in peers:
        block = peer.get("ipBlock")
        if block is not None:
            blocks.append(Block(block["cidr"], tuple(block.get("except") or ())))
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
    return Clause(
        key, direction, number, not peers, tuple(found), tuple(blocks), not ports, tuple(sorted(numbers)), tuple(named)
    )


# ---- what they come to -----------------------------------------------------------------------------------------------

PeersOf = Callable[[Clause | None], Peers]
"""The pods that a clause selects; of None, every pod."""


def isolation_of(pod: Pod, policies: Iterable[Policy], peers_of: PeersOf) -> Isolation:
    """Of a pod and those policies that select it."""
    ingress: list[Allow] | None = None
    egress: list[Allow] | None = None
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
    return Isolation(None if ingress is None else tuple(ingress), None if egress is None else tuple(egress))


def isolation(
    pod: Pod, policies: Iterable[Policy], pods: Iterable[Pod], namespaces: Mapping[str, Mapping[str, str]]
) -> Isolation:
    """The same from everything there is: the definition that the incremental index keeps up with."""
    everyone = sorted(pods, key=lambda other: other.key)

    def peers_of(clause: Clause | None) -> Peers:
        found = [p for p in everyone if clause is None or clause.selects(p, namespaces.get(p.namespace, {}))]
        return peers(found)

    return isolation_of(pod, sorted((p for p in policies if p.selects(pod)), key=lambda p: p.key), peers_of)


def peers(pods: Iterable[Pod]) -> Peers:
    found = tuple(pods)
    return Peers(found, frozenset(address for pod in found for address in pod.addresses))


def _ingress(pod: Pod, clause: Clause, peers_of: PeersOf) -> list[Allow]:
    """A name of a port is that of the pod which is protected."""
    ports: tuple[PortRange, ...] | None = None
    if not clause.everything:
        numbers = {PortRange(p.protocol, n, n) for p in clause.named for n in pod.named(p.name, p.protocol)}
        ports = tuple(sorted({*clause.ports, *numbers}))
        if not ports:
            return []
    return [Allow(clause.source, None if clause.everybody else peers_of(clause).addresses, clause.blocks, ports)]


def _egress(clause: Clause, peers_of: PeersOf) -> list[Allow]:
    """A name of a port is that of the peer: peers that give it the same number go together, addresses have no names."""
    who = None if clause.everybody else peers_of(clause).addresses
    if clause.everything:
        return [Allow(clause.source, who, clause.blocks, None)]
    allowed = [Allow(clause.source, who, clause.blocks, clause.ports)] if clause.ports else []
    for port in clause.named:
        by_number: dict[int, list[Pod]] = {}
        for pod in peers_of(None if clause.everybody else clause).pods:
            for number in pod.named(port.name, port.protocol):
                by_number.setdefault(number, []).append(pod)
        allowed += [
            Allow(
                f"{clause.source}/{port.protocol.lower()}/{number}",
                peers(by_number[number]).addresses,
                (),
                (PortRange(port.protocol, number, number),),
            )
            for number in sorted(by_number)
        ]
    return allowed
