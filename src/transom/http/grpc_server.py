"""Unary gRPC calls over HTTP/2, as a server with small requests.

A client that sends larger ones, or does not speak HTTP/2, is disconnected; one that does not read
its answers waits with the rest of its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from transom.http.grpc import CODES
from transom.kit.lazy import lazy_import
from transom.kit.rpc import RpcError

if TYPE_CHECKING:
    from h2 import config as h2_config
    from h2 import connection as h2_connection
    from h2 import exceptions as h2_exceptions
else:
    h2_config = lazy_import("h2.config")
    h2_connection = lazy_import("h2.connection")
    h2_exceptions = lazy_import("h2.exceptions")

_SLICE: Final = 2048  # bytes that h2 gets at once
_LARGEST_REQUEST: Final = 16384
_PREFIX: Final = 5
_HEADERS: Final = ((":status", "200"), ("content-type", "application/grpc"))

GrpcAnswer = Callable[[str, bytes], Awaitable[bytes]]
"""`await answer(path, request)`: the response. Raises RpcError."""


async def serve_grpc_connection(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: GrpcAnswer
) -> None:
    """Until the client disconnects."""
    connection = _Connection(answer)
    try:
        writer.write(connection.begin())
        while connection.usable and (data := await reader.read(_SLICE)):
            writer.write(await connection.received(data))
            await writer.drain()
    except OSError:
        return
    finally:
        writer.close()


class _Connection:
    def __init__(self, answer: GrpcAnswer) -> None:
        self._answer = answer
        self._h2: Any = h2_connection.H2Connection(
            h2_config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self._paths: dict[int, str] = {}
        self._bodies: dict[int, bytearray] = {}
        self._unsent: dict[int, memoryview] = {}
        self.usable = True

    def begin(self) -> bytes:
        self._h2.initiate_connection()
        return bytes(self._h2.data_to_send())

    async def received(self, data: bytes) -> bytes:
        """What to send."""
        try:
            for event in self._h2.receive_data(data):
                await self._handle(event)
            self._send()
        except h2_exceptions.ProtocolError:
            self.usable = False
        return bytes(self._h2.data_to_send())

    async def _handle(self, event: Any) -> None:
        match type(event).__name__:
            case "RequestReceived":
                self._paths[event.stream_id] = dict(event.headers).get(":path", "")
                self._bodies[event.stream_id] = bytearray()
            case "DataReceived":
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                body = self._bodies.get(event.stream_id, bytearray())
                body += event.data
                self.usable = self.usable and len(body) <= _LARGEST_REQUEST
            case "StreamEnded":
                await self._respond(event.stream_id)
            case "StreamReset":
                for known in (self._paths, self._bodies, self._unsent):
                    known.pop(event.stream_id, None)
            case "ConnectionTerminated":
                self.usable = False

    async def _respond(self, stream: int) -> None:
        path, body = self._paths.pop(stream, ""), self._bodies.pop(stream, bytearray())
        try:
            message = await self._answer(path, bytes(body[_PREFIX:]))
        except RpcError as problem:
            trailers = (
                ("grpc-status", str(CODES.index(problem.code))),
                ("grpc-message", quote(problem.description, safe=" /:,.()'")),
            )
            self._h2.send_headers(stream, (*_HEADERS, *trailers), end_stream=True)
            return
        self._h2.send_headers(stream, _HEADERS)
        self._unsent[stream] = memoryview(b"\0" + len(message).to_bytes(4, "big") + message)

    def _send(self) -> None:
        """As much as the windows of the client allow."""
        for stream, left in [*self._unsent.items()]:
            while left:
                size = min(
                    self._h2.local_flow_control_window(stream),
                    self._h2.max_outbound_frame_size,
                    len(left),
                )
                if size <= 0:
                    break
                self._h2.send_data(stream, bytes(left[:size]))
                left = left[size:]
            self._unsent[stream] = left
            if not left:
                self._h2.send_headers(stream, (("grpc-status", "0"),), end_stream=True)
                del self._unsent[stream]
