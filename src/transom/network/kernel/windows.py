"""The plan of a Windows node: its own links and routes, a device for each port of its switch,
tunnels, and the switch's rules.

The switch is routed here, not bridged: each pod is reached by its own route through its port, which
sets the port's MAC address, as Windows bridge networks rewrite it. No ARP is needed; all neighbours
are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from transom.network.kernel import names, plan, vfp
from transom.network.kernel.plan import PlannedDevice, PlannedRoute, StackPlan
from transom.network.model.addresses import address_family, is_within
from transom.network.model.switch import SwitchNetwork, VirtualSwitch
from transom.network.nft import NftTable
from transom.network.stacks import NetworkStack

_DEFAULTS = {4: "0.0.0.0/0", 6: "::/0"}
_ROUTED = ("Overlay", "Transparent")  # network types to whose ports a node needs its own route


class SwitchCompiler:
    """`sandboxes` are those of the node, by name; `changed` is called when the host networking
    service has changed.
    """

    def __init__(
        self,
        stack: NetworkStack,
        sandboxes: Mapping[str, NetworkStack],
        underlay: str,
        changed: Callable[[], None],
    ) -> None:
        assert stack.hns is not None
        self._stack = stack
        self._sandboxes = sandboxes
        self._underlay = underlay
        self._hns = stack.hns
        self._switch = VirtualSwitch(stack.hns)
        self._kept = vfp.VfpBalancers()
        self._tables: dict[str, NftTable] = {}
        self._listener = partial(self._on_change, changed)
        stack.hns.listeners.append(self._listener)

    def close(self) -> None:
        self._switch.close()
        self._hns.listeners.remove(self._listener)

    def _on_change(self, changed: Callable[[], None], kind: str, key: str, _what: str) -> None:
        if kind == "endpoint":
            self._kept.touch(key)
        changed()

    def plan(self) -> StackPlan:
        stack = self._stack
        wanted = plan.base_stack_plan(stack)
        # An on-link prefix of the network card belongs to the switch: each of its ports has a
        # route.
        wanted.routes = {d: way for d, way in wanted.routes.items() if way.via or not way.onlink}
        uplink = ""
        for link in stack.links.values():
            name = names.kernel_device_name(link.name)
            if link.kind == "ethernet":
                device = plan.link_device(stack, link)
                assert device is not None
                wanted.devices[name] = device
                uplink = uplink or name
            elif link.kind in ("vnic", "bridge"):
                wanted.devices[name] = PlannedDevice("bridge", link.mac, link.mtu)
        if stack.ovn is not None:
            plan.to_logical_switches(stack, wanted, self._management())
        places = self._places(wanted)
        tunnels = {
            net.id: self._tunnel(wanted, net)
            for net in self._switch.nets()
            if net.type == "Overlay" and net.vni
        }
        wanted.sysctls.update(dict.fromkeys(plan.FORWARDING, "1"))
        bridged = (
            any(is_within(a, self._underlay) for place in places for a in place.port.addresses)
            if self._underlay
            else False
        )
        if uplink and bridged:  # pods with underlay addresses: the switch answers ARP for them
            wanted.sysctls[f"net/ipv4/conf/{uplink}/proxy_arp"] = "1"
            wanted.sysctls[f"net/ipv4/neigh/{uplink}/proxy_delay"] = "0"
        own = {version: self._address(version) for version in (4, 6)}
        node = vfp.VfpNode(
            self._switch,
            uplink,
            {v: a for v, a in own.items() if a},
            places,
            stack.forwarding,
            tunnels,
            self._closed(places),
            [
                str(route.destination)
                for route in stack.routes()
                if route.via and route.destination.prefixlen
            ],
            stack.ovn,
        )
        six = own[6] or any(":" in address for place in places for address in place.port.addresses)
        wanted.tables = self._unchanged(
            vfp.compile_tables(node, self._kept, (4, 6) if six else (4,))
        )
        return wanted

    def _unchanged(self, tables: dict[str, NftTable]) -> dict[str, NftTable]:
        """Returns the previous object if its content is unchanged."""
        self._tables = {
            key: old if (old := self._tables.get(key)) == new else new
            for key, new in tables.items()
        }
        return self._tables

    def _address(self, version: int) -> str:
        return next(
            (
                str(a.ip)
                for link in self._stack.links.values()
                if link.kind == "ethernet"
                for a in link.addresses
                if a.version == version
            ),
            "",
        )

    def _places(self, wanted: StackPlan) -> list[vfp.PodSwitchPort]:
        places = []
        for sandbox in self._sandboxes.values():
            for link in sandbox.links.values():
                port = (
                    self._switch.port(link.endpoint.upper())
                    if link.kind == "vnic" and link.endpoint
                    else None
                )
                net = self._switch.net(port.network) if port is not None else None
                if port is None or net is None:
                    continue
                device = names.switch_port_name(port.id)
                wanted.devices[device] = PlannedDevice(
                    "veth",
                    names.port_mac(port.id),
                    link.mtu,
                    peer=(sandbox.name, names.kernel_device_name(link.name)),
                )
                reached = False
                for address in port.addresses:
                    whole = f"{address}/{128 if ':' in address else 32}"
                    source = self._host_source(net, address)
                    reached = reached or bool(source)
                    wanted.routes[whole] = PlannedRoute(device, source=source)
                    wanted.neighbours[device, address] = link.mac
                places.append(vfp.PodSwitchPort(port, net, device, reached))
        return places

    def _management(self) -> str:
        """The address of the node's own port on its logical switch."""
        database = self._stack.ovn
        own = database.switches.get(self._stack.name) if database is not None else None
        return own.management if own is not None else ""

    def _host_source(self, net: SwitchNetwork, address: str) -> str:
        """The source of the node's own packets to a port; empty if it has no route to it."""
        version = address_family(address)
        if (
            net.type in _ROUTED
            and net.contains(address)
            and (net.host_route or net.type == "Transparent")
        ):
            return self._management() or self._address(version)
        route = self._stack.route(address)
        link = self._stack.links.get(route.link) if route is not None else None
        if route is None or link is None:
            return ""
        if link.kind == "ethernet" and (route.via or net.type not in vfp.BRIDGED):
            return ""
        return route.source or next((str(a.ip) for a in link.addresses if a.version == version), "")

    def _tunnel(self, wanted: StackPlan, net: SwitchNetwork) -> str:
        name = names.hashed_name("x", net.id)
        local = self._hns.management_ip(net.id) or self._address(4)
        wanted.devices[name] = PlannedDevice(
            "vxlan", _mac(net.router_mac), 1450, vni=net.vni, port=net.port, local=local
        )
        for remote in net.remotes:
            if not remote.provider or remote.provider == local:
                continue
            gateway = remote.prefix.partition("/")[0]
            wanted.routes[remote.prefix] = PlannedRoute(name, gateway, onlink=True)
            wanted.neighbours[name, gateway] = _mac(remote.mac)
            wanted.forwarding[name, _mac(remote.mac)] = (
                remote.provider,
                remote.vni if remote.vni != net.vni else 0,
            )
        return name

    def _closed(self, places: list[vfp.PodSwitchPort]) -> frozenset[str]:
        """Bridges whose pods use the node as gateway, while the node does not forward."""
        if self._stack.forwarding:
            return frozenset()
        return frozenset(
            place.net.id
            for place in places
            if place.net.type == "L2Bridge" and self._is_gateway(place)
        )

    def _is_gateway(self, place: vfp.PodSwitchPort) -> bool:
        routes = self._hns.endpoints[place.port.id].get("Routes") or ()
        hops = [
            r["NextHop"]
            for r in routes
            if r.get("DestinationPrefix") in _DEFAULTS.values() and r.get("NextHop")
        ]
        ports = [self._switch.at(place.net, hop) for hop in hops]
        return any(port is not None and self._switch.is_host(port) for port in ports)


def _mac(text: str) -> str:
    return text.replace("-", ":").lower()
