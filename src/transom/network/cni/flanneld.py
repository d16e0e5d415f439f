"""flanneld, flannel's agent on one node: acquires the node's subnet, writes it for the plugin, and
adds routes to other nodes.

It receives leases (leases.py) and changes only the state of its node: routes, the VXLAN interface,
the masquerading table, on Windows HNS (flanneld_windows.py). It is lazy: reading the node's state
(`sync`, through Leases.look) applies the leases that changed since the last time. Its output for
the API is data (`annotations`, `CONDITION`); the caller writes it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import orjson

from transom.kit.ip_addresses import is_ip_address
from transom.kit.lazy import lazy_import
from transom.network.cni import flannelconf, masquerade
from transom.network.cni.flannel import SUBNET_FILE, write_subnet
from transom.network.cni.flannelconf import (
    FlannelBackend,
    FlannelConf,
    FlannelError,
    VxlanSettings,
    WindowsAgentBehaviour,
)
from transom.network.cni.leases import SubnetLease, SubnetLeases
from transom.network.cni.paths import join_cni_path
from transom.network.cni.plugin import CniNode
from transom.network.stacks import NetworkLink, stable_mac

if TYPE_CHECKING:
    from transom.network.cni import flanneld_windows
else:
    flanneld_windows = lazy_import("transom.network.cni.flanneld_windows")

CONDITION = {
    "type": "NetworkUnavailable",
    "status": "False",
    "reason": "FlannelIsUp",
    "message": "Flannel is running on this node",
}
NAT = (
    "your PublicIP differs from interface IP, meaning that probably you're on a NAT, which is "
    "not supported by host-gw backend"
)


class Flanneld:
    """`interface` is a name or an address, like --iface; `masquerade` is --ip-masq."""

    def __init__(
        self,
        node: str,
        machine: CniNode,
        leases: SubnetLeases,
        conf: FlannelConf,
        *,
        public_ip: str,
        public_ip6: str = "",
        interface: str = "",
        masquerade: bool = True,
        version: str = "0.13.0",
        subnet_file: str = SUBNET_FILE,
        log: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.node = node
        self.machine = machine
        self.conf = conf
        self.lease: SubnetLease | None = None  # the lease of its own node, once started
        self._leases = leases
        self._public = public_ip
        self._public6 = public_ip6
        self._interface = interface
        self._masquerade = masquerade
        self._file = subnet_file
        self._log = log
        self._version = version
        self.late = False  # on Windows: the network's management address appears too late, once
        self._backend: FlannelBackend | None = None
        self._at = -1  # applied steps of the leases; -1: none, so everything is applied

    def start(self, pod_cidrs: Sequence[str]) -> None:
        """Raises FlannelError."""
        lease = self._acquire(pod_cidrs)
        late, self.late = self.late, False
        backend = _backend(
            self.conf,
            self.machine,
            self.link(),
            self._public,
            WindowsAgentBehaviour(self._version, late, self._log),
        )
        lease = backend.register(lease)
        if self.machine.os == "linux":
            if self._masquerade:
                for version, cluster, subnet in (
                    (4, self.conf.network, lease.subnet),
                    (6, self.conf.network6, lease.subnet6),
                ):
                    if subnet:
                        self.machine.stack.set_table(
                            masquerade.flannel_masquerade_table(version, cluster, subnet)
                        )
            self.machine.stack.set_forwarding(True)
        path = join_cni_path(self.machine.os, self._file)
        self.machine.files.mkdir(path[: path.rindex("\\" if self.machine.os == "windows" else "/")])
        self.machine.files.write(
            path,
            write_subnet(
                self.conf.network,
                lease.subnet,
                backend.mtu,
                self._masquerade,
                self.conf.network6,
                lease.subnet6,
            ),
        )
        self._backend, self.lease, self._at = backend, lease, -1
        self.go_on()

    def go_on(self) -> None:
        """Follows the leases again, also after `stop`."""
        self._leases.agents[self.node] = self

    def stop(self) -> None:
        """Stops following; what it has created stays, as with the real flanneld."""
        if self._leases.agents.get(self.node) is self:
            del self._leases.agents[self.node]

    def annotations(self) -> dict[str, str]:
        """For the Node object."""
        return {} if self.lease is None else self.lease.annotations()

    @property
    def dirty(self) -> bool:
        backend = self._backend
        if isinstance(backend, HostGateway) and backend.lost_routes:
            return True
        return backend is not None and self._at != len(self._leases.steps)

    def sync(self) -> None:
        backend = self._backend
        if isinstance(backend, HostGateway) and backend.lost_routes:
            self._at = -1  # flanneld checks its routes and adds them again
        if backend is None or self._at == len(self._leases.steps):
            return
        if self._at < 0:
            removed: list[SubnetLease] = []
            added = [lease for lease in self._leases.by_node.values() if self._concerns(lease)]
        else:
            removed, added = self._since()
        self._at = len(self._leases.steps)
        backend.change(removed, added)

    def _since(self) -> tuple[list[SubnetLease], list[SubnetLease]]:
        """The first and the last lease of each node since a step."""
        first: dict[str, SubnetLease | None] = {}
        for before, after in self._leases.steps[self._at :]:
            lease = after or before
            assert lease is not None
            first.setdefault(lease.node, before)
        now = self._leases.by_node
        removed = [
            old
            for node, old in first.items()
            if old is not None and old != now.get(node) and self._concerns(old)
        ]
        added = [
            now[node]
            for node, old in first.items()
            if node in now and old != now[node] and self._concerns(now[node])
        ]
        return removed, added

    def _concerns(self, lease: SubnetLease) -> bool:
        if lease.node == self.node:
            return False
        kind = self.conf.backend
        if lease.backend_type.lower() != kind:
            self._log(f"Ignoring non-{kind} subnet({lease.subnet}): type={lease.backend_type}")
            return False
        return True

    def _acquire(self, pod_cidrs: Sequence[str]) -> SubnetLease:
        if not pod_cidrs:
            raise FlannelError(f'failed to acquire lease: node "{self.node}" pod cidr not assigned')
        if len(pod_cidrs) > 2:
            raise FlannelError(
                f'failed to acquire lease: node "{self.node}" pod cidrs should be IPv4/IPv6 '
                "only or dualstack"
            )
        conf = self.conf
        subnets = {4: "", 6: ""}
        for text in pod_cidrs:
            cidr = ipaddress.ip_network(text)
            enabled, network = (
                (conf.enable4, conf.network) if cidr.version == 4 else (conf.enable6, conf.network6)
            )
            if not enabled:
                continue
            if not network or not cidr.subnet_of(ipaddress.ip_network(network)):  # type: ignore[arg-type]
                family = "" if cidr.version == 4 else "IPv6 "
                raise FlannelError(
                    f'failed to acquire lease: subnet "{network or "0.0.0.0/0"}" specified '
                    "in the flannel net config "
                    f'doesn\'t contain "{cidr}" {family}PodCIDR of the "{self.node}" node'
                )
            subnets[cidr.version] = str(cidr)
        kind = "" if conf.backend == "alloc" else conf.backend
        return SubnetLease(
            self.node, subnets[4], self._public, "null", kind, subnets[6], self._public6
        )

    def link(self) -> NetworkLink:
        """The interface to the other nodes. Raises FlannelError."""
        links = self.machine.stack.links
        if self._interface:
            named = self._interface
            found = links.get(named) or self._with(named)
            if found is None:
                none = (
                    "no interface with given IP found"
                    if is_ip_address(named)
                    else "route ip+net: no such network interface"
                )
                why = f"error looking up interface {named}: {none}"
                self._log(f"Could not find valid interface matching {named}: {why}")
                raise FlannelError(
                    "Failed to find interface to use that matches the interfaces and/or "
                    "regexes provided"
                )
            if (
                all(str(address.ip) != self._public for address in found.addresses)
                and self.conf.backend == "host-gw"
            ):
                raise FlannelError(NAT)
            return found
        found = self._with(self._public)
        if found is not None:
            return found
        raise FlannelError(
            "Failed to find any valid interface to use: "
            f"error looking up interface {self._public}: no interface with given IP found"
        )

    def _with(self, ip: str) -> NetworkLink | None:
        for link in self.machine.stack.links.values():
            if any(str(address.ip) == ip for address in link.addresses):
                return link
        return None


def _backend(
    conf: FlannelConf,
    machine: CniNode,
    link: NetworkLink,
    public: str,
    behaviour: WindowsAgentBehaviour,
) -> FlannelBackend:
    if conf.backend == "alloc":
        return AllocBackend(link)
    if machine.os == "windows":
        return flanneld_windows.windows_backend(conf, machine, link, behaviour)
    if conf.backend == "host-gw":
        return HostGateway(machine, link)
    return VxlanLink(machine, link, flannelconf.vxlan_settings(conf, machine.os), public, conf)


class AllocBackend:
    """Assigns subnets and adds no routes."""

    kind = ""

    def __init__(self, link: NetworkLink) -> None:
        self.mtu = link.mtu

    def register(self, lease: SubnetLease) -> SubnetLease:
        return lease

    def change(self, removed: Sequence[SubnetLease], added: Sequence[SubnetLease]) -> None:
        return None


class HostGateway:
    """A route for each other node's subnet, through that node."""

    kind = "host-gw"

    def __init__(self, machine: CniNode, link: NetworkLink) -> None:
        self._stack = machine.stack
        self._link = link
        self._wanted: set[str] = set()
        self.mtu = link.mtu

    @property
    def lost_routes(self) -> bool:
        """Whether its routes are gone, although its link is up."""
        has_route = self._stack.has_route
        return self._link.up and any(not has_route(subnet) for subnet in self._wanted)

    def register(self, lease: SubnetLease) -> SubnetLease:
        return lease

    def change(self, removed: Sequence[SubnetLease], added: Sequence[SubnetLease]) -> None:
        self._wanted -= {subnet for lease in removed for subnet in (lease.subnet, lease.subnet6)}
        self._wanted |= {s for lease in added for s in (lease.subnet, lease.subnet6) if s}
        if not self._link.up:
            return
        for lease in removed:
            for subnet in filter(None, (lease.subnet, lease.subnet6)):
                self._stack.delete_route(subnet)
        for lease in added:
            if lease.subnet:
                self._stack.replace_route(lease.subnet, self._link.name, lease.public_ip)
            if lease.subnet6:
                self._stack.replace_route(lease.subnet6, self._link.name, lease.public_ip6)


