"""A machine of any operating system: time, processors, disk space, and their faults.

Each consumer opens a `MachineAccount` and sets its current usage; totals over time are computed on
access, so an idle machine costs nothing. Memory depends on the operating system: see its own
module.
"""

from __future__ import annotations

import hashlib
import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final

from transom.kit.clock import Clock, Timer
from transom.machines.api import DiskSpace, Hardware
from transom.machines.container_files import LayeredFiles
from transom.machines.files import FileTree
from transom.machines.inodes import DiskQuota, Inode
from transom.machines.power import PowerSwitch
from transom.machines.saving import Document, SavedContents
from transom.machines.styles import PathStyle

_LOAD_MINUTES: Final = (1, 5, 15)


class HostClock:
    """A machine's clock: the true time plus an injected error. Timers are not affected."""

    __slots__ = ("_clock", "offset")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset = 0.0

    def time(self) -> float:
        return self._clock.time() + self.offset

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def call_later(self, seconds: float, function: Callable[..., object], *args: Any) -> Timer:
        return self._clock.call_later(seconds, function, *args)


class MachineAccount:
    """The usage of one consumer (a container, the system) on a machine."""

    __slots__ = ("_cores", "_cpu", "_host", "_since", "killed", "memory", "name", "oom_score_adj")

    def __init__(
        self, host: BaseHost, name: str, oom_score_adj: int, killed: Callable[[], None] | None
    ) -> None:
        self._host = host
        self._cores = 0.0
        self._cpu = 0.0
        self._since = 0.0
        self.name = name
        self.memory = 0  # requested bytes
        self.oom_score_adj = oom_score_adj
        self.killed = killed

    @property
    def cores(self) -> float:
        """Requested processors."""
        return self._cores

    @property
    def working_set(self) -> int:
        """Bytes in physical memory."""
        return self._host.resident(self.memory)

    @property
    def paged(self) -> int:
        """Bytes in the page file."""
        return self.memory - self._host.resident(self.memory)

    def cpu_seconds(self) -> float:
        return self._cpu + self._cores * (self._host.shared_time() - self._since)

    def set_cpu(self, cores: float) -> None:
        """Uses this many processors from now on, or its share of them under contention."""
        host = self._host
        if self not in host.accounts:
            return
        now = host.shared_time()
        self._cpu += self._cores * (now - self._since)
        self._since = now
        wanted = cores - self._cores
        self._cores = cores
        host.add_cores(wanted)

    def use_cpu(self, seconds: float) -> None:
        """Uses additional processor time at once."""
        self._cpu += seconds

    def set_memory(self, size: int) -> bool:
        """Requests this many bytes from now on. Returns False, without any change, if the system
        refuses.
        """
        return self._host.resize(self, size)

    def close(self) -> None:
        """It has ended and uses nothing."""
        self.set_cpu(0.0)
        self._host.forget(self)

    def end(self) -> None:
        """The machine has gone down."""
        self._cores = 0.0
        self.memory = 0


class LoadAverages:
    """The requested processors, averaged over 1, 5 and 15 minutes as the Linux kernel does it."""

    __slots__ = ("_averages", "_since")

    def __init__(self, now: float) -> None:
        self._since = now
        self._averages = [0.0] * len(_LOAD_MINUTES)

    def update(self, now: float, cores: float) -> None:
        """`cores` were requested until now."""
        self._averages = self.read(now, cores)
        self._since = now

    def read(self, now: float, cores: float) -> list[float]:
        passed = now - self._since
        decays = [math.exp(-passed / (60 * minutes)) for minutes in _LOAD_MINUTES]
        return [
            before * decay + cores * (1 - decay)
            for before, decay in zip(self._averages, decays, strict=True)
        ]


