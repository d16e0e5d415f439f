"""What differs between a Linux and a Windows kubelet, as one interface; `os_linux.RULES` and `os_windows.RULES` fill it.

Each method is one decision that Kubernetes' kubelet takes by operating system. Nothing else in the kubelet may ask which
system it runs on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from transom.hosts.api import Disk, Files, Host, Identity
from transom.machinery.objects import Object
from transom.runtime.api import (
    ContainerStats,
    Image,
    LinuxContainer,
    LinuxSandbox,
    SandboxStats,
    Version,
    WindowsContainer,
)

if TYPE_CHECKING:
    from transom.kubelet.config import KubeletConfig


class OsRules(Protocol):
    @property
    def name(self) -> Literal["linux", "windows"]: ...

    # The node
    def as_guided(self, config: KubeletConfig) -> KubeletConfig:
        """The settings with what the guides for nodes of this system start a kubelet with."""

    def check_config(self, config: KubeletConfig) -> list[str]:
        """Why a kubelet with these settings refuses to start."""

    def refuses_overcommitment(self) -> bool:
        """Whether a kubelet that is to reserve more than the machine has does not start, or shows that nothing is left."""

    def default_labels(self, identity: Identity, release: tuple[int, int]) -> Mapping[str, str]: ...
    def node_info(self, identity: Identity, runtime: Version, config: KubeletConfig) -> Object: ...
    def default_eviction(self, release: tuple[int, int] = (1, 20)) -> Mapping[str, str]: ...
    def capacity_extras(self, host: Host) -> Mapping[str, str]:
        """Resources beside cpu, memory, pods and ephemeral-storage."""

    def ready_message(self, release: tuple[int, int] = (1, 20)) -> str: ...
    def apparmor_problem(self, pod: Object, host: Host) -> str:
        """Why the profiles that a pod asks for cannot be enforced here; empty when they can, or where nobody looks."""

    def default_pause_image(self) -> str: ...
    def forwarding_problem(self, release: tuple[int, int]) -> str:
        """Why a kubelet of this release cannot forward ports; empty when it can."""

    # Sandboxes and containers
    def sandbox_options(self, pod: Object, config: KubeletConfig) -> LinuxSandbox: ...
    def container_options(
        self, pod: Object, container: Object, image: Image, host: Host, config: KubeletConfig
    ) -> tuple[LinuxContainer | None, WindowsContainer | None]:
        """Raises ContainerFailure."""

    def mount_path(self, path: str) -> str:
        """A container path as the runtime is told it."""

    def host_path(self, path: str) -> str:
        """A host path of a pod as the kubelet uses it."""

    def is_absolute(self, path: str) -> bool: ...
    def join(self, *parts: str) -> str:
        """A path of the kubelet's own, as the system writes it."""

    def split(self, path: str) -> list[str]:
        """The parts of a path that a pod gave."""

    def file_error(self, operation: str, path: str, problem: OSError) -> str:
        """A failure as a program of the system words it: `open /etc/hosts: no such file or directory`."""

    def single_file_mounts(self, runtime: Version) -> bool: ...
    def manages_hosts_file(self, runtime: Version, release: tuple[int, int]) -> bool: ...
    def hosts_file(self) -> tuple[str, str]:
        """Of the node, and of a container."""

    def mount_propagation(self, asked: str | None) -> Literal["private", "hostToContainer", "bidirectional"]: ...

    # Volumes
    def mount_tmpfs(self, files: Files, path: str, size: int) -> bool:
        """Makes the directory of a memory volume; whether it really is in memory. Nothing happens to one that is there."""

    def unmount(self, files: Files, path: str) -> None:
        """The directory is empty and on disk again, when it was in memory."""

    def mounted(self, files: Files, path: str) -> bool:
        """Whether what is at the path comes from elsewhere: it is mounted, or linked."""

    def mount_huge_pages(self, files: Files, path: str, page_size: str) -> None:
        """Raises VolumeFailure."""

    def mount_share(self, files: Files, source: str, target: str, kind: str, options: tuple[str, ...]) -> None:
        """Whether the system's mount command takes a share or file system of this kind. Raises VolumeFailure."""

    def missing_disk(self, kind: str, name: str, release: tuple[int, int]) -> str:
        """Why a kubelet does not find the disk of a cloud that is attached to its node; empty when it does."""

    def unformattable(self, file_system: str) -> str:
        """Why a new disk cannot be formatted so; empty when it can."""

    def ungrowable(self) -> str:
        """Why a mounted file system cannot be made larger; empty when it can."""

    def registers_plugins(self, release: tuple[int, int]) -> bool:
        """Whether a kubelet of this release looks for drivers that want to register."""

    def bind(self, files: Files, source: str, target: str) -> None:
        """Shows a directory at another place too. Nothing happens where one is shown already."""

    def block_devices(self) -> str:
        """Why raw devices cannot be given to containers; empty when they can."""

    def set_ownership(
        self, files: Files, path: str, fs_group: int | None, read_only: bool = False, policy: str | None = None
    ) -> None:
        """Gives a volume to the pod's group. `policy` is the pod's fsGroupChangePolicy where that counts."""

    def owner_group(self, files: Files, path: str) -> int | None:
        """None where groups mean nothing."""

    def set_owner(self, files: Files, path: str, user: int) -> None:
        """Raises VolumeFailure."""

    def replace_link(self, files: Files, target: str, link: str) -> None:
        """Switches `..data` to a new version of a volume."""

    def check_host_path(self, files: Files, path: str, kind: str) -> None:
        """Raises VolumeFailure."""

    # Statistics and eviction
    def cadvisor_stats(self, runtime: Version) -> bool:
        """Whether pods are measured by cAdvisor alone and not by asking the runtime."""

    def cadvisor_containers(self) -> bool:
        """Whether cAdvisor knows containers at all."""

    def node_stats(
        self, host: Host, containers: Sequence[ContainerStats], sandboxes: Sequence[SandboxStats], now: float
    ) -> Object:
        """`memory`, `network` and perhaps `rlimit` of the node in /stats/summary."""

    def system_containers(self, node: Object, pods: Sequence[Object], now: float, started: float) -> list[Object]:
        """`systemContainers`, from the statistics of the node and of all pods; `started` is the kubelet's."""

    def pod_network_stats(self, stats: SandboxStats | None) -> Object | None: ...
    def memory_stats(self, stats: ContainerStats, limit: int) -> Object:
        """Of a container; `limit` is 0 where there is none."""

    def pod_memory_stats(self, containers: Sequence[Object], limit: int) -> Object:
        """Of a pod, from `memory_stats` of its containers, of which there is at least one."""

    def volume_disk(self, host: Host, in_memory: bool) -> Disk:
        """The file system that a volume is on."""

    def no_such_file(self, path: str) -> str:
        """What looking up a file that is not there gives, in Go's words."""

    def signals(self, host: Host) -> Sequence[str]:
        """The eviction signals that are observed."""
