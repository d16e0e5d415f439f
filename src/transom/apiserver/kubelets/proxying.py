"""Proxies HTTP to a pod, a service or a node.

The client sees the target's response as if it came from below the proxy's path: redirects and links
in pages are rewritten.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from transom.apiserver.kubelets import html, requests
from transom.apiserver.kubelets.addresses import ExternalLocation, clean_path
from transom.apiserver.kubelets.locations import ProxyLocation, plain_location_error
from transom.apiserver.kubelets.transport import KubeletTransport
from transom.http import relay as passing
from transom.http.body import BodyStream
from transom.http.encode import END_OF_STREAM
from transom.http.messages import Answer, Headers, HttpRequest, HttpResponse, encode_chunk
from transom.http.outgoing import CallError, CallTarget, OutgoingConnection, ResponseHead
from transom.http.relay import escape_path
from transom.machinery import errors
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour

_CACHE = (b"Cache-Control", b"no-cache, private")
_CORS = frozenset(
    (
        b"access-control-allow-credentials",
        b"access-control-allow-headers",
        b"access-control-allow-methods",
        b"access-control-allow-origin",
    )
)
# Links are rewritten in pages up to this decompressed size; larger or slow pages are passed
# unchanged.
_LARGEST_PAGE = 8 * 1024 * 1024
_PAGE_SECONDS = 10.0
_SMALL_PAGE = 16 * 1024  # rewritten immediately; larger ones in a thread, one at a time
_REPEATABLE = ("GET", "HEAD", "OPTIONS")
_WBITS = {"gzip": 31, "deflate": -15}


async def serve_proxy(
    transport: KubeletTransport,
    request: HttpRequest,
    location: ProxyLocation,
    path: str,
    release: Release,
) -> Answer:
    """`path` is the path on the target: empty if the client's path has no `/`."""
    path = clean_path(path)
    if passing.wants_upgrade(request):
        return await _upgraded(transport, request, location, path)
    if not path.endswith("/") and request.path.endswith("/"):
        path += "/"
    query = request.target.partition(b"?")[2].decode("latin-1")
    if not path and _is_redirected(request.method, release):
        return HttpResponse(
            301,
            [_CACHE, (b"Location", (request.path + "/" + (f"?{query}" if query else "")).encode())],
        )
    outside = ExternalLocation(
        request.path.removesuffix(path), location.authority, request.header(b"host")
    )
    lines = requests.forwarded_headers(request, upgrade=False)
    lines = [line for line in lines if line[0] != b"X-Forwarded-Uri"]
    lines.append((b"X-Forwarded-Uri", outside.forwarded_uri(path).encode()))
    target = escape_path(path if path.startswith("/") else f"/{path}") + (
        f"?{query}" if query else ""
    )
    try:
        connection, head = await _exchange(
            transport, request, await transport.target(location), target, lines
        )
        return await _answer(transport, request, connection, head, outside)
    except CallError as problem:
        message = f"error trying to reach service: {problem}"
        if has_behaviour(release, "ProxyServiceUnavailable"):
            raise errors.service_unavailable(message) from problem
        raise plain_location_error(message) from problem


def _is_redirected(method: str, release: Release) -> bool:
    return method in ("GET", "HEAD") or not has_behaviour(release, "ProxyRedirectsReads")


async def _upgraded(
    transport: KubeletTransport, request: HttpRequest, location: ProxyLocation, path: str
) -> Answer:
    """The query is dropped, as in Kubernetes' proxy."""
    lines = requests.forwarded_headers(request, upgrade=True)
    raw = requests.encode_kubelet_request(
        request.method, escape_path(path) or "/", request.header(b"host"), lines, request.body
    )
    try:
        connection, head = await transport.pool.begin(
            await transport.target(location), raw, repeatable=False
        )
    except CallError as problem:
        raise plain_location_error(f"error dialing backend: {problem}") from problem
    if head.status == 101:
        return passing.relay_upgraded(connection, head)
    if head.status < 400:
        connection.abort()
        raise plain_location_error(f"invalid upgrade response: status code {head.status}")
    return await passing.relay_response(
        connection, head, passing.relayed_headers(head), transport.pool
    )


# ---- there ----


