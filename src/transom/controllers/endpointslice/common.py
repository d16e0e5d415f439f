"""Shared by the two EndpointSlice controllers: port keys, tracking of their own writes, and
writing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import lru_cache

from transom.client.api import ApiClient, is_namespace_terminating, is_not_found
from transom.client.informer import Informer
from transom.client.resources import ENDPOINT_SLICES, GroupVersionResource
from transom.client.store import join_key, object_key
from transom.client.workqueue import RetryLater
from transom.controllers.ownership import controller_ref
from transom.controllers.pods import name_prefix
from transom.controllers.service_pods import dump_pointer, pod_digest, with_trigger_time
from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, with_metadata

SERVICE_NAME, MANAGED_BY = "kubernetes.io/service-name", "endpointslice.kubernetes.io/managed-by"
IPV4, IPV6 = "IPv4", "IPv6"
HOSTNAME, REGION, ZONE = (
    "kubernetes.io/hostname",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
FIRST_RETRY, LONGEST_RETRY = 1.0, 100.0
_INDEX = "service"


class StaleSlices(RetryLater):
    """The informer does not show this controller's last write yet."""

    def __init__(self) -> None:
        super().__init__("EndpointSlice informer cache is out of date")


class UpdateFailed(RetryLater):
    """A slice could not be written; the text is for the user."""


# ---- ports and endpoints as keys ----


class EndpointPort(NamedTuple):
    name: str
    protocol: str
    number: int | None
    application: str | None

    def as_object(self) -> Object:
        out: Object = {"name": self.name, "protocol": self.protocol}
        if self.number is not None:
            out["port"] = self.number
        if self.application is not None:
            out["appProtocol"] = self.application
        return out


Ports = tuple[EndpointPort, ...]
EndpointKey = tuple[tuple[str, ...], str]
Endpoints = dict[EndpointKey, Object]


@lru_cache(maxsize=1024)
def sorted_ports(ports: Ports) -> Ports:
    """Sorted like Kubernetes' hash, so that equal ports give equal keys."""
    return tuple(sorted(ports, key=_port_digest)) if len(ports) > 1 else ports


def _port_digest(port: EndpointPort) -> bytes:
    return pod_digest(
        f"(v1beta1.EndpointPort){{Name:{dump_pointer('string', port.name)} "
        f"Protocol:{dump_pointer('v1.Protocol', port.protocol)} "
        f"Port:{dump_pointer('int32', port.number)} "
        f"AppProtocol:{dump_pointer('string', port.application)}}}"
    )


def slice_ports(piece: Object) -> Ports:
    return sorted_ports(
        tuple(
            EndpointPort(
                p.get("name", ""), p.get("protocol", "TCP"), p.get("port"), p.get("appProtocol")
            )
            for p in piece.get("ports") or ()
        )
    )


def endpoint_key(endpoint: Object) -> EndpointKey:
    """The identity of an endpoint, which does not change with its state."""
    return tuple(sorted(endpoint["addresses"])), endpoint.get("hostname") or ""


def same_endpoint(a: Object, b: Object) -> bool:
    """Whether all fields outside the key are equal, except hints, which are assigned later."""
    before, after = a.get("conditions") or {}, b.get("conditions") or {}
    return all(
        before.get(name) == after.get(name) for name in ("ready", "serving", "terminating")
    ) and all(
        a.get(name) == b.get(name)
        for name in ("deprecatedTopology", "nodeName", "zone", "targetRef")
    )


def slice_endpoints(piece: Object) -> list[Object]:
    return piece.get("endpoints") or []


def new_slice(
    owner: Object,
    resource: GroupVersionResource,
    address_type: str,
    ports: Ports,
    labels: dict[str, str],
) -> Object:
    meta = owner["metadata"]
    out: Object = {
        "kind": "EndpointSlice",
        "apiVersion": ENDPOINT_SLICES.api_version,
        "addressType": address_type,
        "metadata": {
            "generateName": name_prefix(meta["name"]),
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [controller_ref(owner, resource)],
        },
    }
    if ports:
        out["ports"] = [port.as_object() for port in ports]
    return out


# ---- slices of a service ----


def service_key(piece: Object) -> str:
    """The key of the service that a slice belongs to; "" if it names none."""
    meta = piece["metadata"]
    name = (meta.get("labels") or {}).get(SERVICE_NAME)
    return join_key(meta["namespace"], name) if name else ""


def manager_of(piece: Object) -> str | None:
    return (piece["metadata"].get("labels") or {}).get(MANAGED_BY)


