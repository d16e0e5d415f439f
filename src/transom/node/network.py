"""The network of one node: its stack, its CNI configuration, and the agents that keep it up to
date.

A node that boots gets a new stack; what is on its disk (CNI configuration, assigned addresses)
stays. Agents are lazy: `sync` brings the node up to date when its state is read. `network_linux`
and `network_windows` have what differs by operating system. kube-proxy and flanneld are programs
(`node.programs`); they register their proxier and agent here.
"""

from __future__ import annotations

import logging
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.kit.prometheus import Collector
from transom.kit.versions import version_numbers
from transom.machines.windows.hns import HnsError, HostNetworkService
from transom.network import modes, winhost
from transom.network.api import Dataplane, SandboxNetwork
from transom.network.cni import defaults, flannelconf
from transom.network.cni.flannel import SUBNET_FILE
from transom.network.cni.flannelconf import FlannelConf, FlannelError
from transom.network.cni.flanneld import Flanneld
from transom.network.cni.leases import SubnetLease, SubnetLeases
from transom.network.cni.paths import join_cni_path
from transom.network.cni.plugin import CniError, CniNode
from transom.network.cni.podnetwork import CniPodNetwork
from transom.network.cni.routes import RouteAgent
from transom.network.ovn.database import LogicalSwitch, OvnDatabase
from transom.network.stacks import Fabric, NetworkStack
from transom.node.address_ranges import AddressRanges, non_empty
from transom.node.network_settings import API_PORT, NetworkSettings
from transom.node.spec import NodeSpec
from transom.proxy.healthcheck import ServiceHealth
from transom.proxy.ovn import OvnServices
from transom.proxy.policy.agent import PolicyAgent
from transom.proxy.policy.index import PolicyIndex
from transom.proxy.tracker import ServiceTracker

if TYPE_CHECKING:
    from transom.node.machine import NodeMachine

log = logging.getLogger("transom.network")

BRIDGE_NAME = defaults.BRIDGE_NAME
_LABELS_CNI_ERRORS_SINCE = (1, 6)  # containerd, whose libcni is 1.0 from then on


