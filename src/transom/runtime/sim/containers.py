"""The lifecycle of a container: created, started, ended. Every end of its main process goes through
`finish_sim_container`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_import
from transom.machines.power import PowerSwitch
from transom.machines.windows.host import CREDENTIAL_SPECS, WindowsHost, computer_name
from transom.machines.windows.host_process import LOGON_DENIED, may_log_on
from transom.machines.windows.system import DEFAULT_SHUTDOWN_SECONDS, shutdown_seconds
from transom.runtime.api import (
    ContainerConfig,
    LinuxResources,
    RuntimeFailure,
    WindowsResources,
)
from transom.runtime.cdi import CdiFailure, inject_cdi_devices
from transom.runtime.records import cri_exit_code, resized_config
from transom.runtime.sim import environment, files, users
from transom.runtime.sim.annotations import (
    NO_PLAN,
    ContainerPlan,
    annotations_of_container,
    make_container_plan,
)
from transom.runtime.sim.catalogue import CatalogueImage
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.logs import ContainerLog
from transom.runtime.sim.meter import ContainerMeter, base_memory, cpu_cap, sim_memory_limit
from transom.runtime.sim.records import ContainerProgram, SimContainer, SimSandbox
from transom.runtime.sim.rootfs import root_of
from transom.runtime.sim.streams import NO_INPUT, InputBuffer, Stream
from transom.runtime.sim.terminal import Terminal
from transom.runtime.sim.texts import Fault, StartFailureText
from transom.windows.builds import hyperv_isolation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from transom.machines.container_files import LayeredFiles
    from transom.runtime.sim import host_process
    from transom.userland.servers import simple as simple_servers
else:
    host_process = lazy_import("transom.runtime.sim.host_process")
    simple_servers = lazy_import("transom.userland.servers.simple")

_KILLED = 137
_JOB_SECONDS = 1.0
SHUT_DOWN = (
    0x40010004  # DBG_TERMINATE_PROCESS: for remaining processes when a Windows container shuts down
)
_TERMINATED = 0xFFFFFFFF  # a terminated Windows process
_REBOOTED = 255
_SMALLEST_DOCKER_MEMORY = 4 << 20
_NAME_PREFIX = "k8s-cred-spec-"


# ---- create ----


_MOST_ENVIRONMENT = 128 << 20  # bytes for the variables of all containers of a machine


def create_sim_container(
    core: SimCore, sandbox: SimSandbox, config: ContainerConfig
) -> SimContainer:
    """Raises RuntimeFailure."""
    texts = core.texts
    identity = core.new_id()
    spec = core.images.spec(config.image_ref) or core.images.spec(config.image)
    if spec is None:
        raise texts.no_image(config.image_ref or config.image)
    if sandbox.state != "ready" and not core.docker:
        raise texts.sandbox_stopped(sandbox.id)
    if sandbox.borrows_address and any(other.state == "running" for other in sandbox.containers):
        # Containers with the old isolation annotation had their own network.
        raise texts.create_failed(identity, "Hyper-V isolation is limited to 1 container per Pod")
    if not core.windows:
        try:
            config = inject_cdi_devices(core.host.files, config)
        except CdiFailure as failure:
            raise texts.create_failed(identity, str(failure)) from failure
    record = SimContainer(identity, sandbox, config, spec, core.host.time())
    if sum(c.environment_size for c in core.containers.values()) > _MOST_ENVIRONMENT:
        raise texts.create_failed(identity, os.strerror(errno.ENOMEM))
    record.argv = environment.sim_command_line(config, spec)
    if not record.argv:
        raise texts.no_command(identity)
    limit = sim_memory_limit(config)
    if core.docker and not core.windows and 0 < limit < _SMALLEST_DOCKER_MEMORY:
        raise texts.create_failed(identity, "Minimum memory limit allowed is 4MB")
    files.check_seccomp(core.host, config, texts, docker=core.docker)
    files.check_apparmor(core.host, config, texts)
    record.files = _make_files(core, record)
    record.image_name = core.images.shown_name(spec, config.image)
    record.image_ref = core.images.shown_ref(spec)
    record.log = ContainerLog(core.host.files, log_path(core, record), core.host.clock)
    _store_credentials(core, record)
    core.containers[identity] = record
    sandbox.containers.append(record)
    return record


def resize_sim_container(
    core: SimCore, c: SimContainer, resources: LinuxResources | WindowsResources
) -> None:
    c.config = resized_config(c.config, resources)
    if c.meter is not None:
        c.meter.set_limits(cpu_cap(c.config, core.host.hardware.cpus), sim_memory_limit(c.config))


def _make_files(core: SimCore, record: SimContainer) -> LayeredFiles:
    """Raises RuntimeFailure."""
    if not record.host_process:
        hostname = core.hostname_in(record.sandbox)
        return files.make_container_files(
            core.host,
            record,
            hostname,
            core.texts,
            docker=core.docker,
            images=core.images.spec,
        )
    try:
        return host_process.host_process_files(core, record, root_of(record.spec.info))
    except OSError as error:
        raise core.texts.create_failed(record.id, f"failed to mount: {error.strerror}") from error


def log_path(core: SimCore, record: SimContainer) -> str:
    separator = "\\" if core.windows else "/"
    directory, name = record.sandbox.config.log_directory, record.config.log_path
    if core.windows:
        name = name.replace("/", "\\")
    return f"{directory.rstrip(separator)}{separator}{name}" if name else ""


def _store_credentials(core: SimCore, record: SimContainer) -> None:
    """Docker receives a credential spec through the machine's registry."""
    windows = record.config.windows
    if (
        windows is not None
        and windows.credential_spec
        and core.docker
        and isinstance(core.host, WindowsHost)
    ):
        record.credentials = f"{_NAME_PREFIX}{core.rng.getrandbits(320):080x}"
        core.host.registry.set(CREDENTIAL_SPECS, record.credentials, windows.credential_spec)


