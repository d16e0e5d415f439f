"""Machines whose files are a real directory, for runtimes whose containers are real processes.

A `RealHost` is a part of this machine: its disk is the one that contains the directory; its memory
and processor time are its containers' usage, which the runtime measures (`count_containers`), within its
configured hardware. A Windows one is backed by an emulated machine for what only Windows has: the
registry, its build, the host networking service.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from transom.kit.clock import Clock
from transom.machines.api import DiskSpace, Hardware, MemoryUse, SystemInfo
from transom.machines.files import FileTree
from transom.machines.linux import LinuxHost
from transom.machines.machine import HostClock
from transom.machines.realfiles import RealFiles
from transom.machines.styles import POSIX, WINDOWS
from transom.machines.windows.accounts import AccountDatabase
from transom.machines.windows.hns import HostNetworkService
from transom.machines.windows.host import WindowsHost
from transom.machines.windows.registry import WindowsRegistry
from transom.windows.builds import DEFAULT, WindowsBuild

log = logging.getLogger("transom.machines")

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_RUN: Final = "/run"
_RESOLV_CONF: Final = "/etc/resolv.conf"


class ContainersUsage(NamedTuple):
    """The usage of all containers of a node together."""

    cpu_seconds: float = 0.0
    usage: int = 0
    working_set: int = 0
    rss: int = 0
    paged: int = 0


class RealHost:
    """`Host`. The runtime registers the usage of its containers with `count_containers`."""

    def __init__(
        self,
        model: LinuxHost | WindowsHost,
        folder: Path,
        *,
        windows: bool = False,
    ) -> None:
        self.name = model.name
        self.hardware: Hardware = model.hardware
        self._containers: Callable[[], ContainersUsage] = ContainersUsage
        self._model = model
        fresh = not folder.exists()
        self.files = RealFiles(folder, WINDOWS if windows else POSIX)
        if fresh:
            _install(model.files, self.files, "C:\\" if windows else "/", windows=windows)
        self._on_reboot: list[Callable[[], None]] = []
        self._boot_time = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    @property
    def clock(self) -> HostClock:
        return self._model.clock

    def time(self) -> float:
        return self._model.time()

    @property
    def identity(self) -> SystemInfo:
        return self._model.identity

    @property
    def boot_time(self) -> float:
        return self._boot_time

    def disk(self) -> DiskSpace:
        found = os.statvfs(self.files.folder)
        capacity = found.f_blocks * found.f_frsize
        return DiskSpace(
            capacity,
            capacity - found.f_bavail * found.f_frsize,
            found.f_files,
            found.f_files - found.f_ffree,
        )

    def memory(self) -> MemoryUse:
        use, total, system = self._containers(), self.hardware.memory, self._model.system_memory
        return MemoryUse(
            total=total,
            working_set=min(total, system + use.working_set),
            usage=min(total, system + use.usage),
            rss=min(total, system + use.rss),
            paged=use.paged,
            commit_limit=self._model.memory().commit_limit,
        )

    def cpu_seconds(self) -> float:
        return self._model.cpu_seconds() + self._containers().cpu_seconds

    def count_containers(self, usage: Callable[[], ContainersUsage]) -> None:
        """`usage` is called whenever the machine's load is read."""
        self._containers = usage

    def reboot(self) -> None:
        self._model.reboot()
        self._boot_time = self.time()
        self.files.drop_memory()
        for function in self._on_reboot:
            function()

    def on_reboot(self, function: Callable[[], None]) -> None:
        self._on_reboot.append(function)

    def destroy(self) -> None:
        self.files.destroy()


class RealLinuxHost(RealHost):
    def __init__(
        self,
        name: str,
        clock: Clock,
        folder: Path,
        hardware: Hardware | None = None,
        *,
        seed: str = "",
    ) -> None:
        super().__init__(LinuxHost(name, clock, hardware, seed=seed), folder)
        # Before anything is mounted in it: earlier mounts would be hidden below and could not be
        # unmounted.
        with suppress(OSError):
            self.files.share_mounts()
        self._at_boot("mount /run", self._mount_run)
        self._at_boot(f"write {_RESOLV_CONF}", self._write_resolv_conf)

    @property
    def identity(self) -> SystemInfo:
        """Its own name and numbers, with this machine's real kernel."""
        return self._model.identity._replace(
            kernel_version=platform.release(),
            os_image=_os_image(),
            architecture=_ARCHITECTURES.get(platform.machine(), platform.machine()),
        )

    def reboot(self) -> None:
        super().reboot()
        self._at_boot("mount /run", self._mount_run)

    def _at_boot(self, what: str, step: Callable[[], None]) -> None:
        """A pod with a hostPath may have put a pipe or a link in the way."""
        try:
            step()
        except OSError as problem:
            log.warning("node %s cannot %s: %s", self.name, what, problem)

    def _write_resolv_conf(self) -> None:
        """Names are resolved as on this machine, unless a pod configures more."""
        if os.path.exists(_RESOLV_CONF):
            self.files.write(_RESOLV_CONF, Path(_RESOLV_CONF).read_bytes())

    def _mount_run(self) -> None:
        self.files.mkdir(_RUN)
        if not self.files.is_mount(_RUN):
            self.files.mount_tmpfs(_RUN, self.hardware.memory // 10)
        self.files.mkdir(f"{_RUN}/lock")


class RealWindowsHost(RealHost):
    def __init__(
        self,
        name: str,
        clock: Clock,
        folder: Path,
        hardware: Hardware | None = None,
        *,
        build: WindowsBuild = DEFAULT,
        seed: str = "",
    ) -> None:
        self._windows = WindowsHost(name, clock, hardware, build=build, seed=seed)
        super().__init__(self._windows, folder, windows=True)

    @property
    def build(self) -> WindowsBuild:
        return self._windows.build

    @property
    def registry(self) -> WindowsRegistry:
        return self._windows.registry

    @property
    def hns(self) -> HostNetworkService:
        return self._windows.hns

    @property
    def account_database(self) -> AccountDatabase:
        return self._windows.account_database

    @property
    def computer_name(self) -> str:
        return self._windows.computer_name


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"


def _install(source: FileTree, target: RealFiles, top: str, *, windows: bool) -> None:
    """A fresh machine's files, as far as this process may create them: devices require root."""
    separator = "\\" if windows else "/"

    def copy(path: str) -> None:
        for name in source.listdir(path):
            where = path.rstrip(separator) + separator + name
            found = source.stat(where, follow=False)
            if found.kind == "directory":
                target.mkdir(where)
                copy(where)
            elif found.kind == "symlink":
                target.symlink(source.readlink(where), where)
            elif found.kind == "file":
                target.write(where, source.read(where), found.mode)
            elif os.geteuid() == 0:
                target.make(where, found.kind, found.mode)
            if found.kind != "symlink" and not windows and target.exists(where):
                target.chmod(where, found.mode)

    copy(top)
