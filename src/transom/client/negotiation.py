"""A client for API servers of other releases: each resource is used in a version that the server has.

Components ask for built-in kinds in the version they are stored in here. A server that does not serve that version gets
the request in the first version it prefers of those it has, and objects are converted on the way. A resource that the
server does not have at all has no objects; writing one fails with the server's own answer.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from transom.client.api import (
    BOOKMARK,
    MERGE_PATCH,
    ApiClient,
    ApiWatch,
    BatchedWatch,
    ObjectList,
    WatchEvent,
)
from transom.client.resources import GroupVersionResource
from transom.kit.clock import Clock
from transom.machinery import conversion
from transom.machinery.discovery_documents import listed_resources
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK, KINDS, Kind
from transom.machinery.objects import Object

_LIFETIME: Final = 300.0  # seconds after which a missing resource is looked up again
_KINDS: Final = {
    (group, kind.kind): kind
    for kind in KINDS
    for group in (kind.group, *(group for group, _ in kind.also))
}


class _Served(NamedTuple):
    """A resource in the version the server has; None: the server does not have it."""

    resource: GroupVersionResource | None
    kind: Kind | None  # None: objects are passed on as they are


class NegotiatingClient:
    """Implements `ApiClient` on top of one that speaks to the server."""

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._served: dict[GroupVersionResource, _Served] = {}
        self._names: dict[str, frozenset[str]] = {}  # plural names by group version

    async def serves(self, resource: GroupVersionResource) -> bool:
        return (await self._find(resource)).resource is not None

    # ---- reading ----

    async def get(
        self, resource: GroupVersionResource, namespace: str, name: str, *, subresource: str = ""
    ) -> Object:
        served = await self._find(resource)
        found = await self._client.get(
            served.resource or resource, namespace, name, subresource=subresource
        )
        return _received(resource, served, found)

    async def list(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        resource_version: str = "",
    ) -> ObjectList:
        served = await self._find(resource)
        if served.resource is None:
            return ObjectList([], "0")
        listing = await self._client.list(
            served.resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            resource_version=resource_version,
        )
        if served.kind is None:
            return listing
        items = [_received(resource, served, item) for item in listing.items]
        return listing._replace(items=items)

    async def watch(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        bookmarks: bool = False,
        lifetime: float = 0,
    ) -> ApiWatch:
        served = await self._find(resource)
        if served.resource is None:
            return _EmptyWatch(self._clock, lifetime or _LIFETIME)
        watch = await self._client.watch(
            served.resource,
            namespace,
            resource_version=resource_version,
            label_selector=label_selector,
            field_selector=field_selector,
            bookmarks=bookmarks,
            lifetime=lifetime,
        )
        return watch if served.kind is None else _ConvertedWatch(watch, resource, served)

    async def get_json(self, path: str) -> Any:
        return await self._client.get_json(path)

    # ---- writing ----

    async def create(self, resource: GroupVersionResource, namespace: str, obj: Object) -> Object:
        served = await self._find(resource)
        made = await self._client.create(
            served.resource or resource, namespace, _sent(resource, served, obj)
        )
        return _received(resource, served, made)

    async def update(
        self, resource: GroupVersionResource, obj: Object, *, subresource: str = ""
    ) -> Object:
        served = await self._find(resource)
        made = await self._client.update(
            served.resource or resource, _sent(resource, served, obj), subresource=subresource
        )
        return _received(resource, served, made)

    async def update_status(self, resource: GroupVersionResource, obj: Object) -> Object:
        return await self.update(resource, obj, subresource="status")

    async def patch(
        self,
        resource: GroupVersionResource,
        namespace: str,
        name: str,
        body: Any,
        patch_type: str = MERGE_PATCH,
        *,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> Object:
        """Patches are sent as they are: they must name only fields that all versions have."""
        served = await self._find(resource)
        made = await self._client.patch(
            served.resource or resource,
            namespace,
            name,
            body,
            patch_type,
            subresource=subresource,
            field_manager=field_manager,
            force=force,
        )
        return _received(resource, served, made)

    async def delete(
        self,
        resource: GroupVersionResource,
        namespace: str,
        name: str,
        *,
        grace: int | None = None,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
    ) -> None:
        served = await self._find(resource)
        await self._client.delete(
            served.resource or resource,
            namespace,
            name,
            grace=grace,
            uid=uid,
            resource_version=resource_version,
            propagation=propagation,
        )

    async def delete_collection(
        self,
        resource: GroupVersionResource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        grace: int | None = None,
        propagation: str = "",
    ) -> None:
        served = await self._find(resource)
        await self._client.delete_collection(
            served.resource or resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            grace=grace,
            propagation=propagation,
        )

    async def create_subresource(
        self,
        resource: GroupVersionResource,
        namespace: str,
        name: str,
        subresource: str,
        obj: Object,
    ) -> Object:
        served = await self._find(resource)
        return await self._client.create_subresource(
            served.resource or resource, namespace, name, subresource, obj
        )

    # ---- versions ----

    async def _find(self, resource: GroupVersionResource) -> _Served:
        known = self._served.get(resource)
        if known is not None:
            return known
        kind = _KINDS.get((resource.group, resource.kind))
        if (
            kind is None
            or not resource.group
            or resource.plural in await self._plurals(resource.group, resource.version)
        ):
            found = _Served(resource, None)
        else:
            found = _Served(await self._other(resource), kind)
            if found.resource is None:
                self._names.clear()  # the server may be upgraded
                return found
        self._served[resource] = found
        return found

    async def _other(self, resource: GroupVersionResource) -> GroupVersionResource | None:
        try:
            group = await self._client.get_json(f"/apis/{resource.group}")
        except ApiError as problem:
            if problem.code == 404:
                return None
            raise
        for version in (each["version"] for each in group["versions"]):
            if resource.plural in await self._plurals(resource.group, version):
                return resource.at(version)
        return None

    async def _plurals(self, group: str, version: str) -> frozenset[str]:
        key = f"{group}/{version}"
        if key not in self._names:
            try:
                document = await self._client.get_json(f"/apis/{key}")
            except ApiError as problem:
                if problem.code != 404:
                    raise
                document = {}
            self._names[key] = frozenset(row["name"] for row in listed_resources(document))
        return self._names[key]


def _sent(resource: GroupVersionResource, served: _Served, obj: Object) -> Object:
    if served.kind is None or served.resource is None:
        return obj
    return _converted(served.kind, obj, resource, served.resource)


def _received(resource: GroupVersionResource, served: _Served, obj: Object) -> Object:
    if served.kind is None or served.resource is None:
        return obj
    return _converted(served.kind, obj, served.resource, resource)


def _converted(
    kind: Kind, obj: Object, source: GroupVersionResource, target: GroupVersionResource
) -> Object:
    if obj.get("kind", kind.kind) != kind.kind:  # Status, Scale
        return obj
    stored = conversion.to_storage(kind, obj, GVK(source.group, source.version, kind.kind))
    return conversion.from_storage(kind, stored, GVK(target.group, target.version, kind.kind))


class _ConvertedWatch(BatchedWatch):
    def __init__(self, watch: ApiWatch, resource: GroupVersionResource, served: _Served) -> None:
        self._watch = watch
        self._resource = resource
        self._served = served

    async def next(self) -> list[WatchEvent]:
        return [
            event
            if event.type == BOOKMARK
            else WatchEvent(event.type, _received(self._resource, self._served, event.object))
            for event in await self._watch.next()
        ]

    def close(self) -> None:
        self._watch.close()


class _EmptyWatch(BatchedWatch):
    """A watch of a resource that the server does not have: empty until it ends."""

    def __init__(self, clock: Clock, lifetime: float) -> None:
        self._clock = clock
        self._lifetime = lifetime

    async def next(self) -> list[WatchEvent]:
        await self._clock.sleep(self._lifetime)
        return []

    def close(self) -> None:
        """Nothing is open."""
