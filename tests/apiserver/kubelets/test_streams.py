"""exec, attach and port-forward through the API server, on every wire a client may choose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transom.http.messages import Answer, HttpRequest, HttpResponse, StreamResponse, UpgradeResponse
from transom.http.raw import RawConnection
from transom.http.sessions import SessionDriver
from transom.kit.streaming import channels, portforward, remotecommand, upgrade, websocket
from transom.kit.streaming.remotecommand import (
    CommandData,
    CommandFinished,
    CommandResized,
    CommandStreamEnded,
    CommandStreams,
)

from .support import NODE_IP, POD_IP, ApiHarness, Peer, run, running_api_server

POD = "/api/v1/namespaces/default/pods/p"
ALL = CommandStreams(stdin=True, stdout=True, stderr=True)
EXEC = f"{POD}/exec?command=a&command=b+c&stdin=true&stdout=true&stderr=1&tty=false"


class Commands:
    """A kubelet that runs one command: it shouts what it hears, and fails with 3 when its input
    ends.
    """

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.sizes: list[tuple[int, int]] = []
        self.ended = asyncio.Event()
        self.driver: SessionDriver

    def __call__(self, request: HttpRequest) -> Answer:
        self.requests.append(request)
        requested = CommandStreams(
            *(request.query.get(n) == ["1"] for n in ("input", "output", "error", "tty"))
        )
        headers = {k.decode(): v.decode() for k, v in request.headers.items()}
        # Like a kubelet of 1.20, which does not support version 5.
        accepted = upgrade.accept_command(
            request.method,
            headers,
            requested,
            websocket_protocols=channels.REMOTE_COMMAND_WEBSOCKET[:-1],
        )
        if isinstance(accepted, channels.Refusal):
            return HttpResponse(accepted.status, [], accepted.message.encode())
        return UpgradeResponse(accepted.headers, lambda raw: self.start(raw, accepted.session))

    def start(self, raw: RawConnection, session: remotecommand.RemoteCommand) -> None:
        def react(event: Any) -> None:
            match event:
                case CommandData(_, data):
                    session.write("stdout", data.upper())
                    session.write("stderr", b"heard %d\n" % len(data))
                case CommandStreamEnded("stdin"):
                    session.finish(channels.exit_code_status(3, "exit 3"))
                case CommandResized(width, height):
                    self.sizes.append((width, height))
                case remotecommand.CommandClosed():
                    self.ended.set()

        self.driver = SessionDriver(session, raw, react)
        self.driver.start()


async def upgraded(
    w: ApiHarness, target: str, headers: list[tuple[bytes, bytes]], method: str = "POST"
) -> tuple[Peer, Any]:
    peer = await w.peer()
    lines: dict[str, str] = {}
    for name, value in headers:
        lines[name.decode()] = (
            f"{lines[name.decode()]},{value.decode()}" if name.decode() in lines else value.decode()
        )
    await peer.send(method, target, lines)
    return peer, await peer.head()


async def drive(peer: Peer, session: Any, until: Callable[[list[Any]], bool]) -> list[Any]:
    """Moves bytes between the peer and its session until enough has happened."""
    events: list[Any] = []
    while True:
        peer.writer.write(session.data_to_send())
        if until(events):
            return events
        data = await peer.reader.read(65536)
        events += session.receive_data(data) if data else session.receive_eof()


def text(events: list[Any], stream: str) -> bytes:
    return b"".join(
        event.data for event in events if isinstance(event, CommandData) and event.stream == stream
    )


WIRES = {
    "SPDY": (
        "POST",
        channels.spdy_request_headers(channels.REMOTE_COMMAND_SPDY),
        channels.V4,
        channels.V4,
    ),
    "v4": (
        "GET",
        websocket.request_headers(websocket.make_key(), [channels.V4]),
        channels.V4,
        channels.V4,
    ),
    "v5": (
        "GET",
        websocket.request_headers(websocket.make_key(), [channels.V5, channels.V4]),
        channels.V5,
        channels.V4,
    ),
}


@pytest.mark.parametrize("wire", WIRES)
async def test_a_command(tmp_path: Path, wire: str) -> None:
    async with run():
        method, headers, protocol, spoken = WIRES[wire]
        kubelet = Commands()
        async with running_api_server(tmp_path) as w:
            w.kubelet(kubelet)
            await w.node()
            await w.pod()
            peer, (status, got) = await upgraded(w, EXEC, headers, method)
            assert (
                status,
                got.get("sec-websocket-protocol") or got.get("x-stream-protocol-version"),
            ) == (101, protocol)
            make = (
                remotecommand.SpdyCommandClient
                if wire == "SPDY"
                else remotecommand.WebSocketCommandClient
            )
            session = make(ALL, protocol)
            session.start()
            session.write("stdin", b"hello")
            events = await drive(
                peer,
                session,
                lambda seen: text(seen, "stdout") + text(seen, "stderr") == b"HELLOheard 5\n",
            )
            if wire == "v4":  # its clients cannot say that they are through
                session.close()
                peer.writer.write(session.data_to_send())
                await kubelet.ended.wait()
            else:
                session.end("stdin")
                events = await drive(
                    peer, session, lambda seen: any(isinstance(e, CommandFinished) for e in seen)
                )
                assert (
                    channels.exit_code_of_status(
                        next(e for e in events if isinstance(e, CommandFinished)).status
                    )
                    == 3
                )
            peer.close()
            requested = kubelet.requests[0]
            assert (
                requested.target
                == b"/exec/default/p/c?command=a&command=b+c&error=1&input=1&output=1"
            )
            assert requested.header(b"host") == f"{NODE_IP}:10250"
            assert requested.peer is not None
            assert requested.peer.cn == "kube-apiserver-kubelet-client"
            assert b"authorization" not in requested.headers
            if wire != "v4":
                assert spoken in requested.header(b"x-stream-protocol-version")


async def test_a_terminal_is_resized_on_the_newest_wire(tmp_path: Path) -> None:
    async with run():
        _, headers, protocol, _ = WIRES["v5"]
        kubelet = Commands()
        async with running_api_server(tmp_path) as w:
            w.kubelet(kubelet)
            await w.node()
            await w.pod()
            peer, (status, _) = await upgraded(
                w, f"{POD}/attach?stdin=true&stdout=true&tty=true", headers, "GET"
            )
            assert status == 101
            session = remotecommand.WebSocketCommandClient(
                CommandStreams(stdin=True, stdout=True, tty=True), protocol
            )
            session.start()
            session.resize(80, 25)
            session.write("stdin", b"x")
            await drive(peer, session, lambda seen: text(seen, "stdout") == b"X")
            assert kubelet.sizes == [(80, 25)]
            peer.close()
            await kubelet.ended.wait()  # a client that goes away takes its command along


@pytest.mark.parametrize("wire", WIRES)
async def test_a_client_that_does_not_read_holds_up_the_command(tmp_path: Path, wire: str) -> None:
    async with run():
        method, headers, protocol, _ = WIRES[wire]
        held = asyncio.Event()
        sent = 0

        class Flood(Commands):
            def start(self, raw: RawConnection, session: remotecommand.RemoteCommand) -> None:
                def pour() -> None:
                    nonlocal sent
                    while not held.is_set() and sent < 200 * 1024 * 1024:
                        session.write("stdout", bytes(65536))
                        sent += 65536
                        self.driver.send()

                def behind(yes: bool) -> None:
                    (held.set if yes else held.clear)()
                    if not yes:
                        asyncio.get_running_loop().call_soon(pour)

                def react(event: Any) -> None:
                    if isinstance(event, remotecommand.CommandOpened):
                        asyncio.get_running_loop().call_soon(pour)

                self.driver = SessionDriver(session, raw, react)
                self.driver.on_behind = behind
                self.driver.start()

        async with running_api_server(tmp_path) as w:
            w.kubelet(Flood())
            await w.node()
            await w.pod()
            peer, (status, _) = await upgraded(
                w, f"{POD}/exec?command=x&stdout=true", headers, method
            )
            assert status == 101
            make = (
                remotecommand.SpdyCommandClient
                if wire == "SPDY"
                else remotecommand.WebSocketCommandClient
            )
            session = make(CommandStreams(stdout=True), protocol)
            session.start()
            await drive(peer, session, lambda seen: bool(text(seen, "stdout")))
            before = -1
            while before != sent:  # until everything between here and there is full
                before = sent
                for _ in range(2000):
                    await asyncio.sleep(0)
            assert held.is_set()
            assert sent < 60 * 1024 * 1024
            peer.writer.transport.abort()


async def test_what_a_kubelet_says_instead_of_an_upgrade_is_for_the_client(tmp_path: Path) -> None:
    async with run(), running_api_server(tmp_path) as w:
        w.kubelet(
            lambda request: HttpResponse(500, [(b"X-Why", b"1")], b'container not found ("c")')
        )
        await w.node()
        await w.pod()
        for method, headers, _, _ in WIRES.values():
            peer, (status, got) = await upgraded(w, EXEC, headers, method)
            assert (status, got["x-why"]) == (500, "1")
            assert (
                await peer.reader.readexactly(int(got["content-length"]))
                == b'container not found ("c")'
            )
            peer.close()


async def test_requests_rejected_before_the_kubelet_is_called(tmp_path: Path) -> None:
    async with run(), running_api_server(tmp_path) as w:
        await w.node()
        await w.pod()
        await w.pod("two", containers=("a", "b"))
        await w.pod("lost", node="")
        spdy = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
        two = POD.removesuffix("p") + "two"
        cases = {
            (f"{POD}/exec?command=x&stdout=true", None): (400, "Upgrade request required"),
            (f"{POD}/portforward", None): (400, "Upgrade request required"),
            (f"{POD}/portforward?ports=x", None): (
                400,
                'cannot convert to []int32: strconv.ParseUint: parsing "x": invalid syntax',
            ),
            (f"{POD}/exec?dryRun=All", None): (400, "dryRun is not supported"),
            (f"{POD}/exec?container=z", None): (400, "container z is not valid for pod p"),
            (f"{two}/exec", None): (
                400,
                "a container name must be specified for pod two, choose one of: [a b]",
            ),
            (f"{POD}/exec?command=x&stdout=true", "up"): (
                500,
                f"error dialing backend: dial tcp {NODE_IP}:10250: connect: connection refused",
            ),
        }
        for (target, up), (status, message) in cases.items():
            got = await w.ask("POST", target, spdy if up else None)
            assert (got.status, got.json["message"]) == (status, message), target


class Forwards:
    """A kubelet whose pod answers each connection with its port and what it hears, and closes."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []

    def __call__(self, request: HttpRequest) -> Answer:
        self.requests.append(request)
        headers = {k.decode(): v.decode() for k, v in request.headers.items()}
        accepted = upgrade.accept_forward(request.method, headers, request.query.get("port", []))
        assert not isinstance(accepted, channels.Refusal)
        return UpgradeResponse(accepted.headers, lambda raw: self.start(raw, accepted.session))

    def start(self, raw: RawConnection, session: portforward.PortForward) -> None:
        ports: dict[int, int] = {}

        def react(event: Any) -> None:
            match event:
                case portforward.ForwardConnected(connection, port):
                    ports[connection] = port
                    if port == 99:
                        session.fail(connection, "no listener")
                        session.disconnect(connection)
                case portforward.ForwardData(connection, data):
                    session.write(connection, b"%d:%b" % (ports[connection], data))
                    session.disconnect(connection)

        SessionDriver(session, raw, react).start()


