"""GET, LIST and WATCH of resources. Everything here answers at once, from memory, except lists that take long to write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from transom.apiserver import lists, respond
from transom.apiserver.context import Context
from transom.apiserver.negotiate import PROTOBUF, STREAM_TYPES, YAML, Form
from transom.apiserver.options import ListOptions, first, list_options, parse_revision
from transom.apiserver.requestinfo import RequestInfo
from transom.apiserver.resources import Resource
from transom.apiserver.storage import Storage
from transom.apiserver.watch import Hub, Watcher
from transom.http.messages import Headers, Request, Response, StreamResponse
from transom.http.stream import Stream
from transom.machinery import errors
from transom.store.api import Compacted, Record

_CACHE = (b"Cache-Control", b"no-cache, private")
_WATCH_HEADERS: Headers = [(b"Content-Type", b"application/json"), _CACHE]
_PROTOBUF_WATCH_HEADERS: Headers = [(b"Content-Type", f"{PROTOBUF};stream=watch".encode()), _CACHE]


# Lists of more objects than this are written down in a thread, beside the loop: of stored bytes, of decoded objects.
_BIG, _BIG_DECODED = 5000, 200


def get(
    storage: Storage, ctx: Context, res: Resource, info: RequestInfo, request: Request, form: Form
) -> Response | Awaitable[Response]:
    query = request.query
    if query:
        wanted = parse_revision(first(query, "resourceVersion"))
        if wanted > storage.store.revision:
            raise lists.too_large(wanted, storage.store.revision)
    record = storage.get(res, info.namespace, info.name)
    if res.ops.converter is not None:
        return _get_converted(storage, ctx, res, record, request, form)
    return one(ctx, res, record, request, form)


async def _get_converted(
    storage: Storage, ctx: Context, res: Resource, record: Record, request: Request, form: Form
) -> Response:
    return one(ctx, res, await storage.readable(res, record), request, form)


def one(ctx: Context, res: Resource, record: Record, request: Request, form: Form) -> Response:
    query = request.query
    return respond.one(
        res, record, form, ctx.now, include_object=first(query, "includeObject") if query else "",
        headers=respond.warning_headers(ctx.warnings) if ctx.warnings else None,
    )


def list_(
    storage: Storage, ctx: Context, res: Resource, info: RequestInfo, request: Request, form: Form
) -> Response | Awaitable[Response]:
    options = list_options(request.query, res, watch=False)
    listing = lists.list_records(storage, res, info.namespace, options)
    if res.ops.converter is not None:
        return _list_converted(ctx, res, listing, request, form)
    if len(listing.records) > (_BIG if respond.joins(res, form) else _BIG_DECODED):
        return asyncio.get_running_loop().run_in_executor(None, many, ctx, res, listing, request, form)
    return many(ctx, res, listing, request, form)


async def _list_converted(
    ctx: Context, res: Resource, listing: lists.Listing, request: Request, form: Form
) -> Response:
    return many(ctx, res, await lists.readable(res, listing), request, form)


def many(ctx: Context, res: Resource, listing: lists.Listing, request: Request, form: Form) -> Response:
    answer = respond.many(res, listing, form, ctx.now, first(request.query, "includeObject"))
    if ctx.warnings:
        answer.headers = answer.headers + respond.warning_headers(ctx.warnings)
    return answer


class _HttpSink:
    """Events to a chunked response."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def first(self, parts: list[bytes]) -> None:
        self._stream.write_from(parts)

    def send(self, payload: bytes) -> None:
        self._stream.write_framed(payload)

    def end(self) -> None:
        self._stream.close()


def watch(
    storage: Storage, hub: Hub, ctx: Context, res: Resource, info: RequestInfo, request: Request, form: Form
) -> StreamResponse:
    options = list_options(request.query, res, watch=True)
    since = start_revision(storage, options)
    if info.name and options.fields is None:
        options = _only(options, res, info.name)
    if form.media == YAML:
        raise errors.no_such_form(STREAM_TYPES)
    events = respond.events(res, form, storage.clock.time, first(request.query, "includeObject"))
    headers = _PROTOBUF_WATCH_HEADERS if form.media == PROTOBUF else _WATCH_HEADERS
    return StreamResponse(
        200, headers + respond.warning_headers(ctx.warnings) if ctx.warnings else headers,
        _starter(hub, res, info.namespace, options, since, events),
    )


def _only(options: ListOptions, res: Resource, name: str) -> ListOptions:
    """The old watch path of one object watches by its name."""
    return list_options({"fieldSelector": [f"metadata.name={name}"], "resourceVersion": [options.version],
                         "timeoutSeconds": [str(options.timeout or "")],
                         "allowWatchBookmarks": [str(options.bookmarks)]}, res, watch=True)


def start_revision(storage: Storage, options: ListOptions) -> int | None:
    """Where a watch begins: None for the synthetic start from the current state."""
    wanted = parse_revision(options.version)
    if options.send_initial_events:
        if wanted > storage.store.revision:
            raise lists.too_large(wanted, storage.store.revision)
        return None
    if not wanted:
        return storage.store.revision if options.send_initial_events is False else None
    return wanted


def _starter(
    hub: Hub, res: Resource, namespace: str, options: ListOptions, since: int | None, events: respond.JsonEvents
) -> Callable[[Stream], None]:
    def start(stream: Stream) -> None:
        store = hub.storage.store
        if since is not None and since > store.revision:
            _wait_in_vain(hub, options, stream)
            return
        try:
            watcher: Watcher = hub.watch(res, namespace, options, since, events, _HttpSink(stream))
        except Compacted as problem:
            gone = errors.expired(f"too old resource version: {since} ({problem.revision})")
            stream.write_framed(events.error(gone.status()))
            stream.close()
            return
        stream.on_close = watcher.close

    return start


def _wait_in_vain(hub: Hub, options: ListOptions, stream: Stream) -> None:
    """A revision nobody has written yet: nothing comes until the time is over, as with the real server."""
    timer = hub.storage.clock.call_later(float(options.timeout or 3), stream.close)
    stream.on_close = timer.cancel
