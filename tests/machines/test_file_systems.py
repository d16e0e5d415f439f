"""Sockets that are listened at, and file systems of elsewhere that machines mount."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

import pytest

from transom.kit.clock import VirtualClock
from transom.machines import ntfs
from transom.machines.api import HostPathMount
from transom.machines.linux import LinuxHost
from transom.machines.windows.host import WindowsHost


async def answer(method: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


def test_a_socket_that_a_container_listens_at_is_the_nodes() -> None:
    host = LinuxHost("n", VirtualClock())
    host.files.mkdir("/srv/s")
    inside = host.container_files(LinuxHost("image", VirtualClock()).files.frozen())
    inside.add_mounts([HostPathMount("/run/s", "/srv/s")])
    received: list[int] = []
    stop = host.files.on_sockets(lambda: received.append(1))
    close = inside.listen("/run/s/x.sock", answer)
    assert (
        host.files.answerer("/srv/s/x.sock") is answer
        and host.files.stat("/srv/s/x.sock").kind == "socket"
    )
    close()
    with pytest.raises(ConnectionRefusedError):
        host.files.answerer("/srv/s/x.sock")
    inside.remove("/run/s/x.sock")
    assert len(received) == 3
    stop()
    inside.listen("/run/s/x.sock", answer)
    assert len(received) == 3


def test_a_file_system_moves_between_machines_and_fills_up() -> None:
    first, second = (LinuxHost(name, VirtualClock()) for name in "ab")
    disk = first.files.new_file_system(8192)
    for host in (first, second):
        host.files.mkdir("/mnt")
    first.files.mount(disk, "/mnt")
    first.files.write("/mnt/f", b"x")
    copy = disk.copy(8192, 0.0)
    with pytest.raises(OSError) as full:
        first.files.write("/mnt/g", bytes(9000))
    assert full.value.errno == errno.ENOSPC
    disk.space.capacity = 1 << 20
    first.files.write("/mnt/g", bytes(9000))
    first.files.unmount("/mnt")
    assert first.files.listdir("/mnt") == []
    second.files.mount(disk, "/mnt", read_only=True)
    assert second.files.read("/mnt/f") == b"x"
    with pytest.raises(OSError, match="Read-only"):
        second.files.write("/mnt/f", b"y")
    second.files.mount(copy, "/mnt")
    assert second.files.listdir("/mnt") == ["f"]
    second.files.unmount("/mnt")
    assert second.files.listdir("/mnt") == ["f", "g"]


def test_a_disk_of_another_system_cannot_be_mounted() -> None:
    linux, windows = LinuxHost("l", VirtualClock()), WindowsHost("w", VirtualClock())
    windows.files.mkdir("C:\\mnt")
    with pytest.raises(OSError):
        windows.files.mount(linux.files.new_file_system(8192), "C:\\mnt")


def test_a_mount_has_the_name_of_its_directory_on_windows() -> None:
    windows = WindowsHost("w", VirtualClock())
    windows.files.mkdir("C:\\Data")
    windows.files.mount(windows.files.new_file_system(1 << 20), "C:\\Data")
    windows.files.write("C:\\data\\f.txt", b"x")
    assert ntfs.real_name(windows.files, r"C:\data") == "Data"
    assert ntfs.real_name(windows.files, r"C:\data\F.TXT") == "f.txt"