@pytest.mark.parametrize("tunnel", [False, True])
async def test_ports_are_forwarded(tmp_path: Path, tunnel: bool) -> None:
    async with run():
        kubelet = Forwards()
        async with running_api_server(tmp_path) as w:
            w.kubelet(kubelet)
            await w.node()
            await w.pod()
            headers = channels.spdy_request_headers(channels.PORT_FORWARD_SPDY)
            if tunnel:
                headers = websocket.request_headers(websocket.make_key(), [channels.TUNNEL])
            peer, (status, _) = await upgraded(
                w, f"{POD}/portforward", headers, "GET" if tunnel else "POST"
            )
            assert status == 101
            session = portforward.SpdyForwardClient(tunnel=tunnel)
            session.start()
            one, two, none = session.open(80), session.open(81), session.open(99)
            assert one and two and none
            session.write(one, b"a")
            session.write(two, bytes(300_000))

            def through(seen: list[Any]) -> bool:
                return sum(isinstance(e, portforward.ForwardDisconnected) for e in seen) == 3

            events = await drive(peer, session, through)
            assert portforward.ForwardData(one, b"80:a") in events
            assert portforward.ForwardFailed(none, "no listener") in events
            back = b"".join(
                e.data
                for e in events
                if isinstance(e, portforward.ForwardData) and e.connection == two
            )
            assert back.startswith(b"81:\0")
            peer.close()
            assert kubelet.requests[0].target == b"/portForward/default/p"
            assert kubelet.requests[0].header(b"upgrade") == "SPDY/3.1"


