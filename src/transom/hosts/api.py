"""What a kubelet, a runtime and the network may ask of a machine, whatever its operating system.

`Host` is the machine, `Files` its disks. An emulated machine keeps both in memory; paths are written as the machine's own
operating system writes them (`/var/lib/kubelet`, `C:\\var\\lib\\kubelet`). Failures are `OSError`s with the errno that
the call would give on a real machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

Kind = Literal["file", "directory", "symlink", "socket", "pipe", "char", "block"]


class Stat(NamedTuple):
    kind: Kind
    mode: int  # permission bits; on Windows only what the read-only attribute makes of them
    uid: int
    gid: int
    size: int
    mtime: float


class Files(Protocol):
    """A tree of files. Symlinks are followed, except by `readlink`, `remove`, `rename` and `stat(follow=False)`."""

    def mkdir(self, path: str, mode: int = 0o755, *, parents: bool = True) -> None:
        """With `parents` no error when it is there already."""

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Creates or replaces; the parent must exist. No space left: ENOSPC, and nothing has changed."""

    def append(self, path: str, data: bytes) -> None:
        """Creates it, too."""

    def appender(self, path: str) -> Callable[[bytes], None]:
        """Adds to the file that is there now, or to a new one, wherever it is moved: an open log."""

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes: ...
    def symlink(self, target: str, path: str) -> None: ...
    def readlink(self, path: str) -> str: ...
    def rename(self, old: str, new: str) -> None: ...
    def remove(self, path: str, *, recursive: bool = False) -> None:
        """With `recursive` no error when it is not there."""

    def stat(self, path: str, *, follow: bool = True) -> Stat: ...
    def exists(self, path: str) -> bool: ...
    def listdir(self, path: str) -> list[str]: ...
    def chmod(self, path: str, mode: int) -> None: ...
    def chown(self, path: str, uid: int, gid: int) -> None: ...
    def make(self, path: str, kind: Kind, mode: int = 0o600) -> None:
        """A socket, pipe or device without content."""

    def fill(self, directory: str, entries: Sequence[tuple[str, bytes | str, int]]) -> None:
        """As `write` of files (name, content, mode) and `symlink` of links (name, target) in a directory, in one go."""

    def usage(self, path: str) -> tuple[int, int]:
        """Bytes and inodes of a tree, links not followed."""


class Disk(NamedTuple):
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
    disk_used: int = 12 << 30  # by the operating system, before anything of ours
    page_file: int = 2 << 30


class Identity(NamedTuple):
    """What the operating system says of itself, as a node's `status.nodeInfo` has it."""

    hostname: str
    machine_id: str
    system_uuid: str
    boot_id: str
    kernel_version: str
    os_image: str
    operating_system: Literal["linux", "windows"]
    architecture: str


class MemoryUse(NamedTuple):
    """Of the whole machine."""

    total: int
    working_set: int
    usage: int  # Linux: with caches; Windows: committed bytes
    rss: int
    paged: int  # bytes that went to the page file


class Host(Protocol):
    hardware: Hardware

    @property
    def files(self) -> Files: ...
    @property
    def identity(self) -> Identity: ...
    @property
    def boot_time(self) -> float: ...
    def disk(self) -> Disk: ...
    def memory(self) -> MemoryUse: ...
    def cpu_seconds(self) -> float:
        """Used by everything since boot."""

    def reboot(self) -> None:
        """Everything that ran has ended; the boot id is another; files stay."""

    def on_reboot(self, function: Callable[[], None]) -> None: ...


class Mounted(NamedTuple):
    """A part of the host's files that a container sees at a path of its own."""

    container_path: str
    host_path: str
    read_only: bool = False


class ContainerFiles(Files, Protocol):
    """Files as a container's programs see them: its image, a writable layer on top, and mounts. Paths are the container's
    own."""

    def in_memory(self, path: str) -> bool:
        """Whether it is on a tmpfs."""
