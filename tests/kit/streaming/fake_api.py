"""A server for real clients: one pod, a few commands, and the part of the API that clients need for
them.

It can put a second hop behind itself, as the API server has the kubelet behind it.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from typing import Any

from tests.kit.streaming.forward_relay import PortForwardRelay

from transom.http import HttpRequest, HttpResponse, RawConnection, UpgradeResponse
from transom.kit.streaming import channels, portforward, relay, remotecommand, upgrade
from transom.kit.streaming.channels import STDERR, STDOUT

JSON = [(b"Content-Type", b"application/json")]
CONTAINER = {"name": "c", "image": "i", "stdin": True}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "uid": "1"},
    "spec": {"containers": [CONTAINER], "nodeName": "n"},
    "status": {
        "phase": "Running",
        "containerStatuses": [{"name": "c", "ready": True, "state": {"running": {}}}],
    },
}
VERBS = ["get", "list", "create"]
FIXED: dict[str, Any] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {
                "name": "pods",
                "singularName": "",
                "namespaced": True,
                "kind": "Pod",
                "verbs": VERBS,
                "shortNames": ["po"],
            }
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
            case remotecommand.CommandOpened():
                self.begin()
            case remotecommand.CommandData(stream, data):
                session.acknowledge(stream, len(data))
                self.stdin += data
                if self.argv == ["cat"]:
                    session.write(STDOUT, data)
                elif self.argv == ["line"] and self.stdin.endswith(b"\r"):
                    session.write(STDOUT, b"got " + self.stdin)
                    session.finish(channels.command_success_status())
            case remotecommand.CommandStreamEnded("stdin"):
                if self.argv[0] == "tar":
                    UPLOADS.append((self.argv, self.stdin))
                session.finish(channels.command_success_status())
            case remotecommand.CommandResized(width, height):
                if self.argv == ["size"]:
                    session.write(STDOUT, b"%dx%d" % (width, height))
                    session.finish(channels.exit_code_status(7, "error"))

    def begin(self) -> None:
        session = self.session
        match self.argv:
            case ["fail", code]:
                session.write(STDOUT, b"out\n")
                session.write(STDERR, b"err\n")
                session.finish(channels.exit_code_status(int(code), f"exit {code}"))
            case ["broken"]:
                session.finish(
                    channels.internal_error_status(
                        "error executing command in container: no such thing"
                    )
                )
            case ["much", size]:
                session.write(STDOUT, b"x" * int(size))
                session.finish(channels.command_success_status())
            case ["line"]:
                session.write(STDOUT, b"ready> ")
            case ["test", "-d", _]:
                session.finish(channels.command_success_status())
            case ["tar", "cf", "-", name]:
                session.write(STDOUT, archive(name, CONTENT))
                session.finish(channels.command_success_status())
            case _:
                if not session.streams.stdin:
                    session.write(STDOUT, b"attached\n")
                    session.finish(channels.command_success_status())


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
            case portforward.ForwardConnected(connection, 81):
                self.session.fail(connection, "no listener")
                self.session.disconnect(connection)
            case portforward.ForwardData(connection, data):
                self.session.acknowledge(connection, len(data))
                self.session.write(connection, data.upper())
            case portforward.ForwardEnded(connection):
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
    """A second wire behind the first, joined as the API server joins kubectl's with the
    kubelet's.
    """

    def __init__(self, near: Any, far: Any, behind: Any, react: Callable[[Any], None]) -> None:
        self.near, self.far, self.behind, self.react = near, far, behind, react
        if isinstance(near, remotecommand.RemoteCommand):
            self.to_far = lambda events: relay.relay_command(events, near, far)
            self.to_near = lambda events: relay.relay_command(events, far, near)
        else:
            joined = PortForwardRelay(near, far, far.open)
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
        self.websocket_protocols: tuple[str, ...] = channels.REMOTE_COMMAND_WEBSOCKET
        self.spoken: list[str] = []

    def __call__(self, request: HttpRequest) -> HttpResponse | UpgradeResponse:
        fixed = FIXED.get(request.path)
        if fixed is not None:
            return HttpResponse(200, JSON, json.dumps(fixed).encode())
        verb = request.path.rpartition("/")[2]
        if verb in ("exec", "attach"):
            return self.remote_command(request)
        if verb == "portforward":
            return self.port_forward(request)
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": 404,
            "reason": "NotFound",
        }
        return HttpResponse(404, JSON, json.dumps(status).encode())

    def remote_command(self, request: HttpRequest) -> HttpResponse | UpgradeResponse:
        query = request.query
        streams = remotecommand.CommandStreams(
            *(query.get(name) == ["true"] for name in ("stdin", "stdout", "stderr", "tty"))
        )
        accepted = upgrade.accept_command(
            request.method, text(request), streams, websocket_protocols=self.websocket_protocols
        )
        if isinstance(accepted, channels.Refusal):
            return HttpResponse(accepted.status, [], accepted.message.encode())
        headers, protocol, session = accepted
        self.spoken.append(protocol)
        argv = query.get("command", ["attached"])
        react: Any = Command(session, argv)
        if self.two_hops:
            behind = remotecommand.SpdyCommandServer(streams, channels.V4, window=65536)
            far = remotecommand.SpdyCommandClient(streams, channels.V4, window=65536)
            react = Hops(session, far, behind, Command(behind, argv))
        return UpgradeResponse(headers, lambda raw: drive(session, react, raw))

    def port_forward(self, request: HttpRequest) -> HttpResponse | UpgradeResponse:
        accepted = upgrade.accept_forward(
            request.method, text(request), request.query.get("ports", [])
        )
        if isinstance(accepted, channels.Refusal):
            return HttpResponse(accepted.status, [], accepted.message.encode())
        headers, protocol, session = accepted
        self.spoken.append(protocol)
        react: Any = Shouter(session)
        if self.two_hops:
            behind = portforward.SpdyForwardServer(window=65536)
            react = Hops(
                session, portforward.SpdyForwardClient(window=65536), behind, Shouter(behind)
            )
        return UpgradeResponse(headers, lambda raw: drive(session, react, raw))


def text(request: HttpRequest) -> dict[str, str]:
    return {
        name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()
    }
