"""A small HTTP/1.1 server for programs: one handler, connections through the context. It holds no
task without connections.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from urllib.parse import parse_qs, unquote, urlsplit

from transom.kit.named_tuple import NamedTuple
from transom.kit.task_set import TaskSet
from transom.userland.api import ProgramContext
from transom.userland.servers import tls

_HEAD_LIMIT = 1 << 20
REASONS = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    301: "Moved Permanently",
    302: "Found",
    303: "See Other",
    304: "Not Modified",
    307: "Temporary Redirect",
    308: "Permanent Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    412: "Precondition Failed",
    417: "Expectation Failed",
    418: "I'm a teapot",
    429: "Too Many Requests",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class ProgramHttpRequest(NamedTuple):
    method: str
    target: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    peer: str  # "10.244.1.3:45678"; "" if unknown
    version: str = "HTTP/1.1"

    @property
    def path(self) -> str:
        if self.target.startswith("/"):  # even if it looks like a host: //a
            return unquote(self.target.partition("?")[0].partition("#")[0])
        return unquote(urlsplit(self.target).path) or "/"

    @property
    def query(self) -> dict[str, str]:
        """The first value of each name."""
        return {name: values[0] for name, values in self.values().items()}

    def values(self) -> dict[str, list[str]]:
        found = parse_qs(self.target.partition("?")[2].partition("#")[0], keep_blank_values=True)
        if self.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            for name, values in parse_qs(
                self.body.decode("utf-8", "replace"), keep_blank_values=True
            ).items():
                found[name] = values + found.get(name, [])
        return found


class ProgramHttpResponse(NamedTuple):
    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    close: bool = False


def program_text_response(
    content: str, status: int = 200, kind: str = "text/plain; charset=utf-8"
) -> ProgramHttpResponse:
    return ProgramHttpResponse(
        status, content.encode("utf-8", "surrogateescape"), (("Content-Type", kind),)
    )


Handler = Callable[[ProgramHttpRequest], ProgramHttpResponse | Awaitable[ProgramHttpResponse]]
Tls = Callable[[], ssl.SSLContext]
Raw = Callable[[bytes, socket.socket], Awaitable[None]]
"""Takes over a connection that is not HTTP; gets the bytes that were already read."""


class ProgramHttpServer:
    """Listens through a context until `close`, which cancels the tasks of connections."""

    __slots__ = ("_closers", "_context", "_handler", "_raw", "_server", "_tasks", "_tls")

    def __init__(
        self,
        context: ProgramContext,
        handler: Handler,
        server: str = "",
        raw: Raw | None = None,
        certificate: Tls | None = None,
    ) -> None:
        """`certificate` is called for the first TLS client; without it, TLS clients fail."""
        self._context = context
        self._handler = handler
        self._server = server
        self._raw = raw
        self._tls = certificate
        self._tasks = TaskSet()
        self._closers: list[Callable[[], None]] = []

    def listen(self, port: int, address: str = "") -> None:
        """Raises OSError like the context's `listen`."""
        self._closers.append(self._context.network.listen(port, self.accept, address))

    def accept(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._tasks.start(self._serve(connection))

    def stop_listening(self) -> None:
        """Existing connections continue."""
        for close in self._closers:
            close()
        self._closers.clear()

    def close(self, *, but_current: bool = False) -> None:
        self.stop_listening()
        if but_current:
            self._tasks.cancel_others()
        else:
            self._tasks.cancel()

    async def _serve(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        buffer = bytearray()
        peer = _peer(connection)
        try:
            while await self._one(loop, connection, buffer, peer):
                continue
        except (ConnectionError, BrokenPipeError):
            return
        finally:
            connection.close()

    async def _one(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        buffer: bytearray,
        peer: str,
    ) -> bool:
        """One request and its response; False when the connection ends."""
        while b"\r\n\r\n" not in buffer:
            if self._tls is not None and buffer and buffer[0] == tls.HANDSHAKE:
                await tls.relay(bytes(buffer), connection, self._tls(), self.accept)
                return False
            if self._raw is None and b"\n" in buffer and not _is_request_line(buffer):
                await loop.sock_sendall(connection, _BAD_REQUEST)
                return False
            if self._raw is not None and len(buffer) >= 4 and not _looks_like_http(buffer):
                await self._raw(bytes(buffer), connection)
                return False
            chunk = await loop.sock_recv(connection, 65536)
            if not chunk or len(buffer) > _HEAD_LIMIT:
                if buffer and self._raw is not None:
                    await self._raw(bytes(buffer), connection)
                return False
            buffer += chunk
        head, _, _ = bytes(buffer).partition(b"\r\n\r\n")
        del buffer[: len(head) + 4]
        lines = head.decode("latin-1").split("\r\n")
        pieces = lines[0].split(" ")
        if not _is_request_line(head):
            await loop.sock_sendall(connection, _BAD_REQUEST)
            return False
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            await loop.sock_sendall(connection, b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await _body(loop, connection, buffer, headers)
        request = ProgramHttpRequest(pieces[0], pieces[1], headers, body, peer, pieces[2])
        answer = self._handler(request)
        response = await answer if inspect.isawaitable(answer) else answer
        wanted = headers.get("connection", "").lower()
        keep = not response.close and (
            wanted == "keep-alive" if pieces[2] == "HTTP/1.0" else wanted != "close"
        )
        await loop.sock_sendall(connection, self._encode(request, response, keep))
        return keep

    def _encode(
        self, request: ProgramHttpRequest, response: ProgramHttpResponse, keep: bool
    ) -> bytes:
        reason = REASONS.get(response.status, "Unknown")
        lines = [f"HTTP/1.1 {response.status} {reason}"]
        if self._server:
            lines.append(f"Server: {self._server}")
        lines.append(f"Date: {formatdate(self._context.clock.time(), usegmt=True)}")
        names = {name.lower() for name, _ in response.headers}
        lines.extend(f"{name}: {value}" for name, value in response.headers)
        if "content-length" not in names and response.status not in (204, 304):
            lines.append(f"Content-Length: {len(response.body)}")
        if not keep:
            lines.append("Connection: close")
        elif self._server.startswith("nginx"):
            lines.append("Connection: keep-alive")
        body = b"" if request.method == "HEAD" else response.body
        return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\n400 Bad Request"
)


def _is_request_line(received: bytes | bytearray) -> bool:
    """Whether the first line is one; a server does not wait for more after another."""
    pieces = received.partition(b"\n")[0].rstrip(b"\r").split(b" ")
    return len(pieces) == 3 and pieces[2].startswith(b"HTTP/")


_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"PATC", b"OPTI", b"CONN", b"TRAC")


def _looks_like_http(buffer: bytearray) -> bool:
    return bytes(buffer[:4]).upper() in _METHODS


async def _body(
    loop: asyncio.AbstractEventLoop,
    connection: socket.socket,
    buffer: bytearray,
    headers: Mapping[str, str],
) -> bytes:
    async def more() -> None:
        chunk = await loop.sock_recv(connection, 65536)
        if not chunk:
            raise ConnectionResetError
        buffer.extend(chunk)

    def take(size: int) -> bytes:
        data = bytes(buffer[:size])
        del buffer[:size]
        return data

    if "chunked" in headers.get("transfer-encoding", "").lower():
        out: list[bytes] = []
        while True:
            while b"\r\n" not in buffer:
                await more()
            size = int(take(buffer.index(b"\r\n")).split(b";")[0] or b"0", 16)
            while len(buffer) < size + 4:
                await more()
            take(2)
            out.append(take(size))
            take(2)
            if size == 0:
                return b"".join(out)
    length = headers.get("content-length", "0")
    size = int(length) if length.isdigit() else 0
    while len(buffer) < size:
        await more()
    return take(size)


def _peer(connection: socket.socket) -> str:
    r"""The client's address. Both ends of a connection of the network model are in this process;
    the name of the other end, if it has one, ends with its address in the model:
    `\0.../10.244.1.3:40123`.
    """
    try:
        name = connection.getpeername()
    except OSError:
        return ""
    if isinstance(name, bytes):
        return name.rpartition(b"/")[2].decode("ascii", "replace") if name.startswith(b"\0") else ""
    if isinstance(name, tuple):
        host = f"[{name[0]}]" if ":" in str(name[0]) else str(name[0])
        return f"{host}:{name[1]}"
    return ""
