"""Answers of others handed on to the client: whole, piece by piece, or as a connection that was upgraded.

Shared by whatever stands between a client and another server. Says nothing about errors: CallError comes through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from transom.http.encode import GZIP_THRESHOLD
from transom.http.messages import Answer, Headers, Request, Response, StreamResponse, Unsent, UpgradeResponse
from transom.http.outgoing import CallError, Head, Outgoing
from transom.http.pool import Pool
from transom.http.stream import Stream
from transom.http.upgraded import Upgraded, splice

HOP_BY_HOP = frozenset((
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
))
_OWN = HOP_BY_HOP | {b"content-length", b"date"}  # said again by this server
_WHOLE = GZIP_THRESHOLD  # smaller answers are not worth a stream, and this server packs none of those


def wants_upgrade(request: Request) -> bool:
    return "upgrade" in request.header(b"connection").lower()


def headers(head: Head) -> Headers:
    return [(k, v) for k, v in head.headers if k.lower() not in _OWN]


async def answer(connection: Outgoing, head: Head, headers: Headers, pool: Pool, *, bodiless: bool = False) -> Answer:
    """A small answer of known size is read first; everything else flows through. `bodiless`: the request is a HEAD."""
    length = head.length
    if bodiless:
        pool.give_back(connection)
        return Response(head.status, headers, Unsent(length or 0))
    if length is not None and length <= _WHOLE:
        body = await connection.read_all(_WHOLE)
        pool.give_back(connection)
        return Response(head.status, headers, body)
    return through(connection, head.status, headers, pool, length)


def through(
    connection: Outgoing, status: int, headers: Headers, pool: Pool, length: int | None = None
) -> StreamResponse:
    """What comes, as it comes. A reader who is behind holds up the source."""

    def start(stream: Stream) -> None:
        keep(stream, _pump(connection, stream, pool))

    answer = StreamResponse(status, headers, start, length)
    unless_started(answer, connection.abort)
    return answer


def unless_started(answer: StreamResponse | UpgradeResponse, drop: Callable[[], None]) -> None:
    """`drop` is for an answer whose client went away before it was there."""
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


def keep(stream: Stream, work: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine as long as the stream has a reader."""
    task = asyncio.get_running_loop().create_task(work)
    _PUMPS.add(task)
    task.add_done_callback(_PUMPS.discard)
    stream.on_close = task.cancel


_PUMPS: set[asyncio.Task[None]] = set()  # the loop itself holds tasks only weakly


async def _pump(connection: Outgoing, stream: Stream, pool: Pool) -> None:
    try:
        while data := await connection.read():
            stream.write(data)
            await stream.drained()
    except CallError:
        stream.abort()  # the client must not take what came so far for the whole
        return
    except asyncio.CancelledError:
        connection.abort()
        raise
    stream.close()
    pool.give_back(connection)


def upgraded(connection: Outgoing, head: Head) -> UpgradeResponse:
    """Bytes both ways until either side ends."""
    there = Upgraded(connection)
    sent = [(k, v) for k, v in head.headers if k.lower() not in (b"content-length", b"date")]
    answer = UpgradeResponse(sent, lambda raw: splice(raw, there))
    unless_started(answer, there.close)
    return answer
