"""The Linux-specific behaviour of the kubelet. See `osrules.OsRules` for what each method
decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from transom.http import goerrors
from transom.kit.clock import rfc3339
from transom.kit.goquote import go_quote
from transom.kubelet import apparmor
from transom.kubelet.config import DEFAULT_EVICTION_LINUX, IDS_PER_POD, KubeletConfig
from transom.kubelet.features import has_cpu_manager, has_memory_manager
from transom.kubelet.os_linux_disks import LinuxDisks
from transom.kubelet.os_linux_pods import LinuxPods
from transom.kubelet.stats import shapes
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.kubelet import kubelet_has, linux_pause_image
from transom.machines.api import DiskSpace, Host, MemoryUse, SystemInfo
from transom.runtime.api import ContainerStats, InterfaceStats, RuntimeVersion, SandboxStats

SIGNALS: Final = (
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)
# A machine without reserved huge pages still reports the sizes its processor supports.
_HUGE_PAGES: Final[Mapping[str, str]] = {"hugepages-1Gi": "0", "hugepages-2Mi": "0"}
_MAX_PID: Final = 32768
_MOST_IDS: Final = (1 << 32) - 1
_SYSTEM_PROCESSES: Final = 150  # of a machine without pods


class LinuxRules(LinuxPods, LinuxDisks):
    __slots__ = ()

    name: Literal["linux"] = "linux"
    network_texts = goerrors.POSIX

    # The node

    def as_guided(self, config: KubeletConfig) -> KubeletConfig:
        return config

    def check_config(self, config: KubeletConfig) -> list[str]:
        ids = config.user_namespace_ids
        if ids is None:
            return []
        begin = "invalid configuration: userNamespaces.idsPerPod must"
        if ids < IDS_PER_POD:
            return [f"{begin} not be less than {IDS_PER_POD}"]
        if ids % IDS_PER_POD:
            return [f"{begin} be a multiple of {IDS_PER_POD}"]
        return [f"{begin} not be more than {_MOST_IDS}"] if ids > _MOST_IDS else []

    def refuses_overcommitment(self) -> bool:
        return True

    def default_labels(self, identity: SystemInfo, release: tuple[int, int]) -> Mapping[str, str]:
        arch = identity.architecture
        return {
            "beta.kubernetes.io/arch": arch,
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": arch,
            "kubernetes.io/hostname": identity.hostname,
            "kubernetes.io/os": "linux",
        }

    def node_info(
        self, identity: SystemInfo, runtime: RuntimeVersion, config: KubeletConfig
    ) -> Object:
        return {
            "machineID": identity.machine_id,
            "systemUUID": identity.system_uuid,
            "bootID": identity.boot_id,
            "kernelVersion": identity.kernel_version,
            "osImage": identity.os_image,
            "containerRuntimeVersion": f"{runtime.name}://{runtime.version}",
            "kubeletVersion": config.version,
            "kubeProxyVersion": config.version,
            "operatingSystem": "linux",
            "architecture": identity.architecture,
        }

    def default_eviction(self, release: tuple[int, int] = (1, 20)) -> Mapping[str, str]:
        return DEFAULT_EVICTION_LINUX

    def capacity_extras(self, host: Host) -> Mapping[str, str]:
        return _HUGE_PAGES

    def ready_message(self, release: tuple[int, int] = (1, 20)) -> str:
        ready = "kubelet is posting ready status"
        return (
            ready if kubelet_has(release, "ReadyWithoutAppArmor") else f"{ready}. AppArmor enabled"
        )

    def apparmor_problem(self, pod: Object, host: Host, release: tuple[int, int]) -> str:
        return apparmor.apparmor_node_problem(pod, host.files, release)

    def has_container_manager(self) -> bool:
        return True

    def has_cpu_manager(self, config: KubeletConfig) -> bool:
        return has_cpu_manager(config.release, config.feature_gates)

    def has_memory_manager(self, config: KubeletConfig) -> bool:
        return has_memory_manager(config.release, config.feature_gates)

    def memory_policy_problem(self, policy: str, release: tuple[int, int]) -> str:
        if policy == "Static":
            return ""
        if policy == "BestEffort" and kubelet_has(Release(*release), "BestEffortMemoryPolicy"):
            return 'policy "BestEffort" is not available for platform "linux"'
        return f"unknown policy: {go_quote(policy)}"

    def forwarding_problem(self, release: tuple[int, int]) -> str:
        return ""

    def reports_swap(self) -> bool:
        return True

    def default_pause_image(self, release: tuple[int, int]) -> str:
        return linux_pause_image(Release(*release))

    # Statistics and eviction

    def cadvisor_stats(self, runtime: RuntimeVersion) -> bool:
        return runtime.name == "docker"

    def cadvisor_containers(self) -> bool:
        return True

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
            rssBytes=use.rss,
            pageFaults=sum(c.page_faults for c in containers),
            majorPageFaults=sum(c.major_page_faults for c in containers),
        )
        seen = [i for sandbox in sandboxes for i in sandbox.interfaces]
        card = InterfaceStats(
            "eth0", sum(i.rx_bytes for i in seen), sum(i.tx_bytes for i in seen), 0, 0
        )
        processes = _SYSTEM_PROCESSES + sum(c.processes for c in containers) + len(sandboxes)
        return {
            "memory": memory,
            "network": shapes.network_stats(now, [card], card),
            "rlimit": {"time": rfc3339(now), "maxpid": _MAX_PID, "curproc": processes},
        }

    def system_containers(
        self, node: Object, pods: Sequence[Object], now: float, started: float
    ) -> list[Object]:
        """The cgroups of the kubelet, of the runtime and of all pods. The first two each
        get a share of the usage outside of pods.
        """
        boot = node["startTime"]
        inside = {
            kind: {
                name: shapes.total_stats((p[kind] for p in pods if kind in p), name)
                for name in names
            }
            for kind, names in (("cpu", shapes.CPU), ("memory", shapes.MEMORY))
        }
        rows: list[Object] = []
        for name, start, share in (
            ("kubelet", rfc3339(started), 0.2),
            ("runtime", boot, 0.3),
            ("pods", boot, None),
        ):
            row: Object = {"name": name, "startTime": start}
            for kind, names in (("cpu", shapes.CPU), ("memory", shapes.MEMORY)):
                row[kind] = {"time": rfc3339(now)}
                for field in names:
                    if field == "availableBytes":
                        if share is None:
                            row[kind][field] = max(0, node[kind][field])
                        continue
                    own = inside[kind][field]
                    rest = max(0, node[kind].get(field, 0) - own)
                    row[kind][field] = own if share is None else int(rest * share)
            rows.append(row)
        return rows

    def pod_network_stats(self, stats: SandboxStats | None) -> Object | None:
        if stats is None or not stats.interfaces:
            return None
        interfaces = [
            i._replace(rx_errors=i.rx_errors or 0, tx_errors=i.tx_errors or 0)
            for i in stats.interfaces
        ]
        return shapes.network_stats(
            stats.time, interfaces, next((i for i in interfaces if i.name == "eth0"), None)
        )

    def memory_stats(self, stats: ContainerStats, limit: int) -> Object:
        fields = {
            "usageBytes": stats.usage,
            "workingSetBytes": stats.working_set or 0,
            "rssBytes": stats.rss,
            "pageFaults": stats.page_faults,
            "majorPageFaults": stats.major_page_faults,
        }
        if limit:
            fields["availableBytes"] = max(0, limit - fields["workingSetBytes"])
        return shapes.memory_stats(stats.time, **fields)

    def pod_memory_stats(self, containers: Sequence[Object], limit: int) -> Object:
        fields = {
            name: shapes.total_stats(containers, name)
            for name in shapes.MEMORY
            if name != "availableBytes"
        }
        if limit:
            fields["availableBytes"] = max(0, limit - fields["workingSetBytes"])
        return {
            "time": containers[-1]["time"],
            **{name: fields[name] for name in shapes.MEMORY if name in fields},
        }

    def volume_disk(self, host: Host, in_memory: bool) -> DiskSpace:
        if not in_memory:
            return host.disk()
        return DiskSpace(host.hardware.memory // 2, 0, host.hardware.memory // 8192, 0)

    def no_such_file(self, path: str) -> str:
        return f"lstat {path}: no such file or directory"

    def available_memory(self, use: MemoryUse) -> tuple[int, int]:
        return use.total - use.working_set, use.total

    def signals(self, host: Host, release: tuple[int, int]) -> Sequence[str]:
        return SIGNALS


RULES: Final = LinuxRules()
