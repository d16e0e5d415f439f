"""The network of one node, put together: its stack, the configuration of its plugins, the agents that keep it up to date.

A node that is switched on gets a new stack; what is on its disk (plugin configuration, given addresses) is found again. Agents
are lazy: `look` brings the node up to date. What is particular to an operating system is in `nodenet_linux` and
`nodenet_windows`; here nothing knows which one it is.
"""

from __future__ import annotations

import ipaddress
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from transom.cluster.netconfig import NetworkSettings
from transom.cluster.nodes import NodeSpec
from transom.hosts.windows.hns import Hns, HnsError
from transom.kit.clock import Clock
from transom.network import modes, winhost
from transom.network.api import Dataplane, SandboxNetwork
from transom.network.cni import defaults, flannelconf
from transom.network.cni.flannel import SUBNET_FILE
from transom.network.cni.flannelconf import FlannelConf, FlannelError
from transom.network.cni.flanneld import Flanneld
from transom.network.cni.leases import Lease, Leases
from transom.network.cni.paths import join
from transom.network.cni.plugin import CniError, Machine
from transom.network.cni.podnetwork import CniPodNetwork
from transom.network.cni.routes import RouteAgent
from transom.network.stacks import Fabric, Stack
from transom.proxy.healthcheck import ServiceHealth
from transom.proxy.policy.agent import PolicyAgent
from transom.proxy.policy.index import PolicyIndex
from transom.proxy.tracker import Tracker

log = logging.getLogger("transom.network")

_LINES = 20
BRIDGE = defaults.BRIDGE_NAME


