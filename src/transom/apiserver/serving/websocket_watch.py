"""Watches over a WebSocket, as browsers need them: one message for each event, text for JSON.

What the client sends is ignored, except that it closes the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from transom.http.messages import (
    Headers,
    HttpResponse,
    StreamResponse,
    StreamSource,
    UpgradeResponse,
    text_response,
)
from transom.http.raw import RawConnection
from transom.kit.streaming import websocket
from transom.machinery.codec import PROTOBUF

_WINDOW = 64 * 1024
_MOST_BUFFERED = 4 * 1024 * 1024  # for a client that does not read
_MOST_RECEIVED = 64 * 1024
_LENGTH_PREFIX = 4  # of a protobuf event in a byte stream; a message needs none


def websocket_watch(
    method: str, headers: Mapping[str, str], answer: StreamResponse
) -> HttpResponse | UpgradeResponse:
    """The response to a watch whose request (header names in lower case) asks for a WebSocket."""
    problem = websocket.check_handshake_request(method, headers)
    offered = websocket.header_tokens(headers.get("sec-websocket-protocol", ""))
    if problem or len(offered) > 1:
        return text_response(400, problem or "bad WebSocket protocol")
    if not headers.get("origin"):
        return text_response(403, "null origin")
    accepted = websocket.response_headers(headers["sec-websocket-key"], "".join(offered))
    binary = _is_protobuf(answer.headers)

    def start(raw: RawConnection) -> None:
        stream = WebSocketStream(raw, binary=binary)
        answer.start(stream)
        stream.begin()

    return UpgradeResponse(accepted, start)


def _is_protobuf(headers: Headers) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(PROTOBUF.encode())
        for name, value in headers
    )


class WebSocketStream:
    """A `ResponseStream` whose chunks become messages."""

    def __init__(self, raw: RawConnection, *, binary: bool) -> None:
        self._raw = raw
        self._binary = binary
        self._socket = websocket.WebSocketConnection(client=False, max_message=_MOST_RECEIVED)
        self._source: StreamSource | None = None
        self._turn: asyncio.Handle | None = None
        self._behind: asyncio.Future[None] | None = None
        self.alive = True
        self.on_close: Callable[[], object] | None = None

    def begin(self) -> None:
        self._raw.on_close = self._lost
        self._raw.on_writable = self._resume
        self._raw.receive(self._received)

    def offer(self, data: bytes) -> bool:
        if self._source is not None or not self._raw.writable:
            return False
        self._send(data)
        return True

    def write(self, data: bytes) -> None:
        if data and self.alive:
            self._message(data)

    def write_framed(self, data: bytes) -> None:
        if self.alive:
            self._send(data)

    def follow(self, source: StreamSource) -> None:
        if self.alive:
            self._source = source
            self._pull_later()

    async def drained(self) -> None:
        while self.alive and not self._raw.writable:
            self._behind = asyncio.get_running_loop().create_future()
            await self._behind

    def close(self) -> None:
        if self.alive:
            self.alive = False
            self._detach()
            self._socket.close()
            self._raw.write(self._socket.data_to_send())
            self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def _send(self, chunks: bytes) -> None:
        for message in split_chunks(chunks):
            self._message(message[_LENGTH_PREFIX:] if self._binary else message)

    def _message(self, message: bytes) -> None:
        self._socket.send(message, text=not self._binary)
        self._raw.write(self._socket.data_to_send())
        if self._raw.buffered > _MOST_BUFFERED:
            self._raw.abort()

    def _pull_later(self) -> None:
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._pull)

    def _pull(self) -> None:
        """Reads from the source while the client does."""
        self._turn = None
        if self._source is None or not self.alive or not self._raw.writable:
            return
        parts = self._source.read(_WINDOW)
        if parts is None:
            self._source = None
            return
        self._send(b"".join(parts))
        self._pull_later()

    def _resume(self) -> None:
        if self._source is not None:
            self._pull_later()
        if self._behind is not None and not self._behind.done():
            self._behind.set_result(None)

    def _received(self, data: bytes) -> None:
        self._socket.receive_data(data)
        self._raw.write(self._socket.data_to_send())  # answers to pings
        if self._socket.finished:
            self._raw.close()

    def _detach(self) -> None:
        self._source = None
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        if self._behind is not None and not self._behind.done():
            self._behind.set_result(None)

    def _lost(self) -> None:
        if self.alive:
            self.alive = False
            self._detach()
            if self.on_close is not None:
                self.on_close()


def split_chunks(data: bytes) -> Iterator[bytes]:
    """The contents of whole chunks."""
    at = 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        size = int(data[at:end], 16)
        yield data[end + 2 : end + 2 + size]
        at = end + 2 + size + 2