class Proxier(Protocol):
    @property
    def dirty(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class RunningProxier:
    """The proxier of the kube-proxy that runs on a node, with the needs of its kind."""

    tracker: ServiceTracker
    proxier: Proxier
    sync: Callable[[], object]
    close: Callable[[], object]
    due: Callable[[], float] = lambda: math.inf  # when to sync even if nothing has changed
    failed: Callable[[], str] = lambda: ""  # why it does not work
    lost: Callable[[], list[str]] = list  # NAMESPACE/NAME of services whose rules others deleted
    metrics: Collector = tuple  # of its kind only


class CniFolders(NamedTuple):
    """Where a node has its CNI configuration and plugins."""

    directory: str
    binaries: str


class SharedNetworkState:
    """What the networks of all nodes of a process share."""

    def __init__(
        self,
        fabric: Fabric,
        dataplane: Dataplane,
        clock: Clock,
        rng: random.Random,
        settings: NetworkSettings,
        ranges: AddressRanges,
    ) -> None:
        self.fabric = fabric
        self.dataplane = dataplane
        self.clock = clock
        self.rng = rng
        self.settings = settings
        self.ranges = ranges
        self.leases = SubnetLeases()
        self.slices = ServiceTracker("slices")
        self.endpoints = ServiceTracker("endpoints")
        self.policies = PolicyIndex()
        self.ovn: OvnDatabase | None = None
        self.ovn_services: OvnServices | None = None
        if settings.chosen_plugin == "ovn":
            self.ovn = OvnDatabase(fabric)
            self.ovn_services = OvnServices(self.slices, self.ovn)


class NodeStacks:
    """The network stacks of one node, synced on access (`runtime.sim.netview.Stacks`)."""

    def __init__(self, network: NodeNetwork) -> None:
        self._network = network

    def stack(self, sandbox: str) -> NetworkStack | None:
        if sandbox:
            return self._network.pods.stack(sandbox)
        self._network.shared.fabric.refresh_node(self._network.spec.name)
        return self._network.stack

    def owner(self, address: str) -> NetworkStack | None:
        return self._network.shared.fabric.owner(address)


class NodeNetwork(ABC):
    os: Literal["linux", "windows"]
    wants_endpoints = False  # whether its proxy reads Endpoints instead of EndpointSlices

    def __init__(
        self,
        spec: NodeSpec,
        machine: NodeMachine,
        addresses: tuple[str, ...],
        shared: SharedNetworkState,
        hns: HostNetworkService | None = None,
    ) -> None:
        self.spec = spec
        self.address, self.address6 = (*addresses, "")[:2]
        self.annotations: dict[str, str] = {}  # flannel's annotations, for the Node object
        self.runtime: defaults.Runtime = "docker" if spec.runtime == "docker" else "containerd"
        self.shared = shared
        self.stops: list[Callable[[], object]] = []
        self.agent: Flanneld | None = None
        self.proxier: RunningProxier | None = None
        self.started = ""  # the pod CIDRs that the pod network was started with
        off = NetworkStack(spec.name, "node", self.os, spec.name, lambda *_: None)
        self.machine = CniNode(
            machine.files, off, shared.fabric, hns, self.os, booted=lambda: machine.boot_time
        )
        self.pods = CniPodNetwork(
            self.machine,
            self.runtime,
            labelled=self.runtime == "containerd"
            and version_numbers(spec.runtime_version) >= _LABELS_CNI_ERRORS_SINCE,
            joined=self._pod_joined,
        )
        self.usual_cni_folders = CniFolders(self.pods.directory, self.pods.binaries)
        self._policy: PolicyAgent | None = None

    @property
    def stack(self) -> NetworkStack:
        return self.machine.stack

    @property
    def addresses(self) -> tuple[str, ...]:
        return non_empty(self.address, self.address6)

    @property
    def proxy_hostname(self) -> str:
        """The node name that its kube-proxy uses."""
        return self.shared.settings.hostname_override.get(self.spec.name, self.spec.name)

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that the node starts at boot, of kubelet, kube-proxy and flanneld."""
        return ("kubelet", "kube-proxy", *(("flanneld",) if self.plugin == "flannel" else ()))

    @property
    def plugin(self) -> str:
        """The CNI plugin of this node."""
        return self.shared.settings.chosen_plugin

    # ---- what differs by operating system ----

    @abstractmethod
    def add_first_link(self, stack: NetworkStack) -> None:
        """Gives the stack of a node that boots its network card, with the node's IPv4 address."""

    @property
    @abstractmethod
    def proxy_needs_network(self) -> bool:
        """Whether kube-proxy can start only after the pod network exists."""

    @abstractmethod
    def make_network(self, subnets: Sequence[str]) -> None:
        """Creates the pod network if the plugin has no agent that does."""

    @abstractmethod
    def join_switch(self, switch: LogicalSwitch) -> None:
        """The link from the node to OVN's logical network."""

    @abstractmethod
    def cni_config(self, subnets: Sequence[str]) -> bytes: ...

    def subnets(self, pod_cidrs: Sequence[str]) -> Sequence[str]:
        """The node's pod CIDRs that its pods get addresses from."""
        return pod_cidrs if self.address6 else pod_cidrs[:1]

    def cluster_cidr(self) -> str:
        """The cluster's pod CIDRs, for the IP families of this node."""
        ranges = self.shared.ranges
        return ",".join(self.subnets(non_empty(ranges.pods, ranges.pods6)))

    def proxy_feature_gates(self) -> dict[str, bool]:
        """kube-proxy accepts two ranges and serves both families only with IPv6DualStack."""
        return {**({"IPv6DualStack": True} if self.address6 else {}), **self.spec.feature_gates}

    def lease(self, subnets: Sequence[str]) -> SubnetLease:
        """What other nodes need to reach its pods."""
        cidr, cidr6 = (*subnets, "")[:2]
        address6 = self.address6 if cidr6 else ""
        return SubnetLease(self.spec.name, cidr, self.address, subnet6=cidr6, public_ip6=address6)

    # ---- power ----

    def boot(self) -> None:
        """The machine is on: it has its own addresses and nothing else yet."""
        shared, name = self.shared, self.spec.name
        self.power_off()
        stack = self.machine.stack = shared.fabric.add(name, "node", self.os)
        self.add_first_link(stack)
        if self.address6:
            link = winhost.management_link(stack)
            stack.add_address(link, shared.ranges.with_prefix_length(self.address6))
            stack.replace_route("::/0", link, shared.ranges.gateway6)
        if shared.settings.policy:
            self._policy = PolicyAgent(shared.policies, name, stack)

    def power_off(self) -> None:
        """The machine is off; everything that runs on it ends."""
        name, fabric = self.spec.name, self.shared.fabric
        self.stop_proxy()
        self.stop_agent()
        for stop in reversed(self.stops):
            stop()
        self.stops.clear()
        self._policy = None
        self.started = ""
        sandboxes = [s for s in fabric.stacks.values() if s.node == name and s.role == "sandbox"]
        for sandbox in sandboxes:
            fabric.remove(sandbox.name)
        fabric.remove(name)

    @property
    def is_on(self) -> bool:
        return self.spec.name in self.shared.fabric.stacks

    def has_route_to(self, address: str, port: int = API_PORT) -> bool:
        """Whether packets to an address and TCP port leave the machine, or stay on it."""
        return self.is_on and self.stack.reaches(address)

    # ---- kube-proxy and flanneld ----

    def use_proxier(self, proxier: RunningProxier) -> None:
        """kube-proxy has started."""
        self.stop_proxy()
        self.proxier = proxier

    def stop_proxy(self) -> None:
        """kube-proxy has ended. Its rules stay but are no longer updated."""
        if self.proxier is not None:
            self.proxier.close()
            self.proxier = None

    def flanneld(
        self,
        *,
        log: Callable[[str], None],
        interface: str = "",
        masquerade: bool = True,
        conf: FlannelConf | None = None,
        subnet_file: str = SUBNET_FILE,
    ) -> Flanneld:
        """flannel's agent for this node, not yet started."""
        return Flanneld(
            self.spec.name,
            self.machine,
            self.shared.leases,
            conf or flannelconf.parse_flannel_conf(self.net_conf()),
            public_ip=self.address,
            public_ip6=self.address6,
            interface=interface,
            masquerade=masquerade,
            subnet_file=subnet_file,
            log=log,
            version=self.shared.settings.flannel_version,
        )

    def use_agent(self, agent: Flanneld) -> None:
        """flanneld has started."""
        self.stop_agent()
        self.agent = agent
        agent.go_on()
        self.annotations = agent.annotations()
        if agent.lease is not None:
            self.shared.leases.put(agent.lease)

    def stop_agent(self) -> None:
        """flanneld has ended: leases, routes and subnet.env stay as they are."""
        if self.agent is not None:
            self.agent.stop()
            self.agent = None

    # ---- pod network ----

    def start_without_agent(self, cidr: str) -> None:
        """Starts the pod network of a plugin without an agent (all but flannel)."""
        subnets = self.subnets(cidr.split(","))
        try:
            if self.shared.ovn is None:
                self.stops.append(RouteAgent(self.spec.name, self.stack, self.shared.leases).stop)
            else:
                self._join_ovn(self.shared.ovn, subnets[0])
            self.shared.leases.put(self.lease(subnets))
            self.make_network(subnets)
            self.stack.set_forwarding(True)
            self._write_cni_config(subnets)
            self.started, self.pods.fault = cidr, ""
        except (FlannelError, HnsError, CniError) as problem:
            self.network_failed(str(problem), at_boot=True)

    def _join_ovn(self, database: OvnDatabase, subnet: str) -> None:
        """Registers the node as a chassis with a logical switch; its own stack gets a port of
        it.
        """
        stack = self.stack
        switch = database.put_switch(
            self.spec.name, subnet, self.address, windows=self.os == "windows"
        )
        if stack.ovn is None:
            stack.ovn = database
            database.listeners.append(stack.ovn_changed)
            self.stops.append(partial(database.listeners.remove, stack.ovn_changed))
        self.join_switch(switch)

    def network_made(self, cidr: str, *, at_boot: bool) -> None:
        """flannel's agent has created its network. A booting node gets its own CNI configuration
        again; a running one keeps the changes of users.
        """
        self.pods.cidr = self.started = cidr
        self.pods.fault = ""
        if at_boot or isinstance(self.pods.network(), str):
            self._write_cni_config(self.subnets(cidr.split(",")))

    def network_failed(self, problem: str, *, at_boot: bool) -> None:
        """On a running node, an existing network stays in use."""
        if at_boot or not self.started:
            self.pods.fault = f"cni config uninitialized: {problem}"
            log.error("the network of node %s does not start: %s", self.spec.name, problem)

    def _write_cni_config(self, subnets: Sequence[str]) -> None:
        content = self.cni_config(subnets)
        name = defaults.config_file_place(self.os, self.runtime)[1]
        if b'"plugins"' in content:
            name = name.rpartition(".")[0] + ".conflist"
        self.write_file(self.pods.directory, name, content)

    def net_conf(self) -> bytes:
        """net-conf.json, the same on all nodes."""
        ranges, settings = self.shared.ranges, self.shared.settings
        # flanneld on Windows gives the HNS network this name; kube-proxy looks it up.
        name = defaults.OVERLAY_NAME if settings.mode == "overlay" else BRIDGE_NAME
        backend = {"Name": name, **modes.flannel_backend(settings.mode, settings.backend)}
        return defaults.net_conf(ranges.pods, backend, ranges.pods6)

    def write_file(self, directory: str, name: str, content: bytes) -> None:
        self.machine.files.mkdir(directory)
        self.machine.files.write(join_cni_path(self.os, directory, name), content)

    # ---- services and policies ----

    def service_health(self) -> ServiceHealth:
        return ServiceHealth(self.spec.name, self.shared.dataplane, lambda: self.addresses)

    def _pod_joined(self, sandbox: SandboxNetwork, addresses: Sequence[str]) -> None:
        """Policies apply from the first packet on."""
        if self.shared.ovn is not None and addresses:
            name = f"{sandbox.namespace}_{sandbox.pod}"
            self.shared.ovn.put_pod(self.spec.name, name, addresses[0])
        if self._policy is not None:
            pod = (sandbox.namespace, sandbox.pod)
            self.shared.policies.place_pod(pod, sandbox.uid, addresses)
            self._policy.sync()

    def sync(self) -> None:
        """Brings the node's state up to date before it is read."""
        self.shared.leases.look(self.spec.name)
        if self.shared.ovn_services is not None:
            self.shared.ovn_services.sync()
        if self.proxier is not None and self.proxier.proxier.dirty:
            self.proxier.sync()
        if self._policy is not None and self._policy.dirty:
            self._policy.sync()
