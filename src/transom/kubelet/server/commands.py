"""exec, attach and run: connects a client's session to a process of the runtime.

One `_Joint` per session: it forwards the client's input to the process, the output to the client,
and finally the exit status. A client that does not read blocks the process. One that disconnects
ends it. If it was the writer of an exec'd command's input, only the input ends, after all that was
sent: some clients copy files to a pod this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

from transom.http.messages import Answer, HttpRequest, HttpResponse, UpgradeResponse
from transom.http.raw import RawConnection
from transom.http.sessions import SessionDriver
from transom.kit.clock import Clock, Timer
from transom.kit.streaming import channels, remotecommand, upgrade
from transom.kit.streaming.remotecommand import CommandStreams, RemoteCommand
from transom.kubelet.base import KubeletContext
from transom.kubelet.interfaces import PodView
from transom.kubelet.server import find
from transom.kubelet.server.answers import JSON, TEXT, HttpFailure
from transom.machinery.objects import Object
from transom.runtime.api import ContainerProcess, Output, RuntimeFailure

# How each runtime formats the error that carries an exit code.
_EXIT_TEXT: Final[Mapping[str, Callable[[list[str], int], str]]] = {
    "docker": lambda command, code: f"Error executing in Docker Container: {code}",
    "containerd": lambda command, code: (
        f"error executing command [{' '.join(command)}], exit code {code}"
    ),
}

Begin = Callable[[Output], Awaitable[ContainerProcess]]
Outcome = Callable[[int], Object]


def parse_streams(query: Mapping[str, list[str]]) -> CommandStreams:
    """By the names that only kubelets use."""
    stdin, stdout, stderr, tty = (
        query.get(name, [""])[0] == "1" for name in ("input", "output", "error", "tty")
    )
    stderr = stderr and not tty
    if not (stdin or stdout or stderr):
        raise HttpFailure(400, "you must specify at least 1 of stdin, stdout, stderr")
    return CommandStreams(stdin, stdout, stderr, tty)


def serve_exec(
    env: KubeletContext,
    view: PodView,
    namespace: str,
    name: str,
    container: str,
    request: HttpRequest,
) -> Answer:
    streams = parse_streams(request.query)
    pod = find.find_pod(view, namespace, name)
    found = find.running_container(env, pod, container)
    if found is None:
        raise HttpFailure(500, f'container not found ("{container}")')
    command = request.query.get("command", [])
    text = _EXIT_TEXT.get(env.runtime.version.name, _EXIT_TEXT["containerd"])

    def begin(output: Output) -> Awaitable[ContainerProcess]:
        return env.runtime.exec(found.id, command, output, stdin=streams.stdin, tty=streams.tty)

    def outcome(code: int) -> Object:
        return channels.exit_code_status(code, text(command, code))

    complaint = "error executing command in container"
    outlives_client = streams.stdin and not streams.tty
    return serve_process(env.clock, request, streams, begin, outcome, complaint, outlives_client)


def serve_attach(
    env: KubeletContext,
    view: PodView,
    namespace: str,
    name: str,
    uid: str,
    container: str,
    request: HttpRequest,
) -> Answer:
    streams = parse_streams(request.query)
    pod = find.find_pod(view, namespace, name)
    found = find.running_container(env, pod, container)
    spec = find.container_spec_of(pod, container)
    if found is None or spec is None:
        raise HttpFailure(
            500, f"container {container} not found in pod {find.pod_display_name(pod)}"
        )
    if uid and uid != pod["metadata"]["uid"]:
        raise HttpFailure(500, f"pod {find.pod_display_name(pod)} not found")
    # Whether there is a terminal was decided when the container was created.
    tty = bool(spec.get("tty"))
    if tty and streams.stderr:
        raise HttpFailure(
            500, "rpc error: code = InvalidArgument desc = tty and stderr cannot both be true"
        )
    streams = CommandStreams(streams.stdin, streams.stdout, streams.stderr, tty)

    def begin(output: Output) -> Awaitable[ContainerProcess]:
        return env.runtime.attach(found.id, output, stdin=streams.stdin, tty=tty)

    return serve_process(
        env.clock,
        request,
        streams,
        begin,
        lambda code: channels.command_success_status(),
        "error attaching to container",
    )


async def serve_run(
    env: KubeletContext,
    view: PodView,
    namespace: str,
    name: str,
    container: str,
    request: HttpRequest,
) -> Answer:
    pod = find.find_pod(view, namespace, name)
    found = find.running_container(env, pod, container)
    if found is None:
        raise HttpFailure(500, f'container not found ("{container}")')
    command = request.query.get("cmd", [""])[0].split(" ")
    try:
        result = await env.runtime.exec_sync(found.id, command)
    except RuntimeFailure as problem:
        raise HttpFailure(500, str(problem)) from problem
    if result.exit_code:
        detail = result.stderr.decode(errors="replace")
        raise HttpFailure(
            500, f"command '{' '.join(command)}' exited with {result.exit_code}: {detail}"
        )
    output = result.stdout + result.stderr
    return HttpResponse(200, [JSON] if output else [], output)


def serve_process(
    clock: Clock,
    request: HttpRequest,
    streams: CommandStreams,
    begin: Begin,
    outcome: Outcome,
    complaint: str,
    outlives_client: bool = False,
) -> Answer:
    """Connects the client with the process that `begin` starts."""
    require_upgrade(request)
    accepted = upgrade.accept_command(request.method, header_texts(request), streams)
    if isinstance(accepted, channels.Refusal):
        return refuse(accepted)
    headers, _, session = accepted
    joint = _Joint(clock, session, begin, outcome, complaint, outlives_client)
    return UpgradeResponse(headers, joint.start)


def require_upgrade(request: HttpRequest) -> None:
    if "upgrade" not in request.header(b"connection").lower():
        raise HttpFailure(500, "Upgrade request required\n")


def header_texts(request: HttpRequest) -> dict[str, str]:
    return {
        name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()
    }


def refuse(refusal: channels.Refusal) -> HttpResponse:
    more = [(name.encode(), value.encode()) for name, value in refusal.headers]
    return HttpResponse(refusal.status, [TEXT, *more], f"{refusal.message}\n".encode())


class _Joint:
    __slots__ = (
        "_begin",
        "_clock",
        "_complaint",
        "_driver",
        "_early",
        "_gone",
        "_idle",
        "_input_task",
        "_moved",
        "_outcome",
        "_outlives_client",
        "_process",
        "_session",
        "_task",
        "_waiting",
    )

    def __init__(
        self,
        clock: Clock,
        session: RemoteCommand,
        begin: Begin,
        outcome: Outcome,
        complaint: str,
        outlives_client: bool,
    ) -> None:
        self._clock = clock
        self._session = session
        self._begin = begin
        self._outcome = outcome
        self._complaint = complaint
        self._outlives_client = outlives_client
        self._driver: SessionDriver
        self._process: ContainerProcess | None = None
        self._early: list[Any] = []  # what arrived before the process started
        self._task: asyncio.Task[None] | None = None
        self._input_task: asyncio.Task[None] | None = (
            None  # waits for the process to read its input
        )
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

    # ---- from the client ----

    def _react(self, event: remotecommand.Event) -> None:
        self._moved = self._clock.monotonic()
        match event:
            case remotecommand.CommandOpened():
                if self._waiting is not None:
                    self._waiting.cancel()
                self._driver.hold()  # further data is for the process
                self._task = asyncio.get_running_loop().create_task(self._run())
            case remotecommand.CommandClosed():
                self._client_gone()
            case _ if self._process is not None:
                self._apply(self._process, event)
            case _ if self._outlives_client or not self._session.closed:
                self._early.append(event)

    def _apply(self, process: ContainerProcess, event: remotecommand.Event) -> None:
        match event:
            case remotecommand.CommandData(stream, data):
                process.write(data)
                self._session.acknowledge(stream, len(data))
                if process.input_full and self._input_task is None:
                    self._driver.hold()
                    self._input_task = asyncio.get_running_loop().create_task(self._drain(process))
            case remotecommand.CommandStreamEnded():
                process.end_input()
            case remotecommand.CommandResized(width, height):
                process.resize(width, height)

    async def _drain(self, process: ContainerProcess) -> None:
        """A process that does not read its input blocks the client, as a full pipe would."""
        await process.input_drained()
        self._input_task = None
        self._driver.release()

    def _client_gone(self) -> None:
        self._gone = True
        for timer in (self._waiting, self._idle):
            if timer is not None:
                timer.cancel()
        if self._input_task is not None:
            self._input_task.cancel()
        if self._outlives_client:
            if self._process is not None:
                self._leave(self._process)
            return
        if self._process is not None:
            self._process.close()
        if self._task is not None:
            self._task.cancel()

    def _leave(self, process: ContainerProcess) -> None:
        """Lets the process read the rest of its input and end by itself."""
        process.end_input()
        process.hold(False)

    # ---- from the process ----

    async def _run(self) -> None:
        try:
            process = await self._begin(self._output)
            if self._gone and not self._outlives_client:
                process.close()
                return
            self._process = process
            for event in self._early:
                self._apply(process, event)
            self._early.clear()
            if self._gone:
                self._leave(process)
            else:
                self._driver.release()
                if self._driver.behind:
                    process.hold(True)
            code = await process.wait()
            self._process = None
            status = self._outcome(code)
        except RuntimeFailure as problem:
            status = channels.internal_error_status(f"{self._complaint}: {problem.description}")
        if self._input_task is not None:
            self._input_task.cancel()
        self._session.finish(status)
        self._driver.send()

    def _output(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        if self._gone:
            return
        self._moved = self._clock.monotonic()
        self._session.write(stream, data)
        self._driver.send()

    def _behind(self, behind: bool) -> None:
        if self._process is not None:
            self._process.hold(behind)

    # ---- timeouts ----

    def _give_up(self) -> None:
        """The client did not open all its streams in time."""
        self._session.close()
        self._driver.send()

    def _watch_idleness(self) -> None:
        left = self._moved + channels.IDLE_TIMEOUT - self._clock.monotonic()
        if left > 0:
            self._idle = self._clock.call_later(left, self._watch_idleness)
        else:
            self._session.close()
            self._driver.send()
