"""The CPU manager: which CPUs each container may use.

With the static policy, containers of Guaranteed pods that request whole CPUs get them exclusively;
all others share the rest. The assignments survive a restart of the kubelet in its state file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from transom.kubelet.cm.checkpoint import (
    CpuEntries,
    cpu_manager_checkpoint,
    read_cpu_manager_checkpoint,
)
from transom.kubelet.cm.hints import NumaMask, TopologyHint, numa_masks
from transom.kubelet.cm.settings import StaticPolicyOptions
from transom.machinery.objects import Object
from transom.machinery.podutil import persisted_qos_class
from transom.machinery.quantity import parse_quantity
from transom.machines.api import Files
from transom.machines.cpus import CpuSet, CpuTopology, format_cpuset, parse_cpuset
from transom.machines.smallfiles import read_small_file

NO_CPUS: Final[CpuSet] = frozenset()


class AdmissionError(Exception):
    """The pod cannot be admitted; `reason` is that of its status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class CpuManagerState:
    """The shared CPUs and the exclusive ones by pod and container, saved after every change."""

    __slots__ = ("_files", "_path", "_policy", "assignments", "default")

    def __init__(self, files: Files, path: str, policy: str) -> None:
        """Raises ValueError when the file cannot be used with this policy."""
        self._files, self._path, self._policy = files, path, policy
        self.default: CpuSet = NO_CPUS
        self.assignments: dict[str, dict[str, CpuSet]] = {}
        if files.exists(path):
            self._restore()
        else:
            self.save()

    def _restore(self) -> None:
        try:
            data = read_small_file(self._files, self._path)
            default, entries = read_cpu_manager_checkpoint(data, self._policy)
            self.default = parse_cpuset(default)
            self.assignments = {
                uid: {name: parse_cpuset(cpus) for name, cpus in found.items()}
                for uid, found in entries.items()
            }
        except (OSError, ValueError) as problem:
            raise ValueError(
                f"could not restore state from checkpoint: {problem}, please drain this node and "
                f'delete the CPU manager checkpoint file "{self._path}" before restarting Kubelet'
            ) from problem

    def save(self) -> None:
        entries: CpuEntries = {
            uid: {name: format_cpuset(cpus) for name, cpus in found.items()}
            for uid, found in self.assignments.items()
        }
        content = cpu_manager_checkpoint(self._policy, format_cpuset(self.default), entries)
        self._files.write(self._path, content, 0o600)


