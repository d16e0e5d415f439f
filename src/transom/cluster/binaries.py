"""kubelet.exe, kube-proxy.exe and flanneld.exe of one simulated Windows node, as programs that people start and stop.

Since boot a node runs all three without a process of their own: what they do is done by the fleet. Here each of them can be
looked at, stopped alone and started again with a command line. A node whose programs nobody touches has none of this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from transom.cluster import binaries_flanneld, binaries_kubelet, binaries_proxy, binaries_usual
from transom.cluster.binaries_start import Ended, Output, Running, Start
from transom.cluster.errors import ClusterError
from transom.cluster.flags import klog, kube_proxy, kubelet
from transom.cluster.fleet import ON
from transom.cluster.nodelog import INFO, Lines, NodeLog
from transom.cluster.nodenet_windows import WindowsNodeNet
from transom.kit.clock import parse_rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from transom.cluster.fleet import Fleet, Machine
    from transom.runtime.sim.engine import SimRuntime

log = logging.getLogger("transom.cluster")

BINARIES: Final = ("kubelet", "kube-proxy", "flanneld")
_FIRST_PID: Final = 1300
_FLANNELD: Final = "flanneld.go:90"
_PANIC: Final = 2  # the exit code of a Go program that has panicked


class Program(Protocol):
    """Something that runs on the node."""

    async def wait(self) -> int:
        """Its exit code, when it has ended."""

    async def stop(self) -> None:
        """Returns when it has ended."""


class Process:
    """A program by what it was started with. `end` makes it end; who sees that it has ended calls `exit`."""

    def __init__(self, binary: str, argv: Sequence[str], pid: int) -> None:
        self.binary = binary
        self.argv = list(argv)
        self.pid = pid
        self.service = False  # it was told to speak with the service control manager
        self.end: Callable[[], Awaitable[None]] | None = None
        self.task: asyncio.Task[None] | None = None  # of one that somebody started
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def ended(self) -> bool:
        return self._code.done()

    def exit(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    async def stop(self) -> None:
        if not self.ended and self.end is not None:
            await self.end()
            self.exit(0)


class NodeBinaries:
    """Made by `Fleet.binaries`."""

    def __init__(self, fleet: Fleet, machine: Machine) -> None:
        self._fleet = fleet
        self._machine = machine
        network = machine.network
        assert isinstance(network, WindowsNodeNet)
        self._network = network
        self._runtime: SimRuntime = machine.runtime
        self._kept = (self._runtime.sandbox_image, self._runtime.pull_deadline)
        self._plugins = (network.pods.directory, network.pods.binaries)
        self._pids = _FIRST_PID
        self._processes: dict[str, list[Process]] = {binary: [] for binary in BINARIES}
        self._logs: dict[str, NodeLog] = {}
        self._recalled: asyncio.Task[None] | None = None
        _KUBELETS.hear(machine.spec.name, self._kubelet_said)
        binaries_usual.install(machine.host.files, network, fleet.api_addresses()[0])
        self.booted()
        if machine.kubelet is not None:
            machine.kubelet.env.events.told = self.told

    # ---- what there is -----------------------------------------------------------------------------------------------

    def usual(self, binary: str) -> tuple[str, list[str]]:
        """Where it is on the node, and the arguments that it runs with since boot."""
        line = {
            "kubelet": lambda: binaries_usual.kubelet(
                self._fleet.settings(self._machine.spec), self._network.runtime, self._plugins),
            "kube-proxy": lambda: binaries_usual.kube_proxy(self._network)[0],
            "flanneld": lambda: binaries_usual.flanneld(self._network)[0],
        }[binary]()
        return binaries_usual.PATHS[binary], line

    def environment(self, binary: str) -> dict[str, str]:
        """What it has beside the machine's variables since boot."""
        own = {"kube-proxy": binaries_usual.kube_proxy, "flanneld": binaries_usual.flanneld}.get(binary)
        return {} if own is None else own(self._network)[1]

    def running(self, binary: str) -> Process | None:
        """The one that was started last."""
        return next((process for process in reversed(self._processes[binary]) if not process.ended), None)

    async def log(self, binary: str) -> bytes:
        """The last lines of the one that was started last, also of one that has ended."""
        if self._recalled is not None:
            await asyncio.wait([self._recalled])
        found = self._logs.get(binary)
        return b"" if found is None else found.content()

    # ---- starting and stopping ---------------------------------------------------------------------------------------

    async def launch(
        self, binary: str, argv: Sequence[str], environment: Mapping[str, str], directory: str, output: Output
    ) -> Process:
        """One that cannot start is a program that ends with an exit code and has written the reason to its output."""
        if self._machine.spec.stopped:
            raise ClusterError(f"{self._machine.spec.name} is switched off", "start it first")
        process = self._process(binary, argv)
        given = self._given(binary, process.pid, argv, environment, directory, output)
        runs = self.running(binary) is not None
        try:
            begun = self._begin(binary, given, runs)
        except Ended as ended:
            process.exit(ended.code)
            if not runs and given.logs:
                self._logs[binary] = given.logs[-1]
            return process
        process.service = begun.service
        self._logs[binary] = begun.log
        self._processes[binary].append(process)
        task = process.task = self._fleet.spawn(self._live(process, begun))
        if binary == "kubelet":
            self._machine.task = task

        async def end() -> None:
            task.cancel()
            await asyncio.wait([task])

        process.end = end
        return process

    def _begin(self, binary: str, given: Start, runs: bool) -> Running:
        if binary == "kubelet":
            return binaries_kubelet.start(given, runs=runs)
        if binary == "flanneld":
            begun = binaries_flanneld.start(given, others=lambda: self.running("flanneld") is not None)
        else:
            begun = binaries_proxy.start(given, runs=runs)
        self._network.by_hand.add(binary)
        return begun

    async def _live(self, process: Process, begun: Running) -> None:
        """A program that fails is its own affair: the fleet goes on."""
        code = 0
        try:
            code = await begun.life()
        except Exception as problem:
            log.exception("%s of %s failed", process.binary, self._machine.spec.name)
            begun.log.line(INFO, "panic.go:969", f"panic: {problem}")
            code = _PANIC
        finally:
            if process.binary == "kubelet" and self._machine.task is asyncio.current_task():
                self._machine.task = None
            process.exit(code)
            self._forget_ended(process.binary)
            begun.close()

    def _forget_ended(self, binary: str) -> None:
        self._processes[binary] = [process for process in self._processes[binary] if not process.ended]

    # ---- the machine's power -----------------------------------------------------------------------------------------

    def booted(self) -> None:
        """All of them run since boot, as ever."""
        self.powered_off()
        if self._machine.spec.stopped:
            return
        image, self._runtime.pull_deadline = self._kept
        self._runtime.use_sandbox_image(image)
        if (self._network.pods.directory, self._network.pods.binaries) != self._plugins:
            self._network.pods.look_in(*self._plugins)
        ends = {"kubelet": self._stop_kubelet, "kube-proxy": self._stop_proxy, "flanneld": self._stop_flanneld}
        for binary in BINARIES if self._network.plugin == "flannel" else BINARIES[:2]:
            process = self._process(binary, self.usual(binary)[1])
            process.end = ends[binary]
            self._processes[binary].append(process)
            self._logs[binary] = self._since_boot(process)
        binaries_proxy.tie(self._network.proxy_log, self._logs["kube-proxy"])
        self._recalled = self._fleet.spawn(self._recall(self._logs["kubelet"]))

    def powered_off(self) -> None:
        for processes in self._processes.values():
            for process in processes:
                process.exit(1)
                if process.task is not None:
                    process.task.cancel()
            processes.clear()

    def close(self) -> None:
        """The machine is gone."""
        self.powered_off()
        _KUBELETS.hear(self._machine.spec.name, None)

    async def _stop_kubelet(self) -> None:
        await self._fleet.stop_kubelet(self._machine)
        self._forget_ended("kubelet")

    def _catch_up(self) -> None:
        """Since boot agents do their work when somebody looks: what they would have done by now is to stay."""
        self._fleet.network.fabric.look(self._machine.spec.name)

    async def _stop_proxy(self) -> None:
        self._catch_up()
        self._network.by_hand.add("kube-proxy")
        self._network.stop_proxy()

    async def _stop_flanneld(self) -> None:
        self._catch_up()
        self._network.by_hand.add("flanneld")
        self._network.stop_agent()

    # ---- what they say -----------------------------------------------------------------------------------------------

    def told(self, event: Object) -> None:
        """An event of the kubelet."""
        binaries_kubelet.tell(self._logs["kubelet"], event)

    def _kubelet_said(self, record: logging.LogRecord) -> None:
        Lines(self._logs["kubelet"]).emit(record)

    def _since_boot(self, process: Process) -> NodeLog:
        """The log of one that has been running all the time: how it began. What it did since then nobody wrote down, but for
        events."""
        binary, wanted = process.binary, klog.Logging()
        texts: Mapping[str, str] = {}
        if binary != "flanneld":
            found = (kubelet if binary == "kubelet" else kube_proxy).parse(process.argv)
            wanted, texts = klog.logging_of(found), found.texts
        made = self._given(binary, process.pid, process.argv, {}, binaries_usual.HOME, lambda _data: None).log(wanted)
        began = self._machine.host.boot_time
        for name, text in sorted(texts.items()):
            made.line(INFO, "flags.go:59", f'FLAG: --{name}="{text}"', began)
        version = self._fleet.settings(self._machine.spec).version if binary != "flanneld" else "v0.13.0"
        made.line(INFO, "server.go:416", f"Version: {version} (simulated)", began)
        if binary == "flanneld":
            for at, text in self._network.agent_said:
                made.line(INFO, _FLANNELD, text, at)
            self._network.agent_told = lambda text: made.line(INFO, _FLANNELD, text)
        return made

    async def _recall(self, into: NodeLog) -> None:
        """Events of the kubelet that the API server still has."""
        node = self._machine.spec.name
        try:
            found = await self._fleet.list_events()
        except ApiError as problem:
            log.info("events of %s cannot be read: %s", node, problem)
            return
        mine = [e for e in found if e.get("source") == {"component": "kubelet", "host": node} and e.get("lastTimestamp")]
        for event in sorted(mine, key=lambda e: str(e["lastTimestamp"])):
            binaries_kubelet.tell(into, event, parse_rfc3339(event["lastTimestamp"]))

    def _process(self, binary: str, argv: Sequence[str]) -> Process:
        self._pids += 4
        return Process(binary, argv, self._pids)

    def _given(
        self, binary: str, pid: int, argv: Sequence[str], environment: Mapping[str, str], directory: str, output: Output
    ) -> Start:
        program = binaries_usual.PATHS[binary].rpartition("\\")[2]
        variables = {**binaries_usual.account(self._machine.host.computer_name), **environment}
        return Start(self._fleet, self._machine, program, pid, list(argv), variables, directory, output)


class _Kubelets(logging.Handler):
    """Gives what all kubelets of the process log to who listens to one of them, by its machine's name."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: dict[str, Callable[[logging.LogRecord], None]] = {}

    def hear(self, machine: str, said: Callable[[logging.LogRecord], None] | None) -> None:
        """None: nobody listens any more."""
        logger = logging.getLogger("transom.kubelet")
        if self not in logger.handlers:
            logger.addHandler(self)
        if said is None:
            self._listeners.pop(machine, None)
        else:
            self._listeners[machine] = said

    def emit(self, record: logging.LogRecord) -> None:
        said = self._listeners.get(ON.get())
        if said is not None:
            said(record)


_KUBELETS: Final = _Kubelets()
