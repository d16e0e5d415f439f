"""Reads a cluster into a snapshot, by its API. What cannot be read is left out, and said.

Our own clusters tell more, on paths of their own (`INSIDE`); any other has no such path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote

from transom.client import resources
from transom.client.api import Listing, Unreachable
from transom.client.resources import GroupVersionResource, builtin
from transom.doctor import inside
from transom.doctor.examine import places, talkative
from transom.doctor.inside import Inside
from transom.doctor.snapshot import Object, Snapshot
from transom.machinery.errors import ApiError

INSIDE: Final = "/transom/inside"
_KINDS: Final = (
    resources.NODES, resources.PODS, resources.SERVICES, resources.ENDPOINTS, resources.EVENTS, resources.NAMESPACES,
    resources.RESOURCE_QUOTAS, resources.PERSISTENT_VOLUME_CLAIMS, resources.REPLICA_SETS, resources.STATEFUL_SETS,
    resources.DAEMON_SETS, resources.JOBS, resources.API_SERVICES,
    builtin("admissionregistration.k8s.io/MutatingWebhookConfiguration"),
    builtin("admissionregistration.k8s.io/ValidatingWebhookConfiguration"),
)
_MOST_LOGS: Final = 20
_TAIL: Final = 50


class Api(Protocol):
    """What of a client is needed."""

    async def list(self, resource: GroupVersionResource, namespace: str = "") -> Listing: ...
    async def get_json(self, path: str) -> Any: ...
    async def get_text(self, path: str) -> str: ...


async def gather(api: Api, server: str, now: float, names: Collection[str] = (), namespace: str = "default") -> Snapshot:
    """`names` are pods and nodes that are asked about: logs of such pods are read, too. Raises examine.Unknown."""
    found = Snapshot(now=now, server=server)
    try:
        found.version = await api.get_json("/version")
        found.unhealthy = await _unhealthy(api)
        objects, unread = await _objects(api)
    except Unreachable as problem:
        found.unreachable = str(problem) or type(problem).__name__
        return found
    except ApiError as problem:
        found.unreachable = problem.message
        return found
    found.objects, found.unread = objects, unread
    found.inside = await _inside(api)
    about = places(found, names, namespace)
    found.logs = await _logs(api, found, about)
    return found


async def _unhealthy(api: Api) -> tuple[str, ...]:
    try:
        await api.get_text("/readyz")
    except ApiError as problem:
        if problem.code == 403:
            return ()
        lines = [line.removeprefix("[-]") for line in problem.message.splitlines() if line.startswith("[-]")]
        return tuple(lines) or (problem.message,)
    return ()


async def _objects(api: Api) -> tuple[Mapping[str, Sequence[Object]], Mapping[str, str]]:
    objects: dict[str, Sequence[Object]] = {}
    unread: dict[str, str] = {}

    async def one(kind: GroupVersionResource) -> None:
        try:
            objects[kind.plural] = (await api.list(kind)).items
        except ApiError as problem:
            unread[kind.plural] = problem.message

    await asyncio.gather(*map(one, _KINDS))
    return objects, unread


async def _inside(api: Api) -> Mapping[str, Inside]:
    try:
        items = (await api.get_json(INSIDE))["items"]
    except (ApiError, Unreachable, KeyError, TypeError):
        return {}
    return {one.name: one for one in map(inside.of, items)}


async def _logs(api: Api, s: Snapshot, about: Collection[str]) -> Mapping[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for pod in [pod for pod in s.pods if _key(pod) in talkative(s, about)][:_MOST_LOGS]:
        namespace, name = _key(pod)
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}/log?tailLines={_TAIL}"
        wanted = [
            f"{path}&container={quote(container['name'])}{which}"
            for container in pod["spec"].get("containers") or () for which in ("", "&previous=true")
        ]  # fmt: skip
        found[namespace, name] = "\n".join([await _text(api, one) for one in wanted])
    return found


async def _text(api: Api, path: str) -> str:
    """Nothing for what is not there (yet)."""
    try:
        return await api.get_text(path)
    except (ApiError, Unreachable):
        return ""


def _key(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
