"""How a program of a node reaches the API server of its kubeconfig: it logs requests, or they fail
because no API server is there.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from transom.client.api import (
    MERGE_PATCH,
    ApiClient,
    ApiUnreachable,
    ApiWatch,
    BatchedWatch,
    ObjectList,
    WatchEvent,
)
from transom.client.metrics import RestClientMetrics
from transom.client.resources import GroupVersionResource
from transom.kit.clock import Clock
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.node.programs.log import ERROR, ProgramLog

_REQUESTS: Final = 6  # requests are logged from this verbosity on
_REFUSED: Final = (
    "connectex: No connection could be made because the target machine actively refused it."
)
_STATUS: Final = {
    200: "OK",
    201: "Created",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    422: "Unprocessable Entity",
}
T = TypeVar("T")


def connection_refused_text(server: str) -> str:
    """The error of a program when no API server listens there."""
    parts = urlsplit(server)
    return f"dial tcp {parts.hostname}:{parts.port or 443}: {_REFUSED}"


class _CutWatch(BatchedWatch):
    """A watch that ends when the node loses its way to the API server."""

    def __init__(self, watch: ApiWatch, reachable: Callable[[], bool]) -> None:
        self._watch = watch
        self._reachable = reachable

    async def next(self) -> list[WatchEvent]:
        events = await self._watch.next()
        if not self._reachable():
            raise ApiUnreachable("http2: client connection lost")
        return events

    def close(self) -> None:
        self._watch.close()


def server_host(server: str) -> str:
    """The host of the API server's URL."""
    return urlsplit(server).hostname or ""


class LoggedClient:
    """`reachable`: whether the kubeconfig has the address of the cluster's API server, and the node
    a way to it. `quiet`: requests are not logged.
    """

    def __init__(
        self,
        client: ApiClient,
        log: ProgramLog,
        clock: Clock,
        server: str,
        *,
        reachable: Callable[[], bool],
        quiet: bool = False,
        metrics: RestClientMetrics | None = None,
    ) -> None:
        self._client = client
        self._log = log
        self._clock = clock
        self._server = server.rstrip("/")
        self._reachable = reachable
        self._quiet = quiet
        self._metrics = metrics

    async def _logged(
        self, method: str, path: str, answer: Coroutine[Any, Any, T], good: int = 200
    ) -> T:
        if not self._reachable():
            answer.close()
            problem = f'{method.capitalize()} "{self._server}{path}": {connection_refused_text(self._server)}'
            if not self._quiet:
                self._log.line(ERROR, "request.go:645", problem)
            self._record(method, "<error>", 0.0)
            raise ApiUnreachable(problem)
        began, status = self._clock.monotonic(), good
        try:
            return await answer
        except ApiError as problem:
            status = problem.code
            raise
        finally:
            seconds = self._clock.monotonic() - began
            self._record(method, str(status), seconds)
            self._log_request(method, path, status, round(seconds * 1000))

    def _record(self, method: str, code: str, seconds: float) -> None:
        if self._metrics is not None:
            self._metrics.record(method, code, seconds)

    def _log_request(self, method: str, path: str, status: int, took: int) -> None:
        if not self._quiet and self._log.verbosity >= _REQUESTS:
            text = f"{method} {self._server}{path} {status} {_STATUS.get(status, '')}".rstrip()
            self._log.info("round_trippers.go:444", f"{text} in {took} milliseconds", _REQUESTS)

    async def get(
        self, resource: GroupVersionResource, namespace: str, name: str, *, subresource: str = ""
    ) -> Object:
        path = resource.path(namespace, name, subresource)
        return await self._logged(
            "GET", path, self._client.get(resource, namespace, name, subresource=subresource)
        )

    async def list(
        self, resource: GroupVersionResource, namespace: str = "", **options: Any
    ) -> ObjectList:
        return await self._logged(
            "GET", resource.path(namespace), self._client.list(resource, namespace, **options)
        )

    async def create(self, resource: GroupVersionResource, namespace: str, obj: Object) -> Object:
        return await self._logged(
            "POST", resource.path(namespace), self._client.create(resource, namespace, obj), 201
        )

    async def update(
        self, resource: GroupVersionResource, obj: Object, *, subresource: str = ""
    ) -> Object:
        meta = obj["metadata"]
        path = resource.path(meta.get("namespace", ""), meta["name"], subresource)
        return await self._logged(
            "PUT", path, self._client.update(resource, obj, subresource=subresource)
        )

    async def update_status(self, resource: GroupVersionResource, obj: Object) -> Object:
        meta = obj["metadata"]
        path = resource.path(meta.get("namespace", ""), meta["name"], "status")
        return await self._logged("PUT", path, self._client.update_status(resource, obj))

    async def patch(
        self,
        resource: GroupVersionResource,
        namespace: str,
        name: str,
        body: Any,
        patch_type: str = MERGE_PATCH,
        **options: Any,
    ) -> Object:
        path = resource.path(namespace, name, options.get("subresource", ""))
        return await self._logged(
            "PATCH",
            path,
            self._client.patch(resource, namespace, name, body, patch_type, **options),
        )

    async def delete(
        self, resource: GroupVersionResource, namespace: str, name: str, **options: Any
    ) -> None:
        path = resource.path(namespace, name)
        await self._logged(
            "DELETE", path, self._client.delete(resource, namespace, name, **options)
        )

    async def delete_collection(
        self, resource: GroupVersionResource, namespace: str = "", **options: Any
    ) -> None:
        path = resource.path(namespace)
        await self._logged(
            "DELETE", path, self._client.delete_collection(resource, namespace, **options)
        )

    async def create_subresource(
        self,
        resource: GroupVersionResource,
        namespace: str,
        name: str,
        subresource: str,
        obj: Object,
    ) -> Object:
        path = resource.path(namespace, name, subresource)
        answer = self._client.create_subresource(resource, namespace, name, subresource, obj)
        return await self._logged("POST", path, answer, 201)

    async def watch(
        self, resource: GroupVersionResource, namespace: str = "", **options: Any
    ) -> ApiWatch:
        path = resource.path(namespace) + "?watch=true"
        found = await self._logged("GET", path, self._client.watch(resource, namespace, **options))
        return _CutWatch(found, self._reachable)

    async def get_json(self, path: str) -> Any:
        return await self._logged("GET", path, self._client.get_json(path))
