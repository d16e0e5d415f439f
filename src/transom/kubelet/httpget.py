"""One GET over a connection that the network hands out: for probes and hooks.

Speaks as Go's client does, redirects and failure texts included. Knows nothing of pods.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from transom.http import goerrors
from transom.http.goerrors import join_host_port
from transom.http.outgoing import CallError, Outgoing, client_context
from transom.kit.clock import Clock
from transom.kubelet.deadline import Within
from transom.kubelet.dialing import failure_text
from transom.machinery.field import go_quote
from transom.network.api import Dial

BODY_LIMIT = 10 << 10
_REDIRECTS = 10
_REDIRECT_STATUS = frozenset((301, 302, 303, 307, 308))
_DEFAULT_PORTS = {"http": 80, "https": 443}
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
# What Go leaves as it is in a path; a % stands for itself where it begins an escape.
_PATH_SAFE = "/!$&'()*+,;=:@-._~%"
# Headers that are not written from the table of headers: they have a place of their own, or none.
_PLACED = frozenset(("Host", "User-Agent", "Content-Length", "Transfer-Encoding", "Trailer"))
_SHUTDOWN = 0.5


class GetFailure(Exception):
    """No answer; the text is Go's, with `Get "URL": ` in front."""


class BodyFailure(Exception):
    """The answer broke off."""


class Url(NamedTuple):
    scheme: str
    host: str  # without brackets
    port: int
    target: str  # path and query, escaped
    fragment: str = ""
    explicit: bool = True  # the port is written

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}{self.fragment}"

    @property
    def authority(self) -> str:
        if self.explicit:
            return join_host_port(self.host, self.port)
        return f"[{self.host}]" if ":" in self.host else self.host


class Answer(NamedTuple):
    status: int
    body: bytes  # the beginning of it


Headers = Mapping[str, Sequence[str]]


def make_url(scheme: str, host: str, port: int, path: str) -> Url:
    """The path may carry a query; one with broken escapes is taken as it is written."""
    if _BROKEN_ESCAPE.search(path) or _has_control(path):
        return Url(scheme, host, port, _rooted(quote(path, safe=_PATH_SAFE.replace("%", ""))))
    rest, hash_mark, fragment = path.partition("#")
    if rest.startswith("//"):
        rest = "/" + rest[2:].partition("/")[2]
    route, question, query = rest.partition("?")
    route = quote(route, safe=_PATH_SAFE)
    return Url(scheme, host, port, _rooted(route) + question + query, hash_mark + fragment)


def _rooted(path: str) -> str:
    return path if not path or path.startswith("/") else "/" + path


def _has_control(text: str) -> bool:
    return any(ord(ch) < 0x20 or ord(ch) == 0x7F for ch in text)


def _parse(text: str) -> Url | None:
    """An absolute URL; None for what is none that can be called."""
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        return None
    target = _rooted(quote(parts.path, safe=_PATH_SAFE)) + (f"?{parts.query}" if parts.query else "")
    return Url(scheme, host, port if port is not None else _DEFAULT_PORTS[scheme], target,
               f"#{parts.fragment}" if parts.fragment else "", port is not None)


async def get(
    dial: Dial, clock: Clock, url: Url, headers: Headers, *, seconds: float | None, dial_seconds: float | None = None,
    host: str = "",
) -> Answer:
    """GET with redirects on the same host. `host` is a Host header that differs from the URL's.

    `seconds` limits all of it, `dial_seconds` the making of a connection alone.

    Raises GetFailure when there is no answer and BodyFailure when it breaks off. TLS takes any certificate.
    """
    if dial_seconds is not None:
        dial = _limited(dial, clock, dial_seconds)
    call = _Call(url)
    if seconds is None:
        return await call.run(dial, headers, host)
    try:
        async with Within(clock, seconds):
            return await call.run(dial, headers, host)
    except TimeoutError:
        if call.reading:
            raise BodyFailure(
                f"{goerrors.DEADLINE} (Client.Timeout or context cancellation while reading body)"
            ) from None
        raise call.failure(f"{goerrors.DEADLINE} (Client.Timeout exceeded while awaiting headers)") from None


