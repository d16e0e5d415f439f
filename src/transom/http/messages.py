"""The messages between the protocol and the handler: a request in, one of three kinds of response
out.

Plain data with slots, without sockets, so handlers and their tests need none.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote_to_bytes

from transom.http.body import BodyStream
from transom.http.raw import RawConnection
from transom.kit.named_tuple import NamedTuple

Headers = list[tuple[bytes, bytes]]

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class PeerCertificate(NamedTuple):
    """A client certificate that TLS has verified against the client CA: the subject, and the
    validity period, which TLS does not check.
    """

    cn: str
    organizations: list[str]
    not_before: float = 0.0
    not_after: float = math.inf
    sha256: str = ""  # of the whole certificate, in hexadecimal
    uids: tuple[str | None, ...] = ()  # of the subject; None is one that is not text


class HttpRequest:
    """One request with its whole body, or with a `stream` of it if the handler reads it
    incrementally. Header names are lower case; a repeated header is joined with ", ", repeated
    Impersonate-* headers with newlines.
    """

    gone = False  # the client closed the connection and will not read the response
    warnings: tuple[str, ...] = ()  # about the credentials, for the response
    audit_annotations: Mapping[str, str] | None = None  # about the credentials
    _query: dict[str, list[str]] | None = None

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

    @property
    def query(self) -> dict[str, list[str]]:
        query = self._query
        if query is None:
            query = self._query = parse_query(self.target.partition(b"?")[2])
        return query

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings = (*self.warnings, text)

    def header(self, name: bytes, default: str = "") -> str:
        """A header as text; `name` in lower case."""
        value = self.headers.get(name)
        return default if value is None else value.decode("latin-1")

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path}>"  # without the query, which may hold a token


Buffer = bytes | memoryview


class BodyReader(Protocol):
    """The rest of a body that is being sent."""

    def read(self, size: int) -> Buffer:
        """At most about `size` bytes, encoded on demand; empty at the end."""


class LazyBody(Protocol):
    """A body that is encoded piece by piece while the client reads, from data shared with other
    readers.

    Iterating over it encodes all of it, for readers in this process.
    """

    size: int | None  # None: only known at the end
    slow: bool  # encoding a piece takes long: it is read in a thread

    @property
    def estimate(self) -> int:
        """The approximate size in bytes."""

    def open(self) -> BodyReader: ...
    def __iter__(self) -> Iterator[Buffer]: ...


class BytesReader:
    """A body that exists already, or arrives in pieces. It is not copied: views of it go to the
    socket.
    """

    __slots__ = ("_at", "_parts", "_view")

    def __init__(self, body: bytes | Iterable[bytes]) -> None:
        self._parts = iter([body] if isinstance(body, bytes) else body)
        self._view = memoryview(b"")
        self._at = 0

    def read(self, size: int) -> Buffer:
        while self._at >= len(self._view):
            part = next(self._parts, None)
            if part is None:
                self._view = memoryview(b"")
                return b""
            if len(part) <= size:
                return part or self.read(size)
            self._view, self._at = memoryview(part), 0
        piece = self._view[self._at : self._at + size]
        self._at += size
        return piece


class HttpResponse:
    """A complete response. A list of bytes, or a lazy body, is written piece by piece as the client
    reads.

    `on_end`, here and below, is called once when the response is sent or its connection is closed.
    `owner` is the user whose budget the response counts against.
    """

    __slots__ = ("body", "headers", "on_end", "owner", "status")

    def __init__(
        self,
        status: int,
        headers: Headers,
        body: bytes | list[bytes] | LazyBody = b"",
        on_end: Callable[[], None] | None = None,
        owner: str = "",
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.on_end = on_end
        self.owner = owner


def body_bytes(body: bytes | list[bytes] | LazyBody) -> bytes:
    """All of a body, for readers in this process."""
    return body if isinstance(body, bytes) else b"".join(body)


def body_size(body: bytes | list[bytes] | LazyBody) -> int:
    """The size of a body, estimated if it is not known."""
    if isinstance(body, bytes):
        return len(body)
    return sum(map(len, body)) if isinstance(body, list) else body.estimate


class Unsent(bytes):
    """The body of a response to HEAD: only its size."""

    def __new__(cls, size: int) -> Unsent:
        unsent = super().__new__(cls)
        unsent.size = size
        return unsent

    size: int

    def __len__(self) -> int:
        return self.size


class StreamSource(Protocol):
    """Encodes the next output of a stream when there is room for it."""

    def read(self, size: int) -> Sequence[Buffer] | asyncio.Future[Any] | None:
        """About `size` bytes, whole chunks. Empty: nothing yet, read again in the next loop
        iteration; a future: read again when it is done. None: there is no more, and `offer` works
        again.
        """


class ResponseStream(Protocol):
    """A streamed chunked body, as handlers see it."""

    alive: bool
    on_close: Callable[[], object] | None  # the stream ended for a reason other than `close`

    def write(self, data: bytes) -> None: ...
    def write_framed(self, data: bytes) -> None: ...
    def offer(self, data: bytes) -> bool: ...
    def follow(self, source: StreamSource) -> None: ...
    async def drained(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class StreamResponse:
    """A streamed response, such as a watch: `start` gets the stream once the head is written.

    A response of known size has a `length`, and is not chunked. A `resumable` one (a watch) is
    closed soon after its client stops reading; others (logs, proxied responses) pause their source
    and may wait for a long time.
    """

    __slots__ = ("headers", "length", "on_end", "owner", "resumable", "start", "status")

    def __init__(
        self,
        status: int,
        headers: Headers,
        start: Callable[[ResponseStream], None],
        length: int | None = None,
        resumable: bool = False,
    ) -> None:
        self.status = status
        self.headers = headers
        self.start = start
        self.length = length
        self.resumable = resumable
        self.on_end: Callable[[], None] | None = None
        self.owner = ""


class UpgradeResponse:
    """101: `start` gets the raw connection, with the bytes the client sent early."""

    __slots__ = ("headers", "on_end", "owner", "start", "status")

    def __init__(
        self, headers: Headers, start: Callable[[RawConnection], None], status: int = 101
    ) -> None:
        self.status = status
        self.headers = headers
        self.start = start
        self.on_end: Callable[[], None] | None = None
        self.owner = ""


Answer = HttpResponse | StreamResponse | UpgradeResponse
Handler = Callable[[HttpRequest], Answer | Awaitable[Answer]]


_TEXT_HEADERS: Headers = [
    (b"Content-Type", b"text/plain; charset=utf-8"),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Cache-Control", b"no-cache, private"),
]


def text_response(status: int, text: str) -> HttpResponse:
    """Plain text, as Go's `http.Error` sends it."""
    return HttpResponse(status, _TEXT_HEADERS, text.encode())


@runtime_checkable
class BodyPolicy(Protocol):
    """How a handler wants large request bodies."""

    def streams_body(self, path: str) -> bool:
        """Whether the handler reads the body incrementally."""

    def body_owner(self, request: HttpRequest) -> str | None:
        """The user who sends the request, determined from its head; None if the handler will reject
        it.
        """


def encode_chunk(data: bytes | memoryview) -> bytes:
    """One chunk of a chunked body. Rejects empty data, which would end the body."""
    if not data:
        raise ValueError("an empty chunk ends the body")
    return b"".join((b"%x\r\n" % len(data), data, b"\r\n"))


def decode_chunks(framed: bytes) -> bytes:
    """The data of one or more whole chunks; HTTP/1.0 clients do not support chunks."""
    parts = []
    at = 0
    while at < len(framed):
        end = framed.index(b"\r\n", at)
        size = int(framed[at:end], 16)
        parts.append(framed[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return b"".join(parts)


def decode_path(target: bytes) -> str | None:
    """The path of a request target, percent-decoded; None if it is malformed."""
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
    """The query as Go 1.15 reads it: `&` and `;` separate, `+` is a space, a pair with a bad escape
    is dropped.
    """
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
