"""One call of grpc.health.v1.Health/Check, with as much of HTTP/2 as that takes: one stream, no flow to control."""

from __future__ import annotations

import asyncio
import socket
import struct
from urllib.parse import unquote

from transom.http.goerrors import join_host_port
from transom.kit.clock import Clock
from transom.kubelet.deadline import Within
from transom.kubelet.prober import hpack
from transom.machinery import goduration
from transom.machinery.field import go_quote
from transom.network.api import Dial

HEALTHY = "service healthy"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY, _CONTINUATION = 0, 1, 3, 4, 6, 7, 9
_ACK = _END_STREAM = 0x1
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_NO_HEADER_TABLE = struct.pack(">HI", 1, 0)
_RETRY_SECONDS = 1.0
_LARGEST_FRAME = 1 << 20
_SERVING = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_CODES = (
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied",
    "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable",
    "DataLoss", "Unauthenticated",
)


class Unhealthy(Exception):
    """The text is the probe's."""


class _Broken(Exception):
    """The connection is of no use: no HTTP/2, or it has ended."""


class _Connection:
    """Frames over a socket."""

    __slots__ = ("_buffer", "_loop", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._buffer = b""

    async def send(self, kind: int, flags: int, stream: int, payload: bytes, before: bytes = b"") -> None:
        frame = struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload
        try:
            await self._loop.sock_sendall(self._sock, before + frame)
        except OSError as problem:
            raise _Broken from problem

    async def read(self) -> tuple[int, int, bytes]:
        """Kind, flags and payload of the next frame. Answers what only needs an answer."""
        while True:
            head = await self._exactly(9)
            size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            if size > _LARGEST_FRAME:
                raise _Broken
            payload = await self._exactly(size)
            if kind in (_SETTINGS, _PING):
                if not flags & _ACK:
                    await self.send(kind, _ACK, 0, payload if kind == _PING else b"")
                if kind == _PING:
                    continue
            return kind, flags, payload

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            try:
                data = await self._loop.sock_recv(self._sock, 65536)
            except OSError as problem:
                raise _Broken from problem
            if not data:
                raise _Broken
            self._buffer += data
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data


async def check(dial: Dial, clock: Clock, host: str, port: int, service: str, agent: str, seconds: float) -> str:
    """`service healthy`. Raises Unhealthy."""
    address = join_host_port(host, port)
    end = clock.monotonic() + seconds
    shown = goduration.show(seconds)
    sock: socket.socket | None = None
    try:
        try:
            async with Within(clock, seconds):
                sock, connection = await _connect(dial, clock, host, port)
        except TimeoutError:
            raise Unhealthy(
                f"timeout: failed to connect service {go_quote(address)} within {shown}: context deadline exceeded"
            ) from None
        try:
            async with Within(clock, end - clock.monotonic()):
                return await _call(connection, address, service, agent, seconds)
        except TimeoutError:
            raise Unhealthy(f"timeout: health rpc did not complete within {shown}") from None
        except _Broken:
            raise Unhealthy(
                "error: health rpc probe failed: rpc error: code = Unavailable desc = error reading from server: EOF"
            ) from None
    finally:
        if sock is not None:
            sock.close()


async def _connect(dial: Dial, clock: Clock, host: str, port: int) -> tuple[socket.socket, _Connection]:
    """Tries until somebody is there who greets as an HTTP/2 server does."""
    while True:
        try:
            sock = await dial(host, port)
        except OSError:
            await clock.sleep(_RETRY_SECONDS)
            continue
        greeted = False
        try:
            connection = _Connection(sock)
            await connection.send(_SETTINGS, 0, 0, _NO_HEADER_TABLE, _PREFACE)
            greeted = (await connection.read())[0] == _SETTINGS
        except _Broken:
            greeted = False
        finally:
            if not greeted:
                sock.close()
        if greeted:
            return sock, connection
        await clock.sleep(_RETRY_SECONDS)


async def _call(connection: _Connection, address: str, service: str, agent: str, seconds: float) -> str:
    headers = {
        ":method": "POST", ":scheme": "http", ":path": "/grpc.health.v1.Health/Check", ":authority": address,
        "content-type": "application/grpc", "user-agent": agent, "te": "trailers",
        "grpc-timeout": f"{int(seconds * 1000)}m",
    }
    name = service.encode()
    message = b"\x0a" + hpack.integer(len(name), 7) + name if name else b""
    await connection.send(_HEADERS, _END_HEADERS, 1, b"".join(hpack.literal(*item) for item in headers.items()))
    await connection.send(_DATA, _END_STREAM, 1, b"\0" + struct.pack(">I", len(message)) + message)
    return _verdict(*await _answer(connection))


async def _answer(connection: _Connection) -> tuple[bytes, dict[str, str]]:
    """The messages and all headers, those behind the messages too."""
    body, block = b"", b""
    headers: dict[str, str] = {}
    while True:
        kind, flags, payload = await connection.read()
        if kind in (_RESET, _GO_AWAY):
            raise _Broken
        if kind == _DATA:
            body += _unpadded(flags, payload)
        elif kind == _HEADERS:
            block = _unpadded(flags, payload)
            if flags & _PRIORITY:
                block = block[5:]
        elif kind == _CONTINUATION:
            block += payload
        else:
            continue
        if kind != _DATA and flags & _END_HEADERS:
            try:
                headers |= hpack.decode(block)
            except ValueError as problem:
                raise _Broken from problem
        if kind != _CONTINUATION and flags & _END_STREAM:
            return body, headers


def _unpadded(flags: int, payload: bytes) -> bytes:
    return payload[1 : len(payload) - payload[0]] if flags & _PADDED and payload else payload


def _verdict(body: bytes, headers: dict[str, str]) -> str:
    status = headers.get("grpc-status")
    if status is None and headers.get(":status") == "404":
        status = "12"
    number = int(status) if status is not None and status.isdecimal() else 2
    code = _CODES[number] if number < len(_CODES) else f"Code({number})"
    text = unquote(headers.get("grpc-message", ""))
    if code == "Unimplemented":
        raise Unhealthy(f"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {text}")
    if code != "OK":
        raise Unhealthy(f"error: health rpc probe failed: rpc error: code = {code} desc = {text}")
    # A compressed flag, four bytes of length, and in the message one number as field 1; without it the number is 0.
    message = body[5:]
    value = message[1] if len(message) >= 2 and message[0] == 0x08 else 0
    if value != 1:
        name = _SERVING[value] if value < len(_SERVING) else str(value)
        raise Unhealthy(f"service unhealthy (responded with {go_quote(name)})")
    return HEALTHY
