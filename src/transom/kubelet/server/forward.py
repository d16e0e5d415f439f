"""portForward: connects each stream pair of a client's session to a connection into the pod's
sandbox.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from transom.http.messages import Answer, HttpRequest, UpgradeResponse
from transom.http.raw import RawConnection
from transom.http.sessions import SessionDriver
from transom.kit.clock import Timer
from transom.kit.streaming import channels, portforward, upgrade
from transom.kit.streaming.portforward import PortForward
from transom.kit.task_set import TaskSet
from transom.kubelet.base import KubeletContext
from transom.kubelet.interfaces import PodView
from transom.kubelet.server import find
from transom.kubelet.server.answers import HttpFailure
from transom.kubelet.server.commands import header_texts, refuse, require_upgrade
from transom.runtime.api import RuntimeFailure

_EARLY_LIMIT = 256 * 1024  # bytes buffered until the connection into the pod is established
_EVENT_SIZE = 64  # approximate overhead of a chunk beside its bytes


def serve_port_forward(
    env: KubeletContext, view: PodView, namespace: str, name: str, uid: str, request: HttpRequest
) -> Answer:
    pod = find.find_pod(view, namespace, name)
    if uid and uid != pod["metadata"]["uid"]:
        raise HttpFailure(404, "pod not found")
    sandbox = find.ready_sandbox(env, pod)
    if sandbox is None:
        raise HttpFailure(500, f'pod not found ("{find.pod_display_name(pod)}")')
    require_upgrade(request)
    accepted = upgrade.accept_forward(
        request.method, header_texts(request), request.query.get("port", [])
    )
    if isinstance(accepted, channels.Refusal):
        return refuse(accepted)
    headers, _, session = accepted
    return UpgradeResponse(headers, _Forwarding(env, sandbox.id, session).start)


async def dial_sandbox(env: KubeletContext, sandbox: str, port: int) -> socket.socket:
    """A connection into a sandbox. Raises RuntimeFailure or OSError."""
    problem = env.os.forwarding_problem(env.config.release)
    if problem:
        raise RuntimeFailure("Unknown", problem)
    return await env.runtime.port_forward(sandbox, port)


class _Forwarding:
    """All connections of one session."""

    __slots__ = (
        "_clock",
        "_ends",
        "_env",
        "_half_closed_timer",
        "_idle",
        "_moved",
        "_sandbox",
        "_tasks",
        "driver",
        "session",
    )

    def __init__(self, env: KubeletContext, sandbox: str, session: PortForward) -> None:
        self._env = env
        self._clock = env.clock
        self._sandbox = sandbox
        self._ends: dict[int, _End] = {}
        self._tasks = TaskSet()
        self._half_closed_timer: Timer | None = None
        self._moved = env.clock.monotonic()
        self._idle: Timer | None = None
        self.session = session
        self.driver: SessionDriver

    def start(self, raw: RawConnection) -> None:
        self.driver = SessionDriver(self.session, raw, self._react)
        self.driver.on_behind = self._behind
        self.driver.on_received = self._watch_half_closed
        self._watch_idleness()
        self.driver.start()

    def _react(self, event: portforward.Event) -> None:
        self._moved = self._clock.monotonic()
        match event:
            case portforward.ForwardConnected(connection, port):
                self._ends[connection] = _End(self, connection)
                self._tasks.start(self._connect(connection, port))
            case portforward.ForwardData(connection, data):
                self.session.acknowledge(connection, len(data))
                if connection in self._ends:
                    self._ends[connection].write(data)
            case portforward.ForwardEnded(connection):
                if connection in self._ends:
                    self._ends[connection].end()
            case portforward.ForwardDisconnected(connection):
                self.drop(connection)
            case portforward.ForwardClosed():
                for open_one in list(self._ends):
                    self.drop(open_one)
                self._tasks.cancel()
                for timer in (self._half_closed_timer, self._idle):
                    if timer is not None:
                        timer.cancel()

    async def _connect(self, connection: int, port: int) -> None:
        try:
            sock = await dial_sandbox(self._env, self._sandbox, port)
        except (RuntimeFailure, OSError) as problem:
            why = problem.description if isinstance(problem, RuntimeFailure) else str(problem)
            self.session.fail(
                connection, f"error forwarding port {port} to pod {self._sandbox}, uid : {why}"
            )
            self.session.disconnect(connection)
            self.drop(connection)
            self.driver.send()
            return
        end = self._ends.get(connection)
        if end is None:
            sock.close()
        else:
            await end.open(sock)

    def drop(self, connection: int) -> None:
        end = self._ends.pop(connection, None)
        if end is not None:
            end.abort()

    def received(self, connection: int, data: bytes) -> None:
        self._moved = self._clock.monotonic()
        self.session.write(connection, data)
        self.driver.send()

    def ended(self, connection: int) -> None:
        """The pod has closed its end, which ends the connection."""
        if self._ends.pop(connection, None) is not None:
            self.session.disconnect(connection)
            self.driver.send()

    def _behind(self, behind: bool) -> None:
        for end in self._ends.values():
            end.hold(behind)

    def _watch_half_closed(self) -> None:
        """Drops connections that have had only one stream for too long; one timer for all of the
        same age.
        """
        session = self.session
        if (
            self._half_closed_timer is None
            and isinstance(session, portforward.SpdyForwardServer)
            and session.has_waiting
        ):
            self._half_closed_timer = self._clock.call_later(
                channels.STREAM_CREATION_TIMEOUT, self._expire, session, session.waiting
            )

    def _expire(
        self, session: portforward.SpdyForwardServer, waiting: list[tuple[str, int]]
    ) -> None:
        self._half_closed_timer = None
        for request, connection in waiting:
            session.expire(request, connection)
        self.driver.send()
        self._watch_half_closed()

    def _watch_idleness(self) -> None:
        left = self._moved + channels.IDLE_TIMEOUT - self._clock.monotonic()
        if left > 0:
            self._idle = self._clock.call_later(left, self._watch_idleness)
        else:
            self.session.close()
            self.driver.send()


class _End(asyncio.Protocol):
    """The pod's end of a connection. A pod that does not read blocks the session."""

    __slots__ = (
        "_connection",
        "_early",
        "_early_size",
        "_ended",
        "_forwarding",
        "_full",
        "_transport",
    )

    def __init__(self, forwarding: _Forwarding, connection: int) -> None:
        self._forwarding = forwarding
        self._connection = connection
        self._transport: Any = None
        self._early: list[bytes] = []  # what arrived before the pod connection was established
        self._early_size = 0
        self._ended = False
        self._full = False

    async def open(self, sock: socket.socket) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self, sock=sock)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._release()
        early, self._early = b"".join(self._early), []
        transport.write(early)
        if self._ended:
            transport.write_eof()
        if self._forwarding.driver.behind:
            self.hold(True)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            return
        self._early.append(data)
        self._early_size += _EVENT_SIZE + len(data)
        if self._early_size > _EARLY_LIMIT:
            self.pause_writing()

    def end(self) -> None:
        self._ended = True
        if self._transport is not None and self._transport.can_write_eof():
            self._transport.write_eof()

    def hold(self, held: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if held else self._transport.resume_reading)()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._release()

    def data_received(self, data: bytes) -> None:
        self._forwarding.received(self._connection, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        self._forwarding.ended(self._connection)

    def pause_writing(self) -> None:
        if not self._full:
            self._full = True
            self._forwarding.driver.hold()

    def resume_writing(self) -> None:
        self._release()

    def _release(self) -> None:
        if self._full:
            self._full = False
            self._forwarding.driver.release()
