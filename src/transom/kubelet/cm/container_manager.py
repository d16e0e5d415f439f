"""The container manager of a kubelet: assembles the CPU, memory and topology managers, admits pods
to exclusive resources, and keeps the CPUs of running containers up to date.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from transom.kit.lazy_dataclass import replace
from transom.kubelet import allocatable
from transom.kubelet.base import KubeletContext
from transom.kubelet.cm import resizes
from transom.kubelet.cm.cpu_manager import (
    NO_CPUS,
    AdmissionError,
    CpuManagerState,
    StaticCpuManager,
    exclusive_cpu_count,
)
from transom.kubelet.cm.hints import TopologyHint
from transom.kubelet.cm.memory_cgroup import memory_cgroup_files
from transom.kubelet.cm.memory_manager import (
    MemoryAllocationError,
    StaticMemoryManager,
    check_reserved_memory,
    is_memory_managed,
    machine_memory,
)
from transom.kubelet.cm.memory_state import MemoryManagerState
from transom.kubelet.cm.pod_cgroup import pod_cgroup_resources
from transom.kubelet.cm.settings import (
    check_option_gates,
    check_swap_off,
    check_topology_options,
    static_policy_options,
)
from transom.kubelet.cm.topology_manager import Hints, TopologyPolicy
from transom.kubelet.failures import PodRejection
from transom.kubelet.features import disables_exclusive_quota
from transom.machinery.objects import Object
from transom.machinery.quantity import parse_quantity
from transom.machinery.releases import Release
from transom.machinery.releases.kubelet import kubelet_has
from transom.machines.cpus import (
    CpuSet,
    CpuTopology,
    NotEnoughCpus,
    format_cpuset,
    machine_topology,
    parse_cpuset,
)
from transom.runtime.api import LinuxResources, RuntimeFailure, WindowsResources

log = logging.getLogger("transom.kubelet")

_STATE_FILE: Final = "cpu_manager_state"
_MEMORY_STATE_FILE: Final = "memory_manager_state"
_NO_PREFERENCE: Final = TopologyHint(None, False)


Manager = Literal["cpu", "memory", "topology"]
CountEvent = Callable[[Manager, Literal["requests", "errors"]], None]
"""Counts an event of a manager in the kubelet's metrics."""


