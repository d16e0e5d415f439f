"""Keeps ServiceCIDR objects: a finalizer and the condition Ready while they exist, and their
deletion only when no cluster IP needs them.

Kubernetes has this as a controller (service-cidr-controller); here the server that allocates the
addresses does it, from its own store.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable

from transom.apiserver.core.allocators import Network
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.storage import Storage
from transom.apiserver.core.strategies.service_addresses import GATE, MANAGED_BY
from transom.kit.clock import Clock, parse_rfc3339, rfc3339
from transom.machinery.objects import Object
from transom.store.api import PreconditionFailed, StoreRecord

FINALIZER = "networking.k8s.io/service-cidr-finalizer"
_GRACE = 10.0  # seconds in which other servers notice the deletion
_IN_USE = (
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new "
    "ServiceCIDR"
)
_READY = {"type": "Ready", "status": "True", "message": "Kubernetes Service CIDR is ready"}
_TERMINATING = {
    "type": "Ready",
    "status": "False",
    "reason": "Terminating",
    "message": _IN_USE,
}


def _networks(obj: Object) -> list[Network]:
    return [ipaddress.ip_network(text) for text in (obj.get("spec") or {}).get("cidrs") or ()]


def _contains(outer: Network, inner: Network) -> bool:
    return (
        outer.version == inner.version
        and outer.network_address <= inner.network_address  # type: ignore[operator]
        and inner.broadcast_address <= outer.broadcast_address  # type: ignore[operator]
    )


def can_delete_cidr(obj: Object, others: Iterable[Object], addresses: Iterable[str]) -> bool:
    """Whether each of its addresses that is in use is in another range too."""
    rest = [network for other in others for network in _networks(other)]
    own = _networks(obj)
    if all(any(_contains(outer, network) for outer in rest) for network in own):
        return True
    for text in addresses:
        address = ipaddress.ip_address(text)
        if any(address in network for network in own) and not any(
            address in network for network in rest
        ):
            return False
    return True


class ServiceCidrKeeper:
    def __init__(
        self, storage: Storage, cidrs: Resource, addresses: Resource, clock: Clock
    ) -> None:
        self._storage, self._clock = storage, clock
        self._cidrs, self._addresses = cidrs, addresses
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        store = self._storage.store
        for res in (self._cidrs, self._addresses):
            store.watch(res.key_prefix(""), store.revision, lambda _events: self._changed.set())
        self._changed.set()
        self._task = asyncio.create_task(self._run(), name="service CIDRs")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            again = await self.reconcile()
            if again is not None:
                self._clock.call_later(again, self._changed.set)

    async def reconcile(self) -> float | None:
        """Brings all objects up to date; returns when to look again, if something waits."""
        records = self._storage.store.list(self._cidrs.key_prefix("")).records
        found = [(record, self._storage.decode(self._cidrs, record)) for record in records]
        again: float | None = None
        for record, obj in found:
            others = [other for _, other in found if other is not obj]
            try:
                wait = await self._reconcile_one(record, obj, others)
            except PreconditionFailed:
                self._changed.set()
                continue
            if wait is not None:
                again = wait if again is None else min(again, wait)
        return again

    async def _reconcile_one(
        self, record: StoreRecord, obj: Object, others: list[Object]
    ) -> float | None:
        meta = obj["metadata"]
        held = meta.get("finalizers") or []
        if not meta.get("deletionTimestamp"):
            finalizers = held if FINALIZER in held else [*held, FINALIZER]
            await self._write(record, obj, finalizers, _READY)
            return None
        if FINALIZER not in held:
            return None
        if not can_delete_cidr(obj, others, self._used()):
            await self._write(record, obj, held, _TERMINATING)
            return None
        left = _GRACE - (self._clock.time() - parse_rfc3339(meta["deletionTimestamp"]))
        if left > 0:
            return left
        rest = [name for name in held if name != FINALIZER]
        if rest:
            await self._write(record, obj, rest, None)
        else:
            await self._storage.store.delete(record.key, expected=record.mod_revision)
        return None

    def _used(self) -> list[str]:
        """The addresses of services."""
        out = []
        for record in self._storage.store.list(self._addresses.key_prefix("")).records:
            meta = self._storage.decode(self._addresses, record)["metadata"]
            if (meta.get("labels") or {}).get("ipaddress.kubernetes.io/managed-by") == MANAGED_BY:
                out.append(meta["name"])
        return out

    async def _write(
        self, record: StoreRecord, obj: Object, finalizers: list[str], wanted: Object | None
    ) -> None:
        status = obj.get("status") or {}
        conditions = list(status.get("conditions") or ())
        current: Object = next((c for c in conditions if c.get("type") == "Ready"), {})
        same = wanted is None or all(current.get(name, "") == wanted[name] for name in wanted)
        if same and finalizers == (obj["metadata"].get("finalizers") or []):
            return
        if not same and wanted is not None:
            stamp = current.get("lastTransitionTime")
            if current.get("status") != wanted["status"] or stamp is None:
                stamp = rfc3339(self._clock.time())
            made = {"reason": "", **wanted, "lastTransitionTime": stamp}
            conditions = [c for c in conditions if c.get("type") != "Ready"] + [made]
        new = {
            **obj,
            "metadata": {**obj["metadata"], "finalizers": finalizers},
            "status": {**status, "conditions": conditions},
        }
        await self._storage.replace_now(self._cidrs, new, record)


def service_cidr_keeper(
    storage: Storage, cidrs: Resource | None, addresses: Resource | None, clock: Clock
) -> ServiceCidrKeeper | None:
    """None if the release does not serve the kinds."""
    if cidrs is None or addresses is None or not storage.feature(GATE):
        return None
    return ServiceCidrKeeper(storage, cidrs, addresses, clock)
