"""Runs one trace: finds the ends, resolves the name as the pod would, walks, and explains
failures.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from transom.network.model.addresses import address_family, address_with_port
from transom.network.model.packet_trip import NetworkState
from transom.network.model.walk import walk_packet
from transom.network.packets import Hop, Packet, Protocol, Walk
from transom.network.resolver import resolver_steps
from transom.network.stacks import NetworkStack
from transom.network.trace import diagnosis
from transom.network.trace.inventory import Inventory, Object, TraceError
from transom.network.trace.places import (
    TracePlace,
    cluster_ips,
    find_trace_place,
    ingress_ips,
    outside_addresses,
    port_of,
    ready_endpoints,
    split_target,
)
from transom.network.trace.report import TraceReport

_DNS_PORT = 53


async def run_trace(
    world: NetworkState,
    inventory: Inventory,
    origin: str,
    target: str,
    protocol: Protocol = "tcp",
    namespace: str = "default",
) -> TraceReport:
    """Raises TraceError for what cannot be traced at all."""
    start = find_trace_place(origin, world.fabric, inventory, namespace)
    if start.stack is None:
        raise TraceError(f"{start.shown} is not connected: its node is off, or its sandbox is gone")
    text, requested = split_target(target)
    end = find_trace_place(
        text, world.fabric, inventory, start.namespace or namespace, origin=start
    )
    report = TraceReport(start.shown, end.shown, protocol, 0)
    if end.kind == "service" and end.object is not None and not end.addresses:
        end = _by_its_name(end, start, inventory)
    if end.kind == "name":
        resolved = await _resolve(world, inventory, start, end, report)
        if resolved is None:
            return report
        end = resolved
    address, port = _aim(end, start, requested, protocol, inventory)
    if start.kind == "external":
        address, port = _through_front(report, start, address, port, protocol, inventory)
    report.address, report.port = address, 0 if protocol == "icmp" else port
    packet = Packet(_source(start, address), address, protocol, 0, report.port)
    found = walk_packet(
        world, packet, start.stack, listening=inventory.listening, record=True, name=inventory.name
    )
    _fill(report, found, world, inventory)
    diagnosis.explain_trace(
        report, diagnosis.TraceCase(world, inventory, start, end, packet, found)
    )
    return report


def _by_its_name(end: TracePlace, start: TracePlace, inventory: Inventory) -> TracePlace:
    """A service without an address of its own stands for its name: its pods, or an external
    name.
    """
    if start.kind == "pod":
        return replace(end, kind="name", text=f"{end.name}.{end.namespace}.svc.{inventory.domain}.")
    addresses = [
        a
        for s in inventory.slices(end.namespace, end.name)
        for e in s.get("endpoints") or ()
        for a in e["addresses"]
    ]
    if not addresses:
        raise TraceError(f"{end.shown} has neither an address nor endpoints")
    return replace(end, addresses=tuple(addresses))


def _source(start: TracePlace, destination: str) -> str:
    """The source address of the connection, if it matters: an external host is not its router."""
    if start.kind in ("external", "address"):
        return next(
            (a for a in start.addresses if address_family(a) == address_family(destination)), ""
        )
    return ""


def _aim(
    end: TracePlace, start: TracePlace, requested: str, protocol: str, inventory: Inventory
) -> tuple[str, int]:
    port = port_of(end, requested, protocol)
    addresses = end.addresses
    if end.kind == "service" and end.object is not None and start.kind == "external":
        outside = outside_addresses(end.object)
        node_port = next(
            (
                p.get("nodePort", 0)
                for p in end.object["spec"].get("ports") or ()
                if p["port"] == port
            ),
            0,
        )
        if outside:
            addresses = outside
        elif node_port:
            addresses, port = tuple(_node_addresses(inventory)), node_port
    if not addresses:
        raise TraceError(f"{end.shown} has no address")
    mine = {address_family(a) for a in start.stack.addresses()} if start.stack is not None else {4}
    return next((a for a in addresses if address_family(a) in mine), addresses[0]), port


def _through_front(
    report: TraceReport,
    start: TracePlace,
    address: str,
    port: int,
    protocol: Protocol,
    inventory: Inventory,
) -> tuple[str, int]:
    """A load balancer address without a route is that of a balancer in front of the cluster, which
    forwards to a node port: of a node that runs a pod of the service, if its traffic policy
    requires that.
    """
    stack = start.stack
    route = stack.route(address) if stack is not None else None
    if route is not None and route.via:
        return address, port
    for service in inventory.services():
        number = next(
            (p.get("nodePort", 0) for p in service["spec"].get("ports") or () if p["port"] == port),
            0,
        )
        if number and address in ingress_ips(service):
            local = service["spec"].get("externalTrafficPolicy") == "Local"
            node = next(
                iter(_serving(inventory, service) if local else _node_addresses(inventory)), ""
            )
            if node:
                packet = Packet(_source(start, address), address, protocol, 0, port)
                text = (
                    f"{address_with_port(address, port)} is in front of the cluster: handed on to "
                    f"{address_with_port(node, number)}"
                )
                report.hops.append(Hop("external", "load balancer", text, packet))
                return node, number
    return address, port


def _serving(inventory: Inventory, service: Object) -> list[str]:
    """Addresses of the nodes that run a ready pod of the service."""
    meta = service["metadata"]
    ready = {
        node
        for one in inventory.slices(meta["namespace"], meta["name"])
        for _, node in ready_endpoints(one)
    }
    return _node_addresses(inventory, ready)


def _node_addresses(inventory: Inventory, of: Collection[str] | None = None) -> list[str]:
    nodes = [node for node in inventory.nodes() if of is None or node["metadata"]["name"] in of]
    listed = [a for node in nodes for a in (node.get("status") or {}).get("addresses") or ()]
    return [a["address"] for a in listed if a["type"] == "InternalIP"]


def _fill(report: TraceReport, found: Walk, world: NetworkState, inventory: Inventory) -> None:
    at = world.fabric.stacks.get(found.stack)
    report.verdict = found.outcome
    report.hops += found.hops
    report.reply = found.facts.get("reply", [])
    report.seen = found.packet
    report.at = inventory.name(at) if at is not None else found.stack
    report.reason, report.explanation = found.reason, found.explanation


# ---- names ----


async def _resolve(
    world: NetworkState,
    inventory: Inventory,
    start: TracePlace,
    end: TracePlace,
    report: TraceReport,
) -> TracePlace | None:
    """The place with its addresses; None if there are none, and the report explains why."""
    stack = start.stack
    assert stack is not None
    if start.kind != "pod" or start.object is None:
        return await _resolve_outside_pods(inventory, start, stack, end, report)
    dns = inventory.dns_of(start.object)
    here = inventory.name(stack)
    server = dns.servers[0] if dns.servers else ""
    asking = Packet(stack.addresses()[0], server, "udp", 0, _DNS_PORT)
    listed = tuple(inventory.hosts(start.object, end.text))
    if listed:
        text = f"{end.text}: {', '.join(listed)} (the host's own name or its hosts file)"
        report.hops.append(Hop(here, "resolver", text, replace(asking, destination=listed[0])))
        return _behind(replace(end, addresses=listed), inventory)
    if server and not await _reached(world, inventory, start, stack, server, report):
        return None
    mine = {address_family(address) for address in stack.addresses()}
    other = ""
    for step in resolver_steps(end.text, dns, stack.os):
        answer = await inventory.lookup(step.name)
        # A resolver queries addresses of the families that its machine has.
        usable = tuple(address for address in answer.addresses if address_family(address) in mine)
        other = other or ("" if usable else next(iter(answer.addresses), ""))
        found = ", ".join(usable) or ("no address" if answer.addresses else answer.error)
        report.hops.append(Hop(here, "resolver", f"{step.name}: {found} ({step.why})", asking))
        if usable:
            return _behind(replace(end, addresses=usable), inventory)
    report.verdict, report.reason = "unresolved", "unknown-name"
    if other:
        report.explanation = f"{end.text} has {other}, and the pod has no address of that family"
        diagnosis.explain_family(report, inventory, stack)
        return None
    report.explanation = f"DNS knows no address for {end.text}, as the pod asks for it"
    await diagnosis.explain_name(report, inventory, end.text, dns, stack.os)
    return None


async def _resolve_outside_pods(
    inventory: Inventory,
    start: TracePlace,
    stack: NetworkStack,
    end: TracePlace,
    report: TraceReport,
) -> TracePlace | None:
    """Nodes have a hosts file and a name server of their own, and do not ask cluster DNS."""
    answer = await inventory.node_lookup(start.name, end.text) if start.kind == "node" else ()
    mine = {address_family(address) for address in stack.addresses()}
    usable = tuple(address for address in answer if address_family(address) in mine)
    if usable:
        text = f"{end.text}: {', '.join(usable)} (the machine's hosts file or its name server)"
        aimed = Packet(stack.addresses()[0], usable[0], "icmp", 0, 0)
        report.hops.append(Hop(inventory.name(stack), "resolver", text, aimed))
        return _behind(replace(end, addresses=usable), inventory)
    report.verdict, report.reason = "unresolved", "no-resolver"
    report.explanation = (
        f"{start.shown} does not ask the cluster's DNS; {end.text!r} is not an object of the "
        "cluster either"
    )
    report.remedy = "Give an address, svc/NAME or NAMESPACE/NAME."
    return None


def _behind(found: TracePlace, inventory: Inventory) -> TracePlace:
    """Converts it to the service with this address, so that its ports are known."""
    for service in inventory.services():
        if found.addresses[0] in cluster_ips(service) or found.addresses[0] in outside_addresses(
            service
        ):
            meta = service["metadata"]
            return replace(
                found,
                kind="service",
                object=service,
                namespace=meta["namespace"],
                name=meta["name"],
            )
    return found


async def _reached(
    world: NetworkState,
    inventory: Inventory,
    start: TracePlace,
    stack: NetworkStack,
    server: str,
    report: TraceReport,
) -> bool:
    packet = Packet("", server, "udp", 0, _DNS_PORT)
    found = walk_packet(
        world, packet, stack, listening=inventory.listening, record=True, name=inventory.name
    )
    if found.outcome == "delivered":
        return True
    _fill(report, found, world, inventory)
    dns = TracePlace("address", server, (server,))
    diagnosis.explain_trace(
        report, diagnosis.TraceCase(world, inventory, start, dns, packet, found)
    )
    report.verdict, report.explanation = (
        "unresolved",
        f"the DNS server {server} cannot be reached: {report.explanation}",
    )
    return False
