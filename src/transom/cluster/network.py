"""The network of a running cluster: one fabric for all nodes, the informers that its agents live on, and the way outside.

Everything per node is in `nodenet` and its two halves. Agents (routes, service proxies, policies) are brought up to date when
somebody looks at their node; on the kernel data plane, where nobody asks before a packet leaves, soon after every change.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transom.client.informer import InformerFactory
from transom.client.resources import ENDPOINT_SLICES, ENDPOINTS, NAMESPACES, NETWORK_POLICIES, PODS, SERVICES
from transom.cluster import families
from transom.cluster.config import ClusterConfig
from transom.cluster.entrances import Entrances
from transom.cluster.errors import ClusterError
from transom.cluster.netconfig import OUTSIDE, OUTSIDE6
from transom.cluster.nodenet import NodeNet, Ranges, Shared
from transom.cluster.nodes import NodeSpec
from transom.cluster.relay import OutgoingRelay, Relay
from transom.kit.clock import Clock
from transom.machinery.objects import Object
from transom.network.api import Dataplane
from transom.network.stacks import Fabric, Link, stable_mac

if TYPE_CHECKING:
    from transom.client.api import Client

log = logging.getLogger("transom.network")

_DEBOUNCE = 0.02


def ranges_of(config: ClusterConfig) -> Ranges:
    import ipaddress

    nodes, pods, services = (families.of(text, 4) for text in (config.node_cidr, config.pod_cidr, config.service_cidr))
    dns = str(ipaddress.ip_network(services)[10])
    six = (families.of(text, 6) for text in (config.node_cidr, config.pod_cidr, config.service_cidr))
    return Ranges(nodes, pods, services, dns, *(six if config.network.dual_stack else ()))


def make_fabric(ranges: Ranges) -> Fabric:
    """The underlay and the host outside, which is the gateway of the nodes' segment, too."""
    fabric = Fabric(ranges.nodes, ranges.nodes6)
    outside = fabric.add("external", "external", "linux")
    outside.add_link(Link("eth0", "ethernet", mac=stable_mac("external", "eth0")))
    outside.add_address("eth0", ranges.with_length(ranges.gateway))
    outside.add_address("eth0", f"{OUTSIDE}/32")
    outside.replace_route("0.0.0.0/0", "eth0")
    if ranges.nodes6:
        outside.add_address("eth0", ranges.with_length(ranges.gateway6))
        outside.add_address("eth0", f"{OUTSIDE6}/128")
        outside.replace_route("::/0", "eth0")
    return fabric


def make_dataplane(config: ClusterConfig, fabric: Fabric, clock: Clock, rng: random.Random) -> Dataplane:
    if config.network.dataplane == "kernel":
        from transom.network.kernel.dataplane import KernelDataplane

        try:
            return KernelDataplane(fabric, config.name, clock)
        except OSError as problem:
            raise ClusterError(
                f"the kernel data plane cannot be had: {problem.strerror}", "run as root, or use --dataplane model"
            ) from problem
    from transom.network.model.dataplane import ModelDataplane

    return ModelDataplane(fabric, clock, rng)


