"""A simulated Linux machine as the programs on it see it: its services and its processes.

`Units` provides the services of the node's own programs; containerd is the container runtime of the
machine.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Final, Protocol

from transom.kit.named_tuple import NamedTuple
from transom.kit.task_set import TaskSet
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.login.node_runtime import NodeRuntime
from transom.runtime.sim.table import ProcessIdTable
from transom.userland.api import ProcessEntry

CONTAINERD: Final = "containerd"
_CONTAINERD_PID: Final = 612
_MIB: Final = 1 << 20
_MEMORY: Final = {"kubelet": 70 * _MIB, "kube-proxy": 40 * _MIB, "flanneld": 30 * _MIB}


class UnitState(NamedTuple):
    """`state` is active, activating, inactive or failed; `code` is its exit code."""

    state: str
    since: float = 0.0
    pid: int = 0
    argv: tuple[str, ...] = ()
    code: int = 0


class Units(Protocol):
    """The services of the node's own programs."""

    @property
    def services(self) -> tuple[str, ...]: ...
    def usual(self, binary: str) -> tuple[str, list[str]]:
        """Its path, and the arguments that it has at boot."""

    def install_units(self) -> None:
        """Writes the unit files, unless users have changed them."""

    def unit_paths(self, binary: str) -> list[tuple[str, str]]:
        """The path and the content of a unit and its drop-ins."""

    def enabled(self, binary: str) -> bool: ...
    def enable(self, binary: str, on: bool) -> str:
        """Returns the line that systemctl prints; empty when nothing changes."""

    def unit_state(self, binary: str) -> UnitState: ...
    def api_connections(self) -> Sequence[tuple[str, str, int]]:
        """Each program that is connected to an API server, with its address and port."""

    async def start_service(self, binary: str) -> bool:
        """Returns whether it runs afterwards."""

    async def stop_service(self, binary: str) -> None: ...
    async def journal(self, binary: str) -> list[tuple[float, int, bytes]]:
        """Its output with timestamps and process ids."""


class LinuxMachine:
    def __init__(self, units: Units, engine: NodeRuntime) -> None:
        self.units = units
        self.engine: NodeRuntime | None = engine
        self.core: SimCore = engine.core
        self.runtime = CONTAINERD
        self.processes = LinuxProcesses(self)
        self._containerd_since = self.core.host.boot_time
        self._tasks = TaskSet()

    @property
    def services(self) -> tuple[str, ...]:
        return (CONTAINERD, *self.units.services)

    def path(self, service: str) -> str:
        return "/usr/bin/containerd" if service == CONTAINERD else self.units.usual(service)[0]

    def state(self, service: str) -> UnitState:
        if service != CONTAINERD:
            return self.units.unit_state(service)
        since = max(self._containerd_since, self.core.host.boot_time)
        if self.engine is not None and self.engine.service.running:
            return UnitState("active", since, _CONTAINERD_PID)
        return UnitState("inactive", since)

    async def start(self, service: str) -> bool:
        if service != CONTAINERD:
            return await self.units.start_service(service)
        if self.engine is not None and not self.engine.service.running:
            self.engine.service.start()
            self._containerd_since = self.core.host.time()
        return True

    async def stop(self, service: str) -> None:
        if service != CONTAINERD:
            await self.units.stop_service(service)
        elif self.engine is not None and self.engine.service.running:
            self.engine.service.stop()
            self._containerd_since = self.core.host.time()

    async def journal(self, service: str) -> list[tuple[float, int, bytes]]:
        """A service's output. containerd of a simulated machine prints nothing."""
        return [] if service == CONTAINERD else await self.units.journal(service)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.start(work)


class LinuxProcesses(ProcessIdTable):
    """The machine's own processes and those of its containers, which have other pids inside."""

    __slots__ = ("_machine", "_numbers")

    def __init__(self, machine: LinuxMachine) -> None:
        host = machine.core.host
        init = ProcessEntry(1, 0, "root", ("/sbin/init",), host.boot_time, 12 * _MIB)
        super().__init__(host.time, windows=False, first=init)
        self._next = 4000
        self._machine = machine
        self._numbers: dict[tuple[str, int], int] = {}

    def list(self) -> Sequence[ProcessEntry]:
        machine, rows = self._machine, [*super().list()]
        for service in machine.services:
            found = machine.state(service)
            if found.state == "active":
                argv = (machine.path(service), *found.argv)
                memory = _MEMORY.get(service, 60 * _MIB)
                rows.append(ProcessEntry(found.pid, 1, "root", argv, found.since, memory))
        for sandbox in machine.core.sandboxes.values():
            for container in sandbox.containers if sandbox.state == "ready" else ():
                rows += self.of_container(container.id)
        return sorted(rows)

    def of_container(self, identity: str) -> Sequence[ProcessEntry]:
        core = self._machine.core
        container = core.containers.get(identity)
        if container is None or container.state != "running":
            return ()
        return [
            entry._replace(pid=self._number(identity, entry.pid), parent=1)
            for entry in core.table_of(container).list()
        ]

    def signal(self, pid: int, name: str) -> bool:
        machine, core = self._machine, self._machine.core
        for service in machine.services:
            found = machine.state(service)
            if found.state == "active" and found.pid == pid:
                if name in ("SIGTERM", "SIGKILL", "SIGINT"):
                    machine.spawn(machine.stop(service))
                return True
        for (container, inner), number in self._numbers.items():
            if number == pid and container in core.containers:
                return core.table_of(core.containers[container]).signal(inner, name)
        return super().signal(pid, name)

    def _number(self, container: str, inner: int) -> int:
        key = (container, inner)
        if key not in self._numbers:
            self._numbers[key] = self._take()
        return self._numbers[key]