class VxlanLink:
    """An encapsulating interface; for each other node a route, a neighbour and an entry in the
    forwarding database.
    """

    kind = "vxlan"

    def __init__(
        self,
        machine: CniNode,
        link: NetworkLink,
        conf: VxlanSettings,
        public: str,
        flannel: FlannelConf,
    ) -> None:
        self._stack = machine.stack
        self._below = link
        self._conf = conf
        self._public = public
        self._networks = {4: flannel.network, 6: flannel.network6}
        self._links: dict[int, NetworkLink] = {}
        self.mtu = (conf.mtu or link.mtu) - flannelconf.ENCAPSULATION

    def register(self, lease: SubnetLease) -> SubnetLease:
        data = {4: "null", 6: "null"}
        for version, subnet in ((4, lease.subnet), (6, lease.subnet6)):
            if not subnet:
                continue
            link = self._ensure(version, lease)
            network = ipaddress.ip_network(subnet)
            self._address(link, f"{network.network_address}/{network.max_prefixlen}", version)
            self._links[version] = link
            data[version] = orjson.dumps({"VNI": self._conf.vni, "VtepMAC": link.mac}).decode()
        return SubnetLease(
            lease.node,
            lease.subnet,
            lease.public_ip,
            data[4],
            self.kind,
            lease.subnet6,
            lease.public_ip6,
            data[6],
        )

    def _ensure(self, version: int, lease: SubnetLease) -> NetworkLink:
        name = (
            self._conf.name if version == 4 else self._conf.name.replace("flannel.", "flannel-v6.")
        )
        local = self._public if version == 4 else lease.public_ip6
        wanted = NetworkLink(
            name,
            "vxlan",
            mac=stable_mac(self._stack.name, name),
            mtu=self.mtu,
            vni=self._conf.vni,
            port=self._conf.port,
            local=local,
        )
        found = self._stack.links.get(name)
        if found is not None:
            if (found.kind, found.vni, found.port, found.local) == (
                "vxlan",
                wanted.vni,
                wanted.port,
                wanted.local,
            ):
                return found
            self._stack.delete_link(name)  # one with a different configuration
        return self._stack.add_link(wanted)

    def _address(self, link: NetworkLink, address: str, version: int) -> None:
        """Only the address of this subnet: the node itself uses it as source for packets to
        pods.
        """
        cluster = ipaddress.ip_network(self._networks[version])
        for held in tuple(link.addresses):
            if str(held) != address and held.version == version and held.ip in cluster:
                self._stack.delete_address(link.name, str(held))
        self._stack.add_address(link.name, address)

    def change(self, removed: Sequence[SubnetLease], added: Sequence[SubnetLease]) -> None:
        for version, link in self._links.items():
            for lease in removed:
                self._leave(link, lease, version)
            for lease in added:
                self._enter(link, lease, version)
            self._stack.changed_link(link.name)

    def _leave(self, link: NetworkLink, lease: SubnetLease, version: int) -> None:
        subnet = lease.subnet if version == 4 else lease.subnet6
        if subnet:
            self._stack.delete_route(subnet)
            self._stack.delete_neighbour(subnet.split("/")[0])
            link.fdb.pop(lease.vtep(version)[1], None)

    def _enter(self, link: NetworkLink, lease: SubnetLease, version: int) -> None:
        subnet, public = (
            (lease.subnet, lease.public_ip) if version == 4 else (lease.subnet6, lease.public_ip6)
        )
        if not subnet:
            return
        if self._conf.direct and any(
            ipaddress.ip_address(public) in address.network for address in self._below.addresses
        ):
            self._stack.replace_route(subnet, self._below.name, public)
            return
        mac = lease.vtep(version)[1]
        if not mac:
            return  # the other agent is not ready yet
        base = subnet.split("/")[0]
        self._stack.replace_neighbour(base, mac, link.name)
        link.fdb[mac] = public
        self._stack.replace_route(subnet, link.name, base, onlink=True)
