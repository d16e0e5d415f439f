"""Sets of CPUs in Linux' notation, and the topology of a machine's CPUs.

Every NUMA node is a socket with the same number of cores. As Linux numbers them, the first threads
of all cores come before the second ones: with 4 cores of two threads, 0 and 4 share a core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import TYPE_CHECKING

from transom.kit.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from transom.machines.api import Hardware

CpuSet = frozenset[int]


class NotEnoughCpus(Exception):
    """The text is the CPU manager's."""


def format_cpuset(cpus: Iterable[int]) -> str:
    """`0-2,5`."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in parts)


def parse_cpuset(text: str) -> CpuSet:
    """Raises ValueError with the text of Kubernetes."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        low, dash, high = part.partition("-")
        first = _number(low)
        last = _number(high) if dash else first
        if last < first:
            raise ValueError(f'invalid range "{part}" ({first} > {last})')
        found.update(range(first, last + 1))
    return frozenset(found)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f'strconv.Atoi: parsing "{text}": invalid syntax')
    return int(text)


@dataclass(frozen=True, slots=True)
class CpuTopology:
    cpus: int
    threads_per_core: int = 1
    numa_nodes: int = 1

    @property
    def all(self) -> CpuSet:
        return frozenset(range(self.cpus))

    @property
    def cores(self) -> int:
        return self.cpus // self.threads_per_core

    def core_of(self, cpu: int) -> int:
        return cpu % self.cores

    def numa_node_of(self, cpu: int) -> int:
        return self.core_of(cpu) // (self.cores // self.numa_nodes)

    def in_numa_nodes(self, nodes: Iterable[int], cpus: CpuSet) -> CpuSet:
        wanted = frozenset(nodes)
        return frozenset(cpu for cpu in cpus if self.numa_node_of(cpu) in wanted)

    def in_cores(self, cores: Iterable[int]) -> CpuSet:
        wanted = frozenset(cores)
        return frozenset(cpu for cpu in self.all if self.core_of(cpu) in wanted)

    # ---- CPU allocation ----

    def take_packed(
        self, available: CpuSet, count: int, *, spread: bool = False, one_cache: bool = False
    ) -> CpuSet:
        """Whole NUMA nodes first, then whole cores, then threads of cores that are in use.
        `spread`: no whole cores. `one_cache`: from one NUMA node where that is possible. Raises
        NotEnoughCpus.
        """
        _check(available, count)
        left, taken = set(available), set[int]()
        whole = self.cpus // self.numa_nodes
        for node in _by_free(left, self.numa_node_of):
            of_node = self.in_numa_nodes((node,), frozenset(left))
            if len(of_node) == whole and count - len(taken) >= whole:
                taken |= of_node
                left -= of_node
        if one_cache:
            for node in _by_free(left, self.numa_node_of):
                of_node = self.in_numa_nodes((node,), frozenset(left))
                if len(of_node) >= count - len(taken):
                    left = set(of_node)
                    break
        if not spread:
            for core in self._cores(left):
                of_core = {cpu for cpu in left if self.core_of(cpu) == core}
                full = len(of_core) == self.threads_per_core
                if full and count - len(taken) >= self.threads_per_core:
                    taken |= of_core
                    left -= of_core
        taken.update(self._threads(left, spread=spread)[: count - len(taken)])
        return frozenset(taken)

    def take_distributed(self, available: CpuSet, count: int, group: int) -> CpuSet:
        """The same number from each of as few NUMA nodes as possible; packed where that is not
        possible. `group` CPUs stay together. Raises NotEnoughCpus.
        """
        _check(available, count)
        nodes = sorted({self.numa_node_of(cpu) for cpu in available})
        free = {node: self.in_numa_nodes((node,), available) for node in nodes}
        for size in range(1, len(nodes) + 1):
            if count % (size * group):
                continue
            each = count // size
            fitting = [
                chosen
                for chosen in combinations(nodes, size)
                if all(len(free[node]) >= each for node in chosen)
            ]
            if fitting:
                best = min(fitting, key=lambda chosen: self._imbalance(free, chosen, each))
                return frozenset().union(*(self.take_packed(free[n], each) for n in best))
        return self.take_packed(available, count)

    @staticmethod
    def _imbalance(free: dict[int, CpuSet], chosen: Iterable[int], each: int) -> float:
        """The variance of the number of free CPUs of each NUMA node."""
        taken = frozenset(chosen)
        left = [len(cpus) - each * (node in taken) for node, cpus in free.items()]
        mean = sum(left) / len(left)
        return sum((count - mean) ** 2 for count in left)

    def _cores(self, cpus: Iterable[int]) -> list[int]:
        free = frozenset(cpus)
        return [
            core
            for node in _by_free(free, self.numa_node_of)
            for core in _by_free(self.in_numa_nodes((node,), free), self.core_of)
        ]

    def _threads(self, cpus: Iterable[int], *, spread: bool) -> list[int]:
        """One core after the other, or the first free thread of each core before the second."""
        free = frozenset(cpus)
        cores = [sorted(c for c in free if self.core_of(c) == core) for core in self._cores(free)]
        if not spread:
            return [cpu for threads in cores for cpu in threads]
        rounds = range(self.threads_per_core)
        return [threads[n] for n in rounds for threads in cores if n < len(threads)]


def machine_topology(hardware: Hardware) -> CpuTopology:
    return CpuTopology(hardware.cpus, hardware.threads_per_core, hardware.numa_nodes)


def _check(available: CpuSet, count: int) -> None:
    if count > len(available):
        raise NotEnoughCpus(
            "not enough cpus available to satisfy request: "
            f"requested={count}, available={len(available)}"
        )


def _by_free(cpus: Iterable[int], part_of: Callable[[int], int]) -> list[int]:
    """The parts with the fewest free CPUs come first."""
    counts = Counter(part_of(cpu) for cpu in cpus)
    return sorted(counts, key=lambda part: (counts[part], part))