async def test_ports_on_channels(tmp_path: Path) -> None:
    async with run():
        kubelet = Forwards()
        async with running_api_server(tmp_path) as w:
            w.kubelet(kubelet)
            await w.node()
            await w.pod()
            headers = websocket.request_headers(websocket.make_key(), [channels.V4])
            peer, (status, _) = await upgraded(
                w, f"{POD}/portforward?ports=80&ports=81", headers, "GET"
            )
            assert (status, kubelet.requests[0].target) == (
                101,
                b"/portForward/default/p?port=80%2C81",
            )
            session = portforward.WebSocketForwardClient([80, 81], channels.V4)
            session.start()
            session.write(1, b"x")
            await drive(peer, session, lambda seen: portforward.ForwardData(1, b"81:x") in seen)
            peer.close()


async def test_a_kubelet_may_send_the_server_to_its_runtime(tmp_path: Path) -> None:
    async with run():
        commands = Commands()
        seen: list[str] = []

        def kubelet(request: HttpRequest) -> Answer:
            seen.append(request.method)
            where = (
                b"https://10.9.9.9/cri"
                if request.query.get("command") == ["far"]
                else b"/cri/exec?output=1"
            )
            if request.path.startswith("/cri"):
                return commands(request)
            return HttpResponse(302, [(b"Location", where)])

        async with running_api_server(tmp_path) as w:
            w.kubelet(kubelet)
            await w.node()
            await w.pod()
            headers = channels.spdy_request_headers([channels.V4])
            _, (status, _) = await upgraded(w, f"{POD}/exec?command=x&stdout=true", headers)
            assert (status, seen, commands.requests[0].path) == (101, ["POST", "GET"], "/cri/exec")
            got = await w.ask(
                "POST",
                f"{POD}/exec?command=far&stdout=true",
                {k.decode(): v.decode() for k, v in headers},
            )
            assert got.json["message"] == f"hostname mismatch: expected {NODE_IP}, found 10.9.9.9"


@pytest.mark.parametrize("path", ["log?follow=true", "exec?command=x&stdout=true", "proxy/"])
async def test_a_client_that_leaves_early_leaves_nothing_open(tmp_path: Path, path: str) -> None:
    async with run():
        requested, go_on, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

        def stream(there: Any) -> None:
            there.on_close = gone.set
            if isinstance(there, RawConnection):
                there.receive(lambda data: None)

        async def kubelet(request: HttpRequest) -> Answer:
            requested.set()
            await go_on.wait()
            if path.startswith("exec"):
                return UpgradeResponse(
                    [(b"Connection", b"Upgrade"), (b"Upgrade", b"SPDY/3.1")], stream
                )
            return StreamResponse(200, [], stream)

        async with running_api_server(tmp_path) as w:
            w.kubelet(kubelet)
            w.network.listen(POD_IP, 80, kubelet)
            await w.node()
            await w.pod()
            peer = await w.peer()
            upgrade = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
            await peer.send("GET", f"{POD}/{path}", upgrade if "exec" in path else None)
            await requested.wait()
            peer.writer.transport.abort()
            for _ in range(100):
                await asyncio.sleep(0)
            go_on.set()
            await gone.wait()
