"""One GET over a connection that the network provides: for probes and hooks.

Behaves like Go's client, redirects and error texts included. Knows nothing of pods.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from transom.http import goerrors
from transom.http.goerrors import NetworkTexts, join_host_port
from transom.http.outgoing import CallError, OutgoingConnection, client_context
from transom.kit.clock import Clock
from transom.kit.goquote import go_quote
from transom.kit.http_message import encode_request
from transom.kit.lazy import lazy_pattern
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.deadline import TimeLimit
from transom.kubelet.dialing import failure_text
from transom.machinery.releases import Release
from transom.machinery.releases.kubelet import kubelet_has
from transom.network.api import Dial

BODY_LIMIT = 10 << 10
_REDIRECTS = 10
_REDIRECT_STATUS = frozenset((301, 302, 303, 307, 308))
_DEFAULT_PORTS = {"http": 80, "https": 443}
_BROKEN_ESCAPE = lazy_pattern(r"%(?![0-9A-Fa-f]{2})")
# Characters that Go does not escape in a path; a % is literal where it begins an escape.
_PATH_SAFE = "/!$&'()*+,;=:@-._~%"
# Headers that are not written from the header table: they are written separately, or not at all.
_PLACED = frozenset(("Host", "User-Agent", "Content-Length", "Transfer-Encoding", "Trailer"))
_TOKEN = lazy_pattern(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SHUTDOWN = 0.5


class PortError(Exception):
    """A container has no port of the name, or the number is not one of a port."""


class GetFailure(Exception):
    """No response; the text is Go's, with `Get "URL": ` in front."""


class BodyFailure(Exception):
    """The response was cut off."""


class ProbeUrl(NamedTuple):
    scheme: str
    host: str  # without brackets
    port: int
    target: str  # path and query, escaped
    fragment: str = ""
    explicit: bool = True  # whether the port is written

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}{self.fragment}"

    @property
    def authority(self) -> str:
        if self.explicit:
            return join_host_port(self.host, self.port)
        return f"[{self.host}]" if ":" in self.host else self.host


class HttpGetResponse(NamedTuple):
    status: int
    body: bytes  # truncated


Headers = Mapping[str, Sequence[str]]


def make_url(scheme: str, host: str, port: int, path: str) -> ProbeUrl:
    """The path may include a query; one with invalid escapes is used as written."""
    if _BROKEN_ESCAPE.search(path) or _has_control(path):
        return ProbeUrl(scheme, host, port, _rooted(quote(path, safe=_PATH_SAFE.replace("%", ""))))
    rest, hash_mark, fragment = path.partition("#")
    if rest.startswith("//"):
        rest = "/" + rest[2:].partition("/")[2]
    route, question, query = rest.partition("?")
    route = quote(route, safe=_PATH_SAFE)
    return ProbeUrl(scheme, host, port, _rooted(route) + question + query, hash_mark + fragment)


def resolve_port(port: int | str, container: Mapping[str, Any]) -> int:
    """A number, the name of a container port, or a number as a string."""
    number = port
    if isinstance(number, str):
        named = next(
            (p["containerPort"] for p in container.get("ports") or () if p.get("name") == port),
            None,
        )
        if named is None:
            try:
                named = int(number)
            except ValueError:
                raise PortError(
                    f"strconv.Atoi: parsing {go_quote(number)}: invalid syntax"
                ) from None
        number = int(named)
    if 0 < number < 65536:
        return number
    raise PortError(f"invalid port number: {number}")


def action_headers(
    release: tuple[int, int], action: Mapping[str, Any], purpose: str
) -> dict[str, list[str]]:
    """The headers of the request of an HTTPGetAction. `purpose` is "probe" or "lifecycle"."""
    headers: dict[str, list[str]] = {}
    canonical = kubelet_has(Release(*release), "CanonicalHeaders")
    for header in action.get("httpHeaders") or ():
        name = _canonical(header["name"]) if canonical else header["name"]
        headers.setdefault(name, []).append(header.get("value") or "")
    major, minor = release
    headers.setdefault("User-Agent", [f"kube-{purpose}/{major}.{minor}"])
    if headers.setdefault("Accept", ["*/*"])[0] == "":
        del headers["Accept"]
    return headers


def _canonical(name: str) -> str:
    """As Go writes it: `accept-language` -> `Accept-Language`."""
    if not _TOKEN.fullmatch(name):
        return name
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))


def _rooted(path: str) -> str:
    return path if not path or path.startswith("/") else "/" + path


def _has_control(text: str) -> bool:
    return any(ord(ch) < 0x20 or ord(ch) == 0x7F for ch in text)


def _parse(text: str) -> ProbeUrl | None:
    """An absolute URL; None for one that cannot be requested."""
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        return None
    target = _rooted(quote(parts.path, safe=_PATH_SAFE)) + (
        f"?{parts.query}" if parts.query else ""
    )
    return ProbeUrl(
        scheme,
        host,
        port if port is not None else _DEFAULT_PORTS[scheme],
        target,
        f"#{parts.fragment}" if parts.fragment else "",
        port is not None,
    )


