"""Explains how a walk ended: the Windows limitation behind it, and what to do.

A table of rules, each a function that recognizes one case; the first match wins. Texts and remedies
of limitations come from the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from transom.kit.lazy_dataclass import dataclass
from transom.machinery.selectors import from_object
from transom.network.api import DnsConfig
from transom.network.model.addresses import is_global, is_within
from transom.network.model.packet_trip import NetworkState
from transom.network.model.switch import SwitchNetwork
from transom.network.packets import Packet, Walk
from transom.network.resolver import Os, limit_config, resolver_steps
from transom.network.stacks import NetworkStack
from transom.network.trace.inventory import Inventory, Object
from transom.network.trace.places import TracePlace, cluster_ips, outside_addresses, ready_endpoints
from transom.network.trace.report import TraceReport
from transom.windows.limits import LIMITS
from transom.windows.match import record_holds
from transom.windows.registry import RECORDS
from transom.windows.wording import record_remedy

_MOST_BACKENDS: Final = 64


@dataclass(slots=True)
class TraceCase:
    world: NetworkState
    inventory: Inventory
    start: TracePlace
    end: TracePlace
    packet: Packet  # as it was sent
    walk: Walk

    @property
    def origin(self) -> NetworkStack:
        assert self.start.stack is not None
        return self.start.stack

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.walk.facts

    @property
    def from_windows_pod(self) -> bool:
        return self.origin.role == "sandbox" and self.origin.os == "windows"

    @property
    def from_windows_node(self) -> bool:
        return self.origin.role == "node" and self.origin.os == "windows"

    def net(self, node: str) -> SwitchNetwork | None:
        stack = self.world.fabric.stacks.get(node)
        switch = self.world.switch(stack) if stack is not None else None
        return next(iter(switch.nets()), None) if switch is not None else None

    def owner(self) -> NetworkStack | None:
        """The owner of the destination address."""
        return self.world.fabric.owner(self.packet.destination)


class TraceFinding(NamedTuple):
    limit: str = ""  # id of the record, which may also be that of a symptom
    explanation: str = ""  # replaces the walk's own text
    remedy: str = ""  # replaces the limitation's remedy


Rule = Callable[[TraceCase], TraceFinding | None]


def explain_trace(report: TraceReport, case: TraceCase) -> None:
    if case.walk.outcome == "delivered":
        report.notes = list(_notes(case))
        return
    for rule in _RULES:
        found = rule(case)
        if found is not None:
            _apply(report, found)
            return


def _apply(report: TraceReport, found: TraceFinding) -> None:
    if found.explanation:
        report.explanation = found.explanation
    report.remedy = found.remedy
    if found.limit:
        record = RECORDS[found.limit]
        report.limit, report.title = record.id, record.title
        report.remedy = found.remedy or record_remedy(record)


async def explain_name(
    report: TraceReport, inventory: Inventory, name: str, dns: DnsConfig, os: Os
) -> None:
    """A name that a Linux pod with the same settings would resolve fails because this pod is on
    Windows.
    """
    known = limit_config(name, dns, os)
    if not known:
        report.remedy = "Check the name, and its namespace."
        return
    for step in resolver_steps(name, dns, "linux"):
        if (await inventory.lookup(step.name)).addresses:
            _apply(report, TraceFinding(known, remedy=f"{LIMITS[known].remedy} Here: {step.name}"))
            return
    report.remedy = "Check the name, and its namespace."


# ---- services ----


class _Asked(NamedTuple):
    """The service of an address and port."""

    service: Object
    port: Mapping[str, Any]
    node: NetworkStack | None  # the node whose NodePort it is; None for an address of the service

    @property
    def name(self) -> str:
        return f"{self.service['metadata']['namespace']}/{self.service['metadata']['name']}"

    @property
    def local(self) -> bool:
        return bool(self.service["spec"].get("externalTrafficPolicy") == "Local")


def requested_question(case: TraceCase) -> _Asked | None:
    address, number = case.packet.destination, case.packet.destination_port
    owner = case.owner()
    node = owner if owner is not None and owner.role == "node" else None
    for service in case.inventory.services():
        spec = service["spec"]
        for port in spec.get("ports") or ():
            if node is not None and port.get("nodePort") == number:
                return _Asked(service, port, node)
        if address in cluster_ips(service) or address in outside_addresses(service):
            ports: list[dict[str, Any]] = spec.get("ports") or [{}]
            return _Asked(
                service, next((p for p in ports if p.get("port") == number), ports[0]), None
            )
    return None


def _backends(case: TraceCase, service: Object) -> list[tuple[str, str]]:
    """Address and node of the ready endpoints, of the requested family."""
    meta, six = service["metadata"], ":" in case.packet.destination
    found = {
        address: node
        for one in case.inventory.slices(meta["namespace"], meta["name"])
        for address, node in ready_endpoints(one)
        if (":" in address) == six
    }
    return list(found.items())


def _node_and_vip(case: TraceCase) -> TraceFinding | None:
    if not case.from_windows_node:
        return None
    wanted = requested_question(case)
    if wanted is None:
        return None
    if wanted.node is case.origin:
        return TraceFinding(
            "WIN-NET-003",
            f"{case.origin.name} has no load balancing rule for its own traffic: NodePort "
            f"{case.packet.destination_port} of {wanted.name} does not answer to it",
        )
    if wanted.node is None:
        return TraceFinding(
            "WIN-NET-002",
            f"{case.packet.destination} is an address of service {wanted.name}; rules for it "
            "are on "
            f"the switch ports of pods, and {case.origin.name} sends it to its gateway instead",
        )
    return None


def _no_balancer(case: TraceCase) -> TraceFinding | None:
    """A service without a load balancer on a Windows node."""
    wanted = requested_question(case)
    if wanted is None or "balancer" in case.facts or case.packet.protocol == "icmp":
        return None
    foreign = wanted.node is not None and wanted.node is not case.origin
    node = wanted.node if foreign else case.world.fabric.stacks.get(case.origin.node)
    if wanted.node is None and not case.from_windows_pod:
        return None
    if node is None or node.os != "windows":
        return None
    backends = _backends(case, wanted.service)
    if not backends:
        return TraceFinding(
            "",
            f"service {wanted.name} has no ready endpoints",
            "Check its selector and the readiness of its pods.",
        )
    if len(backends) > _MOST_BACKENDS:
        why = (
            f"service {wanted.name} has {len(backends)} backends: HNS on {node.name} refused its "
            "load balancer"
        )
        return TraceFinding("WIN-SVC-001", why)
    problem = case.inventory.proxy_problem(node.name)
    if problem:
        known = next(
            (
                r.id
                for r in LIMITS.values()
                if r.message and "{" not in r.message and r.message in problem
            ),
            "",
        )
        return TraceFinding(
            known,
            f"kube-proxy of {node.name} does not work: {problem}",
            "" if known else "See its log.",
        )
    here = [address for address, at in backends if at == node.name]
    external = wanted.node is not None or case.packet.destination not in cluster_ips(wanted.service)
    if external and wanted.local and not here:
        return TraceFinding(
            "WIN-SVC-012",
            (
                f"externalTrafficPolicy of {wanted.name} is Local, and {node.name} runs none of "
                "its pods"
            ),
        )
    if (
        external
        and (wanted.service["metadata"].get("annotations") or {}).get("preserve-destination")
        == "true"
        and not here
    ):
        return TraceFinding(
            "WIN-SVC-012",
            f"{wanted.name} preserves destinations, and {node.name} runs none of its pods",
        )
    families: list[str] = wanted.service["spec"].get("ipFamilies") or []
    second = len(families) > 1 and (":" in case.packet.destination) != (families[0] == "IPv6")
    if second and record_holds(LIMITS["WIN-SVC-016"], case.inventory.target(node.name)):
        return TraceFinding(
            "WIN-SVC-016",
            f"{wanted.name} has two families; kube-proxy of {node.name} reads Endpoints, "
            "which have "
            f"addresses of the first one alone ({families[0]})",
        )
    return TraceFinding(
        "",
        f"{node.name} has no load balancer for {wanted.name}: kube-proxy did not create one",
        "See the log of kube-proxy on the node, and transom hns NODE loadbalancers.",
    )


def _no_endpoints(case: TraceCase) -> TraceFinding | None:
    rule = case.facts.get("rule") or {}
    wanted = requested_question(case) if rule.get("table", "").startswith("transom-proxy") else None
    if wanted is None:
        return None
    if not _backends(case, wanted.service):
        return TraceFinding(
            "",
            f"service {wanted.name} has no ready endpoints",
            "Check its selector and the readiness of its pods.",
        )
    if wanted.local:
        return TraceFinding(
            "",
            (
                f"externalTrafficPolicy of {wanted.name} is Local, and {rule['node']} runs none "
                "of its pods"
            ),
            "Ask a node that runs one, or use Cluster.",
        )
    if wanted.service["spec"].get("loadBalancerSourceRanges"):
        why = f"{wanted.name} lets in the addresses of its loadBalancerSourceRanges alone"
        return TraceFinding("", why, "Add the client's range.")
    return None


# ---- the pod network ----


def _ping(case: TraceCase) -> TraceFinding | None:
    if case.packet.protocol != "icmp":
        return None
    if case.facts.get("untranslated") and case.walk.reason in ("reply-lost", "no-route"):
        why = (
            f"the request leaves with the pod's own address, and {case.packet.destination} "
            "cannot answer to that"
        )
        return TraceFinding("WIN-NET-001", why)
    wanted = requested_question(case)
    if wanted is not None and wanted.node is None:
        why = (
            f"{case.packet.destination} is an address of service {wanted.name}, behind which "
            "nothing answers ping"
        )
        return TraceFinding("", why, "Ping a pod, or connect to a port of the service.")
    return None


def _exceptions(case: TraceCase) -> TraceFinding | None:
    """An external address to which a pod's packets leave without translation."""
    listed = case.facts.get("exception")
    owner = case.owner()
    outside = owner.role == "external" if owner is not None else is_global(case.packet.destination)
    if (
        not listed
        or not outside
        or case.walk.reason not in ("reply-lost", "no-route", "no-neighbour")
    ):
        return None
    where = f"{case.packet.destination} is in {listed} of the ExceptionList"
    return TraceFinding(
        "WIN-NET-018", f"{where}: the pod's address is kept, and no answer finds it"
    )


