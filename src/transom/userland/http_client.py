"""Requests that programs send over their container's network: connections with a timeout, HTTP
requests.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

from transom.kit.http_message import encode_request
from transom.kit.named_tuple import NamedTuple
from transom.network import resolver
from transom.userland.api import ProgramContext

T = TypeVar("T")


async def with_timeout(
    context: ProgramContext, seconds: float | None, coroutine: Coroutine[Any, Any, T]
) -> T:
    """Raises TimeoutError when it takes longer, by the container's clock."""
    if not seconds:
        return await coroutine
    return await resolver.limited_config(context.clock, seconds, coroutine)


class Fetched(NamedTuple):
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes
    version: str
    url: str

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")


@cache
def _any_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class UrlParts(NamedTuple):
    scheme: str
    host: str
    port: int
    target: str


def split_url(url: str) -> UrlParts:
    """Raises ValueError if it is not a URL."""
    if "://" not in url:
        url = "http://" + url
    pieces = urlsplit(url)
    if pieces.scheme not in ("http", "https"):
        raise ValueError(pieces.scheme)
    port = pieces.port or (443 if pieces.scheme == "https" else 80)
    target = pieces.path or "/"
    if pieces.query:
        target += "?" + pieces.query
    return UrlParts(pieces.scheme, pieces.hostname or "", port, target)


async def fetch(
    context: ProgramContext,
    url: str,
    method: str = "GET",
    headers: Iterable[tuple[str, str]] = (),
    body: bytes = b"",
    *,
    agent: str = "Go-http-client/1.1",
    redirects: int = 0,
    ca: bytes | None = None,
    insecure: bool = False,
) -> Fetched:
    """Raises socket.gaierror, ConnectionRefusedError, TimeoutError, ssl.SSLError and other
    OSErrors; ConnectionResetError when the response is not HTTP.
    """
    for _ in range(redirects + 1):
        answer = await _fetch_one(context, url, method, headers, body, agent, ca, insecure)
        location = answer.header("Location")
        if answer.status not in (301, 302, 303, 307, 308) or not location or not redirects:
            return answer
        url = urljoin(url if "://" in url else "http://" + url, location)
        if answer.status in (301, 302, 303):
            method, body = "GET", b""
    return answer


async def _opened(
    context: ProgramContext, address: UrlParts, ca: bytes | None, insecure: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connection = await context.network.connect(address.host, address.port)
    tls: ssl.SSLContext | None = None
    if address.scheme == "https":
        if insecure:
            tls = _any_certificate()
        else:
            tls = (
                ssl.create_default_context(cadata=ca.decode("ascii", "ignore"))
                if ca
                else ssl.create_default_context()
            )
    try:
        return await asyncio.open_connection(
            sock=connection, ssl=tls, server_hostname=address.host if tls else None
        )
    except BaseException:
        connection.close()
        raise


async def _fetch_one(
    context: ProgramContext,
    url: str,
    method: str,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    agent: str,
    ca: bytes | None,
    insecure: bool,
) -> Fetched:
    address = split_url(url)
    reader, writer = await _opened(context, address, ca, insecure)
    try:
        default = 443 if address.scheme == "https" else 80
        bare = f"[{address.host}]" if ":" in address.host else address.host
        host = bare if address.port == default else f"{bare}:{address.port}"
        given = list(headers)
        names = {name.lower() for name, _ in given}
        defaults = (("Host", host), ("User-Agent", agent), ("Accept", "*/*"))
        sent = [
            *(field for field in defaults if field[0].lower() not in names),
            *given,
            ("Connection", "close"),
        ]
        writer.write(encode_request(method, address.target, sent, body))
        await writer.drain()
        return await _answer(reader, url, method)
    finally:
        writer.close()


async def stream_lines(
    context: ProgramContext, url: str, headers: Iterable[tuple[str, str]], ca: bytes | None = None
) -> AsyncIterator[bytes]:
    """The lines of a streamed response as they arrive. Raises what `fetch` raises, and ValueError
    for a status other than 200.
    """
    address = split_url(url)
    reader, writer = await _opened(context, address, ca, False)
    try:
        sent = [("Host", address.host), ("Accept", "application/json"), *headers]
        writer.write(encode_request("GET", address.target, sent))
        first = (await reader.readline()).decode("latin-1")
        if " 200 " not in first:
            raise ValueError(first.strip() or "the server sent nothing")
        while (await reader.readline()).strip():
            pass
        rest = b""
        async for piece in _chunks(reader):
            rest += piece
            *whole, rest = rest.split(b"\n")
            for line in whole:
                yield line
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader, url: str, method: str) -> Fetched:
    first = (await reader.readline()).decode("latin-1").rstrip("\r\n")
    version, _, rest = first.partition(" ")
    code, _, reason = rest.partition(" ")
    if not version.startswith("HTTP/") or not code.isdigit():
        raise ConnectionResetError("Empty reply from server")
    headers: list[tuple[str, str]] = []
    while line := (await reader.readline()).decode("latin-1").rstrip("\r\n"):
        name, _, value = line.partition(":")
        headers.append((name, value.strip()))
    answer = Fetched(int(code), reason, headers, b"", version, url)
    if method == "HEAD" or answer.status in (204, 304):
        return answer
    length = answer.header("Content-Length")
    if "chunked" in answer.header("Transfer-Encoding").lower():
        return answer._replace(body=b"".join([piece async for piece in _chunks(reader)]))
    body = await (reader.readexactly(int(length)) if length.isdigit() else _rest(reader))
    return answer._replace(body=body)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readline()).split(b";")[0].strip() or b"0", 16):
        yield await reader.readexactly(size)
        await reader.readline()


def _rest(reader: asyncio.StreamReader) -> Awaitable[bytes]:
    return reader.read(-1)
