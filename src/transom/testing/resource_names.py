"""Finds the resource of a kind, a plural or a short name in the discovery documents of the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transom.client.http import HttpClient
from transom.client.resources import GroupVersionResource


class UnknownResource(LookupError):
    pass


class ResourceNames:
    """Reads the discovery documents when a name is not known yet, so that a test can create a
    CustomResourceDefinition and then use it.
    """

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._by_name: dict[str, GroupVersionResource] = {}
        self._by_kind: dict[tuple[str, str], GroupVersionResource] = {}

    async def by_name(self, name: str) -> GroupVersionResource:
        """`pods`, `po`, `pod`, `Pod`, `deployments.apps`."""
        key = name.lower()
        if key not in self._by_name:
            await self._read()
        if key not in self._by_name:
            raise UnknownResource(f'the server doesn\'t have a resource type "{name}"')
        return self._by_name[key]

    async def by_kind(self, api_version: str, kind: str) -> GroupVersionResource:
        if (api_version, kind) not in self._by_kind:
            await self._read()
        if (api_version, kind) not in self._by_kind:
            raise UnknownResource(f'no matches for kind "{kind}" in version "{api_version}"')
        return self._by_kind[api_version, kind]

    async def _read(self) -> None:
        self._by_name.clear()
        self._by_kind.clear()
        async for preferred, group, version, row in self._rows():
            resource = GroupVersionResource(
                group, version, row["name"], row["namespaced"], row["kind"]
            )
            self._by_kind[resource.api_version, resource.kind] = resource
            if not preferred:
                continue
            names = [row["name"], row["singularName"] or row["kind"].lower()]
            for name in (*names, *row.get("shortNames", ())):
                self._by_name.setdefault(name, resource)
                self._by_name[f"{name}.{group}"] = resource

    async def _rows(self) -> Any:
        """Each resource with its group version, and whether the version is the preferred one."""
        for version in (await self._client.get_json("/api"))["versions"]:
            listed = await self._client.get_json(f"/api/{version}")
            for row in _resources(listed):
                yield True, "", version, row
        for group in (await self._client.get_json("/apis"))["groups"]:
            for entry in group["versions"]:
                preferred = entry == group["preferredVersion"]
                listed = await self._client.get_json(f"/apis/{entry['groupVersion']}")
                for row in _resources(listed):
                    yield preferred, group["name"], entry["version"], row


def _resources(listed: Any) -> Iterator[Any]:
    return (row for row in listed["resources"] if "/" not in row["name"])
