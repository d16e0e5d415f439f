"""The process table of a container, or of all containers of a pod with a shared pid namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from transom.kit.named_tuple import NamedTuple
from transom.userland.api import ProcessEntry


class SystemProcess(NamedTuple):
    """A process that every Windows container has. `weight`: its share of the system's usage.
    `parent`: the position of the process that started it; -1: the kernel.
    """

    pid: int
    name: str
    user: str
    weight: int
    parent: int


KERNEL_PROCESS: Final = 4  # "System"
_SMSS, _WININIT, _SERVICES = 0, 2, 3
WINDOWS_PROCESSES: Final = (
    SystemProcess(872, "smss.exe", "SYSTEM", 2, -1),
    SystemProcess(908, "csrss.exe", "SYSTEM", 9, _SMSS),
    SystemProcess(944, "wininit.exe", "SYSTEM", 11, _SMSS),
    SystemProcess(980, "services.exe", "SYSTEM", 13, _WININIT),
    SystemProcess(996, "lsass.exe", "SYSTEM", 22, _WININIT),
    SystemProcess(1004, "svchost.exe", "SYSTEM", 14, _SERVICES),
    SystemProcess(1012, "svchost.exe", "NETWORK SERVICE", 12, _SERVICES),
    SystemProcess(1020, "svchost.exe", "LOCAL SERVICE", 10, _SERVICES),
    SystemProcess(1028, "CExecSvc.exe", "SYSTEM", 7, _SERVICES),
)
SERVICES_PROCESS: Final = 980
_SYSTEM_CPU: Final = 0.03  # seconds of each, since the start
_SMALLEST: Final = 1 << 20  # memory of a process that does not specify it


class ProcessTableUsage(NamedTuple):
    """Totals of all processes of a table: bytes of memory, the system's part of them, seconds of
    processor time.
    """

    working_set: int
    system: int
    cpu: float


class TableProcess(Protocol):
    """A program as its process table knows it."""

    pid: int
    argv: tuple[str, ...]
    user: str
    started: float

    @property
    def memory(self) -> int: ...
    @property
    def own_memory(self) -> int:
        """Bytes that it allocated itself."""

    @property
    def cpu(self) -> float: ...
    def out(self, data: bytes) -> None: ...
    def err(self, data: bytes) -> None: ...
    def signalled(self, name: str) -> None: ...


class _Child:
    """What a program shows as a process of its own."""

    __slots__ = ("argv", "memory", "parent", "pid", "signalled", "started", "system", "user")

    def __init__(
        self,
        pid: int,
        parent: int,
        argv: tuple[str, ...],
        started: float,
        signalled: Callable[[str], None],
    ) -> None:
        self.pid = pid
        self.parent = parent
        self.argv = argv
        self.user = ""
        self.started = started
        self.memory = 0
        self.system = False  # of Windows itself: it cannot be terminated
        self.signalled = signalled


FIRST_WINDOWS_PID: Final = 1040


class ProcessIdTable:
    """Pids increase by one on Linux, by four on Windows."""

    __slots__ = (
        "_children",
        "_members",
        "_next",
        "_now",
        "_pids",
        "_started",
        "_step",
        "_system_base",
        "_use",
        "first",
    )

    def __init__(
        self,
        now: Callable[[], float],
        *,
        windows: bool,
        first: ProcessEntry | None = None,
        use: Callable[[], ProcessTableUsage] | None = None,
        pids: Iterator[int] | None = None,
    ) -> None:
        """`first` is an external process: a sandbox's pause. `use` returns the total usage of a
        Windows container's processes; with it, the table includes the system's own processes.
        `pids`: the machine's pids, which containers that share its kernel use too; without them the
        table has its own.
        """
        self._use = use
        self._pids = pids
        self._system_base = 0
        self._started = now()
        self._now = now
        self._step = 4 if windows else 1
        self._next = FIRST_WINDOWS_PID if windows else 1 if first is None else 2
        self._members: dict[int, TableProcess] = {}
        self._children: dict[int, _Child] = {}
        self.first = first

    def enter(self, member: TableProcess) -> int:
        pid = self._take()
        self._members[pid] = member
        return pid

    def leave(self, pid: int) -> None:
        self._members.pop(pid, None)
        for child in [c.pid for c in self._children.values() if c.parent == pid]:
            del self._children[child]

    def _take(self) -> int:
        if self._pids is not None:
            return next(self._pids)
        pid = self._next
        self._next += self._step
        return pid

    # `ProcessTable`

    def list(self) -> Sequence[ProcessEntry]:
        if self._use is not None:
            return self._with_system(self._use())
        rows = [self.first] if self.first is not None else []
        rows += [
            ProcessEntry(m.pid, 0, m.user, m.argv, m.started, m.memory, cpu=m.cpu)
            for m in self._members.values()
        ]
        for child in self._children.values():
            owner = self._members.get(child.parent)
            user = owner.user if owner is not None else child.user
            rows.append(
                ProcessEntry(
                    child.pid,
                    child.parent,
                    user,
                    child.argv,
                    child.started,
                    child.memory,
                    system=child.system,
                )
            )
        return sorted(rows)

    def system_pids(self) -> Sequence[int]:
        """Pids of the system's processes, in order: the machine's when it shares its pids."""
        if self._pids is None:
            return [row.pid for row in WINDOWS_PROCESSES]
        if not self._system_base:  # on first access
            numbers = [next(self._pids) for _ in WINDOWS_PROCESSES]
            self._system_base = numbers[0]
        return range(self._system_base, self._system_base + 4 * len(WINDOWS_PROCESSES), 4)

    def _with_system(self, use: ProcessTableUsage) -> Sequence[ProcessEntry]:
        """In total they use exactly what the container uses; its first process accounts for the
        remainder.
        """
        weights = sum(row.weight for row in WINDOWS_PROCESSES)
        numbers = self.system_pids()
        agent = numbers[-1]
        rows = [
            ProcessEntry(
                pid,
                KERNEL_PROCESS if row.parent < 0 else numbers[row.parent],
                row.user,
                (row.name,),
                self._started,
                use.system * row.weight // weights,
                40 + row.weight * 25,
                _SYSTEM_CPU,
                True,
            )
            for pid, row in zip(numbers, WINDOWS_PROCESSES, strict=True)
        ]
        first = min(self._members, default=0)
        for member in self._members.values():
            size = max(member.own_memory, _SMALLEST * 2)
            rows.append(
                ProcessEntry(
                    member.pid,
                    agent,
                    member.user,
                    member.argv,
                    member.started,
                    size,
                    90 + (size >> 18),
                    member.cpu,
                )
            )
        for child in self._children.values():
            owner = self._members.get(child.parent)
            user = owner.user if owner is not None else child.user
            size = child.memory or _SMALLEST
            rows.append(
                ProcessEntry(
                    child.pid, child.parent, user, child.argv, child.started, size, 70, 0.02
                )
            )
        together = sum(row.memory for row in rows)
        if together > use.working_set:
            rows = [row._replace(memory=row.memory * use.working_set // together) for row in rows]
            together = sum(row.memory for row in rows)
        used = sum(row.cpu for row in rows if row.pid != first)
        return sorted(
            row._replace(
                memory=row.memory + use.working_set - together, cpu=max(row.cpu, use.cpu - used)
            )
            if row.pid == first
            else row
            for row in rows
        )

    def add(self, argv: Sequence[str], parent: int, signal: Callable[[str], None]) -> int:
        above = self._members.get(parent) or self._children.get(parent)
        return self._add_child(argv, parent, signal, above.user if above is not None else "").pid

    def add_system(
        self, argv: Sequence[str], parent: int, user: str, signal: Callable[[str], None] | None
    ) -> int:
        """A process of Windows itself. Without `signal` it cannot be terminated."""
        child = self._add_child(argv, parent, signal or _ignore, user)
        child.system = signal is None
        return child.pid

    def add_numbered(
        self, pid: int, argv: Sequence[str], parent: int, signal: Callable[[str], None]
    ) -> None:
        """A process whose pid is decided elsewhere. It runs as its parent's user."""
        above = self._children.get(parent)
        self._add_child(argv, parent, signal, above.user if above is not None else "", pid)

    def _add_child(
        self,
        argv: Sequence[str],
        parent: int,
        signal: Callable[[str], None],
        user: str,
        pid: int = 0,
    ) -> _Child:
        pid = pid or self._take()
        child = self._children[pid] = _Child(pid, parent, tuple(argv), self._now(), signal)
        child.user = user
        return child

    def remove(self, pid: int) -> None:
        self._children.pop(pid, None)

    def output(self, pid: int, number: int) -> Callable[[bytes], None] | None:
        member = self._members.get(pid)
        if member is None:
            return None
        return member.err if number == 2 else member.out

    def signal(self, pid: int, name: str) -> bool:
        if self.first is not None and pid == self.first.pid:
            return True  # the pause process ignores signals from inside
        target = self._members.get(pid) or self._children.get(pid)
        if target is None:
            return self._use is not None and pid in self.system_pids()
        if not (pid == 1 and name == "SIGKILL"):
            target.signalled(name)
        return True


def _ignore(_signal: str) -> None:
    """It cannot be terminated."""
