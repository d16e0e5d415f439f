"""A gRPC server in this process, which can also do what it should not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset, WindowUpdated

from transom.http.grpc import CODES

Headers = list[tuple[str, str]]
Handler = Callable[[str, bytes], Awaitable[bytes]]
"""The path and the message to the answer; Refusal for a status."""


class Refusal(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Raw(Exception):
    """Answers as no server should: `headers` instead of everything, or after `body`."""

    def __init__(
        self, headers: Headers, body: bytes = b"", trailers: Headers | None = None
    ) -> None:
        super().__init__("raw")
        self.headers, self.body, self.trailers = headers, body, trailers


class Serving(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self._server = server
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._bodies: dict[int, bytearray] = {}
        self._paths: dict[int, str] = {}
        self._left: dict[int, tuple[memoryview, Headers | None]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._server.connections.append(self)
        self._h2.initiate_connection()
        if self._server.most_streams:
            from h2.settings import SettingCodes

            self._h2.update_settings(
                {SettingCodes.MAX_CONCURRENT_STREAMS: self._server.most_streams}
            )
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        for task in self._tasks.values():
            task.cancel()

    def data_received(self, data: bytes) -> None:
        events = self._h2.receive_data(data)
        for gone in (event.stream_id for event in events if isinstance(event, StreamReset)):
            self._left.pop(gone or 0, None)
        for event in events:
            match event:
                case RequestReceived():
                    self._paths[event.stream_id] = dict(event.headers)[":path"]
                    self._bodies[event.stream_id] = bytearray()
                    self._server.headers.append(dict(event.headers))
                case DataReceived():
                    self._bodies[event.stream_id] += event.data
                    self._h2.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
                    if self._server.resets_at_once:
                        self._h2.increment_flow_control_window(1000, event.stream_id)
                        self._h2.reset_stream(event.stream_id, error_code=11)
                        break
                case StreamEnded():
                    self._tasks[event.stream_id] = asyncio.create_task(self._serve(event.stream_id))
                case StreamReset():
                    self._server.resets.append(event.stream_id)
                    if event.stream_id in self._tasks:
                        self._tasks.pop(event.stream_id).cancel()
                case WindowUpdated():
                    for stream in list(self._left):
                        self._feed(stream)
        self._flush()

    def go_away(self) -> None:
        self._h2.close_connection()
        self._flush()

    async def _serve(self, stream: int) -> None:
        self._server.active += 1
        self._server.most_active = max(self._server.most_active, self._server.active)
        good = [(":status", "200"), ("content-type", "application/grpc")]
        body = bytes(self._bodies.pop(stream))
        assert len(body) == 5 + int.from_bytes(body[1:5], "big")
        try:
            answer = await self._server.handler(self._paths[stream], body[5:])
        except Refusal as refusal:
            status = [
                ("grpc-status", str(CODES.index(refusal.code))),
                ("grpc-message", quote(str(refusal))),
            ]
            self._h2.send_headers(stream, good + status, end_stream=True)
        except Raw as raw:
            ends = not raw.body and raw.trailers is None
            self._h2.send_headers(stream, raw.headers, end_stream=ends)
            if not ends:
                self._left[stream] = (memoryview(raw.body), raw.trailers)
        else:
            self._h2.send_headers(stream, good)
            framed = b"\0" + len(answer).to_bytes(4, "big") + answer
            self._left[stream] = (memoryview(framed), [("grpc-status", "0"), ("grpc-message", "")])
        finally:
            self._server.active -= 1
        self._feed(stream)
        self._flush()

    def _feed(self, stream: int) -> None:
        if stream not in self._left:
            return
        left, trailers = self._left[stream]
        while left:
            room = min(
                self._h2.local_flow_control_window(stream),
                self._h2.max_outbound_frame_size,
                len(left),
            )
            if room <= 0:
                self._left[stream] = (left, trailers)
                return
            piece, left = left[:room], left[room:]
            self._h2.send_data(stream, bytes(piece), end_stream=not left and trailers is None)
        del self._left[stream]
        if trailers is not None:
            self._h2.send_headers(stream, trailers, end_stream=True)

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)


class Server:
    def __init__(self, handler: Handler, most_streams: int = 0) -> None:
        self.handler = handler
        self.most_streams = most_streams
        self.connections: list[Serving] = []
        self.headers: list[dict[str, str]] = []
        self.resets_at_once = False
        self.resets: list[int] = []
        self.active = self.most_active = 0

    def drop(self) -> None:
        for connection in self.connections:
            connection.transport.abort()

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[str]:
        """The endpoint."""
        server = await asyncio.get_running_loop().create_unix_server(
            lambda: Serving(self), str(path)
        )
        try:
            yield f"unix://{path}"
        finally:
            server.close()
            self.drop()
            os.unlink(path)