class ClusterNetwork:
    def __init__(self, config: ClusterConfig, client: Client, clock: Clock, rng: random.Random, fabric: Fabric,
                 dataplane: Dataplane) -> None:  # fmt: skip
        self._config = config
        self.fabric = fabric
        self.dataplane = dataplane
        self.shared = Shared(fabric, dataplane, clock, rng, config.network, ranges_of(config))
        self.informers = InformerFactory(client, clock, rng)
        self.services = self.informers(SERVICES)
        self._nodes: dict[str, NodeNet] = {}
        self._changed = asyncio.Event()
        self.shared.leases.listeners.append(self._changed.set)  # a node's pods are reached through the routes of others
        self._policies = self._endpoints = False  # whether they are followed
        self._tasks: asyncio.TaskGroup | None = None
        fabric.before_look.append(self._look)
        self._follow()
        self.relay = None
        if config.network.relay:
            outside = (OUTSIDE, OUTSIDE6) if config.network.dual_stack else (OUTSIDE,)
            self.relay = Relay(dataplane, self.services, outside, self._node_addresses, on_loopback=config.on_loopback)
        self._entrances = Entrances(fabric.stacks["external"], self.shared.slices, self._running)
        self.outgoing = OutgoingRelay(dataplane, fabric.stacks["external"])

    # ---- nodes ---------------------------------------------------------------------------------------------------

    def node(self, spec: NodeSpec, host: Any, addresses: tuple[str, ...], release: str) -> NodeNet:
        """Imports come late: a cluster without Windows nodes needs nothing of theirs."""
        found: NodeNet
        if spec.windows:
            from transom.cluster.nodenet_windows import WindowsNodeNet

            found = WindowsNodeNet(spec, host, addresses, release, self.shared)
        else:
            from transom.cluster.nodenet_linux import LinuxNodeNet

            found = LinuxNodeNet(spec, host, addresses, self.shared)
        self._nodes[spec.name] = found
        if found.wants_endpoints:
            self.follow_endpoints()
        return found

    def forget(self, name: str) -> None:
        found = self._nodes.pop(name, None)
        if found is not None:
            found.halt()
            self.shared.leases.remove(name)

    def _running(self) -> dict[str, tuple[str, ...]]:
        """Names and addresses; Linux first: their node ports answer whoever asks."""
        running = [node for name, node in self._nodes.items() if name in self.fabric.stacks]
        return {node.spec.name: node.addresses for node in sorted(running, key=lambda node: node.spec.windows)}

    def _node_addresses(self) -> list[str]:
        return [address for addresses in self._running().values() for address in addresses]

    def proxy_problem(self, name: str) -> str:
        """Why the kube-proxy of a node does not work, "" when it does."""
        found = self._nodes.get(name)
        return getattr(found.proxier, "failed", "") if found is not None else ""

    def _look(self, name: str) -> None:
        found = self._nodes.get(name)
        if found is not None:
            found.look()
        elif name == "external":
            self._entrances.look()

    # ---- what agents hear of -------------------------------------------------------------------------------------

    def _follow(self) -> None:
        shared = self.shared
        self._tie(SERVICES, self._put_service, self._remove_service)
        self._tie(ENDPOINT_SLICES, shared.slices.put_slice, shared.slices.remove_slice)
        if self._config.network.policy:
            self._tie(NETWORK_POLICIES, self._put_policy, shared.policies.remove_policy)

    def follow_endpoints(self) -> None:
        """From the first node on whose proxy does not read slices."""
        if not self._endpoints:
            self._endpoints = True
            self._tie(ENDPOINTS, self.shared.endpoints.put_endpoints, self.shared.endpoints.remove_endpoints)
            if self._tasks is not None:
                self.informers.start()
                self._tasks.create_task(self._endpoints_synced())

    def _tie(self, resource: Any, put: Callable[[Object], object], remove: Callable[[Object], object]) -> None:
        def add(obj: Object) -> None:
            put(obj)
            self._changed.set()

        def delete(obj: Object) -> None:
            remove(obj)
            self._changed.set()

        self.informers(resource).add_handler(add=add, update=lambda _, new: add(new), delete=delete)

    def _put_service(self, service: Object) -> None:
        self.shared.slices.put_service(service)
        self.shared.endpoints.put_service(service)

    def _remove_service(self, service: Object) -> None:
        self.shared.slices.remove_service(service)
        self.shared.endpoints.remove_service(service)

    def _put_policy(self, policy: Object) -> None:
        """Pods and namespaces are followed from the first policy on; most clusters have none."""
        self.shared.policies.put_policy(policy)
        if not self._policies:
            self._policies = True
            index = self.shared.policies
            self._tie(NAMESPACES, index.put_namespace, index.remove_namespace)
            self._tie(PODS, index.put_pod, index.remove_pod)
            self.informers.start()

    # ---- life ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        self.informers.start()
        try:
            await self.outgoing.open(self._config.network.outgoing)
        except (OSError, ValueError) as problem:
            log.error("pods cannot reach %s: %s", ", ".join(self._config.network.outgoing), problem)
        try:
            async with asyncio.TaskGroup() as group:
                self._tasks = group
                group.create_task(self._synced())
                if self._endpoints:
                    group.create_task(self._endpoints_synced())
                group.create_task(self._keep_up())
        finally:
            self._tasks = None
            await self.informers.stop()
            if self.relay is not None:
                self.relay.close()
            self.outgoing.close()

    async def _synced(self) -> None:
        shared = self.shared
        await self.services.synced()
        shared.slices.mark_synced("services")
        shared.endpoints.mark_synced("services")
        await self.informers(ENDPOINT_SLICES).synced()
        shared.slices.mark_synced("endpoints")
        self._changed.set()

    async def _endpoints_synced(self) -> None:
        await self.informers(ENDPOINTS).synced()
        self.shared.endpoints.mark_synced("endpoints")
        self._changed.set()

    async def _keep_up(self) -> None:
        if self._config.network.dataplane != "kernel":
            await asyncio.Event().wait()
        clock = self.shared.clock
        while True:
            # Some proxies want to go on at a certain time although nothing has changed.
            due = min((getattr(node.proxier, "due", math.inf) for node in self._nodes.values()), default=math.inf)
            timer = None if due == math.inf else clock.call_later(max(due - clock.monotonic(), _DEBOUNCE), self._changed.set)
            await self._changed.wait()
            if timer is not None:
                timer.cancel()
            await clock.sleep(_DEBOUNCE)
            self._changed.clear()
            for name in [*self._nodes, "external"]:
                self.fabric.look(name)
