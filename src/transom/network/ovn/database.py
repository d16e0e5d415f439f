"""OVN's databases of one cluster: the logical network (northbound), chassis and tunnel keys
(southbound).

ovn-kubernetes gives each node a logical switch with the node's pod CIDR, and joins the switches
with one logical router. Load balancers for service addresses belong to all switches, those for node
ports to the gateway router of each node. Agents of the nodes and of the control plane write here;
data planes and commands read. Independent of Kubernetes objects and packets.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Final, Protocol

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple

GENEVE_PORT: Final = 6081
MTU: Final = 1400  # of pods: reduced by the GENEVE header
CLUSTER_ROUTER: Final = "ovn_cluster_router"
PROTOCOLS: Final = ("tcp", "udp", "sctp")
_FIRST_KEY: Final = 1  # the first tunnel key of logical datapaths; the cluster's router has it

Address = tuple[str, str, int]
"""Protocol, address, port."""


class OvnVip(NamedTuple):
    """An entry of a load balancer. One without backends rejects connections."""

    service: str  # namespace/name[:port]
    backends: tuple[tuple[str, int], ...]


class LogicalPort(NamedTuple):
    name: str
    type: str  # "", "router"
    addresses: str  # "MAC IP", as in the northbound database; "router" for the port to the router


class LogicalLoadBalancer(NamedTuple):
    """A row of the northbound database."""

    name: str
    protocol: str
    of: str  # "" for all logical switches, else the gateway router
    vips: dict[str, str]  # "ADDRESS:PORT" -> "ADDRESS:PORT,..."


@dataclass(slots=True)
class LogicalSwitch:
    """The logical switch of a node, which is its chassis too."""

    node: str
    subnet: str
    chassis: str  # the address of the node's tunnel endpoint
    key: int  # the VNI of packets to it
    windows: bool
    pods: dict[str, str] = field(default_factory=dict)  # port -> address

    @property
    def gateway(self) -> str:
        """The address of the router's port."""
        return str(ipaddress.ip_network(self.subnet)[1])

    @property
    def management(self) -> str:
        """The address of the node's own port."""
        return str(ipaddress.ip_network(self.subnet)[2])

    @property
    def management_port(self) -> str:
        return f"k8s-{self.node}"

    @property
    def gateway_router(self) -> str:
        return f"GR_{self.node}"


class AddressOwner(Protocol):
    """A stack, as the database sees it."""

    @property
    def node(self) -> str: ...
    @property
    def role(self) -> str: ...


class AddressOwners(Protocol):
    def owner(self, address: str) -> AddressOwner | None:
        """The stack that has an address."""


class OvnDatabase:
    def __init__(self, owners: AddressOwners) -> None:
        self._owners = owners
        self.switches: dict[str, LogicalSwitch] = {}  # by node
        self.cluster_vips: dict[Address, OvnVip] = {}
        # external addresses, which every gateway router serves
        self.external_vips: dict[Address, OvnVip] = {}
        # by protocol and port, on every gateway router
        self.node_ports: dict[tuple[str, int], OvnVip] = {}
        self.listeners: list[Callable[[], None]] = []
        self._by_prefix: dict[tuple[int, int], LogicalSwitch] = {}
        self._keys = _FIRST_KEY

    def changed(self) -> None:
        for listener in self.listeners:
            listener()

    # ---- switches ----

    def put_switch(self, node: str, subnet: str, chassis: str, *, windows: bool) -> LogicalSwitch:
        known = self.switches.get(node)
        if known is not None and (known.subnet, known.chassis) == (subnet, chassis):
            return known
        if known is None:
            self._keys += 1
        key = known.key if known is not None else self._keys
        self.remove_switch(node)
        made = self.switches[node] = LogicalSwitch(node, subnet, chassis, key, windows)
        self._by_prefix[_prefix(subnet)] = made
        self.changed()
        return made

    def remove_switch(self, node: str) -> None:
        gone = self.switches.pop(node, None)
        if gone is not None:
            self._by_prefix.pop(_prefix(gone.subnet), None)
            self.changed()

    def switch_of(self, address: str) -> LogicalSwitch | None:
        """The logical switch whose range an address belongs to."""
        if ":" in address:
            return None
        number = int(ipaddress.IPv4Address(address))
        for shift in {shift for _, shift in self._by_prefix}:
            found = self._by_prefix.get((number >> shift, shift))
            if found is not None:
                return found
        return None

    def put_pod(self, node: str, port: str, address: str) -> None:
        found = self.switches.get(node)
        if found is not None:
            found.pods[port] = address

    def ports(self, switch: LogicalSwitch) -> list[LogicalPort]:
        """Ports of deleted pods are removed."""
        for name, address in list(switch.pods.items()):
            owner = self._owners.owner(address)
            if owner is None or owner.node != switch.node or owner.role != "sandbox":
                del switch.pods[name]
        rows = [LogicalPort(f"stor-{switch.node}", "router", "router")]
        if switch.windows:  # Linux nodes reach their pods through a bridge
            address = f"{ovn_mac(switch.management)} {switch.management}"
            rows.append(LogicalPort(switch.management_port, "", address))
        rows += [LogicalPort(name, "", f"{ovn_mac(a)} {a}") for name, a in switch.pods.items()]
        return sorted(rows)

    # ---- load balancers ----

    def vip(self, protocol: str, address: str, port: int) -> OvnVip | None:
        """An entry of the logical switches' load balancers, for packets of a pod or a management
        port.
        """
        return self.cluster_vips.get((protocol, address, port))

    def gateway_vip(self, protocol: str, address: str, port: int, *, own: bool) -> OvnVip | None:
        """An entry of a gateway router's load balancers. `own`: the address is the router's, which
        is the node's.
        """
        found = self.external_vips.get((protocol, address, port))
        return self.node_ports.get((protocol, port)) if found is None and own else found

    def load_balancers(self) -> list[LogicalLoadBalancer]:
        rows = []
        for protocol in PROTOCOLS:
            vips = _texts((k[1], k[2], v) for k, v in self.cluster_vips.items() if k[0] == protocol)
            rows.append(LogicalLoadBalancer(f"k8s-cluster-lb-{protocol}", protocol, "", vips))
        for switch in self.switches.values():
            for protocol in PROTOCOLS:
                vips = _texts(
                    (switch.chassis, port, vip)
                    for (of, port), vip in self.node_ports.items()
                    if of == protocol
                ) | _texts(
                    (k[1], k[2], v) for k, v in self.external_vips.items() if k[0] == protocol
                )
                name = f"{protocol}_lb_gateway_router"
                rows.append(LogicalLoadBalancer(name, protocol, switch.gateway_router, vips))
        return rows


def ovn_mac(address: str) -> str:
    """Derives a MAC address from an IP address like OVN."""
    return "0a:58:" + ":".join(f"{byte:02x}" for byte in ipaddress.ip_address(address).packed[-4:])


def _prefix(subnet: str) -> tuple[int, int]:
    network = ipaddress.IPv4Network(subnet)
    shift = 32 - network.prefixlen
    return int(network.network_address) >> shift, shift


def _texts(vips: Iterable[tuple[str, int, OvnVip]]) -> dict[str, str]:
    return {
        f"{address}:{port}": ",".join(f"{a}:{p}" for a, p in vip.backends)
        for address, port, vip in vips
    }
