"""The programs of one node: kubelet, kube-proxy and flanneld. The node starts them from their
command lines at boot, and users can stop each of them and start it with another command line. There
is only one way to start a program: `_start`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from typing import Final
from urllib.parse import urlsplit

from transom.kit.clock import parse_rfc3339, rfc3339
from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_pattern
from transom.kit.user_errors import UserError
from transom.machinery.errors import ApiError
from transom.network.cni.byhand import called_by_hand
from transom.node.programs.command_lines import (
    BINARIES,
    SERVICE_LOGS,
    CommandLine,
    node_files,
    program_command_line,
    service_environment,
)
from transom.node.programs.flags import kube_proxy
from transom.node.programs.flags.kubelet import parse_kubelet_flags
from transom.node.programs.flanneld import start_flanneld
from transom.node.programs.host import ProgramHost
from transom.node.programs.kube_proxy import start_kube_proxy
from transom.node.programs.kubelet import log_event, log_failure, start_kubelet
from transom.node.programs.log import INFO, LOG_EXIT_CODE, LogLine, ProgramLog
from transom.node.programs.start import Output, ProgramExit, ProgramStart, StartedProgram
from transom.node.programs.units import (
    edited_command_line,
    enable_unit,
    install_unit,
    is_unit_enabled,
    unit_files,
)
from transom.runtime.sim.login.units import UnitState
from transom.windows.releases import parse_release_version

log = logging.getLogger("transom.node")

_PIDS: Final = range(500, 1040, 4)  # below those of the machine's process table
_LATER_PIDS: Final = 1_000_000
_POWER_LOSS: Final = 1  # the exit code of programs that ran when the machine was switched off
_PANIC: Final = 2  # the exit code of a Go program that panicked
_NO_COMMAND: Final = 203  # systemd's exit code for a unit whose program cannot be executed
_KLOG_HEAD: Final = lazy_pattern(rb"[IWEF](\d\d)(\d\d) ([\d:.]+) ")
_KEPT_OUTPUT: Final = 1000  # the last chunks of output of programs that were started at boot


class ProgramProcess:
    """A program that runs on a node, or that waits at boot for its dependencies (`started` is
    None).
    """

    def __init__(self, binary: str, argv: Sequence[str], pid: int, *, at_boot: bool) -> None:
        self.binary = binary
        self.argv = list(argv)
        self.pid = pid
        self.at_boot = at_boot
        self.started: StartedProgram | None = None
        self.failed = False  # it exited during its last start, and is being restarted
        self.since = 0.0
        self.task: asyncio.Task[None] | None = None
        self._exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def ended(self) -> bool:
        return self._exit_code.done()

    @property
    def service(self) -> bool:
        """Whether it is a Windows service that reports to the service control manager."""
        return self.started is not None and self.started.service

    def exit(self, code: int) -> None:
        """It has ended; what it created stays."""
        if self._exit_code.done():
            return
        self._exit_code.set_result(code)
        started, self.started = self.started, None
        if started is not None:
            started.close()

    async def wait(self) -> int:
        return await asyncio.shield(self._exit_code)

    async def stop(self) -> None:
        """Stops it and returns when it has ended."""
        if self.ended:
            return
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
        self.exit(0)


class NodePrograms:
    def __init__(self, node: ProgramHost) -> None:
        self._node = node
        self._pids = chain(_PIDS, count(_LATER_PIDS, 4))
        self._processes: dict[str, list[ProgramProcess]] = {binary: [] for binary in BINARIES}
        self._logs: dict[str, ProgramLog] = {}
        self._output: dict[str, deque[tuple[float, int, bytes]]] = {}
        self._ends: dict[str, UnitState] = {}  # how the stopped programs ended
        self._attached = False
        self._events_read: asyncio.Task[None] | None = None

    # ---- running programs ----

    def usual(self, binary: str) -> tuple[str, list[str]]:
        """The path of a program on the node, and its arguments at boot."""
        line = self._command_line(binary)
        return line.path, line.argv

    def environment(self, binary: str) -> dict[str, str]:
        """Its environment variables at boot, in addition to the machine's."""
        return self._command_line(binary).environment

    def _command_line(self, binary: str) -> CommandLine:
        node = self._node
        return program_command_line(binary, node.network, node.kubelet_settings)

    def running(self, binary: str) -> ProgramProcess | None:
        """The most recently started one."""
        processes = reversed(self._processes[binary])
        return next((process for process in processes if not process.ended), None)

    def is_up(self, binary: str) -> bool:
        """Whether it runs, or waits at boot for its dependencies."""
        process = self.running(binary)
        return process is not None and not process.failed

    def unreachable(self, binary: str) -> str:
        """The API server that a running program cannot reach."""
        process = self.running(binary)
        return process.started.unreachable if process is not None and process.started else ""

    def api_connections(self) -> list[tuple[str, str, int]]:
        """Each program that is connected to an API server, with its address and port."""
        out = []
        for binary in BINARIES:
            process = self.running(binary)
            started = process.started if process is not None else None
            if started is None or not started.server or started.unreachable:
                continue
            parts = urlsplit(started.server)
            host = parts.hostname or ""
            if self._node.network.has_route_to(host):
                out.append((binary, host, parts.port or 443))
        return out

    @property
    def attached(self) -> bool:
        """Whether a user has looked at the programs or their logs."""
        return self._attached

    # ---- the machine's power ----

    def boot(self) -> None:
        """Starts everything that does not wait for the network."""
        self.power_off()
        node = self._node
        for binary in node.network.programs:
            if node.spec.windows or is_unit_enabled(node.machine.files, binary):
                process = self._new_process(binary, (), at_boot=True)
                self._processes[binary].append(process)
        if self._processes["kubelet"]:
            self._start_kubelet_service()
        if not node.network.proxy_needs_network:
            self._start_at_boot("kube-proxy")

    def _start_kubelet_service(self) -> None:
        """Like a service with a restart policy: a failed kubelet restarts with back-off."""
        cluster, name = self._node.cluster, self._node.spec.name
        process = self._processes["kubelet"][-1]
        run = cluster.supervise(f"kubelet of {name}", lambda: self._run_kubelet(process))
        process.task = cluster.spawn(run)

    async def _run_kubelet(self, process: ProgramProcess) -> None:
        process.failed = True  # until it runs
        started = self._start_process(process)
        assert started.run is not None
        process.failed = False
        try:
            code = await started.run()
        except Exception as problem:
            process.failed = True
            log_failure(started.log, problem)
            raise
        if code:
            process.failed = True
            raise RuntimeError(f"kubelet exited with code {code}")

    def start_network(self, cidr: str) -> None:
        """The node has its pod CIDR: starts flanneld, or its replacement, then kube-proxy."""
        network = self._node.network
        if network.plugin == "flannel":
            if not self._start_at_boot("flanneld"):
                return  # users start and stop it
        else:
            network.start_without_agent(cidr)
        if network.proxy_needs_network:
            self._start_at_boot("kube-proxy")

    def _start_at_boot(self, binary: str) -> bool:
        """Starts or restarts the boot process of a program. False if there is none, because users
        have stopped it or started another one.
        """
        process = self.running(binary)
        if process is None or not process.at_boot:
            return False
        started, process.started = process.started, None
        if started is not None:
            started.close()
        try:
            started = self._start_process(process)
        except ProgramExit as problem:
            name = self._node.spec.name
            log.error("%s of node %s has failed (%s): %s", binary, name, problem, self.why(binary))
            process.exit(problem.code)
            self._ended(process, problem.code)
        else:
            if started.run is not None:
                process.task = self._node.cluster.spawn(self._run(process, started))
        return True

    def _start_process(self, process: ProgramProcess) -> StartedProgram:
        """Starts a process at boot. Raises ProgramExit."""
        binary, node = process.binary, self._node
        line = self._command_line(binary)
        if not node.spec.windows:
            edited = edited_command_line(node.machine.files, binary)
            if edited is not None and edited.path.rpartition("/")[2] != binary:
                text = f"Failed at step EXEC spawning {edited.path or '(no ExecStart)'}\n"
                self._print(process, text.encode())
                raise ProgramExit(_NO_COMMAND)
            line = edited or line
        process.argv, process.since = line.argv, node.machine.clock.time()
        start = self._make_start(
            process,
            line.environment,
            node_files(node.network).home,
            lambda data: self._print(process, data),
        )
        process.started = self._start(process, start)
        return process.started

    def _print(self, process: ProgramProcess, data: bytes) -> None:
        """Keeps what a program writes to its standard output and error."""
        kept = self._output.setdefault(process.binary, deque(maxlen=_KEPT_OUTPUT))
        kept.append((self._node.machine.clock.time(), process.pid, data))
        path = SERVICE_LOGS.get(process.binary)
        if process.at_boot and path is not None and self._node.spec.windows:
            self._write_service_log(path, data)

    def _write_service_log(self, path: str, data: bytes) -> None:
        """What the services on Windows do with the output: programs that do not write log files
        themselves are started by kube-log-runner.
        """
        files = self._node.machine.files
        try:
            files.mkdir(path.rpartition("\\")[0])
            files.appender(path)(data)
        except OSError as problem:
            log.warning("%s of node %s: %s", path, self._node.spec.name, problem.strerror)

    def why(self, binary: str) -> str:
        """The line that explains why a program has ended: the last line of its log, or the first
        line of its output.
        """
        found = self._logs[binary].last_line() if binary in self._logs else ""
        if found or binary not in self._output:
            return found
        pid = self._output[binary][-1][1]
        text = b"".join(data for _, of, data in self._output[binary] if of == pid)
        return text.decode(errors="replace").strip().partition("\n")[0]

    def _ended(self, process: ProgramProcess, code: int, *, failed: bool = False) -> None:
        self._ends[process.binary] = UnitState(
            "failed" if code or failed else "inactive",
            self._node.machine.clock.time(),
            process.pid,
            tuple(process.argv),
            code,
        )
        self._forget_ended(process.binary)

    # ---- services of a Linux node ----

    @property
    def services(self) -> tuple[str, ...]:
        return self._node.network.programs

    def install_units(self) -> None:
        for binary in self.services:
            install_unit(self._node.machine.files, binary, self._command_line(binary))

    def unit_paths(self, binary: str) -> list[tuple[str, str]]:
        return unit_files(self._node.machine.files, binary)

    def enabled(self, binary: str) -> bool:
        return is_unit_enabled(self._node.machine.files, binary)

    def enable(self, binary: str, on: bool) -> str:
        return enable_unit(self._node.machine.files, binary, on=on)

    def unit_state(self, binary: str) -> UnitState:
        """The state as systemd reports it."""
        process = self.running(binary)
        if process is None:
            return self._ends.get(binary) or UnitState("inactive")
        since = process.since or self._node.machine.boot_time
        state = "activating" if process.failed else "active"
        return UnitState(state, since, process.pid, tuple(process.argv))

    async def start_service(self, binary: str) -> bool:
        """Starts the service as at boot. Returns whether it runs."""
        if self.running(binary) is not None:
            return True
        self._ends.pop(binary, None)
        process = self._new_process(binary, (), at_boot=True)
        self._processes[binary].append(process)
        network = self._node.network
        if binary == "kubelet":
            self._start_kubelet_service()
            await self._node.machine.clock.sleep(0)
        elif binary == "flanneld":
            cidr = self._node.cluster.pod_cidr(self._node.spec.name)
            if cidr:
                self.start_network(cidr)
        elif network.started or not network.proxy_needs_network:
            self._start_at_boot(binary)
        return self.running(binary) is not None

    async def stop_service(self, binary: str) -> None:
        for process in [*self._processes[binary]]:
            await process.stop()
            self._ended(process, 0)

    async def journal(self, binary: str) -> list[tuple[float, int, bytes]]:
        """The output of a program: time, process id and text."""
        await self.log(binary)
        return [
            (_klog_time(data, moment), pid, data)
            for moment, pid, data in self._output.get(binary, ())
        ]

    def notified_of_shutdown(self, binary: str) -> bool:
        """Whether the machine notifies the program before it shuts down: on Windows, services
        only.
        """
        process = self.running(binary)
        if process is None:
            return False
        return not self._node.spec.windows or process.at_boot or process.service

    async def lose_power(self) -> None:
        """Ends everything immediately. Returns when the kubelet no longer writes to the API."""
        kubelet = self.running("kubelet")
        self.power_off()
        if kubelet is not None and kubelet.task is not None:
            await asyncio.wait([kubelet.task])

    def power_off(self) -> None:
        for processes in self._processes.values():
            for process in processes:
                process.exit(_POWER_LOSS)
                if process.task is not None:
                    process.task.cancel()
            processes.clear()

    # ---- by hand ----

    async def launch(
        self,
        binary: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: str,
        output: Output,
        stdout: Output | None = None,
    ) -> ProgramProcess:
        """A program that cannot start ends with an exit code; its output has the reason. `stdout`
        gets the answers of `--version` and `--help`; without it, `output` does.
        """
        name = self._node.spec.name
        if self._node.spec.stopped:
            raise UserError(f"{name} is switched off", f"transom node start {name}")
        process = self._new_process(binary, argv, at_boot=False)

        def write(data: bytes) -> None:
            self._print(process, data)
            output(data)

        start = self._make_start(process, environment, directory, write, stdout)
        try:
            started = self._start(process, start)
        except ProgramExit as problem:
            process.exit(problem.code)
            if self.running(binary) is None:
                self._ended(process, problem.code, failed=True)
            return process
        process.started = started
        self._processes[binary].append(process)
        if started.run is not None:
            process.task = self._node.cluster.spawn(self._run(process, started))
        proxy = self.running("kube-proxy")
        if binary == "flanneld" and proxy is not None and proxy.started is None:
            self._start_at_boot("kube-proxy")  # it has waited for the network
        return process

    async def _run(self, process: ProgramProcess, started: StartedProgram) -> None:
        """A program that fails ends with an exit code; nothing else on the node is affected."""
        assert started.run is not None
        code = 0
        try:
            code = await started.run()
        except Exception as problem:
            log.exception("%s of %s failed", process.binary, self._node.spec.name)
            if process.binary == "kubelet":
                code = log_failure(started.log, problem)
            else:
                started.log.line(INFO, "panic.go:969", f"panic: {problem}")
                code = _PANIC
        finally:
            process.exit(code)
            self._ended(process, code)

    def run_plugin(
        self, name: str, environment: Mapping[str, str], request: bytes
    ) -> tuple[int, bytes]:
        """Runs a CNI plugin by hand, as scripts do to request the source VIP from host-local."""
        return called_by_hand(self._node.network.machine, name, environment, request)

    # ---- one start ----

    def _start(self, process: ProgramProcess, start: ProgramStart) -> StartedProgram:
        """The only way to start a program. Raises ProgramExit."""
        binary = process.binary
        other = self.running(binary)
        other = None if other is process else other
        running = other is not None
        try:
            started = self._start_program(binary, start, other)
        except ProgramExit:
            if start.logs and not running:
                self._logs[binary] = start.logs[-1]
            elif not running:
                self._logs.pop(binary, None)
            raise
        self._logs[binary] = started.log
        if started.log.failed and not start.at_boot:
            started.close()
            raise ProgramExit(LOG_EXIT_CODE)
        return started

    def _start_program(
        self, binary: str, start: ProgramStart, other: ProgramProcess | None
    ) -> StartedProgram:
        if binary == "kubelet":
            return start_kubelet(start, running=other is not None)
        if binary == "kube-proxy":
            return start_kube_proxy(start, other)
        return start_flanneld(start, others=lambda: self.running("flanneld") is not None)

    def _make_start(
        self,
        process: ProgramProcess,
        environment: Mapping[str, str],
        directory: str,
        output: Output,
        stdout: Output | None = None,
    ) -> ProgramStart:
        node = self._node
        path = node_files(node.network).programs[process.binary]
        variables = {**service_environment(node.network, node.hostname), **environment}
        return ProgramStart(
            node,
            path.rpartition("\\" if node.spec.windows else "/")[2],
            process.pid,
            list(process.argv),
            variables,
            directory,
            output,
            at_boot=process.at_boot,
            quiet=process.at_boot and not self._attached,
            exit=lambda code: self._exit(process, code),
            stdout=stdout,
        )

    def _exit(self, process: ProgramProcess, code: int) -> None:
        """The program exits while it runs. The log of a program that was started at boot is only
        written when a user reads it, and reading must not end the program.
        """
        if process.started is not None and not process.at_boot:
            process.exit(code)
            if process.task is not None:
                process.task.cancel()
            self._ended(process, code)

    def _new_process(self, binary: str, argv: Sequence[str], *, at_boot: bool) -> ProgramProcess:
        pid = next(self._pids)
        if at_boot and binary != "kubelet":
            return _LazyProcess(binary, argv, pid, self._catch_up)
        return ProgramProcess(binary, argv, pid, at_boot=at_boot)

    def _catch_up(self) -> None:
        """Brings the node up to date before an agent that was started at boot ends: the agent is
        lazy, and its pending work must not be lost.
        """
        self._node.cluster.network.fabric.refresh_node(self._node.spec.name)

    def _forget_ended(self, binary: str) -> None:
        processes = self._processes[binary]
        self._processes[binary] = [process for process in processes if not process.ended]

    # ---- logs ----

    def attach(self) -> None:
        """A user looks at the programs: from now on their logs are written."""
        if self._attached:
            return
        self._attached = True
        for binary in BINARIES:
            process = self.running(binary)
            if process is not None and process.started is not None:
                self._write_log_since_boot(process, process.started)
            elif binary in self._logs:
                self._logs[binary].attach()  # of one that has failed
        if "kubelet" in self._logs:
            read = self._read_events(self._logs["kubelet"])
            self._events_read = self._node.cluster.spawn(read)

    async def log(self, binary: str) -> bytes:
        """The last log lines of the most recently started one, even if it has ended."""
        self.attach()
        if self._events_read is not None:
            await asyncio.wait([self._events_read])
        found = self._logs.get(binary)
        return b"" if found is None else found.content()

    def _write_log_since_boot(self, process: ProgramProcess, started: StartedProgram) -> None:
        """Writes the start of a program that was started at boot. Of its later lines, only the last
        ones are kept.
        """
        texts: Mapping[str, str] = {}
        release = parse_release_version(self._node.kubelet_version)
        if process.binary == "kubelet":
            windows = self._node.spec.windows
            texts = parse_kubelet_flags(process.argv, release, windows=windows).texts
        elif process.binary == "kube-proxy":
            texts = kube_proxy.parse_kube_proxy_flags(process.argv, release).texts
        began = self._node.machine.boot_time
        lines = [
            LogLine(INFO, "flags.go:59", f"FLAG: --{name}={go_quote(text)}", began)
            for name, text in sorted(texts.items())
        ]
        started.log.attach(lines)
        started.attach()

    async def _read_events(self, into: ProgramLog) -> None:
        """Writes the kubelet's events that the API server still has to its log."""
        node = self._node.spec.name
        try:
            found = await self._node.cluster.list_events()
        except ApiError as problem:
            log.info("events of %s cannot be read: %s", node, problem)
            return
        source = {"component": "kubelet", "host": node}
        mine = [e for e in found if e.get("source") == source and e.get("lastTimestamp")]
        for event in sorted(mine, key=lambda e: str(e["lastTimestamp"])):
            log_event(into, event, parse_rfc3339(event["lastTimestamp"]))


def _klog_time(data: bytes, written: float) -> float:
    """When a line was logged: a quiet log is written later."""
    found = _KLOG_HEAD.match(data)
    if found is None:
        return written
    month, day, clock = (part.decode() for part in found.groups())
    logged = parse_rfc3339(f"{rfc3339(written)[:4]}-{month}-{day}T{clock}Z")
    return logged if logged <= written else written


class _LazyProcess(ProgramProcess):
    """An agent that was started at boot; it works when its node's state is read."""

    def __init__(
        self, binary: str, argv: Sequence[str], pid: int, catch_up: Callable[[], None]
    ) -> None:
        super().__init__(binary, argv, pid, at_boot=True)
        self._catch_up = catch_up

    async def stop(self) -> None:
        if not self.ended:
            self._catch_up()
        await super().stop()
