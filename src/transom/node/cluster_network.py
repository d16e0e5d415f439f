"""The network of a running cluster: one fabric for all nodes, the informers that feed their agents,
and the external network.

The network of one node is in `network`, `network_linux` and `network_windows`. Agents (routes,
service proxies, network policies) sync when their node's state is read; on the kernel data plane,
where packets flow without such reads, they sync soon after each change.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transom.client.informer import InformerFactory
from transom.client.resources import (
    ENDPOINT_SLICES,
    ENDPOINTS,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    PODS,
    SERVICES,
)
from transom.kit.clock import Clock
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import UserError
from transom.machinery.objects import Object
from transom.network.api import Dataplane
from transom.network.stacks import Fabric, NetworkLink, stable_mac
from transom.node.address_ranges import AddressRanges, address_ranges
from transom.node.external_host import ExternalHost
from transom.node.external_routes import ExternalRoutes
from transom.node.machine import NodeMachine
from transom.node.network import NodeNetwork, SharedNetworkState
from transom.node.network_linux import LinuxNodeNetwork
from transom.node.network_settings import OUTSIDE, OUTSIDE6
from transom.node.network_windows import WindowsNodeNetwork
from transom.node.relay import OutgoingRelay, PortRelay
from transom.node.settings import ClusterSettings
from transom.node.spec import NodeSpec

if TYPE_CHECKING:
    from transom.client.api import ApiClient
    from transom.network.kernel import dataplane as kernel_dataplane
    from transom.network.model import dataplane as model_dataplane
else:
    kernel_dataplane = lazy_import("transom.network.kernel.dataplane")
    model_dataplane = lazy_import("transom.network.model.dataplane")

log = logging.getLogger("transom.network")

_DEBOUNCE = 0.02


def make_fabric(ranges: AddressRanges) -> Fabric:
    """The underlay and the external host, which is also the gateway of the nodes' segment."""
    fabric = Fabric(ranges.nodes, ranges.nodes6)
    outside = fabric.add("external", "external", "linux")
    outside.add_link(NetworkLink("eth0", "ethernet", mac=stable_mac("external", "eth0")))
    outside.add_address("eth0", ranges.with_prefix_length(ranges.gateway))
    outside.add_address("eth0", f"{OUTSIDE}/32")
    outside.replace_route("0.0.0.0/0", "eth0")
    if ranges.nodes6:
        outside.add_address("eth0", ranges.with_prefix_length(ranges.gateway6))
        outside.add_address("eth0", f"{OUTSIDE6}/128")
        outside.replace_route("::/0", "eth0")
    return fabric


def make_dataplane(
    settings: ClusterSettings, fabric: Fabric, clock: Clock, rng: random.Random
) -> Dataplane:
    if settings.network.dataplane == "kernel":
        try:
            return kernel_dataplane.KernelDataplane(fabric, settings.name, clock)
        except OSError as problem:
            raise UserError(
                f"the kernel data plane cannot be used: {problem.strerror}",
                "run as root, or use --dataplane model",
            ) from problem
    return model_dataplane.ModelDataplane(fabric, clock, rng)