class StaticCpuManager:
    """The static policy. Raises ValueError when it cannot be used on this machine."""

    def __init__(
        self,
        topology: CpuTopology,
        reserved: CpuSet | int,
        options: StaticPolicyOptions,
        state: CpuManagerState,
    ) -> None:
        self._topology = topology
        self._options = options
        self._state = state
        self._reusable: tuple[str, CpuSet] = ("", NO_CPUS)  # of the init containers of a pod
        count = reserved if isinstance(reserved, int) else len(reserved)
        if isinstance(reserved, int):
            reserved = self._take(topology.all, reserved) if count <= topology.cpus else NO_CPUS
        if len(reserved) != count:
            raise ValueError(
                "new static policy error: [cpumanager] unable to reserve the required amount of "
                f"CPUs (size of {format_cpuset(reserved)} did not equal {count})"
            )
        self._reserved = reserved
        self._check_state()

    def _check_state(self) -> None:
        state, everything = self._state, self._topology.all
        strict = self._options.strict_reservation
        if strict:
            everything -= self._reserved
        if not state.default:
            if state.assignments:
                raise ValueError("default cpuset cannot be empty")
            state.default = everything
            state.save()
            return
        shown = f'"{format_cpuset(state.default)}"'
        if strict and self._reserved & state.default:
            both = format_cpuset(self._reserved & state.default)
            raise ValueError(
                f'some of strictly reserved cpus: "{both}" are present in defaultCpuSet: {shown}'
            )
        if not strict and not self._reserved <= state.default:
            raise ValueError(
                f'not all reserved cpus: "{format_cpuset(self._reserved)}" are present in '
                f"defaultCpuSet: {shown}"
            )
        known = state.default.union(
            *(c for found in state.assignments.values() for c in found.values())
        )
        if known != everything:
            raise ValueError(
                f'current set of available CPUs "{format_cpuset(everything)}" doesn\'t match with '
                f'CPUs in state "{format_cpuset(known)}"'
            )

    # ---- CPUs of containers ----

    @property
    def allocatable(self) -> CpuSet:
        """All that are not reserved."""
        return self._topology.all - self._reserved

    def cpus_of(self, uid: str, container: str) -> CpuSet:
        """Its exclusive CPUs, otherwise the shared ones."""
        return self.exclusive_cpus(uid, container) or self._state.default

    def exclusive_cpus(self, uid: str, container: str) -> CpuSet:
        return self._state.assignments.get(uid, {}).get(container, NO_CPUS)

    def allocate(self, pod: Object, container: Object, affinity: NumaMask | None) -> None:
        """Raises AdmissionError and NotEnoughCpus."""
        count = exclusive_cpu_count(pod, container)
        if not count:
            return
        self._check_alignment(count)
        uid, name = pod["metadata"]["uid"], container["name"]
        taken = self.exclusive_cpus(uid, name)
        if not taken:
            taken = self._allocate(count, affinity, self._reusable_by(uid))
            self._state.default -= taken
            self._state.assignments.setdefault(uid, {})[name] = taken
            self._state.save()
        self._update_reusable(pod, container, taken)

    def remove_stale(self, active_pods: Iterable[Object]) -> None:
        """Frees the CPUs of containers of pods that are no longer active."""
        names = {
            pod["metadata"]["uid"]: {c["name"] for c in _containers(pod)} for pod in active_pods
        }
        changed = False
        for uid, found in [*self._state.assignments.items()]:
            for name in found.keys() - names.get(uid, set()):
                free = found.pop(name)
                self._state.default |= free.difference(*found.values())
                changed = True
            if not found:
                del self._state.assignments[uid]
        if changed:
            self._state.save()

    def _check_alignment(self, count: int) -> None:
        threads = self._topology.threads_per_core
        if not self._options.full_cores:
            return
        if count % threads:
            raise AdmissionError(
                "SMTAlignmentError",
                f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {threads}",
            )
        cores = self._topology.in_cores(map(self._topology.core_of, self._reserved))
        free = len(self._state.default - cores)
        if count > free:
            raise AdmissionError(
                "SMTAlignmentError",
                "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = "
                f"{free}, requested CPUs = {count}, CPUs per core = {threads}",
            )

    def _allocate(self, count: int, affinity: NumaMask | None, reusable: CpuSet) -> CpuSet:
        available = (self._state.default - self._reserved) | reusable
        taken = NO_CPUS
        if affinity is not None:
            aligned = self._topology.in_numa_nodes(affinity, available)
            taken = self._take(aligned, min(count, len(aligned)))
        return taken | self._take(available - taken, count - len(taken))

    def _take(self, available: CpuSet, count: int) -> CpuSet:
        options = self._options
        if options.distribute_across_numa:
            group = self._topology.threads_per_core if options.full_cores else 1
            return self._topology.take_distributed(available, count, group)
        return self._topology.take_packed(
            available, count, spread=options.distribute_across_cores, one_cache=options.one_cache
        )

    def _reusable_by(self, uid: str) -> CpuSet:
        return self._reusable[1] if self._reusable[0] == uid else NO_CPUS

    def _update_reusable(self, pod: Object, container: Object, cpus: CpuSet) -> None:
        """The containers after an init container may use its CPUs, those after a sidecar not."""
        uid = pod["metadata"]["uid"]
        known = self._reusable_by(uid)
        init = any(c["name"] == container["name"] for c in pod["spec"].get("initContainers") or ())
        reusable = init and container.get("restartPolicy") != "Always"
        self._reusable = (uid, known | cpus if reusable else known - cpus)

    # ---- hints ----

    def container_hints(self, pod: Object, container: Object) -> Sequence[TopologyHint] | None:
        """None without a preference."""
        count = exclusive_cpu_count(pod, container)
        if not count:
            return None
        uid = pod["metadata"]["uid"]
        allocated = self.exclusive_cpus(uid, container["name"])
        if allocated:
            return self._hints(allocated, NO_CPUS, count) if len(allocated) == count else ()
        return self._hints(self._state.default - self._reserved, self._reusable_by(uid), count)

    def pod_hints(self, pod: Object) -> Sequence[TopologyHint] | None:
        count = _pod_cpu_count(pod)
        if not count:
            return None
        uid = pod["metadata"]["uid"]
        assigned = self._state.assignments.get(uid)
        if assigned:
            allocated = NO_CPUS.union(*assigned.values())
            return self._hints(allocated, NO_CPUS, count) if len(allocated) == count else ()
        return self._hints(self._state.default - self._reserved, self._reusable_by(uid), count)

    def _hints(self, available: CpuSet, reusable: CpuSet, count: int) -> list[TopologyHint]:
        topology = self._topology
        masks = numa_masks(topology.numa_nodes)
        fewest = min(
            (len(m) for m in masks if len(topology.in_numa_nodes(m, topology.all)) >= count),
            default=topology.numa_nodes,
        )
        return [
            TopologyHint(mask, len(mask) == fewest)
            for mask in masks
            if topology.in_numa_nodes(mask, reusable) == reusable
            and len(topology.in_numa_nodes(mask, available | reusable)) >= count
        ]


def exclusive_cpu_count(pod: Object, container: Object) -> int:
    """How many CPUs the container must have for itself."""
    if pod["spec"].get("resources") or persisted_qos_class(pod) != "Guaranteed":
        return 0
    requests: Mapping[str, str] = (container.get("resources") or {}).get("requests") or {}
    milli = parse_quantity(requests.get("cpu", "0")).milli_value()
    return 0 if milli % 1000 else milli // 1000


def _pod_cpu_count(pod: Object) -> int:
    sidecars = most = 0
    for container in pod["spec"].get("initContainers") or ():
        count = exclusive_cpu_count(pod, container)
        if container.get("restartPolicy") == "Always":
            sidecars += count
        else:
            most = max(most, sidecars + count)
    own = sum(exclusive_cpu_count(pod, c) for c in pod["spec"]["containers"])
    return max(most, sidecars + own)


def _containers(pod: Object) -> Iterable[Object]:
    yield from pod["spec"].get("initContainers") or ()
    yield from pod["spec"]["containers"]
