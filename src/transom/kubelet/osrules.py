"""The differences between a Linux and a Windows kubelet as one interface, implemented by
`os_linux.RULES` and `os_windows.RULES`.

Each method is one decision that Kubernetes' kubelet makes by operating system. Nothing else in the
kubelet may check which system it runs on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from transom.http.goerrors import NetworkTexts
from transom.kubelet.config import KubeletConfig
from transom.kubelet.storage_requests import StorageRequest
from transom.machinery.objects import Object
from transom.machines.api import DiskSpace, Files, Host, HostFiles, MemoryUse, SystemInfo
from transom.runtime.api import (
    ContainerStats,
    Image,
    LinuxContainer,
    LinuxResources,
    LinuxSandbox,
    RuntimeVersion,
    SandboxStats,
    WindowsContainer,
)

if TYPE_CHECKING:
    from transom.cloud.content import DiskContent
    from transom.cloud.disks import CloudDisk
    from transom.cloud.shares import FileShare


class OsRules(Protocol):
    @property
    def name(self) -> Literal["linux", "windows"]: ...
    @property
    def network_texts(self) -> NetworkTexts:
        """How the kubelet reports failed connections."""

    # The node
    def as_guided(self, config: KubeletConfig) -> KubeletConfig:
        """The settings with the kubelet flags that the setup guides for this system use."""

    def check_config(self, config: KubeletConfig) -> list[str]:
        """Why a kubelet with these settings refuses to start."""

    def refuses_overcommitment(self) -> bool:
        """Whether a kubelet that must reserve more than the machine has refuses to start; otherwise
        it reports zero allocatable.
        """

    def default_labels(
        self, identity: SystemInfo, release: tuple[int, int]
    ) -> Mapping[str, str]: ...
    def node_info(
        self, identity: SystemInfo, runtime: RuntimeVersion, config: KubeletConfig
    ) -> Object: ...
    def default_eviction(self, release: tuple[int, int] = (1, 20)) -> Mapping[str, str]: ...
    def capacity_extras(self, host: Host) -> Mapping[str, str]:
        """Resources other than cpu, memory, pods and ephemeral-storage."""

    def ready_message(self, release: tuple[int, int] = (1, 20)) -> str: ...
    def apparmor_problem(self, pod: Object, host: Host, release: tuple[int, int]) -> str:
        """Why the requested profiles cannot be enforced here; empty when they can, or when this is
        never checked.
        """

    def has_container_manager(self) -> bool:
        """Whether the kubelet manages cgroups."""

    def has_cpu_manager(self, config: KubeletConfig) -> bool: ...
    def has_memory_manager(self, config: KubeletConfig) -> bool: ...
    def memory_policy_problem(self, policy: str, release: tuple[int, int]) -> str:
        """Why the memory manager does not have this policy, other than None; empty if it has."""

    def reports_swap(self) -> bool: ...
    def default_pause_image(self, release: tuple[int, int]) -> str: ...
    def forwarding_problem(self, release: tuple[int, int]) -> str:
        """Why a kubelet of this release cannot forward ports; empty when it can."""

    # Sandboxes and containers
    def sandbox_options(self, pod: Object, config: KubeletConfig) -> LinuxSandbox: ...
    def container_options(
        self, pod: Object, container: Object, image: Image, host: Host, config: KubeletConfig
    ) -> tuple[LinuxContainer | None, WindowsContainer | None]:
        """Raises ContainerFailure."""

    def linux_resources(
        self, pod: Object, container: Object, host: Host, config: KubeletConfig
    ) -> LinuxResources:
        """The limits of a container. Only Linux containers can be resized."""

    def locks_sub_paths(self, release: tuple[int, int]) -> bool:
        """Whether the kubelet keeps subPath directories of a container open that has several."""

    def resize_problem(self) -> str:
        """Why containers cannot be resized; empty when they can."""

    def pod_resources_problem(self, release: tuple[int, int]) -> str:
        """Why a pod cannot have resources as a whole; empty when it can, or when a kubelet of this
        release does not check it.
        """

    def recursive_read_only_mounts(self, host: Host, runtime: RuntimeVersion) -> bool:
        """Whether the runtime can make read-only what is mounted below a volume."""

    def mount_path(self, path: str) -> str:
        """A container path in the form that the runtime receives."""

    def host_path(self, path: str) -> str:
        """A pod's host path as the kubelet uses it."""

    def is_absolute(self, path: str) -> bool: ...
    def join(self, *parts: str) -> str:
        """A path of the kubelet's own, in the system's notation."""

    def split(self, path: str) -> list[str]:
        """The components of a path that a pod specifies."""

    def parent(self, path: str) -> str:
        """The parent directory of one of the kubelet's own paths."""

    def file_error(self, operation: str, path: str, problem: OSError) -> str:
        """An error as a program of the system formats it: `open /etc/hosts: no such file or
        directory`.
        """

    def single_file_mounts(self, runtime: RuntimeVersion) -> bool: ...
    def manages_hosts_file(self, runtime: RuntimeVersion, release: tuple[int, int]) -> bool: ...
    def hosts_file(self) -> tuple[str, str]:
        """Node path, and container path."""

    def mount_propagation(
        self, requested: str | None
    ) -> Literal["private", "hostToContainer", "bidirectional"]: ...

    # Volumes
    def mount_tmpfs(self, files: Files, path: str, size: int) -> bool:
        """Creates the directory of a memory volume; returns whether it really is in memory. An
        existing one is left unchanged.
        """

    def unmount(self, files: Files, path: str) -> None:
        """Empties the directory and, if it was in memory, puts it back on disk."""

    def mounted(self, files: Files, path: str) -> bool:
        """Whether the path is a mount point or a link."""

    def mount_huge_pages(self, files: Files, path: str, page_size: str) -> None:
        """Raises VolumeFailure."""

    def mount_share(
        self, files: Files, source: str, target: str, kind: str, options: tuple[str, ...]
    ) -> None:
        """Whether the system's mount command supports a share or file system of this kind. Raises
        VolumeFailure.
        """

    def missing_disk(self, kind: str, name: str, release: tuple[int, int]) -> str:
        """Why a kubelet does not find a cloud disk that is attached to its node; empty when it
        does.
        """

    def format_disk(
        self, disk: CloudDisk, file_system: str, device: str, target: str, read_only: bool
    ) -> None:
        """Formats a new disk, and checks the file system of a used disk. Raises VolumeFailure."""

    def mount_disk(self, files: Files, disk: CloudDisk, path: str, now: float) -> None:
        """Mounts it once for the node. Raises OSError and ContentError."""

    def disk_mounted(self, files: Files, path: str) -> bool: ...
    def unmount_disk(self, files: Files, path: str) -> None: ...
    def show_file_system(self, files: Files, source: str, target: str, read_only: bool) -> None:
        """Makes the node's mount visible to a pod. A no-op when it already is."""

    def hide_file_system(self, files: Files, target: str) -> None:
        """Undoes `show_file_system` when the pod no longer needs it."""

    def check_storage(self, request: StorageRequest) -> None:
        """Whether the system can use a storage system of this kind. Raises VolumeFailure with the
        plugin's own text.
        """

    def mount_export(self, files: Files, content: DiskContent, target: str, now: float) -> None:
        """Mounts a volume of a storage server. Raises OSError and ContentError."""

    def mount_smb(
        self,
        files: HostFiles,
        mappings: dict[str, str],
        share: FileShare,
        target: str,
        user: str,
        password: str,
        options: tuple[str, ...],
        now: float,
    ) -> None:
        """Mounts a cloud share; `mappings` are the node's. Raises VolumeFailure, OSError and
        ContentError.
        """

    def ungrowable(self) -> str:
        """Why a mounted file system cannot be expanded; empty when it can."""

    def registers_plugins(self, release: tuple[int, int]) -> bool:
        """Whether a kubelet of this release watches for plugins that register."""

    def prepares_claims(self) -> bool:
        """Whether the kubelet prepares the devices of resource claims."""

    def bind(self, files: Files, source: str, target: str) -> None:
        """Bind-mounts a directory at a second path. A no-op when that is already done."""

    def block_devices(self) -> str:
        """Why raw devices cannot be given to containers; empty when they can."""

    def set_ownership(
        self,
        files: HostFiles,
        path: str,
        fs_group: int | None,
        read_only: bool = False,
        policy: str | None = None,
    ) -> None:
        """Gives a volume to the pod's group. `policy` is the pod's fsGroupChangePolicy where it
        applies.
        """

    def owner_group(self, files: Files, path: str) -> int | None:
        """None where groups have no meaning."""

    def set_owner(self, files: Files, path: str, user: int, release: tuple[int, int]) -> None:
        """Raises VolumeFailure."""

    def replace_link(self, files: Files, target: str, link: str) -> None:
        """Switches `..data` to a new version of a volume."""

    def check_host_path(self, files: Files, path: str, kind: str) -> None:
        """Raises VolumeFailure."""

    # Statistics and eviction
    def cadvisor_stats(self, runtime: RuntimeVersion) -> bool:
        """Whether pods are measured by cAdvisor alone, without the runtime."""

    def cadvisor_containers(self) -> bool:
        """Whether cAdvisor measures containers at all."""

    def node_stats(
        self,
        host: Host,
        containers: Sequence[ContainerStats],
        sandboxes: Sequence[SandboxStats],
        now: float,
    ) -> Object:
        """`memory`, `network` and perhaps `rlimit` of the node in /stats/summary."""

    def system_containers(
        self, node: Object, pods: Sequence[Object], now: float, started: float
    ) -> list[Object]:
        """`systemContainers`, from the statistics of the node and of all pods; `started` is the
        kubelet's.
        """

    def pod_network_stats(self, stats: SandboxStats | None) -> Object | None: ...
    def memory_stats(self, stats: ContainerStats, limit: int) -> Object:
        """Memory of a container; `limit` is 0 where there is none."""

    def pod_memory_stats(self, containers: Sequence[Object], limit: int) -> Object:
        """Memory of a pod, from `memory_stats` of its containers, of which there is at least
        one.
        """

    def volume_disk(self, host: Host, in_memory: bool) -> DiskSpace:
        """The file system that a volume is on."""

    def no_such_file(self, path: str) -> str:
        """Go's error text for stat on a file that does not exist."""

    def available_memory(self, use: MemoryUse) -> tuple[int, int]:
        """What is left for the signal memory.available, and of how much."""

    def signals(self, host: Host, release: tuple[int, int]) -> Sequence[str]:
        """The eviction signals that are observed."""
