"""Floods on upgraded connections: exec, attach, port-forward and logs over SPDY and WebSocket.

Whatever a client sends there, the event loop stays within its budget, and a client that does not
read, or a command that does not read its input, stops the client from sending instead of filling
the server's memory.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import zlib
from collections.abc import Callable, Iterator

from tests.hostile.conftest import MIB, ROUNDS, Attack, Victim

from transom.kit.streaming import channels, spdy_frames
from transom.kit.streaming.spdy_frames import HeaderWriter

POD = "/api/v1/namespaces/default/pods"
EXEC = f"{POD}/shell/exec?container=main&stdin=1&stdout=1"
CAT, SLEEP, READER = (
    f"{EXEC}&command=cat",
    f"{EXEC}&command=sleep&command=1000",
    f"{EXEC}&command=sh&command=-c&command=",
)
FORWARD = f"{POD}/web/portforward"
LOG = f"{POD}/web/log?follow=1"
FLOOD = (2 * MIB) if ROUNDS else MIB // 4  # of small frames


def upgrade(victim: Victim, path: str, *lines: str) -> ssl.SSLSocket:
    """A connection after 101."""
    sock = victim.endpoint.connect(timeout=20)
    sock.sendall(
        "\r\n".join(
            [f"GET {path} HTTP/1.1", "Host: kubernetes", "Connection: Upgrade", *lines, "", ""]
        ).encode()
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        assert byte, head
        head += byte
    assert head.startswith(b"HTTP/1.1 101"), head + sock.recv(4096)
    return sock


def spdy(victim: Victim, path: str, protocol: str = channels.V4) -> ssl.SSLSocket:
    return upgrade(victim, path, "Upgrade: SPDY/3.1", f"X-Stream-Protocol-Version: {protocol}")


def websocket(victim: Victim, path: str, protocol: str) -> ssl.SSLSocket:
    return upgrade(
        victim,
        path,
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        f"Sec-WebSocket-Protocol: {protocol}",
    )


def flood(sock: ssl.SSLSocket, data: bytes, seconds: float = 10.0) -> bool:
    """Sends all of it and reads nothing. False when the server stopped reading or ended the
    connection.
    """
    sock.settimeout(seconds)
    with contextlib.suppress(TimeoutError, BrokenPipeError, ConnectionResetError, ssl.SSLError):
        view = memoryview(data)
        for at in range(0, len(data), 65536):
            sock.sendall(view[at : at + 65536])
        return True
    return False


def drain(sock: ssl.SSLSocket, seconds: float = 0.3) -> None:
    """Reads until the server has no more to say for a while."""
    sock.settimeout(seconds)
    with contextlib.suppress(TimeoutError, ConnectionResetError, ssl.SSLError):
        while sock.recv(1 << 20):
            pass


# ---- SPDY ----


def streams(*names: str, writer: HeaderWriter | None = None, **headers: str) -> bytes:
    """SYN_STREAM frames of a client that opens these streams."""
    writer = writer or HeaderWriter()
    return b"".join(
        spdy_frames.syn_stream_frame(
            2 * i + 1, writer.write([("streamtype", name), *headers.items()])
        )
        for i, name in enumerate(names)
    )


OPEN = streams("error", "stdin", "stdout")
STDIN = 3  # the number of that stream


def numbered(frame: Callable[[int, HeaderWriter], bytes], size: int) -> bytes:
    """Frames for streams 1, 3, 5..., as many as there is room for."""
    out, length, number, writer = [], 0, 1, HeaderWriter()
    while length < size:
        out.append(frame(number, writer))
        length += len(out[-1])
        number += 2
    return b"".join(out)


def bomb(number: int, writer: HeaderWriter) -> bytes:
    """A few bytes that unpack to as many headers as allowed."""
    block = writer.write([(f"h{i:02}", "a" * 150) for i in range(99)])
    return spdy_frames.syn_stream_frame(number, block)


def too_large_bomb() -> bytes:
    packer = zlib.compressobj(9, zdict=spdy_frames.DICTIONARY)
    block = packer.compress(struct.pack(">I", 0xFFFFFF) + b"\0" * MIB) + packer.flush(
        zlib.Z_SYNC_FLUSH
    )
    return spdy_frames.syn_stream_frame(1, block)


SPDY_FLOODS: dict[str, Callable[[], bytes]] = {
    "pings": lambda: spdy_frames.ping_frame(1) * (FLOOD // 12),
    "streams of no use": lambda: numbered(
        lambda n, w: spdy_frames.syn_stream_frame(n, w.write([])), FLOOD
    ),
    "streams that are ended at once": lambda: numbered(
        lambda n, w: spdy_frames.syn_stream_frame(n, w.write([]), fin=True), FLOOD
    ),
    "streams of the server": lambda: numbered(
        lambda n, w: spdy_frames.syn_stream_frame(n + 1, w.write([])), FLOOD
    ),
    "the same stream": lambda: numbered(
        lambda n, w: spdy_frames.syn_stream_frame(n, w.write([("streamtype", "stdin")])), FLOOD
    ),
    "many headers": lambda: numbered(bomb, FLOOD // 4),
    "a header bomb": too_large_bomb,
    "data for streams that do not exist": lambda: spdy_frames.data_frame(9, b"x") * (FLOOD // 9),
    "empty data": lambda: OPEN + spdy_frames.data_frame(STDIN, b"") * (FLOOD // 8),
    "data of one byte": lambda: OPEN + spdy_frames.data_frame(STDIN, b"x") * (FLOOD // 9),
    "replies": lambda: (
        b"".join(spdy_frames.syn_reply_frame(2, HeaderWriter().write([])) for _ in range(1))
        * (FLOOD // 20)
    ),
    "resets": lambda: OPEN + spdy_frames.rst_stream_frame(9, 1) * (FLOOD // 16),
    "settings": lambda: spdy_frames.settings_frame({7: 1 << 20}) * (FLOOD // 20),
    "windows": lambda: (
        OPEN
        + (spdy_frames.window_update_frame(0, 1) + spdy_frames.window_update_frame(STDIN, 1))
        * (FLOOD // 32)
    ),
    "goodbyes": lambda: spdy_frames.goaway_frame(0, 0) * (FLOOD // 16),
    "unknown frames": lambda: spdy_frames.control_frame(77, b"") * (FLOOD // 8),
    "sizes of a terminal": lambda: (
        streams("error", "stdin", "stdout", "resize")
        + spdy_frames.data_frame(7, b'{"Width":1,"Height":2}' * 50) * (FLOOD // 1100)
    ),
}


def test_floods_of_frames(node_victim: Victim, node_attack: Attack, rounds: int) -> None:
    floods = {name: make() for name, make in SPDY_FLOODS.items()}
    with node_attack(rss=40 * MIB):
        for _ in range(rounds):
            for name, data in floods.items():
                with spdy(
                    node_victim, CAT if name != "sizes of a terminal" else f"{CAT}&tty=1"
                ) as sock:
                    flood(sock, data, 1.0)
                    drain(sock, 0.05)


def test_unread_answers_stop_the_client(node_victim: Victim, node_attack: Attack) -> None:
    with node_attack(rss=30 * MIB):
        with spdy(node_victim, CAT) as sock:
            assert not flood(sock, OPEN + spdy_frames.ping_frame(1) * 4 * MIB, 0.5)
        with spdy(node_victim, FORWARD, channels.PORT_FORWARD) as sock:
            assert not flood(sock, spdy_frames.ping_frame(1) * 4 * MIB, 0.5)
        for path, protocol in (
            (CAT, channels.V5),
            (CAT, channels.V4),
            (LOG, "binary.k8s.io"),
            (FORWARD, channels.TUNNEL),
        ):
            with websocket(node_victim, path, protocol) as sock:
                assert not flood(sock, frame(b"x" * 100, 9) * MIB, 0.5)


def test_frames_that_never_end_keep_no_memory(node_victim: Victim, node_attack: Attack) -> None:
    """Each connection has a frame of 16 MiB of which nearly all arrives."""
    head = struct.pack(">II", STDIN, 0xFFFFFF)
    with node_attack(rss=60 * MIB), contextlib.ExitStack() as stack:
        for _ in range(8):
            sock = stack.enter_context(spdy(node_victim, f"{EXEC}&command=wc"))
            assert flood(sock, OPEN + head + b"x" * 15 * MIB, 20)


def test_input_that_is_not_read_stops_the_client(node_victim: Victim, node_attack: Attack) -> None:
    with node_attack(rss=30 * MIB), spdy(node_victim, SLEEP) as sock:
        assert not flood(sock, OPEN + spdy_frames.data_frame(STDIN, b"x" * 60_000) * 1000, 0.7)


def test_a_command_that_ends_with_unread_input_reports_its_output(
    node_victim: Victim, node_attack: Attack
) -> None:
    with node_attack(rss=30 * MIB), spdy(node_victim, READER + "echo+done") as sock:
        flood(sock, OPEN + spdy_frames.data_frame(STDIN, b"x" * 60_000) * 8, 0.7)
        sock.settimeout(10)
        received = b""
        while b"Success" not in received:
            piece = sock.recv(65536)
            assert piece, received
            received += piece
        assert b"done\n" in received


def test_unread_output(node_victim: Victim, node_attack: Attack, rounds: int) -> None:
    endless = READER + "while+:;do+echo+aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa;done"
    with node_attack(rss=60 * MIB), contextlib.ExitStack() as stack:
        socks = [stack.enter_context(spdy(node_victim, endless)) for _ in range(8)]
        for sock in socks:
            flood(sock, OPEN)
        for sock in socks:
            flood(sock, spdy_frames.ping_frame(1) * 20_000, 0.05)


KEYS = {
    "returns": b"\r" * 20_000,
    "a long line that is erased": b"a" * 60_000 + b"\x15",
    "words that are erased": (b"a" * 50 + b"\x17") * 1200,
    "interrupts": b"\x03" * 2000,
    "escapes": b"\x1b[" * 30_000,
    "control characters": b"\x01" * 60_000,
}


def test_keys_of_a_terminal(node_victim: Victim, node_attack: Attack) -> None:
    opened = streams("error", "stdin", "stdout", "resize")
    with node_attack(rss=30 * MIB):
        for keys in KEYS.values():
            with spdy(node_victim, f"{CAT}&tty=1") as sock:
                flood(sock, opened + spdy_frames.data_frame(STDIN, keys) * 2)
                drain(sock, 0.1)


# ---- port-forward ----


def pair(number: int, writer: HeaderWriter, kinds: tuple[str, ...] = ("error", "data")) -> bytes:
    """The streams of one forwarded connection."""
    return b"".join(
        spdy_frames.syn_stream_frame(
            number * 4 + 1 + 2 * i,
            writer.write([("streamtype", kind), ("port", "80"), ("requestid", str(number))]),
        )
        for i, kind in enumerate(kinds)
    )


def halves(data: bytes = b"") -> Iterator[bytes]:
    writer = HeaderWriter()
    for number in range(2500):
        yield pair(number, writer, ("data",))
        if data:
            yield spdy_frames.data_frame(number * 4 + 1, data)


FORWARDS: dict[str, Callable[[], bytes]] = {
    "halves of connections": lambda: b"".join(halves()),
    "data for halves": lambda: b"".join(halves(b"x" * 3000)),
    "connections": lambda: b"".join(
        pair(number, writer) for writer in [HeaderWriter()] for number in range(300)
    ),
    "connections that send": lambda: b"".join(
        pair(number, writer)
        + spdy_frames.data_frame(number * 4 + 3, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        for writer in [HeaderWriter()]
        for number in range(50)
    ),
    "pings": SPDY_FLOODS["pings"],
    "the same request": lambda: b"".join(
        spdy_frames.syn_stream_frame(
            2 * n + 1, writer.write([("streamtype", "data"), ("port", "80"), ("requestid", "1")])
        )
        for writer in [HeaderWriter()]
        for n in range(4000)
    ),
}


def test_floods_of_forwarded_connections(
    node_victim: Victim, node_attack: Attack, rounds: int
) -> None:
    floods = [make() for make in FORWARDS.values()]
    with node_attack(rss=80 * MIB):
        for _ in range(rounds):
            for data in floods:
                with spdy(node_victim, FORWARD, channels.PORT_FORWARD) as sock:
                    flood(sock, data, 1.0)
                    drain(sock, 0.1)


# ---- WebSocket ----


def frame(payload: bytes, opcode: int = 2, *, final: bool = True, size: int | None = None) -> bytes:
    """Of a client, with a mask of zeros."""
    length = len(payload) if size is None else size
    coded = (
        bytes([0x80 | length])
        if length < 126
        else (
            b"\xfe" + struct.pack(">H", length)
            if length < 65536
            else b"\xff" + struct.pack(">Q", length)
        )
    )
    return bytes([(0x80 if final else 0) | opcode]) + coded + b"\0\0\0\0" + payload


WEBSOCKET_FLOODS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "pings": (channels.V4, lambda: frame(b"x" * 100, 9) * (FLOOD // 106)),
    "empty pings": (channels.V5, lambda: frame(b"", 9) * (FLOOD // 6)),
    "pongs": (channels.V5, lambda: frame(b"", 10) * (FLOOD // 6)),
    "empty messages": (channels.V5, lambda: frame(b"") * (FLOOD // 6)),
    "messages of one byte": (channels.V5, lambda: frame(b"\0x") * (FLOOD // 8)),
    "messages for other channels": (channels.V4, lambda: frame(b"\x09x") * (FLOOD // 8)),
    "fragments": (
        channels.V5,
        lambda: frame(b"\0", final=False) + frame(b"x", 0, final=False) * (FLOOD // 7),
    ),
    "a message of 32 MiB": (channels.V5, lambda: frame(b"\0" * (32 * MIB))),
    "a message of 32 MiB in base64": (
        channels.V4_BASE64,
        lambda: frame(b"0" + b"QUFB" * (8 * MIB - 1), 1),
    ),
    "a message that is larger": (channels.V4, lambda: frame(b"\0" * MIB, size=1 << 40)),
    "closed channels": (channels.V5, lambda: frame(b"\xff\0") * (FLOOD // 8)),
    "sizes of a terminal": (
        channels.V5,
        lambda: frame(b'\x04{"Width":1,"Height":2}') * (FLOOD // 29),
    ),
}


def test_floods_of_messages(node_victim: Victim, node_attack: Attack, rounds: int) -> None:
    floods = [(protocol, make()) for protocol, make in WEBSOCKET_FLOODS.values()]
    with node_attack(rss=40 * MIB):
        for _ in range(rounds):
            for protocol, data in floods:
                with websocket(node_victim, f"{EXEC}&command=wc", protocol) as sock:
                    flood(sock, data, 1.0)
                    drain(sock, 0.05)


def test_floods_in_a_tunnel(node_victim: Victim, node_attack: Attack) -> None:
    floods = [make() for make in FORWARDS.values()]
    with node_attack(rss=80 * MIB):
        for data in floods:
            with websocket(node_victim, FORWARD, channels.TUNNEL) as sock:
                flood(sock, frame(data[:1000], final=False) + frame(data[1000:], 0), 1.0)
                drain(sock, 0.1)


def test_floods_on_a_log(node_victim: Victim, node_attack: Attack, rounds: int) -> None:
    with node_attack(rss=40 * MIB):
        for _ in range(rounds):
            for name in ("pings", "fragments", "messages of one byte", "a message of 32 MiB"):
                with websocket(node_victim, LOG, "binary.k8s.io") as sock:
                    flood(sock, WEBSOCKET_FLOODS[name][1]()[: 4 * MIB], 1.0)


# ---- connections that do nothing ----


def test_upgrades_that_are_never_used(node_victim: Victim, node_attack: Attack) -> None:
    with node_attack(rss=80 * MIB), contextlib.ExitStack() as stack:
        for number in range(24):
            if number % 3 == 0:
                stack.enter_context(spdy(node_victim, CAT))
            elif number % 3 == 1:
                stack.enter_context(spdy(node_victim, FORWARD, channels.PORT_FORWARD))
            else:
                sock = stack.enter_context(node_victim.endpoint.connect())
                sock.sendall(f"GET {CAT} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nX-".encode())


def test_a_refused_upgrade_with_early_data(node_victim: Victim, node_attack: Attack) -> None:
    request = (
        f"GET {POD}/none/exec?command=cat&stdin=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
        f"Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {channels.V4}\r\n\r\n"
    )
    with node_attack(rss=30 * MIB):
        for _ in range(10):
            with node_victim.endpoint.connect() as sock:
                flood(sock, request.encode() + b"x" * MIB, 0.5)
                sock.settimeout(5)
                with contextlib.suppress(ConnectionResetError, socket.timeout, ssl.SSLError):
                    assert b"404" in sock.recv(4096)[:20]
