"""A server on a real socket in its own thread, and a client that sends exactly the bytes of the
test.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from transom.http import Handler, HttpLimits, HttpRequest, HttpResponse, HttpServer, server_context
from transom.http.budget import ByteBudget
from transom.http.messages import BodyPolicy
from transom.kit import pki

TEXT = [(b"Content-Type", b"text/plain")]


@dataclass
class Tls:
    server: ssl.SSLContext
    client: ssl.SSLContext
    anonymous: ssl.SSLContext


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder: Path = tmp_path_factory.mktemp("pki")
    ca = pki.make_ca("kubernetes")
    pki.save_key_pair(ca, folder / "ca.crt", folder / "ca.key")
    pki.save_key_pair(
        pki.issue_server(ca, "api", ["localhost"], ["127.0.0.1"]),
        folder / "api.crt",
        folder / "api.key",
    )
    pki.save_key_pair(
        pki.issue_client(ca, "jane", ["dev", "ops"]), folder / "jane.crt", folder / "jane.key"
    )
    server = server_context(folder / "api.crt", folder / "api.key", folder / "ca.crt")
    client = ssl.create_default_context(cafile=folder / "ca.crt")
    client.load_cert_chain(folder / "jane.crt", folder / "jane.key")
    return Tls(server, client, ssl.create_default_context(cafile=folder / "ca.crt"))


class Running:
    """The server in its thread. `call` runs a function on its loop."""

    def __init__(
        self,
        handler: Handler,
        limits: HttpLimits | None,
        context: ssl.SSLContext | None,
        budget: ByteBudget | None,
        uploads: ByteBudget | None,
    ) -> None:
        self.server = HttpServer(
            handler,
            context,
            limits=limits or HttpLimits(tick=0.05),
            budget=budget,
            uploads=uploads,
            bodies=handler if isinstance(handler, BodyPolicy) else None,
        )
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.port: int = self.wait(self.server.start("127.0.0.1"))
        self.stopped = False

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        async def run() -> Any:
            return function(*args)

        return self.wait(run())

    def stop(self, grace: float = 2.0) -> None:
        if not self.stopped:
            self.stopped = True
            self.wait(self.server.stop(grace))
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()

    def connect(self, context: ssl.SSLContext | None = None) -> Client:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        if context is not None:
            sock = context.wrap_socket(sock, server_hostname="127.0.0.1")
        return Client(sock)


class Client:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = b""

    def send(self, data: bytes) -> Client:
        self.sock.sendall(data)
        return self

    def get(self, path: str = "/", *headers: str, method: str = "GET", body: bytes = b"") -> Client:
        lines = [f"{method} {path} HTTP/1.1", "Host: h", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return self.send("\r\n".join([*lines, "", ""]).encode() + body)

    def _more(self) -> bool:
        data = self.sock.recv(65536)
        self.buffer += data
        return bool(data)

    def until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            if not self._more():
                raise EOFError(self.buffer)
        found, _, self.buffer = self.buffer.partition(mark)
        return found

    def exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            if not self._more():
                raise EOFError(self.buffer)
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def head(self) -> tuple[int, dict[str, str]]:
        lines = self.until(b"\r\n\r\n").decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines[1:])
        return int(lines[0].split()[1]), {name.lower(): value for name, value in pairs}

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status, headers = self.head()
        return status, headers, self.exactly(int(headers.get("content-length", "0")))

    def chunk(self) -> bytes:
        data = self.exactly(int(self.until(b"\r\n"), 16))
        assert self.exactly(2) == b"\r\n"
        return data

    def at_end(self) -> bool:
        """The server has closed, cleanly or not."""
        try:
            return not self.buffer and not self.sock.recv(65536)
        except ConnectionError:
            return True

    def close(self) -> None:
        self.sock.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def start(
        handler: Handler,
        limits: HttpLimits | None = None,
        context: ssl.SSLContext | None = None,
        budget: ByteBudget | None = None,
        uploads: ByteBudget | None = None,
    ) -> Running:
        running.append(Running(handler, limits, context, budget, uploads))
        return running[-1]

    yield start
    for one in running:
        one.stop()


def echo(request: HttpRequest) -> HttpResponse:
    """What the server understood, one line each."""
    lines = [request.method, request.path, request.body.decode("latin-1")]
    return HttpResponse(200, TEXT, "\n".join(lines).encode())


@pytest.fixture
def echo_handler() -> Handler:
    return echo
