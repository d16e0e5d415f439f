"""A client connection, second layer: writes responses, streams and upgraded connections."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from transom.http.connection_base import NEVER, TransportLayer
from transom.http.encode import (
    END_OF_STREAM,
    GZIP_THRESHOLD,
    GzipReader,
    ThreadReader,
    gzip,
    head,
    status_response,
    wants_gzip,
)
from transom.http.interfaces import ConnectionHost, LiveStream
from transom.http.messages import (
    BodyReader,
    Buffer,
    BytesReader,
    Headers,
    HttpRequest,
    HttpResponse,
    LazyBody,
    StreamResponse,
    StreamSource,
    UpgradeResponse,
    body_size,
    encode_chunk,
)
from transom.http.raw import RawConnection
from transom.http.stream import TURN_BYTES, TURN_SECONDS, Stream
from transom.machinery import errors
from transom.machinery.errors import ApiError

log = logging.getLogger("transom.http")

_AT_ONCE = 64 * 1024  # larger bodies are written window by window
_COMPRESSED_WINDOWS = 2  # size of a compressed piece, in windows
_COMPRESSED_AT_ONCE = 1024 * 1024  # larger bodies are compressed piece by piece
_BODILESS = (204, 304)
_BYTES_ACKED = 120  # where tcp_info counts the bytes that the peer has acknowledged


class AnswerWriter(TransportLayer):
    __slots__ = (
        "_acked",
        "_busy",
        "_chunked",
        "_early",
        "_keep_alive",
        "_on_end",
        "_progressed",
        "_queue",
        "_queued_bytes",
        "_raw",
        "_reader",
        "_sent",
        "_stall",
        "_started",
        "_stream",
        "_task",
        "_writable",
        "stream_is_plain",
    )

    def __init__(self, server: ConnectionHost) -> None:
        super().__init__(server)
        self.stream_is_plain = False
        self._busy = False
        self._on_end: Callable[[], None] | None = None  # of the current response
        self._keep_alive = True
        self._reader: BodyReader | None = None  # of the current body
        self._chunked = False  # it goes out in chunks
        self._writable: asyncio.Future[None] | None = None
        self._started = 0.0  # when the current response began
        self._sent = 0  # bytes of it, accepted by the transport
        self._stall = 0.0  # how long its client may read nothing
        self._acked = 0
        self._progressed = 0.0
        self._task: asyncio.Task[None] | None = None
        self._stream: Stream | None = None
        self._raw: RawConnection | None = None
        self._early: bytes | None = None  # not None: an upgrade request waits for its response
        self._queue: deque[HttpRequest | ApiError | HttpResponse] = deque()
        self._queued_bytes = 0

    @abstractmethod
    def _done(self) -> None:
        """The response is complete."""

    @abstractmethod
    def _advance(self) -> None:
        """Serves the queued requests."""

    @abstractmethod
    def shut_down(self) -> None:
        """The server stops."""

    def _acknowledged(self) -> int:
        """Bytes that the client's machine has acknowledged; they grow while the client reads."""
        sock: Any = self.transport.get_extra_info("socket") if self.transport is not None else None
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED + 8)
            return int(struct.unpack_from("Q", info, _BYTES_ACKED)[0])
        except (OSError, AttributeError, struct.error):  # not TCP, or a kernel without this counter
            return -self.buffered()

    def _too_slow(self) -> bool:
        """Whether the client reads a body at less than the minimum rate; streams have no
        minimum.
        """
        limits = self.server.limits
        late = monotonic() - self._started - limits.response_timeout
        return late > 0 and self._sent < late * limits.least_rate

    def _drop_reader(self) -> None:
        log.info("closing the connection of %s: it does not read the answer", self._remote)
        self._reset()

    def _respond(self, request: HttpRequest, response: HttpResponse) -> None:
        body, status = response.body, response.status
        small = type(body) is bytes and len(body) <= _AT_ONCE
        if (
            small
            and request.keep_alive
            and not request.http10
            and request.method != "HEAD"
            and status not in _BODILESS
            and not self.server.stopping
        ):
            self._keep_alive, self._chunked = True, False
            tail = b"Content-Length: %d\r\n\r\n" % len(body)  # type: ignore[arg-type]
            start = head(status, response.headers, self.server.date.line, tail)
            self._write(start + body)  # type: ignore[operator]
            self._done()
            return
        if not small:
            self._owner = response.owner
            if (
                request.method != "HEAD"
                and wants_gzip(request.headers.get(b"accept-encoding"))
                and body_size(body) > GZIP_THRESHOLD
                and not any(name.lower() == b"content-encoding" for name, _ in response.headers)
            ):
                self._task = self.server.loop.create_task(self._compress(request, response))
                return
        keep = self._keep_alive = request.keep_alive and not self.server.stopping
        self._chunked = False
        if status in _BODILESS:
            tail = b"\r\n"
        elif isinstance(body, bytes):
            tail = b"Content-Length: %d\r\n\r\n" % len(body)
        elif (size := body_size(body) if isinstance(body, list) else body.size) is not None:
            tail = b"Content-Length: %d\r\n\r\n" % size
        elif request.http10:
            keep = self._keep_alive = False
            tail = b"\r\n"
        else:
            self._chunked = True
            tail = b"Transfer-Encoding: chunked\r\n\r\n"
        if not keep:
            tail = b"Connection: close\r\n" + tail
        elif request.http10:
            tail = b"Connection: keep-alive\r\n" + tail
        start = head(status, response.headers, self.server.date.line, tail)
        if request.method == "HEAD" or status in _BODILESS:
            self._write(start)
            self._done()
        elif not isinstance(body, bytes | list) and body.slow:
            self._write(start)
            reader = ThreadReader(body.open())
            self._task = self.server.loop.create_task(self._send_later(request, reader))
        elif small:
            self._write(start + body)  # type: ignore[operator]
            self._done()
        else:
            self._write(start)
            self._flush()
            self._begin_body()
            self._reader = BytesReader(body) if isinstance(body, bytes | list) else body.open()
            self._write_body()

    def _begin_body(self) -> None:
        self._started = monotonic()
        self._sent = 0

    async def _compress(self, request: HttpRequest, response: HttpResponse) -> None:
        headers = [*response.headers, (b"Content-Encoding", b"gzip"), (b"Vary", b"Accept-Encoding")]
        body = response.body
        if not isinstance(body, bytes | list) or body_size(body) > _COMPRESSED_AT_ONCE:
            await self._send_compressed(request, response.status, headers, body)
            return
        try:
            compressed = await self.server.loop.run_in_executor(None, gzip, body)
            response = HttpResponse(response.status, headers, compressed, owner=response.owner)
        except Exception as error:
            response = handler_failure(request, error)
        self._task = None
        if self.transport is not None:
            self._respond(request, response)  # it is already encoded, or small
            self._advance()

    async def _send_compressed(
        self,
        request: HttpRequest,
        status: int,
        headers: Headers,
        body: bytes | list[bytes] | LazyBody,
    ) -> None:
        keep = self._keep_alive = (
            request.keep_alive and not request.http10 and not self.server.stopping
        )
        tail = b"\r\n" if request.http10 else b"Transfer-Encoding: chunked\r\n\r\n"
        if not keep:
            tail = b"Connection: close\r\n" + tail
        self._chunked = not request.http10
        self._write(head(status, headers, self.server.date.line, tail))
        reader = (
            GzipReader(BytesReader(body))
            if isinstance(body, bytes | list)
            else GzipReader(body.open(), body.slow)
        )
        await self._send_later(request, reader, _COMPRESSED_WINDOWS)

    async def _send_later(
        self, request: HttpRequest, reader: GzipReader | ThreadReader, windows: int = 1
    ) -> None:
        """Writes a body that is made in a thread, one piece at a time, each after the client has
        read the previous one.
        """
        self._begin_body()
        try:
            while self.transport is not None:
                piece = await reader.next(self.server.loop, windows * self.window())
                if not piece or self.transport is None:
                    break
                self._sent += len(piece)
                self.transport.write(encode_chunk(piece) if self._chunked else piece)
                await self._writes_resumed()
        except Exception:
            log.exception("encoding the answer to %r failed", request)
            self.abort()
        self._task = None
        if self.transport is not None:
            if self._chunked:
                self.transport.write(END_OF_STREAM)
            self._done()
            self._advance()

    async def _writes_resumed(self) -> None:
        while self.write_paused and self.transport is not None:
            self._writable = self.server.loop.create_future()
            try:
                await self._writable
            finally:
                self._writable = None
            if self._too_slow():
                self._drop_reader()

    def _wake_writer(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def _write_body(self) -> None:
        left, until = TURN_BYTES, monotonic() + TURN_SECONDS
        while self._reader is not None and not self.write_paused and self.transport is not None:
            try:
                piece = self._reader.read(self.window())
            except Exception:
                log.exception("encoding the answer to %s failed", self._remote)
                self.abort()
                return
            if not piece:
                self._reader = None
                if self._chunked:
                    self.transport.write(END_OF_STREAM)
                self._done()
                if not self._feeding:
                    self._advance()
                return
            self._sent += len(piece)
            self.transport.write(encode_chunk(piece) if self._chunked else piece)
            left -= len(piece)
            if left <= 0 or monotonic() > until:
                self.server.loop.call_soon(self._write_body)
                return

    def _start_stream(self, request: HttpRequest, answer: StreamResponse) -> None:
        self._keep_alive = request.keep_alive and not request.http10 and not self.server.stopping
        self._owner = answer.owner
        limits = self.server.limits
        self._stall = limits.stall_timeout if answer.resumable else limits.stream_stall_timeout
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

    def write_stream(self, data: Buffer) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def guarded_read(
        self, source: StreamSource, size: int
    ) -> Sequence[Buffer] | asyncio.Future[Any] | None:
        try:
            return source.read(size)
        except Exception:
            log.exception("encoding a stream to %s failed", self._remote)
            self.abort()
            return None

    def stream_ended(self, stream: object) -> None:
        """The handler closed its stream."""
        if self._stream is not stream or self.transport is None:
            return
        self._stream = None
        if not self.stream_is_plain:
            self.transport.write(END_OF_STREAM)
        self._done()
        if not self._feeding:
            self._advance()

    def drop_stream(self, stream: LiveStream, reason: str) -> None:
        log.info(
            "closing the stream to %s: %s (%d bytes wait for it)",
            self._remote,
            reason,
            stream.buffered,
        )
        self._stream = None
        self._guarded(stream.lost)
        self._reset()

    def _start_raw(self, request: HttpRequest, answer: UpgradeResponse) -> None:
        if self._early is None:
            log.error("%r was answered with an upgrade it did not ask for", request)
            self._respond(request, status_response(errors.bad_request("upgrade request required")))
            return
        line = head(answer.status, answer.headers, self.server.date.line, b"\r\n")
        self._write(line)
        self._flush()
        early, self._early = self._early, None
        self.deadline = NEVER
        self._owner = answer.owner
        self._stall = self.server.limits.stream_stall_timeout
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

    def drop(self) -> None:
        """Drops a client that does not read, because its memory is needed. For the server."""
        if self._stream is not None:
            self.drop_stream(self._stream, "too many bytes wait for clients that do not read")
        else:
            self._drop_reader()


def handler_failure(request: HttpRequest, error: Exception) -> HttpResponse:
    if isinstance(error, ApiError):
        return status_response(error)
    log.error("the handler failed on %r", request, exc_info=error)
    return status_response(
        errors.internal("this request caused the API server to fail, its log has the details")
    )
