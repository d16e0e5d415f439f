"""A Linux machine: its identity, the files of a fresh installation, and an OOM killer."""

from __future__ import annotations

from functools import cache
from typing import Final

from transom.kit.clock import Clock
from transom.machines.api import Hardware, MemoryUse, SystemInfo
from transom.machines.inodes import Inode
from transom.machines.machine import BaseHost, MachineAccount
from transom.machines.saving import Document, SavedContents
from transom.machines.styles import POSIX
from transom.machines.trees import Entry, TreeDevice, TreeFile, TreeFolder, TreeLink, make_tree

KERNEL: Final = "5.10.0-28-amd64"
OS_IMAGE: Final = "Debian GNU/Linux 11 (bullseye)"
_CACHE: Final = 512 << 20  # cache of files read since boot; dropped first when memory is short

_OS_RELEASE = b"""PRETTY_NAME="Debian GNU/Linux 11 (bullseye)"
NAME="Debian GNU/Linux"
VERSION_ID="11"
VERSION="11 (bullseye)"
VERSION_CODENAME=bullseye
ID=debian
HOME_URL="https://www.debian.org/"
SUPPORT_URL="https://www.debian.org/support"
BUG_REPORT_URL="https://bugs.debian.org/"
"""
NAME_SERVER: Final = "10.0.2.3"  # shared by machines of all systems
_HOSTS = (
    b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost "
    b"ip6-loopback\nff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n"
)

_INSTALLED: dict[str, Entry] = {
    **dict.fromkeys(
        (
            "/boot",
            "/etc/cni/net.d",
            "/etc/kubernetes",
            "/home",
            "/media",
            "/mnt",
            "/opt/cni/bin",
            "/proc",
            "/run",
            "/srv",
        ),
        TreeFolder(),
    ),
    **dict.fromkeys(
        (
            "/sys/fs/bpf",
            "/usr/bin",
            "/usr/lib",
            "/usr/local/bin",
            "/usr/sbin",
            "/var/cache",
            "/var/lib",
        ),
        TreeFolder(),
    ),
    **dict.fromkeys(("/var/log/containers", "/var/log/pods", "/var/spool"), TreeFolder()),
    "/root": TreeFolder(0o700),
    "/tmp": TreeFolder(0o1777),
    "/var/tmp": TreeFolder(0o1777),
    "/dev/shm": TreeFolder(0o1777),
    "/bin": TreeLink("usr/bin"),
    "/sbin": TreeLink("usr/sbin"),
    "/lib": TreeLink("usr/lib"),
    "/var/run": TreeLink("/run"),
    "/var/lock": TreeLink("/run/lock"),
    **{
        f"/dev/{name}": TreeDevice()
        for name in ("null", "zero", "full", "random", "urandom", "tty")
    },
    "/dev/kmsg": TreeDevice("char", 0o644),
    "/dev/sda": TreeDevice("block", 0o660),
    "/dev/sda1": TreeDevice("block", 0o660),
    "/etc/hosts": TreeFile(_HOSTS),
    "/etc/resolv.conf": TreeFile(f"nameserver {NAME_SERVER}\n".encode()),
    "/etc/os-release": TreeLink("../usr/lib/os-release"),
    "/usr/lib/os-release": TreeFile(_OS_RELEASE),
    "/etc/passwd": TreeFile(
        b"root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    ),
    "/etc/group": TreeFile(b"root:x:0:\nnogroup:x:65534:\n"),
    "/var/log/syslog": TreeFile(b"", 0o640),
}


@cache
def installed_linux_files() -> Inode:
    """The disk of a fresh machine."""
    return make_tree(POSIX, _INSTALLED)


class LinuxHost(BaseHost):
    __slots__ = ("_boots", "_identity")

    style = POSIX
    inode_size = 16384
    system_memory = 384 << 20
    system_cores = 0.02

    def __init__(
        self, name: str, clock: Clock, hardware: Hardware | None = None, *, seed: str = ""
    ) -> None:
        self._boots = 0
        self._identity: SystemInfo | None = None  # until the next boot
        super().__init__(name, clock, hardware, seed, installed_linux_files())
        self.files.write("/etc/hostname", f"{name}\n".encode())
        self.files.write("/etc/machine-id", f"{self.machine_id}\n".encode(), 0o444)

    def _start(self) -> None:
        super()._start()
        self.files.mount_tmpfs("/run", self.hardware.memory // 10)
        self.files.mkdir("/run/lock")

    @property
    def machine_id(self) -> str:
        return self.digest("machine").hex()

    @property
    def identity(self) -> SystemInfo:
        if self._identity is None:
            self._identity = SystemInfo(
                hostname=self.name,
                machine_id=self.machine_id,
                system_uuid=self.uuid("system"),
                boot_id=self.uuid(f"boot {self._boots}"),
                kernel_version=KERNEL,
                os_image=OS_IMAGE,
                operating_system="linux",
                architecture="amd64",
            )
        return self._identity

    def reboot(self) -> None:
        self._boots += 1
        self._identity = None
        super().reboot()

    def save(self, contents: SavedContents) -> Document:
        return {**super().save(contents), "boots": self._boots}

    def restore(self, saved: Document, contents: SavedContents) -> None:
        self._boots = saved["boots"]
        self._identity = None
        super().restore(saved, contents)

    # Memory

    def memory(self) -> MemoryUse:
        total = self.hardware.memory
        used = min(self.committed, total)
        cached = min(_CACHE, total - used)
        return MemoryUse(total=total, working_set=used, usage=used + cached, rss=used, paged=0)

    def resident(self, size: int) -> int:
        return size

    def resize(self, account: MachineAccount, size: int) -> bool:
        """Always granted; when memory is used up a process is killed, perhaps the requesting
        one.
        """
        if account not in self.accounts:
            return False
        self.committed += size - account.memory
        account.memory = size
        while self.committed > self.hardware.memory and (victim := self.oom_victim()) is not None:
            killed = victim.killed
            victim.close()
            if killed is not None:
                killed()
        return account in self.accounts

    def oom_victim(self) -> MachineAccount | None:
        """The process that the kernel would kill first: by size and `oom_score_adj`, in thousandths
        of all memory.
        """
        total = self.hardware.memory
        worst, chosen = 0.0, None
        for account in self.accounts:
            if account.killed is not None and account.oom_score_adj > -1000 and account.memory:
                points = max(1.0, account.memory + account.oom_score_adj * total / 1000)
                if points > worst:
                    worst, chosen = points, account
        return chosen
