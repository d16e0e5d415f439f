"""The Windows-specific behaviour of the kubelet. See `osrules.OsRules` for what each method
decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from transom.http import goerrors
from transom.kit.clock import rfc3339
from transom.kit.goquote import go_quote
from transom.kubelet.config import DEFAULT_EVICTION_WINDOWS, KubeletConfig
from transom.kubelet.features import has_windows_affinity
from transom.kubelet.os_windows_disks import WindowsDisks
from transom.kubelet.os_windows_pods import WindowsPods
from transom.kubelet.stats import shapes
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.kubelet import kubelet_has, linux_pause_image
from transom.machines.api import DiskSpace, Host, MemoryUse, SystemInfo
from transom.runtime.api import ContainerStats, InterfaceStats, RuntimeVersion, SandboxStats
from transom.windows.limits import LIMITS
from transom.windows.match import record_holds
from transom.windows.records import NodeTarget

PRIORITY_CLASSES: Final[Mapping[str, int]] = {
    "IDLE_PRIORITY_CLASS": 64,
    "BELOW_NORMAL_PRIORITY_CLASS": 16384,
    "NORMAL_PRIORITY_CLASS": 32,
    "ABOVE_NORMAL_PRIORITY_CLASS": 32768,
    "HIGH_PRIORITY_CLASS": 128,
    "REALTIME_PRIORITY_CLASS": 256,
}
_NETWORK_CARD: Final = "Microsoft Hyper-V Network Adapter"


class WindowsRules(WindowsPods, WindowsDisks):
    __slots__ = ()

    name: Literal["windows"] = "windows"
    network_texts = goerrors.WINDOWS

    # The node

    def as_guided(self, config: KubeletConfig) -> KubeletConfig:
        """Without these settings a kubelet refuses to start, or its sandboxes fail later."""
        return replace(
            config,
            resolv_conf="",
            cgroups_per_qos=False,
            enforce_node_allocatable=(),
            image_pull_progress_deadline=1200.0,
            root_dir="C:\\var\\lib\\kubelet",
            pod_logs_dir="C:\\var\\log\\pods",
        )

    def check_config(self, config: KubeletConfig) -> list[str]:
        wrong = []
        release = Release(*config.release)
        if not kubelet_has(release, "CgroupsIgnoredOnWindows"):
            if config.cgroups_per_qos:
                wrong.append(LIMITS["WIN-NODE-002"].message.format(value="true"))
            if config.enforce_node_allocatable:
                value = f"[{' '.join(config.enforce_node_allocatable)}]"
                wrong.append(LIMITS["WIN-NODE-001"].message.format(value=value))
        for field, given in (
            ("singleProcessOOMKill", config.single_process_oom_kill),
            ("userNamespaces", config.user_namespace_ids),
        ):
            if given is not None:
                wrong.append(f"invalid configuration: {field} is not supported on Windows")
        requested = config.windows_priorityclass
        if requested not in PRIORITY_CLASSES:
            wrong.append(LIMITS["WIN-NODE-005"].message.format(value=requested))
        return wrong

    def refuses_overcommitment(self) -> bool:
        return False

    def default_labels(self, identity: SystemInfo, release: tuple[int, int]) -> Mapping[str, str]:
        arch = identity.architecture
        labels = {
            "beta.kubernetes.io/arch": arch,
            "beta.kubernetes.io/os": "windows",
            "kubernetes.io/arch": arch,
            "kubernetes.io/hostname": identity.hostname,
            "kubernetes.io/os": "windows",
        }
        if kubelet_has(release, "WindowsBuildLabel"):
            labels["node.kubernetes.io/windows-build"] = ".".join(
                identity.kernel_version.split(".")[:3]
            )
        return labels

    def node_info(
        self, identity: SystemInfo, runtime: RuntimeVersion, config: KubeletConfig
    ) -> Object:
        return {
            "machineID": identity.hostname,
            "systemUUID": identity.system_uuid,
            "bootID": identity.boot_id if kubelet_has(config.release, "WindowsBootId") else "",
            "kernelVersion": identity.kernel_version,
            "osImage": identity.os_image,
            "containerRuntimeVersion": f"{runtime.name}://{runtime.version}",
            "kubeletVersion": config.version,
            "kubeProxyVersion": config.version,
            "operatingSystem": "windows",
            "architecture": identity.architecture,
        }

    def default_eviction(self, release: tuple[int, int] = (1, 20)) -> Mapping[str, str]:
        if kubelet_has(release, "WindowsMemoryPressure"):
            return {**DEFAULT_EVICTION_WINDOWS, "memory.available": "500Mi"}
        return DEFAULT_EVICTION_WINDOWS

    def capacity_extras(self, host: Host) -> Mapping[str, str]:
        return {}

    def ready_message(self, release: tuple[int, int] = (1, 20)) -> str:
        return "kubelet is posting ready status"

    def apparmor_problem(self, pod: Object, host: Host, release: tuple[int, int]) -> str:
        return ""

    def has_container_manager(self) -> bool:
        return False

    def has_cpu_manager(self, config: KubeletConfig) -> bool:
        return has_windows_affinity(config.release, config.feature_gates)

    def has_memory_manager(self, config: KubeletConfig) -> bool:
        return has_windows_affinity(config.release, config.feature_gates)

    def memory_policy_problem(self, policy: str, release: tuple[int, int]) -> str:
        if policy == "BestEffort":
            return ""
        if policy == "Static":
            return 'policy "Static" is not available on Windows'
        return f"unknown policy: {go_quote(policy)}"

    def forwarding_problem(self, release: tuple[int, int]) -> str:
        limit = LIMITS["WIN-NODE-006"]
        return limit.message if record_holds(limit, NodeTarget(release)) else ""

    def reports_swap(self) -> bool:
        return False

    def default_pause_image(self, release: tuple[int, int]) -> str:
        # At first for Linux only: a Windows kubelet needs another one in
        # --pod-infra-container-image.
        return linux_pause_image(Release(*release))

    # Statistics and eviction

    def cadvisor_stats(self, runtime: RuntimeVersion) -> bool:
        return False

    def cadvisor_containers(self) -> bool:
        return False

    def node_stats(
        self,
        host: Host,
        containers: Sequence[ContainerStats],
        sandboxes: Sequence[SandboxStats],
        now: float,
    ) -> Object:
        use = host.memory()
        memory = shapes.memory_stats(
            now,
            availableBytes=max(0, use.total - use.working_set),
            usageBytes=use.usage,
            workingSetBytes=use.working_set,
            rssBytes=0,
            pageFaults=0,
            majorPageFaults=0,
        )
        seen = [i for sandbox in sandboxes for i in sandbox.interfaces]
        card = InterfaceStats(
            _NETWORK_CARD, sum(i.rx_bytes for i in seen), sum(i.tx_bytes for i in seen), 0, 0
        )
        # Only an adapter named eth0 would count as the default one.
        return {"memory": memory, "network": shapes.network_stats(now, [card], None)}

    def system_containers(
        self, node: Object, pods: Sequence[Object], now: float, started: float
    ) -> list[Object]:
        row: Object = {"name": "pods", "startTime": rfc3339(now)}
        for kind, names in (("cpu", shapes.CPU), ("memory", shapes.MEMORY[:3])):
            measured = [pod[kind] for pod in pods if kind in pod]
            row[kind] = {"time": rfc3339(now) if measured else None}
            row[kind] |= {
                name: shapes.total_stats(measured, name)
                for name in names
                if shapes.total_stats(measured, name)
            }
        return [row]

    def pod_network_stats(self, stats: SandboxStats | None) -> Object | None:
        if stats is None or not stats.interfaces:
            return None
        # Hyper-V's endpoint counters do not include errors.
        interfaces = [InterfaceStats(i.name, i.rx_bytes, i.tx_bytes) for i in stats.interfaces]
        return shapes.network_stats(stats.time, interfaces, interfaces[0])

    def memory_stats(self, stats: ContainerStats, limit: int) -> Object:
        return shapes.memory_stats(stats.time, workingSetBytes=stats.working_set or 0)

    def pod_memory_stats(self, containers: Sequence[Object], limit: int) -> Object:
        """Totals that containers do not report are zero."""
        return {
            "time": containers[-1]["time"],
            **{name: shapes.total_stats(containers, name) for name in shapes.MEMORY},
        }

    def volume_disk(self, host: Host, in_memory: bool) -> DiskSpace:
        return host.disk()

    def no_such_file(self, path: str) -> str:
        return f"CreateFile {path}: The system cannot find the file specified."

    def signals(self, host: Host, release: tuple[int, int]) -> Sequence[str]:
        """Before 1.31 disks only: Windows pages out memory that runs short, so memory pressure is
        never observed. Inodes and process ids are not counted.
        """
        disks = ("nodefs.available", "imagefs.available")
        with_memory = kubelet_has(release, "WindowsMemoryPressure")
        return ("memory.available", *disks) if with_memory else disks

    def available_memory(self, use: MemoryUse) -> tuple[int, int]:
        return max(0, use.commit_limit - use.usage), use.commit_limit


RULES: Final = WindowsRules()
