"""Doctor's findings for the console, found with the rights of its identity."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from transom.client.api import ObjectList
from transom.client.resources import GroupVersionResource
from transom.kit.clock import Clock
from transom.kit.lazy import lazy_import
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from transom.doctor import examine, gather
else:
    examine = lazy_import("transom.doctor.examine")
    gather = lazy_import("transom.doctor.gather")

MOST_FINDINGS: Final = 200
_MOST_PLACES: Final = 500


class ApiReader(Protocol):
    """The methods of a client that doctor uses."""

    async def list(self, resource: GroupVersionResource, namespace: str = "") -> ObjectList: ...
    async def get(self, resource: GroupVersionResource, namespace: str, name: str) -> Object: ...
    async def get_json(self, path: str) -> Any: ...
    async def get_text(self, path: str) -> str: ...


async def find_problems(client: ApiReader, server: str, clock: Clock) -> list[dict[str, Any]]:
    """The findings as documents, errors first; each with a bounded number of places."""
    seen = await gather.gather_snapshot(client, server, clock.time())
    found = await asyncio.to_thread(examine.examine, seen)
    documents = [one.document() for one in found[:MOST_FINDINGS]]
    for one in documents:
        one["count"] = len(one["where"])
        one["where"] = one["where"][:_MOST_PLACES]
    return documents
