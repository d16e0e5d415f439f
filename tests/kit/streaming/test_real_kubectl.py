"""The protocols against the clients they are for: each kubectl there is runs exec, attach, cp and port-forward.

The server knows one pod and a handful of commands, and can put a second hop behind itself as the API server does.
"""

from __future__ import annotations

import asyncio
import fcntl
import io
import json
import os
import pty
import socket
import struct
import subprocess
import tarfile
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.conftest import kubectl_binaries

from transom.apiserver.http import HttpServer, RawConnection, Request, Response, UpgradeResponse, server_context
from transom.kit import pki
from transom.kit.streaming import channels, portforward, relay, remotecommand, websocket
from transom.kit.streaming.channels import STDERR, STDOUT

JSON = [(b"Content-Type", b"application/json")]
CONTAINER = {"name": "c", "image": "i", "stdin": True}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "uid": "1"},
    "spec": {"containers": [CONTAINER], "nodeName": "n"},
    "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": True, "state": {"running": {}}}]},
}
VERBS = ["get", "list", "create"]
FIXED: dict[str, Any] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": "pods", "singularName": "", "namespaced": True, "kind": "Pod", "verbs": VERBS, "shortNames": ["po"]}
        ],
    },
    "/api/v1/namespaces/default/pods/p": POD,
}


class Command:
    """What a container would do: a small program that reacts to the session's events."""

    def __init__(self, session: remotecommand.RemoteCommand, argv: list[str]) -> None:
        self.session = session
        self.argv = argv
        self.stdin = b""
        self.files: dict[str, bytes] = {}

    def __call__(self, event: remotecommand.Event) -> None:
        session = self.session
        match event:
            case remotecommand.Opened():
                self.begin()
            case remotecommand.Data(stream, data):
                session.acknowledge(stream, len(data))
                self.stdin += data
                if self.argv == ["cat"]:
                    session.write(STDOUT, data)
                elif self.argv == ["line"] and self.stdin.endswith(b"\r"):
                    session.write(STDOUT, b"got " + self.stdin)
                    session.finish(channels.success())
            case remotecommand.Ended("stdin"):
                if self.argv[0] == "tar":
                    UPLOADS.append((self.argv, self.stdin))
                session.finish(channels.success())
            case remotecommand.Resized(width, height):
                if self.argv == ["size"]:
                    session.write(STDOUT, b"%dx%d" % (width, height))
                    session.finish(channels.exit_status(7, "error"))

    def begin(self) -> None:
        session = self.session
        match self.argv:
            case ["fail", code]:
                session.write(STDOUT, b"out\n")
                session.write(STDERR, b"err\n")
                session.finish(channels.exit_status(int(code), f"exit {code}"))
            case ["broken"]:
                session.finish(channels.internal_error("error executing command in container: no such thing"))
            case ["much", size]:
                session.write(STDOUT, b"x" * int(size))
                session.finish(channels.success())
            case ["line"]:
                session.write(STDOUT, b"ready> ")
            case ["test", "-d", _]:
                session.finish(channels.success())
            case ["tar", "cf", "-", name]:
                session.write(STDOUT, archive(name, CONTENT))
                session.finish(channels.success())
            case _:
                if not session.streams.stdin:
                    session.write(STDOUT, b"attached\n")
                    session.finish(channels.success())


UPLOADS: list[tuple[list[str], bytes]] = []
CONTENT = bytes(range(256)) * 2000


def archive(name: str, content: bytes) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


class Shouter:
    """What listens on the ports of the pod: it shouts back, and port 81 refuses."""

    def __init__(self, session: portforward.PortForward) -> None:
        self.session = session

    def __call__(self, event: portforward.Event) -> None:
        match event:
            case portforward.Connected(connection, 81):
                self.session.fail(connection, "nobody listens")
                self.session.disconnect(connection)
            case portforward.Data(connection, data):
                self.session.acknowledge(connection, len(data))
                self.session.write(connection, data.upper())
            case portforward.Ended(connection):
                self.session.disconnect(connection)


def drive(session: Any, react: Callable[[Any], None], raw: RawConnection) -> None:
    """Puts a session on a socket."""

    def handle(events: list[Any]) -> None:
        for event in events:
            react(event)
        raw.write(session.data_to_send())
        if session.done:
            raw.close()

    raw.on_close = lambda: handle(session.receive_eof())
    handle(session.start())
    raw.receive(lambda data: handle(session.receive_data(data)))


