"""Watches over a WebSocket: the handshake, and one message for each event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from transom.apiserver.serving.websocket_watch import (
    WebSocketStream,
    split_chunks,
    websocket_watch,
)
from transom.http.messages import (
    HttpResponse,
    ResponseStream,
    StreamResponse,
    UpgradeResponse,
    encode_chunk,
)
from transom.http.raw import RawConnection
from transom.kit.streaming.websocket import WebSocketConnection, WebSocketMessage

HANDSHAKE = {
    "upgrade": "websocket",
    "connection": "Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "origin": "http://localhost",
}
JSON = [(b"Content-Type", b"application/json")]


class Host:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    def mark_dirty(self, stream: object) -> None:
        """Nothing is buffered here."""


class ClientSide:
    """A connection to a client in memory."""

    def __init__(self) -> None:
        self.write_paused = False
        self.server = Host()
        self.received = b""
        self.closed = False

    def write_raw(self, data: bytes) -> None:
        self.received += data

    def write_buffer_size(self) -> int:
        return 0

    def buffered(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        """The input is in memory."""

    def resume_reading(self) -> None:
        """The input is in memory."""

    def messages(self) -> list[tuple[bytes, bool]]:
        data, self.received = self.received, b""
        found = WebSocketConnection(client=True).receive_data(data)
        return [(event.data, event.text) for event in found if isinstance(event, WebSocketMessage)]


class Pieces:
    def __init__(self, *pieces: Sequence[bytes] | None) -> None:
        self._pieces = list(pieces)

    def read(self, size: int) -> Sequence[bytes] | None:
        return self._pieces.pop(0)


def watch(start: Callable[[ResponseStream], None], *, protobuf: bool = False) -> StreamResponse:
    kind = b"application/vnd.kubernetes.protobuf;stream=watch"
    headers = [(b"Content-Type", kind)] if protobuf else JSON
    return StreamResponse(200, headers, start, resumable=True)


def test_handshake() -> None:
    def status(**changed: str) -> int:
        headers = HANDSHAKE | {name.replace("_", "-"): value for name, value in changed.items()}
        return websocket_watch("GET", headers, watch(lambda stream: None)).status

    assert status() == 101
    assert status(sec_websocket_protocol="base64.binary.k8s.io") == 101
    assert status(sec_websocket_protocol="one, two") == 400
    assert status(sec_websocket_version="8") == 400
    assert status(sec_websocket_key="x") == 400
    assert status(origin="") == 403
    refused = websocket_watch("GET", {}, watch(lambda stream: None))
    assert isinstance(refused, HttpResponse) and refused.status == 400


async def test_each_event_is_a_message() -> None:
    streams: list[ResponseStream] = []
    answer = websocket_watch("GET", HANDSHAKE, watch(streams.append))
    assert isinstance(answer, UpgradeResponse)
    client = ClientSide()
    raw = RawConnection(client, b"")
    answer.start(raw)
    [stream] = streams
    stream.write_framed(encode_chunk(b"one\n") + encode_chunk(b"two\n"))
    assert stream.offer(encode_chunk(b"three\n"))
    assert client.messages() == [(b"one\n", True), (b"two\n", True), (b"three\n", True)]
    closed: list[bool] = []
    stream.on_close = lambda: closed.append(True)
    raw.lost()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert closed and not stream.alive


async def test_protobuf_events_are_binary_and_have_no_length() -> None:
    streams: list[ResponseStream] = []
    answer = websocket_watch("GET", HANDSHAKE, watch(streams.append, protobuf=True))
    assert isinstance(answer, UpgradeResponse)
    client = ClientSide()
    answer.start(RawConnection(client, b""))
    streams[0].write_framed(encode_chunk(b"\0\0\0\x05event"))
    assert client.messages() == [(b"event", False)]


async def test_a_client_that_is_behind_is_served_from_a_source() -> None:
    client = ClientSide()
    stream = WebSocketStream(RawConnection(client, b""), binary=False)
    stream.begin()
    client.write_paused = True
    assert not stream.offer(encode_chunk(b"lost?"))
    chunk = encode_chunk(b"large")
    stream.follow(Pieces([chunk[:4], chunk[4:]], [], None))
    await asyncio.sleep(0)
    assert client.messages() == []
    client.write_paused = False
    stream._raw.writes_resumed()
    for _ in range(4):
        await asyncio.sleep(0)
    assert client.messages() == [(b"large", True)]
    assert stream.offer(encode_chunk(b"next"))
    assert client.messages() == [(b"next", True)]


async def test_the_client_closes_the_connection() -> None:
    client = ClientSide()
    raw = RawConnection(client, b"")
    WebSocketStream(raw, binary=False).begin()
    other = WebSocketConnection(client=True)
    other.send(b"ignored", text=True)
    other.close()
    raw.feed(other.data_to_send())
    for _ in range(3):
        await asyncio.sleep(0)
    assert client.closed


def test_chunks_are_split() -> None:
    chunks = encode_chunk(b"a\r\nb") + encode_chunk(b"c" * 300)
    assert list(split_chunks(chunks)) == [b"a\r\nb", b"c" * 300]