class ContainerManager:
    """`active_pods` are the pods that have not ended, with the resources that are allocated to
    them, once `sources_ready`. Raises ValueError, with the reason why the kubelet does not start.
    """

    def __init__(
        self,
        env: KubeletContext,
        active_pods: Callable[[], Sequence[Object]],
        sources_ready: Callable[[], bool],
        count: CountEvent,
    ) -> None:
        self._env = env
        self._count = count
        self._active_pods = active_pods
        self._sources_ready = sources_ready
        self._applied: dict[str, CpuSet] = {}  # by container id
        config = env.config
        self._cpus: StaticCpuManager | None = None
        self._memory: StaticMemoryManager | None = None
        self._policy: TopologyPolicy | None = None
        capacity = allocatable.machine_capacity(env.host, env.os)
        reserved = allocatable.node_reservation(config, env.os, capacity)
        self._allocatable_memory = allocatable.node_allocatable(capacity, reserved)[
            "memory"
        ].value()
        managed = env.os.has_container_manager()
        with_memory = env.os.has_memory_manager(config)
        with_cpus = env.os.has_cpu_manager(config)
        topology = self._topology = machine_topology(env.host.hardware)
        if managed:
            check_swap_off(config, env.host.hardware.swap)
        if managed or with_cpus or with_memory:
            check_option_gates(config)
            check_topology_options(config, topology)
            if config.topology_manager_policy != "none":
                self._policy = TopologyPolicy(config.topology_manager_policy, topology.numa_nodes)
        if with_cpus:
            self._cpus = self._cpu_manager(topology)
        if with_memory:
            self._memory = self._memory_manager(topology.numa_nodes)

    def _cpu_manager(self, topology: CpuTopology) -> StaticCpuManager | None:
        env, config = self._env, self._env.config
        policy = config.cpu_manager_policy
        if policy == "none":
            if config.cpu_manager_policy_options:
                shown = " ".join(
                    f"{name}:{value}"
                    for name, value in sorted(config.cpu_manager_policy_options.items())
                )
                raise ValueError(
                    f"new none policy error: None policy: received unsupported options=map[{shown}]"
                )
            self._cpu_state(policy)
            return None
        if policy != "static":
            raise ValueError(f'unknown policy: "{policy}"')
        capacity = allocatable.machine_capacity(env.host, env.os)
        reserved = allocatable.node_reservation(config, env.os, capacity).get("cpu")
        if reserved is None:
            raise ValueError(
                "[cpumanager] unable to determine reserved CPU resources for static policy"
            )
        try:
            options = static_policy_options(config)
        except ValueError as problem:
            raise ValueError(f"new static policy error: {problem}") from problem
        if options.align_by_socket and config.topology_manager_policy == "single-numa-node":
            raise ValueError(
                "new static policy error: Topolgy manager single-numa-node policy is incompatible "
                "with CPUManager align-by-socket policy option"
            )
        if config.reserved_system_cpus:
            chosen: CpuSet | int = parse_cpuset(config.reserved_system_cpus)
        else:
            chosen = -(-reserved.milli_value() // 1000)
        return StaticCpuManager(topology, chosen, options, self._cpu_state(policy))

    def _cpu_state(self, policy: str) -> CpuManagerState:
        path = self._state_file(_STATE_FILE)
        try:
            return CpuManagerState(self._env.host.files, path, policy)
        except ValueError as problem:
            raise ValueError(f"start cpu manager error: {problem}") from problem

    def _state_file(self, name: str) -> str:
        """The path of a state file, whose directory exists afterwards."""
        env = self._env
        env.host.files.mkdir(env.config.root_dir)
        return env.os.join(env.config.root_dir, name)

    def _memory_manager(self, numa_nodes: int) -> StaticMemoryManager | None:
        env, config = self._env, self._env.config
        policy = config.memory_manager_policy
        if policy == "None":
            self._memory_state(policy)
            return None
        problem_text = env.os.memory_policy_problem(policy, config.release)
        if problem_text:
            raise ValueError(problem_text)
        capacity = allocatable.machine_capacity(env.host, env.os)
        reservation = allocatable.node_reservation(config, env.os, capacity)
        check_reserved_memory(config.reserved_memory, reservation, numa_nodes)
        if not any("memory" in reserved.limits for reserved in config.reserved_memory):
            raise ValueError("[memorymanager] you should specify the system reserved memory")
        pages = {
            name: parse_quantity(text).value()
            for name, text in env.os.capacity_extras(env.host).items()
            if name.startswith("hugepages-")
        }
        machine = machine_memory(
            env.host.hardware.memory, pages, numa_nodes, config.reserved_memory
        )
        strict = kubelet_has(Release(*config.release), "BestEffortMemoryPolicy")
        state = self._memory_state(policy)
        try:
            return StaticMemoryManager(machine, state, strict_groups=strict)
        except ValueError as problem:
            raise ValueError(f"start memory manager error: {problem}") from problem

    def _memory_state(self, policy: str) -> MemoryManagerState:
        path = self._state_file(_MEMORY_STATE_FILE)
        try:
            return MemoryManagerState(self._env.host.files, path, policy)
        except ValueError as problem:
            raise ValueError(f"start memory manager error: {problem}") from problem

    # ---- admission ----

    def admit(self, pod: Object) -> PodRejection | None:
        """Allocates what the containers of the pod need for themselves."""
        self._count("topology", "requests")
        self._remove_stale(pod)
        try:
            self._allocate(pod)
        except AdmissionError as problem:
            self._count_topology_error()
            return PodRejection(problem.reason, str(problem))
        except (NotEnoughCpus, MemoryAllocationError) as problem:
            self._count_topology_error()
            return PodRejection(
                "UnexpectedAdmissionError",
                f"Allocate failed due to {problem}, which is unexpected",
            )
        return None

    def _count_topology_error(self) -> None:
        if self._policy is not None:
            self._count("topology", "errors")

    def _remove_stale(self, pod: Object | None = None) -> None:
        if not self._sources_ready() or (self._cpus is None and self._memory is None):
            return
        active = [*self._active_pods(), *([pod] if pod is not None else ())]
        if self._cpus is not None:
            self._cpus.remove_stale(active)
        if self._memory is not None:
            self._memory.remove_stale(active)

    def _allocate(self, pod: Object) -> None:
        policy, hint = self._policy, _NO_PREFERENCE
        whole = policy is not None and self._env.config.topology_manager_scope == "pod"
        if policy is not None and whole:
            hint = _merge(policy, self._pod_hints(pod))
        for container in _containers(pod):
            if policy is not None and not whole:
                hint = _merge(policy, self._container_hints(pod, container))
            self._allocate_cpus(pod, container, hint)
            self._allocate_memory(pod, container, hint)

    def _pod_hints(self, pod: Object) -> list[Hints]:
        return [
            self._cpus.pod_hints(pod) if self._cpus is not None else None,
            *(self._memory.pod_hints(pod).values() if self._memory is not None else ()),
        ]

    def _container_hints(self, pod: Object, container: Object) -> list[Hints]:
        cpus, memory = self._cpus, self._memory
        return [
            cpus.container_hints(pod, container) if cpus is not None else None,
            *(memory.container_hints(pod, container).values() if memory is not None else ()),
        ]

    def _allocate_cpus(self, pod: Object, container: Object, hint: TopologyHint) -> None:
        if self._cpus is None or not exclusive_cpu_count(pod, container):
            return
        self._count("cpu", "requests")
        try:
            self._cpus.allocate(pod, container, hint.affinity)
        except (AdmissionError, NotEnoughCpus):
            self._count("cpu", "errors")
            raise

    def _allocate_memory(self, pod: Object, container: Object, hint: TopologyHint) -> None:
        if self._memory is None or not is_memory_managed(pod):
            return
        self._count("memory", "requests")
        try:
            self._memory.allocate(pod, container, hint)
        except MemoryAllocationError:
            self._count("memory", "errors")
            raise

    # ---- containers ----

    def adjust(self, pod: Object, container: Object, resources: LinuxResources) -> LinuxResources:
        """The resources of a container with the CPUs and NUMA nodes that it may use, and the
        files of its cgroup. The init containers before it have ended: their memory is free.
        """
        uid, name, config = pod["metadata"]["uid"], container["name"], self._env.config
        if self._env.os.has_container_manager():
            files = memory_cgroup_files(
                pod, container, config, self._env.host.hardware, self._allocatable_memory
            )
            resources = replace(resources, unified=files)
        if self._memory is not None:
            self._memory.release_init_containers(pod, container)
            numa_nodes = sorted(self._memory.numa_nodes_of(uid, name))
            resources = replace(resources, cpuset_mems=",".join(map(str, numa_nodes)))
        if self._cpus is None:
            return resources
        changed = replace(resources, cpuset_cpus=format_cpuset(self._cpus.cpus_of(uid, name)))
        if self._cpus.exclusive_cpus(uid, name) and disables_exclusive_quota(
            config.release, config.feature_gates
        ):
            changed = replace(changed, cpu_quota=0)
        return changed

    def adjust_windows(
        self, pod: Object, container: Object, resources: WindowsResources
    ) -> WindowsResources:
        """Windows has no affinity to memory: a container that has memory of some NUMA nodes runs
        on their CPUs.
        """
        uid, name = pod["metadata"]["uid"], container["name"]
        cpus = self._cpus.cpus_of(uid, name) if self._cpus is not None else NO_CPUS
        near = NO_CPUS
        if self._memory is not None:
            self._memory.release_init_containers(pod, container)
            numa_nodes = self._memory.numa_nodes_of(uid, name)
            near = self._topology.in_numa_nodes(numa_nodes, self._topology.all)
        return replace(resources, cpuset=format_cpuset(self._windows_cpus(cpus, near)))

    def _windows_cpus(self, cpus: CpuSet, near: CpuSet) -> CpuSet:
        if not cpus:
            return near
        release = Release(*self._env.config.release)
        if kubelet_has(release, "CpusAsAllocated") or len(cpus) > len(near) or cpus <= near:
            return cpus
        return cpus | near

    def pod_resources(self, pod: Object) -> LinuxResources:
        """The limits of the cgroup of a pod as a whole."""
        env, uid, cpus = self._env, pod["metadata"]["uid"], self._cpus
        config = env.config
        if not env.os.has_container_manager() or not config.cgroups_per_qos:
            return LinuxResources()
        without_quota = cpus is not None and disables_exclusive_quota(
            config.release, config.feature_gates
        )
        return pod_cgroup_resources(
            pod, config, limit_cpu=not (without_quota and self._has_exclusive_cpus(uid, pod))
        )

    # ---- the pod resources API ----

    def cpus_of_container(self, uid: str, name: str) -> Sequence[int]:
        return sorted(self._cpus.exclusive_cpus(uid, name)) if self._cpus is not None else ()

    def allocatable_cpus(self) -> Sequence[int]:
        return sorted(self._cpus.allocatable) if self._cpus is not None else ()

    def memory_of_container(self, uid: str, name: str) -> Sequence[dict[str, object]]:
        blocks = self._memory.blocks_of(uid, name) if self._memory is not None else ()
        return [_memory_message(b.type, b.size, b.numa_nodes) for b in blocks]

    def allocatable_memory(self) -> Sequence[dict[str, object]]:
        found = self._memory.allocatable() if self._memory is not None else ()
        return [_memory_message(kind, size, (node,)) for node, kind, size in found]

    def resize_problem(self, pod: Object, allocated: Object) -> str:
        if not self._env.os.has_container_manager():
            return ""
        return resizes.resize_problem(pod, allocated, self._env.config)

    def _has_exclusive_cpus(self, uid: str, pod: Object) -> bool:
        return self._cpus is not None and any(
            self._cpus.exclusive_cpus(uid, container["name"]) for container in _containers(pod)
        )

    async def run(self) -> None:
        """Runs until cancelled."""
        if self._cpus is None:
            return
        while True:
            await self._env.clock.sleep(self._env.config.cpu_manager_reconcile_period)
            await self._reconcile(self._cpus)

    async def _reconcile(self, cpus: StaticCpuManager) -> None:
        """Gives running containers the CPUs that they may use now."""
        self._remove_stale()
        env, seen = self._env, dict[str, CpuSet]()
        for pod in self._active_pods():
            uid = pod["metadata"]["uid"]
            specs = {spec["name"]: spec for spec in _containers(pod)}
            for container in env.runtime.containers(uid):
                spec = specs.get(container.name)
                if spec is None or container.state != "running":
                    continue
                wanted = cpus.cpus_of(uid, container.name)
                if self._applied.get(container.id) != wanted:
                    try:
                        await env.runtime.update_container_resources(
                            container.id, self._current_resources(pod, spec)
                        )
                    except RuntimeFailure as failure:
                        log.warning(
                            "cannot set the CPUs of container %s: %s", container.id, failure
                        )
                        continue
                seen[container.id] = wanted
        self._applied = seen

    def _current_resources(self, pod: Object, spec: Object) -> LinuxResources | WindowsResources:
        env = self._env
        if not env.os.has_container_manager():
            assert self._cpus is not None, "only it changes CPUs"
            cpus = self._cpus.cpus_of(pod["metadata"]["uid"], spec["name"])
            return WindowsResources(cpuset=format_cpuset(cpus))
        return self.adjust(pod, spec, env.os.linux_resources(pod, spec, env.host, env.config))


def _memory_message(kind: str, size: int, numa_nodes: Iterable[int]) -> dict[str, object]:
    nodes = [{"ID": number} for number in numa_nodes]
    return {"memory_type": kind, "size": size, "topology": {"nodes": nodes}}


def _merge(policy: TopologyPolicy, hints: Sequence[Hints]) -> TopologyHint:
    hint, admitted = policy.merge(hints)
    if not admitted:
        raise AdmissionError(
            "TopologyAffinityError", "Resources cannot be allocated with Topology locality"
        )
    return hint


def _containers(pod: Object) -> Iterable[Object]:
    yield from pod["spec"].get("initContainers") or ()
    yield from pod["spec"]["containers"]
