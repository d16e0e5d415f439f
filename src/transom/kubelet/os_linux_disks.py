"""How a Linux kubelet formats and mounts disks and shares. A part of `os_linux.LinuxRules`."""

from __future__ import annotations

import posixpath
from typing import Final, cast

from transom.cloud.content import DiskContent
from transom.cloud.disks import CloudDisk
from transom.cloud.shares import FileShare, ShareError
from transom.kit.goquote import go_quote
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.storage_requests import StorageRequest
from transom.kubelet.volumes.filemounts import (
    MountableFiles,
    is_mount_point,
    mount_content,
    unmount_content,
)
from transom.machines.api import Files, HostFiles
from transom.machines.styles import POSIX, WINDOWS

_MAKERS: Final = ("ext2", "ext3", "ext4", "xfs", "btrfs")  # mkfs.X is installed
_EXPORT_SIZE: Final = 100 << 30


class LinuxDisks:
    __slots__ = ()

    def format_disk(
        self, disk: CloudDisk, file_system: str, device: str, target: str, read_only: bool
    ) -> None:
        file_system = file_system or "ext4"
        if not disk.format:
            if read_only:
                raise VolumeFailure(
                    f"cannot mount unformatted disk {device} as we are manipulating it in "
                    "read-only mode"
                )
            if file_system not in _MAKERS:
                problem = f'exec: "mkfs.{file_system}": executable file not found in $PATH'
                raise VolumeFailure(
                    f"format of disk {go_quote(device)} failed: "
                    f"type:({go_quote(file_system)}) target:({go_quote(target)}) "
                    f'options:("defaults") errcode:({problem}) output:() '
                )
            disk.format = file_system
        elif disk.format.lower() != file_system.lower():
            raise VolumeFailure(
                _mount_error(
                    file_system,
                    ("defaults",),
                    device,
                    target,
                    f"mount: {target}: wrong fs type, bad option, bad superblock on "
                    f"{device}, missing codepage or helper program, "
                    "or other error.\n",
                )
            )

    def mount_disk(self, files: Files, disk: CloudDisk, path: str, now: float) -> None:
        files.mkdir(path, 0o750)
        mount_content(files, disk.content, POSIX, disk.size, now, path)

    def disk_mounted(self, files: Files, path: str) -> bool:
        return is_mount_point(files, path)

    def unmount_disk(self, files: Files, path: str) -> None:
        unmount_content(files, path)
        if files.exists(path):
            files.remove(path)

    def show_file_system(self, files: Files, source: str, target: str, read_only: bool) -> None:
        if not is_mount_point(files, target):
            files.mkdir(target, 0o750)
            cast(MountableFiles, files).mount_bind(source, target, read_only)

    def hide_file_system(self, files: Files, target: str) -> None:
        if is_mount_point(files, target):
            cast(MountableFiles, files).unmount(target)
        files.remove(target, recursive=True)

    def check_storage(self, request: StorageRequest) -> None:
        return None

    def mount_export(self, files: Files, content: DiskContent, target: str, now: float) -> None:
        if not is_mount_point(files, target):
            files.mkdir(target, 0o750)
            mount_content(files, content, POSIX, _EXPORT_SIZE, now, target)

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
        if is_mount_point(files, target):
            return
        try:
            share.connect(user, password)
        except ShareError as problem:
            output = (
                f"mount error({problem.code}): {problem}\nRefer to the mount.cifs(8) manual page "
                "(e.g. man mount.cifs)\n"
            )
            source = share.path.replace("\\", "/")
            raise VolumeFailure(
                _mount_error("cifs", (*options, "<masked>"), source, target, output)
            ) from problem
        files.mkdir(target, 0o700)
        mount_content(files, share.content, WINDOWS, share.size, now, target)


def _mount_error(kind: str, options: tuple[str, ...], source: str, target: str, output: str) -> str:
    arguments = f"-t {kind} -o {','.join(options)} {source} {posixpath.normpath(target)}"
    return (
        "mount failed: exit status 32\nMounting command: mount\nMounting arguments: "
        f"{arguments}\nOutput: {output}"
    )
