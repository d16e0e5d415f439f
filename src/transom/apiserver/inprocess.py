"""The client for components in the API server's own process: `client.Client` without a socket.

A call is a request like any other: it is authorized for its user, admitted, validated. What is saved is the way through
bytes: lists and watches hand out the decoded objects that the storage shares among all readers, without their
managedFields, which no component looks at. Writes go through the same functions as those of HTTP requests, so the two can
never differ.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, urlencode

import orjson

from transom.apiserver import lists, reads, respond, writes
from transom.apiserver.audit.calls import NOT_RECORDED, CallRecord
from transom.apiserver.authorization.chain import refusal
from transom.apiserver.context import Context, User
from transom.apiserver.negotiate import AS_OBJECT, Form
from transom.apiserver.options import ListOptions, list_options
from transom.apiserver.requestinfo import RequestInfo, parse
from transom.apiserver.resources import Resource
from transom.apiserver.subresources import table
from transom.apiserver.subresources.call import Call
from transom.apiserver.watch import Watcher
from transom.client.api import (
    BOOKMARK,
    MERGE_PATCH,
    BatchedWatch,
    Listing,
    Unreachable,
    WatchEvent,
    delete_options,
    error_from_status,
    list_query,
    watch_query,
)
from transom.client.resources import GroupVersionResource
from transom.http.messages import Answer, Request, Response, StreamResponse
from transom.http.stream import Stream
from transom.kit.clock import Timer
from transom.machinery import errors, selectors
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.store.api import Compacted, Record, StoreError

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer

log = logging.getLogger("transom.apiserver")

_FORM = Form()
_TURN = 256  # objects decoded before others get the loop
_BEHIND = 100_000  # events a watcher may lie behind before it is cut off
_WRITES: dict[str, Callable[..., Awaitable[Answer]]] = {
    "create": writes.create, "update": writes.update, "patch": writes.patch_, "delete": writes.delete,
    "deletecollection": writes.delete_collection,
}
_METHODS = {
    "get": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE",
}


class InProcessClient:
    """`user_agent` names the component; its first word becomes the field manager of what it writes."""

    def __init__(self, server: ApiServer, user: User, *, user_agent: str = "transom") -> None:
        self._server = server
        self._user = user
        self._user_agent = user_agent

    # ---- reading -------------------------------------------------------------------------------------------------

    async def get(
        self, resource: GroupVersionResource, namespace: str, name: str, *, subresource: str = ""
    ) -> Object:
        if subresource:
            return await self._call("get", resource, namespace, name, subresource=subresource)
        info = _info("get", resource, namespace, name)
        with self._record(info) as record:
            res = self._begin(info, record)
            storage = self._server.storage
            obj = self._object(res, await storage.readable(res, storage.get(res, namespace, name)))
            if record.wants_object:
                record.returned(obj)
            return obj

    async def list(
        self, resource: GroupVersionResource, namespace: str = "", *, label_selector: str = "",
        field_selector: str = "", limit: int = 0, resource_version: str = "",
    ) -> Listing:
        """One consistent state in one piece: pages would save nothing here, so `limit` is not used."""
        info = _info("list", resource, namespace, selected=field_selector)
        with self._record(info) as record:
            res = self._begin(info, record)
            query = _lists(list_query(label_selector, field_selector, 0, resource_version))
            listing = lists.list_records(self._server.storage, res, namespace, list_options(query, res, watch=False))
            listing = await lists.readable(res, listing)
            items = []
            for count, stored in enumerate(listing.records, 1):
                items.append(self._lean(res, stored))
                if count % _TURN == 0:
                    await asyncio.sleep(0)
            if record.wants_object:
                record.returned(respond.list_object(res, items, respond.list_metadata(listing)))
            return Listing(items, str(listing.revision))

    async def watch(
        self, resource: GroupVersionResource, namespace: str = "", *, resource_version: str = "",
        label_selector: str = "", field_selector: str = "", bookmarks: bool = False, lifetime: float = 0,
    ) -> InProcessWatch:
        info = _info("watch", resource, namespace, selected=field_selector)
        with self._record(info) as record:
            res = self._begin(info, record)
            query = _lists(watch_query(resource_version, label_selector, field_selector, bookmarks, lifetime))
            watch = self._watch(res, namespace, list_options(query, res, watch=True))
            watch.on_end = record.ended
            return watch

    def _watch(self, res: Resource, namespace: str, options: ListOptions) -> InProcessWatch:
        server = self._server
        since = reads.start_revision(server.storage, options)
        watch = InProcessWatch(self._lean, res)
        if since is not None and since > server.storage.store.revision:
            # A version nobody has written yet: nothing comes until the time is over.
            watch.timer = server.clock.call_later(float(options.timeout or 3), watch.end)
            return watch
        try:
            watch.watcher = server.hub.watch(res, namespace, options, since, _Records(res), watch)
        except Compacted as gone:
            watch.problem = errors.expired(f"too old resource version: {since} ({gone.revision})")
        return watch

    async def get_json(self, path: str) -> Any:
        server = self._server
        path, _, query = path.partition("?")
        info = parse("GET", path)
        request = self._request("GET", path, query=dict(parse_qsl(query)))
        with self._record(info, request) as record:
            self._authorize(info, record)
            ctx = self._context(info, record)
            answer = server.aggregation.answer(request, ctx)
            if answer is None:
                answer = (server.paths.unknown_resource if info.is_resource else server.paths)(request, ctx, info)
            answer = await answer if isinstance(answer, Awaitable) else answer
            if isinstance(answer, StreamResponse):
                answer = await _whole(answer)
            record.answered(answer)
            return _content(answer)

    def _object(self, res: Resource, record: Record) -> Object:
        """The object of a record; shared whenever it is stored in the version that was asked for."""
        shared = res.identity or res.custom
        return self._server.storage.decode(res, record) if shared else respond.served(res, record)

    def _lean(self, res: Resource, record: Record) -> Object:
        """For lists and watches, which caches are made of: without managedFields."""
        shared = res.identity or res.custom
        return self._server.storage.decode_lean(res, record) if shared else respond.served(res, record)

    # ---- writing -------------------------------------------------------------------------------------------------

    async def create(self, resource: GroupVersionResource, namespace: str, obj: Object) -> Object:
        return await self._call("create", resource, namespace, body=obj)

    async def update(self, resource: GroupVersionResource, obj: Object, *, subresource: str = "") -> Object:
        meta = obj["metadata"]
        return await self._call(
            "update", resource, meta.get("namespace", ""), meta["name"], subresource=subresource, body=obj
        )

    async def update_status(self, resource: GroupVersionResource, obj: Object) -> Object:
        return await self.update(resource, obj, subresource="status")

    async def patch(
        self, resource: GroupVersionResource, namespace: str, name: str, body: Any, patch_type: str = MERGE_PATCH, *,
        subresource: str = "", field_manager: str = "", force: bool = False,
    ) -> Object:
        query = {"fieldManager": field_manager} if field_manager else {}
        if force:
            query["force"] = "true"
        return await self._call(
            "patch", resource, namespace, name, subresource=subresource, body=body, media=patch_type, query=query
        )

    async def delete(
        self, resource: GroupVersionResource, namespace: str, name: str, *, grace: int | None = None, uid: str = "",
        resource_version: str = "", propagation: str = "",
    ) -> None:
        options = delete_options(grace, uid, resource_version, propagation)
        await self._call("delete", resource, namespace, name, body=options)

    async def delete_collection(
        self, resource: GroupVersionResource, namespace: str = "", *, label_selector: str = "",
        field_selector: str = "", grace: int | None = None, propagation: str = "",
    ) -> None:
        options = delete_options(grace, propagation=propagation)
        query = list_query(label_selector, field_selector)
        await self._call("deletecollection", resource, namespace, body=options, query=query)

    async def create_subresource(
        self, resource: GroupVersionResource, namespace: str, name: str, subresource: str, obj: Object
    ) -> Object:
        return await self._call("create", resource, namespace, name, subresource=subresource, body=obj)

    # ---- the way in ----------------------------------------------------------------------------------------------

    def _record(self, info: RequestInfo, request: Request | None = None) -> CallRecord:
        server = self._server
        if server.audit is None:
            return NOT_RECORDED
        record = CallRecord()
        record.begin(server.audit, server.clock, self._user, info, request or self._request("GET", info.path))
        return record

    def _authorize(self, info: RequestInfo, record: CallRecord) -> None:
        decision = self._server.authorize.decide(self._user, info)
        record.decided(decision)
        if not decision.allowed:
            raise refusal(self._user, info, decision.reason)

    def _begin(self, info: RequestInfo, record: CallRecord) -> Resource:
        """Authorize and find the resource, as the HTTP handler does."""
        self._authorize(info, record)
        res = self._server.resources.find(info.group, info.version, info.resource)
        if res is None:
            raise errors.generic_not_found()
        if not info.subresource and res.stored and info.verb not in res.verbs:
            raise errors.generic_method_not_allowed()
        return res

    async def _call(
        self, verb: str, resource: GroupVersionResource, namespace: str, name: str = "", *, subresource: str = "",
        body: Any = None, media: str = "application/json", query: dict[str, str] | None = None,
    ) -> Any:
        info = _info(verb, resource, namespace, name, subresource)
        request = self._request(_METHODS[verb], info.path, body, media, query)
        with self._record(info, request) as record:
            res = self._begin(info, record)
            ctx = self._context(info, record)
            form = AS_OBJECT if record is NOT_RECORDED else _FORM
            try:
                if subresource or not res.stored:
                    answer = self._subresource(Call(self._server, ctx, res, info, request, form))
                else:
                    answer = _WRITES[verb](self._server.storage, ctx, res, info, request, form)
                answer = await answer if isinstance(answer, Awaitable) else answer
            except StoreError as problem:
                log.error("store: %s", problem)
                raise errors.internal(str(problem)) from problem
            record.answered(answer)
            return _content(answer)

    def _subresource(self, call: Call) -> Awaitable[Answer] | Answer:
        info, res = call.info, call.res
        if not info.subresource:
            handler = table.UNSTORED.get(res.kind.key, {}).get(info.verb)
        elif info.subresource not in res.subresources:
            raise errors.generic_not_found()
        else:
            handler = (table.find(res.kind.key, info.subresource) or {}).get(info.verb)
            if handler is None and info.verb == "get":
                return reads.get(call.server.storage, call.ctx, res, info, call.request, call.form)
        if handler is None:
            raise errors.generic_method_not_allowed()
        return handler(call)

    def _request(
        self, method: str, path: str, body: Any = None, media: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Request:
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {b"user-agent": self._user_agent.encode()}
        if body is not None:
            headers[b"content-type"] = media.encode()
        raw = orjson.dumps(body) if body is not None else b""
        return Request(method, target.encode(), path, headers, raw, remote="127.0.0.1")

    def _context(self, info: RequestInfo, record: CallRecord) -> Context:
        ctx = Context(self._user, self._server.clock.time(), user_agent=self._user_agent, path=info.path)
        ctx.verb = info.verb
        if record.event is not None:
            ctx.audit = record.event
            record.ctx = ctx
        return ctx


def _info(
    verb: str, resource: GroupVersionResource, namespace: str, name: str = "", subresource: str = "", selected: str = ""
) -> RequestInfo:
    path = resource.path(namespace, name, subresource)
    if resource.plural == "namespaces" and not resource.group:
        namespace = name  # as the path of a namespace reads
    return RequestInfo(
        True, path, verb, resource.group, resource.version, namespace, resource.plural, name, subresource, "",
        _selected_name(selected) if selected else "",
    )  # fmt: skip


def _lists(query: dict[str, str]) -> dict[str, list[str]]:
    return {name: [value] for name, value in query.items()}


def _selected_name(text: str) -> str:
    try:
        return selectors.parse_fields(text).exact("metadata.name") or ""
    except selectors.SelectorError:
        return ""  # the list options will say what is wrong with it


class _Gathered:
    """The end of a stream that keeps what comes."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_close: Callable[[], None] | None = None

    def write(self, data: bytes) -> None:
        self.parts.append(data)

    async def drained(self) -> None:
        return

    def close(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def abort(self) -> None:
        if not self.ended.done():
            self.ended.set_exception(Unreachable("the answer broke off"))


async def _whole(answer: StreamResponse) -> Response:
    """An answer that flows through from an aggregated server, once it is all there."""
    stream = _Gathered()
    answer.start(cast(Stream, stream))
    try:
        await stream.ended
    except asyncio.CancelledError:
        if stream.on_close is not None:
            stream.on_close()
        raise
    return Response(answer.status, answer.headers, stream.parts)


def _content(answer: Answer) -> Any:
    if isinstance(answer, respond.ObjectResponse):
        return answer.obj
    if not isinstance(answer, Response):
        raise errors.internal("the answer is a stream")
    body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        content = None
    if answer.status >= 300:
        if isinstance(content, dict) and content.get("kind") == "Status":
            raise error_from_status(content, answer.status)
        raise ApiError(answer.status, "NotFound" if answer.status == 404 else "", body.decode(errors="replace").strip())
    return content


class _Records:
    """The form in which events reach in-process watchers: the record itself, decoded when it is looked at."""

    __slots__ = ("_res", "key")

    def __init__(self, res: Resource) -> None:
        self._res = res
        self.key: object = ("record", res.api_version)

    def event(self, kind: str, record: Record) -> tuple[str, Record | Object]:
        return kind, record

    def bookmark(self, revision: int, initial: bool) -> list[tuple[str, Record | Object]]:
        res = self._res
        obj = {"kind": res.kind.kind, "apiVersion": res.api_version, "metadata": {"resourceVersion": str(revision)}}
        return [(BOOKMARK, obj)]

    def error(self, status: Object) -> list[tuple[str, Record | Object]]:
        return [("ERROR", status)]

    def join(self, parts: list[tuple[str, Record | Object]]) -> list[tuple[str, Record | Object]]:
        return parts


class InProcessWatch(BatchedWatch):
    """A sink of the hub on one side, a client's watch on the other."""

    def __init__(self, decode: Callable[[Resource, Record], Object], res: Resource) -> None:
        self._decode = decode
        self._res = res
        self._batches: deque[list[tuple[str, Record | Object]]] = deque()
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self.watcher: Watcher | None = None
        self.timer: Timer | None = None
        self.problem: ApiError | None = None
        self.on_end: Callable[[], None] | None = None

    async def next(self) -> list[WatchEvent]:
        while not self._batches:
            if self.problem is not None:
                raise self.problem
            if self._ended:
                return []
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        batch = self._batches.popleft()
        if len(batch) > _TURN:  # a long history comes in pieces
            self._batches.appendleft(batch[_TURN:])
            batch = batch[:_TURN]
            await asyncio.sleep(0)
        self._size -= len(batch)
        decode, res = self._decode, self._res
        return [
            WatchEvent(kind, decode(res, record) if isinstance(record, Record) else record) for kind, record in batch
        ]

    def close(self) -> None:
        self._finish()
        self._batches.clear()
        if self.watcher is not None:
            self.watcher.close()
        if self.timer is not None:
            self.timer.cancel()
        self._wake()

    # ---- watch.Sink ----------------------------------------------------------------------------------------------

    def first(self, parts: list[tuple[str, Record | Object]]) -> None:
        self._push(parts)

    def send(self, payload: list[tuple[str, Record | Object]]) -> None:
        self._push(payload)
        if self._size > _BEHIND:
            # It will find its way again by the version it saw last; what it has not seen need not be kept for it.
            self.close()

    def end(self) -> None:
        self._finish()
        self._wake()

    def _finish(self) -> None:
        self._ended = True
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()

    def _push(self, batch: list[tuple[str, Record | Object]]) -> None:
        if batch and not self._ended:
            self._batches.append(batch)
            self._size += len(batch)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
