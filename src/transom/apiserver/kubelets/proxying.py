"""HTTP to a pod, a service or a node through this server.

The client sees the other side's answer as if it came from below the proxy's path: redirects and links of pages are made
to lead there.
"""

from __future__ import annotations

import asyncio
import zlib

from transom.apiserver import passing
from transom.apiserver.kubelets import html, requests
from transom.apiserver.kubelets.addresses import Outside, clean, escape_path
from transom.apiserver.kubelets.locations import Location, plain_error
from transom.apiserver.kubelets.way import Way
from transom.http.body import BodyStream
from transom.http.messages import Answer, Headers, Request, Response
from transom.http.outgoing import CallError, Head, Outgoing, Target

_CACHE = (b"Cache-Control", b"no-cache, private")
_CORS = frozenset((
    b"access-control-allow-credentials", b"access-control-allow-headers", b"access-control-allow-methods",
    b"access-control-allow-origin",
))  # fmt: skip
_LARGEST_PAGE = 64 * 1024 * 1024
_REPEATABLE = ("GET", "HEAD", "OPTIONS")
_WBITS = {"gzip": 31, "deflate": -15}


async def serve(way: Way, request: Request, location: Location, path: str) -> Answer:
    """`path` is what the client wants there: empty when it did not even say `/`."""
    path = clean(path)
    if passing.wants_upgrade(request):
        return await _upgraded(way, request, location, path)
    if not path.endswith("/") and request.path.endswith("/"):
        path += "/"
    query = request.target.partition(b"?")[2].decode("latin-1")
    if not path:
        return Response(301, [_CACHE, (b"Location", (request.path + "/" + (f"?{query}" if query else "")).encode())])
    outside = Outside(request.path.removesuffix(path), location.authority, request.header(b"host"))
    lines = requests.forwarded(request, upgrade=False)
    lines = [line for line in lines if line[0] != b"X-Forwarded-Uri"]
    lines.append((b"X-Forwarded-Uri", outside.forwarded_uri(path).encode()))
    target = escape_path(path if path.startswith("/") else f"/{path}") + (f"?{query}" if query else "")
    try:
        connection, head = await _exchange(way, request, way.target(location), target, lines)
        return await _answer(way, request, connection, head, outside)
    except CallError as problem:
        raise plain_error(f"error trying to reach service: {problem}") from problem


async def _upgraded(way: Way, request: Request, location: Location, path: str) -> Answer:
    """The query does not come along: Kubernetes' proxy drops it here."""
    lines = requests.forwarded(request, upgrade=True)
    raw = requests.encode(request.method, escape_path(path) or "/", request.header(b"host"), lines, request.body)
    try:
        connection, head = await way.pool.begin(way.target(location), raw, repeatable=False)
    except CallError as problem:
        raise plain_error(f"error dialing backend: {problem}") from problem
    if head.status == 101:
        return passing.upgraded(connection, head)
    if head.status < 400:
        connection.abort()
        raise plain_error(f"invalid upgrade response: status code {head.status}")
    return await passing.answer(connection, head, passing.headers(head), way.pool)


# ---- there -----------------------------------------------------------------------------------------------------------


async def _exchange(
    way: Way, request: Request, there: Target, target: str, lines: requests.Lines
) -> tuple[Outgoing, Head]:
    host, bodiless = request.header(b"host"), request.method == "HEAD"
    if request.stream is None:
        raw = requests.encode(request.method, target, host, lines, request.body)
        repeatable = request.method in _REPEATABLE
        return await way.pool.begin(there, raw, repeatable=repeatable, bodiless=bodiless)
    length = request.headers.get(b"content-length")
    lines.append((b"Content-Length", length) if length is not None else (b"Transfer-Encoding", b"chunked"))
    connection = await way.pool.open(there)
    sending = asyncio.get_running_loop().create_task(_send(connection, request.stream, chunked=length is None))
    sending.add_done_callback(lambda task: task.cancelled() or task.exception())
    try:
        head = await connection.send(requests.encode(request.method, target, host, lines), bodiless=bodiless)
    except BaseException:
        sending.cancel()
        raise
    if not sending.done():  # it goes on until the answer is through
        connection.spend()
    return connection, head


async def _send(connection: Outgoing, body: BodyStream, *, chunked: bool) -> None:
    """The client's body, at the pace of the slower side."""
    try:
        while piece := await body.read():
            await connection.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            await connection.write(b"0\r\n\r\n")
    except ConnectionError:
        connection.abort()  # the client broke off; half a body must not pass for a whole one


# ---- and back --------------------------------------------------------------------------------------------------------


async def _answer(way: Way, request: Request, connection: Outgoing, head: Head, outside: Outside) -> Answer:
    headers = _headers(head, outside)
    bodiless = request.method == "HEAD"
    media = head.header(b"content-type").partition(";")[0].strip()
    encoding = head.header(b"content-encoding")
    if head.header(b"location") or media != "text/html" or bodiless or (encoding and encoding not in _WBITS):
        return await passing.answer(connection, head, headers, way.pool, bodiless=bodiless)
    body = await connection.read_all(_LARGEST_PAGE)
    way.pool.give_back(connection)
    try:
        return Response(head.status, headers, _page(body, _WBITS.get(encoding), outside))
    except zlib.error as problem:
        raise CallError(f"errorf making {encoding} reader: {problem}") from problem


def _headers(head: Head, outside: Outside) -> Headers:
    dropped = {word.strip().lower().encode() for word in head.header(b"connection").split(",")} | _CORS
    headers: Headers = [_CACHE]
    for name, value in passing.headers(head):
        small = name.lower()
        if small == b"location" and value:
            value = outside.rewrite(value.decode("latin-1")).encode("latin-1", "replace")
        if small not in dropped:
            headers.append((name, value))
    return headers


def _page(body: bytes, packing: int | None, outside: Outside) -> bytes:
    if packing is not None:
        body = zlib.decompress(body, packing)
    page = html.rewrite(body.decode(errors="surrogateescape"), outside.rewrite).encode(errors="surrogateescape")
    if packing is None:
        return page
    packer = zlib.compressobj(wbits=packing)
    return packer.compress(page) + packer.flush()
