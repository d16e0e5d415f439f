"""Relays responses of other servers to the client: whole, streamed, or as an upgraded connection.

Shared by all proxies. Does not handle errors: CallError propagates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from transom.http.encode import GZIP_THRESHOLD
from transom.http.messages import (
    Answer,
    Headers,
    HttpRequest,
    HttpResponse,
    ResponseStream,
    StreamResponse,
    Unsent,
    UpgradeResponse,
)
from transom.http.outgoing import CallError, OutgoingConnection, ResponseHead
from transom.http.pool import ConnectionPool
from transom.http.upgraded import Upgraded, splice

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_OWN = HOP_BY_HOP | {b"content-length", b"date"}  # this server sends its own
_WHOLE = GZIP_THRESHOLD  # smaller responses are not worth a stream, and are not compressed


_PATH_SAFE = "$&+,/:;=@-_.~"


def escape_path(path: str) -> str:
    """A decoded path, escaped for a request like Go does."""
    return quote(path, safe=_PATH_SAFE)


def wants_upgrade(request: HttpRequest) -> bool:
    return "upgrade" in request.header(b"connection").lower()


def relayed_headers(head: ResponseHead) -> Headers:
    return [(k, v) for k, v in head.headers if k.lower() not in _OWN]


async def relay_response(
    connection: OutgoingConnection,
    head: ResponseHead,
    headers: Headers,
    pool: ConnectionPool,
    *,
    bodiless: bool = False,
) -> Answer:
    """Reads a small response of known size first; streams everything else. `bodiless`: the request
    is a HEAD.
    """
    length = head.length
    if head.status == 101:  # unexpected: the following bytes are not part of a response
        connection.abort()
        raise CallError("unexpected 101 Switching Protocols response")
    if bodiless:
        pool.give_back(connection)
        return HttpResponse(head.status, headers, Unsent(length or 0))
    if length is not None and length <= _WHOLE:
        body = await connection.read_all(_WHOLE)
        pool.give_back(connection)
        return HttpResponse(head.status, headers, body)
    return relay_stream(connection, head.status, headers, pool, length)


def relay_stream(
    connection: OutgoingConnection,
    status: int,
    headers: Headers,
    pool: ConnectionPool,
    length: int | None = None,
    read: bytes = b"",
) -> StreamResponse:
    """Relays data as it arrives, after the data that was read already. A slow reader pauses the
    source.
    """

    def start(stream: ResponseStream) -> None:
        run_while_read(stream, _pump(connection, stream, pool, read))

    answer = StreamResponse(status, headers, start, length)
    unless_started(answer, connection.abort)
    return answer


def unless_started(answer: StreamResponse | UpgradeResponse, drop: Callable[[], None]) -> None:
    """`drop` is for a response whose client disconnected before it was ready."""
    begin = answer.start
    started = False

    def start(there: Any) -> None:
        nonlocal started
        started = True
        begin(there)

    def ended() -> None:
        if not started:
            drop()

    answer.start, answer.on_end = start, ended


def run_while_read(stream: ResponseStream, work: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine as long as the stream has a reader."""
    task = asyncio.get_running_loop().create_task(work)
    _PUMPS.add(task)
    task.add_done_callback(_PUMPS.discard)
    stream.on_close = task.cancel


_PIECE = 64 * 1024
_PUMPS: set[asyncio.Task[None]] = set()  # the loop holds only weak references to tasks


async def _pump(
    connection: OutgoingConnection, stream: ResponseStream, pool: ConnectionPool, read: bytes = b""
) -> None:
    try:
        # a stream with more than a window of unsent bytes is cut off
        for start in range(0, len(read), _PIECE):
            stream.write(read[start : start + _PIECE])
            await stream.drained()
        while data := await connection.read():
            stream.write(data)
            await stream.drained()
    except CallError:
        stream.abort()  # the client must not mistake the partial data for the whole
        return
    except asyncio.CancelledError:
        connection.abort()
        raise
    stream.close()
    pool.give_back(connection)


def relay_upgraded(connection: OutgoingConnection, head: ResponseHead) -> UpgradeResponse:
    """Relays bytes both ways until either side ends."""
    there = Upgraded(connection)
    sent = [(k, v) for k, v in head.headers if k.lower() not in (b"content-length", b"date")]
    answer = UpgradeResponse(sent, lambda raw: splice(raw, there))
    unless_started(answer, there.close)
    return answer
