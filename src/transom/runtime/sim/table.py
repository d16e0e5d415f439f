"""The processes that see each other: of a container, or of all containers of a pod that shares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from transom.runtime.sim.program_api import ProcessEntry


class Member(Protocol):
    """A program as its process table knows it."""

    pid: int
    argv: tuple[str, ...]
    user: str
    started: float

    @property
    def memory(self) -> int: ...
    def out(self, data: bytes) -> None: ...
    def err(self, data: bytes) -> None: ...
    def signalled(self, name: str) -> None: ...


class _Child:
    """What a program shows as a process of its own."""

    __slots__ = ("argv", "memory", "parent", "pid", "signalled", "started", "user")

    def __init__(self, pid: int, parent: int, argv: tuple[str, ...], started: float, signalled: Callable[[str], None]) -> None:
        self.pid = pid
        self.parent = parent
        self.argv = argv
        self.user = ""
        self.started = started
        self.memory = 0
        self.signalled = signalled


class Table:
    """Pids go up by one on Linux, by four on Windows."""

    __slots__ = ("_children", "_members", "_next", "_now", "_step", "first")

    def __init__(self, now: Callable[[], float], *, windows: bool, first: ProcessEntry | None = None) -> None:
        """`first` is a process that belongs to nobody here: a sandbox's pause."""
        self._now = now
        self._step = 4 if windows else 1
        self._next = 1040 if windows else 1 if first is None else 2
        self._members: dict[int, Member] = {}
        self._children: dict[int, _Child] = {}
        self.first = first

    def enter(self, member: Member) -> int:
        pid = self._take()
        self._members[pid] = member
        return pid

    def leave(self, pid: int) -> None:
        self._members.pop(pid, None)
        for child in [c.pid for c in self._children.values() if c.parent == pid]:
            del self._children[child]

    def _take(self) -> int:
        pid = self._next
        self._next += self._step
        return pid

    # `ProcessTable`

    def list(self) -> Sequence[ProcessEntry]:
        rows = [self.first] if self.first is not None else []
        rows += [ProcessEntry(m.pid, 0, m.user, m.argv, m.started, m.memory) for m in self._members.values()]
        for child in self._children.values():
            owner = self._members.get(child.parent)
            user = owner.user if owner is not None else child.user
            rows.append(ProcessEntry(child.pid, child.parent, user, child.argv, child.started, child.memory))
        return sorted(rows)

    def add(self, argv: Sequence[str], parent: int, signal: Callable[[str], None]) -> int:
        pid = self._take()
        child = self._children[pid] = _Child(pid, parent, tuple(argv), self._now(), signal)
        above = self._members.get(parent) or self._children.get(parent)
        child.user = above.user if above is not None else ""
        return pid

    def remove(self, pid: int) -> None:
        self._children.pop(pid, None)

    def output(self, pid: int, number: int) -> Callable[[bytes], None] | None:
        member = self._members.get(pid)
        if member is None:
            return None
        return member.err if number == 2 else member.out

    def signal(self, pid: int, name: str) -> bool:
        if self.first is not None and pid == self.first.pid:
            return True  # the pause process ignores what comes from inside
        target = self._members.get(pid) or self._children.get(pid)
        if target is None:
            return False
        if not (pid == 1 and name == "SIGKILL"):
            target.signalled(name)
        return True
