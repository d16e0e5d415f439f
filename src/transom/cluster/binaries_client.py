"""The way of a node's program to the API server, as its kubeconfig says it: told in its log, or leading nowhere."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from transom.client.api import MERGE_PATCH, Client, Listing, Unreachable, Watch
from transom.client.resources import GroupVersionResource
from transom.cluster.nodelog import ERROR, NodeLog
from transom.kit.clock import Clock
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

_REQUESTS: Final = 6  # the verbosity from which on each request is in the log
_REFUSED: Final = "connectex: No connection could be made because the target machine actively refused it."
_STATUS: Final = {200: "OK", 201: "Created", 403: "Forbidden", 404: "Not Found", 409: "Conflict", 422: "Unprocessable Entity"}
T = TypeVar("T")


def refused(server: str) -> str:
    """What a program says that finds nobody there."""
    parts = urlsplit(server)
    return f"dial tcp {parts.hostname}:{parts.port or 443}: {_REFUSED}"


class ToldClient:
    """`reachable`: the API server is where the kubeconfig says."""

    def __init__(self, client: Client, log: NodeLog, clock: Clock, server: str, *, reachable: bool) -> None:
        self._client = client
        self._log = log
        self._clock = clock
        self._server = server.rstrip("/")
        self._reachable = reachable

    async def _said(self, method: str, path: str, answer: Awaitable[T], good: int = 200) -> T:
        if not self._reachable:
            if hasattr(answer, "close"):
                answer.close()
            problem = f'{method.capitalize()} "{self._server}{path}": {refused(self._server)}'
            self._log.line(ERROR, "request.go:645", problem)
            raise Unreachable(problem)
        if self._log.verbosity < _REQUESTS:
            return await answer
        began, status = self._clock.monotonic(), good
        try:
            return await answer
        except ApiError as problem:
            status = problem.code
            raise
        finally:
            took = round((self._clock.monotonic() - began) * 1000)
            text = f"{method} {self._server}{path} {status} {_STATUS.get(status, '')}".rstrip()
            self._log.info("round_trippers.go:444", f"{text} in {took} milliseconds", _REQUESTS)

    async def get(self, resource: GroupVersionResource, namespace: str, name: str, *, subresource: str = "") -> Object:
        path = resource.path(namespace, name, subresource)
        return await self._said("GET", path, self._client.get(resource, namespace, name, subresource=subresource))

    async def list(self, resource: GroupVersionResource, namespace: str = "", **options: Any) -> Listing:
        return await self._said("GET", resource.path(namespace), self._client.list(resource, namespace, **options))

    async def create(self, resource: GroupVersionResource, namespace: str, obj: Object) -> Object:
        return await self._said("POST", resource.path(namespace), self._client.create(resource, namespace, obj), 201)

    async def update(self, resource: GroupVersionResource, obj: Object, *, subresource: str = "") -> Object:
        meta = obj["metadata"]
        path = resource.path(meta.get("namespace", ""), meta["name"], subresource)
        return await self._said("PUT", path, self._client.update(resource, obj, subresource=subresource))

    async def update_status(self, resource: GroupVersionResource, obj: Object) -> Object:
        meta = obj["metadata"]
        path = resource.path(meta.get("namespace", ""), meta["name"], "status")
        return await self._said("PUT", path, self._client.update_status(resource, obj))

    async def patch(
        self, resource: GroupVersionResource, namespace: str, name: str, body: Any, patch_type: str = MERGE_PATCH,
        **options: Any,
    ) -> Object:  # fmt: skip
        path = resource.path(namespace, name, options.get("subresource", ""))
        return await self._said("PATCH", path, self._client.patch(resource, namespace, name, body, patch_type, **options))

    async def delete(self, resource: GroupVersionResource, namespace: str, name: str, **options: Any) -> None:
        path = resource.path(namespace, name)
        await self._said("DELETE", path, self._client.delete(resource, namespace, name, **options))

    async def delete_collection(self, resource: GroupVersionResource, namespace: str = "", **options: Any) -> None:
        path = resource.path(namespace)
        await self._said("DELETE", path, self._client.delete_collection(resource, namespace, **options))

    async def create_subresource(
        self, resource: GroupVersionResource, namespace: str, name: str, subresource: str, obj: Object
    ) -> Object:
        path = resource.path(namespace, name, subresource)
        answer = self._client.create_subresource(resource, namespace, name, subresource, obj)
        return await self._said("POST", path, answer, 201)

    async def watch(self, resource: GroupVersionResource, namespace: str = "", **options: Any) -> Watch:
        path = resource.path(namespace) + "?watch=true"
        return await self._said("GET", path, self._client.watch(resource, namespace, **options))

    async def get_json(self, path: str) -> Any:
        return await self._said("GET", path, self._client.get_json(path))
