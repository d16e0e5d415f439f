"""What goes between the protocol and the handler: a request in, one of three kinds of answer out.

Plain data with slots; no sockets here, so handlers and their tests need none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from transom.http.body import BodyStream
    from transom.http.stream import RawConnection, Stream

Headers = list[tuple[bytes, bytes]]

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class PeerCertificate(NamedTuple):
    """Of a client certificate that TLS has verified against the client CA: the subject, and from when to when it is
    good, which TLS has not looked at."""

    cn: str
    organizations: list[str]
    not_before: float = 0.0
    not_after: float = math.inf


class Request:
    """One request with its whole body, or with a `stream` of it where the handler wants to take it as it comes. Header
    names are lower case; a repeated header is joined with ", ", repeated Impersonate-* headers with newlines."""

    __slots__ = (
        "_query",
        "body",
        "gone",
        "headers",
        "http10",
        "keep_alive",
        "method",
        "path",
        "peer",
        "received",
        "remote",
        "stream",
        "target",
    )

    def __init__(
        self,
        method: str,
        target: bytes,
        path: str,
        headers: dict[bytes, bytes],
        body: bytes = b"",
        peer: PeerCertificate | None = None,
        remote: str = "",
        received: float = 0.0,
        keep_alive: bool = True,
        http10: bool = False,
        stream: BodyStream | None = None,
    ) -> None:
        self.method = method
        self.target = target
        self.path = path
        self.headers = headers
        self.body = body
        self.peer = peer
        self.remote = remote  # the client's IP address, without the port
        self.received = received  # time.monotonic() when the request was complete
        self.keep_alive = keep_alive
        self.http10 = http10
        self.stream = stream
        self.gone = False  # the client went away: nobody will read the answer
        self._query: dict[str, list[str]] | None = None

    @property
    def query(self) -> dict[str, list[str]]:
        query = self._query
        if query is None:
            query = self._query = parse_query(self.target.partition(b"?")[2])
        return query

    def header(self, name: bytes, default: str = "") -> str:
        """A header as text; `name` in lower case."""
        value = self.headers.get(name)
        return default if value is None else value.decode("latin-1")

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path}>"  # without the query, which may hold a token


class Response:
    """A whole answer. A list as body is a list of slabs, written piece by piece as the client reads.

    `on_end`, here and below, is called once when the answer is through or its connection is gone.
    """

    __slots__ = ("body", "headers", "on_end", "status")

    def __init__(
        self, status: int, headers: Headers, body: bytes | list[bytes] = b"", on_end: Callable[[], None] | None = None
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.on_end = on_end


class Unsent(bytes):
    """The body of an answer to HEAD: it has a size, and that is all."""

    def __new__(cls, size: int) -> Unsent:
        unsent = super().__new__(cls)
        unsent.size = size
        return unsent

    size: int

    def __len__(self) -> int:
        return self.size


class StreamResponse:
    """An answer without end, a watch for instance: `start` gets the stream once the head is written.

    One whose end is known has a `length`, and is not sent in chunks.
    """

    __slots__ = ("headers", "length", "on_end", "start", "status")

    def __init__(
        self, status: int, headers: Headers, start: Callable[[Stream], None], length: int | None = None
    ) -> None:
        self.status = status
        self.headers = headers
        self.start = start
        self.length = length
        self.on_end: Callable[[], None] | None = None


class UpgradeResponse:
    """101: `start` gets the raw connection, with the bytes the client sent ahead."""

    __slots__ = ("headers", "on_end", "start", "status")

    def __init__(self, headers: Headers, start: Callable[[RawConnection], None], status: int = 101) -> None:
        self.status = status
        self.headers = headers
        self.start = start
        self.on_end: Callable[[], None] | None = None


Answer = Response | StreamResponse | UpgradeResponse
Handler = Callable[[Request], Answer | Awaitable[Answer]]


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body. Empty data would end the body, so it is refused."""
    if not data:
        raise ValueError("an empty chunk ends the body")
    return b"%x\r\n%b\r\n" % (len(data), data)


def unchunk(framed: bytes) -> bytes:
    """The data of one or more whole chunks; HTTP/1.0 clients know no chunks."""
    parts = []
    at = 0
    while at < len(framed):
        end = framed.index(b"\r\n", at)
        size = int(framed[at:end], 16)
        parts.append(framed[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return b"".join(parts)


def decode_path(target: bytes) -> str | None:
    """The path of a request target, percent-decoded; None when it is malformed."""
    if not target.startswith(b"/"):
        scheme, found, rest = target.partition(b"://")
        if found and scheme.lower() in (b"http", b"https"):
            slash = rest.find(b"/")
            target = rest[slash:] if slash >= 0 else b"/"
        elif target != b"*":
            return None
    raw = target.partition(b"?")[0]
    if b"%" in raw:
        if _BAD_ESCAPE.search(raw):
            return None
        raw = unquote_to_bytes(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode(errors="replace")


def parse_query(raw: bytes) -> dict[str, list[str]]:
    """The query as Go 1.15 reads it: `&` and `;` separate, `+` is a space, a pair with a bad escape is dropped."""
    out: dict[str, list[str]] = {}
    if not raw:
        return out
    if b";" in raw:
        raw = raw.replace(b";", b"&")
    for pair in raw.split(b"&"):
        if not pair:
            continue
        if b"%" in pair and _BAD_ESCAPE.search(pair):
            continue
        name, _, value = pair.partition(b"=")
        out.setdefault(_unescape(name), []).append(_unescape(value))
    return out


def _unescape(raw: bytes) -> str:
    if b"+" in raw:
        raw = raw.replace(b"+", b" ")
    if b"%" in raw:
        raw = unquote_to_bytes(raw)
    return raw.decode(errors="replace")
