"""A shortcut from a node to its own pods, for most connections: the probes of kubelets.

The result is the same as that of a full walk, without bringing the node's rules up to date first:
service rules concern other addresses, and network policies never block a node from its own pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transom.network.model.packet_trip import NetworkState
from transom.network.packets import Packet, Walk
from transom.network.stacks import NetworkStack

if TYPE_CHECKING:
    from transom.network.model.walk import Listening


def walk_nearby(
    world: NetworkState, origin: NetworkStack, packet: Packet, listening: Listening
) -> Walk | None:
    """None: a full walk is needed."""
    if origin.role != "node":
        return None
    owners = world.fabric.owners(packet.destination)
    if len(owners) != 1:
        return None
    pod = owners[0]
    if pod.role != "sandbox" or pod.node != origin.name:
        return None
    if not packet.source:
        return None
    if origin.os == "windows":
        link = next((link for link in pod.links.values() if link.kind == "vnic"), None)
        if link is None or origin.hns is None or link.endpoint.upper() not in origin.hns.endpoints:
            return None
        if origin.firewall is not None and origin.firewall.filters_outbound():
            return None
        if not _windows_way(world, origin, packet.destination):
            return None
    elif not _linux_way(origin, pod, packet.destination):
        return None
    if pod.route(packet.source) is None:
        return None
    place = (packet.destination, packet.destination_port)
    out = Walk("delivered", packet=packet, stack=pod.name, facts={"socket": place})
    if packet.protocol != "icmp" and not listening(pod, *place, packet.protocol):
        out.outcome, out.reason = "refused", "no-listener"
        out.explanation = f"nothing listens on {place[0]} port {place[1]}"
    return out


def _linux_way(node: NetworkStack, pod: NetworkStack, address: str) -> bool:
    """Through the bridge of the pod."""
    route = node.route(address)
    bridge = node.links.get(route.link) if route is not None and not route.via else None
    if bridge is None or bridge.kind != "bridge" or not bridge.up:
        return False
    for link in pod.links.values():
        if link.peer is not None and link.peer[0] == node.name:
            port = node.links.get(link.peer[1])
            return port is not None and link.up and port.up and port.master == bridge.name
    return False


def _windows_way(world: NetworkState, node: NetworkStack, address: str) -> bool:
    """Through the node's own port on the pod's network."""
    route = node.route(address)
    link = node.links.get(route.link) if route is not None and not route.via else None
    switch = world.switch(node)
    own = (
        switch.port(link.endpoint)
        if switch is not None and link is not None and link.kind == "vnic"
        else None
    )
    net = switch.net(own.network) if switch is not None and own is not None else None
    port = switch.at(net, address) if switch is not None and net is not None else None
    return (
        port is not None and not port.remote and not port.acls and net is not None and not net.acls
    )
