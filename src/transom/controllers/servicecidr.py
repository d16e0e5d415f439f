"""ServiceCIDRs: reports that a range is ready, and keeps it while addresses of it are in use."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from transom.client.resources import GroupVersionResource
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.kit.clock import Clock, parse_rfc3339, rfc3339
from transom.machinery.objects import Object

_GROUP: Final = "networking.k8s.io"
SERVICE_CIDRS: Final = GroupVersionResource(_GROUP, "v1", "servicecidrs", False, "ServiceCIDR")
IP_ADDRESSES: Final = GroupVersionResource(_GROUP, "v1", "ipaddresses", False, "IPAddress")
FINALIZER: Final = "networking.k8s.io/service-cidr-finalizer"
_RECHECK_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 10.0  # in which every API server notices the deletion
_MANAGED_BY: Final = "ipaddress.kubernetes.io/managed-by"
_ALLOCATOR: Final = "ipallocator.k8s.io"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ServiceCidrs:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock: Clock = env.clock
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="ipaddresses", metrics=env.queues)
        self._ranges = env.informers(SERVICE_CIDRS)
        self._addresses = env.informers(IP_ADDRESSES)
        self._ranges.add_handler(
            add=self._enqueue, update=lambda _, new: self._enqueue(new), delete=self._removed
        )
        self._addresses.add_handler(delete=self._removed)

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._ranges, self._addresses))

    def _enqueue(self, entry: Object) -> None:
        self._queue.add(entry["metadata"]["name"])

    def _removed(self, _obj: Object) -> None:
        """A range that waits for its end may have become free."""
        for entry in self._ranges.list():
            if "deletionTimestamp" in entry["metadata"]:
                self._enqueue(entry)

    async def _sync(self, name: str) -> None:
        entry = self._ranges.by_key(name)
        if entry is None:
            return
        meta = entry["metadata"]
        finalizers: list[str] = meta.get("finalizers") or []
        if "deletionTimestamp" in meta:
            if FINALIZER not in finalizers:
                return
            if self._is_in_use(entry):
                text = (
                    "There are still IPAddresses referencing the ServiceCIDR, please remove them "
                    "or create a new ServiceCIDR"
                )
                await self._report(entry, "False", "Terminating", text)
                self._queue.add_after(name, _RECHECK_SECONDS)
                return
            waited = self._clock.time() - parse_rfc3339(meta["deletionTimestamp"])
            if waited < _GRACE_SECONDS:
                self._queue.add_after(name, _GRACE_SECONDS - waited)
                return
            left = [finalizer for finalizer in finalizers if finalizer != FINALIZER]
            await self._client.update(
                SERVICE_CIDRS, {**entry, "metadata": {**meta, "finalizers": left}}
            )
            return
        if FINALIZER not in finalizers:
            entry = await self._client.update(
                SERVICE_CIDRS,
                {**entry, "metadata": {**meta, "finalizers": [*finalizers, FINALIZER]}},
            )
        await self._report(entry, "True", "", "Kubernetes Service CIDR is ready")

    def _is_in_use(self, entry: Object) -> bool:
        others = [
            other
            for other in self._ranges.list()
            if other["metadata"]["name"] != entry["metadata"]["name"]
            and "deletionTimestamp" not in other["metadata"]
        ]
        allocated = [
            address["metadata"]["name"]
            for address in self._addresses.list()
            if (address["metadata"].get("labels") or {}).get(_MANAGED_BY) == _ALLOCATOR
        ]
        return is_range_in_use(entry, others, allocated)

    async def _report(self, entry: Object, value: str, reason: str, message: str) -> None:
        conditions: list[Object] = (entry.get("status") or {}).get("conditions") or []
        before = next((c for c in conditions if c["type"] == "Ready"), None)
        wanted = {"type": "Ready", "status": value, "reason": reason, "message": message}
        if before is not None and {"reason": "", **before, **wanted} == before:
            return
        since = rfc3339(self._clock.time())
        if before is not None and before["status"] == value:
            since = before["lastTransitionTime"]
        fresh = {**wanted, "lastTransitionTime": since}
        status = {"conditions": [*(c for c in conditions if c is not before), fresh]}
        await self._client.update_status(SERVICE_CIDRS, {**entry, "status": status})


def is_range_in_use(entry: Object, others: Iterable[Object], addresses: Iterable[str]) -> bool:
    """Whether one of the addresses is in this range and in no other one."""
    mine = _networks(entry)
    rest = [network for other in others for network in _networks(other)]
    if all(any(_contains(outer, network) for outer in rest) for network in mine):
        return False
    return any(
        any(ip in network for network in mine) and not any(ip in network for network in rest)
        for ip in map(ipaddress.ip_address, addresses)
    )


def _contains(outer: Network, inner: Network) -> bool:
    return (
        outer.version == inner.version
        and int(outer.network_address) <= int(inner.network_address)
        and int(inner.broadcast_address) <= int(outer.broadcast_address)
    )


def _networks(entry: Object) -> list[Network]:
    return [ipaddress.ip_network(text) for text in entry["spec"].get("cidrs") or ()]