def forget_credentials(core: SimCore) -> None:
    """For containers from before a restart: a new runtime does not keep them."""
    if isinstance(core.host, WindowsHost):
        for name in tuple(core.host.registry.values(CREDENTIAL_SPECS) or ()):
            if name.startswith(_NAME_PREFIX):
                core.host.registry.delete(CREDENTIAL_SPECS, name)


# ---- start ----


def start_sim_container(core: SimCore, c: SimContainer) -> None:
    """Raises RuntimeFailure; the container has then ended, or can still be started."""
    if c.state != "created":
        if c.state == "running" and core.docker:
            return
        raise core.texts.not_running(c.id, c.state)
    if c.sandbox.state != "ready":
        raise core.texts.sandbox_stopped(c.sandbox.id)
    settings = annotations_of_container(c.sandbox.config.annotations, c.config.name)
    plan = make_container_plan(settings, c.config.attempt)
    broken = _why_not(core, c, plan)
    if broken is None:
        _open_log(c)
        broken = _launch(core, c, plan, settings)
    if broken is not None:
        _never_ran(core, c, broken)
        raise broken.failure
    early, c.starting = c.early_exit, False
    core.emit("started", c.sandbox, c.id)
    if early is not None:
        if c.context is not None:
            c.context.kill()
        finish_sim_container(core, c, early)
    else:
        if plan.run_time is None and _does_one_job(c):
            plan = plan._replace(run_time=_JOB_SECONDS)
        _follow(core, c, plan)


def _open_log(c: SimContainer) -> None:
    if c.log.path:
        try:
            c.log.open()
        except OSError as error:
            raise RuntimeFailure(
                "Unknown", f"failed to open log file {c.log.path}: {error.strerror}"
            ) from error


def _why_not(core: SimCore, c: SimContainer, plan: ContainerPlan) -> StartFailureText | None:
    if plan.fail_start is not None and plan.fail_start.applies(c.config.attempt):
        return core.texts.start_failed(
            c.id, plan.fail_start.text or "simulated failure of the start"
        )
    if not runs_here(core, c.sandbox, c.spec):
        return _broken(core, c, "build")
    if c.host_process:
        if isinstance(core.host, WindowsHost) and not may_log_on(core.host.registry):
            return core.texts.start_failed(c.id, LOGON_DENIED)
        found = host_process.host_process_identity(core, c)
        if found is None:
            return core.texts.start_failed(c.id, host_process.LOGON_FAILED)
        c.identity = found
    elif core.windows:
        identity = users.windows_container_identity(
            c.config, c.spec, computer_name(core.hostname_in(c.sandbox)), c.id
        )
        if identity is None:
            return _broken(core, c, "user")
        c.identity = identity
    else:
        c.identity = users.linux_identity(c.config, c.spec)
    if c.spec.platform.os != core.os:
        return _broken(core, c, "not-found")
    directory = c.config.working_dir or c.spec.working_dir
    known = bool(directory) and not core.windows and c.files.exists(directory)
    if known and c.files.stat(directory).kind != "directory":
        return core.texts.cannot_start(
            c.id, core.os, "working-directory", directory, core.hostname_in(c.sandbox)
        )
    return None