class BaseHost(ABC):
    """The common part of Linux and Windows machines. `seed` gives a different identity for the same
    name.
    """

    __slots__ = (
        "_boot",
        "_closed_cpu",
        "_cores",
        "_filler",
        "_installed",
        "_load",
        "_on_reboot",
        "_shared",
        "_shared_at",
        "accounts",
        "changed",
        "clock",
        "committed",
        "files",
        "hardware",
        "name",
        "power",
        "seed",
        "space",
        "system",
    )

    layer_size: ClassVar[int] = 0  # of the disk that containers see, 0 for the machine's

    style: PathStyle
    inode_size = 0  # bytes of disk per inode; 0: not counted
    system_memory = 0
    system_cores = 0.0

    def __init__(
        self, name: str, clock: Clock, hardware: Hardware | None, seed: str, root: Inode
    ) -> None:
        self.name = name
        self.seed = seed
        self.hardware = hardware or Hardware()
        self.clock = HostClock(clock)
        self.power = PowerSwitch(self.clock)
        self.space = DiskQuota(
            self.hardware.disk, self.hardware.disk // self.inode_size if self.inode_size else 0
        )
        self.space.install(
            self.hardware.disk_used, self.hardware.disk_used // 65536 if self.inode_size else 0
        )
        self.changed = True  # since it was last saved
        self._installed = root
        self.files = FileTree(self.style, root, self.space, self._write_time)
        self._filler = 0
        self._on_reboot: list[Callable[[], None]] = []
        self.accounts: dict[MachineAccount, None] = {}
        self._start()

    def _start(self) -> None:
        self._boot = self.clock.monotonic()
        self._load = LoadAverages(self._boot)
        self._cores = 0.0
        self._closed_cpu = 0.0
        self._shared = (
            0.0  # seconds since boot, weighted by the granted share of the requested processors
        )
        self._shared_at = self._boot
        self.committed = 0  # bytes requested in total
        for account in self.accounts:
            account.end()
        self.accounts.clear()
        self.system = self.account("system", oom_score_adj=-1000)
        self.system.set_memory(self.system_memory)
        self.system.set_cpu(self.system_cores)

    def _write_time(self) -> float:
        """The timestamp for a change to a file."""
        self.changed = True
        return self.clock.time()

    # Time

    def time(self) -> float:
        return self.clock.time()

    @property
    def boot_time(self) -> float:
        return self.clock.time() - (self.clock.monotonic() - self._boot)

    def jump(self, seconds: float) -> None:
        """A fault: sets the clock."""
        self.clock.offset += seconds

    # Consumers

    def account(
        self, name: str, oom_score_adj: int = 0, killed: Callable[[], None] | None = None
    ) -> MachineAccount:
        """`killed` is called when the system kills this consumer because memory is used up; its
        account is closed then.
        """
        account = MachineAccount(self, name, oom_score_adj, killed)
        account._since = self.shared_time()
        self.accounts[account] = None
        return account

    def shared_time(self) -> float:
        return self._shared + (self.clock.monotonic() - self._shared_at) * self._share()

    def _share(self) -> float:
        return min(1.0, self.hardware.cpus / self._cores) if self._cores > 0 else 1.0

    def add_cores(self, cores: float) -> None:
        self._shared = self.shared_time()
        self._shared_at = self.clock.monotonic()
        self._load.update(self._shared_at, self._cores)
        self._cores = max(0.0, self._cores + cores)

    def load_averages(self) -> list[float]:
        """Over 1, 5 and 15 minutes."""
        return self._load.read(self.clock.monotonic(), self._cores)

    def forget(self, account: MachineAccount) -> None:
        if account in self.accounts:
            del self.accounts[account]
            self._closed_cpu += account.cpu_seconds()
            self.committed -= account.memory
            account.memory = 0

    def cpu_seconds(self) -> float:
        return self._closed_cpu + sum(account.cpu_seconds() for account in self.accounts)

    @abstractmethod
    def resize(self, account: MachineAccount, size: int) -> bool: ...

    @abstractmethod
    def resident(self, size: int) -> int:
        """Bytes in physical memory for a process that requests this many."""

    def fill_memory(self, size: int) -> bool:
        """A fault: the system itself requests this many additional bytes; 0 ends it. Returns False
        if it does not get them.
        """
        return self.system.set_memory(self.system_memory + size)

    def slowdown(self) -> float:
        """The slowdown factor caused by memory pressure."""
        return 1.0

    # The disk

    def container_files(self, image: Inode, *, read_only: bool = False) -> LayeredFiles:
        """A new container's files on this machine; `image` is frozen."""
        return LayeredFiles(
            self.style,
            image,
            self.files,
            self.space,
            self._write_time,
            read_only=read_only,
            virtual_size=self.layer_size,
        )

    def disk(self) -> DiskSpace:
        space = self.space
        return DiskSpace(space.capacity, space.used, space.inodes, space.inodes_used)

    def fill_disk(self, size: int | None = None) -> None:
        """A fault: something else uses this many bytes, as far as they fit; None for all that is
        left, 0 ends it.
        """
        self.space.take(-self._filler)
        left = max(0, self.space.capacity - self.space.used)
        self._filler = left if size is None else min(size, left)
        self.space.take(self._filler)

    # Power

    def on_reboot(self, function: Callable[[], None]) -> None:
        self._on_reboot.append(function)

    def reboot(self) -> None:
        self.power.cancel()
        self.files.drop_memory()
        self._start()
        for function in self._on_reboot:
            function()

    # Persistence

    def has_changed(self) -> bool:
        """Whether there are unsaved changes."""
        return self.changed

    def save(self, contents: SavedContents) -> Document:
        """The content of the machine's disk. Marks it as saved."""
        self.changed = False
        return {"files": self.files.save(self._installed, contents), "filler": self._filler}

    def restore(self, saved: Document, contents: SavedContents) -> None:
        """Starts the machine with a saved disk. Raises DamagedState before anything has changed."""
        self.files.restore(saved["files"], self._installed, contents)
        self.fill_disk(saved["filler"])
        self.reboot()

    # Identity

    def digest(self, what: str) -> bytes:
        """Sixteen bytes, always the same for a machine's name."""
        return hashlib.blake2b(f"{self.seed}/{self.name}/{what}".encode(), digest_size=16).digest()

    def uuid(self, what: str) -> str:
        return str(uuid.UUID(bytes=self.digest(what), version=4))