def _limited(dial: Dial, clock: Clock, seconds: float) -> Dial:
    async def connect(host: str, port: int) -> socket.socket:
        async with Within(clock, seconds):
            return await dial(host, port)

    return connect


class _Call:
    """A GET under way, with what a failure has to tell of it."""

    __slots__ = ("reading", "url")

    def __init__(self, url: Url) -> None:
        self.url = url
        self.reading = False

    def failure(self, text: str, where: str = "") -> GetFailure:
        return GetFailure(f"Get {go_quote(where or str(self.url))}: {text}")

    async def run(self, dial: Dial, headers: Headers, host: str) -> Answer:
        hops = 0
        referer = ""
        while True:
            answer, location, status = await self._exchange(dial, headers, host, referer)
            if answer is not None:
                return answer
            if not location:
                raise self.failure(f"{status} response missing Location header")
            whole = urljoin(str(self.url), location)
            following = _parse(whole)
            hops += 1
            if following is None:
                raise self.failure(f"unsupported protocol scheme {go_quote(urlsplit(whole).scheme)}", whole)
            if hops >= _REDIRECTS:
                raise self.failure(f"stopped after {_REDIRECTS} redirects", location)
            referer = "" if self.url.scheme == "https" and following.scheme == "http" else str(self.url)
            if urlsplit(location).scheme:
                host = ""
            self.url = following

    async def _exchange(
        self, dial: Dial, headers: Headers, host: str, referer: str
    ) -> tuple[Answer | None, str, int]:
        """The answer, or where a redirect on the same host leads (and its status)."""
        url = self.url
        connection = await self._connect(dial)
        try:
            try:
                head = await connection.send(_request(url, headers, host, referer))
            except CallError as problem:
                raise self.failure(str(problem)) from problem
            if head.status in _REDIRECT_STATUS:
                location = head.header(b"location")
                target = urlsplit(urljoin(str(url), location)).hostname or ""
                if not location or target == url.host.lower():
                    return None, location, head.status
            self.reading = True
            return Answer(head.status, await _beginning(connection)), "", head.status
        finally:
            connection.abort()

    async def _connect(self, dial: Dial) -> Outgoing:
        url = self.url
        address = join_host_port(url.host, url.port)
        try:
            sock = await dial(url.host, url.port)
        except TimeoutError:
            raise self.failure(f"dial tcp {address}: i/o timeout") from None
        except OSError as problem:
            raise self.failure(failure_text(url.host, url.port, problem)) from problem
        context = client_context(b"", True, None) if url.scheme == "https" else None
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Outgoing(address, address), sock=sock, ssl=context,
                server_hostname=url.host if context is not None else None,
                ssl_shutdown_timeout=_SHUTDOWN if context is not None else None,
            )
        except ssl.SSLError as problem:
            raise self.failure(goerrors.tls(problem)) from problem
        except OSError as problem:
            text = "EOF" if problem.errno is None else goerrors.read(address, address, problem)
            raise self.failure(text) from problem
        except BaseException:
            sock.close()
            raise
        return connection


async def _beginning(connection: Outgoing) -> bytes:
    parts, size = [], 0
    try:
        while size < BODY_LIMIT and (data := await connection.read()):
            parts.append(data)
            size += len(data)
    except CallError as problem:
        raise BodyFailure(str(problem)) from problem
    return b"".join(parts)[:BODY_LIMIT]


def _request(url: Url, headers: Headers, host: str, referer: str) -> bytes:
    lines = [f"GET {url.target or '/'} HTTP/1.1", f"Host: {host or url.authority}"]
    agent = headers.get("User-Agent", ("Go-http-client/1.1",))[0]
    if agent:
        lines.append(f"User-Agent: {agent}")
    if referer:
        headers = {**headers, "Referer": (referer,)}
    for name in sorted(headers):
        if name not in _PLACED:
            lines.extend(f"{name}: {_one_line(value)}" for value in headers[name])
    lines.append("Connection: close\r\n\r\n")
    return "\r\n".join(lines).encode()


def _one_line(value: str) -> str:
    return value.replace("\r", " ").replace("\n", " ").strip()
