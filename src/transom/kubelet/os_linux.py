"""What a kubelet does on Linux only. See `osrules.OsRules` for what each method decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from transom.hosts.api import Host, Identity
from transom.kubelet import apparmor
from transom.kubelet.config import DEFAULT_EVICTION_LINUX, KubeletConfig
from transom.machinery.objects import Object
from transom.runtime.api import Version

_APPARMOR_UNSAID_SINCE: Final = (1, 30)
# A machine without reserved huge pages still shows the sizes its processor knows.
_HUGE_PAGES: Final[Mapping[str, str]] = {"hugepages-1Gi": "0", "hugepages-2Mi": "0"}


class LinuxRules:
    __slots__ = ()

    name: Literal["linux"] = "linux"

    # The node

    def check_config(self, config: KubeletConfig) -> list[str]:
        return []

    def default_labels(self, identity: Identity, release: tuple[int, int]) -> Mapping[str, str]:
        arch = identity.architecture
        return {
            "beta.kubernetes.io/arch": arch,
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": arch,
            "kubernetes.io/hostname": identity.hostname,
            "kubernetes.io/os": "linux",
        }

    def node_info(self, identity: Identity, runtime: Version, config: KubeletConfig) -> Object:
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
        return f"{ready}. AppArmor enabled" if release < _APPARMOR_UNSAID_SINCE else ready

    def apparmor_problem(self, pod: Object, host: Host) -> str:
        return apparmor.problem(pod, host.files)

    def default_pause_image(self) -> str:
        return "k8s.gcr.io/pause:3.2"

    # Sandboxes and containers

    # Volumes

    # Statistics and eviction


RULES: Final = LinuxRules()
