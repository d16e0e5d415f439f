"""The kinds that the API server serves, custom ones included, from its discovery documents.

They are read in parallel and kept for a short time. A kind that is not among them is looked for
again, so that a new CustomResourceDefinition has a page at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from transom.client.api import ApiUnreachable
from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass
from transom.machinery.discovery_documents import listed_resources
from transom.machinery.errors import ApiError
from transom.web.api_access import ApiAccess

KEPT_SECONDS: Final = 15.0
_SEARCHED_AGAIN_SECONDS: Final = 1.0  # addresses of unknown kinds cost one discovery a second
CORE: Final = "core"  # the core group in addresses of the console
NO_NAMESPACE: Final = "-"
_AT_ONCE: Final = 4  # each connection has buffers of 1/4 MiB


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A resource in one version, and what can be done with it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    verbs: frozenset[str]
    short_names: tuple[str, ...]
    preferred: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def page(self) -> str:
        """The address of its table in the console."""
        return f"/objects/{self.group or CORE}/{self.version}/{self.plural}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of the API server, not escaped."""
        top = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [top]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


class KindIndex:
    def __init__(self, api: ApiAccess, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._kinds: tuple[ServedKind, ...] = ()
        self._read = float("-inf")
        self._reading = asyncio.Lock()

    async def kinds(self, kept_seconds: float = KEPT_SECONDS) -> tuple[ServedKind, ...]:
        """All kinds in all versions, by group and name."""
        async with self._reading:
            if self._clock.monotonic() - self._read >= kept_seconds:
                self._kinds = await self._discover()
                self._read = self._clock.monotonic()
        return self._kinds

    async def find(self, group: str, version: str, plural: str) -> ServedKind:
        """The kind of an address of the console. ApiError 404 if it is not served."""
        wanted = ("" if group == CORE else group, version, plural)
        found = await self._first(lambda one: (one.group, one.version, one.plural) == wanted)
        if found is not None:
            return found
        raise ApiError(404, "NotFound", f"the server has no resource {plural} in {group}/{version}")

    async def of_object(self, api_version: str, kind: str) -> ServedKind | None:
        """The resource of an object's apiVersion and kind."""
        return await self._first(lambda one: (one.api_version, one.kind) == (api_version, kind))

    async def _first(self, matches: Callable[[ServedKind], bool]) -> ServedKind | None:
        for kept_seconds in (KEPT_SECONDS, _SEARCHED_AGAIN_SECONDS):
            for one in await self.kinds(kept_seconds):
                if matches(one):
                    return one
        return None

    async def _discover(self) -> tuple[ServedKind, ...]:
        core, groups = await asyncio.gather(self._api.get_json("/api"), self._api.get_json("/apis"))
        wanted = [("", version, at == 0) for at, version in enumerate(core.get("versions") or ())]
        for group in groups.get("groups") or ():
            preferred = (group.get("preferredVersion") or {}).get("version")
            wanted += [
                (group["name"], one["version"], one["version"] == preferred)
                for one in group.get("versions") or ()
            ]
        room = asyncio.Semaphore(_AT_ONCE)

        async def read(group: str, version: str, preferred: bool) -> list[ServedKind]:
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            try:
                async with room:
                    document = await self._api.get_json(path)
            except (ApiError, ApiUnreachable):
                return []  # an aggregated API server that does not respond
            rows = listed_resources(document)
            return [
                _served(group, version, row, preferred) for row in rows if "/" not in row["name"]
            ]

        found = await asyncio.gather(*(read(*one) for one in wanted))
        return tuple(
            sorted(
                (kind for kinds in found for kind in kinds),
                key=lambda kind: (kind.group, kind.plural, not kind.preferred, kind.version),
            )
        )


def _served(group: str, version: str, row: dict[str, Any], preferred: bool) -> ServedKind:
    return ServedKind(
        group,
        version,
        row["name"],
        row["kind"],
        bool(row.get("namespaced")),
        frozenset(row.get("verbs") or ()),
        tuple(row.get("shortNames") or ()),
        preferred,
    )


def object_page(kind: ServedKind, namespace: str, name: str) -> str:
    """The address of an object in the console, escaped by the caller's markup where needed."""
    return f"{kind.page}/{namespace or NO_NAMESPACE}/{name}"