class Hops:
    """A second wire behind the first, joined as the API server joins kubectl's with the kubelet's."""

    def __init__(self, near: Any, far: Any, behind: Any, react: Callable[[Any], None]) -> None:
        self.near, self.far, self.behind, self.react = near, far, behind, react
        if isinstance(near, remotecommand.RemoteCommand):
            self.to_far = lambda events: relay.relay_command(events, near, far)
            self.to_near = lambda events: relay.relay_command(events, far, near)
        else:
            joined = relay.PortForwardRelay(near, far, far.open)
            self.to_far, self.to_near = joined.from_near, joined.from_far
        self.to_near(far.start())
        self.feed_behind(behind.start())

    def __call__(self, event: Any) -> None:
        self.to_far([event])
        self.pump()

    def feed_behind(self, events: list[Any]) -> None:
        for event in events:
            self.react(event)

    def pump(self) -> None:
        moved = True
        while moved:
            there, back = self.far.data_to_send(), self.behind.data_to_send()
            moved = bool(there or back)
            self.feed_behind(self.behind.receive_data(there))
            self.to_near(self.far.receive_data(back))


class Api:
    def __init__(self) -> None:
        self.two_hops = False
        self.spoken: list[str] = []

    def __call__(self, request: Request) -> Response | UpgradeResponse:
        fixed = FIXED.get(request.path)
        if fixed is not None:
            return Response(200, JSON, json.dumps(fixed).encode())
        verb = request.path.rpartition("/")[2]
        if verb in ("exec", "attach"):
            return self.remote_command(request)
        if verb == "portforward":
            return self.port_forward(request)
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}
        return Response(404, JSON, json.dumps(status).encode())

    def remote_command(self, request: Request) -> Response | UpgradeResponse:
        query = request.query
        streams = remotecommand.Streams(*(query.get(name) == ["true"] for name in ("stdin", "stdout", "stderr", "tty")))
        offered = websocket.tokens(request.header(b"sec-websocket-protocol"))
        session: remotecommand.RemoteCommand
        if request.header(b"upgrade").lower() == "websocket":
            chosen = websocket.choose_subprotocol(offered, channels.REMOTE_COMMAND_WEBSOCKET)
            assert chosen is not None
            headers = websocket.response_headers(request.header(b"sec-websocket-key"), chosen)
            session = remotecommand.WebSocketServer(streams, chosen)
        else:
            chosen = agreed(request, channels.REMOTE_COMMAND_SPDY)
            headers = channels.spdy_response_headers(chosen)
            session = remotecommand.SpdyServer(streams, chosen)
        self.spoken.append(chosen)
        argv = query.get("command", ["attached"])
        react: Any = Command(session, argv)
        if self.two_hops:
            behind = remotecommand.SpdyServer(streams, channels.V4, window=65536)
            far = remotecommand.SpdyClient(streams, channels.V4, window=65536)
            react = Hops(session, far, behind, Command(behind, argv))
        return UpgradeResponse(headers, lambda raw: drive(session, react, raw))

    def port_forward(self, request: Request) -> Response | UpgradeResponse:
        offered = websocket.tokens(request.header(b"sec-websocket-protocol"))
        if request.header(b"upgrade").lower() == "websocket":
            chosen = channels.TUNNEL_PREFIX + channels.tunnelled(offered)[0]
            headers = websocket.response_headers(request.header(b"sec-websocket-key"), chosen)
            session = portforward.SpdyServer(tunnel=True)
        else:
            chosen = agreed(request, channels.PORT_FORWARD_SPDY)
            headers = channels.spdy_response_headers(chosen)
            session = portforward.SpdyServer()
        self.spoken.append(chosen)
        react: Any = Shouter(session)
        if self.two_hops:
            behind = portforward.SpdyServer(window=65536)
            react = Hops(session, portforward.SpdyClient(window=65536), behind, Shouter(behind))
        return UpgradeResponse(headers, lambda raw: drive(session, react, raw))


def agreed(request: Request, supported: tuple[str, ...]) -> str:
    chosen = channels.negotiate_spdy(request.header(b"x-stream-protocol-version"), supported)
    assert isinstance(chosen, str)
    return chosen