def _overlay_and_node(case: TraceCase) -> TraceFinding | None:
    """Between a Windows node and pods, on an overlay."""
    owner = case.owner()
    net = case.net(case.origin.node)
    if (
        case.from_windows_node
        and net is not None
        and net.type == "Overlay"
        and owner is not None
        and owner.role == "sandbox"
    ):
        if owner.node == case.origin.name:
            why = (
                f"network {net.name} has no host route: {case.origin.name} has no way to its own "
                "pods"
            )
            return TraceFinding("WIN-NET-007", why)
        return TraceFinding(
            "WIN-NET-006",
            f"{owner.node} is another node: {case.origin.name} has no way into the overlay network",
        )
    if (
        case.from_windows_pod
        and owner is not None
        and owner.role == "node"
        and case.walk.reason == "reply-lost"
    ):
        there = case.net(owner.name)
        if (
            owner.os == "windows"
            and there is not None
            and there.type == "Overlay"
            and not there.host_route
        ):
            return TraceFinding(
                "WIN-NET-007",
                f"network {there.name} has no host route: {owner.name} cannot answer to pods",
            )
    return None


def _between_nodes(case: TraceCase) -> TraceFinding | None:
    """Pods on different nodes, at least one of them Windows."""
    owner = case.owner()
    if owner is None or owner.role != "sandbox" or owner.node == case.origin.node:
        return None
    reason = (
        case.walk.reason if case.walk.reason != "reply-lost" else case.facts.get("reply reason", "")
    )
    nets = [net for node in (case.origin.node, owner.node) if (net := case.net(node)) is not None]
    if not nets:
        return None
    kinds = {net.type for net in nets}
    if reason == "no-vxlan":
        vnis = _vnis(case, case.origin.node, owner.node)
        net = case.net(case.origin.node)
        sent = {remote.vni for remote in net.remotes} if net is not None else set()
        if len(vnis) == 1 and sent - vnis:
            [wanted] = vnis
            return TraceFinding(
                "",
                f"flannel of {case.origin.node} sends with VNI {min(sent - vnis)}, and the networks "
                f"have VNI {wanted}",
                'Set "VNI": 4096 in net-conf.json, or use flannel 0.14.0 or later.',
            )
        return TraceFinding("WIN-NET-008" if len(vnis) > 1 else "WIN-NET-009")
    if reason not in ("no-route", "no-neighbour", "no-forwarding"):
        return None
    if "NAT" in kinds:
        return TraceFinding("WIN-NET-012", "pods behind WinNAT are not reached from other machines")
    if "L2Bridge" in kinds:
        missing = case.origin.node if case.walk.reason == "reply-lost" else owner.node
        return TraceFinding("WIN-NET-017", f"there is no route to the pods of {missing}")
    return None


