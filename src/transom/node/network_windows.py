"""The Windows side of a node's network: the host networking service (HNS), its plugins, and the
options of kube-proxy. HNS keeps its networks across reboots.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from transom.kit.lazy import lazy_import
from transom.machines.linux import NAME_SERVER
from transom.machines.windows import firewall
from transom.machines.windows.hns import Adapter, HostNetworkService
from transom.machines.windows.host import WindowsHost
from transom.machines.windows.registry import WindowsRegistry
from transom.machines.windows.system import chosen_name_servers, persistent_routes
from transom.network import winhost
from transom.network.cni import defaults
from transom.network.cni.leases import SubnetLease
from transom.network.cni.plugin import CniError
from transom.network.cni.sourcevip import FILE as SOURCE_VIP_FILE
from transom.network.cni.sourcevip import source_vip
from transom.network.cni.windows import azure, azure_ipam, ovn, setup
from transom.network.ovn.database import MTU, LogicalSwitch, ovn_mac
from transom.network.stacks import NetworkLink, NetworkStack, read_address, stable_mac
from transom.node.machine import NodeMachine, windows_machine
from transom.node.network import BRIDGE_NAME, NodeNetwork, SharedNetworkState
from transom.node.network_settings import API_PORT
from transom.node.spec import NodeSpec
from transom.proxy.winkernel.options import WinkernelOptions
from transom.windows import releases

if TYPE_CHECKING:
    from transom.proxy.userspace import proxier as userspace_proxier
else:
    userspace_proxier = lazy_import("transom.proxy.userspace.proxier")

log = logging.getLogger("transom.proxy")

_AZURE, _OVN = "azure", "external"  # HNS networks
_BRIDGES = ("win-bridge", "sdnbridge")


class WindowsNodeNetwork(NodeNetwork):
    os = "windows"

    def __init__(
        self,
        spec: NodeSpec,
        machine: NodeMachine,
        addresses: tuple[str, ...],
        release: str,
        shared: SharedNetworkState,
    ) -> None:
        self.hns: HostNetworkService = windows_machine(machine).hns
        self._registry = machine.registry if isinstance(machine, WindowsHost) else None
        self._programs: firewall.ProgramOf = lambda _protocol, _port: ""
        super().__init__(spec, machine, addresses, shared, self.hns)
        self._release = releases.parse_release_version(release)
        mac = stable_mac(spec.name, "Ethernet")
        adapter = Adapter(
            spec.adapter or "Ethernet",
            "00-15-5D" + mac[8:].upper().replace(":", "-"),
            shared.ranges.with_prefix_length(self.address),
            shared.ranges.gateway,
        )
        self.hns.set_adapters([adapter])
        slices = WinkernelOptions(gates=spec.feature_gates, release=self._release).slices
        self.source_vip_problem = ""
        self.wants_endpoints = not self.proxy_needs_network or not slices

    @property
    def proxy_needs_network(self) -> bool:
        """The kernel mode programs the HNS network of pods."""
        return self.shared.settings.proxy_mode != "userspace"

    def add_first_link(self, stack: NetworkStack) -> None:
        self.stops.append(winhost.bind_windows_host(stack, self.hns))
        self._start_firewall(stack)
        for route in persistent_routes(self._registry) if self._registry is not None else ():
            gateway = read_address(route.gateway)
            for link in stack.links.values():
                if any(gateway in address.network for address in link.addresses):
                    stack.replace_route(route.destination, link.name, route.gateway)
                    break

    def _start_firewall(self, stack: NetworkStack) -> None:
        registry = self._registry
        if registry is None:
            return
        tunnel = {"overlay": firewall.OVERLAY_RULE, "ovn": firewall.GENEVE_RULE}
        for kind in (self.shared.settings.mode, self.plugin):
            if kind in tunnel:
                firewall.add_missing_rule(registry, tunnel[kind])
        stack.firewall = firewall.WindowsFirewall(
            registry, self.program_of, partial(_local_network, stack, registry)
        )

    def program_of(self, protocol: str, port: int) -> str:
        """The path of the program that listens on a port of the machine; "" if it is not known."""
        return self._programs(protocol, port)

    def blocks_inbound(self, port: int, source: str) -> str:
        """Why the firewall blocks TCP connections from an address to a port; "" if it does not."""
        stack = self.stack
        if stack.firewall is None:
            return ""
        connection = firewall.FirewallConnection(True, "tcp", self.address, port, source, 50000)
        return stack.firewall.decide(connection).explanation

    def follow_programs(self, programs: firewall.ProgramOf) -> None:
        """The node's programs are known from now on."""
        self._programs = programs

    def has_route_to(self, address: str, port: int = API_PORT) -> bool:
        if not super().has_route_to(address, port):
            return False
        stack = self.stack
        if stack.firewall is None or stack.has_address(address):
            return True
        connection = firewall.FirewallConnection(False, "tcp", self.address, 0, address, port)
        return stack.firewall.decide(connection).allowed

    # ---- plugins ----

    @property
    def plugin(self) -> str:
        """flannel gives Windows pods a single address; for dual-stack pods use sdnbridge, which
        needs containerd.
        """
        chosen = super().plugin
        if chosen not in ("flannel", "sdnbridge"):
            return chosen
        if self.runtime == "docker":
            return "win-bridge" if chosen == "sdnbridge" else chosen
        return "sdnbridge" if self.address6 else chosen

    def subnets(self, ranges: Sequence[str]) -> Sequence[str]:
        return super().subnets(ranges) if self.plugin == "sdnbridge" else ranges[:1]

    def lease(self, subnets: Sequence[str]) -> SubnetLease:
        return super().lease([str(self._card_addresses())] if self.plugin == "azure" else subnets)

    def make_network(self, subnets: Sequence[str]) -> None:
        hns, plugin = self.hns, self.plugin
        if plugin in _BRIDGES:
            setup.make_l2bridge_network(hns, BRIDGE_NAME, subnets)
        elif plugin == "ovn":
            setup.make_transparent_network(hns, _OVN, subnets[0])
        elif plugin == "azure":
            pool = [str(address) for address in self._card_addresses().hosts()]
            adapter = next(a for a in hns.adapters.values() if a.ip == self.address)
            directory, _, file = azure_ipam.ANSWER.rpartition("\\")
            self.write_file(
                directory,
                file,
                azure_ipam.wire_server_answer(
                    adapter.mac, self.shared.ranges.nodes, self.address, pool
                ),
            )

    def join_switch(self, switch: LogicalSwitch) -> None:
        """The management port, with routes to pods and services as ovn-kubernetes adds them."""
        stack, name, ranges = self.stack, switch.management_port, self.shared.ranges
        stack.delete_link(name)
        mac = ovn_mac(switch.management)
        stack.add_link(NetworkLink(name, "vnic", mac=mac, mtu=MTU, logical=True))
        length = switch.subnet.rpartition("/")[2]
        stack.add_address(name, f"{switch.management}/{length}")
        for prefix in (ranges.pods, ranges.services):
            stack.replace_route(prefix, name, switch.gateway)

    @property
    def programs(self) -> tuple[str, ...]:
        """With OVN only the kubelet: OVN has its own load balancers."""
        return ("kubelet",) if self.plugin == "ovn" else super().programs

    def _card_addresses(self) -> ipaddress.IPv4Network:
        """Azure pods use addresses of the machine's network card: part of the upper half of the
        nodes' range.
        """
        nodes = ipaddress.IPv4Network(self.shared.ranges.nodes)
        return ipaddress.IPv4Network(
            (int(nodes[nodes.num_addresses // 2]) + 256 * self.spec.number, 24)
        )

    def cni_config(self, subnets: Sequence[str]) -> bytes:
        settings, ranges, plugin = self.shared.settings, self.shared.ranges, self.plugin
        if plugin == "azure":
            mode = "tunnel" if settings.mode == "l2tunnel" else "bridge"
            exceptions = [ranges.pods, ranges.services, *settings.exceptions, ranges.nodes]
            found = azure.azure_conflist(
                mode, dns=ranges.dns, exceptions=exceptions, service_cidr=ranges.services
            )
        elif plugin == "ovn":
            found = ovn.ovn_conflist()
        else:
            found = self._of_flannel(len(subnets) > 1)
            if plugin == "sdnbridge":
                found = defaults.sdnbridge(
                    list(subnets), found["delegate"]["policies"], found["delegate"]["dns"]
                )
            elif plugin == "win-bridge":
                # The bridge has the first two addresses; host-local reserves only one of them.
                start = str(ipaddress.ip_network(subnets[0])[3])
                found = {
                    **found["delegate"],
                    **{k: v for k, v in found.items() if k not in ("delegate", "type")},
                    "ipam": {"type": "host-local", "subnet": subnets[0], "rangeStart": start},
                }
        if settings.cni_version:
            found["cniVersion"] = settings.cni_version
        return orjson.dumps(found, option=orjson.OPT_INDENT_2)

    def _of_flannel(self, six: bool) -> dict[str, Any]:
        """Other bridges use the same policies."""
        settings, ranges = self.shared.settings, self.shared.ranges
        found: dict[str, Any] = orjson.loads(
            defaults.windows_conflist(
                "overlay" if settings.mode == "overlay" else "l2bridge",
                clusters=[ranges.pods, *([ranges.pods6] if six else ()), *settings.exceptions],
                services=[ranges.services, *([ranges.services6] if six else ())],
                management=[ranges.nodes, *([ranges.nodes6] if six else ())],
                node_ip=self.address,
                node_ip6=self.address6 if six else "",
                dns=[ranges.dns],
                runtime=self.runtime,
            )
        )
        return found

    # ---- kube-proxy ----

    def add_userspace_interface(self) -> None:
        """The interface that the user space mode puts service addresses on."""
        if userspace_proxier.INTERFACE not in self.stack.links:
            self.stack.add_link(
                NetworkLink(
                    userspace_proxier.INTERFACE,
                    "vnic",
                    mac=stable_mac(self.spec.name, userspace_proxier.INTERFACE),
                )
            )

    def proxy_options(self) -> WinkernelOptions:
        """The kernel mode's options at boot; the source VIP exists as soon as the node has its pod
        CIDR.
        """
        settings, gates = self.shared.settings, self.proxy_feature_gates()
        network = {"overlay": defaults.OVERLAY_NAME, "transparent": _OVN}.get(
            settings.mode, BRIDGE_NAME
        )
        if settings.chosen_plugin == "azure":
            network = _AZURE
        overlay = settings.mode == "overlay" and self.started
        vip = self._source_vip(network) if overlay else ""
        dsr = settings.dsr
        if dsr:
            gates["WinDSR"] = True
        return WinkernelOptions(
            network_name=network,
            source_vip=vip,
            enable_dsr=dsr,
            gates=gates,
            release=self._release,
            node_ip=self.address if self.proxy_hostname == self.spec.name else "",
            cluster_cidr=self.cluster_cidr(),
        )

    def _source_vip(self, network: str) -> str:
        """Without one, kube-proxy starts with an empty --source-vip and exits."""
        self.source_vip_problem = ""
        try:
            return source_vip(self.machine, network, self.started.split(",")[0])
        except (CniError, OSError, ValueError, KeyError, TypeError) as problem:
            self.source_vip_problem = f"{SOURCE_VIP_FILE}: {problem}"
            log.error("the source VIP cannot be read: %s", self.source_vip_problem)
            return ""


def _local_network(stack: NetworkStack, registry: WindowsRegistry) -> firewall.LocalNetwork:
    links = [link for link in stack.links.values() if link.kind != "loopback"]
    return firewall.LocalNetwork(
        [address.network for link in links for address in link.addresses],
        [route.via for route in stack.routes() if route.via and not route.destination.prefixlen],
        chosen_name_servers(registry) or (NAME_SERVER,),
    )
