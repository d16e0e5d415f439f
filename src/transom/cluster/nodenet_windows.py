"""What is particular to the network of a Windows node: the host networking service, its plugins, and kube-proxy's modes.

What the service keeps over a reboot is found again when the node boots.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

import orjson

from transom.cluster.nodenet import BRIDGE, NodeNet, Shared, given
from transom.cluster.nodes import NodeSpec
from transom.hosts.windows.hns import Adapter, Hns
from transom.kit.logs import OwnLogger
from transom.network import winhost
from transom.network.api import OnStack
from transom.network.cni import defaults
from transom.network.cni.leases import Lease
from transom.network.cni.sourcevip import source_vip
from transom.network.cni.windows import azure, azure_ipam, ovn, setup
from transom.network.stacks import Link, Stack, stable_mac
from transom.proxy.userspace.proxier import INTERFACE, UserspaceProxier
from transom.proxy.winkernel.dualstack import DualStackProxier
from transom.proxy.winkernel.options import Options
from transom.proxy.winkernel.proxier import WinkernelProxier
from transom.windows import releases

_AZURE, _OVN = "azure", "external"  # HNS networks
_BRIDGES = ("win-bridge", "sdnbridge")


class WindowsNodeNet(NodeNet):
    os = "windows"

    def __init__(self, spec: NodeSpec, host: Any, addresses: tuple[str, ...], release: str, shared: Shared) -> None:
        self.hns: Hns = host.hns
        super().__init__(spec, host, addresses, shared, self.hns)
        self._release = releases.parse(release)
        mac = stable_mac(spec.name, "Ethernet")
        self.hns.set_adapters([Adapter(
            spec.adapter or "Ethernet", "00-15-5D" + mac[8:].upper().replace(":", "-"), shared.ranges.with_length(self.address),
            shared.ranges.gateway,
        )])  # fmt: skip
        self.proxy_log = OwnLogger("transom.proxy")  # so that one node's lines can be told from others'
        self._userspace = shared.settings.proxy_mode == "userspace"
        slices = Options(gates=spec.feature_gates, release=self._release).slices
        self.wants_endpoints = self._userspace or not slices

    def plug_in(self, stack: Stack) -> None:
        self.stops.append(winhost.bind(stack, self.hns))

    # ---- plugins -------------------------------------------------------------------------------------------------

    @property
    def plugin(self) -> str:
        """flannel gives Windows pods one address: where they can have two, sdnbridge does, which needs what containerd has."""
        chosen = super().plugin
        if chosen not in ("flannel", "sdnbridge"):
            return chosen
        if self.runtime == "docker":
            return "win-bridge" if chosen == "sdnbridge" else chosen
        return "sdnbridge" if self.address6 else chosen

    def subnets(self, ranges: Sequence[str]) -> Sequence[str]:
        return super().subnets(ranges) if self.plugin == "sdnbridge" else ranges[:1]

    def lease(self, subnets: Sequence[str]) -> Lease:
        return super().lease([str(self._card_addresses())] if self.plugin == "azure" else subnets)

    def make_network(self, subnets: Sequence[str]) -> None:
        hns, plugin = self.hns, self.plugin
        if plugin in _BRIDGES:
            setup.l2bridge(hns, BRIDGE, subnets)
        elif plugin == "ovn":
            setup.transparent(hns, _OVN, subnets[0])
        elif plugin == "azure":
            pool = [str(address) for address in self._card_addresses().hosts()]
            adapter = next(a for a in hns.adapters.values() if a.ip == self.address)
            directory, _, file = azure_ipam.ANSWER.rpartition("\\")
            self.write(directory, file, azure_ipam.answer(adapter.mac, self.shared.ranges.nodes, self.address, pool))

    def _card_addresses(self) -> ipaddress.IPv4Network:
        """Azure's pods have addresses of the machine's card: a part of the upper half of the nodes' range."""
        nodes = ipaddress.IPv4Network(self.shared.ranges.nodes)
        return ipaddress.IPv4Network((int(nodes[nodes.num_addresses // 2]) + 256 * self.spec.number, 24))

    def configuration(self, subnets: Sequence[str]) -> bytes:
        settings, ranges, plugin = self.shared.settings, self.shared.ranges, self.plugin
        if plugin == "azure":
            mode = "tunnel" if settings.mode == "l2tunnel" else "bridge"
            exceptions = [ranges.pods, ranges.services, *settings.exceptions, ranges.nodes]
            found = azure.conflist(mode, dns=ranges.dns, exceptions=exceptions, service_cidr=ranges.services)
        elif plugin == "ovn":
            found = ovn.conflist()
        else:
            found = self._of_flannel(len(subnets) > 1)
            if plugin == "sdnbridge":
                found = defaults.sdnbridge(list(subnets), found["delegate"]["policies"], found["delegate"]["dns"])
            elif plugin == "win-bridge":
                # The bridge has the first two addresses: host-local knows of one of them only.
                start = str(ipaddress.ip_network(subnets[0])[3])
                found = {**found["delegate"], **{k: v for k, v in found.items() if k not in ("delegate", "type")},
                         "ipam": {"type": "host-local", "subnet": subnets[0], "rangeStart": start}}  # fmt: skip
        if settings.cni_version:
            found["cniVersion"] = settings.cni_version
        return orjson.dumps(found, option=orjson.OPT_INDENT_2)

    def _of_flannel(self, six: bool) -> dict[str, Any]:
        """Other bridges have the same policies."""
        settings, ranges = self.shared.settings, self.shared.ranges
        found: dict[str, Any] = orjson.loads(defaults.windows(
            "overlay" if settings.mode == "overlay" else "l2bridge",
            clusters=[ranges.pods, *([ranges.pods6] if six else ()), *settings.exceptions],
            services=[ranges.services, *([ranges.services6] if six else ())],
            management=[ranges.nodes, *([ranges.nodes6] if six else ())],
            node_ip=self.address, node_ip6=self.address6 if six else "", dns=[ranges.dns], runtime=self.runtime,
        ))  # fmt: skip
        return found

    # ---- kube-proxy ----------------------------------------------------------------------------------------------

    def start_proxy(self, stack: Stack) -> None:
        """The kernel mode has to wait for the network."""
        if not self._userspace:
            return
        shared = self.shared
        self.add_userspace_interface()
        proxier = self.proxier = UserspaceProxier(
            shared.endpoints, self.hostname, stack, OnStack(shared.dataplane, self.spec.name), shared.clock, rng=shared.rng,
            node_ip=self.address,
        )
        self.proxy_stops.append(proxier.close)

    def add_userspace_interface(self) -> None:
        """That the user space mode puts the addresses of services on."""
        if INTERFACE not in self.stack.links:
            self.stack.add_link(Link(INTERFACE, "vnic", mac=stable_mac(self.spec.name, INTERFACE)))

    def network_started(self) -> None:
        if not self._userspace:
            self.stop_proxy()
            self.proxier = self._winkernel()

    def proxy_options(self) -> Options:
        """What the kernel mode runs with since boot; the source VIP is there as soon as the node has a range of addresses."""
        settings, ranges, gates = self.shared.settings, self.shared.ranges, dict(self.spec.feature_gates)
        network = {"overlay": defaults.OVERLAY_NAME, "transparent": _OVN}.get(settings.mode, BRIDGE)
        if settings.chosen_plugin == "azure":
            network = _AZURE
        overlay = settings.mode == "overlay" and self.started
        vip = source_vip(self.machine, network, self.started.split(",")[0]) if overlay else ""
        gates.setdefault("IPv6DualStack", bool(self.address6))
        if settings.dsr:
            gates["WinDSR"] = True
        return Options(
            network_name=network, source_vip=vip, enable_dsr=settings.dsr, gates=gates, release=self._release,
            node_ip=self.address if self.hostname == self.spec.name else "",
            cluster_cidr=",".join(given(ranges.pods, ranges.pods6)),
        )  # fmt: skip

    def _winkernel(self) -> WinkernelProxier | DualStackProxier:
        shared, options, log = self.shared, self.proxy_options(), self.proxy_log
        tracker = shared.slices if options.slices else shared.endpoints
        proxier: WinkernelProxier | DualStackProxier
        if options.gates["IPv6DualStack"]:
            proxier = DualStackProxier(
                tracker, self.hostname, self.hns, options, shared.clock, health=self.service_health(), log=log
            )
        else:
            proxier = WinkernelProxier(
                tracker, self.hostname, self.hns, options, shared.clock, health=self.service_health(), log=log
            )
            proxier.start()  # on overlay networks it waits a while before it goes on, from now
        self.proxy_stops.append(proxier.close)
        return proxier