def _vnis(case: TraceCase, *nodes: str) -> set[int]:
    found = {net.vni for node in nodes if (net := case.net(node)) is not None}
    stacks = [stack for node in nodes if (stack := case.world.fabric.stacks.get(node)) is not None]
    return found | {
        link.vni for stack in stacks for link in stack.links.values() if link.kind == "vxlan"
    }


def _ipv6(case: TraceCase) -> TraceFinding | None:
    """Windows without IPv6 addresses."""
    if ":" not in case.packet.destination or case.origin.os != "windows":
        return None
    return _no_ipv6(case.inventory, case.origin)


def _no_ipv6(inventory: Inventory, stack: NetworkStack) -> TraceFinding | None:
    own = stack.addresses()
    if any(":" in address for address in own):
        return None if any(":" not in address for address in own) else TraceFinding("WIN-NET-016")
    target = inventory.target(stack.node)
    why = f"{inventory.name(stack)} has no address of IPv6"
    for id in ("WIN-NET-013", "WIN-NET-014", "WIN-NET-015"):
        if record_holds(LIMITS[id], target):
            return TraceFinding(id, why)
    return TraceFinding(
        "", why, "It takes a cluster with --dual-stack, and containerd on the node (SUP-SVC-012)."
    )


def explain_family(report: TraceReport, inventory: Inventory, stack: NetworkStack) -> None:
    """A name that has only addresses of another family."""
    found = _no_ipv6(inventory, stack) if stack.os == "windows" else None
    remedy = "Use a service of the other family, or of both (ipFamilyPolicy: PreferDualStack)."
    _apply(
        report,
        TraceFinding(
            found.limit if found is not None else "",
            "",
            "" if found is not None and found.limit else remedy,
        ),
    )


