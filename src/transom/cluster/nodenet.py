"""The network of one node, put together: its stack, the configuration of its plugins, the agents that keep it up to date.

A node that is switched on gets a new stack; what is on its disk (plugin configuration, given addresses) and what Windows'
host networking service keeps over a reboot is found again. Agents are lazy: `look` brings the node up to date.
"""

from __future__ import annotations

import ipaddress
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from transom.cluster.netconfig import NetworkSettings
from transom.cluster.nodes import NodeSpec
from transom.hosts.windows.hns import Adapter, Hns, HnsError
from transom.kit.clock import Clock
from transom.network import modes, winhost
from transom.network.api import Dataplane, OnStack
from transom.network.cni import defaults, flannelconf, masquerade
from transom.network.cni.flannelconf import FlannelError
from transom.network.cni.flanneld import Flanneld
from transom.network.cni.leases import Lease, Leases
from transom.network.cni.plugin import CniError, Machine
from transom.network.cni.podnetwork import CniPodNetwork
from transom.network.cni.routes import RouteAgent
from transom.network.cni.sourcevip import source_vip
from transom.network.cni.windows import azure, azure_ipam, ovn, setup
from transom.network.stacks import Fabric, Link, Stack, stable_mac
from transom.proxy.healthcheck import ServiceHealth
from transom.proxy.nftables.proxier import NftablesProxier
from transom.proxy.nftables.proxier import Options as NftablesOptions
from transom.proxy.policy.agent import PolicyAgent
from transom.proxy.policy.index import PolicyIndex
from transom.proxy.tracker import Tracker
from transom.proxy.userspace.proxier import INTERFACE, UserspaceProxier
from transom.proxy.winkernel.dualstack import DualStackProxier
from transom.proxy.winkernel.options import Options as WinkernelOptions
from transom.proxy.winkernel.proxier import WinkernelProxier
from transom.windows import releases

log = logging.getLogger("transom.network")

_AZURE_NETWORK, _OVN_NETWORK, _BRIDGE = "azure", "external", "cbr0"


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


