"""Encodes results of calls as HTTP responses: JSON, YAML, protobuf, Table or metadata only.

Small responses are encoded immediately, large ones in a worker thread.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from transom.apiserver.core.bodies import PROTOBUF, YAML
from transom.apiserver.core.call import (
    ApiCall,
    DocumentResult,
    EmptyResult,
    ListResult,
    ObjectResult,
    WatchResult,
)
from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.offload import compute_in_worker
from transom.apiserver.core.options import first_query_value
from transom.apiserver.core.watch import Watcher, WatchHub
from transom.apiserver.serving import responses
from transom.apiserver.serving.negotiate import PLAIN, STREAM_TYPES, OutputForm
from transom.http.messages import Headers, HttpResponse, ResponseStream, StreamResponse
from transom.kit.clock import Clock
from transom.kit.lazy import lazy_import
from transom.kit.workers import WorkRunner
from transom.machinery import errors
from transom.machinery.releases.behaviour import has_behaviour
from transom.store.api import RevisionCompacted

if TYPE_CHECKING:
    from transom.machinery.tables import partial
else:
    partial = lazy_import("transom.machinery.tables.partial")

EncodedResult = ObjectResult | DocumentResult | ListResult | WatchResult | EmptyResult

_CACHE = (b"Cache-Control", b"no-cache, private")
_WATCH_HEADERS: Headers = [(b"Content-Type", b"application/json"), _CACHE]
_PROTOBUF_WATCH_HEADERS: Headers = [
    (b"Content-Type", f"{PROTOBUF};stream=watch".encode()),
    _CACHE,
]


class ResponseEncoder:
    def __init__(self, workers: WorkRunner, hub: WatchHub, clock: Clock) -> None:
        self._workers = workers
        self._hub = hub
        self._clock = clock

    def encode(
        self, call: ApiCall, form: OutputForm, result: EncodedResult
    ) -> HttpResponse | StreamResponse | Awaitable[HttpResponse]:
        if type(result) is ObjectResult:
            return self.encode_object(call, form, result)
        if type(result) is ListResult:
            return self._list(call, form, result)
        if type(result) is DocumentResult:
            return self._document(call, form, result)
        if type(result) is WatchResult:
            return self._watch(call, form, result)
        return HttpResponse(204, [])

    def encode_plain(
        self, ctx: RequestContext, result: ObjectResult
    ) -> HttpResponse | Awaitable[HttpResponse]:
        """The usual case of `encode_object`: JSON, without options and warnings."""
        res, record, code = result
        if responses.takes_long_to_encode(res, record, PLAIN):
            work = functools.partial(
                responses.object_response, res, record, PLAIN, ctx.now, code, None
            )
            return compute_in_worker(self._workers, ctx, work)
        return responses.json_response(responses.object_bytes(res, record), code)

    def encode_object(
        self, call: ApiCall, form: OutputForm, result: ObjectResult
    ) -> HttpResponse | Awaitable[HttpResponse]:
        res, record, code = result
        ctx = call.ctx
        headers = responses.warning_headers(ctx.warnings) if ctx.warnings else None
        include = first_query_value(call.query, "includeObject") if call.query else ""
        if responses.takes_long_to_encode(res, record, form):
            work = functools.partial(
                responses.object_response, res, record, form, ctx.now, code, headers, include
            )
            return compute_in_worker(self._workers, ctx, work)
        return responses.object_response(res, record, form, ctx.now, code, headers, include)

    def _document(self, call: ApiCall, form: OutputForm, result: DocumentResult) -> HttpResponse:
        obj, warnings = result.obj, call.ctx.warnings
        if result.has_metadata and form.transform == "PartialObjectMetadata":
            obj = partial.object_metadata(obj, form.version)
        elif result.has_metadata and form.transform == "Table" and _has_scale_tables(call):
            include = first_query_value(call.query, "includeObject")
            obj = responses.scale_table(call.res, obj, form, call.ctx.now, include)
        headers = responses.warning_headers(warnings) if warnings else None
        return responses.document_response(obj, form, result.code, headers, call.res.release)

    def _list(
        self, call: ApiCall, form: OutputForm, result: ListResult
    ) -> HttpResponse | Awaitable[HttpResponse]:
        res, records = result.res, result.listing.records
        if not responses.needs_thread(res, records, form):
            return _list_response(call, form, result)
        work = functools.partial(_list_response, call, form, result)
        if responses.is_long_protobuf_list(records, form):
            # Many small objects: no CPU time limit applies.
            return asyncio.get_running_loop().run_in_executor(None, work)
        return compute_in_worker(self._workers, call.ctx, work)

    def _watch(self, call: ApiCall, form: OutputForm, result: WatchResult) -> StreamResponse:
        if form.media == YAML:
            raise errors.no_such_form(STREAM_TYPES)
        include = first_query_value(call.query, "includeObject")
        encoder = responses.watch_encoder(result.res, form, self._clock.time, include)
        headers = _PROTOBUF_WATCH_HEADERS if form.media == PROTOBUF else _WATCH_HEADERS
        if call.ctx.warnings:
            headers = headers + responses.warning_headers(call.ctx.warnings)
        start = _watch_starter(self._hub, self._clock, result, encoder)
        return StreamResponse(200, headers, start, resumable=True)


def _list_response(call: ApiCall, form: OutputForm, result: ListResult) -> HttpResponse:
    ctx = call.ctx
    include = first_query_value(call.query, "includeObject")
    response = responses.list_response(result.res, result.listing, form, ctx.now, include)
    if ctx.warnings:
        response.headers = response.headers + responses.warning_headers(ctx.warnings)
    return response


def _has_scale_tables(call: ApiCall) -> bool:
    return has_behaviour(call.res.release, "SubresourceTables")


class _HttpSink:
    """Writes watch events to a chunked response."""

    __slots__ = ("drained", "end", "follow", "push", "send")

    def __init__(self, stream: ResponseStream) -> None:
        self.send = stream.offer
        self.push = stream.write_framed
        self.follow = stream.follow
        self.drained = stream.drained
        self.end = stream.close


def _watch_starter(
    hub: WatchHub, clock: Clock, result: WatchResult, encoder: responses.JsonWatchEncoder
) -> Callable[[ResponseStream], None]:
    res, namespace, options, since = result

    def start(stream: ResponseStream) -> None:
        if hub.is_future(since):
            # As in Kubernetes, no event comes until the watch times out.
            timer = clock.call_later(float(options.timeout or 3), stream.close)
            stream.on_close = timer.cancel
            return
        try:
            watcher: Watcher = hub.watch(res, namespace, options, since, encoder, _HttpSink(stream))
        except RevisionCompacted as problem:
            gone = errors.expired(f"too old resource version: {since} ({problem.revision})")
            stream.write_framed(encoder.error(gone.status()))
            stream.close()
            return
        stream.on_close = watcher.close

    return start
