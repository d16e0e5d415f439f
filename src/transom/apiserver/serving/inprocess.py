"""The in-process adapter of the request chain: `client.Client` without a socket.

A call is authorized, admitted and validated like any other, but not encoded: lists and watches
return the decoded objects that the storage shares among all readers, without managedFields, which
no component uses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, urlencode

import orjson

from transom.apiserver.audit.event import RequestSource, ResponseBody
from transom.apiserver.core.call import (
    DocumentResult,
    ListResult,
    ObjectResult,
    Result,
    WatchResult,
)
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.dispatcher import Dispatcher
from transom.apiserver.core.objectstore import served_object
from transom.apiserver.core.requestinfo import RequestInfo, selected_name
from transom.apiserver.core.resources import Resource, ResourceRegistry
from transom.apiserver.core.storage import Storage
from transom.apiserver.core.watch import WatchHub
from transom.apiserver.serving.chain import RequestChain, as_api_error
from transom.apiserver.serving.exchange import ApiExchange
from transom.apiserver.serving.http import HttpHandler
from transom.apiserver.serving.inprocess_watch import (
    BATCH,
    BATCH_BYTES,
    InProcessWatch,
    RecordEvents,
    is_decoded_in_thread,
)
from transom.apiserver.serving.responses import list_metadata, list_object
from transom.client.api import (
    MERGE_PATCH,
    ApiUnreachable,
    ObjectList,
    delete_options,
    error_from_status,
    list_query,
    watch_query,
)
from transom.client.metrics import RestClientMetrics
from transom.client.resources import GroupVersionResource
from transom.http import goerrors
from transom.http.gathering import gather_stream
from transom.http.messages import Answer, HttpRequest, HttpResponse, StreamResponse, body_bytes
from transom.http.outgoing import CallError
from transom.kit.clock import Clock
from transom.kit.named_tuple import NamedTuple
from transom.machinery import errors
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, is_recursion_error
from transom.store.api import RevisionCompacted, StoreRecord

log = logging.getLogger("transom.apiserver")

_LARGE = 64 * 1024  # bytes of an object that takes long to process
_READS_IN_A_ROW = 32
_LARGEST_FORWARDED = 4 * 1024 * 1024  # bytes of a document of an aggregated server
_FORWARDED_SECONDS = 32.0  # in which it must arrive, as in client-go
_LOCAL_IP = ("127.0.0.1",)
_JSON = b"application/json"
_METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
_Queries = dict[str, list[str]]


class InProcessServer(Protocol):
    """The dependencies of in-process clients."""

    @property
    def chain(self) -> RequestChain: ...
    @property
    def handler(self) -> HttpHandler: ...
    @property
    def resources(self) -> ResourceRegistry: ...
    @property
    def storage(self) -> Storage: ...
    @property
    def hub(self) -> WatchHub: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def read_turns(self) -> ReadTurns: ...


class InProcessDependencies(NamedTuple):
    """The same while the server is being built."""

    chain: RequestChain
    handler: HttpHandler
    resources: ResourceRegistry
    storage: Storage
    hub: WatchHub
    clock: Clock
    read_turns: ReadTurns


class ReadTurns:
    """Yields to other tasks after some reads: an in-process reader never waits otherwise."""

    def __init__(self) -> None:
        self._reads = 0

    async def take(self) -> None:
        self._reads += 1
        if self._reads % _READS_IN_A_ROW == 0:
            await asyncio.sleep(0)


class InProcessExchange(ApiExchange[Any]):
    """Output: an object, a `ObjectList` or an `InProcessWatch`."""

    __slots__ = ("_audited", "_code", "_server")

    def __init__(
        self,
        server: InProcessServer,
        user: UserInfo,
        user_agent: str,
        request_info: RequestInfo,
        query: _Queries,
        body: bytes = b"",
        content_type: str = "",
    ) -> None:
        super().__init__(
            server.clock, request_info, query, body, content_type, user_agent, user=user
        )
        self._server = server
        self._code = 200
        self._audited: ResponseBody | None = None  # a list, for the audit log

    def execute(self, dispatch: Dispatcher) -> Awaitable[None] | None:
        info = self.info
        res = self._server.resources.find(info.group, info.version, info.resource)
        if res is None:
            raise errors.generic_not_found()
        self.res = res
        self.routed = True
        result = dispatch(self)
        if type(result) is ObjectResult and not is_decoded_in_thread(result.record):
            self.output = self._object(result)
            return None
        if isinstance(result, tuple) and not isinstance(result, ListResult | ObjectResult):
            self.output = self._output(result)
            return None
        return self._wait_for(result)

    async def _wait_for(self, result: Result | Awaitable[Result]) -> None:
        if not isinstance(result, tuple):
            result = await result
        if isinstance(result, ListResult):
            self.output = await self._decode_list(result)
        elif isinstance(result, ObjectResult) and is_decoded_in_thread(result.record):
            self.output = await self._large_object(result)
        else:
            self.output = self._output(result)

    def _output(self, result: Result) -> Object | InProcessWatch:
        if isinstance(result, ObjectResult):
            return self._object(result)
        if isinstance(result, DocumentResult):
            self._code = result.code
            return result.obj
        if isinstance(result, WatchResult):
            return self._watch(result)
        raise errors.internal("the answer is a stream")

    def _object(self, result: ObjectResult) -> Object:
        """Shared with other readers if it is stored in the requested version."""
        res, record, self._code = result
        if self.info.verb == "get":
            if res.identity or res.custom:
                return self._server.storage.decode(res, record)
        elif record.cache is not None and res.identity:
            written: Object | None = record.cache.obj
            if written is not None:
                return written
        return served_object(res, record)

    async def _large_object(self, result: ObjectResult) -> Object:
        """Like `_object`, without blocking other requests."""
        res, record, self._code = result
        storage = self._server.storage
        if self.info.verb == "get":
            if res.identity or res.custom:
                return await storage.decode_in_thread(res, record)
        elif record.cache is not None and res.identity:
            written: Object | None = record.cache.obj
            if written is not None:
                return written
        return await storage.served_in_thread(res, record)

    async def _decode_list(self, result: ListResult) -> ObjectList:
        res, listing = result
        items: list[Object] = []
        large: list[int] = []
        size = 0
        for count, record in enumerate(listing.records):
            if is_decoded_in_thread(record):
                items.append(await self._large_lean_object(res, record))
            else:
                items.append(self._lean_object(res, record))
                size += len(record.value)
            if len(record.value) > _LARGE:
                large.append(count)
            if count % BATCH == BATCH - 1 or size >= BATCH_BYTES:
                size = 0
                await asyncio.sleep(0)
        if self.event is not None and self.event.shows_responses:
            size = sum(len(record.value) for record in listing.records)
            meta = list_metadata(listing)
            self._audited = ResponseBody(
                _JSON, size, lambda: orjson.dumps(list_object(res, items, meta))
            )
        return ObjectList(items, str(listing.revision), frozenset(large))

    def _lean_object(self, res: Resource, record: StoreRecord) -> Object:
        """For lists and watches, which fill caches: without managedFields."""
        if res.identity or res.custom:
            return self._server.storage.decode_lean(res, record)
        return served_object(res, record)

    async def _large_lean_object(self, res: Resource, record: StoreRecord) -> Object:
        storage = self._server.storage
        if res.identity or res.custom:
            return await storage.decode_in_thread(res, record, lean=True)
        return await storage.served_in_thread(res, record)

    def _watch(self, result: WatchResult) -> InProcessWatch:
        res, namespace, options, since = result
        server = self._server
        watch = InProcessWatch(self._lean_object, self._large_lean_object, res, self.audit_end)
        if server.hub.is_future(since):
            # As in Kubernetes, no event comes until the watch times out.
            timer = server.clock.call_later(float(options.timeout or 3), watch.end)
            watch.attach(timer.cancel)
            return watch
        try:
            watcher = server.hub.watch(res, namespace, options, since, RecordEvents(res), watch)
            watch.attach(watcher.close)
        except RevisionCompacted as gone:
            watch.expire(errors.expired(f"too old resource version: {since} ({gone.revision})"))
        return watch

    # ---- the end ----

    def fail(self, problem: Exception) -> Any:
        error = as_api_error(problem)
        if self.event is not None:
            if error is None:
                self.event.panicked = type(problem).__name__
            self._audit(500 if error is None else error.code, error.status() if error else None)
        try:
            raise problem if error is None else error from None
        finally:
            del problem, error  # the traceback refers to this frame

    def complete(self, output: Any) -> Any:
        if self.event is not None:
            if isinstance(output, InProcessWatch):
                self.audit_response(self.event, self._code, None, ongoing=True)
            elif isinstance(output, ObjectList):
                self.audit_response(self.event, self._code, self._audited)
            else:
                self._audit(self._code, output)
        return output

    def _audit(self, code: int, obj: Object | None) -> None:
        assert self.event is not None
        body = None
        if obj is not None:
            raw = orjson.dumps(obj)
            body = ResponseBody(_JSON, len(raw), lambda: raw)
        self.audit_response(self.event, code, body)

    def source(self) -> RequestSource:
        target = (
            f"{self.request_info.path}?{urlencode(self.query, doseq=True)}" if self.query else ""
        )
        return RequestSource(
            target or self.request_info.path, self.body, self.ctx.user_agent, _LOCAL_IP
        )


_READING: Final = frozenset({"get", "list", "watch"})


class InProcessClient:
    """`user_agent` names the component; its first word becomes the field manager of its writes.
    `check_write` is called before each write, and raises ApiError if the component must not write.
    """

    def __init__(
        self,
        server: InProcessServer,
        user: UserInfo,
        *,
        user_agent: str = "transom",
        metrics: RestClientMetrics | None = None,
        check_write: Callable[[], None] | None = None,
    ) -> None:
        self._metrics = metrics
        self._check_write = check_write
        self._server = server
        self._user = user
        self._user_agent = user_agent

    # ---- reading ----

    async def get(
        self, resource: GroupVersionResource, namespace: str, name: str, *, subresource: str = ""
    ) -> Object:
        if not subresource:
            await self._server.read_turns.take()
        return await self._call("get", resource, namespace, name, subresource=subresource)

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
        """One consistent state in one piece: pages would save nothing here, so `limit` is
        ignored.
        """
        query = list_query(label_selector, field_selector, 0, resource_version)
        return await self._call("list", resource, namespace, query=query)

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
    ) -> InProcessWatch:
        query = watch_query(resource_version, label_selector, field_selector, bookmarks, lifetime)
        return await self._call("watch", resource, namespace, query=query)

    async def get_json(self, path: str) -> Any:
        """A document that is not a resource: a GET request to the HTTP handler, as this user."""
        await self._server.read_turns.take()
        path, _, query = path.partition("?")
        return await self._http("GET", path, dict(parse_qsl(query)))

    async def _http(
        self, method: str, path: str, query: dict[str, str], body: bytes = b"", media: str = ""
    ) -> Any:
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {b"user-agent": self._user_agent.encode()}
        if body:
            headers[b"content-type"] = media.encode()
        request = HttpRequest(method, target.encode(), path, headers, body, remote=_LOCAL_IP[0])
        answer = self._server.handler.call_as(self._user, request)
        if isinstance(answer, Awaitable):
            answer = await answer
        return await _json_content(answer)

    # ---- writing ----

    async def create(self, resource: GroupVersionResource, namespace: str, obj: Object) -> Object:
        return await self._call("create", resource, namespace, body=obj)

    async def update(
        self, resource: GroupVersionResource, obj: Object, *, subresource: str = ""
    ) -> Object:
        meta = obj["metadata"]
        return await self._call(
            "update",
            resource,
            meta.get("namespace", ""),
            meta["name"],
            subresource=subresource,
            body=obj,
        )

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
        return await self._call(
            "patch",
            resource,
            namespace,
            name,
            subresource=subresource,
            body=body,
            media=patch_type,
            query=query,
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
        await self._call("delete", resource, namespace, name, body=options)

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
        options = delete_options(grace, propagation=propagation)
        query = list_query(label_selector, field_selector)
        await self._call("deletecollection", resource, namespace, body=options, query=query)

    async def create_subresource(
        self,
        resource: GroupVersionResource,
        namespace: str,
        name: str,
        subresource: str,
        obj: Object,
    ) -> Object:
        return await self._call(
            "create", resource, namespace, name, subresource=subresource, body=obj
        )

    # ---- calls ----

    async def _call(
        self,
        verb: str,
        resource: GroupVersionResource,
        namespace: str,
        name: str = "",
        *,
        subresource: str = "",
        body: Any = None,
        media: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Any:
        if self._check_write is not None and verb not in _READING:
            self._check_write()
        raw = b"" if body is None else _encode_body(body)
        if verb != "watch" and self._server.handler.is_aggregated(resource.group, resource.version):
            path = resource.path(namespace, name, subresource)
            content = await self._http(_METHODS[verb], path, query or {}, raw, media)
            if verb != "list":
                return content
            return ObjectList(
                content["items"] or [], content["metadata"].get("resourceVersion", "")
            )
        queries = {key: [value] for key, value in query.items()} if query else {}
        request_info = _request_info(verb, resource, namespace, name, subresource, queries)
        exchange = InProcessExchange(
            self._server, self._user, self._user_agent, request_info, queries, raw, media
        )
        if self._metrics is not None:
            return await self._counted(self._metrics, verb, exchange)
        output = self._server.chain.run(exchange)
        return await output if isinstance(output, CoroutineType) else output

    async def _counted(
        self, metrics: RestClientMetrics, verb: str, exchange: InProcessExchange
    ) -> Any:
        """Counts the request as a client of another process would."""
        began, code = time.perf_counter(), "201" if verb == "create" else "200"
        try:
            output = self._server.chain.run(exchange)
            return await output if isinstance(output, CoroutineType) else output
        except ApiError as problem:
            code = str(problem.code)
            raise
        finally:
            metrics.record(_METHODS[verb], code, time.perf_counter() - began)


def _request_info(
    verb: str,
    resource: GroupVersionResource,
    namespace: str,
    name: str,
    subresource: str,
    query: _Queries,
) -> RequestInfo:
    path = resource.path(namespace, name, subresource)
    if not resource.namespaced:
        # The path of a namespace has its name in place of the namespace.
        namespace = name if resource.plural == "namespaces" and not resource.group else ""
    fields = labels = ""
    if query and verb in ("list", "watch", "deletecollection"):
        fields = next(iter(query.get("fieldSelector") or ()), "")
        labels = next(iter(query.get("labelSelector") or ()), "")
        if verb != "deletecollection":
            name = selected_name(query)
    return RequestInfo(
        True,
        path,
        verb,
        resource.group,
        resource.version,
        namespace,
        resource.plural,
        name,
        subresource,
        fields=fields,
        labels=labels,
    )


def _encode_body(body: Any) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError as problem:
        if is_recursion_error(problem):
            raise errors.nested_too_deeply() from None
        raise


async def _json_content(answer: Answer) -> Any:
    """The document in a response; raises ApiError for an error."""
    if isinstance(answer, StreamResponse):  # forwarded from an aggregated server
        try:
            async with asyncio.timeout(_FORWARDED_SECONDS):
                body = await gather_stream(answer, _LARGEST_FORWARDED)
        except TimeoutError:
            raise ApiUnreachable(goerrors.DEADLINE) from None
        except CallError as problem:
            raise ApiUnreachable(str(problem)) from problem
    elif isinstance(answer, HttpResponse):
        body = body_bytes(answer.body)
    else:
        raise errors.internal("the answer is a stream")
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        content = None
    if answer.status >= 300:
        if isinstance(content, dict) and content.get("kind") == "Status":
            raise error_from_status(content, answer.status)
        reason = "NotFound" if answer.status == 404 else ""
        raise ApiError(answer.status, reason, body.decode(errors="replace").strip())
    return content