class World:
    def __init__(self, api: Api, config: Path) -> None:
        self.api = api
        self.config = config
        self.binary = ""

    def popen(self, *args: str, **more: Any) -> subprocess.Popen[bytes]:
        env = {"KUBECONFIG": str(self.config), "HOME": str(self.config.parent), "PATH": os.environ["PATH"]}
        more = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
        return subprocess.Popen([self.binary, *args], env=env, cwd=self.config.parent, **more)

    def run(self, *args: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        process = self.popen(*args)
        out, err = process.communicate(stdin, timeout=30)
        return process.returncode, out, err


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("kubectl")
    ca = pki.make_ca("test")
    pki.save(ca, folder / "ca.crt", folder / "ca.key")
    pki.save(pki.issue_server(ca, "api", [], ["127.0.0.1"]), folder / "api.crt", folder / "api.key")
    api = Api()
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = HttpServer(api, server_context(folder / "api.crt", folder / "api.key"))
    port = asyncio.run_coroutine_threadsafe(server.start("127.0.0.1"), loop).result(10)
    config = folder / "config"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "t",
                "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
                "users": [{"name": "t", "user": {"token": "t"}}],
                "clusters": [
                    {
                        "name": "t",
                        "cluster": {
                            "server": f"https://127.0.0.1:{port}",
                            "certificate-authority": str(folder / "ca.crt"),
                        },
                    }
                ],
            }
        )
    )
    yield World(api, config)
    asyncio.run_coroutine_threadsafe(server.stop(1), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


NO_KUBECTL = pytest.param("", marks=pytest.mark.skip(reason="no kubectl on this machine"))


@pytest.fixture(params=kubectl_binaries() or [NO_KUBECTL], ids=lambda path: "1.20" if "kubectl-1.20" in path else "kubectl")
def tool(request: pytest.FixtureRequest, world: World) -> World:
    world.binary = request.param
    world.api.two_hops = False
    world.api.spoken.clear()
    return world


@pytest.fixture(params=[False, True], ids=["direct", "two-hops"])
def hops(request: pytest.FixtureRequest, tool: World) -> World:
    tool.api.two_hops = request.param
    return tool


def test_stdin_comes_back_and_ends(hops: World) -> None:
    text = bytes(range(256)) * 4096
    assert hops.run("exec", "-i", "p", "--", "cat", stdin=text) == (0, text, b"")
    assert hops.api.spoken[-1] in (channels.V4, channels.V5)


def test_exit_code_with_both_outputs(hops: World) -> None:
    code, out, err = hops.run("exec", "p", "--", "fail", "42")
    assert (code, out) == (42, b"out\n")
    assert err.startswith(b"err\n") and b"command terminated with exit code 42" in err


def test_an_error_of_the_server_is_told(tool: World) -> None:
    code, _, err = tool.run("exec", "p", "--", "broken")
    assert code == 1
    assert b"error executing command in container: no such thing" in err


def test_much_output(hops: World) -> None:
    code, out, _ = hops.run("exec", "p", "--", "much", "3000000")
    assert (code, len(out)) == (0, 3000000)


def test_terminal_has_a_size_and_a_line(hops: World) -> None:
    for command, awaited, typed, expected, code in (
        ("size", b"", b"", b"132x43", 7),
        ("line", b"ready> ", b"hello\r", b"got hello", 0),
    ):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 43, 132, 0, 0))
        process = hops.popen("exec", "-it", "p", "--", command, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        try:
            shown = read_until(master, awaited)
            os.write(master, typed)
            shown += read_until(master, None)
            assert (process.wait(20), expected in shown) == (code, True), shown
        finally:
            process.kill()
            process.wait(10)
            os.close(master)


def test_attach(hops: World) -> None:
    code, out, _ = hops.run("attach", "p")
    assert (code, out) == (0, b"attached\n")


def test_copy_both_ways(hops: World, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(CONTENT)
    UPLOADS.clear()
    assert hops.run("cp", str(source), "p:/there")[0] == 0
    ((argv, raw),) = UPLOADS
    assert argv[:3] == ["tar", "-xmf", "-"]
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        (entry,) = tar.getmembers()
        content = tar.extractfile(entry)
        assert content is not None and content.read() == CONTENT
    assert hops.run("cp", "p:there", str(target))[0] == 0
    assert target.read_bytes() == CONTENT


def test_port_forward(hops: World) -> None:
    process = hops.popen("port-forward", "p", ":80", ":81")
    try:
        assert process.stdout is not None and process.stderr is not None
        ports = {}
        while len(ports) < 2:
            line = process.stdout.readline().split()
            if line[2].startswith(b"127.0.0.1:"):
                ports[int(line[4])] = int(line[2].rpartition(b":")[2])
        assert hops.api.spoken[-1] in (channels.PORT_FORWARD, channels.TUNNEL)
        clients = [socket.create_connection(("127.0.0.1", ports[80]), 10) for _ in range(3)]
        for client in reversed(clients):
            client.sendall(b"hello " * 20000)
        for client in clients:
            client.shutdown(socket.SHUT_WR)
            assert receive_all(client) == b"HELLO " * 20000
            client.close()
        with socket.create_connection(("127.0.0.1", ports[81]), 10) as client:
            assert receive_all(client) == b""
        assert b"nobody listens" in process.stderr.readline()
    finally:
        process.kill()
        process.communicate(timeout=10)


def receive_all(client: socket.socket) -> bytes:
    raw = b""
    while piece := client.recv(65536):
        raw += piece
    return raw


def read_until(terminal: int, awaited: bytes | None) -> bytes:
    """What a terminal shows until it shows this; None reads until nobody holds its other end any more."""
    raw = b""
    while awaited is None or awaited not in raw:
        try:
            raw += os.read(terminal, 65536)
        except OSError:
            break
    return raw
