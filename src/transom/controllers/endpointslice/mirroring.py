"""EndpointSlices of services without a selector: copies of their manually managed Endpoints."""

from __future__ import annotations

import ipaddress
from functools import partial

from transom.client.events import WARNING
from transom.client.ratelimit import ControllerLimiter
from transom.client.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from transom.client.store import object_key
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker, with_max_retries
from transom.controllers.endpointslice import common
from transom.controllers.endpointslice.common import (
    HOSTNAME,
    IPV4,
    IPV6,
    MANAGED_BY,
    SERVICE_NAME,
    Endpoints,
    EndpointSliceTracker,
    Ports,
    ServiceSlices,
    SliceChanges,
    SliceWriter,
    StaleSlices,
    UpdateFailed,
    endpoint_key,
    new_slice,
    same_endpoint,
    slice_endpoints,
    slice_ports,
)
from transom.controllers.service_pods import LEADER, TRIGGER_TIME, endpoint_rules
from transom.kit.large_work import compute_for_object
from transom.machinery.objects import Object, with_metadata

MANAGER = "endpointslicemirroring-controller.k8s.io"
_SKIP = "endpointslice.kubernetes.io/skip-mirror"
_WORKERS = 5
_MOST = 1000  # addresses of a subset
MirroredEndpoints = tuple[dict[tuple[str, Ports], Endpoints], int, int]


class EndpointSliceMirroring:
    def __init__(self, env: ControllerContext) -> None:
        self._node_names = endpoint_rules(env.settings.features).node_names
        self._events = env.recorder("endpoint-slice-mirroring-controller")
        limiter = ControllerLimiter(env.clock, common.FIRST_RETRY, common.LONGEST_RETRY)
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, limiter, name="endpoint_slice_mirroring", metrics=env.queues
        )
        self._tracker = EndpointSliceTracker()
        self._writer = SliceWriter(env.client, self._tracker)
        self._endpoints = env.informers(ENDPOINTS)
        self._services = env.informers(SERVICES)
        self._informer = env.informers(ENDPOINT_SLICES)
        self._slices = ServiceSlices(self._informer, MANAGER, self._tracker, self._queue.add)
        self._endpoints.add_handler(add=self._changed, update=self._updated, delete=self._changed)
        self._services.add_handler(
            add=self._service, update=self._service_updated, delete=self._service
        )

    async def run(self) -> None:
        await run_worker(
            self._queue, self._sync, (self._endpoints, self._services, self._informer), _WORKERS
        )

    # ---- event handlers ----

    def _changed(self, endpoints: Object) -> None:
        if _is_mirrored(endpoints):
            self._queue.add(object_key(endpoints))

    def _updated(self, old: Object, new: Object) -> None:
        if _is_mirrored(old) or _is_mirrored(new):
            self._queue.add(object_key(new))

    def _service(self, service: Object) -> None:
        if _selector(service) is None:
            self._queue.add(object_key(service))

    def _service_updated(self, old: Object, new: Object) -> None:
        if (_selector(old) is None) != (_selector(new) is None):
            self._queue.add(object_key(new))

    # ---- one Endpoints object ----

    async def _sync(self, key: str) -> None:
        await with_max_retries(self._queue, key, self._try, "endpoints")

    async def _try(self, key: str) -> None:
        endpoints, service = self._endpoints.by_key(key), self._services.by_key(key)
        mine = self._slices.of(key)
        if (
            endpoints is None
            or not _is_mirrored(endpoints)
            or service is None
            or _selector(service) is not None
        ):
            self._tracker.forget(key)
            await self._delete(key, mine)
            self._tracker.forget(key)
            return
        if self._tracker.is_stale(key, mine):
            raise StaleSlices
        desired = await compute_for_object(
            endpoints, partial(mirrored_endpoints, endpoints, node_names=self._node_names)
        )
        await self._writer.carry_out(endpoints, "Endpoints", self._plan(endpoints, mine, desired))

    async def _delete(self, key: str, mine: list[Object]) -> None:
        problems = []
        for piece in mine:
            try:
                await self._writer.delete(piece, f"for Endpoints {key}")
            except UpdateFailed as problem:
                problems.append(problem)
        if problems:
            raise UpdateFailed(
                f"Error(s) deleting {len(problems)}/{len(mine)} EndpointSlices for {key} "
                "Endpoints, "
                f"including: {problems[0]}"
            )

    def _plan(
        self, endpoints: Object, mine: list[Object], mirrored: MirroredEndpoints
    ) -> SliceChanges:
        desired, invalid, skipped = mirrored
        if invalid:
            self._events.event(
                endpoints,
                WARNING,
                "InvalidIPAddress",
                f"Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices",
            )
        if skipped > invalid:
            self._events.event(
                endpoints,
                WARNING,
                "TooManyAddressesToMirror",
                f"A max of {_MOST} addresses can be mirrored to EndpointSlices per Endpoints "
                "subset. "
                f"{skipped} addresses were skipped",
            )
        plan = SliceChanges()
        existing: dict[tuple[str, Ports], list[Object]] = {}
        for piece in mine:
            existing.setdefault((piece["addressType"], slice_ports(piece)), []).append(piece)
        for (address_type, ports), wanted in desired.items():
            pieces = existing.pop((address_type, ports), [])
            if not wanted:
                plan.delete += pieces
                continue
            plan.delete += pieces[1:]
            if pieces and _is_same(pieces[0], endpoints, wanted):
                continue
            fresh = _new_slice(endpoints, address_type, ports, wanted)
            if pieces:
                plan.update.append(
                    with_metadata(fresh, generateName=None, name=pieces[0]["metadata"]["name"])
                )
            else:
                plan.create.append(fresh)
        for pieces in existing.values():
            plan.delete += pieces
        plan.recycle(lambda _: True)
        return plan