def _policy(case: TraceCase) -> TraceFinding | None:
    if (
        case.walk.reason != "policy"
        or (case.facts.get("rule") or {}).get("table", "transom-policy") != "transom-policy"
    ):
        return None
    names = [*_isolating(case, case.origin, "Egress"), *_isolating(case, _arrived(case), "Ingress")]
    if not names:
        return None
    listed = ", ".join(dict.fromkeys(names))
    return TraceFinding(
        "",
        f"NetworkPolicy {listed} does not allow it",
        f"Allow it in a rule of {listed}, or in another policy.",
    )


def _arrived(case: TraceCase) -> NetworkStack | None:
    """The pod that the packet was for, after load balancing."""
    packet = case.walk.packet
    return case.world.fabric.owner(packet.destination) if packet is not None else None


def _isolating(case: TraceCase, stack: NetworkStack | None, kind: str) -> Iterable[str]:
    named = case.inventory.pod_of(stack) if stack is not None and stack.role == "sandbox" else None
    pod = case.inventory.pod(*named) if named is not None else None
    if named is None or pod is None:
        return
    labels = pod["metadata"].get("labels") or {}
    for policy in case.inventory.policies(named[0]):
        spec = policy["spec"]
        types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
        if kind in types and from_object(spec.get("podSelector") or {}).matches(labels):
            yield f"{policy['metadata']['namespace']}/{policy['metadata']['name']}"


def _mac_spoofing(case: TraceCase) -> TraceFinding | None:
    """On the way to the destination, or on the way back."""
    return (
        TraceFinding("SUP-TRB-009")
        if "mac-spoofing" in (case.walk.reason, case.facts.get("reply reason"))
        else None
    )