def runs_here(core: SimCore, sandbox: SimSandbox, spec: CatalogueImage) -> bool:
    """On Linux always; on Windows the builds must match."""
    build = spec.platform.build
    if not core.windows or not build or sandbox.host_process:
        return True
    isolation = sandbox.isolation
    if isolation.hyperv and not isolation.exact:
        return hyperv_isolation(core.build, build)
    if isolation.hyperv:
        return build == isolation.build
    return core.images.runs_as_process(build)


def _broken(core: SimCore, c: SimContainer, fault: Fault) -> StartFailureText:
    return core.texts.cannot_start(c.id, core.os, fault, c.argv[0], core.hostname_in(c.sandbox))


def _launch(
    core: SimCore, c: SimContainer, plan: ContainerPlan, settings: Mapping[str, str]
) -> StartFailureText | None:
    config = c.config
    linux = config.linux
    adjustment = linux.resources.oom_score_adj if linux is not None else 0
    account = core.host.account(c.id, adjustment, lambda: _out_of_memory(core, c))
    base = base_memory(core.windows, c.spec.info.userland)
    c.meter = ContainerMeter(
        account, cpu_cap(config, core.host.hardware.cpus), sim_memory_limit(config), base
    )
    c.input = InputBuffer() if config.stdin else None
    write_output = _output_of(c)
    if config.tty:
        feed = c.input.feed if c.input is not None else _discard_input
        c.terminal = Terminal(
            windows=core.windows,
            lines=feed,
            echo=lambda data: write_output("stdout", data),
            signal=_signaller(c),
        )
    c.starting = True
    context = c.context = core.create_program(
        core,
        c,
        c.argv,
        main=True,
        sink=write_output,
        on_exit=lambda _, code: _ended(core, c, code),
        stdin=c.input or NO_INPUT,
        pty=c.terminal,
        sim=settings,
        ready_delay=plan.ready_delay,
    )
    c.state = "running"
    c.started = core.host.time()
    c.changed()
    try:
        context.program = context.start(context)
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


def _undo_launch(c: SimContainer, context: ContainerProgram) -> None:
    context.release()
    c.context = c.input = c.terminal = None
    if c.meter is not None:
        c.meter.close()
        c.meter = None
    c.starting = False
    c.changed()


def _output_of(c: SimContainer) -> Callable[[Stream, bytes], None]:
    def write_output(stream: Stream, data: bytes) -> None:
        c.log.write(stream, data)
        for client in c.attached:
            client.write_output(stream, data)

    return write_output


def _signaller(c: SimContainer) -> Callable[[str], None]:
    def signal(name: str) -> None:
        if c.context is not None:
            c.context.signalled(name)

    return signal


def _discard_input(data: bytes) -> None:
    """Discards the input."""


def _never_ran(core: SimCore, c: SimContainer, broken: StartFailureText) -> None:
    """Docker reports that it ran for zero seconds; containerd that it never started."""
    c.state = "exited"
    c.exit_code = broken.exit_code
    c.reason = core.texts.reason_cannot_start
    c.message = broken.message
    c.started = c.created if core.docker else 0.0
    c.finished = c.created if core.docker else core.host.time()
    c.changed()
    core.emit("died", c.sandbox, c.id)


def _does_one_job(c: SimContainer) -> bool:
    """Whether it is an unknown program in an init container or in the pod of a Job. It is assumed to
    do its work and end: a Job of a server would never complete, nor a pod that waits for it start.
    """
    must_end = c.config.init or "job-name" in c.sandbox.config.labels
    if c.context is None or c.config.ports or not must_end:
        return False
    return isinstance(c.context.program, simple_servers.AssumedServer)


def _follow(core: SimCore, c: SimContainer, plan: ContainerPlan) -> None:
    """Applies the annotations to a running container."""
    if plan is NO_PLAN:
        return
    context, later = c.context, core.clock.call_later
    if context is None:  # a listener has already stopped it
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
        c.timers += tuple(
            later(point.after, usage.memory, int(point.value)) for point in plan.memory
        )


def _log_line(core: SimCore, c: SimContainer, plan: ContainerPlan, number: int) -> None:
    if c.context is not None and c.state == "running":
        c.context.out(f"line {number}\n".encode())
        if number < plan.log_lines:
            c.timers += (
                core.clock.call_later(plan.log_interval, _log_line, core, c, plan, number + 1),
            )


def _run_out(core: SimCore, c: SimContainer, code: int) -> None:
    if c.context is not None and c.state == "running":
        c.context.kill()
        finish_sim_container(core, c, code)