class NodeNet:
    def __init__(self, spec: NodeSpec, host: Any, addresses: tuple[str, ...], release: str, shared: Shared) -> None:
        self.spec = spec
        self.address, self.address6 = (*addresses, "")[:2]
        self.annotations: dict[str, str] = {}  # that flannel wants on the Node
        self._host = host
        self._shared = shared
        self._release = releases.parse(release)
        self._stops: list[Callable[[], object]] = []
        self._started = ""  # the ranges of addresses that the agents have been started with
        hns = self._hns() if spec.windows else None
        self._machine = Machine(
            host.files, _nowhere(spec), shared.fabric, hns, "windows" if spec.windows else "linux",
            booted=lambda: host.boot_time,
        )
        self.pods = CniPodNetwork(
            self._machine, "docker" if spec.runtime == "docker" else "containerd", start=self._start_agents,
        )
        self.proxier: Proxier | None = None
        self._health: ServiceHealth | None = None  # of proxiers that do not know of it themselves
        self.policy: PolicyAgent | None = None

    def _hns(self) -> Hns:
        hns: Hns = self._host.hns
        ranges = self._shared.ranges
        mac = stable_mac(self.spec.name, "Ethernet")
        hns.set_adapters([Adapter(
            "Ethernet", "00-15-5D" + mac[8:].upper().replace(":", "-"), ranges.with_length(self.address), ranges.gateway
        )])
        return hns

    @property
    def stack(self) -> Stack:
        return self._machine.stack

    # ---- power ---------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """The machine is on: it has its own address, nothing else yet."""
        shared, name = self._shared, self.spec.name
        self.halt()
        stack = self._machine.stack = shared.fabric.add(name, "node", self._machine.os)
        hns = self._machine.hns
        if hns is not None:
            self._stops.append(winhost.bind(stack, hns))
        else:
            stack.add_link(Link("eth0", "ethernet", mac=stable_mac(name, "eth0")))
            stack.add_address("eth0", shared.ranges.with_length(self.address))
            stack.replace_route("0.0.0.0/0", "eth0", shared.ranges.gateway)
        if self.address6:
            link = winhost.management_link(stack)
            stack.add_address(link, shared.ranges.with_length(self.address6))
            stack.replace_route("::/0", link, shared.ranges.gateway6)
        self._start_proxy(stack, hns)
        if self.pods.cidr:
            self._start_agents(self.pods.cidr)

    def halt(self) -> None:
        """The machine is off; what runs on it ends with it."""
        name, fabric = self.spec.name, self._shared.fabric
        for stop in reversed(self._stops):
            stop()
        self._stops.clear()
        self.proxier = self.policy = None
        self._started = ""
        for sandbox in [s.name for s in fabric.stacks.values() if s.node == name and s.role == "sandbox"]:
            fabric.remove(sandbox)
        fabric.remove(name)

    # ---- the way between nodes -------------------------------------------------------------------------------------

    def _start_agents(self, cidr: str) -> None:
        if self.spec.name not in self._shared.fabric.stacks or self._started == cidr:
            return
        self._started = cidr
        try:
            self._agents(cidr)
            self.pods.fault = ""
        except (FlannelError, HnsError, CniError) as problem:
            self.pods.fault = f"cni config uninitialized: {problem}"
            log.error("the network of node %s does not start: %s", self.spec.name, problem)
        if self.spec.windows:
            self._start_proxy(self.stack, self._machine.hns)

    @property
    def _plugin(self) -> str:
        """What makes this node's network. flannel gives Windows pods one address: where they can have two, sdnbridge does,
        which needs what containerd has."""
        chosen = self._shared.settings.chosen_plugin
        if not self.spec.windows or chosen not in ("flannel", "sdnbridge"):
            return chosen
        if self.spec.runtime == "docker":
            return "win-bridge" if chosen == "sdnbridge" else chosen
        return "sdnbridge" if self.address6 else chosen

    def _subnets(self, cidr: str) -> list[str]:
        """Of the node's ranges, those that its pods get addresses of."""
        both = self.address6 and (not self.spec.windows or self._plugin == "sdnbridge")
        return cidr.split(",") if both else cidr.split(",")[:1]

    def _agents(self, cidr: str) -> None:
        shared, settings = self._shared, self._shared.settings
        subnets = self._subnets(cidr)
        runtime: defaults.Runtime = "docker" if self.spec.runtime == "docker" else "containerd"
        if self._plugin == "flannel":
            backend = modes.backend(settings.mode, settings.backend)
            conf = flannelconf.parse(
                defaults.net_conf(shared.ranges.pods, _named(backend, settings.mode), shared.ranges.pods6)
            )
            agent = Flanneld(
                self.spec.name, self._machine, shared.leases, conf, public_ip=self.address, public_ip6=self.address6,
                log=log.info,
            )
            agent.start(subnets)
            self._stops.append(agent.stop)
            self.annotations = agent.annotations()
            if agent.lease is not None:
                shared.leases.put(agent.lease)
        else:
            self._routed(subnets)
        content = self._configuration(subnets, runtime)
        file = defaults.place(self._machine.os, runtime)[1]
        if b'"plugins"' in content:
            file = file.rpartition(".")[0] + ".conflist"
        self._write(self.pods.directory, file, content)

    def _routed(self, subnets: list[str]) -> None:
        """Where the network solution leaves routes between nodes to others."""
        shared, hns, plugin = self._shared, self._machine.hns, self._plugin
        cidr, cidr6 = (*subnets, "")[:2]
        agent = RouteAgent(self.spec.name, self.stack, shared.leases)
        self._stops.append(agent.stop)
        azure_pods = hns is not None and plugin == "azure"
        shared.leases.put(Lease(
            self.spec.name, str(self._card_addresses()) if azure_pods else cidr, self.address, subnet6=cidr6,
            public_ip6=self.address6 if cidr6 else "",
        ))  # fmt: skip
        if hns is None:
            self.stack.set_table(masquerade.flannel(4, shared.ranges.pods, cidr))
            if cidr6:
                self.stack.set_table(masquerade.flannel(6, shared.ranges.pods6, cidr6))
        elif plugin in ("win-bridge", "sdnbridge"):
            setup.l2bridge(hns, _BRIDGE, subnets)
        elif plugin == "ovn":
            setup.transparent(hns, _OVN_NETWORK, cidr)
        elif plugin == "azure":
            pool = [str(address) for address in self._card_addresses().hosts()]
            adapter = next(a for a in hns.adapters.values() if a.ip == self.address)
            directory, _, file = azure_ipam.ANSWER.rpartition("\\")
            self._write(directory, file, azure_ipam.answer(adapter.mac, shared.ranges.nodes, self.address, pool))
        self.stack.set_forwarding(True)

    def _card_addresses(self) -> ipaddress.IPv4Network:
        """Azure's pods have addresses of the machine's card: a part of the upper half of the nodes' range."""
        nodes = ipaddress.IPv4Network(self._shared.ranges.nodes)
        return ipaddress.IPv4Network((int(nodes[nodes.num_addresses // 2]) + 256 * self.spec.number, 24))

    def _configuration(self, subnets: list[str], runtime: defaults.Runtime) -> bytes:
        settings, ranges = self._shared.settings, self._shared.ranges
        plugin = self._plugin
        if not self.spec.windows:
            return defaults.linux() if plugin == "flannel" else _bridge(subnets)
        six = len(subnets) > 1
        exceptions = [ranges.pods, ranges.services, *settings.exceptions]
        if plugin == "azure":
            mode = "tunnel" if settings.mode == "l2tunnel" else "bridge"
            found = azure.conflist(mode, dns=ranges.dns, exceptions=[*exceptions, ranges.nodes], service_cidr=ranges.services)
        elif plugin == "ovn":
            found = ovn.conflist()
        else:
            written = defaults.windows(
                "overlay" if settings.mode == "overlay" else "l2bridge",
                clusters=[ranges.pods, *([ranges.pods6] if six else ()), *settings.exceptions],
                services=[ranges.services, *([ranges.services6] if six else ())],
                management=[ranges.nodes, *([ranges.nodes6] if six else ())],
                node_ip=self.address, node_ip6=self.address6 if six else "", dns=[ranges.dns], runtime=runtime,
            )  # fmt: skip
            found = orjson.loads(written)
            if plugin == "sdnbridge":
                found = defaults.sdnbridge(subnets, found["delegate"]["policies"], found["delegate"]["dns"])
            elif plugin == "win-bridge":
                # The bridge has the first two addresses: host-local knows of one of them only.
                start = str(ipaddress.ip_network(subnets[0])[3])
                found = {**found["delegate"], **{k: v for k, v in found.items() if k not in ("delegate", "type")},
                         "ipam": {"type": "host-local", "subnet": subnets[0], "rangeStart": start}}  # fmt: skip
        if settings.cni_version:
            found["cniVersion"] = settings.cni_version
        return orjson.dumps(found, option=orjson.OPT_INDENT_2)

    def _write(self, directory: str, name: str, content: bytes) -> None:
        files = self._machine.files
        files.mkdir(directory)
        files.write(directory + ("\\" if self.spec.windows else "/") + name, content)

    # ---- services and policies -----------------------------------------------------------------------------------

    def _start_proxy(self, stack: Stack, hns: Hns | None) -> None:
        shared, settings = self._shared, self._shared.settings
        hostname = settings.hostname_override.get(self.spec.name, self.spec.name)
        if hns is None:
            self.proxier = NftablesProxier(
                shared.slices, hostname, stack,
                NftablesOptions(cluster_cidrs=_given(shared.ranges.pods, shared.ranges.pods6), node_ips=self.addresses),
            )
            self._health = self._service_health()
        elif settings.proxy_mode == "userspace":
            if isinstance(self.proxier, UserspaceProxier):
                return
            if INTERFACE not in stack.links:
                stack.add_link(Link(INTERFACE, "vnic", mac=stable_mac(self.spec.name, INTERFACE)))
            self.proxier = UserspaceProxier(
                shared.endpoints, hostname, stack, OnStack(shared.dataplane, self.spec.name), shared.clock, rng=shared.rng,
                node_ip=self.address,
            )
        elif self._started:
            self.proxier = self._winkernel(hns, hostname)
        if settings.policy and self.policy is None:
            self.policy = PolicyAgent(shared.policies, self.spec.name, stack)

    def _winkernel(self, hns: Hns, hostname: str) -> WinkernelProxier | DualStackProxier:
        shared, settings = self._shared, self._shared.settings
        network = {"overlay": defaults.OVERLAY_NAME, "transparent": _OVN_NETWORK}.get(settings.mode, _BRIDGE)
        if settings.chosen_plugin == "azure":
            network = _AZURE_NETWORK
        vip = ""
        if settings.mode == "overlay":
            vip = source_vip(self._machine, network, self._started.split(",")[0])
        dual = self.spec.feature_gates.get("IPv6DualStack", bool(self.address6))
        gates = {**self.spec.feature_gates, **({"WinDSR": True} if settings.dsr else {}), "IPv6DualStack": dual}
        options = WinkernelOptions(
            network_name=network, source_vip=vip, enable_dsr=settings.dsr, gates=gates, release=self._release,
            node_ip=self.address if hostname == self.spec.name else "",
            cluster_cidr=",".join(_given(shared.ranges.pods, shared.ranges.pods6)),
        )  # fmt: skip
        health = self._service_health()
        tracker = shared.slices if options.slices else shared.endpoints
        if dual:
            both = DualStackProxier(tracker, hostname, hns, options, shared.clock, health=health)
            self._stops.append(both.close)
            return both
        proxier = WinkernelProxier(tracker, hostname, hns, options, shared.clock, health=health)
        proxier.start()  # on overlay networks it waits a while before it goes on, from now
        self._stops.append(proxier.close)
        return proxier

    def _service_health(self) -> ServiceHealth:
        health = ServiceHealth(self.spec.name, self._shared.dataplane, lambda: self.addresses)
        self._stops.append(health.close)
        return health

    @property
    def addresses(self) -> tuple[str, ...]:
        return _given(self.address, self.address6)

    @property
    def wants_endpoints(self) -> bool:
        """Whether its proxy reads Endpoints and not EndpointSlices."""
        if not self.spec.windows:
            return False
        gates = WinkernelOptions(gates=self.spec.feature_gates, release=self._release)
        return self._shared.settings.proxy_mode == "userspace" or not gates.slices

    def look(self) -> None:
        """Somebody reads the node's state: bring it up to date."""
        self._shared.leases.look(self.spec.name)
        if self.proxier is not None and self.proxier.dirty:
            self.proxier.sync()
            if isinstance(self.proxier, NftablesProxier) and self._health is not None:
                tracker, name = self.proxier.tracker, self.proxier.node_name
                ports = tracker.health_checks
                self._health.sync(ports, {service: tracker.local_addresses(service, name) for service in ports})
        if self.policy is not None and self.policy.dirty:
            self.policy.sync()


def _nowhere(spec: NodeSpec) -> Stack:
    """The stack of a machine that is off."""
    return Stack(spec.name, "node", "windows" if spec.windows else "linux", spec.name, lambda *_: None)


def _named(backend: dict[str, Any], mode: str) -> dict[str, Any]:
    """flanneld on Windows calls the HNS network by this; kube-proxy looks for it."""
    return {"Name": defaults.OVERLAY_NAME if mode == "overlay" else defaults.BRIDGE_NAME, **backend}


def _given(*texts: str) -> tuple[str, ...]:
    return tuple(text for text in texts if text)


def _bridge(subnets: list[str]) -> bytes:
    """Linux nodes beside Windows nodes whose plugin has no Linux half here."""
    return orjson.dumps({
        "name": _BRIDGE, "cniVersion": "0.3.1", "plugins": [
            {"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "hairpinMode": True,
             "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}] for subnet in subnets]}},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }, option=orjson.OPT_INDENT_2)  # fmt: skip
