"""What a kubelet does on Windows only. See `osrules.OsRules` for what each method decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from transom.hosts.api import Host, Identity
from transom.kubelet.config import DEFAULT_EVICTION_WINDOWS, KubeletConfig
from transom.machinery.objects import Object
from transom.runtime.api import Version

PRIORITY_CLASSES: Final[Mapping[str, int]] = {
    "IDLE_PRIORITY_CLASS": 64,
    "BELOW_NORMAL_PRIORITY_CLASS": 16384,
    "NORMAL_PRIORITY_CLASS": 32,
    "ABOVE_NORMAL_PRIORITY_CLASS": 32768,
    "HIGH_PRIORITY_CLASS": 128,
    "REALTIME_PRIORITY_CLASS": 256,
}
_PRIORITIES_PAGE: Final = "https://docs.microsoft.com/en-us/windows/win32/procthread/scheduling-priorities"
_BUILD_LABEL_SINCE: Final = (1, 17)
_BOOT_ID_SINCE: Final = (1, 24)
# Memory is measured as what is committed of physical memory and page file from here on, and more is kept free.
_COMMIT_MEMORY_SINCE: Final = (1, 31)


class WindowsRules:
    __slots__ = ()

    name: Literal["windows"] = "windows"

    # The node

    def check_config(self, config: KubeletConfig) -> list[str]:
        wrong = []
        if config.cgroups_per_qos:
            wrong.append(_unsupported("CgroupsPerQOS", "--cgroups-per-qos", "true"))
        if config.enforce_node_allocatable:
            value = f"[{' '.join(config.enforce_node_allocatable)}]"
            wrong.append(_unsupported("EnforceNodeAllocatable", "--enforce-node-allocatable", value))
        asked = config.windows_priorityclass
        if asked not in PRIORITY_CLASSES:
            wrong.append(f"unknown priority class {asked}, valid ones are available at {_PRIORITIES_PAGE}")
        return wrong

    def default_labels(self, identity: Identity, release: tuple[int, int]) -> Mapping[str, str]:
        arch = identity.architecture
        labels = {
            "beta.kubernetes.io/arch": arch,
            "beta.kubernetes.io/os": "windows",
            "kubernetes.io/arch": arch,
            "kubernetes.io/hostname": identity.hostname,
            "kubernetes.io/os": "windows",
        }
        if release >= _BUILD_LABEL_SINCE:
            labels["node.kubernetes.io/windows-build"] = ".".join(identity.kernel_version.split(".")[:3])
        return labels

    def node_info(self, identity: Identity, runtime: Version, config: KubeletConfig) -> Object:
        return {
            "machineID": identity.hostname,
            "systemUUID": identity.system_uuid,
            "bootID": identity.boot_id if config.release >= _BOOT_ID_SINCE else "",
            "kernelVersion": identity.kernel_version,
            "osImage": identity.os_image,
            "containerRuntimeVersion": f"{runtime.name}://{runtime.version}",
            "kubeletVersion": config.version,
            "kubeProxyVersion": config.version,
            "operatingSystem": "windows",
            "architecture": identity.architecture,
        }

    def default_eviction(self, release: tuple[int, int] = (1, 20)) -> Mapping[str, str]:
        if release >= _COMMIT_MEMORY_SINCE:
            return {**DEFAULT_EVICTION_WINDOWS, "memory.available": "500Mi"}
        return DEFAULT_EVICTION_WINDOWS

    def capacity_extras(self, host: Host) -> Mapping[str, str]:
        return {}

    def ready_message(self, release: tuple[int, int] = (1, 20)) -> str:
        return "kubelet is posting ready status"

    def apparmor_problem(self, pod: Object, host: Host) -> str:
        return ""

    def default_pause_image(self) -> str:
        # An image for Linux alone: a Windows kubelet has to be given another one by --pod-infra-container-image.
        return "k8s.gcr.io/pause:3.2"

    # Sandboxes and containers

    # Volumes

    # Statistics and eviction


def _unsupported(field: str, flag: str, value: str) -> str:
    return f"invalid configuration: {field} ({flag}) {value} is not supported on Windows"


RULES: Final = WindowsRules()
