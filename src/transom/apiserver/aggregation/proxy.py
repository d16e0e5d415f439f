"""A request handed on to an aggregated API server, and its answer handed back: whole, as a stream, or upgraded.

The user was authenticated and authorized here; the other server learns who it is from front-proxy headers, which it
believes because of this server's client certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from transom.apiserver import respond
from transom.apiserver.context import User
from transom.http import goerrors
from transom.http.goerrors import join_host_port
from transom.http.messages import Answer, Headers, Request, Response, StreamResponse, UpgradeResponse
from transom.http.outgoing import CallError, Head, Outgoing, Target
from transom.http.pool import Pool
from transom.http.stream import RawConnection, Stream

_HOP_BY_HOP = frozenset((
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
))
_DROPPED = _HOP_BY_HOP | {b"authorization", b"content-length", b"expect", b"host", b"x-remote-user", b"x-remote-group"}
_OWN = _HOP_BY_HOP | {b"content-length", b"date"}  # of an answer: said again by this server
_CORS = b"access-control-"
_WHOLE = 256 * 1024  # answers up to this size are not worth a stream
_DISCOVERY_SECONDS = 5.0
_REPEATABLE = ("GET", "HEAD", "OPTIONS")
_TOKEN = frozenset(b"!#$&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def user_headers(user: User) -> Iterable[tuple[str, str]]:
    yield "X-Remote-User", user.name
    for group in user.groups:
        yield "X-Remote-Group", group
    for key, values in user.extra.items():
        name = "".join(chr(b) if b in _TOKEN else f"%{b:02X}" for b in key.encode())
        for value in values:
            yield f"X-Remote-Extra-{name}", value


def outgoing_request(request: Request, user: User, target: Target, upgrade: bool) -> bytes:
    host = join_host_port(target.host, target.port)
    lines = [f"{request.method} ".encode() + request.target + b" HTTP/1.1", f"Host: {host}".encode()]
    for name, value in request.headers.items():
        if name in _DROPPED or name.startswith((b"impersonate-", b"x-remote-extra-", b"x-forwarded-")):
            continue
        lines.append(name + b": " + value)
    before = request.header(b"x-forwarded-for")
    seen_from = f"{before}, {request.remote}" if before else request.remote
    added = [("X-Forwarded-For", seen_from), ("X-Forwarded-Host", host), ("X-Forwarded-Proto", "https"),
             ("X-Forwarded-Uri", request.path), *user_headers(user)]
    if upgrade:
        added += [("Connection", "Upgrade"), ("Upgrade", request.header(b"upgrade"))]
    lines += [f"{name}: {_clean(value)}".encode() for name, value in added]
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        lines.append(b"Content-Length: %d" % len(request.body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + request.body


def _clean(value: str) -> str:
    return value.replace("\r", " ").replace("\n", " ")


def unavailable() -> Response:
    return respond.plain_text(503, "service unavailable\n")


def is_discovery(path: str) -> bool:
    return len(path.strip("/").split("/")) == 3


async def forward(request: Request, user: User, target: Target, pool: Pool) -> Answer:
    upgrade = b"upgrade" in request.header(b"connection").lower().encode() and bool(request.header(b"upgrade"))
    raw = outgoing_request(request, user, target, upgrade)
    head_only = request.method == "HEAD"
    repeatable = request.method in _REPEATABLE and not upgrade
    within = asyncio.timeout(_DISCOVERY_SECONDS if is_discovery(request.path) else None)
    try:
        async with within:
            connection, head = await pool.begin(target, raw, repeatable=repeatable, bodiless=head_only)
    except TimeoutError:
        return _failed(goerrors.DEADLINE, upgrade)
    except CallError as problem:
        return _failed(str(problem), upgrade)
    if upgrade and head.status < 400:
        return _upgraded(connection, head)
    return await _answered(connection, head, pool)


def _failed(why: str, upgrade: bool) -> Response:
    what = "error dialing backend" if upgrade else "error trying to reach service"
    return respond.plain_text(503, f"{what}: {why}\n")


def _headers(head: Head) -> Headers:
    return [(k, v) for k, v in head.headers if k.lower() not in _OWN and not k.lower().startswith(_CORS)]


async def _answered(connection: Outgoing, head: Head, pool: Pool) -> Answer:
    """A small answer of known size is read first; everything else flows through."""
    headers = _headers(head)
    size = head.header(b"content-length")
    if head.status in (204, 304) or (size.isdigit() and int(size) <= _WHOLE):
        try:
            body = await connection.read_all(_WHOLE)
        except CallError as problem:
            return _failed(str(problem), False)
        pool.give_back(connection)
        return Response(head.status, headers, body)
    return StreamResponse(head.status, headers, lambda stream: _start(connection, stream, pool))


def _start(connection: Outgoing, stream: Stream, pool: Pool) -> None:
    task = asyncio.get_running_loop().create_task(_pump(connection, stream, pool))
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


def _upgraded(connection: Outgoing, head: Head) -> Answer:
    if head.status != 101:
        connection.abort()
        return respond.plain_text(503, f"invalid upgrade response: status code {head.status}\n")
    headers = [(k, v) for k, v in head.headers if k.lower() not in (b"content-length", b"date")]
    return UpgradeResponse(headers, lambda raw: _join(connection, raw))


def _join(connection: Outgoing, raw: RawConnection) -> None:
    """Bytes both ways until either side ends."""
    task = asyncio.get_running_loop().create_task(_both_ways(connection, raw))
    _PUMPS.add(task)
    task.add_done_callback(_PUMPS.discard)


async def _both_ways(connection: Outgoing, raw: RawConnection) -> None:
    loop = asyncio.get_running_loop()
    incoming: asyncio.Queue[bytes] = asyncio.Queue()
    writable = asyncio.Event()
    raw.on_close = lambda: incoming.put_nowait(b"")
    raw.on_writable = writable.set

    def received(data: bytes) -> None:
        raw.pause_reading()  # until the other side has taken it
        incoming.put_nowait(data)

    async def outward() -> None:
        while data := await incoming.get():
            await connection.write(data)
            if incoming.empty():
                raw.resume_reading()

    async def inward() -> None:
        while data := await connection.read():
            raw.write(data)
            while raw.alive and not raw.writable:
                writable.clear()
                await writable.wait()

    raw.receive(received)
    tasks = [loop.create_task(outward()), loop.create_task(inward())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(CallError):
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result
        connection.abort()
        raw.close()
