"""exec, attach and run: a client's session joined with a process of the runtime.

One `_Joint` for each session: what the client types goes to the process, what the process says to the client, and in the
end how it went. A client that does not read holds up the process; one that goes away ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

from transom.http.messages import Answer, Request, Response, UpgradeResponse
from transom.http.sessions import SessionDriver
from transom.http.stream import RawConnection
from transom.kit.clock import Clock, Timer
from transom.kit.streaming import channels, remotecommand, upgrade
from transom.kit.streaming.remotecommand import RemoteCommand, Streams
from transom.kubelet.base import Env
from transom.kubelet.parts import PodView
from transom.kubelet.server import find
from transom.kubelet.server.answers import JSON, TEXT, Failure
from transom.machinery.objects import Object
from transom.runtime.api import Output, Process, RuntimeFailure

# How each runtime words the error that carries an exit code.
_EXIT_TEXT: Final[Mapping[str, Callable[[list[str], int], str]]] = {
    "docker": lambda command, code: f"Error executing in Docker Container: {code}",
    "containerd": lambda command, code: f"error executing command [{' '.join(command)}], exit code {code}",
}

Begin = Callable[[Output], Awaitable[Process]]
Outcome = Callable[[int], Object]


def parse_streams(query: Mapping[str, list[str]]) -> Streams:
    """By the names that only kubelets use."""
    stdin, stdout, stderr, tty = (query.get(name, [""])[0] == "1" for name in ("input", "output", "error", "tty"))
    stderr = stderr and not tty
    if not (stdin or stdout or stderr):
        raise Failure(400, "you must specify at least 1 of stdin, stdout, stderr")
    return Streams(stdin, stdout, stderr, tty)


def serve_exec(env: Env, view: PodView, namespace: str, name: str, container: str, request: Request) -> Answer:
    streams = parse_streams(request.query)
    pod = find.pod(view, namespace, name)
    found = find.running_container(env, pod, container)
    if found is None:
        raise Failure(500, f'container not found ("{container}")')
    command = request.query.get("command", [])
    text = _EXIT_TEXT.get(env.runtime.version.name, _EXIT_TEXT["containerd"])

    def begin(output: Output) -> Awaitable[Process]:
        return env.runtime.exec(found.id, command, output, stdin=streams.stdin, tty=streams.tty)

    def outcome(code: int) -> Object:
        return channels.exit_status(code, text(command, code))

    return serve_process(env.clock, request, streams, begin, outcome, "error executing command in container")


def serve_attach(
    env: Env, view: PodView, namespace: str, name: str, uid: str, container: str, request: Request
) -> Answer:
    streams = parse_streams(request.query)
    pod = find.pod(view, namespace, name)
    found = find.running_container(env, pod, container)
    spec = find.spec_of(pod, container)
    if found is None or spec is None:
        raise Failure(500, f"container {container} not found in pod {find.full_name(pod)}")
    if uid and uid != pod["metadata"]["uid"]:
        raise Failure(500, f"pod {find.full_name(pod)} not found")
    # Whether there is a terminal was decided when the container was made.
    tty = bool(spec.get("tty"))
    if tty and streams.stderr:
        raise Failure(500, "rpc error: code = InvalidArgument desc = tty and stderr cannot both be true")
    streams = Streams(streams.stdin, streams.stdout, streams.stderr, tty)

    def begin(output: Output) -> Awaitable[Process]:
        return env.runtime.attach(found.id, output, stdin=streams.stdin, tty=tty)

    return serve_process(
        env.clock, request, streams, begin, lambda code: channels.success(), "error attaching to container"
    )


async def serve_run(env: Env, view: PodView, namespace: str, name: str, container: str, request: Request) -> Answer:
    pod = find.pod(view, namespace, name)
    found = find.running_container(env, pod, container)
    if found is None:
        raise Failure(500, f'container not found ("{container}")')
    command = request.query.get("cmd", [""])[0].split(" ")
    try:
        result = await env.runtime.exec_sync(found.id, command)
    except RuntimeFailure as problem:
        raise Failure(500, str(problem)) from problem
    if result.exit_code:
        detail = result.stderr.decode(errors="replace")
        raise Failure(500, f"command '{' '.join(command)}' exited with {result.exit_code}: {detail}")
    said = result.stdout + result.stderr
    return Response(200, [JSON] if said else [], said)


def serve_process(
    clock: Clock, request: Request, streams: Streams, begin: Begin, outcome: Outcome, complaint: str
) -> Answer:
    """Joins whoever asks with the process that `begin` starts."""
    demand_upgrade(request)
    accepted = upgrade.accept_command(request.method, header_texts(request), streams)
    if isinstance(accepted, channels.Refusal):
        return refuse(accepted)
    headers, _, session = accepted
    joint = _Joint(clock, session, begin, outcome, complaint)
    return UpgradeResponse(headers, joint.start)


def demand_upgrade(request: Request) -> None:
    if "upgrade" not in request.header(b"connection").lower():
        raise Failure(500, "Upgrade request required\n")


def header_texts(request: Request) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}


def refuse(refusal: channels.Refusal) -> Response:
    more = [(name.encode(), value.encode()) for name, value in refusal.headers]
    return Response(refusal.status, [TEXT, *more], f"{refusal.message}\n".encode())


class _Joint:
    __slots__ = (
        "_begin", "_clock", "_complaint", "_driver", "_early", "_gone", "_idle", "_moved", "_outcome", "_process",
        "_session", "_task", "_waiting",
    )  # fmt: skip

    def __init__(
        self, clock: Clock, session: RemoteCommand, begin: Begin, outcome: Outcome, complaint: str
    ) -> None:
        self._clock = clock
        self._session = session
        self._begin = begin
        self._outcome = outcome
        self._complaint = complaint
        self._driver: SessionDriver
        self._process: Process | None = None
        self._early: list[Any] = []  # what came before the process was there
        self._task: asyncio.Task[None] | None = None
        self._gone = False
        self._moved = clock.monotonic()
        self._idle: Timer | None = None
        self._waiting: Timer | None = None

    def start(self, raw: RawConnection) -> None:
        self._driver = SessionDriver(self._session, raw, self._react)
        self._driver.on_behind = self._behind
        self._waiting = self._clock.call_later(channels.STREAM_CREATION_TIMEOUT, self._give_up)
        self._watch_idleness()
        self._driver.start()

    # ---- from the client

    def _react(self, event: remotecommand.Event) -> None:
        self._moved = self._clock.monotonic()
        match event:
            case remotecommand.Opened():
                if self._waiting is not None:
                    self._waiting.cancel()
                self._task = asyncio.get_running_loop().create_task(self._run())
            case remotecommand.Closed():
                self._client_gone()
            case _ if self._process is not None:
                self._apply(self._process, event)
            case _ if not self._session.closed:
                self._early.append(event)

    def _apply(self, process: Process, event: remotecommand.Event) -> None:
        match event:
            case remotecommand.Data(stream, data):
                process.write(data)
                self._session.acknowledge(stream, len(data))
            case remotecommand.Ended():
                process.end_input()
            case remotecommand.Resized(width, height):
                process.resize(width, height)

    def _client_gone(self) -> None:
        self._gone = True
        for timer in (self._waiting, self._idle):
            if timer is not None:
                timer.cancel()
        if self._process is not None:
            self._process.close()
        if self._task is not None:
            self._task.cancel()

    # ---- from the process

    async def _run(self) -> None:
        try:
            process = await self._begin(self._output)
            if self._gone:
                process.close()
                return
            self._process = process
            for event in self._early:
                self._apply(process, event)
            self._early.clear()
            if self._driver.behind:
                process.hold(True)
            code = await process.wait()
            self._process = None
            status = self._outcome(code)
        except RuntimeFailure as problem:
            status = channels.internal_error(f"{self._complaint}: {problem.description}")
        self._session.finish(status)
        self._driver.send()

    def _output(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        self._moved = self._clock.monotonic()
        self._session.write(stream, data)
        self._driver.send()

    def _behind(self, behind: bool) -> None:
        if self._process is not None:
            self._process.hold(behind)

    # ---- time

    def _give_up(self) -> None:
        """The client never made all its streams."""
        self._session.close()
        self._driver.send()

    def _watch_idleness(self) -> None:
        left = self._moved + channels.IDLE_TIMEOUT - self._clock.monotonic()
        if left > 0:
            self._idle = self._clock.call_later(left, self._watch_idleness)
        else:
            self._session.close()
            self._driver.send()
