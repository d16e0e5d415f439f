"""The life of a container: made, started, ended. Everything that can happen to its own process ends in `finish`."""

from __future__ import annotations

import asyncio
import posixpath
from typing import TYPE_CHECKING, cast

from transom.hosts.windows.host import CREDENTIAL_SPECS, WindowsHost
from transom.runtime.api import ContainerConfig, RuntimeFailure
from transom.runtime.sim import environment, files, users
from transom.runtime.sim.catalogue import Spec
from transom.runtime.sim.context import Context
from transom.runtime.sim.core import Core
from transom.runtime.sim.logs import ContainerLog
from transom.runtime.sim.meter import Meter, base_memory, cpu_cap, memory_limit
from transom.runtime.sim.program_api import ProgramContext
from transom.runtime.sim.records import ContainerRecord, SandboxRecord
from transom.runtime.sim.streams import NO_INPUT, Input, Stream
from transom.runtime.sim.terminal import Terminal
from transom.runtime.sim.texts import Broken, Fault
from transom.runtime.sim.wishes import NO_PLAN, Plan, make_plan, of_container
from transom.windows.builds import hyperv_isolation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_KILLED = 137
_SHUT_DOWN = 0x40010004  # DBG_TERMINATE_PROCESS: what is left of a Windows container when it shuts down
_TERMINATED = 0xFFFFFFFF  # a Windows process that somebody terminates
_REBOOTED = 255
_SMALLEST_DOCKER_MEMORY = 4 << 20
_NAME_PREFIX = "k8s-cred-spec-"


# ---- made ------------------------------------------------------------------------------------------------------------


def create(core: Core, sandbox: SandboxRecord, config: ContainerConfig) -> ContainerRecord:
    """Raises RuntimeFailure."""
    texts = core.texts
    identity = core.new_id()
    spec = core.images.spec(config.image_ref) or core.images.spec(config.image)
    if spec is None:
        raise texts.no_image(config.image_ref or config.image)
    if sandbox.state != "ready" and not core.docker:
        raise texts.sandbox_stopped(sandbox.id)
    if sandbox.borrows_address and any(other.state == "running" for other in sandbox.containers):
        # What was isolated by the annotation of old had its network for itself.
        raise texts.create_failed(identity, "Hyper-V isolation is limited to 1 container per Pod")
    record = ContainerRecord(identity, sandbox, config, spec, core.host.time())
    record.argv = environment.command_line(config, spec)
    if not record.argv:
        raise texts.no_command(identity)
    limit = memory_limit(config)
    if core.docker and not core.windows and 0 < limit < _SMALLEST_DOCKER_MEMORY:
        raise texts.create_failed(identity, "Minimum memory limit allowed is 4MB")
    files.check_seccomp(core.host, config, texts, docker=core.docker)
    record.files = files.make(core.host, record, core.hostname_in(sandbox), texts, docker=core.docker)
    record.image_name = core.images.shown_name(spec, config.image)
    record.image_ref = core.images.shown_ref(spec)
    record.log = ContainerLog(core.host.files, _log_path(core, record), core.host.clock)
    _store_credentials(core, record)
    core.containers[identity] = record
    sandbox.containers.append(record)
    return record


def _log_path(core: Core, record: ContainerRecord) -> str:
    separator = "\\" if core.windows else "/"
    directory, name = record.sandbox.config.log_directory, record.config.log_path
    if core.windows:
        name = name.replace("/", "\\")
    return f"{directory.rstrip(separator)}{separator}{name}" if name else ""


def _store_credentials(core: Core, record: ContainerRecord) -> None:
    """Docker is told of a credential spec through the machine's registry."""
    windows = record.config.windows
    if windows is not None and windows.credential_spec and core.docker and isinstance(core.host, WindowsHost):
        record.credentials = f"{_NAME_PREFIX}{core.rng.getrandbits(320):080x}"
        core.host.registry.set(CREDENTIAL_SPECS, record.credentials, windows.credential_spec)


def forget_credentials(core: Core) -> None:
    """Of containers of another time: a runtime that comes up keeps none."""
    if isinstance(core.host, WindowsHost):
        for name in tuple(core.host.registry.values(CREDENTIAL_SPECS) or ()):
            if name.startswith(_NAME_PREFIX):
                core.host.registry.delete(CREDENTIAL_SPECS, name)


# ---- started ---------------------------------------------------------------------------------------------------------


def start(core: Core, c: ContainerRecord) -> None:
    """Raises RuntimeFailure; the container has then ended, or still waits for a start."""
    if c.state != "created":
        if c.state == "running" and core.docker:
            return
        raise core.texts.not_running(c.id, c.state)
    if c.sandbox.state != "ready":
        raise core.texts.sandbox_stopped(c.sandbox.id)
    wishes = of_container(c.sandbox.config.annotations, c.config.name)
    plan = make_plan(wishes, c.config.attempt)
    broken = _why_not(core, c, plan)
    if broken is None:
        _open_log(c)
        broken = _launch(core, c, plan, wishes)
    if broken is not None:
        _never_ran(core, c, broken)
        raise broken.failure
    early, c.starting = c.early_exit, False
    core.emit("started", c.sandbox, c.id)
    if early is not None:
        if c.context is not None:
            c.context.kill()
        finish(core, c, early)
    else:
        _follow(core, c, plan)