class ClusterNetwork:
    def __init__(
        self,
        settings: ClusterSettings,
        client: ApiClient,
        clock: Clock,
        rng: random.Random,
        fabric: Fabric,
        dataplane: Dataplane,
    ) -> None:
        self._settings = settings
        self.fabric = fabric
        self.dataplane = dataplane
        self.shared = SharedNetworkState(
            fabric, dataplane, clock, rng, settings.network, address_ranges(settings)
        )
        self.informers = InformerFactory(client, clock, rng)
        self.services = self.informers(SERVICES)
        self._nodes: dict[str, NodeNetwork] = {}
        self._changed = asyncio.Event()
        # a node's pods are reached through the routes of other nodes
        self.shared.leases.listeners.append(self._changed.set)
        self._policies = self._endpoints = False  # whether the informers are attached
        self._tasks: asyncio.TaskGroup | None = None
        fabric.before_look.append(self._look)
        self._follow()
        outside = (OUTSIDE, OUTSIDE6) if settings.network.dual_stack else (OUTSIDE,)
        self.relay = None
        if settings.network.relay:
            self.relay = PortRelay(
                dataplane,
                self.services,
                outside,
                self._node_addresses,
                on_loopback=settings.on_loopback,
            )
        self._external_routes = ExternalRoutes(
            fabric.stacks["external"], self.shared.slices, self._running
        )
        self.outgoing = OutgoingRelay(dataplane, fabric.stacks["external"])
        self._outside = ExternalHost(dataplane, fabric, outside, self._running)

    # ---- nodes ----

    def node(
        self, spec: NodeSpec, machine: NodeMachine, addresses: tuple[str, ...], release: str
    ) -> NodeNetwork:
        """The network of a new node."""
        found: NodeNetwork
        if spec.windows:
            found = WindowsNodeNetwork(spec, machine, addresses, release, self.shared)
        else:
            found = LinuxNodeNetwork(spec, machine, addresses, self.shared)
        self._nodes[spec.name] = found
        if found.wants_endpoints:
            self.follow_endpoints()
        return found

    def forget(self, name: str) -> None:
        found = self._nodes.pop(name, None)
        if found is not None:
            found.power_off()
            self.shared.leases.remove(name)
            if self.shared.ovn is not None:
                self.shared.ovn.remove_switch(name)

    def _running(self) -> dict[str, tuple[str, ...]]:
        """Names and addresses, Linux nodes first: their node ports answer every client."""
        running = [node for name, node in self._nodes.items() if name in self.fabric.stacks]
        return {
            node.spec.name: node.addresses
            for node in sorted(running, key=lambda node: node.spec.windows)
        }

    def _node_addresses(self) -> list[str]:
        return [address for addresses in self._running().values() for address in addresses]

    def proxy_problem(self, name: str) -> str:
        """Why the kube-proxy of a node does not work; "" if it works."""
        found = self._nodes.get(name)
        proxier = found.proxier if found is not None else None
        return proxier.failed() if proxier is not None else ""

    async def target_ports(self) -> dict[str, set[tuple[str, int]]]:
        """The protocols and ports that services target, by endpoint address."""
        found: dict[str, set[tuple[str, int]]] = {}
        for number, one in enumerate(self.informers(ENDPOINT_SLICES).list()):
            if number % 200 == 199:
                await asyncio.sleep(0)
            ports = {
                (p.get("protocol") or "TCP", p["port"])
                for p in one.get("ports") or ()
                if p.get("port")
            }
            for endpoint in one.get("endpoints") or ():
                for address in endpoint.get("addresses") or ():
                    found.setdefault(address, set()).update(ports)
        return found

    def _look(self, name: str) -> None:
        found = self._nodes.get(name)
        if found is not None:
            found.sync()
        elif name == "external":
            self._external_routes.sync()

    # ---- informers of the agents ----

    def _follow(self) -> None:
        shared = self.shared
        self._watch_into(SERVICES, self._put_service, self._remove_service)
        self._watch_into(ENDPOINT_SLICES, shared.slices.put_slice, shared.slices.remove_slice)
        self.informers(NODES).add_handler(
            add=self._put_node,
            update=lambda _, new: self._put_node(new),
            delete=self._remove_node,
        )
        if self._settings.network.policy:
            self.informers(NETWORK_POLICIES).add_preparation(shared.policies.prepare_policy)
            self._watch_into(NETWORK_POLICIES, self._put_policy, shared.policies.remove_policy)

    def follow_endpoints(self) -> None:
        """Starts with the first node whose proxy does not read slices."""
        if not self._endpoints:
            self._endpoints = True
            self._watch_into(
                ENDPOINTS,
                self.shared.endpoints.put_endpoints,
                self.shared.endpoints.remove_endpoints,
            )
            if self._tasks is not None:
                self.informers.start()
                self._tasks.create_task(self._endpoints_synced())

    def _watch_into(
        self, resource: Any, put: Callable[[Object], object], remove: Callable[[Object], object]
    ) -> None:
        def add(obj: Object) -> None:
            put(obj)
            self._changed.set()

        def delete(obj: Object) -> None:
            remove(obj)
            self._changed.set()

        self.informers(resource).add_handler(add=add, update=lambda _, new: add(new), delete=delete)

    def _put_node(self, node: Object) -> None:
        if self.shared.slices.put_node(node):
            self._changed.set()

    def _remove_node(self, node: Object) -> None:
        if self.shared.slices.remove_node(node):
            self._changed.set()

    def _put_service(self, service: Object) -> None:
        self.shared.slices.put_service(service)
        self.shared.endpoints.copy_service(service, self.shared.slices)

    def _remove_service(self, service: Object) -> None:
        self.shared.slices.remove_service(service)
        self.shared.endpoints.remove_service(service)

    def _put_policy(self, policy: Object) -> None:
        """Pods and namespaces are watched only once a policy exists; most clusters have none."""
        self.shared.policies.put_policy(policy)
        if not self._policies:
            self._policies = True
            index = self.shared.policies
            self._watch_into(NAMESPACES, index.put_namespace, index.remove_namespace)
            self._watch_into(PODS, index.put_pod, index.remove_pod)
            self.informers.start()

    # ---- lifecycle ----

    async def run(self) -> None:
        """Runs until cancelled."""
        self.informers.start()
        try:
            await self.outgoing.open(self._settings.network.outgoing)
        except (OSError, ValueError) as problem:
            log.error(
                "pods cannot reach %s: %s", ", ".join(self._settings.network.outgoing), problem
            )
        self._outside.open()
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
            self._outside.close()
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
        if self._settings.network.dataplane != "kernel":
            await asyncio.Event().wait()
        clock = self.shared.clock
        while True:
            # Some proxies need to sync at a certain time even if nothing has changed.
            proxiers = [node.proxier for node in self._nodes.values() if node.proxier is not None]
            due = min((proxier.due() for proxier in proxiers), default=math.inf)
            timer = (
                None
                if due == math.inf
                else clock.call_later(max(due - clock.monotonic(), _DEBOUNCE), self._changed.set)
            )
            await self._changed.wait()
            if timer is not None:
                timer.cancel()
            await clock.sleep(_DEBOUNCE)
            self._changed.clear()
            for name in [*self._nodes, "external"]:
                self.fabric.refresh_node(name)
