r"""External storage of a simulated machine: SMB shares and iSCSI LUNs of the emulated cloud.

On Windows a share is reached by its name (`\\server\share`) once New-SmbGlobalMapping has set
credentials, and a disk by the name of its volume (`\\?\Volume{GUID}\`). On Linux both are mounted
on a directory.
"""

from __future__ import annotations

import errno
import uuid
from typing import TYPE_CHECKING, Final

from transom.cloud.content import ContentError
from transom.cloud.disks import serial_number, volume_path
from transom.cloud.errors import CloudError
from transom.cloud.shares import FileShare, ShareError
from transom.machines.styles import WINDOWS
from transom.userland.api import AttachedDisk, MappingError

if TYPE_CHECKING:
    from transom.cloud.provider import CloudProvider
    from transom.runtime.sim.host import SimHost

_VOLUMES: Final = uuid.UUID("2c9f3b62-60e3-4a63-8f0e-8d1a64c27f5b")
_LUN_SIZE: Final = 1 << 30
_ALREADY_EXISTS, _BAD_NET_NAME, _IN_USE = 183, 67, 85


_WINDOWS_ERRORS: Final = {
    13: (5, "Access is denied."),
    112: (53, "The network path was not found."),
}


def split_share(path: str) -> tuple[str, str] | None:
    r"""Server and share of `\\server\share\...`, also with slashes."""
    parts = path.replace("/", "\\").removeprefix("\\\\?\\UNC").lstrip("\\").split("\\")
    return (
        (parts[0], parts[1])
        if path[:1] in ("\\", "/") and len(parts) > 1 and parts[0] and parts[1]
        else None
    )


class NodeStorage:
    def __init__(self, host: SimHost, cloud: CloudProvider) -> None:
        self._host = host
        self._cloud = cloud

    # ---- Windows: SMB ----

    def mappings(self) -> dict[str, str]:
        """Remote path, in lower case, and the user whose rights apply on the whole node."""
        return self._cloud.smb_mappings(self._host.name)

    def map_share(self, path: str, user: str, password: str, drive: str = "") -> None:
        """Raises MappingError."""
        if drive and self._host.files.exists(drive + "\\"):
            raise MappingError(_IN_USE, "The local device name is already in use.")
        names = split_share(path)
        if names is None:
            raise MappingError(_BAD_NET_NAME, "The network name cannot be found.")
        try:
            share = self._cloud.share(*names)
        except CloudError as problem:
            raise MappingError(_BAD_NET_NAME, "The network name cannot be found.") from problem
        if share.path.lower() in self.mappings():
            raise MappingError(
                _ALREADY_EXISTS, "Cannot create a file when that file already exists."
            )
        try:
            share.connect(user, password)
        except ShareError as problem:
            raise MappingError(*_WINDOWS_ERRORS[problem.code]) from problem
        self._show(share)
        self.mappings()[share.path.lower()] = user
        if drive:
            self._host.files.add_drive(drive.upper(), share.path + "\\")

    def drive_of(self, path: str) -> str:
        wanted = path.rstrip("\\").lower()
        drives = self._host.files.drive_targets().items()
        return next((d for d, t in drives if t.rstrip("\\").lower() == wanted), "")

    def unmap_share(self, path: str) -> bool:
        path = self._host.files.drive_targets().get(path[:2].upper(), path)
        names = split_share(path)
        if names is None or self.mappings().pop("\\\\{}\\{}".format(*names).lower(), None) is None:
            return False
        root = self._cloud.share(*names).path
        if drive := self.drive_of(root):
            self._host.files.remove_root(drive)
        self._hide(root)
        return True

    def _show(self, share: FileShare) -> None:
        files, root = self._host.files, share.path
        try:
            if files.exists(root + "\\") and files.is_mount(root + "\\"):
                return
            files.add_root(root)
            files.mount(
                share.content.file_system(WINDOWS, share.size, self._host.time()), root + "\\"
            )
        except ContentError as problem:
            raise MappingError(53, f"The network path was not found. ({problem})") from problem

    def _hide(self, root: str) -> None:
        files = self._host.files
        if files.exists(root + "\\") and files.is_mount(root + "\\"):
            files.unmount(root + "\\")
        files.remove_root(root)

    # ---- Windows: disks ----

    def disks(self) -> list[AttachedDisk]:
        """The machine's disks: the system disk, and those that the cloud has attached."""
        name = self._host.name
        local = self._host.disk()
        location = "Integrated : Adapter 0 : Port 0 : Target 0 : LUN 0"
        out = [
            AttachedDisk(
                0,
                "Virtual HD",
                "",
                location,
                local.capacity,
                local.available,
                "MBR",
                "NTFS",
                "C",
                "",
            )
        ]
        for disk in sorted(
            self._cloud.attached_to(name), key=lambda d: self._cloud.disk_number(d, name)
        ):
            number, lun = self._cloud.disk_number(disk, name), disk.attachments[name].lun
            formatted = disk.style is WINDOWS
            out.append(
                AttachedDisk(
                    number,
                    "Msft Virtual Disk",
                    serial_number(disk),
                    f"Integrated : Adapter 3 : Port 0 : Target 0 : LUN {lun}",
                    disk.size,
                    disk.size - disk.content.used,
                    "MBR" if formatted else "RAW",
                    disk.format if formatted else "",
                    "",
                    volume_path(disk),
                )
            )
        return out

    # ---- Linux: mount -t cifs ----

    def mount_share(
        self, path: str, target: str, user: str, password: str, *, read_only: bool = False
    ) -> None:
        """Raises OSError with the error that mount.cifs would report."""
        names = split_share(path)
        if names is None:
            raise OSError(errno.EINVAL, "Mounting cifs URL not implemented yet", path)
        try:
            share = self._cloud.share(*names)
            share.connect(user, password)
            system = share.content.file_system(WINDOWS, share.size, self._host.time())
        except ShareError as problem:
            raise OSError(problem.code, str(problem), path) from problem
        except (CloudError, ContentError) as problem:
            raise OSError(errno.EHOSTDOWN, str(problem), path) from problem
        self._host.files.mount(system, target, read_only)

    # ---- iSCSI ----

    def connect_lun(self, portal: str, target: str, lun: int, file_system: str = "NTFS") -> str:
        """The volume on a LUN, formatted if it is new. Raises OSError."""
        try:
            disk = self._cloud.create_disk(
                f"kubernetes.io/iscsi/{portal}:{target}-lun-{lun}", _LUN_SIZE
            )
        except CloudError as problem:
            raise OSError(errno.ENOSPC, str(problem), target) from problem
        if disk.missing:
            raise OSError(errno.ENOENT, f"did not find target {target}", target)
        disk.format = disk.format or file_system or "NTFS"
        volume = f"\\\\?\\Volume{{{uuid.uuid5(_VOLUMES, disk.name)}}}"
        files = self._host.files
        if not (files.exists(volume + "\\") and files.is_mount(volume + "\\")):
            try:
                system = disk.content.file_system(WINDOWS, disk.size, self._host.time())
            except ContentError as problem:
                raise OSError(errno.EIO, str(problem), target) from problem
            files.add_root(volume)
            files.mount(system, volume + "\\")
        return volume + "\\"