class Proxier(Protocol):
    @property
    def dirty(self) -> bool: ...
    def sync(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Ranges:
    """Addresses of a cluster; those of IPv6 are there with dual stack."""

    nodes: str
    pods: str
    services: str
    dns: str
    nodes6: str = ""
    pods6: str = ""
    services6: str = ""

    @property
    def gateway(self) -> str:
        return str(ipaddress.ip_network(self.nodes)[1])

    @property
    def gateway6(self) -> str:
        return str(ipaddress.ip_network(self.nodes6)[1])

    def have(self, host: str) -> bool:
        """Whether it is an address of the cluster."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        texts = given(self.nodes, self.pods, self.services, self.nodes6, self.pods6, self.services6)
        return any(address in ipaddress.ip_network(text) for text in texts)

    def with_length(self, address: str) -> str:
        return f"{address}/{ipaddress.ip_network(self.nodes6 if ':' in address else self.nodes).prefixlen}"


class Shared:
    """What all nodes of a process share."""

    def __init__(
        self, fabric: Fabric, dataplane: Dataplane, clock: Clock, rng: random.Random, settings: NetworkSettings, ranges: Ranges
    ) -> None:
        self.fabric = fabric
        self.dataplane = dataplane
        self.clock = clock
        self.rng = rng
        self.settings = settings
        self.ranges = ranges
        self.leases = Leases()
        self.slices = Tracker("slices")
        self.endpoints = Tracker("endpoints")
        self.policies = PolicyIndex()


class NodeNet(ABC):
    os: Literal["linux", "windows"]
    wants_endpoints = False  # whether its proxy reads Endpoints and not EndpointSlices

    def __init__(
        self, spec: NodeSpec, host: Any, addresses: tuple[str, ...], shared: Shared, hns: Hns | None = None
    ) -> None:
        self.spec = spec
        self.address, self.address6 = (*addresses, "")[:2]
        self.annotations: dict[str, str] = {}  # that flannel wants on the Node
        self.runtime: defaults.Runtime = "docker" if spec.runtime == "docker" else "containerd"
        self.shared = shared
        self.stops: list[Callable[[], object]] = []
        self.proxy_stops: list[Callable[[], object]] = []
        self.by_hand: set[str] = set()  # of kube-proxy and flanneld, what somebody stops and starts himself
        self.agent: Flanneld | None = None
        self.agent_said: list[tuple[float, str]] = []  # when and what, since boot, the last of it
        self.agent_told: Callable[[str], None] | None = None  # hears it, too
        self.started = ""  # the ranges of addresses that the agents have been started with
        nowhere = Stack(spec.name, "node", self.os, spec.name, lambda *_: None)  # of a machine that is off
        self.machine = Machine(host.files, nowhere, shared.fabric, hns, self.os, booted=lambda: host.boot_time)
        self.pods = CniPodNetwork(self.machine, self.runtime, start=self._start_agents, joined=self._pod_joined)
        self.proxier: Proxier | None = None
        self._policy: PolicyAgent | None = None

    @property
    def stack(self) -> Stack:
        return self.machine.stack

    @property
    def addresses(self) -> tuple[str, ...]:
        return given(self.address, self.address6)

    @property
    def hostname(self) -> str:
        """What its kube-proxy takes for the node's name."""
        return self.shared.settings.hostname_override.get(self.spec.name, self.spec.name)

    @property
    def plugin(self) -> str:
        """What makes this node's network."""
        return self.shared.settings.chosen_plugin

    # ---- what operating systems do their own way -------------------------------------------------------------------

    @abstractmethod
    def plug_in(self, stack: Stack) -> None:
        """Gives the stack of a machine that was just switched on its first link, with the node's IPv4 address."""

    @abstractmethod
    def start_proxy(self, stack: Stack) -> None:
        """Sets `proxier`, as far as it can run before the node has a network."""

    @abstractmethod
    def network_started(self) -> None:
        """Agents and plugins have what they need: the rest of the proxy may start."""

    @abstractmethod
    def make_network(self, subnets: Sequence[str]) -> None:
        """Where the network solution has no agent that would."""

    @abstractmethod
    def configuration(self, subnets: Sequence[str]) -> bytes:
        """Of the node's plugins."""

    def subnets(self, ranges: Sequence[str]) -> Sequence[str]:
        """Of the node's ranges, those that its pods get addresses of."""
        return ranges if self.address6 else ranges[:1]

    def lease(self, subnets: Sequence[str]) -> Lease:
        """What others need to know to reach its pods."""
        cidr, cidr6 = (*subnets, "")[:2]
        return Lease(self.spec.name, cidr, self.address, subnet6=cidr6, public_ip6=self.address6 if cidr6 else "")

    def sync_proxy(self, proxier: Proxier) -> None:
        proxier.sync()

    # ---- power ---------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """The machine is on: it has its own addresses, nothing else yet."""
        shared, name = self.shared, self.spec.name
        self.halt()
        self.by_hand.clear()
        self.agent_said.clear()
        stack = self.machine.stack = shared.fabric.add(name, "node", self.os)
        self.plug_in(stack)
        if self.address6:
            link = winhost.management_link(stack)
            stack.add_address(link, shared.ranges.with_length(self.address6))
            stack.replace_route("::/0", link, shared.ranges.gateway6)
        self.start_proxy(stack)
        if shared.settings.policy:
            self._policy = PolicyAgent(shared.policies, name, stack)
        if self.pods.cidr:
            self._start_agents(self.pods.cidr)

    def halt(self) -> None:
        """The machine is off; what runs on it ends with it."""
        name, fabric = self.spec.name, self.shared.fabric
        self.stop_proxy()
        self.stop_agent()
        for stop in reversed(self.stops):
            stop()
        self.stops.clear()
        self._policy = None
        self.started = ""
        for sandbox in [s.name for s in fabric.stacks.values() if s.node == name and s.role == "sandbox"]:
            fabric.remove(sandbox)
        fabric.remove(name)

    def stop_proxy(self) -> None:
        """kube-proxy alone has ended. What it made stays, and nobody keeps it up to date."""
        for stop in reversed(self.proxy_stops):
            stop()
        self.proxy_stops.clear()
        self.proxier = None

    def use_proxier(self, proxier: Proxier, *stops: Callable[[], object]) -> None:
        """Another kube-proxy than the one that the node booted with, which has been stopped."""
        self.proxier = proxier
        self.proxy_stops += stops

    def stop_agent(self) -> None:
        """flanneld alone has ended: leases, routes and subnet.env stay as they are."""
        if self.agent is not None:
            self.agent.stop()
            self.agent = None

    def use_agent(self, agent: Flanneld) -> None:
        """Another flanneld that has started."""
        self.stop_agent()
        self.agent = agent
        agent.go_on()
        self.annotations = agent.annotations()
        if agent.lease is not None:
            self.shared.leases.put(agent.lease)

    # ---- the way between nodes -------------------------------------------------------------------------------------

    def _start_agents(self, cidr: str) -> None:
        if self.spec.name not in self.shared.fabric.stacks or self.started == cidr or "flanneld" in self.by_hand:
            return
        self.started = cidr
        try:
            self._agents(self.subnets(cidr.split(",")))
            self.pods.fault = ""
        except (FlannelError, HnsError, CniError) as problem:
            self.pods.fault = f"cni config uninitialized: {problem}"
            log.error("the network of node %s does not start: %s", self.spec.name, problem)
        if "kube-proxy" not in self.by_hand:
            self.network_started()

    def network_made(self, cidr: str) -> None:
        """flannel's network is there, by an agent that somebody has started."""
        self.pods.cidr = self.started = cidr
        self.pods.fault = ""
        if isinstance(self.pods.network(), str):
            self._configure(self.subnets(cidr.split(",")))
        if self.proxier is None and "kube-proxy" not in self.by_hand:
            self.network_started()

    def _agents(self, subnets: Sequence[str]) -> None:
        if self.plugin == "flannel":
            agent = self.flanneld()
            agent.start(subnets)
            self.use_agent(agent)
        else:
            self.stops.append(RouteAgent(self.spec.name, self.stack, self.shared.leases).stop)
            self.shared.leases.put(self.lease(subnets))
            self.make_network(subnets)
            self.stack.set_forwarding(True)
        self._configure(subnets)

    def _configure(self, subnets: Sequence[str]) -> None:
        content = self.configuration(subnets)
        name = defaults.place(self.os, self.runtime)[1]
        if b'"plugins"' in content:
            name = name.rpartition(".")[0] + ".conflist"
        self.write(self.pods.directory, name, content)

    def net_conf(self) -> bytes:
        """net-conf.json, the same on all nodes."""
        ranges, settings = self.shared.ranges, self.shared.settings
        # flanneld on Windows calls the HNS network by this name; kube-proxy looks for it.
        name = defaults.OVERLAY_NAME if settings.mode == "overlay" else BRIDGE
        backend = {"Name": name, **modes.backend(settings.mode, settings.backend)}
        return defaults.net_conf(ranges.pods, backend, ranges.pods6)

    def flanneld(
        self, *, interface: str = "", masquerade: bool = True, conf: FlannelConf | None = None, subnet_file: str = SUBNET_FILE,
        log: Callable[[str], None] | None = None,
    ) -> Flanneld:  # fmt: skip
        """The agent of this node, not started."""
        return Flanneld(
            self.spec.name, self.machine, self.shared.leases, conf or flannelconf.parse(self.net_conf()),
            public_ip=self.address, public_ip6=self.address6, interface=interface, masquerade=masquerade,
            subnet_file=subnet_file, log=log or self._heard,
        )  # fmt: skip

    def _heard(self, text: str) -> None:
        log.info("%s", text)
        self.agent_said = [*self.agent_said[-_LINES:], (self.shared.clock.time(), text)]
        if self.agent_told is not None:
            self.agent_told(text)

    def write(self, directory: str, name: str, content: bytes) -> None:
        self.machine.files.mkdir(directory)
        self.machine.files.write(join(self.os, directory, name), content)

    # ---- services and policies -----------------------------------------------------------------------------------

    def service_health(self) -> ServiceHealth:
        health = ServiceHealth(self.spec.name, self.shared.dataplane, lambda: self.addresses)
        self.proxy_stops.append(health.close)
        return health

    def _pod_joined(self, sandbox: SandboxNetwork, addresses: Sequence[str]) -> None:
        """Policies hold from the first packet on."""
        if self._policy is not None:
            self.shared.policies.place_pod((sandbox.namespace, sandbox.pod), sandbox.uid, addresses)
            self._policy.sync()

    def look(self) -> None:
        """Somebody reads the node's state: bring it up to date."""
        self.shared.leases.look(self.spec.name)
        if self.proxier is not None and self.proxier.dirty:
            self.sync_proxy(self.proxier)
        if self._policy is not None and self._policy.dirty:
            self._policy.sync()


def given(*texts: str) -> tuple[str, ...]:
    return tuple(text for text in texts if text)
