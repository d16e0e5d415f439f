"""The client over HTTPS, for any Kubernetes API server.

Connections are reused; each watch has its own. Requests are retried after 429 and 5xx responses
with Retry-After, as in every Kubernetes client.
"""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from transom.client.api import (
    APPLY_PATCH,
    MERGE_PATCH,
    ApiUnreachable,
    ApiWatch,
    BatchedWatch,
    ObjectList,
    WatchEvent,
    delete_options,
    error_from_status,
    is_expired,
    list_query,
    watch_query,
)
from transom.client.connection import ApiConnection, ApiResponse, open_api_connection
from transom.client.kubeconfig import RestConfig
from transom.client.metrics import RestClientMetrics
from transom.client.resources import GroupVersionResource
from transom.kit.clock import Clock
from transom.kit.http_message import encode_request
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

_IDLE_KEPT = 32
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_PAGE = 500
_COME_BACK = 10  # how often a request is retried after Retry-After
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class HttpClient:
    """`user_agent` names the component; its first word becomes the field manager of what it
    writes.
    """

    def __init__(
        self,
        target: RestConfig,
        clock: Clock,
        *,
        user_agent: str = "transom",
        timeout: float = 60.0,
        metrics: RestClientMetrics | None = None,
    ) -> None:
        self._metrics = metrics
        self._target = target
        self._clock = clock
        self._user_agent = user_agent
        self._timeout = timeout
        self._idle: list[ApiConnection] = []
        self._open: set[ApiConnection] = set()

    async def close(self) -> None:
        for connection in list(self._open):
            connection.abort("the client was closed")

    # ---- verbs ----

    async def get(
        self, resource: GroupVersionResource, namespace: str, name: str, *, subresource: str = ""
    ) -> Object:
        return await self._json("GET", _path(resource, namespace, name, subresource))

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
        path = _path(resource, namespace)
        # A list with a minimum resource version must be complete; the newest state can be paged.
        size = limit or (0 if resource_version else _PAGE)
        query = list_query(label_selector, field_selector, size, resource_version)
        items: list[Object] = []
        while True:
            try:
                page = await self._json("GET", path, query)
            except ApiError as problem:
                if not items or not is_expired(problem):
                    raise
                # Paging took too long: the pages belong to a compacted revision. Read everything at
                # once.
                items, query = [], list_query(label_selector, field_selector)
                continue
            items += page.get("items") or ()
            token = page["metadata"].get("continue", "")
            if not token:
                break
            query = list_query(label_selector, field_selector, size, token=token)
        kind, api_version = resource.kind or page["kind"].removesuffix("List"), page["apiVersion"]
        for item in items:  # items of built-in kinds do not have kind and apiVersion
            item.setdefault("kind", kind)
            item.setdefault("apiVersion", api_version)
        return ObjectList(items, page["metadata"].get("resourceVersion", ""))

    async def create(self, resource: GroupVersionResource, namespace: str, obj: Object) -> Object:
        return await self._json("POST", _path(resource, namespace), body=_named(resource, obj))

    async def update(
        self, resource: GroupVersionResource, obj: Object, *, subresource: str = ""
    ) -> Object:
        meta = obj["metadata"]
        path = _path(resource, meta.get("namespace", ""), meta["name"], subresource)
        return await self._json("PUT", path, body=_named(resource, obj))

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
        query = {"fieldManager": field_manager} if field_manager else {}
        if force:
            query["force"] = "true"
        return await self._json(
            "PATCH", _path(resource, namespace, name, subresource), query, body, patch_type
        )

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
        options = delete_options(grace, uid, resource_version, propagation)
        await self._json("DELETE", _path(resource, namespace, name), body=options)

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
        query = list_query(label_selector, field_selector)
        await self._json(
            "DELETE",
            _path(resource, namespace),
            query,
            delete_options(grace, propagation=propagation),
        )

    async def create_subresource(
        self,
        resource: GroupVersionResource,
        namespace: str,
        name: str,
        subresource: str,
        obj: Object,
    ) -> Object:
        return await self._json("POST", _path(resource, namespace, name, subresource), body=obj)

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
        query = watch_query(resource_version, label_selector, field_selector, bookmarks, lifetime)
        request = self._encode("GET", _path(resource, namespace), query, None, "")
        began = time.perf_counter()
        connection = await self._connect()
        timer = self._clock.call_later(
            self._timeout, connection.abort, "the server did not answer in time"
        )
        try:
            answer = await connection.open_stream(request)
        finally:
            timer.cancel()
        self._record(request, str(answer.status), began)
        if answer.status >= 300:
            self._release(connection)
            raise _failure("GET", answer)
        return _HttpWatch(connection)

    async def get_json(self, path: str) -> Any:
        return await self._json("GET", path)

    async def request_json(self, method: str, path: str, body: Any = None) -> Any:
        """A request to a path that is not a resource of the API, with a JSON response."""
        return await self._json(method, path, body=body)

    async def get_text(self, path: str) -> str:
        """A document that is not JSON: a log, health status."""
        answer = await self._exchange(self._encode("GET", path, None, None, ""), again=True)
        if answer.status >= 300:
            raise _failure("GET", answer)
        return answer.body.decode(errors="replace")

    # ---- requests ----

    async def _json(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Any = None,
        media_type: str = "application/json",
    ) -> Any:
        request = self._encode(method, path, query, body, media_type)
        for _ in range(_COME_BACK):
            answer = await self._exchange(request, again=method == "GET")
            wait = answer.headers.get(b"retry-after", b"")
            if not ((answer.status == 429 or answer.status >= 500) and wait.isdigit()):
                break
            await self._clock.sleep(float(wait))
        if answer.status >= 300:
            raise _failure(method, answer)
        try:
            return orjson.loads(answer.body)
        except orjson.JSONDecodeError as problem:
            raise ApiUnreachable(f"{path} is not JSON: {problem}") from problem

    async def _exchange(self, request: bytes, again: bool) -> ApiResponse:
        """`again`: the request may be repeated on a new connection if a reused one turns out to be
        dead.
        """
        began = time.perf_counter()
        while True:
            kept = bool(self._idle)
            connection = self._idle.pop() if kept else await self._connect()
            timer = self._clock.call_later(
                self._timeout, connection.abort, "the server did not answer in time"
            )
            try:
                answer = await connection.exchange(request)
            except ApiUnreachable:
                if kept and again and not connection.answered:
                    continue
                self._record(request, "<error>", began)
                raise
            finally:
                timer.cancel()
            self._release(connection)
            self._record(request, str(answer.status), began)
            return answer

    def _record(self, request: bytes, code: str, began: float) -> None:
        if self._metrics is not None:
            method = request[: request.index(b" ")].decode()
            self._metrics.record(method, code, time.perf_counter() - began)

    async def _connect(self) -> ApiConnection:
        connection = await open_api_connection(self._target, self._forget)
        self._open.add(connection)
        return connection

    def _forget(self, connection: ApiConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _release(self, connection: ApiConnection) -> None:
        if connection.usable and len(self._idle) < _IDLE_KEPT:
            self._idle.append(connection)
        else:
            connection.abort()

    def _encode(
        self, method: str, path: str, query: dict[str, str] | None, body: Any, media_type: str
    ) -> bytes:
        target = self._target.prefix + path + ("?" + urlencode(query) if query else "")
        headers = [
            *self._target.request_headers(),
            ("User-Agent", self._user_agent),
            ("Accept", "application/json"),
        ]
        if body is None:
            return encode_request(method, target, headers)
        headers.append(("Content-Type", media_type))
        encoded = orjson.dumps(body)
        if media_type == APPLY_PATCH:
            encoded = _escape_for_yaml(encoded)
        return encode_request(method, target, headers, encoded)


def _escape_for_yaml(encoded: bytes) -> bytes:
    """The API server reads the body of an apply as YAML, which takes some of these characters for line
    ends and does not accept the others. JSON allows them.
    """
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode()).encode()


