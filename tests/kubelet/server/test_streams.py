"""Sessions over real sockets, as kubectl and the API server drive them."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.server_harness import Process, ServerHarness

from transom.http.server import listen_sockets
from transom.http.tls import server_context
from transom.kit import pki
from transom.kit.streaming import channels, portforward, remotecommand, websocket
from transom.kit.streaming.remotecommand import CommandStreams
from transom.runtime.api import RuntimeFailure

Scenario = Callable[[ServerHarness, int], Coroutine[Any, Any, None]]


def serve_kubelet(scenario: Scenario, **harness: Any) -> ServerHarness:
    made: list[ServerHarness] = []

    async def run() -> None:
        node = ServerHarness(anonymous_auth=True, **harness)
        made.append(node)
        http = await node.server.serve(listen_sockets(["127.0.0.1"], 0)[0])
        try:
            await asyncio.wait_for(scenario(node, http.port), 20)
        finally:
            await node.server.stop()

    asyncio.run(run())
    return made[0]


class Peer:
    """A client's session on a socket."""

    def __init__(
        self, session: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.session, self.reader, self.writer = session, reader, writer
        self.events: list[Any] = []

    async def until(self, done: Callable[[list[Any]], bool]) -> list[Any]:
        self.flush()
        while not done(self.events):
            data = await self.reader.read(65536)
            self.events += self.session.receive_data(data) if data else self.session.receive_eof()
            self.flush()
            if not data:
                break
        return self.events

    def flush(self) -> None:
        self.writer.write(self.session.data_to_send())


async def connect(
    port: int,
    path: str,
    session: Any,
    wire: str = "spdy",
    protocols: Sequence[str] = (channels.V4,),
) -> Peer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if wire == "spdy":
        headers = channels.spdy_request_headers(protocols)
    else:
        headers = websocket.request_headers("dGhlIHNhbXBsZSBub25jZQ==", protocols)
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    writer.write(
        b"%s %s HTTP/1.1\r\nHost: n1\r\n%s\r\n"
        % (b"POST" if wire == "spdy" else b"GET", path.encode(), lines)
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), head
    peer = Peer(session, reader, writer)
    peer.events += session.start()
    return peer


async def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


def finished(events: list[Any]) -> bool:
    return any(isinstance(e, remotecommand.CommandFinished) for e in events)


def output(events: list[Any], stream: str) -> bytes:
    return b"".join(
        e.data for e in events if isinstance(e, remotecommand.CommandData) and e.stream == stream
    )


def status(events: list[Any]) -> dict[str, Any]:
    return next(e.status for e in events if isinstance(e, remotecommand.CommandFinished))


EXEC = "/exec/ns/p/c?command=sh&command=-c&output=1&error=1"
OUT = CommandStreams(stdout=True, stderr=True)


@pytest.mark.parametrize("runtime", ["docker", "containerd"])
@pytest.mark.parametrize("wire", ["spdy", "websocket"])
def test_output_and_exit_code(wire: str, runtime: str) -> None:
    def begin(process: Process, command: Sequence[str]) -> None:
        process.output("stdout", b"out")
        process.output("stderr", b"err")
        process.exit(3)

    async def scenario(harness: ServerHarness, port: int) -> None:
        harness.runtime.begin = begin
        made: Any = (
            remotecommand.SpdyCommandClient
            if wire == "spdy"
            else remotecommand.WebSocketCommandClient
        )
        peer = await connect(port, EXEC, made(OUT, channels.V4), wire)
        events = await peer.until(finished)
        assert (output(events, "stdout"), output(events, "stderr")) == (b"out", b"err")
        printed = status(events)
        assert channels.exit_code_of_status(printed) == 3
        detail = {
            "docker": "Error executing in Docker Container: 3",
            "containerd": "error executing command [sh -c], exit code 3",
        }[runtime]
        assert printed["message"] == f"command terminated with non-zero exit code: {detail}"

    serve_kubelet(scenario, runtime=runtime)


def test_input_resizing_and_its_end() -> None:
    async def scenario(harness: ServerHarness, port: int) -> None:
        def begin(process: Process, command: Sequence[str]) -> None:
            process.on_input = lambda data: process.output("stdout", data.upper())

        harness.runtime.begin = begin
        streams = CommandStreams(stdin=True, stdout=True, tty=True)
        peer = await connect(
            port,
            "/exec/ns/p/c?command=cat&input=1&output=1&tty=1",
            remotecommand.SpdyCommandClient(streams, channels.V4),
        )
        peer.session.resize(120, 40)
        peer.session.write("stdin", b"hello")
        await peer.until(lambda events: output(events, "stdout") == b"HELLO")
        peer.session.end("stdin")
        events = await peer.until(finished)
        assert status(events)["status"] == "Success"
        assert harness.runtime.processes[0].events == [(120, 40), "eof"]

    serve_kubelet(scenario)


def test_a_command_that_cannot_be_started() -> None:
    async def scenario(harness: ServerHarness, port: int) -> None:
        harness.runtime.failure = RuntimeFailure("Unknown", "no such program")
        peer = await connect(port, EXEC, remotecommand.SpdyCommandClient(OUT, channels.V4))
        printed = status(await peer.until(finished))
        assert (
            printed["message"]
            == "Internal error occurred: error executing command in container: no such program"
        )

    serve_kubelet(scenario)


def test_a_client_that_goes_away_ends_its_command() -> None:
    async def scenario(harness: ServerHarness, port: int) -> None:
        peer = await connect(port, EXEC, remotecommand.SpdyCommandClient(OUT, channels.V4))
        await peer.until(
            lambda events: any(isinstance(e, remotecommand.CommandOpened) for e in events)
        )
        await eventually(lambda: bool(harness.runtime.processes))
        peer.writer.close()
        await eventually(lambda: "closed" in harness.runtime.processes[0].events)

    serve_kubelet(scenario)


@pytest.mark.parametrize(
    ("wire", "started"), [("spdy", True), ("websocket", True), ("websocket", False)]
)
def test_a_writer_that_goes_away_ends_the_input_of_its_command(wire: str, started: bool) -> None:
    """As clients do that copy a file: they write, and disconnect without waiting for the end."""

    async def scenario(harness: ServerHarness, port: int) -> None:
        received: list[bytes] = []

        def begin(process: Process, command: Sequence[str]) -> None:
            process.on_input = received.append

        harness.runtime.begin = begin
        streams = CommandStreams(stdin=True, stdout=True)
        made: Any = (
            remotecommand.SpdyCommandClient
            if wire == "spdy"
            else remotecommand.WebSocketCommandClient
        )
        path = "/exec/ns/p/c?command=cat&input=1&output=1"
        peer = await connect(port, path, made(streams, channels.V4), wire)
        if started:
            await peer.until(
                lambda events: any(isinstance(e, remotecommand.CommandOpened) for e in events)
            )
            await eventually(lambda: bool(harness.runtime.processes))
        peer.session.write("stdin", b"content")
        peer.flush()
        peer.session.close()
        peer.flush()
        peer.writer.close()
        await eventually(lambda: bool(harness.runtime.processes))
        process = harness.runtime.processes[0]
        await eventually(lambda: "eof" in process.events)
        assert b"".join(received) == b"content"
        process.output("stdout", b"without a reader")
        process.exit(0)
        assert "closed" not in process.events

    serve_kubelet(scenario)


def test_a_client_that_does_not_read_holds_up_its_command() -> None:
    async def scenario(harness: ServerHarness, port: int) -> None:
        peer = await connect(port, EXEC, remotecommand.SpdyCommandClient(OUT, channels.V4))
        await peer.until(
            lambda events: any(isinstance(e, remotecommand.CommandOpened) for e in events)
        )
        await eventually(lambda: bool(harness.runtime.processes))
        process = harness.runtime.processes[0]
        sent = 0
        while ("hold", True) not in process.events:
            process.output("stdout", b"x" * 65536)
            sent += 65536
            await asyncio.sleep(0)
        process.exit(0)
        events = await peer.until(finished)
        assert len(output(events, "stdout")) == sent

    serve_kubelet(scenario)


def test_streams_that_never_come() -> None:
    async def scenario(harness: ServerHarness, port: int) -> None:
        # and none for errors
        session = remotecommand.SpdyCommandClient(CommandStreams(stdout=True), channels.V4)
        peer = await connect(port, EXEC, session)
        peer.flush()
        await peer.reader.read(1)
        harness.clock.advance(31)
        while await peer.reader.read(65536):
            pass

    serve_kubelet(scenario)


def test_attach_takes_the_containers_own_terminal() -> None:
    async def scenario(harness: ServerHarness, port: int) -> None:
        harness.pod["spec"]["containers"][0]["tty"] = True
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /attach/ns/p/c?output=1&error=1 HTTP/1.1\r\nHost: n1\r\nContent-Length: "
            b"0\r\n\r\n"
        )
        assert b"500" in await reader.readline()
        assert b"tty and stderr cannot both be true" in await reader.read(65536)
        harness.runtime.begin = lambda process, command: process.exit(7)
        peer = await connect(
            port,
            "/attach/ns/p/c?output=1",
            remotecommand.SpdyCommandClient(CommandStreams(stdout=True, tty=True), channels.V4),
        )
        assert status(await peer.until(finished))["status"] == "Success"

    serve_kubelet(scenario)