# ---- end ----


def _ended(core: SimCore, c: SimContainer, code: int) -> None:
    """Its main process has exited."""
    if c.starting:
        c.early_exit = code
    else:
        finish_sim_container(core, c, code)


def _out_of_memory(core: SimCore, c: SimContainer) -> None:
    kill_sim_container(core, c, reason="OOMKilled")


def out_of_memory(core: SimCore, c: SimContainer, context: ContainerProgram) -> None:
    """A program exceeds its container's memory limit: the largest process of the container is
    killed.
    """
    own = context.memory
    if context.main or any(
        other.memory > own for other in (*c.execs, c.context) if other is not None
    ):
        kill_sim_container(core, c, reason="OOMKilled")
    else:
        context.signalled("SIGKILL")


def kill_sim_container(
    core: SimCore, c: SimContainer, reason: str = "", code: int | None = None
) -> None:
    if c.state != "running":
        return
    # a program that is just starting ends once it runs
    if c.context is not None and not c.starting:
        c.context.kill()
    if code is None:
        code = _TERMINATED if core.windows else _KILLED
    if c.starting:
        c.early_exit, c.reason = code, reason
    else:
        finish_sim_container(core, c, code, reason)


def finish_sim_container(core: SimCore, c: SimContainer, code: int, reason: str = "") -> None:
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
            other.client.finish(cri_exit_code(_TERMINATED) if core.windows else _KILLED)
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


async def stop_sim_container(core: SimCore, c: SimContainer, grace: float) -> None:
    """Asks it to terminate, and kills it after the grace period."""
    if c.state != "running":
        return
    context = c.context
    patience = stop_grace_seconds(core, c, grace)
    if c.stop_signal == "SIGKILL":
        kill_sim_container(core, c)
        return
    if context is not None and context.program is not None:
        context.program.signal("CTRL_SHUTDOWN_EVENT" if core.windows else c.stop_signal)
    if patience > 0 and c.state == "running":
        await _end_within(core, c, patience)
    if c.state == "running":
        kill_sim_container(core, c, code=SHUT_DOWN if core.windows and core.docker else None)


def stop_grace_seconds(core: SimCore, c: SimContainer, grace: float) -> float:
    """Seconds between the request to stop and the kill. On Windows the container's registry limits
    them: always with Docker; with containerd when the value differs from Windows' default.
    """
    if not core.windows:
        return grace
    seconds = shutdown_timeout(c)
    if not core.docker and seconds == DEFAULT_SHUTDOWN_SECONDS:
        return grace
    return min(grace, seconds)


def shutdown_timeout(c: SimContainer) -> float:
    """Seconds that Windows waits for the processes of a container: the value in its registry, which
    initially comes from its image.
    """
    return (
        shutdown_seconds(c.system.registry, c.spec.shutdown_timeout)
        if c.system is not None
        else c.spec.shutdown_timeout
    )


async def _end_within(core: SimCore, c: SimContainer, seconds: float) -> None:
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


def container_power(core: SimCore, c: SimContainer) -> PowerSwitch:
    """For programs of a Windows container. A shutdown ends all of its processes, and a restart does
    the same: the container's owner decides whether to start it again.
    """
    if c.power is None:
        c.power = PowerSwitch(core.clock)
        c.power.connect(lambda _action: _shut_down_container(core, c))
    return c.power


def _shut_down_container(core: SimCore, c: SimContainer) -> None:
    if c.state != "running":
        return
    if c.context is not None and c.context.program is not None:
        c.context.program.signal("CTRL_SHUTDOWN_EVENT")
    late = core.clock.call_later(
        shutdown_timeout(c), lambda: kill_sim_container(core, c, code=SHUT_DOWN)
    )
    c.timers = (*c.timers, late)


def power_off_container(core: SimCore, c: SimContainer) -> None:
    """The machine lost power."""
    if c.context is not None:
        c.context.kill()
    finish_sim_container(core, c, _REBOOTED)


def remove_sim_container(core: SimCore, c: SimContainer) -> None:
    kill_sim_container(core, c)
    c.files.discard()
    if c.host_process:
        host_process.discard_workspace(core, c)
    if core.docker and c.log.path:
        core.host.files.remove(c.log.path, recursive=True)
    if c.credentials and isinstance(core.host, WindowsHost):
        core.host.registry.delete(CREDENTIAL_SPECS, c.credentials)
    core.containers.pop(c.id, None)
    if c in c.sandbox.containers:
        c.sandbox.containers.remove(c)
    core.emit("removed", c.sandbox, c.id)
