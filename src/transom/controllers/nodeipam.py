"""Allocates a pod CIDR to every node, one of each address family of the cluster."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from transom.client.api import MERGE_PATCH, is_not_found
from transom.client.events import NORMAL
from transom.client.resources import NODES
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_WORKERS = 5
_MOST_RANGES = 1 << 16


class CidrRangeFull(Exception):
    pass


class CidrSet:
    """Subnets of a range, allocated in turn: a released one is the last to be reused."""

    def __init__(self, cidr: Network, mask: int) -> None:
        if mask < cidr.prefixlen:
            raise ValueError(f"nodes cannot get a /{mask} out of {cidr}")
        self._cidr = cidr
        self._mask = mask
        self._size = 1 << (cidr.max_prefixlen - mask)
        self._count = min(1 << (mask - cidr.prefixlen), _MOST_RANGES)
        self._next = 0
        self._used: set[int] = set()

    def allocate(self) -> Network:
        for step in range(self._count):
            index = (self._next + step) % self._count
            if index not in self._used:
                self._used.add(index)
                self._next = (index + 1) % self._count
                start = self._cidr.network_address + index * self._size
                return ipaddress.ip_network((start, self._mask))
        raise CidrRangeFull(
            f"CIDR allocation failed; there are no remaining CIDRs left to allocate in {self._cidr}"
        )

    def occupy(self, other: Network) -> None:
        """Marks the subnets that overlap this range as used."""
        self._used.update(self._indices(other))

    def release(self, other: Network) -> None:
        self._used.difference_update(self._indices(other))

    def _indices(self, other: Network) -> range:
        if other.version != self._cidr.version:
            return range(0)
        base = int(self._cidr.network_address)
        # past `last` when it lies outside
        first = max(0, (int(other.network_address) - base) // self._size)
        last = min(self._count - 1, (int(other.broadcast_address) - base) // self._size)
        return range(first, last + 1)


class NodeRanges:
    def __init__(self, env: ControllerContext) -> None:
        settings = env.settings
        self._client = env.client
        self._events = env.recorder("cidrAllocator")
        masks = {4: settings.node_cidr_mask, 6: settings.node_cidr_mask_ipv6}
        networks = [ipaddress.ip_network(cidr) for cidr in settings.pod_cidrs]
        self._sets = [CidrSet(network, masks[network.version]) for network in networks]
        for cidr in settings.service_cidrs:
            self._each(ipaddress.ip_network(cidr), CidrSet.occupy)
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, name="cidrallocator_node", metrics=env.queues
        )
        self._nodes = env.informers(NODES)
        self._nodes.add_handler(add=self._changed, update=self._updated, delete=self._gone)

    def _each(self, network: Network, act: Callable[[CidrSet, Network], None]) -> None:
        for ranges in self._sets:
            act(ranges, network)

    def _changed(self, node: Object) -> None:
        held = _ranges_of(node)
        for cidr in held:
            self._each(ipaddress.ip_network(cidr, strict=False), CidrSet.occupy)
        if not held:
            self._queue.add(node["metadata"]["name"])

    def _updated(self, old: Object, new: Object) -> None:
        held = _ranges_of(new)
        if not held or held != _ranges_of(old):  # heartbeats change nothing here
            self._changed(new)

    def _gone(self, node: Object) -> None:
        for cidr in _ranges_of(node):
            self._each(ipaddress.ip_network(cidr, strict=False), CidrSet.release)

    async def run(self) -> None:
        # Register the CIDRs of all existing nodes before allocating new ones.
        await run_worker(self._queue, self._sync, (self._nodes,), _WORKERS)

    async def _sync(self, name: str) -> None:
        node = self._nodes.get("", name)
        if node is None or _ranges_of(node):
            return
        given: list[tuple[CidrSet, Network]] = []
        try:
            for ranges in self._sets:
                given.append((ranges, ranges.allocate()))
        except CidrRangeFull as problem:
            self._give_back(given)
            self._record_event(node, "CIDRNotAvailable")
            raise RetryLater(str(problem)) from problem
        cidrs = [str(network) for _, network in given]
        try:
            live = await self._client.get(NODES, "", name)
            if _ranges_of(live):
                self._give_back(given)
                return
            # Without resourceVersion: a kubelet updates its status all the time, and an existing
            # CIDR cannot be changed anyway.
            body = {
                "metadata": {"uid": live["metadata"]["uid"]},
                "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs},
            }
            await self._client.patch(NODES, "", name, body, MERGE_PATCH)
        except ApiError as problem:
            self._give_back(given)
            if not is_not_found(problem):
                self._record_event(node, "CIDRAssignmentFailed")
                raise

    @staticmethod
    def _give_back(given: list[tuple[CidrSet, Network]]) -> None:
        for ranges, network in given:
            ranges.release(network)

    def _record_event(self, node: Object, status: str) -> None:
        meta = node["metadata"]
        about = {"kind": "Node", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        self._events.event(about, NORMAL, status, f"Node {meta['name']} status is now: {status}")


def _ranges_of(node: Object) -> list[str]:
    spec = node.get("spec") or {}
    return list(spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else []))
