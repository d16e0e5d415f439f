"""What is particular to the network of a Linux node: its card, nftables, and the bridge plugin where flannel is not there."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from transom.cluster.nodenet import BRIDGE, NodeNet, Proxier, given
from transom.network.cni import defaults, masquerade
from transom.network.stacks import Link, Stack, stable_mac
from transom.proxy.healthcheck import ServiceHealth
from transom.proxy.nftables.proxier import NftablesProxier, Options


class LinuxNodeNet(NodeNet):
    os = "linux"
    _health: ServiceHealth

    def plug_in(self, stack: Stack) -> None:
        ranges = self.shared.ranges
        stack.add_link(Link("eth0", "ethernet", mac=stable_mac(self.spec.name, "eth0")))
        stack.add_address("eth0", ranges.with_length(self.address))
        stack.replace_route("0.0.0.0/0", "eth0", ranges.gateway)

    def start_proxy(self, stack: Stack) -> None:
        ranges = self.shared.ranges
        self.proxier = NftablesProxier(
            self.shared.slices, self.hostname, stack,
            Options(cluster_cidrs=given(ranges.pods, ranges.pods6), node_ips=self.addresses),
        )
        self._health = self.service_health()

    def network_started(self) -> None:
        """nftables need no network of pods."""

    def sync_proxy(self, proxier: Proxier) -> None:
        proxier.sync()
        tracker = self.shared.slices
        ports = tracker.health_checks
        self._health.sync(ports, {service: tracker.local_addresses(service, self.hostname) for service in ports})

    def make_network(self, subnets: Sequence[str]) -> None:
        ranges = self.shared.ranges
        for version, cluster, subnet in zip((4, 6), (ranges.pods, ranges.pods6), subnets, strict=False):
            self.stack.set_table(masquerade.flannel(version, cluster, subnet))

    def configuration(self, subnets: Sequence[str]) -> bytes:
        if self.plugin == "flannel":
            return defaults.linux()
        # Beside Windows nodes whose plugin has no Linux half here.
        return orjson.dumps({
            "name": BRIDGE, "cniVersion": "0.3.1", "plugins": [
                {"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "hairpinMode": True,
                 "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}] for subnet in subnets]}},
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }, option=orjson.OPT_INDENT_2)  # fmt: skip