class EndpointSliceTracker:
    """The generations of slices that a controller has written, by service. Informers lag behind: a
    sync based on slices older than the controller's own writes would repeat those writes.
    """

    _GOING = -1

    def __init__(self) -> None:
        self._generations: dict[str, dict[str, int]] = {}

    def written(self, piece: Object) -> None:
        meta = piece["metadata"]
        self._generations.setdefault(service_key(piece), {})[meta["uid"]] = meta.get(
            "generation", 0
        )

    def deleted(self, piece: Object) -> None:
        self._generations.setdefault(service_key(piece), {})[piece["metadata"]["uid"]] = self._GOING

    def is_news(self, piece: Object) -> bool:
        """Whether another client has written it."""
        meta = piece["metadata"]
        known = self._generations.get(service_key(piece), {}).get(meta["uid"])
        return known is None or meta.get("generation", 0) > known

    def gone(self, piece: Object) -> bool:
        """Handles a deleted slice; returns whether the deletion was unexpected."""
        known = self._generations.get(service_key(piece), {}).pop(piece["metadata"]["uid"], None)
        return known is not None and known != self._GOING

    def is_stale(self, key: str, pieces: list[Object]) -> bool:
        known = self._generations.get(key)
        if not known:
            return False
        seen = {
            piece["metadata"]["uid"]: piece["metadata"].get("generation", 0) for piece in pieces
        }
        return any(
            uid in seen if generation == self._GOING else seen.get(uid, -1) < generation
            for uid, generation in known.items()
        )

    def forget(self, key: str) -> None:
        self._generations.pop(key, None)


class ServiceSlices:
    """The slices of one manager in an informer; calls `changed` with the key of a service when
    another client changes its slices.
    """

    def __init__(
        self,
        informer: Informer,
        manager: str,
        tracker: EndpointSliceTracker,
        changed: Callable[[str], None],
    ) -> None:
        self._informer = informer
        self._manager = manager
        self._tracker = tracker
        self._changed = changed
        informer.add_index(_INDEX, lambda piece: (service_key(piece),))
        informer.add_handler(add=self._added, update=self._updated, delete=self._deleted)

    def of(self, key: str) -> list[Object]:
        return [
            piece
            for piece in self._informer.by_index(_INDEX, key)
            if manager_of(piece) == self._manager
        ]

    def _publish(self, piece: Object) -> None:
        if key := service_key(piece):
            self._changed(key)

    def _added(self, piece: Object) -> None:
        if manager_of(piece) == self._manager and self._tracker.is_news(piece):
            self._publish(piece)

    def _updated(self, old: Object, new: Object) -> None:
        if service_key(old) != service_key(new):
            self._publish(old)
            self._publish(new)
            return
        ours = manager_of(new) == self._manager
        if ours != (manager_of(old) == self._manager) or (ours and self._tracker.is_news(new)):
            self._publish(new)

    def _deleted(self, piece: Object) -> None:
        if manager_of(piece) == self._manager and self._tracker.gone(piece):
            self._publish(piece)


# ---- writing ----


@dataclass(slots=True)
class SliceChanges:
    create: list[Object] = field(default_factory=list)
    update: list[Object] = field(default_factory=list)
    delete: list[Object] = field(default_factory=list)

    def recycle(self, may: Callable[[Object], bool]) -> None:
        """Replaces a delete and a create by an update of the old slice."""
        kept: list[Object] = []
        for old in self.delete:
            at = (
                next(
                    (
                        i
                        for i in reversed(range(len(self.create)))
                        if self.create[i]["addressType"] == old["addressType"]
                    ),
                    None,
                )
                if may(old)
                else None
            )
            if at is None:
                kept.append(old)
                continue
            self.update.append(with_metadata(self.create.pop(at), name=old["metadata"]["name"]))
        self.delete = kept


class SliceWriter:
    def __init__(self, client: ApiClient, tracker: EndpointSliceTracker) -> None:
        self._client = client
        self._tracker = tracker

    async def carry_out(
        self, owner: Object, kind: str, plan: SliceChanges, time: str | None = None
    ) -> None:
        """Writes the planned changes. `time` is the trigger time recorded in slices; None for
        none.
        """
        namespace = owner["metadata"]["namespace"]
        where = f"for {kind} {object_key(owner)}"
        # otherwise the garbage collector would race with us
        if "deletionTimestamp" not in owner["metadata"]:
            for piece in plan.create:
                try:
                    made = await self._client.create(
                        ENDPOINT_SLICES, namespace, _stamped(piece, time)
                    )
                except ApiError as problem:
                    if is_namespace_terminating(problem):
                        return
                    raise UpdateFailed(
                        f"failed to create EndpointSlice {where}: {problem}"
                    ) from problem
                self._tracker.written(made)
        for piece in plan.update:
            name = piece["metadata"]["name"]
            try:
                made = await self._client.update(ENDPOINT_SLICES, _stamped(piece, time))
            except ApiError as problem:
                raise UpdateFailed(
                    f"failed to update {name} EndpointSlice {where}: {problem}"
                ) from problem
            self._tracker.written(made)
        for piece in plan.delete:
            await self.delete(piece, where)

    async def delete(self, piece: Object, where: str) -> None:
        meta = piece["metadata"]
        try:
            await self._client.delete(ENDPOINT_SLICES, meta["namespace"], meta["name"])
        except ApiError as problem:
            if not is_not_found(problem):
                raise UpdateFailed(
                    f"failed to delete {meta['name']} EndpointSlice {where}: {problem}"
                ) from problem
        self._tracker.deleted(piece)


def _stamped(piece: Object, time: str | None) -> Object:
    if time is None:
        return piece
    annotations = with_trigger_time(piece["metadata"].get("annotations"), time)
    return with_metadata(piece, annotations=annotations or None)
