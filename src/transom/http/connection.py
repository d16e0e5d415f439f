"""One client connection: bytes -> requests -> handler -> responses, in order.

A handler that responds synchronously runs inside the read callback, without a task; any other runs
in one task while further pipelined requests wait in a queue. The layers below are the transport
(`connection_base`), responses (`connection_writer`) and requests (`connection_reader`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from time import monotonic
from typing import Any

import httptools

from transom.http.connection_base import (
    FOR_BODY,
    FOR_CLOSE,
    FOR_HEAD,
    FOR_READER,
    FOR_REQUEST,
    NEVER,
    NO_DEADLINE,
)
from transom.http.connection_reader import (
    BODY,
    DISCARD,
    HEAD,
    IDLE,
    IGNORE,
    RequestReader,
    bad_request_response,
    head_too_large,
)
from transom.http.connection_writer import handler_failure
from transom.http.encode import CONTINUE, END_OF_STREAM, head, status_response
from transom.http.interfaces import ConnectionHost
from transom.http.messages import (
    Answer,
    HttpRequest,
    HttpResponse,
    StreamResponse,
    UpgradeResponse,
    body_bytes,
)
from transom.http.tls import peer_certificate
from transom.machinery import errors
from transom.machinery.errors import ApiError

log = logging.getLogger("transom.http")

_SERVED_IN_A_ROW = 32  # requests of one connection that are served before other tasks run
_EARLY_LIMIT = 64 * 1024
_FRAMING = 8  # how many times larger than its data a body with tiny chunks may be
_QUEUED_BYTES = 4 * 1024 * 1024
_READER_CHECKS = 9  # checks of a client before it counts as stalled
_LONG_READ = 0.005  # seconds; after a longer one, other connections have their turn
_REASONS = {
    "Invalid header value char": "invalid header value",
    "Invalid HTTP version": "unsupported protocol version",
}


class HttpConnection(RequestReader):
    __slots__ = (
        "_in_a_row",
        "_pending",
        "_turn_due",
    )

    def __init__(self, server: ConnectionHost) -> None:
        super().__init__(server)
        self._in_a_row = 0  # requests that were served synchronously since the last read
        self._turn_due = False
        self._pending: HttpRequest | None = None  # the request in progress

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        address = transport.get_extra_info("peername")
        self._remote = str(address[0]) if isinstance(address, tuple) else ""
        self._peer = peer_certificate(transport)
        self.window()
        if self.server.admit(self):
            self._arm(FOR_REQUEST, self.server.limits.idle_timeout)
        else:
            full = "the server has too many open connections"
            self._refuse(
                errors.service_unavailable(
                    "the server is stopping" if self.server.stopping else full
                )
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.forget(self)
        self.transport = None
        self.deadline = NEVER
        self._parser = None  # breaks the reference cycle
        self._queue.clear()
        self._reader = None
        self.lower = None
        self.server.budget.release(self)
        self._release_body()
        self._wake_writer()
        stream, self._stream = self._stream, None
        raw, self._raw = self._raw, None
        for ended in (stream, raw):
            if ended is not None:
                self._guarded(ended.lost)
        if self._pending is not None:
            self._pending.gone = True
        self._abort_body()
        self._ended()

    def eof_received(self) -> bool:
        if self._raw is not None and self._raw.on_eof is not None:
            self._guarded(self._raw.on_eof)
        return False

    def data_received(self, data: bytes) -> None:
        if self._raw is not None:
            self._raw.feed(data)
            return
        if self._state == IGNORE:
            return
        if self._early is not None:
            self._early += data
            if len(self._early) > _EARLY_LIMIT:
                self.pause_reading()
            return
        self._received = monotonic()
        self._head_size += len(data)
        self._feeding = True
        self._in_a_row = 0
        self._seen = self._seen + data if self._state == HEAD else data
        self._seen_at = 0
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
                self._refuse(bad_request_response(_REASONS.get(str(error), "")))
            else:
                self._input_ended()
        finally:
            self._feeding = False
        if self._state != HEAD:
            self._seen = b""
        if self._early is not None:
            self._complete()
            self._advance()
        if self._out:
            self._flush()
        self._after_read()
        if monotonic() - self._received > _LONG_READ:
            self.read_later()

    def _after_read(self) -> None:
        """Sets the deadline for the connection's current state."""
        state = self._state
        if self.transport is None or self._answered_close:
            return
        if state == HEAD and self._head_size > self.server.limits.head:
            self._refuse(head_too_large(), IGNORE)
        elif (
            state == BODY
            and self._head_size > self.server.limits.head + _FRAMING * self.server.limits.body
        ):
            # only framing: chunk extensions, trailers
            self._refuse(errors.too_large(self.server.limits.body), IGNORE)
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
        self.server.budget.hold(self, self._owner, self.buffered(), monotonic())
        if self._deadline_for != FOR_CLOSE:
            self._acked = self._acknowledged()
            if self._stream is None and self._raw is None:
                self._stall = self.server.limits.stall_timeout
            self._progressed = monotonic()
            self._arm(FOR_READER, self._stall / _READER_CHECKS)

    def resume_writing(self) -> None:
        self.write_paused = False
        self.server.budget.release(self)
        if self._deadline_for == FOR_READER:
            self._deadline_for = NO_DEADLINE
            self.deadline = NEVER
        if self._reader is not None:
            if self._too_slow():
                self._drop_reader()
            else:
                self._write_body()
        elif self._writable is not None:
            self._wake_writer()
        elif self._stream is not None:
            self._stream.resume()
        elif self._raw is not None:
            self._guarded(self._raw.writes_resumed)
        else:
            self._advance()

    def _submit(self, item: HttpRequest | ApiError | HttpResponse) -> None:
        if self._answered_close:
            return
        if not (
            self._busy or self.write_paused or self._queue or self._in_a_row >= _SERVED_IN_A_ROW
        ):
            self._in_a_row += 1
            self._serve(item)
            return
        self._queue.append(item)
        if not (self._busy or self.write_paused):
            self._serve_later()
        if type(item) is HttpRequest:
            self._queued_bytes += len(item.body)
        if len(self._queue) >= self.server.limits.pipelined or self._queued_bytes > _QUEUED_BYTES:
            self.pause_reading()

    def _advance(self) -> None:
        """Serves queued requests as far as possible; called when a response completes outside the
        read callback.
        """
        queue = self._queue
        served = 0
        while queue and not (self._busy or self.write_paused or self._answered_close):
            if served == _SERVED_IN_A_ROW:
                self._serve_later()
                return
            served += 1
            item = queue.popleft()
            if type(item) is HttpRequest:
                self._queued_bytes -= len(item.body)
            self._serve(item)
        if self._busy or self.write_paused or self._answered_close or self.transport is None:
            return
        if self._continue_due:
            self._continue_due = False
            self._write(CONTINUE)
        self._deadline_for = NO_DEADLINE
        self._received = monotonic()
        if self._early is not None:
            self.server.loop.call_soon(self._continue_without_upgrade)
            return
        self.resume_reading()
        self._after_read()

    def _serve_later(self) -> None:
        """Yields to the loop, so that a client that sends many requests at once does not block the
        others.
        """
        if not self._turn_due:
            self._turn_due = True
            self.server.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_due = False
        if self.transport is not None:
            self._advance()

    def _continue_without_upgrade(self) -> None:
        """The handler sent an ordinary response: the bytes after the request are the next one."""
        if self.transport is None or self._early is None:
            return
        early, self._early = self._early, None
        self._parser = httptools.HttpRequestParser(self)  # the old one has stopped
        self.resume_reading()
        if early:
            self.data_received(early)
        else:
            self._after_read()

    def _serve(self, item: HttpRequest | ApiError | HttpResponse) -> None:
        if not isinstance(item, HttpRequest):
            self._answer_and_close(item)
            return
        self._busy = True
        self.deadline = NEVER
        self._deadline_for = NO_DEADLINE
        answer: Answer | Awaitable[Answer]
        try:
            answer = self.server.handler(item)
        except Exception as error:
            answer = handler_failure(item, error)
        if type(answer) is HttpResponse:
            self._on_end = answer.on_end
            self._respond(item, answer)
        elif isinstance(answer, HttpResponse | StreamResponse | UpgradeResponse):
            self._on_end = answer.on_end
            self._answer(item, answer)
        else:
            self._pending = item
            self._task = self.server.loop.create_task(self._await(item, answer))

    async def _await(self, request: HttpRequest, awaitable: Awaitable[Answer]) -> None:
        try:
            answer = await awaitable
        except Exception as error:
            answer = handler_failure(request, error)
        self._task = self._pending = None
        self._on_end = answer.on_end
        if self.transport is not None:
            self._answer(request, answer)
            self._advance()
        else:
            self._ended()

    def _answer(self, request: HttpRequest, answer: Answer) -> None:
        if isinstance(answer, HttpResponse):
            self._respond(request, answer)
        elif isinstance(answer, StreamResponse):
            self._start_stream(request, answer)
        else:
            self._start_raw(request, answer)

    def _ended(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            self._guarded(on_end)

    def _done(self) -> None:
        self._busy = False
        if self._sink is not None:
            self._sink.drop()
        if self._on_end is not None:
            self._ended()
        if self._charged and not self._queue and not self._body:
            self._release_body()
        if not self._keep_alive:
            self._answered_close = True
            if self._linger:
                self._arm(FOR_CLOSE, self.server.limits.linger)
            else:
                self.close()

    def _answer_and_close(self, error: ApiError | HttpResponse) -> None:
        response = error if isinstance(error, HttpResponse) else status_response(error)
        body = body_bytes(response.body)
        tail = b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        self._write(head(response.status, response.headers, self.server.date.line, tail) + body)
        self._answered_close = True
        self._arm(FOR_CLOSE, self.server.limits.linger)
        if not self._linger:
            self.close()

    def expire(self) -> None:
        """The deadline has passed. For the server."""
        about = self._deadline_for
        self.deadline = NEVER
        if about in (FOR_HEAD, FOR_BODY):
            what = "header" if about == FOR_HEAD else "body"
            self._refuse(
                ApiError(408, "Timeout", f"the client did not send the request {what} in time")
            )
        elif about == FOR_REQUEST:
            self.close()
        elif about == FOR_READER:
            self._check_reader()
        else:
            self.abort()

    def _check_reader(self) -> None:
        """Runs periodically while a client is behind: closes the connection if it has read nothing,
        or too little, for too long.
        """
        acked, now = self._acknowledged(), monotonic()
        if acked > self._acked:
            self._acked, self._progressed = acked, now
            self.server.budget.progress(self, now)
        streaming = self._stream is not None or self._raw is not None
        if now - self._progressed < self._stall and (streaming or not self._too_slow()):
            self._arm(FOR_READER, self._stall / _READER_CHECKS)
        elif self._stream is not None:
            self.drop_stream(
                self._stream, f"its client has read nothing for {self._stall:g} seconds"
            )
        else:
            self._drop_reader()

    def shut_down(self) -> None:
        """The server stops: ends the stream cleanly, finishes the running request, closes
        everything else immediately.
        """
        stream = self._stream
        if stream is not None:
            self._keep_alive = False
            self._stream = None
            stream.cut()
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
