"""A real etcd member on loopback, in a temporary directory, that tests may kill, pause and restart."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

_prefixes = itertools.count(1)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class EtcdProcess:
    """`start` returns when the member accepts connections; it may still be without a leader."""

    def __init__(self, folder: Path, name: str = "default", options: Sequence[str] = ()) -> None:
        self.folder = folder
        self.name = name
        self.port = free_port()
        self.peer = f"http://127.0.0.1:{free_port()}"
        self.cluster = f"{name}={self.peer}"
        self.options = tuple(options)
        self.scheme = "http"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def fresh_url(self) -> str:
        """The address of the store, with a prefix of its own."""
        return f"etcd://{self.address}/test-{next(_prefixes)}"

    def launch(self) -> None:
        url = f"{self.scheme}://{self.address}"
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "etcd",
                    *("--name", self.name, "--data-dir", str(self.folder / "data")),
                    *("--listen-client-urls", url, "--advertise-client-urls", url),
                    *("--listen-peer-urls", self.peer),
                    *("--initial-advertise-peer-urls", self.peer),
                    *("--initial-cluster", self.cluster),
                    *("--heartbeat-interval", "20", "--election-timeout", "200"),
                    *("--log-level", "error", "--logger", "zap"),
                    *self.options,
                ],
                stdout=log,
                stderr=log,
            )

    def start(self) -> EtcdProcess:
        self.launch()
        self.wait_listening()
        return self

    def wait_listening(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                if self.scheme == "http":
                    urllib.request.urlopen(f"http://{self.address}/health", timeout=5).close()
                return
            except (OSError, urllib.error.URLError):
                assert self._process is not None and self._process.poll() is None, (
                    self.folder / "etcd.log"
                ).read_text()
                assert time.monotonic() < deadline, "etcd does not start"
                time.sleep(0.05)

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def forget_data(self) -> None:
        shutil.rmtree(self.folder / "data")


class Forwarder:
    """A TCP proxy in front of a member, which can be cut."""

    def __init__(self, member: EtcdProcess) -> None:
        self._member = member
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.cut = False

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            writer.close()
            return
        other, upstream = await asyncio.open_connection("127.0.0.1", self._member.port)
        self._writers += [writer, upstream]
        for source, sink in ((reader, upstream), (other, writer)):
            self._tasks.append(asyncio.create_task(self._copy(source, sink)))

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
        except ConnectionError:
            return
        finally:
            sink.close()

    def disconnect(self) -> None:
        self.cut = True
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def stop(self) -> None:
        self.disconnect()
        self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """For what real processes do in their own time."""
    for _ in range(2000):
        if await check():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen")


def require_etcd() -> None:
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed (apt-get install etcd-server)")
