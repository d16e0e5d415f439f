r"""How a Windows kubelet formats and mounts disks and shares. A part of `os_windows.WindowsRules`.

There are no mounts: `mklink /D` makes a link to the volume (`\\?\Volume{GUID}\`) or to the share,
and `rmdir` removes it.
"""

from __future__ import annotations

import ntpath
from collections.abc import Callable, Mapping
from typing import Final, cast

from transom.cloud.content import DiskContent
from transom.cloud.disks import CloudDisk, volume_path
from transom.cloud.shares import FileShare, ShareError
from transom.kit.goquote import go_quote
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.storage_requests import StageFailure, StorageRequest
from transom.kubelet.volumes.filemounts import (
    MountableFiles,
    RealFolderFiles,
    is_mount_point,
    mount_content,
    unmount_content,
)
from transom.machines.api import Files, HostFiles
from transom.machines.styles import POSIX, WINDOWS
from transom.windows.limits import LIMITS

_FORMATS: Final = ("FAT", "FAT32", "exFAT", "NTFS", "ReFS")
_SMB_ERRORS: Final = {13: "Access is denied.", 112: "The network path was not found."}


class WindowsDisks:
    __slots__ = ()

    def format_disk(
        self, disk: CloudDisk, file_system: str, device: str, target: str, read_only: bool
    ) -> None:
        """Windows treats a disk without a partition table as new, even one that Linux has
        formatted. The file system of other disks is not checked.
        """
        if disk.style is WINDOWS:
            return
        wanted = next(
            (known for known in _FORMATS if known.lower() == (file_system or "NTFS").lower()), ""
        )
        if not wanted:
            output = (
                "Format-Volume : Cannot validate argument on parameter 'FileSystem'. The "
                f"argument {go_quote(file_system)} "
                'does not belong to the set "FAT,FAT32,exFAT,NTFS,ReFS" specified by the '
                "ValidateSet attribute."
            )
            raise VolumeFailure(LIMITS["WIN-STO-016"].message.format(output=go_quote(output)))
        if disk.style is POSIX:
            disk.content.clear()
        disk.format = wanted

    def mount_disk(self, files: Files, disk: CloudDisk, path: str, now: float) -> None:
        if isinstance(files, RealFolderFiles):
            files.mkdir(path, 0o755)
            mount_content(files, disk.content, WINDOWS, disk.size, now, path)
            return
        volume = volume_path(disk)
        _mount_root(files, disk.content, volume, disk.size, now)
        _link(files, volume + "\\", path)

    def disk_mounted(self, files: Files, path: str) -> bool:
        return is_mount_point(files, path)

    def unmount_disk(self, files: Files, path: str) -> None:
        unmount_content(files, path)
        if _exists(files, path):
            files.remove(path)

    def show_file_system(self, files: Files, source: str, target: str, read_only: bool) -> None:
        _link(files, source + "\\", target)

    def hide_file_system(self, files: Files, target: str) -> None:
        files.remove(target, recursive=True)

    def check_storage(self, request: StorageRequest) -> None:
        """Each Linux plugin fails in its own way: at its tools, at its server, or at the mount."""
        raise _STORAGE_ERRORS[request.kind](request)

    def mount_export(self, files: Files, content: DiskContent, target: str, now: float) -> None:
        # check_storage has failed already
        raise VolumeFailure(f"mkdir {target}: not supported by windows")

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
        """The mapping is per node: the first credentials apply to all of its pods."""
        if share.path.lower() not in mappings or share.offline:
            try:
                share.connect(user, password)
            except ShareError as problem:
                mappings.pop(share.path.lower(), None)
                output = f"New-SmbGlobalMapping : {_SMB_ERRORS[problem.code]}\r\n"
                raise VolumeFailure(
                    f"New-SmbGlobalMapping({share.path}) failed: exit status 1, output: "
                    f"{go_quote(output)}"
                ) from problem
            mappings[share.path.lower()] = f"AZURE\\{user}"
        if isinstance(files, RealFolderFiles):
            if not is_mount_point(files, target):
                files.mkdir(target, 0o755)
                mount_content(files, share.content, WINDOWS, share.size, now, target)
            return
        _mount_root(files, share.content, share.path, share.size, now)
        _link(files, share.path + "\\", target)


# ---- Linux storage ----


