"""One client connection: bytes -> requests -> handler -> answers, in order.

A handler that answers at once is served inside the read callback, without a task; any other runs in one task while
further pipelined requests wait in a queue. There is no timer here either: a connection only notes its deadline, and the
server looks at all deadlines together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

import httptools

from transom.http.body import BodyStream
from transom.http.encode import (
    CONTINUE,
    END_OF_STREAM,
    GZIP_THRESHOLD,
    gzip,
    head,
    status_response,
    wants_gzip,
)
from transom.http.messages import Answer, Request, Response, StreamResponse, UpgradeResponse, decode_path
from transom.http.stream import RawConnection, Stream
from transom.http.tls import peer_of
from transom.machinery import errors
from transom.machinery.errors import ApiError

if TYPE_CHECKING:
    from transom.http.server import HttpServer

log = logging.getLogger("transom.http")

# What is read now; after a refusal the rest of a body is discarded, or (DEAF) anything at all.
IDLE, HEAD, BODY, DISCARD, DEAF = range(5)
# What the deadline is about.
FOR_NOTHING, FOR_REQUEST, FOR_HEAD, FOR_BODY, FOR_READER, FOR_CLOSE = range(6)
NEVER = float("inf")

_FLUSH_AT = 256 * 1024
_EARLY_LIMIT = 64 * 1024
_FRAMING = 8  # how many times larger than the data a body with tiny chunks may be
_QUEUED_BYTES = 4 * 1024 * 1024
_STREAMED = 64 * 1024  # smaller bodies are gathered, whoever they are for
_METHODS = {m.encode(): m for m in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")}


class Connection(asyncio.Protocol):
    __slots__ = (
        "_answered_close", "_body", "_body_size", "_busy", "_continue_due", "_deadline_for", "_early", "_feeding",
        "_head_size", "_headers", "_keep_alive", "_linger", "_on_end", "_out", "_out_size", "_parser", "_peer", "_pending",
        "_queue", "_queued_bytes", "_raw", "_read_paused", "_received", "_remote", "_sink", "_slabs", "_state", "_stream",
        "_target", "_task", "deadline", "server", "stream_is_plain", "transport", "write_paused",
    )  # fmt: skip

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.transport: Any = None
        self.write_paused = False
        self.stream_is_plain = False
        self.deadline = NEVER
        self._deadline_for = FOR_NOTHING
        self._parser: Any = httptools.HttpRequestParser(self)
        self._state = IDLE
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_size = 0
        self._body: list[bytes] = []
        self._body_size = 0
        self._continue_due = False
        self._received = 0.0
        self._busy = False
        self._on_end: Callable[[], None] | None = None  # of the answer under way
        self._keep_alive = True
        self._queue: deque[Request | ApiError] = deque()
        self._queued_bytes = 0
        self._read_paused = False
        self._feeding = False
        self._out: list[bytes] = []
        self._out_size = 0
        self._slabs: list[bytes] | None = None  # last first
        self._task: asyncio.Task[None] | None = None
        self._pending: Request | None = None  # the one whose answer is waited for
        self._stream: Stream | None = None
        self._raw: RawConnection | None = None
        self._sink: BodyStream | None = None  # where the body goes that is coming in
        self._early: bytes | None = None  # not None: an upgrade request waits for its answer
        self._answered_close = False
        self._linger = False
        self._peer: Any = None
        self._remote = ""

    # -- the transport's callbacks

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        address = transport.get_extra_info("peername")
        self._remote = str(address[0]) if isinstance(address, tuple) else ""
        self._peer = peer_of(transport)
        if self.server.admit(self):
            self._arm(FOR_REQUEST, self.server.limits.idle_timeout)
        else:
            full = "the server has too many open connections"
            self._refuse(errors.service_unavailable("the server is stopping" if self.server.stopping else full))

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.forget(self)
        self.transport = None
        self.deadline = NEVER
        self._parser = None  # breaks the cycle with this object
        self._queue.clear()
        self._slabs = None
        stream, self._stream = self._stream, None
        raw, self._raw = self._raw, None
        for ended in (stream, raw):
            if ended is not None:
                self._guarded(ended.lost)
        if self._pending is not None:
            self._pending.gone = True
        self._break_body()
        self._ended()

    def eof_received(self) -> bool:
        if self._raw is not None and self._raw.on_eof is not None:
            self._guarded(self._raw.on_eof)
        return False

    def data_received(self, data: bytes) -> None:
        if self._raw is not None:
            try:
                self._raw.feed(data)
            except Exception:
                log.exception("the receiver of an upgraded connection failed")
                self.abort()
            return
        if self._state == DEAF:
            return
        if self._early is not None:
            self._early += data
            if len(self._early) > _EARLY_LIMIT:
                self.pause_reading()
            return
        self._received = monotonic()
        self._head_size += len(data)
        self._feeding = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._state < DISCARD:
                self._early = data[upgrade.args[0] :]
        except httptools.HttpParserCallbackError:
            log.exception("a parser callback failed")
            self.abort()
            return
        except httptools.HttpParserError as error:
            if self._state < DISCARD:
                self._refuse(errors.bad_request(f"malformed HTTP request: {error}"))
            else:
                self._input_ended()
        finally:
            self._feeding = False
        if self._early is not None:
            self._complete()
            self._advance()
        if self._out:
            self._flush()
        self._after_read()

    def _after_read(self) -> None:
        """Sets the deadline for what the connection waits for now."""
        state = self._state
        if self.transport is None or self._answered_close:
            return
        if state == HEAD and self._head_size > self.server.limits.head:
            self._refuse(_head_too_large(), DEAF)
        elif state == BODY and self._head_size > self.server.limits.head + _FRAMING * self.server.limits.body:
            self._refuse(errors.too_large(self.server.limits.body), DEAF)  # all framing: chunk extensions, trailers
        elif self._busy or self.write_paused:
            return
        elif state == IDLE:
            self._deadline_for = FOR_REQUEST
            self.deadline = self._received + self.server.limits.idle_timeout
        elif state == HEAD and self._deadline_for != FOR_HEAD:
            self._arm(FOR_HEAD, self.server.limits.head_timeout)
        elif state == BODY and self._deadline_for != FOR_BODY:
            self._arm(FOR_BODY, self.server.limits.body_timeout)

    def pause_writing(self) -> None:
        self.write_paused = True
        if self._stream is None and self._raw is None and self._deadline_for != FOR_CLOSE:
            self._arm(FOR_READER, self.server.limits.write_timeout)

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._slabs is not None:
            if self._deadline_for == FOR_READER:
                self._arm(FOR_READER, self.server.limits.write_timeout)
            self._write_slabs()
        elif self._stream is not None:
            self._stream.pull()
        elif self._raw is not None:
            if self._raw.on_writable is not None:
                self._guarded(self._raw.on_writable)
        else:
            self._advance()

    # -- the parser's callbacks

    def on_message_begin(self) -> None:
        if self._state < DISCARD:
            self._state = HEAD
            self._target = b""
            self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._state != HEAD:  # a trailer after a chunked body: it may not pass for a header
            return
        name = name.lower()
        headers = self._headers
        if name in headers:
            # Names of groups may hold commas, so those headers stay apart.
            headers[name] += (b"\n" if name.startswith(b"impersonate-") else b", ") + value
        else:
            headers[name] = value

    def on_headers_complete(self) -> None:
        if self._state >= DISCARD:
            return
        self._state = BODY
        headers, limits = self._headers, self.server.limits
        if self._head_size > limits.head and limits.head < len(self._target) + sum(
            len(k) + len(v) + 4 for k, v in headers.items()
        ):
            self._refuse(_head_too_large(), DISCARD)
            return
        length = headers.get(b"content-length")
        streams = self.server.streams_body
        if streams is not None and (b"transfer-encoding" in headers or (length is not None and int(length) > _STREAMED)):
            path = decode_path(self._target)
            if path is not None and streams(path) and not self._parser.should_upgrade():
                self._sink = BodyStream(self)
        if self._sink is None and length is not None and int(length) > limits.body:
            self._refuse(errors.too_large(limits.body), DISCARD)
            return
        if b"expect" in headers and headers[b"expect"].lower() == b"100-continue":
            if self._busy or self._queue:
                self._continue_due = True
            else:
                self._write(CONTINUE)
        if self._sink is not None:
            self._complete(self._sink)

    def on_body(self, data: bytes) -> None:
        if self._state >= DISCARD:
            self._body_size += len(data)
            if self._body_size > self.server.limits.discard:
                self.abort()
            return
        if self._sink is not None:
            self._head_size = 0
            if not self._sink.feed(data, self.server.limits.discard):
                self.abort()
            return
        self._body.append(data)
        self._body_size += len(data)
        if self._body_size > self.server.limits.body:
            self._refuse(errors.too_large(self.server.limits.body), DISCARD)

    def on_message_complete(self) -> None:
        if self._state >= DISCARD:
            self._input_ended()
        elif self._sink is not None:
            sink, self._sink = self._sink, None
            self._state = IDLE
            self._head_size = 0
            sink.end()
        elif not self._parser.should_upgrade():  # there the parser stops and says where the early bytes begin
            self._complete()

    def _complete(self, stream: BodyStream | None = None) -> None:
        """A request is whole, or but for its body: to the handler with it, unless it is malformed after all."""
        if stream is None:
            self._state = IDLE
            self._continue_due = False
        self._head_size = 0
        headers, parser, target = self._headers, self._parser, self._target
        body = b"".join(self._body) if self._body else b""
        if body:
            self._body = []
            self._body_size = 0
        method = parser.get_method()
        keep_alive = parser.should_keep_alive()
        http10 = (not keep_alive or b"connection" in headers) and parser.get_http_version() == "1.0"
        path = decode_path(target)
        if path is None:
            self._refuse(errors.bad_request("malformed HTTP request: invalid URI for request"))
        elif b"host" not in headers and not http10:
            self._refuse(errors.bad_request("missing required Host header"))
        else:
            self._submit(Request(
                _METHODS.get(method) or method.decode(), target, path, headers, body, self._peer, self._remote,
                self._received, keep_alive, http10, stream,
            ))  # fmt: skip

    # -- from requests to answers

    def _submit(self, item: Request | ApiError) -> None:
        if self._answered_close:
            return
        if not (self._busy or self.write_paused or self._queue):
            self._serve(item)
            return
        self._queue.append(item)
        if type(item) is Request:
            self._queued_bytes += len(item.body)
        if len(self._queue) >= self.server.limits.pipelined or self._queued_bytes > _QUEUED_BYTES:
            self.pause_reading()

    def _advance(self) -> None:
        """Serves what waits, as far as it goes; called when an answer is through outside the read callback."""
        queue = self._queue
        while queue and not (self._busy or self.write_paused or self._answered_close):
            item = queue.popleft()
            if type(item) is Request:
                self._queued_bytes -= len(item.body)
            self._serve(item)
        if self._busy or self.write_paused or self._answered_close or self.transport is None:
            return
        if self._continue_due:
            self._continue_due = False
            self._write(CONTINUE)
        self._deadline_for = FOR_NOTHING
        self._received = monotonic()
        if self._early is not None:
            self.server.loop.call_soon(self._go_on_without_upgrade)
            return
        self.resume_reading()
        self._after_read()

    def _go_on_without_upgrade(self) -> None:
        """The handler gave an ordinary answer: what came after the request is the next one."""
        if self.transport is None or self._early is None:
            return
        early, self._early = self._early, None
        self._parser = httptools.HttpRequestParser(self)  # the old one stopped for good
        self.resume_reading()
        if early:
            self.data_received(early)
        else:
            self._after_read()

    def _serve(self, item: Request | ApiError) -> None:
        if not isinstance(item, Request):
            self._answer_and_close(item)
            return
        self._busy = True
        self.deadline = NEVER
        self._deadline_for = FOR_NOTHING
        answer: Answer | Awaitable[Answer]
        try:
            answer = self.server.handler(item)
        except Exception as error:
            answer = _failure(item, error)
        if type(answer) is Response:
            self._on_end = answer.on_end
            self._respond(item, answer)
        elif isinstance(answer, Response | StreamResponse | UpgradeResponse):
            self._on_end = answer.on_end
            self._answer(item, answer)
        else:
            self._pending = item
            self._task = self.server.loop.create_task(self._await(item, answer))

    async def _await(self, request: Request, awaitable: Awaitable[Answer]) -> None:
        try:
            answer = await awaitable
        except Exception as error:
            answer = _failure(request, error)
        self._task = self._pending = None
        self._on_end = answer.on_end
        if self.transport is not None:
            self._answer(request, answer)
            self._advance()
        else:
            self._ended()

    def _answer(self, request: Request, answer: Answer) -> None:
        if isinstance(answer, Response):
            self._respond(request, answer)
        elif isinstance(answer, StreamResponse):
            self._start_stream(request, answer)
        else:
            self._start_raw(request, answer)

    def _respond(self, request: Request, response: Response, may_pack: bool = True) -> None:
        body = response.body
        slabs = type(body) is list
        size = sum(map(len, body)) if slabs else len(body)  # type: ignore[arg-type]
        if (
            size > GZIP_THRESHOLD
            and may_pack
            and request.method != "HEAD"
            and wants_gzip(request.headers.get(b"accept-encoding"))
            and not any(name.lower() == b"content-encoding" for name, _ in response.headers)
        ):
            self._task = self.server.loop.create_task(self._pack(request, response))
            return
        keep = self._keep_alive = request.keep_alive and not self.server.stopping
        status = response.status
        if status == 204 or status == 304:
            tail = b"\r\n"
            body, slabs = b"", False
        else:
            tail = b"Content-Length: %d\r\n\r\n" % size
            if request.method == "HEAD":
                body, slabs = b"", False
        if not keep:
            tail = b"Connection: close\r\n" + tail
        elif request.http10:
            tail = b"Connection: keep-alive\r\n" + tail
        start = head(status, response.headers, self.server.date.line, tail)
        if slabs:
            self._write(start)
            self._flush()
            self._slabs = body[::-1]  # type: ignore[assignment]
            self._write_slabs()
        else:
            self._write(start + body)  # type: ignore[operator]
            self._done()

    async def _pack(self, request: Request, response: Response) -> None:
        try:
            packed = await self.server.loop.run_in_executor(None, gzip, response.body)
            headers = [*response.headers, (b"Content-Encoding", b"gzip"), (b"Vary", b"Accept-Encoding")]
            response = Response(response.status, headers, packed)
        except Exception as error:
            response = _failure(request, error)
        self._task = None
        if self.transport is not None:
            self._respond(request, response, may_pack=False)
            self._advance()

    def _write_slabs(self) -> None:
        slabs = self._slabs
        while slabs and not self.write_paused and self.transport is not None:
            self.transport.write(slabs.pop())
        if not slabs and self._slabs is not None:
            self._slabs = None
            self._done()
            if not self._feeding:
                self._advance()

    def _ended(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            self._guarded(on_end)

    def _break_body(self) -> None:
        """No more of the body under way will come."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.end(broken=True)

    def _done(self) -> None:
        self._busy = False
        if self._sink is not None:
            self._sink.drop()
        if self._on_end is not None:
            self._ended()
        if not self._keep_alive:
            self._answered_close = True
            self.close()

    # -- refusals

    def _refuse(self, error: ApiError, rest: int = IDLE) -> None:
        """No further request is read; the error is answered in its turn and the connection closed.

        `rest` says what may still come in and has to be read first: the rest of the body (DISCARD), no one knows what
        (DEAF), or nothing that matters. Closing over unread input resets the connection, and the client might never
        see the answer.
        """
        self._state = rest or DEAF
        self._linger = rest != IDLE
        self._body = []
        self._body_size = 0
        self._early = None
        self._break_body()
        self._submit(error)

    def _answer_and_close(self, error: ApiError) -> None:
        response = status_response(error)
        tail = b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(response.body)
        self._write(head(response.status, response.headers, self.server.date.line, tail) + response.body)  # type: ignore[operator]
        self._answered_close = True
        self._arm(FOR_CLOSE, self.server.limits.linger)
        if not self._linger:
            self.close()

    def _input_ended(self) -> None:
        """All of a refused request has come in."""
        self._state = DEAF
        self._linger = False
        if self._answered_close:
            self.close()

    def expire(self) -> None:
        """The deadline has passed. For the server."""
        about = self._deadline_for
        self.deadline = NEVER
        if about in (FOR_HEAD, FOR_BODY):
            what = "header" if about == FOR_HEAD else "body"
            self._refuse(ApiError(408, "Timeout", f"the client did not send the request {what} in time"))
        elif about == FOR_REQUEST:
            self.close()
        else:
            self.abort()

    # -- streams and upgrades

    def _start_stream(self, request: Request, answer: StreamResponse) -> None:
        self._keep_alive = request.keep_alive and not request.http10 and not self.server.stopping
        self.stream_is_plain = request.http10 or answer.length is not None
        tail = b"\r\n" if request.http10 else b"Transfer-Encoding: chunked\r\n\r\n"
        if answer.length is not None:
            tail = b"Content-Length: %d\r\n\r\n" % answer.length
        if not self._keep_alive:
            tail = b"Connection: close\r\n" + tail
        self._write(head(answer.status, answer.headers, self.server.date.line, tail))
        self._flush()
        if request.method == "HEAD":
            self._done()
            return
        stream = self._stream = Stream(self, self.server.limits.stream_buffer)
        try:
            answer.start(stream)
        except Exception:
            log.exception("starting the stream of %r failed", request)
            self.abort()
            return
        if self.server.stopping:
            self.shut_down()

    def write_stream(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def stream_ended(self, stream: Stream) -> None:
        """The handler closed its stream."""
        if self._stream is not stream or self.transport is None:
            return
        self._stream = None
        if not self.stream_is_plain:
            self.transport.write(END_OF_STREAM)
        self._done()
        if not self._feeding:
            self._advance()

    def drop_stream(self, stream: Stream) -> None:
        log.warning("dropping a stream to %s: %d bytes behind", self._remote, stream.buffered)
        self._stream = None
        self._guarded(stream.lost)
        self.abort()

    def _start_raw(self, request: Request, answer: UpgradeResponse) -> None:
        if self._early is None:
            log.error("%r was answered with an upgrade it did not ask for", request)
            self._respond(request, status_response(errors.bad_request("upgrade request required")))
            return
        line = head(answer.status, answer.headers, self.server.date.line, b"\r\n")
        self._write(line)
        self._flush()
        early, self._early = self._early, None
        self.deadline = NEVER
        self._queue.clear()
        raw = self._raw = RawConnection(self, early)
        try:
            answer.start(raw)
        except Exception:
            log.exception("starting the upgraded connection of %r failed", request)
            self.abort()

    def write_raw(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    # -- the transport's verbs

    def _write(self, data: bytes) -> None:
        if not self._feeding:
            if self.transport is not None:
                self.transport.write(data)
            return
        self._out.append(data)
        self._out_size += len(data)
        if self._out_size > _FLUSH_AT:
            self._flush()

    def _flush(self) -> None:
        out = self._out
        if out and self.transport is not None:
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        self._out = []
        self._out_size = 0

    def write_buffer_size(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    def pause_reading(self) -> None:
        if not self._read_paused and self.transport is not None:
            self._read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._read_paused and self.transport is not None:
            self._read_paused = False
            self.transport.resume_reading()

    def _arm(self, about: int, seconds: float) -> None:
        self._deadline_for = about
        self.deadline = monotonic() + seconds

    def _guarded(self, callback: Any) -> None:
        try:
            callback()
        except Exception:
            log.exception("a close callback failed")

    def close(self) -> None:
        """Closes when everything written is out, or at the latest when the linger time is over."""
        if self.transport is not None:
            if self._out:
                self._flush()
            if self._deadline_for != FOR_CLOSE:
                self._arm(FOR_CLOSE, self.server.limits.linger)
            if not self.transport.is_closing():  # closed twice, one of Python 3.11.2 could not be aborted any more
                self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def shut_down(self) -> None:
        """The server stops: end the stream cleanly, finish the running request, close the rest at once."""
        stream = self._stream
        if stream is not None:
            self._keep_alive = False
            self._stream = None
            stream.flush(everything=True)
            self._guarded(stream.lost)
            if not self.stream_is_plain:
                self.write_raw(END_OF_STREAM)
            self._done()
        elif self._raw is not None or not self._busy:
            self.close()

    def cancel(self) -> None:
        """The grace period is over."""
        if self._task is not None:
            self._task.cancel()
        self.abort()


def _failure(request: Request, error: Exception) -> Response:
    if isinstance(error, ApiError):
        return status_response(error)
    log.error("the handler failed on %r", request, exc_info=error)
    return status_response(
        errors.internal("this request caused the API server to fail, its log has the details")
    )


def _head_too_large() -> ApiError:
    return ApiError(431, "RequestHeaderFieldsTooLarge", "the header of the request is too large")