def _open_log(c: ContainerRecord) -> None:
    if c.log.path:
        try:
            c.log.open()
        except OSError as error:
            raise RuntimeFailure("Unknown", f"failed to open log file {c.log.path}: {error.strerror}") from error


def _why_not(core: Core, c: ContainerRecord, plan: Plan) -> Broken | None:
    if plan.fail_start is not None and plan.fail_start.applies(c.config.attempt):
        return core.texts.start_failed(c.id, plan.fail_start.text or "simulated failure of the start")
    if not runs_here(core, c.sandbox, c.spec):
        return _broken(core, c, "build")
    if core.windows:
        identity = users.on_windows(c.config, c.spec, core.hostname_in(c.sandbox))
        if identity is None:
            return _broken(core, c, "user")
        c.identity = identity
    else:
        c.identity = users.on_linux(c.config, c.spec)
    if c.spec.platform.os != core.os:
        return _broken(core, c, "not-found")
    return None


def runs_here(core: Core, sandbox: SandboxRecord, spec: Spec) -> bool:
    """On Linux always; on Windows the builds must fit."""
    build = spec.platform.build
    if not core.windows or not build:
        return True
    isolation = sandbox.isolation
    if isolation.hyperv and not isolation.exact:
        return hyperv_isolation(core.build, build)
    if isolation.hyperv:
        return build == isolation.build
    return core.images.runs_as_process(build)


def _broken(core: Core, c: ContainerRecord, fault: Fault) -> Broken:
    return core.texts.cannot_start(c.id, core.os, fault, c.argv[0], core.hostname_in(c.sandbox))


def _launch(core: Core, c: ContainerRecord, plan: Plan, wishes: Mapping[str, str]) -> Broken | None:
    config = c.config
    linux = config.linux
    adjustment = linux.resources.oom_score_adj if linux is not None else 0
    account = core.host.account(c.id, adjustment, lambda: _out_of_memory(core, c))
    base = base_memory(core.windows, c.spec.info.userland)
    c.meter = Meter(account, cpu_cap(config, core.host.hardware.cpus), memory_limit(config), base)
    c.input = Input() if config.stdin else None
    said = _output_of(c)
    if config.tty:
        feed = c.input.feed if c.input is not None else _nowhere
        c.terminal = Terminal(windows=core.windows, lines=feed, echo=lambda data: said("stdout", data), signal=_signaller(c))
    c.starting = True
    context = c.context = Context(
        core, c, c.argv, main=True, sink=said, on_exit=lambda _, code: _ended(core, c, code), stdin=c.input or NO_INPUT,
        terminal=c.terminal, sim=wishes, ready_delay=plan.ready_delay,
    )  # fmt: skip
    c.state = "running"
    c.started = core.host.time()
    c.changed()
    try:
        context.program = core.start(cast(ProgramContext, context))
    except FileNotFoundError:
        fault: Fault = "not-a-path" if posixpath.dirname(c.argv[0]) else "not-found"
    except (PermissionError, IsADirectoryError):
        fault = "denied"
    except BaseException:
        _undo_launch(c, context)
        c.state = "created"
        raise
    else:
        return None
    _undo_launch(c, context)
    return _broken(core, c, fault)


def _undo_launch(c: ContainerRecord, context: Context) -> None:
    context.release()
    c.context = c.input = c.terminal = None
    if c.meter is not None:
        c.meter.close()
        c.meter = None
    c.starting = False
    c.changed()


def _output_of(c: ContainerRecord) -> Callable[[Stream, bytes], None]:
    def said(stream: Stream, data: bytes) -> None:
        c.log.write(stream, data)
        for client in c.attached:
            client.said(stream, data)

    return said


def _signaller(c: ContainerRecord) -> Callable[[str], None]:
    def signal(name: str) -> None:
        if c.context is not None:
            c.context.signalled(name)

    return signal


def _nowhere(data: bytes) -> None:
    """Nobody reads what is typed."""


def _never_ran(core: Core, c: ContainerRecord, broken: Broken) -> None:
    """Docker says that it ran for no time at all; containerd that it never started."""
    c.state = "exited"
    c.exit_code = broken.exit_code
    c.reason = core.texts.reason_cannot_start
    c.message = broken.message
    c.started = c.created if core.docker else 0.0
    c.finished = c.created if core.docker else core.host.time()
    c.changed()
    core.emit("died", c.sandbox, c.id)


