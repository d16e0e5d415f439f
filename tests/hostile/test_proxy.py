"""Pods that answer the proxy with far more than it seems: compressed bombs, huge pages, endless
heads, slow bodies.

The server runs in the test process, where the fixture `loop_budget` measures each callback of the
loop.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.apiserver.kubelets.support import POD_IP, ApiHarness, running_api_server

from transom.http.messages import Answer, HttpRequest, HttpResponse

BASE = "/api/v1/namespaces/default/pods/p/proxy"
HTML = (b"Content-Type", b"text/html")
MIB = 1024 * 1024


def peak(reset: bool = False) -> int:
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    field = "VmRSS" if reset else "VmHWM"
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


@asynccontextmanager
async def attacked(
    folder: Path, serve: Callable[[HttpRequest], Answer], rss: int
) -> AsyncIterator[ApiHarness]:
    async with running_api_server(folder) as w:
        w.network.listen(POD_IP, 80, serve)
        await w.pod()
        before = peak(reset=True)
        yield w
        assert peak() - before < rss, f"grew by {(peak() - before) / MIB:.0f} MiB"


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(data) + packer.flush()


BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: gzip.compress(bytes(200 * MIB)),
    "gzip of many members": lambda: gzip.compress(bytes(2 * MIB)) * 100,
    "gzip of small members": lambda: gzip.compress(b"") * 20_000,
    "deflate": lambda: _deflated(b"<a href=/x>" * (20 * MIB)),
}


@pytest.fixture
def bomb(name: str) -> bytes:
    """Made before the event loop of the test runs, which it would hold for too long."""
    return BOMBS[name]()


@pytest.mark.parametrize("name", BOMBS)
async def test_a_compressed_bomb_passes_as_it_is(tmp_path: Path, name: str, bomb: bytes) -> None:
    encoding = name.split()[0].encode()

    async with attacked(
        tmp_path,
        lambda _: HttpResponse(200, [HTML, (b"Content-Encoding", encoding)], bomb),
        80 * MIB,
    ) as w:
        got = await asyncio.gather(*(w.ask("GET", f"{BASE}/") for _ in range(4)))
        for answer in got:
            assert answer.status == 200
            assert answer.body == bomb or (
                name == "gzip of small members" and gzip.decompress(answer.body) == b""
            )


@pytest.mark.parametrize(
    "page",
    [
        b'<a href="/x">' * 100_000,
        b"<" * 3_000_000,
        b"<a " + b"x=1 " * 200_000,
        b"<!--" * 700_000,
        b'<a href="' * 200_000,
        b"<script>" * 400_000,
        b"<a href='&amp;" + b"&amp;" * 600_000 + b"'>",
        b"<a" + b" " * 3_000_000,
    ],
    ids=[
        "links",
        "brackets",
        "attributes",
        "comments",
        "open quotes",
        "scripts",
        "entities",
        "blanks",
    ],
)
async def test_a_large_page_is_rewritten_beside_the_loop(tmp_path: Path, page: bytes) -> None:
    async with attacked(tmp_path, lambda _: HttpResponse(200, [HTML], page), 150 * MIB) as w:
        answer = await w.ask("GET", f"{BASE}/")
        assert answer.status == 200
        assert page[:13] != b'<a href="/x">' or answer.body.startswith(
            f'<a href="{BASE}/x">'.encode()
        )


async def test_a_page_that_is_too_large_passes_as_it_is(tmp_path: Path) -> None:
    page = b'<a href="/x">' * MIB

    async with attacked(tmp_path, lambda _: HttpResponse(200, [HTML], page), 100 * MIB) as w:
        assert (await w.ask("GET", f"{BASE}/")).body == page


class Hostile:
    """Not an HTTP server: it sends the same bytes to every client."""

    def __init__(self, sent: list[bytes]) -> None:
        self._sent = sent
        self.broken_off = False

    async def adopt(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        await reader.readuntil(b"\r\n\r\n")
        try:
            for piece in self._sent:
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            self.broken_off = True
        writer.close()

    async def stop(self, _grace: float) -> None:
        """Every connection ends with its exchange."""


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (
            [b"HTTP/1.1 200 OK\r\n", *[b"X-A: b\r\n" * 1000] * 10_000],
            "server response headers exceeded 1048576 bytes; aborted",
        ),
        (
            [b"HTTP/1.1 200 OK\r\n", *[b"a:\r\n" * 1000] * 10_000],
            "server response headers exceeded 1048576 bytes; aborted",
        ),
        (
            [b"HTTP/1.1 200 OK\r\nX: ", *[b"a" * 60_000] * 10_000],
            "server response headers exceeded 1048576 bytes; aborted",
        ),
        (
            [b"HTTP/1.1 100 Continue\r\n\r\n" * 1000] * 10_000,
            "too many 1xx informational responses",
        ),
    ],
    ids=["many headers", "short headers", "one header", "interim answers"],
)
async def test_an_endless_head_is_broken_off(
    tmp_path: Path, sent: list[bytes], expected: str
) -> None:
    async with running_api_server(tmp_path) as w:
        w.network._servers[POD_IP, 80] = Hostile(sent)  # type: ignore[assignment]
        await w.pod()
        before = peak(reset=True)
        answer = await w.ask("GET", f"{BASE}/")
        assert answer.status == 500 and expected in answer.body.decode(), answer.body
        assert peak() - before < 20 * MIB


@pytest.mark.parametrize(
    "framing",
    [b"0\r\n" + b"X: y\r\n" * 10_000, b"0\r\nX: " + b"y" * 60_000, b"5;" + b"a" * 60_000],
    ids=["many trailers", "one trailer", "chunk extension"],
)
async def test_endless_framing_of_a_body_is_broken_off(tmp_path: Path, framing: bytes) -> None:
    sent = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", framing]
    rest = b"X: y\r\n" * 10_000 if framing.endswith(b"\n") else framing[-60_000:]
    hostile = Hostile([*sent, *[rest] * 2_000])
    async with running_api_server(tmp_path) as w:
        w.network._servers[POD_IP, 80] = hostile  # type: ignore[assignment]
        await w.pod()
        before = peak(reset=True)
        with pytest.raises(asyncio.IncompleteReadError):  # the client notices, too
            await w.ask("GET", f"{BASE}/")
        assert peak() - before < 20 * MIB
        assert hostile.broken_off