def mount_problem(
    kind: str, source: str, target: str, options: tuple[str, ...], secret_options: int = 0
) -> str:
    """The error of mount-utils: only SMB can be mounted, and it requires a user and a password."""
    shown = go_quote(",".join((*options, *(("<masked>",) if secret_options else ()))))
    count = len(options) + secret_options
    if count < 2:
        return LIMITS["WIN-STO-010"].message.format(
            options=shown, count=count, source=go_quote(source), target=go_quote(target)
        )
    return LIMITS["WIN-STO-011"].message.format(
        kind=go_quote(kind), source=go_quote(source), target=go_quote(target), options=shown
    )


def _set_up(text: str) -> VolumeFailure:
    return VolumeFailure(text)


def _attach(text: str) -> VolumeFailure:
    return StageFailure("MountVolume.WaitForAttach failed", text)


def _nfs(request: StorageRequest) -> VolumeFailure:
    return _set_up(mount_problem("nfs", request.source, request.target, request.options))


def _cephfs(request: StorageRequest) -> VolumeFailure:
    # The user's name and key are two more options.
    return _set_up(
        "CephFS: mount failed: "
        + mount_problem("ceph", request.source, request.target, request.options, 2)
    )


def _glusterfs(request: StorageRequest) -> VolumeFailure:
    log = f"C:\\var\\lib\\kubelet\\plugins\\kubernetes.io\\glusterfs\\{request.volume}\\{request.pod}-glusterfs.log"
    options = tuple(
        sorted({*request.options, "auto_unmount", f"log-file={log}", "log-level=ERROR"})
    )
    problem = mount_problem("glusterfs", request.source, request.target, options)
    return _set_up(
        f"mount failed: {problem}, the following error information was pulled from the "
        "glusterfs log to help diagnose this "
        f"issue: could not open log file for pod {request.pod}"
    )


def _quobyte(request: StorageRequest) -> VolumeFailure:
    options = tuple(sorted({*request.options, "allow-usermapping-in-volumename"}))
    target = "c:\\var\\lib\\kubelet\\plugins\\kubernetes.io~quobyte"
    registry = request.source.rstrip("/") + "/"
    return _set_up("quobyte: mount failed: " + mount_problem("quobyte", registry, target, options))


def _rbd(request: StorageRequest) -> VolumeFailure:
    return _attach(f"fail to check rbd image status with: ({_NO_PROGRAM}), rbd output: ()")


_NO_PROGRAM: Final = "executable file not found in %PATH%"
_REFUSED: Final = (
    "connectex: No connection could be made because the target machine actively refused it."
)
_STORAGE_ERRORS: Final[Mapping[str, Callable[[StorageRequest], VolumeFailure]]] = {
    "nfs": _nfs,
    "cephfs": _cephfs,
    "glusterfs": _glusterfs,
    "quobyte": _quobyte,
    "rbd": _rbd,
    "iscsi": lambda request: _attach(_NO_PROGRAM),
    "fc": lambda request: _attach("no fc disk found"),
    "storageos": lambda request: _set_up(f"dial tcp 127.0.0.1:5705: {_REFUSED}"),
    "scaleIO": lambda request: _set_up(f"drv_cfg: {_NO_PROGRAM}"),
    "portworxVolume": lambda request: _set_up('services "portworx-service" not found'),
    "flocker": lambda request: _set_up(
        "open /etc/flocker/apiuser.crt: The system cannot find the path specified."
    ),
    "gitRepo": lambda request: _set_up(
        f"failed to exec 'git clone -- {request.source}': : {_NO_PROGRAM}"
    ),
}


# ---- files ----


def _mount_root(files: Files, content: DiskContent, root: str, size: int, now: float) -> None:
    """The volume or share prefix of a path."""
    tree = cast(MountableFiles, files)
    if not is_mount_point(files, root + "\\"):
        tree.add_root(root)
        mount_content(files, content, WINDOWS, size, now, root + "\\")


def _link(files: Files, source: str, target: str) -> None:
    if _exists(files, target):
        return
    files.mkdir(ntpath.dirname(target), 0o755)
    files.symlink(source, target)


def _exists(files: Files, path: str) -> bool:
    """Does not follow links: one may point to a disk that is gone."""
    try:
        files.stat(path, follow=False)
    except OSError:
        return False
    return True
