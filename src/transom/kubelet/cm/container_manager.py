"""The container manager of a kubelet: assembles the CPU manager and the topology manager, admits
pods to exclusive resources, and keeps the CPUs of running containers up to date.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from transom.kubelet import allocatable
from transom.kubelet.base import KubeletContext
from transom.kubelet.cm.cpu_manager import AdmissionError, CpuManagerState, StaticCpuManager
from transom.kubelet.cm.hints import NumaMask
from transom.kubelet.cm.settings import (
    check_option_gates,
    check_topology_options,
    static_policy_options,
)
from transom.kubelet.cm.topology_manager import Hints, TopologyPolicy
from transom.kubelet.failures import PodRejection
from transom.kubelet.features import disables_exclusive_quota, has_cpu_manager
from transom.machinery.objects import Object
from transom.machines.cpus import (
    CpuSet,
    CpuTopology,
    NotEnoughCpus,
    format_cpuset,
    machine_topology,
    parse_cpuset,
)
from transom.runtime.api import LinuxResources, RuntimeFailure

log = logging.getLogger("transom.kubelet")

_STATE_FILE: Final = "cpu_manager_state"


class ContainerManager:
    """`active_pods` are the pods that have not ended, with the resources that are allocated to
    them, once `sources_ready`. Raises ValueError, with the reason why the kubelet does not start.
    """

    def __init__(
        self,
        env: KubeletContext,
        active_pods: Callable[[], Sequence[Object]],
        sources_ready: Callable[[], bool],
    ) -> None:
        self._env = env
        self._active_pods = active_pods
        self._sources_ready = sources_ready
        self._applied: dict[str, CpuSet] = {}  # by container id
        config = env.config
        self._cpus: StaticCpuManager | None = None
        self._policy: TopologyPolicy | None = None
        if not env.os.has_container_manager():
            return
        topology = machine_topology(env.host.hardware)
        check_option_gates(config)
        check_topology_options(config, topology)
        if has_cpu_manager(config.release, config.feature_gates):
            self._cpus = self._cpu_manager(topology)
        if config.topology_manager_policy != "none":
            self._policy = TopologyPolicy(config.topology_manager_policy, topology.numa_nodes)

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
            self._state(policy)
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
        return StaticCpuManager(topology, chosen, options, self._state(policy))

    def _state(self, policy: str) -> CpuManagerState:
        env = self._env
        env.host.files.mkdir(env.config.root_dir)
        path = env.os.join(env.config.root_dir, _STATE_FILE)
        try:
            return CpuManagerState(env.host.files, path, policy)
        except ValueError as problem:
            raise ValueError(f"start cpu manager error: {problem}") from problem

    # ---- admission
    # ----------------------------------------------------------------------------------------------

    def admit(self, pod: Object) -> PodRejection | None:
        """Allocates what the containers of the pod need for themselves."""
        if self._cpus is None:
            return None
        self._remove_stale(self._cpus, pod)
        try:
            self._allocate(self._cpus, pod)
        except AdmissionError as problem:
            return PodRejection(problem.reason, str(problem))
        except NotEnoughCpus as problem:
            return PodRejection(
                "UnexpectedAdmissionError",
                f"Allocate failed due to {problem}, which is unexpected",
            )
        return None

    def _remove_stale(self, cpus: StaticCpuManager, pod: Object | None = None) -> None:
        if self._sources_ready():
            cpus.remove_stale([*self._active_pods(), *([pod] if pod is not None else ())])

    def _allocate(self, cpus: StaticCpuManager, pod: Object) -> None:
        policy = self._policy
        affinity: NumaMask | None = None
        whole = policy is not None and self._env.config.topology_manager_scope == "pod"
        if policy is not None and whole:
            affinity = _merge(policy, [cpus.pod_hints(pod)])
        for container in _containers(pod):
            if policy is not None and not whole:
                affinity = _merge(policy, [cpus.container_hints(pod, container)])
            cpus.allocate(pod, container, affinity)

    # ---- containers
    # ----------------------------------------------------------------------------------------------

    def adjust(self, pod: Object, container: Object, resources: LinuxResources) -> LinuxResources:
        """The resources of a container with the CPUs that it may use."""
        if self._cpus is None:
            return resources
        uid, name, config = pod["metadata"]["uid"], container["name"], self._env.config
        changed = replace(resources, cpuset_cpus=format_cpuset(self._cpus.cpus_of(uid, name)))
        if self._cpus.exclusive_cpus(uid, name) and disables_exclusive_quota(
            config.release, config.feature_gates
        ):
            changed = replace(changed, cpu_quota=0)
        return changed

    async def run(self) -> None:
        """Runs until cancelled."""
        if self._cpus is None:
            return
        while True:
            await self._env.clock.sleep(self._env.config.cpu_manager_reconcile_period)
            await self._reconcile(self._cpus)

    async def _reconcile(self, cpus: StaticCpuManager) -> None:
        """Gives running containers the CPUs that they may use now."""
        self._remove_stale(cpus)
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
                    resources = env.os.linux_resources(pod, spec, env.host)
                    resources = self.adjust(pod, spec, resources)
                    try:
                        await env.runtime.update_container_resources(container.id, resources)
                    except RuntimeFailure as failure:
                        log.warning(
                            "cannot set the CPUs of container %s: %s", container.id, failure
                        )
                        continue
                seen[container.id] = wanted
        self._applied = seen


def _merge(policy: TopologyPolicy, hints: Sequence[Hints]) -> NumaMask | None:
    affinity, admitted = policy.merge(hints)
    if not admitted:
        raise AdmissionError(
            "TopologyAffinityError", "Resources cannot be allocated with Topology locality"
        )
    return affinity


def _containers(pod: Object) -> Iterable[Object]:
    yield from pod["spec"].get("initContainers") or ()
    yield from pod["spec"]["containers"]
