"""The Linux side of a node's network: its network card, nftables, and the bridge plugin for
clusters whose Windows plugin has no Linux counterpart.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from transom.network.cni import defaults, masquerade
from transom.network.ovn.database import GENEVE_PORT, MTU, LogicalSwitch
from transom.network.stacks import NetworkLink, NetworkStack, stable_mac
from transom.node.network import BRIDGE_NAME, NodeNetwork

_TUNNEL = "genev_sys_6081"


class LinuxNodeNetwork(NodeNetwork):
    os = "linux"
    proxy_needs_network = False

    def add_first_link(self, stack: NetworkStack) -> None:
        ranges = self.shared.ranges
        stack.add_link(NetworkLink("eth0", "ethernet", mac=stable_mac(self.spec.name, "eth0")))
        stack.add_address("eth0", ranges.with_prefix_length(self.address))
        stack.replace_route("0.0.0.0/0", "eth0", ranges.gateway)

    def make_network(self, subnets: Sequence[str]) -> None:
        ranges = self.shared.ranges
        families = zip((4, 6), (ranges.pods, ranges.pods6), subnets, strict=False)
        for version, cluster, subnet in families:
            self.stack.set_table(masquerade.flannel_masquerade_table(version, cluster, subnet))

    def join_switch(self, switch: LogicalSwitch) -> None:
        stack = self.stack
        if _TUNNEL not in stack.links:
            mac, local = stable_mac(self.spec.name, _TUNNEL), switch.chassis
            stack.add_link(
                NetworkLink(_TUNNEL, "geneve", mac=mac, mtu=MTU, port=GENEVE_PORT, local=local)
            )
            # The first address of its range, which no pod gets, like that of flannel's device.
            stack.add_address(_TUNNEL, f"{switch.subnet.partition('/')[0]}/32")
            stack.replace_route(self.shared.ranges.pods, _TUNNEL)

    def cni_config(self, subnets: Sequence[str]) -> bytes:
        if self.plugin == "flannel":
            return defaults.linux_conflist()
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isDefaultGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": subnet}] for subnet in subnets],
            },
        }
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
        config = {"name": BRIDGE_NAME, "cniVersion": "0.3.1", "plugins": [bridge, portmap]}
        return orjson.dumps(config, option=orjson.OPT_INDENT_2)
