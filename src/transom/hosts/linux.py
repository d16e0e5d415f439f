"""A Linux machine: its identity, the files of a fresh installation, and memory that is used up by killing somebody."""

from __future__ import annotations

from functools import cache
from typing import Final

from transom.hosts.api import Hardware, Identity, MemoryUse
from transom.hosts.machine import Account, Machine
from transom.hosts.nodes import Node
from transom.hosts.styles import POSIX
from transom.hosts.trees import Device, Entry, File, Folder, Link, tree
from transom.kit.clock import Clock

KERNEL: Final = "5.10.0-28-amd64"
OS_IMAGE: Final = "Debian GNU/Linux 11 (bullseye)"
_CACHE: Final = 512 << 20  # of files read since boot; the first to go when memory is short

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
_HOSTS = b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n"

_INSTALLED: dict[str, Entry] = {
    **dict.fromkeys(
        ("/boot", "/etc/cni/net.d", "/etc/kubernetes", "/home", "/media", "/mnt", "/opt/cni/bin", "/proc", "/run", "/srv"),
        Folder(),
    ),
    **dict.fromkeys(("/sys", "/usr/bin", "/usr/lib", "/usr/local/bin", "/usr/sbin", "/var/cache", "/var/lib"), Folder()),
    **dict.fromkeys(("/var/log/containers", "/var/log/pods", "/var/spool"), Folder()),
    "/root": Folder(0o700),
    "/tmp": Folder(0o1777),
    "/var/tmp": Folder(0o1777),
    "/dev/shm": Folder(0o1777),
    "/bin": Link("usr/bin"),
    "/sbin": Link("usr/sbin"),
    "/lib": Link("usr/lib"),
    "/var/run": Link("/run"),
    "/var/lock": Link("/run/lock"),
    **{f"/dev/{name}": Device() for name in ("null", "zero", "full", "random", "urandom", "tty")},
    "/dev/kmsg": Device("char", 0o644),
    "/dev/sda": Device("block", 0o660),
    "/dev/sda1": Device("block", 0o660),
    "/etc/hosts": File(_HOSTS),
    "/etc/resolv.conf": File(b"nameserver 10.0.2.3\n"),
    "/etc/os-release": Link("../usr/lib/os-release"),
    "/usr/lib/os-release": File(_OS_RELEASE),
    "/etc/passwd": File(b"root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"),
    "/etc/group": File(b"root:x:0:\nnogroup:x:65534:\n"),
    "/var/log/syslog": File(b"", 0o640),
}


@cache
def installed() -> Node:
    """What is on the disk of a fresh machine."""
    return tree(POSIX, _INSTALLED)


class LinuxHost(Machine):
    __slots__ = ("_boots",)

    style = POSIX
    inode_size = 16384
    system_memory = 384 << 20
    system_cores = 0.02

    def __init__(self, name: str, clock: Clock, hardware: Hardware | None = None, *, seed: str = "") -> None:
        self._boots = 0
        super().__init__(name, clock, hardware, seed, installed())
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
    def identity(self) -> Identity:
        return Identity(
            hostname=self.name,
            machine_id=self.machine_id,
            system_uuid=self.uuid("system"),
            boot_id=self.uuid(f"boot {self._boots}"),
            kernel_version=KERNEL,
            os_image=OS_IMAGE,
            operating_system="linux",
            architecture="amd64",
        )

    def reboot(self) -> None:
        self._boots += 1
        super().reboot()

    # Memory

    def memory(self) -> MemoryUse:
        total = self.hardware.memory
        used = min(self.committed, total)
        cached = min(_CACHE, total - used)
        return MemoryUse(total=total, working_set=used, usage=used + cached, rss=used, paged=0)

    def memory_pressure(self) -> float:
        """The part of physical memory that is in use; nobody gets more than all of it."""
        return self.committed / self.hardware.memory

    def resident(self, size: int) -> int:
        return size

    def resize(self, account: Account, size: int) -> bool:
        """Always granted; when memory is used up somebody is killed, perhaps the one that asks."""
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

    def oom_victim(self) -> Account | None:
        """Whom the kernel would kill first: by size and `oom_score_adj`, which counts as thousandths of all memory."""
        total = self.hardware.memory
        worst, chosen = 0.0, None
        for account in self.accounts:
            if account.killed is not None and account.oom_score_adj > -1000 and account.memory:
                points = max(1.0, account.memory + account.oom_score_adj * total / 1000)
                if points > worst:
                    worst, chosen = points, account
        return chosen