async def _exchange(
    transport: KubeletTransport,
    request: HttpRequest,
    there: CallTarget,
    target: str,
    lines: requests.Lines,
) -> tuple[OutgoingConnection, ResponseHead]:
    host, bodiless = request.header(b"host"), request.method == "HEAD"
    if request.stream is None:
        raw = requests.encode_kubelet_request(request.method, target, host, lines, request.body)
        repeatable = request.method in _REPEATABLE
        return await transport.pool.begin(there, raw, repeatable=repeatable, bodiless=bodiless)
    length = request.headers.get(b"content-length")
    lines.append(
        (b"Content-Length", length) if length is not None else (b"Transfer-Encoding", b"chunked")
    )
    connection = await transport.pool.open(there)
    sending = asyncio.get_running_loop().create_task(
        _send(connection, request.stream, chunked=length is None)
    )
    sending.add_done_callback(lambda task: task.cancelled() or task.exception())
    try:
        head = await connection.send(
            requests.encode_kubelet_request(request.method, target, host, lines), bodiless=bodiless
        )
    except BaseException:
        sending.cancel()
        raise
    if not sending.done():  # it runs until the response is complete
        connection.spend()
    return connection, head


async def _send(connection: OutgoingConnection, body: BodyStream, *, chunked: bool) -> None:
    """The client's body, with flow control."""
    try:
        while piece := await body.read():
            await connection.write(encode_chunk(piece) if chunked else piece)
        if chunked:
            await connection.write(END_OF_STREAM)
    except ConnectionError:
        connection.abort()  # the client aborted; a partial body must not look complete


# ---- and back ----


async def _answer(
    transport: KubeletTransport,
    request: HttpRequest,
    connection: OutgoingConnection,
    head: ResponseHead,
    outside: ExternalLocation,
) -> Answer:
    headers = _headers(head, outside)
    bodiless = request.method == "HEAD"
    media = head.header(b"content-type").partition(";")[0].strip()
    encoding = head.header(b"content-encoding")
    if (
        head.header(b"location")
        or media != "text/html"
        or bodiless
        or (encoding and encoding not in _WBITS)
    ):
        return await passing.relay_response(
            connection, head, headers, transport.pool, bodiless=bodiless
        )
    packing = _WBITS.get(encoding)
    parts: list[bytes] = []
    page: bytes | None = None
    if await _in_time(transport.pages.acquire()):
        try:
            if await _in_time(_read_page(connection, parts)):
                page = await _rewritten(b"".join(parts), packing, outside)
        except zlib.error as problem:
            connection.abort()
            raise CallError(f"errorf making {encoding} reader: {problem}") from problem
        finally:
            transport.pages.release()
    if page is None:
        return passing.relay_stream(
            connection, head.status, headers, transport.pool, head.length, b"".join(parts)
        )
    transport.pool.give_back(connection)
    return HttpResponse(head.status, headers, page)


async def _in_time(work: Awaitable[bool]) -> bool:
    try:
        async with asyncio.timeout(_PAGE_SECONDS):
            return await work
    except TimeoutError:
        return False


async def _read_page(connection: OutgoingConnection, parts: list[bytes]) -> bool:
    """Adds the body to `parts`; False if it is too large, and then only its beginning is there."""
    size = 0
    while data := await connection.read():
        parts.append(data)
        size += len(data)
        if size > _LARGEST_PAGE:
            return False
    return True


async def _rewritten(body: bytes, packing: int | None, outside: ExternalLocation) -> bytes | None:
    if packing is None and len(body) <= _SMALL_PAGE:
        return _page(body, packing, outside)
    return await asyncio.get_running_loop().run_in_executor(
        _page_workers(), _page, body, packing, outside
    )


@cache
def _page_workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "html-pages")


def _headers(head: ResponseHead, outside: ExternalLocation) -> Headers:
    dropped = {
        word.strip().lower().encode() for word in head.header(b"connection").split(",")
    } | _CORS
    headers: Headers = [_CACHE]
    for name, value in passing.relayed_headers(head):
        small = name.lower()
        if small == b"location" and value:
            value = outside.rewrite(value.decode("latin-1")).encode("latin-1", "replace")
        if small not in dropped:
            headers.append((name, value))
    return headers


def _page(body: bytes, packing: int | None, outside: ExternalLocation) -> bytes | None:
    """The page with its links rewritten, None if it is too large when decompressed."""
    if packing is not None:
        unpacked = _unpacked(body, packing)
        if unpacked is None:
            return None
        body = unpacked
    page = html.rewrite_html(body.decode(errors="surrogateescape"), outside.rewrite).encode(
        errors="surrogateescape"
    )
    if packing is None:
        return page
    packer = zlib.compressobj(wbits=packing)
    return packer.compress(page) + packer.flush()


def _unpacked(body: bytes, packing: int) -> bytes | None:
    """Never produces more than the largest page, whatever the compression ratio."""
    out: list[bytes] = []
    left = _LARGEST_PAGE
    while body:
        member = zlib.decompressobj(packing)
        data = member.decompress(body, left + 1)
        left -= len(data)
        if left < 0:
            return None
        if not member.eof:
            raise zlib.error("unexpected EOF")
        out.append(data)
        body = member.unused_data if packing == _WBITS["gzip"] else b""
    return b"".join(out)
