"""The interface of a machine for the kubelet, the runtime and the network, whatever its operating
system.

`Host` is the machine, `Files` its disks. An emulated machine keeps both in memory; paths are in the
notation of the machine's own operating system (`/var/lib/kubelet`, `C:\\var\\lib\\kubelet`).
Failures are `OSError`s with the errno of the same call on a real machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, Self

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple

Kind = Literal["file", "directory", "symlink", "socket", "pipe", "char", "block"]


class FileTimes(float):
    """When a file was last written, with the other times of a file where they differ from it."""

    __slots__ = ("accessed", "created")
    accessed: float
    created: float

    def __new__(cls, written: float, accessed: float, created: float) -> Self:
        times = super().__new__(cls, written)
        times.accessed = accessed
        times.created = created
        return times


class Stat(NamedTuple):
    kind: Kind
    mode: int  # permission bits; on Windows derived from the read-only attribute
    uid: int
    gid: int
    size: int
    mtime: float  # FileTimes where the other times differ

    @property
    def accessed(self) -> float:
        return self.mtime.accessed if isinstance(self.mtime, FileTimes) else self.mtime

    @property
    def created(self) -> float:
        return self.mtime.created if isinstance(self.mtime, FileTimes) else self.mtime


class Files(Protocol):
    """A tree of files. Symlinks are followed, except by `readlink`, `remove`, `rename` and
    `stat(follow=False)`.
    """

    def mkdir(self, path: str, mode: int = 0o755, *, parents: bool = True) -> None:
        """With `parents`, no error when it exists."""

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Creates or replaces; the parent must exist. Without space left it raises ENOSPC and
        changes nothing.
        """

    def append(self, path: str, data: bytes) -> None:
        """Creates a missing file, too."""

    def appender(self, path: str) -> Callable[[bytes], None]:
        """Returns a function that appends to the current file, or to a new one, even after a
        rename: an open log.
        """

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes: ...
    def symlink(self, target: str, path: str) -> None: ...
    def readlink(self, path: str) -> str: ...
    def rename(self, old: str, new: str) -> None: ...
    def remove(self, path: str, *, recursive: bool = False) -> None:
        """With `recursive`, no error when it does not exist."""

    def stat(self, path: str, *, follow: bool = True) -> Stat: ...
    def exists(self, path: str) -> bool: ...
    def listdir(self, path: str) -> list[str]: ...
    def some_names(self, path: str, most: int) -> list[str]:
        """Like `listdir`, for a directory in which containers may have created any number of files:
        at most `most`, sorted.
        """

    def chmod(self, path: str, mode: int) -> None: ...
    def chown(self, path: str, uid: int, gid: int) -> None: ...
    def make(self, path: str, kind: Kind, mode: int = 0o600) -> None:
        """A socket, pipe or device without content."""

    def fill(self, directory: str, entries: Sequence[tuple[str, bytes | str, int]]) -> None:
        """Like `write` for files (name, content, mode) and `symlink` for links (name, target) in a
        directory, as one operation.
        """

    def usage(self, path: str) -> tuple[int, int]:
        """Bytes and inodes of a tree, without following links."""


class HostFiles(Files, Protocol):
    """Files of a machine, parts of which containers can change at any time."""

    def statfs(self, path: str) -> DiskSpace:
        """The file system that contains the path."""

    def give_to_group(self, path: str, group: int, bits: int, directory_bits: int) -> None:
        """Changes a whole tree: its group, and permission bits to add, `directory_bits` to
        directories only. Links are neither changed nor followed.
        """

    def below(self, directory: str) -> Files:
        """The same files, restricted to a directory: a path that leaves it fails with EACCES."""


class DiskSpace(NamedTuple):
    capacity: int
    used: int
    inodes: int  # 0: this file system does not count them
    inodes_used: int

    @property
    def available(self) -> int:
        return max(0, self.capacity - self.used)


@dataclass(frozen=True, slots=True)
class Hardware:
    cpus: int = 4
    memory: int = 8 << 30
    disk: int = 100 << 30
    disk_used: int = 12 << 30  # used by the operating system itself
    page_file: int = 2 << 30  # of Windows
    swap: int = 0  # of Linux
    threads_per_core: int = 1
    numa_nodes: int = 1  # each is a socket with the same number of cores


class SystemInfo(NamedTuple):
    """The operating system's identity, as in a node's `status.nodeInfo`."""

    hostname: str
    machine_id: str
    system_uuid: str
    boot_id: str
    kernel_version: str
    os_image: str
    operating_system: Literal["linux", "windows"]
    architecture: str


class MemoryUse(NamedTuple):
    """The memory of the whole machine."""

    total: int
    working_set: int
    usage: int  # Linux: with caches; Windows: committed bytes
    rss: int
    paged: int  # bytes that went to the page file
    commit_limit: int = 0  # Windows: physical memory and page file


class Host(Protocol):
    hardware: Hardware

    @property
    def files(self) -> HostFiles: ...
    @property
    def identity(self) -> SystemInfo: ...
    @property
    def boot_time(self) -> float: ...
    def disk(self) -> DiskSpace: ...
    def memory(self) -> MemoryUse: ...
    def cpu_seconds(self) -> float:
        """CPU time used since boot, in total."""

    def reboot(self) -> None:
        """All processes have ended; the boot id changes; files stay."""

    def on_reboot(self, function: Callable[[], None]) -> None: ...


class HostPathMount(NamedTuple):
    """A part of the host's files, mounted at a path of the container."""

    container_path: str
    host_path: str
    read_only: bool = False


class ContainerFiles(Files, Protocol):
    """Files as a container's programs see them: its image, a writable layer on top, and mounts.
    Paths are the container's own.
    """

    def in_memory(self, path: str) -> bool:
        """Whether it is on a tmpfs."""

    def set_times(
        self,
        path: str,
        written: float | None = None,
        accessed: float | None = None,
        created: float | None = None,
    ) -> None:
        """None leaves a time unchanged. Linux has no creation time."""

    def link(self, existing: str, path: str) -> None:
        """Another name for a file."""

    def link_count(self, path: str) -> int: ...
