"""The processes of a Windows machine: its own, and those of its process-isolated containers, which
share its kernel.

A container's process has the same pid inside and outside. Hyper-V isolated containers have their
own kernel: of those the machine sees only the worker process of their virtual machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from transom.runtime.sim.core import SimCore
from transom.runtime.sim.records import SimContainer, SimSandbox
from transom.runtime.sim.table import ProcessIdTable
from transom.userland.api import ProcessEntry

PAUSE: Final = r"C:\pause.exe"
WORKER: Final = r"C:\Windows\System32\vmwp.exe"
_MIB: Final = 1 << 20
_HANDLES: Final = 40
_HANDLES_BY_WEIGHT: Final = 6
_WEIGHTS: Final = {
    "dockerd.exe": 80,
    "containerd.exe": 60,
    "kubelet.exe": 70,
    "kube-proxy.exe": 40,
    "flanneld.exe": 30,
    "lsass.exe": 10,
    "msmpeng.exe": 60,
    "nssm.exe": 5,
    "smss.exe": 2,
}


def _weight(entry: ProcessEntry) -> int:
    """A process's share of the machine's memory."""
    return _WEIGHTS.get(entry.argv[0].rpartition("\\")[2].lower(), 10)


class MachineProcesses(ProcessIdTable):
    __slots__ = ("_core", "_mapped", "_sessions")

    def __init__(self, now: Callable[[], float], core: SimCore | None) -> None:
        super().__init__(now, windows=True, pids=core.pids if core is not None else None)
        self._core = core
        self._mapped: dict[tuple[str, int], int] = {}
        self._sessions: dict[str, int] = {}

    def of_machine(self) -> Sequence[ProcessEntry]:
        """In total they use the memory and processor time that the machine itself uses, outside of
        containers.
        """
        rows = super().list()
        if self._core is None:
            return rows
        silent = [row for row in rows if not row.memory]
        now, used = self._now(), self._core.host.system
        shares = {row.pid: _weight(row) * max(1.0, now - row.started) for row in silent}
        memory = used.working_set / max(1, sum(map(_weight, silent)))
        cpu = used.cpu_seconds() / max(1.0, sum(shares.values()))
        return [
            row
            if row.memory
            else row._replace(
                memory=int(memory * _weight(row)),
                handles=_HANDLES + _weight(row) * _HANDLES_BY_WEIGHT,
                cpu=cpu * shares[row.pid],
            )
            for row in rows
        ]

    def list(self) -> Sequence[ProcessEntry]:
        rows = [*self.of_machine(), *(entry for _, _, entry in self._in_containers())]
        return sorted(rows, key=lambda entry: entry.pid)

    def of_container(self, identity: str) -> Sequence[ProcessEntry]:
        """The processes of a container, or of the pause container of a sandbox, by its id."""
        return [entry for owner, _, entry in self._in_containers() if owner == identity]

    def sessions(self) -> dict[int, int]:
        """By process, for those that are not in session 0: each container has its own session."""
        return {
            entry.pid: self._sessions.setdefault(owner, len(self._sessions) + 2)
            for owner, _, entry in self._in_containers()
        }

    def signal(self, pid: int, name: str) -> bool:
        for owner, inner, entry in self._in_containers():
            if entry.pid == pid:
                container = self._core.containers.get(owner) if self._core is not None else None
                return container is None or self._table(container).signal(inner, name)
        return super().signal(pid, name)

    def _table(self, container: SimContainer) -> ProcessIdTable:
        assert self._core is not None
        return self._core.table_of(container)

    def _in_containers(self) -> Iterator[tuple[str, int, ProcessEntry]]:
        """The id of the compute system, the pid inside, and what the machine shows."""
        core = self._core
        if core is None:
            return
        for sandbox in core.sandboxes.values():
            if sandbox.state != "ready":
                continue
            if sandbox.isolation.hyperv:
                yield (
                    sandbox.id,
                    0,
                    self._sandbox_process(
                        sandbox, (WORKER, sandbox.id), "NT VIRTUAL MACHINE", 60 * _MIB
                    ),
                )
                continue
            if core.docker:
                yield (
                    sandbox.id,
                    0,
                    self._sandbox_process(sandbox, (PAUSE,), "ContainerAdministrator", 2 * _MIB),
                )
            for container in sandbox.containers:
                if container.state == "running":
                    for entry in self._table(container).list():
                        yield container.id, entry.pid, entry

    def _sandbox_process(
        self, sandbox: SimSandbox, argv: tuple[str, ...], user: str, memory: int
    ) -> ProcessEntry:
        return ProcessEntry(self._number(sandbox.id, 0), 0, user, argv, sandbox.created, memory)

    def _number(self, owner: str, inner: int) -> int:
        found = self._mapped.get((owner, inner))
        if found is None:
            found = self._mapped[owner, inner] = self._take()
        return found
