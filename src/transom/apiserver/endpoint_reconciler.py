"""Keeps the endpoints of the service `kubernetes`: the addresses of all API servers that are running.

As in Kubernetes, each server keeps a key `masterleases/ADDRESS` with a time to live. A server that
ends removes its key; one that dies lets it expire. Every server writes the addresses of the keys that
exist to the Endpoints and the EndpointSlice.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Sequence

import orjson

from transom.apiserver.core.integrity import MASTER_LEASES
from transom.client.api import ApiClient, is_conflict, is_not_found
from transom.client.resources import ENDPOINT_SLICES, ENDPOINTS, GroupVersionResource
from transom.kit.background_task import BackgroundTask
from transom.kit.clock import Clock
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.store.api import PreconditionFailed, Store, StoreError, StoreEvent, Subscription

log = logging.getLogger("transom.apiserver")

INTERVAL_SECONDS = 10.0
LEASE_SECONDS = 15.0
BUCKET = MASTER_LEASES + "/"
_SERVICE = "kubernetes"
_NAMESPACE = "default"
_SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"
_ATTEMPTS = 5  # servers that see the same change write at the same time


class EndpointReconciler:
    def __init__(
        self, store: Store, client: ApiClient, clock: Clock, address: str, port: int
    ) -> None:
        """`address` and `port` are those at which the pods of the cluster reach this server."""
        self._store = store
        self._client = client
        self._clock = clock
        self._address = address
        self._port = {"name": "https", "port": port, "protocol": "TCP"}
        self._generation = 0
        self._changed = asyncio.Event()
        self._watch: Subscription | None = None
        self._task = BackgroundTask("endpoint-reconciler")

    async def start(self) -> None:
        self._watch = self._store.watch(BUCKET, self._store.revision, self._leases_changed)
        await self._attempt()
        self._task.start(self._run())

    async def stop(self) -> None:
        """Removes this server from the endpoints."""
        if not await self._task.stop():
            return
        if self._watch is not None:
            self._watch.cancel()
        try:
            with contextlib.suppress(PreconditionFailed):  # it has expired
                await self._store.delete(BUCKET + self._address)
            await self._reconcile(stopping=True)
        except (ApiError, StoreError) as problem:
            log.warning("cannot remove this server from the endpoints: %s", problem)

    async def _run(self) -> None:
        while True:
            timer = self._clock.call_later(INTERVAL_SECONDS, self._changed.set)
            await self._changed.wait()
            timer.cancel()
            self._changed.clear()
            await self._attempt()

    def _leases_changed(self, events: Sequence[StoreEvent]) -> None:
        if any(event.record is None or event.previous is None for event in events):
            self._changed.set()

    async def _attempt(self) -> None:
        try:
            await self._renew()
            await self._reconcile()
        except (ApiError, StoreError) as problem:
            log.warning('cannot reconcile the endpoints of service "%s": %s', _SERVICE, problem)

    async def _renew(self) -> None:
        self._generation += 1  # as in Kubernetes, each renewal changes the value
        lease = {
            "kind": "Endpoints",
            "apiVersion": "v1",
            "metadata": {"generation": self._generation, "creationTimestamp": None},
            "subsets": [{"addresses": [{"ip": self._address}]}],
        }
        value = orjson.dumps(lease)
        await self._store.put(BUCKET + self._address, lambda _revision: value, ttl=LEASE_SECONDS)

    async def _reconcile(self, *, stopping: bool = False) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                await self._store.sync()
                found = self._addresses()
                if not found and not stopping:
                    log.warning("no API server has a lease; the endpoints stay as they are")
                    return
                await self._write(found, stopping=stopping)
                return
            except ApiError as problem:
                if not is_conflict(problem) or attempt == _ATTEMPTS - 1:
                    raise

    def _addresses(self) -> list[str]:
        out: set[str] = set()
        for record in self._store.list(BUCKET).records:
            for subset in orjson.loads(record.value).get("subsets") or ():
                out.update(address["ip"] for address in subset.get("addresses") or ())
        return sorted(out)

    async def _write(self, addresses: Sequence[str], *, stopping: bool) -> None:
        wanted = [{"ip": address} for address in addresses]
        subsets = [{"addresses": wanted, "ports": [self._port]}] if wanted else []
        current = await self._find(ENDPOINTS)
        if current is None:
            if not stopping:
                meta = _meta({_SKIP_MIRROR: "true"})
                await self._create(ENDPOINTS, {"metadata": meta, "subsets": subsets})
        elif not _same_endpoints(current, addresses, self._port):
            log.info('the endpoints of service "%s" are now %s', _SERVICE, list(addresses))
            labels = {**(current["metadata"].get("labels") or {}), _SKIP_MIRROR: "true"}
            meta = {**current["metadata"], "labels": labels}
            await self._client.update(ENDPOINTS, {**current, "metadata": meta, "subsets": subsets})
        await self._write_slice(addresses)

    async def _write_slice(self, addresses: Sequence[str]) -> None:
        versions = {ipaddress.ip_address(address).version for address in addresses}
        family = 6 if versions == {6} else 4
        slice_: Object = {
            "metadata": _meta({"kubernetes.io/service-name": _SERVICE}),
            "addressType": f"IPv{family}",
            "endpoints": [
                {"addresses": [address], "conditions": {"ready": True}}
                for address in addresses
                if ipaddress.ip_address(address).version == family
            ],
            "ports": [self._port] if addresses else [],
        }
        current = await self._find(ENDPOINT_SLICES)
        if current is None:
            await self._create(ENDPOINT_SLICES, slice_)
        elif (
            any((current.get(name) or []) != slice_[name] for name in ("endpoints", "ports"))
            or current["addressType"] != slice_["addressType"]
        ):
            if current["addressType"] != slice_["addressType"]:
                await self._client.delete(ENDPOINT_SLICES, _NAMESPACE, _SERVICE)
                await self._create(ENDPOINT_SLICES, slice_)
                return
            await self._client.update(
                ENDPOINT_SLICES, {**current, **slice_, "metadata": current["metadata"]}
            )

    async def _find(self, resource: GroupVersionResource) -> Object | None:
        try:
            return await self._client.get(resource, _NAMESPACE, _SERVICE)
        except ApiError as problem:
            if is_not_found(problem):
                return None
            raise

    async def _create(self, resource: GroupVersionResource, obj: Object) -> None:
        try:
            await self._client.create(resource, _NAMESPACE, obj)
        except ApiError as problem:
            if problem.reason != "AlreadyExists":
                raise


def _meta(labels: Object) -> Object:
    return {"name": _SERVICE, "namespace": _NAMESPACE, "labels": labels}


def _same_endpoints(current: Object, addresses: Sequence[str], port: Object) -> bool:
    subsets = current.get("subsets") or []
    if not addresses:
        return not subsets
    return (
        len(subsets) == 1
        and sorted(one["ip"] for one in subsets[0].get("addresses") or ()) == list(addresses)
        and subsets[0].get("ports") == [port]
        and (current["metadata"].get("labels") or {}).get(_SKIP_MIRROR) == "true"
    )