async def http_get(
    dial: Dial,
    clock: Clock,
    url: ProbeUrl,
    headers: Headers,
    *,
    seconds: float | None,
    dial_seconds: float | None = None,
    host: str = "",
    texts: NetworkTexts = goerrors.POSIX,
) -> HttpGetResponse:
    """GET with redirects on the same host. `host` is a Host header that differs from the URL's.

    `seconds` limits the whole request, `dial_seconds` only the connection attempt.

    Raises GetFailure when there is no response and BodyFailure when it is cut off. TLS accepts any
    certificate.
    """
    if dial_seconds is not None:
        dial = _limited(dial, clock, dial_seconds)
    call = _Call(url, texts)
    if seconds is None:
        return await call.run(dial, headers, host)
    try:
        async with TimeLimit(clock, seconds):
            return await call.run(dial, headers, host)
    except TimeoutError:
        if call.reading:
            raise BodyFailure(
                f"{goerrors.DEADLINE} (Client.Timeout or context cancellation while reading body)"
            ) from None
        raise call.failure(
            f"{goerrors.DEADLINE} (Client.Timeout exceeded while awaiting headers)"
        ) from None


def _limited(dial: Dial, clock: Clock, seconds: float) -> Dial:
    async def connect(host: str, port: int) -> socket.socket:
        async with TimeLimit(clock, seconds):
            return await dial(host, port)

    return connect


class _Call:
    """A GET in progress, with what an error message needs."""

    __slots__ = ("reading", "texts", "url")

    def __init__(self, url: ProbeUrl, texts: NetworkTexts) -> None:
        self.url = url
        self.texts = texts
        self.reading = False

    def failure(self, text: str, where: str = "") -> GetFailure:
        return GetFailure(f"Get {go_quote(where or str(self.url))}: {text}")

    async def run(self, dial: Dial, headers: Headers, host: str) -> HttpGetResponse:
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
                raise self.failure(
                    f"unsupported protocol scheme {go_quote(urlsplit(whole).scheme)}", whole
                )
            if hops >= _REDIRECTS:
                raise self.failure(f"stopped after {_REDIRECTS} redirects", location)
            referer = (
                "" if self.url.scheme == "https" and following.scheme == "http" else str(self.url)
            )
            if urlsplit(location).scheme:
                host = ""
            self.url = following

    async def _exchange(
        self, dial: Dial, headers: Headers, host: str, referer: str
    ) -> tuple[HttpGetResponse | None, str, int]:
        """The response, or the target of a redirect on the same host (and its status)."""
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
            return HttpGetResponse(head.status, await _beginning(connection)), "", head.status
        finally:
            connection.abort()

    async def _connect(self, dial: Dial) -> OutgoingConnection:
        url = self.url
        address = join_host_port(url.host, url.port)
        try:
            sock = await dial(url.host, url.port)
        except TimeoutError:
            raise self.failure(f"dial tcp {address}: i/o timeout") from None
        except OSError as problem:
            raise self.failure(failure_text(url.host, url.port, problem, self.texts)) from problem
        context = client_context(b"", True, None) if url.scheme == "https" else None
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: OutgoingConnection(address, address, self.texts),
                sock=sock,
                ssl=context,
                server_hostname=url.host if context is not None else None,
                ssl_shutdown_timeout=_SHUTDOWN if context is not None else None,
            )
        except ssl.SSLError as problem:
            raise self.failure(goerrors.tls_error(problem)) from problem
        except OSError as problem:
            text = (
                "EOF"
                if problem.errno is None
                else goerrors.read_error(address, address, problem, self.texts)
            )
            raise self.failure(text) from problem
        except BaseException:
            sock.close()
            raise
        return connection


async def _beginning(connection: OutgoingConnection) -> bytes:
    parts, size = [], 0
    try:
        while size < BODY_LIMIT and (data := await connection.read()):
            parts.append(data)
            size += len(data)
    except CallError as problem:
        raise BodyFailure(str(problem)) from problem
    return b"".join(parts)[:BODY_LIMIT]


def _request(url: ProbeUrl, headers: Headers, host: str, referer: str) -> bytes:
    fields = [("Host", host or url.authority)]
    agent = headers.get("User-Agent", ("Go-http-client/1.1",))[0]
    if agent:
        fields.append(("User-Agent", agent))
    if referer:
        headers = {**headers, "Referer": (referer,)}
    for name in sorted(headers):
        if name not in _PLACED:
            fields.extend((name, _one_line(value)) for value in headers[name])
    return encode_request("GET", url.target or "/", [*fields, ("Connection", "close")])


def _one_line(value: str) -> str:
    return value.replace("\r", " ").replace("\n", " ").strip()