# ---- pure parts ----


def _selector(service: Object) -> Object | None:
    return (service.get("spec") or {}).get("selector")


def _is_mirrored(endpoints: Object) -> bool:
    meta = endpoints["metadata"]
    return (meta.get("labels") or {}).get(_SKIP) != "true" and LEADER not in (
        meta.get("annotations") or ()
    )


def mirrored_endpoints(endpoints: Object, *, node_names: bool = False) -> MirroredEndpoints:
    """Endpoints by address type and ports; the number of invalid addresses, and the number of
    skipped ones.
    """
    desired: dict[tuple[str, Ports], Endpoints] = {}
    invalid = skipped = 0
    for subset in endpoints.get("subsets") or ():
        ports = slice_ports(subset)
        groups = {kind: desired.setdefault((kind, ports), {}) for kind in (IPV4, IPV6)}
        ready, unready = subset.get("addresses") or [], subset.get("notReadyAddresses") or []
        added = 0
        for address, is_ready in [*((a, True) for a in ready), *((a, False) for a in unready)]:
            if added >= _MOST:
                break
            kind = _address_type(address["ip"])
            if kind is None:
                invalid += 1
                continue
            endpoint = _endpoint(address, is_ready, node_names)
            groups[kind][endpoint_key(endpoint)] = endpoint
            added += 1
        skipped += len(ready) + len(unready) - added
    return desired, invalid, skipped


def _address_type(ip: str) -> str | None:
    try:
        parsed = ipaddress.ip_address(ip)
    except ValueError:
        return None
    return IPV4 if parsed.version == 4 or parsed.ipv4_mapped is not None else IPV6


def _endpoint(address: Object, ready: bool, node_names: bool) -> Object:
    out: Object = {"addresses": [address["ip"]], "conditions": {"ready": ready}}
    if "targetRef" in address:
        out["targetRef"] = address["targetRef"]
    if "nodeName" in address and node_names:
        out["nodeName"] = address["nodeName"]
    elif "nodeName" in address:
        out["deprecatedTopology"] = {HOSTNAME: address["nodeName"]}
    if address.get("hostname"):
        out["hostname"] = address["hostname"]
    return out


def _annotations(obj: Object) -> dict[str, str]:
    return {
        k: v for k, v in (obj["metadata"].get("annotations") or {}).items() if k != TRIGGER_TIME
    }


def _is_same(piece: Object, endpoints: Object, wanted: Endpoints) -> bool:
    before = slice_endpoints(piece)
    if len(before) != len(wanted):
        return False
    for endpoint in before:
        found = wanted.get(endpoint_key(endpoint))
        if found is None or not same_endpoint(found, endpoint):
            return False
    labels = {
        k: v
        for k, v in (piece["metadata"].get("labels") or {}).items()
        if k not in (MANAGED_BY, SERVICE_NAME)
    }
    return labels == (endpoints["metadata"].get("labels") or {}) and _annotations(
        piece
    ) == _annotations(endpoints)


def _new_slice(endpoints: Object, address_type: str, ports: Ports, wanted: Endpoints) -> Object:
    meta = endpoints["metadata"]
    labels = {**(meta.get("labels") or {}), SERVICE_NAME: meta["name"], MANAGED_BY: MANAGER}
    out = new_slice(endpoints, ENDPOINTS, address_type, ports, labels)
    annotations = _annotations(endpoints)
    if annotations:
        out = with_metadata(out, annotations=annotations)
    return {**out, "endpoints": list(wanted.values())[:_MOST]}
