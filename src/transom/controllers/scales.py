"""The scale subresource of any kind: maps kinds to resources and reads their replicas."""

from __future__ import annotations

from transom.client.api import ApiClient, is_not_found
from transom.client.resources import GroupVersionResource
from transom.kit.clock import Clock
from transom.machinery.discovery_documents import listed_resources
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

_REMEMBERED_SECONDS = 30.0  # definitions can add and remove kinds


class NoMatch(Exception):
    """No resource has this kind; the text is for the user."""


class InvalidApiVersion(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(f"unexpected GroupVersion string: {text}")


def group_of(api_version: str) -> tuple[str, str]:
    """Group and version of an `apiVersion`; two empty strings if it is empty."""
    if api_version.count("/") > 1:
        raise InvalidApiVersion(api_version)
    group, slash, version = api_version.partition("/")
    return (group, version) if slash else ("", group)


class Scales:
    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, list[GroupVersionResource]]] = {}

    async def resources(self, group: str, kind: str) -> list[GroupVersionResource]:
        """The resources of a kind, in the preferred version of their group. Raises NoMatch, or an
        error of discovery.
        """
        now = self._clock.monotonic()
        known = self._known.get((group, kind))
        if known is None or now - known[0] > _REMEMBERED_SECONDS:
            known = now, await self._discover(group, kind)
            if known[1]:
                self._known[group, kind] = known
        if not known[1]:
            raise NoMatch(f'no matches for kind "{kind}" in group "{group}"')
        return known[1]

    async def _discover(self, group: str, kind: str) -> list[GroupVersionResource]:
        found: dict[str, GroupVersionResource] = {}
        for version in await self._versions(group):
            try:
                document = await self._client.get_json(
                    f"/apis/{group}/{version}" if group else f"/api/{version}"
                )
            except ApiError as problem:
                if not is_not_found(problem):
                    raise
                continue
            for row in listed_resources(document):
                name = row["name"]
                if row["kind"] == kind and "/" not in name and name not in found:
                    found[name] = GroupVersionResource(
                        group, version, name, row["namespaced"], kind
                    )
        return list(found.values())

    async def _versions(self, group: str) -> list[str]:
        if not group:
            return ["v1"]
        try:
            document = await self._client.get_json(f"/apis/{group}")
        except ApiError as problem:
            if not is_not_found(problem):
                raise
            return []
        preferred = document["preferredVersion"]["version"]
        return sorted(
            (v["version"] for v in document["versions"]), key=lambda version: version != preferred
        )

    async def has_scale(self, resource: GroupVersionResource) -> bool:
        """Whether a resource has the subresource at all."""
        where = f"/apis/{resource.group}" if resource.group else "/api"
        document = await self._client.get_json(f"{where}/{resource.version}")
        wanted = f"{resource.plural}/scale"
        return any(row["name"] == wanted for row in listed_resources(document))

    async def get(self, resource: GroupVersionResource, namespace: str, name: str) -> Object:
        return await self._client.get(resource, namespace, name, subresource="scale")

    async def set(self, resource: GroupVersionResource, scale: Object, replicas: int) -> None:
        wanted = {**scale, "spec": {**(scale.get("spec") or {}), "replicas": replicas}}
        await self._client.update(resource, wanted, subresource="scale")
