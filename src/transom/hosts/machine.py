"""A machine whatever its operating system: time, processors, the room on its disk, and what can go wrong with them.

Whoever runs something on it opens an `Account` and says how much it uses from now on; sums over time are computed when
somebody asks, so an idle machine costs nothing. Memory is the operating system's business: see its own module.
"""

from __future__ import annotations

import hashlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from transom.hosts.api import Disk, Hardware
from transom.hosts.container_files import LayeredFiles
from transom.hosts.files import FileTree
from transom.hosts.nodes import Node, Space
from transom.hosts.styles import Style
from transom.kit.clock import Clock, Timer


class HostClock:
    """A machine's clock: the true one with the error that was given to it. Timers do not care."""

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


class Account:
    """What one consumer (a container, the system) uses of a machine."""

    __slots__ = ("_cores", "_cpu", "_host", "_since", "killed", "memory", "name", "oom_score_adj")

    def __init__(self, host: Machine, name: str, oom_score_adj: int, killed: Callable[[], None] | None) -> None:
        self._host = host
        self._cores = 0.0
        self._cpu = 0.0
        self._since = 0.0
        self.name = name
        self.memory = 0  # bytes that it wants
        self.oom_score_adj = oom_score_adj
        self.killed = killed

    @property
    def cores(self) -> float:
        """Processors that it wants."""
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
        """Uses so many processors from now on, or its part of them if all together want more than there are."""
        host = self._host
        if self not in host.accounts:
            return
        now = host.shared_time()
        self._cpu += self._cores * (now - self._since)
        self._since = now
        wanted = cores - self._cores
        self._cores = cores
        host.add_cores(wanted)

    def burn(self, seconds: float) -> None:
        """So much processor time is used at once, beside the above."""
        self._cpu += seconds

    def set_memory(self, size: int) -> bool:
        """Wants so many bytes from now on. False, and nothing has changed, if the system does not give them."""
        return self._host.resize(self, size)

    def close(self) -> None:
        """It has ended and uses nothing."""
        self.set_cpu(0.0)
        self._host.forget(self)

    def end(self) -> None:
        """The machine has gone down under it."""
        self._cores = 0.0
        self.memory = 0


class Machine(ABC):
    """The part of `Host` that Linux and Windows machines have in common. `seed` makes another identity of the same name."""

    __slots__ = (
        "_boot",
        "_closed_cpu",
        "_cores",
        "_filler",
        "_on_reboot",
        "_shared",
        "_shared_at",
        "accounts",
        "clock",
        "committed",
        "files",
        "hardware",
        "name",
        "seed",
        "space",
        "system",
    )

    style: Style
    inode_size = 0  # bytes of disk for each inode; 0: not counted
    system_memory = 0
    system_cores = 0.0

    def __init__(self, name: str, clock: Clock, hardware: Hardware | None, seed: str, root: Node) -> None:
        self.name = name
        self.seed = seed
        self.hardware = hardware or Hardware()
        self.clock = HostClock(clock)
        self.space = Space(self.hardware.disk, self.hardware.disk // self.inode_size if self.inode_size else 0)
        self.space.take(self.hardware.disk_used, self.hardware.disk_used // 65536 if self.inode_size else 0)
        self.files = FileTree(self.style, root, self.space, self.clock.time)
        self._filler = 0
        self._on_reboot: list[Callable[[], None]] = []
        self.accounts: dict[Account, None] = {}
        self._start()

    def _start(self) -> None:
        self._boot = self.clock.monotonic()
        self._cores = 0.0
        self._closed_cpu = 0.0
        self._shared = 0.0  # seconds since boot, each counted by the part of its wish that every consumer got
        self._shared_at = self._boot
        self.committed = 0  # bytes that all together want
        for account in self.accounts:
            account.end()
        self.accounts.clear()
        self.system = self.account("system", oom_score_adj=-1000)
        self.system.set_memory(self.system_memory)
        self.system.set_cpu(self.system_cores)

    # Time

    def time(self) -> float:
        return self.clock.time()

    @property
    def boot_time(self) -> float:
        return self.clock.time() - (self.clock.monotonic() - self._boot)

    def jump(self, seconds: float) -> None:
        """A fault: somebody sets the clock."""
        self.clock.offset += seconds

    # Consumers

    def account(self, name: str, oom_score_adj: int = 0, killed: Callable[[], None] | None = None) -> Account:
        """`killed` is called when the system ends this consumer for want of memory; its account is closed then."""
        account = Account(self, name, oom_score_adj, killed)
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
        self._cores = max(0.0, self._cores + cores)

    def forget(self, account: Account) -> None:
        if account in self.accounts:
            del self.accounts[account]
            self._closed_cpu += account.cpu_seconds()
            self.committed -= account.memory
            account.memory = 0

    def cpu_seconds(self) -> float:
        return self._closed_cpu + sum(account.cpu_seconds() for account in self.accounts)

    @abstractmethod
    def resize(self, account: Account, size: int) -> bool: ...

    @abstractmethod
    def resident(self, size: int) -> int:
        """How many bytes are in physical memory of somebody who wants so many."""

    def fill_memory(self, size: int) -> bool:
        """A fault: the system itself wants so many bytes more than usual; 0 for an end. False if it does not get them."""
        return self.system.set_memory(self.system_memory + size)

    def slowdown(self) -> float:
        """How many times longer everything takes, because of memory."""
        return 1.0

    # The disk

    def container_files(self, image: Node, *, read_only: bool = False) -> LayeredFiles:
        """A new container's files on this machine; `image` is frozen."""
        return LayeredFiles(self.style, image, self.files, self.space, self.clock.time, read_only=read_only)

    def disk(self) -> Disk:
        space = self.space
        return Disk(space.capacity, space.used, space.inodes, space.inodes_used)

    def fill_disk(self, size: int | None = None) -> None:
        """A fault: so many bytes are taken by something else, as far as they fit; None for all that is left, 0 for an end."""
        self.space.take(-self._filler)
        left = max(0, self.space.capacity - self.space.used)
        self._filler = left if size is None else min(size, left)
        self.space.take(self._filler)

    # Power

    def on_reboot(self, function: Callable[[], None]) -> None:
        self._on_reboot.append(function)

    def reboot(self) -> None:
        self.files.drop_memory()
        self._start()
        for function in self._on_reboot:
            function()

    # Identity

    def digest(self, what: str) -> bytes:
        """Sixteen bytes that are always the same for a machine's name."""
        return hashlib.blake2b(f"{self.seed}/{self.name}/{what}".encode(), digest_size=16).digest()

    def uuid(self, what: str) -> str:
        return str(uuid.UUID(bytes=self.digest(what), version=4))
