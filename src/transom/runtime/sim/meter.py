"""A container's resource usage on its machine, within its limits."""

from __future__ import annotations

from collections.abc import Callable

from transom.machines.machine import MachineAccount
from transom.runtime.api import ContainerConfig, CpuUsage

_STARTUP_SECONDS = 0.03  # processor time for the start of any process
_SAMPLE = 10.0
_BASE_LINUX = {"busybox": 1 << 20, "gnu": 3 << 20, "none": 1 << 20}
_BASE_WINDOWS = {
    "busybox": 14 << 20,
    "none": 1 << 20,
    "nanoserver": 14 << 20,
    "servercore": 38 << 20,
}


def base_memory(windows: bool, userland: str) -> int:
    """A container's memory when its program does not specify it: on Windows including its system
    processes.
    """
    return _BASE_WINDOWS.get(userland, 42 << 20) if windows else _BASE_LINUX.get(userland, 4 << 20)


def cpu_cap(config: ContainerConfig, cpus: int) -> float:
    """The maximum number of cores."""
    if config.linux is not None:
        resources = config.linux.resources
        if resources.cpu_quota > 0 and resources.cpu_period > 0:
            return min(cpus, resources.cpu_quota / resources.cpu_period)
    if config.windows is not None:
        limits = config.windows.resources
        of = limits.cpu_count or cpus
        # the weight takes precedence over the maximum; weights are all the same in practice
        if limits.cpu_shares:
            return min(cpus, of)
        return min(cpus, of * limits.cpu_maximum / 10000 if limits.cpu_maximum else of)
    return cpus


def sim_memory_limit(config: ContainerConfig) -> int:
    """0 for none."""
    if config.linux is not None:
        return config.linux.resources.memory_limit
    return config.windows.resources.memory_limit if config.windows is not None else 0


class ContainerMeter:
    __slots__ = (
        "_account",
        "_base",
        "_cap",
        "_cores",
        "_limit",
        "_memory",
        "_rate",
        "_sampled",
        "_sampled_cpu",
    )

    def __init__(self, account: MachineAccount, cap: float, limit: int, base: int) -> None:
        self._account = account
        self._cap = cap
        self._limit = limit
        self._base = base
        self._cores = 0.0
        self._memory = 0
        self._rate: int | None = None
        self._sampled = -1.0
        self._sampled_cpu = 0.0
        account.use_cpu(_STARTUP_SECONDS)
        account.set_memory(min(base, limit) if limit else base)

    def set_limits(self, cap: float, limit: int) -> None:
        """Changes the limits of a running container. A limit below the usage stops its growth."""
        self._cap, self._limit = cap, limit
        self._account.set_cpu(min(self._cores, cap))

    def change_cores(self, more: float) -> None:
        self._cores = max(0.0, self._cores + more)
        self._account.set_cpu(min(self._cores, self._cap))

    @property
    def speed(self) -> float:
        """A thread's share of each processor that it could keep busy."""
        return min(1.0, self._cap / self._cores) if self._cores > 0 else 1.0

    def change_memory(self, more: int) -> bool:
        """Returns False, without any change, when the limit or the machine prevents it."""
        wanted = self._memory + more
        total = max(wanted, self._base)
        if more > 0 and self._limit and wanted > self._limit:
            return False
        if not self._account.set_memory(min(total, self._limit) if self._limit else total):
            return False
        self._memory = wanted
        return True

    def cpu(self, now: float) -> CpuUsage:
        """The rate since an earlier sample, at least ten seconds old; initially there is none."""
        used = self._account.cpu_seconds()
        if self._sampled < 0:
            self._sampled, self._sampled_cpu = now, used
        elif now - self._sampled >= _SAMPLE:
            self._rate = int((used - self._sampled_cpu) / (now - self._sampled) * 1e9)
            self._sampled, self._sampled_cpu = now, used
        return CpuUsage(int(used * 1e9), self._rate)

    @property
    def cpu_seconds(self) -> float:
        return self._account.cpu_seconds()

    @property
    def system_memory(self) -> int:
        """The part of the working set that belongs to Windows' own processes."""
        return min(self._base * 6 // 10, self._account.working_set)

    @property
    def working_set(self) -> int:
        return self._account.working_set

    @property
    def memory(self) -> int:
        return self._account.memory

    @property
    def paged(self) -> int:
        return self._account.paged

    def close(self) -> None:
        self._account.close()


class ProgramUsage:
    """`Usage` of one program: its part of its container's usage. `out_of_memory` ends it on
    Linux.
    """

    __slots__ = (
        "_cores",
        "_cpu_used",
        "_meter",
        "_now",
        "_out_of_memory",
        "_since",
        "_threads",
        "size",
    )

    def __init__(
        self,
        meter: ContainerMeter,
        out_of_memory: Callable[[], None] | None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._now = now
        self._cpu_used = 0.0
        self._since = now() if now is not None else 0.0
        self._meter = meter
        self._out_of_memory = out_of_memory
        self._cores = 0.0
        self._threads = 0
        self.size = 0

    @property
    def cpu_seconds(self) -> float:
        """The processor time that it got, given the limit and other consumers."""
        if self._now is None:
            return 0.0
        return self._cpu_used + (self._cores + self._threads) * self._meter.speed * (
            self._now() - self._since
        )

    def _count(self) -> None:
        self._cpu_used = self.cpu_seconds
        if self._now is not None:
            self._since = self._now()

    def cpu(self, cores: float) -> None:
        self._count()
        self._meter.change_cores(cores - self._cores)
        self._cores = cores

    def thread(self, begins: bool) -> float:
        self._count()
        if begins or self._threads:  # not those that end after everything was released
            step = 1 if begins else -1
            self._threads += step
            self._meter.change_cores(step)
        return self._meter.speed

    def memory(self, size: int) -> bool:
        before, self.size = self.size, size
        if self._meter.change_memory(size - before):
            return True
        if self._out_of_memory is not None:
            self._out_of_memory()
        self.size = before
        return False

    def give_back(self) -> None:
        self._meter.change_cores(-self._cores - self._threads)
        self._meter.change_memory(-self.size)
        self._cores = 0.0
        self._threads = self.size = 0
