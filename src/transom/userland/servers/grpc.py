"""grpc.health.v1.Health/Check as a server: the part of HTTP/2 that a health check needs.

It does not look at the path: every call is answered as a health check.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SERVING, NOT_SERVING = 1, 2
_DATA, _HEADERS, _SETTINGS, _PING, _GO_AWAY = 0, 1, 4, 6, 7
_END_STREAM = _ACK = 0x1
_END_HEADERS, _PADDED = 0x4, 0x8
_NOT_FOUND = 5

Check = Callable[[str], int | None]
"""The status of a service by its name; None: there is no such service."""


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes((kind, flags))
        + struct.pack(">I", stream)
        + payload
    )


def _header(name: bytes, value: bytes) -> bytes:
    """A literal header without indexing and Huffman coding, which every client can read."""
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


def _service(message: bytes) -> str:
    """The only field of a HealthCheckRequest, after gRPC's five-byte prefix."""
    body = message[5:]
    if len(body) < 2 or body[0] != 0x0A:
        return ""
    return body[2 : 2 + body[1]].decode("utf-8", "replace")


def _answer(stream: int, status: int | None) -> bytes:
    # 0x88: `:status: 200` of the static table
    begin = b"\x88" + _header(b"content-type", b"application/grpc")
    if status is None:
        trailer = (
            begin
            + _header(b"grpc-status", str(_NOT_FOUND).encode())
            + _header(b"grpc-message", b"unknown service")
        )
        return _frame(_HEADERS, _END_HEADERS | _END_STREAM, stream, trailer)
    message = bytes((0x08, status))
    return (
        _frame(_HEADERS, _END_HEADERS, stream, begin)
        + _frame(_DATA, 0, stream, struct.pack(">BI", 0, len(message)) + message)
        + _frame(_HEADERS, _END_HEADERS | _END_STREAM, stream, _header(b"grpc-status", b"0"))
    )


async def serve_grpc(first: bytes, connection: socket.socket, check: Check) -> None:
    """Serves a connection whose first bytes are already read."""
    loop = asyncio.get_running_loop()
    buffer = bytearray(first)

    async def need(size: int) -> bool:
        while len(buffer) < size:
            chunk = await loop.sock_recv(connection, 65536)
            if not chunk:
                return False
            buffer.extend(chunk)
        return True

    if not await need(len(PREFACE)) or not buffer.startswith(PREFACE):
        return
    del buffer[: len(PREFACE)]
    await loop.sock_sendall(connection, _frame(_SETTINGS, 0, 0))
    bodies: dict[int, bytes] = {}
    while await need(9):
        length = int.from_bytes(buffer[:3], "big")
        kind, flags, stream = buffer[3], buffer[4], int.from_bytes(buffer[5:9], "big") & 0x7FFFFFFF
        if not await need(9 + length):
            return
        payload = bytes(buffer[9 : 9 + length])
        del buffer[: 9 + length]
        if kind == _SETTINGS and not flags & _ACK:
            await loop.sock_sendall(connection, _frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            await loop.sock_sendall(connection, _frame(_PING, _ACK, 0, payload))
        elif kind == _GO_AWAY:
            return
        elif kind in (_DATA, _HEADERS):
            if kind == _DATA:
                if flags & _PADDED:
                    payload = payload[1 : len(payload) - payload[0]]
                bodies[stream] = bodies.get(stream, b"") + payload
            if flags & _END_STREAM:
                await loop.sock_sendall(
                    connection, _answer(stream, check(_service(bodies.pop(stream, b""))))
                )