def test_ports_are_forwarded() -> None:
    def data(events: list[Any], connection: int) -> bytes:
        return b"".join(
            e.data
            for e in events
            if isinstance(e, portforward.ForwardData) and e.connection == connection
        )

    async def scenario(harness: ServerHarness, port: int) -> None:
        session = portforward.SpdyForwardClient()
        peer = await connect(port, "/portForward/ns/p", session, protocols=(channels.PORT_FORWARD,))
        first, refused = session.open(80), session.open(81)
        assert first is not None and refused is not None
        session.write(first, b"hello " * 50_000)
        events = await peer.until(
            lambda events: (
                len(data(events, first)) == 300_000
                and any(isinstance(e, portforward.ForwardFailed) for e in events)
            )
        )
        assert data(events, first) == b"HELLO " * 50_000
        assert next(e.message for e in events if isinstance(e, portforward.ForwardFailed)) == (
            "error forwarding port 81 to pod sid, uid : exit status 1: connection refused"
        )
        session.end(first)
        await peer.until(lambda events: portforward.ForwardDisconnected(first) in events)

    serve_kubelet(scenario)


async def test_tls_knows_its_clients(tmp_path: Path) -> None:
    ca = pki.make_ca("kubernetes")
    pki.save_key_pair(ca, tmp_path / "ca.crt", tmp_path / "ca.key")
    pki.save_key_pair(
        pki.issue_server(ca, "n1", ["n1"], ["127.0.0.1"]), tmp_path / "n1.crt", tmp_path / "n1.key"
    )
    pki.save_key_pair(
        pki.issue_client(ca, "jane", ["dev"]), tmp_path / "jane.crt", tmp_path / "jane.key"
    )
    client = ssl.create_default_context(cafile=tmp_path / "ca.crt")

    async def ask(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: n1\r\nConnection: close\r\n\r\n")
        return await reader.read(65536)

    harness = ServerHarness()
    harness.clock._start = time.time() + 60
    harness.server._tls = lambda: server_context(
        tmp_path / "n1.crt", tmp_path / "n1.key", tmp_path / "ca.crt"
    )
    http = await harness.server.serve(listen_sockets(["127.0.0.1"], 0)[0])
    assert (await ask(http.port)).startswith(b"HTTP/1.1 401 ")
    client.load_cert_chain(tmp_path / "jane.crt", tmp_path / "jane.key")
    assert (await ask(http.port)).endswith(b"ok")
    assert harness.client.requested[-1]["spec"]["user"] == "jane"
    assert harness.client.requested[-1]["spec"]["groups"] == ["dev", "system:authenticated"]
    await harness.server.stop()