class _HttpWatch(BatchedWatch):
    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection
        self._problem: ApiError | None = None

    async def next(self) -> list[WatchEvent]:
        if self._problem is not None:
            raise self._problem
        events = []
        for line in await self._connection.read_lines():
            if not line:
                continue
            try:
                event = orjson.loads(line)
                kind, obj = event["type"], event["object"]
            except (orjson.JSONDecodeError, KeyError, TypeError) as problem:
                self.close()
                raise ApiUnreachable(
                    f"the server sent a watch event that cannot be read: {problem!r}"
                ) from problem
            if kind == "ERROR":
                self._problem = error_from_status(obj)
                break
            events.append(WatchEvent(kind, obj))
        if self._problem is not None:
            self.close()
            if not events:
                raise self._problem
        return events

    def close(self) -> None:
        self._connection.abort("the watch was closed")


def _path(
    resource: GroupVersionResource, namespace: str = "", name: str = "", subresource: str = ""
) -> str:
    return quote(resource.path(namespace, name, subresource), safe="/:@!$&'()*+,;=~")


def _named(resource: GroupVersionResource, obj: Object) -> Object:
    """The object with its kind, which the caller may omit."""
    if not resource.kind or ("kind" in obj and "apiVersion" in obj):
        return obj
    return {"kind": resource.kind, "apiVersion": resource.api_version, **obj}


def _failure(method: str, answer: ApiResponse) -> ApiError:
    try:
        status = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return error_from_status(status, answer.status)
    reason = _REASONS.get(answer.status, "InternalError" if answer.status >= 500 else "")
    if answer.status == 409 and method == "POST":
        reason = "AlreadyExists"
    text = answer.body[:2048].decode(errors="replace").strip()
    return ApiError(answer.status, reason, text or f"the server answered {answer.status}", {})
