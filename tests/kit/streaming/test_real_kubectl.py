"""The protocols against real clients: each available kubectl runs exec, attach, cp and
port-forward.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import socket
import struct
import subprocess
import tarfile
import termios
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import kubectl_binaries
from tests.kit.streaming.fake_api import CONTENT, UPLOADS, Api

from transom.kit.streaming import channels


class StreamServer:
    def __init__(self, api: Api, config: Path, binary: str) -> None:
        self.api = api
        self.config = config
        self.binary = binary

    def popen(self, *args: str, **more: Any) -> subprocess.Popen[bytes]:
        env = {
            "KUBECONFIG": str(self.config),
            "HOME": str(self.config.parent),
            "PATH": os.environ["PATH"],
        }
        more = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        } | more
        return subprocess.Popen([self.binary, *args], env=env, cwd=self.config.parent, **more)

    def run(self, *args: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        process = self.popen(*args)
        out, err = process.communicate(stdin, timeout=30)
        return process.returncode, out, err


NO_KUBECTL = pytest.param("", marks=pytest.mark.skip(reason="no kubectl on this machine"))


@pytest.fixture(
    params=kubectl_binaries() or [NO_KUBECTL],
    ids=lambda path: "1.20" if "kubectl-1.20" in path else "kubectl",
)
def tool(request: pytest.FixtureRequest, served: Any) -> StreamServer:
    served.api.two_hops = False
    served.api.websocket_protocols = channels.REMOTE_COMMAND_WEBSOCKET
    served.api.spoken.clear()
    return StreamServer(served.api, served.kubeconfig, request.param)


@pytest.fixture(params=[False, True], ids=["direct", "two-hops"])
def hops(request: pytest.FixtureRequest, tool: StreamServer) -> StreamServer:
    tool.api.two_hops = request.param
    return tool


def test_stdin_comes_back_and_ends(hops: StreamServer) -> None:
    text = bytes(range(256)) * 4096
    assert hops.run("exec", "-i", "p", "--", "cat", stdin=text) == (0, text, b"")
    assert hops.api.spoken[-1] in (channels.V4, channels.V5)


def test_a_server_without_version_5_gets_spdy(tool: StreamServer) -> None:
    """As a kubectl of today meets Kubernetes 1.20."""
    tool.api.websocket_protocols = (channels.V4,)
    assert tool.run("exec", "-i", "p", "--", "cat", stdin=b"hello") == (0, b"hello", b"")
    assert tool.api.spoken == [channels.V4]


def test_exit_code_with_both_outputs(hops: StreamServer) -> None:
    code, out, err = hops.run("exec", "p", "--", "fail", "42")
    assert (code, out) == (42, b"out\n")
    assert err.startswith(b"err\n") and b"command terminated with exit code 42" in err


def test_an_error_of_the_server_is_shown(tool: StreamServer) -> None:
    code, _, err = tool.run("exec", "p", "--", "broken")
    assert code == 1
    assert b"error executing command in container: no such thing" in err


def test_much_output(hops: StreamServer) -> None:
    code, out, _ = hops.run("exec", "p", "--", "much", "3000000")
    assert (code, len(out)) == (0, 3000000)


def test_terminal_has_a_size_and_a_line(hops: StreamServer) -> None:
    for command, awaited, typed, expected, code in (
        ("size", b"", b"", b"132x43", 7),
        ("line", b"ready> ", b"hello\r", b"got hello", 0),
    ):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 43, 132, 0, 0))
        process = hops.popen(
            "exec", "-it", "p", "--", command, stdin=slave, stdout=slave, stderr=slave
        )
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


def test_attach(hops: StreamServer) -> None:
    code, out, _ = hops.run("attach", "p")
    assert (code, out) == (0, b"attached\n")


def test_copy_both_ways(hops: StreamServer, tmp_path: Path) -> None:
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


def test_port_forward(hops: StreamServer) -> None:
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
        assert b"no listener" in process.stderr.readline()
    finally:
        process.kill()
        process.communicate(timeout=10)


def receive_all(client: socket.socket) -> bytes:
    raw = b""
    while piece := client.recv(65536):
        raw += piece
    return raw


def read_until(terminal: int, awaited: bytes | None) -> bytes:
    """What a terminal shows until it shows this; None reads until no process holds its other end any
    more.
    """
    raw = b""
    while awaited is None or awaited not in raw:
        try:
            raw += os.read(terminal, 65536)
        except OSError:
            break
    return raw