def _follow(core: Core, c: ContainerRecord, plan: Plan) -> None:
    """What annotations ask of a running container."""
    if plan is NO_PLAN:
        return
    context, later = c.context, core.clock.call_later
    if context is None:  # whoever heard of the start has ended it
        return
    if plan.log:
        context.out(plan.log.rstrip("\n").encode() + b"\n")
    if plan.log_lines > 0:
        c.timers += (later(0, _log_line, core, c, plan, 1),)
    if plan.run_time is not None:
        c.timers += (later(plan.run_time, _run_out, core, c, plan.exit_code or 0),)
    if plan.cpu or plan.memory:
        usage = context.usage
        c.timers += tuple(later(point.after, usage.cpu, point.value) for point in plan.cpu)
        c.timers += tuple(later(point.after, usage.memory, int(point.value)) for point in plan.memory)


def _log_line(core: Core, c: ContainerRecord, plan: Plan, number: int) -> None:
    if c.context is not None and c.state == "running":
        c.context.out(f"line {number}\n".encode())
        if number < plan.log_lines:
            c.timers += (core.clock.call_later(plan.log_interval, _log_line, core, c, plan, number + 1),)


def _run_out(core: Core, c: ContainerRecord, code: int) -> None:
    if c.context is not None and c.state == "running":
        c.context.kill()
        finish(core, c, code)


# ---- ended -----------------------------------------------------------------------------------------------------------


def _ended(core: Core, c: ContainerRecord, code: int) -> None:
    """Its own process says so."""
    if c.starting:
        c.early_exit = code
    else:
        finish(core, c, code)


def _out_of_memory(core: Core, c: ContainerRecord) -> None:
    kill(core, c, reason="OOMKilled")


def out_of_memory(core: Core, c: ContainerRecord, context: Context) -> None:
    """A program wants more than its container's limit: the largest process of the container dies."""
    own = context.memory
    if context.main or any(other.memory > own for other in (*c.execs, c.context) if other is not None):
        kill(core, c, reason="OOMKilled")
    else:
        context.signalled("SIGKILL")


def kill(core: Core, c: ContainerRecord, reason: str = "", code: int | None = None) -> None:
    if c.state != "running":
        return
    if c.context is not None and not c.starting:  # a program that is just being made ends when it is there
        c.context.kill()
    if code is None:
        code = _TERMINATED if core.windows else _KILLED
    if c.starting:
        c.early_exit, c.reason = code, reason
    else:
        finish(core, c, code, reason)


def finish(core: Core, c: ContainerRecord, code: int, reason: str = "") -> None:
    if c.state != "running":
        return
    c.state = "exited"
    c.finished = core.host.time()
    c.exit_code = code
    c.reason = reason or c.reason or ("Error" if code else "Completed")
    c.changed()
    for timer in c.timers:
        timer.cancel()
    c.timers = ()
    for other in c.execs:
        other.kill()
        if other.client is not None:
            other.client.finish(_TERMINATED if core.windows else _KILLED)
    c.execs = ()
    c.context = c.input = c.terminal = None
    c.log.close()
    if c.meter is not None:
        c.meter.close()
        c.meter = None
    for client in c.attached:
        client.finish(code)
    c.attached = ()
    waiters, c.waiters = c.waiters, []
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    core.emit("died", c.sandbox, c.id)


async def stop(core: Core, c: ContainerRecord, grace: float) -> None:
    """It is asked to leave, and made to when its time is over. Docker on Windows gives as much time as the container's own
    registry says, and no more."""
    if c.state != "running":
        return
    context = c.context
    patience = min(grace, c.spec.shutdown_timeout) if core.windows and core.docker else grace
    if context is not None and context.program is not None:
        context.program.signal("CTRL_SHUTDOWN_EVENT" if core.windows else c.spec.stop_signal)
    if patience > 0 and c.state == "running":
        await _end_within(core, c, patience)
    if c.state == "running":
        kill(core, c, code=_SHUT_DOWN if core.windows and core.docker else None)


async def _end_within(core: Core, c: ContainerRecord, seconds: float) -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    c.waiters.append(waiter)
    timer = core.clock.call_later(seconds, _wake, waiter)
    try:
        await waiter
    finally:
        timer.cancel()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def went_down(core: Core, c: ContainerRecord) -> None:
    """The machine was switched off under it."""
    if c.context is not None:
        c.context.kill()
    finish(core, c, _REBOOTED)


def remove(core: Core, c: ContainerRecord) -> None:
    kill(core, c)
    c.files.discard()
    if core.docker and c.log.path:
        core.host.files.remove(c.log.path, recursive=True)
    if c.credentials and isinstance(core.host, WindowsHost):
        core.host.registry.delete(CREDENTIAL_SPECS, c.credentials)
    core.containers.pop(c.id, None)
    if c in c.sandbox.containers:
        c.sandbox.containers.remove(c)
    core.emit("removed", c.sandbox, c.id)