def _loopback(case: TraceCase) -> TraceFinding | None:
    if case.walk.reason not in ("no-loopback", "no-hairpin"):
        return None
    option = "loopbackDSR" if case.walk.reason == "no-loopback" else "hairpinMode"
    return TraceFinding("", "", f"Set {option} in the network plugin's configuration.")


def _no_listener(case: TraceCase) -> TraceFinding | None:
    if case.walk.reason != "no-listener":
        return None
    wanted = requested_question(case)
    if (
        wanted is not None
        and isinstance(wanted.port.get("targetPort"), str)
        and "balancer" in case.facts
    ):
        numbers = _named_ports(case, wanted)
        if len(numbers) > 1:
            listed = ", ".join(map(str, sorted(numbers)))
            return TraceFinding(
                "WIN-SVC-015",
                f"targetPort {wanted.port['targetPort']!r} is {listed} in different pods",
            )
    if wanted is not None:
        return TraceFinding(
            "", "", "Check the service's targetPort, and that its pods listen on it."
        )
    return TraceFinding(
        "", "", "Check that the program runs and listens on that port, on all addresses."
    )


def _named_ports(case: TraceCase, wanted: _Asked) -> set[int]:
    meta, name = wanted.service["metadata"], wanted.port.get("name", "")
    return {
        p["port"]
        for one in case.inventory.slices(meta["namespace"], meta["name"])
        for p in one.get("ports") or ()
        if (p.get("name") or "") == name and p.get("port")
    }


def _gone(case: TraceCase) -> TraceFinding | None:
    if case.walk.reason in ("no-pod", "no-port"):
        return TraceFinding(
            "",
            "",
            (
                "HNS endpoint and pod do not belong together: see transom hns NODE endpoints, "
                "delete the pod."
            ),
        )
    return None


def _outside_to_pod(case: TraceCase) -> TraceFinding | None:
    owner = case.owner()
    if case.origin.role == "external" and owner is not None and owner.role == "sandbox":
        return TraceFinding(
            "",
            (
                f"{case.packet.destination} is an address of a pod, to which no route leads from "
                "outside"
            ),
            "Use a service of type NodePort or LoadBalancer.",
        )
    return None


def _unknown(case: TraceCase) -> TraceFinding | None:
    if (
        case.owner() is None
        and requested_question(case) is None
        and case.walk.reason in ("no-route", "no-neighbour", "no-port")
    ):
        return TraceFinding(
            "",
            f"no pod, node or service has the address {case.packet.destination}: {case.walk.explanation}",
            "Check the address.",
        )
    return None


_RULES: Final[tuple[Rule, ...]] = (
    _mac_spoofing,
    _policy,
    _node_and_vip,
    _ping,
    _ipv6,
    _no_endpoints,
    _no_balancer,
    _outside_to_pod,
    _overlay_and_node,
    _between_nodes,
    _exceptions,
    _loopback,
    _no_listener,
    _gone,
    _unknown,
)


# ---- visible although it arrives ----


def _notes(case: TraceCase) -> Iterable[dict[str, str]]:
    wanted = requested_question(case)
    if wanted is None or "balancer" not in case.facts:
        return
    spec = wanted.service["spec"]
    node = wanted.node.name if wanted.node is not None else case.origin.node
    target = case.inventory.target(node)
    seen = case.walk.packet.source if case.walk.packet is not None else ""
    client = case.packet.source
    met = []
    if spec.get("sessionAffinity") == "ClientIP":
        met += ["WIN-SVC-002", "WIN-SVC-003"]
        if ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get(
            "timeoutSeconds", 10800
        ) != 10800:
            met.append("WIN-SVC-004")
    if spec.get("loadBalancerSourceRanges") and not any(
        is_within(client, r) for r in spec["loadBalancerSourceRanges"] if client
    ):
        met.append("WIN-SVC-013")
    if wanted.local and client and seen != client:
        met += ["WIN-SVC-005", "WIN-SVC-006"]
    for id in met:
        if record_holds(LIMITS[id], target):
            yield {"limit": id, "text": LIMITS[id].title}
