"""A disk of the emulated cloud, and the providers' errors for failed attachments."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from transom.cloud.content import DiskContent
from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.machinery.attachable import split_unique_name
from transom.machines.styles import POSIX, WINDOWS, PathStyle

AWS_EBS: Final = "kubernetes.io/aws-ebs"
AZURE_DISK: Final = "kubernetes.io/azure-disk"
GCE_PD: Final = "kubernetes.io/gce-pd"
VSPHERE: Final = "kubernetes.io/vsphere-volume"
CINDER: Final = "kubernetes.io/cinder"

ATTACH_LIMITS: Final[Mapping[str, int]] = {
    AWS_EBS: 39,
    AZURE_DISK: 16,
    GCE_PD: 16,
    VSPHERE: 59,
    CINDER: 256,
}
"""The maximum number of disks of a node; the scheduler assumes these for nodes that report none."""

USUAL_SIZE: Final = 1 << 30
_VOLUMES: Final = uuid.UUID("7ea0b4e6-3d21-4b4a-9a52-6c1d4d3e9a10")


class DiskAttachment(NamedTuple):
    lun: int
    read_only: bool = False


class CloudDisk:
    """`name` is the unique name of the volume: kubernetes.io/azure-disk/URI. `missing`,
    `attach_error`, `detach_error` and `latency` are faults that a user can inject.
    """

    def __init__(
        self, name: str, content: DiskContent, size: int = USUAL_SIZE, zone: str = ""
    ) -> None:
        self.name = name
        self.plugin, self.identity = split_unique_name(name)
        self.content = content
        self.size = size
        self.zone = zone
        self.attachments: dict[str, DiskAttachment] = {}
        self.format = ""  # the file system on it
        self.missing = False
        self.attach_error = ""
        self.detach_error = ""
        self.latency: float | None = (
            None  # seconds for attaching and detaching; None for the provider's default
        )

    @property
    def short_name(self) -> str:
        return self.identity.rstrip("/").rpartition("/")[2]

    @property
    def style(self) -> PathStyle | None:
        """The style of the system that formatted it."""
        if not self.format:
            return None
        return (
            WINDOWS if self.format.lower() in ("ntfs", "refs", "fat", "fat32", "exfat") else POSIX
        )

    def record(self) -> dict[str, Any]:
        """The form in which it is stored in a file."""
        return {
            "name": self.name,
            "size": self.size,
            "zone": self.zone,
            "format": self.format,
            "missing": self.missing,
            "attachError": self.attach_error,
            "detachError": self.detach_error,
            "latency": self.latency,
            "attachments": {node: list(found) for node, found in self.attachments.items()},
        }

    def restore(self, record: Mapping[str, Any]) -> None:
        self.format = record["format"]
        self.missing = record["missing"]
        self.attach_error, self.detach_error = record["attachError"], record["detachError"]
        self.latency = record["latency"]
        self.attachments = {
            node: DiskAttachment(*found) for node, found in record["attachments"].items()
        }


# ---- errors of providers ----


def _azure(status: int, code: str, message: str) -> str:
    raw = f'{{"error":{{"code":{go_quote(code)},"message":{go_quote(message)}}}}}'
    return f"Retriable: false, RetryAfter: 0s, HTTPStatusCode: {status}, RawError: {raw}"


def _aws(disk: CloudDisk, node: str, code: str, message: str, status: int = 400) -> str:
    problem = go_quote(
        f"{code}: {message}\n\tstatus code: {status}, request id: "
        "00000000-0000-0000-0000-000000000000"
    )
    return (
        f"error attaching EBS volume {go_quote(disk.short_name)} to instance {go_quote(node)}: "
        f"{problem}"
    )


def _gce_path(disk: CloudDisk, kind: str, name: str) -> str:
    return f"projects/transom/zones/{disk.zone or 'local'}/{kind}/{name}"


def disk_not_found(disk: CloudDisk, node: str) -> str:
    texts: Mapping[str, Callable[[], str]] = {
        AZURE_DISK: lambda: _azure(
            404,
            "ResourceNotFound",
            (
                f"The Resource 'Microsoft.Compute/disks/{disk.short_name}' under resource group "
                "'transom' was not found."
            ),
        ),
        AWS_EBS: lambda: _aws(
            disk, node, "InvalidVolume.NotFound", f"The volume '{disk.short_name}' does not exist."
        ),
        GCE_PD: lambda: (
            f"GCE persistent disk not found: diskName={go_quote(disk.identity)} "
            f"zone={go_quote(disk.zone or 'local')}"
        ),
        VSPHERE: lambda: f"File {disk.identity} was not found",
        CINDER: lambda: "Volume not found",
    }
    return texts[disk.plugin]()


def disk_in_use(disk: CloudDisk, node: str, other: str) -> str:
    texts: Mapping[str, Callable[[], str]] = {
        AZURE_DISK: lambda: (
            f"disk({disk.identity}) already attached to node({other}), could not be attached "
            f"to node({node})"
        ),
        AWS_EBS: lambda: (
            _aws(disk, node, "VolumeInUse", f"{disk.short_name} is already attached to an instance")
            + f". The volume is currently attached to instance {go_quote(other)}"
        ),
        GCE_PD: lambda: (
            "googleapi: Error 400: RESOURCE_IN_USE_BY_ANOTHER_RESOURCE - The disk resource "
            f"'{_gce_path(disk, 'disks', disk.identity)}' is already being used by "
            f"'{_gce_path(disk, 'instances', other)}'"
        ),
        VSPHERE: lambda: (
            f"Failed to lock the file. Cannot open the disk '{disk.identity}' or one of the "
            "snapshot disks it "
            "depends on."
        ),
        CINDER: lambda: (
            f"disk {disk.identity} path /dev/vdb is attached to a different instance ({other})"
        ),
    }
    return texts[disk.plugin]()


def too_many_disks(disk: CloudDisk, node: str, limit: int) -> str:
    texts: Mapping[str, Callable[[], str]] = {
        AZURE_DISK: lambda: _azure(
            409,
            "OperationNotAllowed",
            (
                "The maximum number of data disks allowed to be attached to a VM of this size "
                f"is {limit}."
            ),
        ),
        AWS_EBS: lambda: f"too many EBS volumes attached to node {node}",
        GCE_PD: lambda: (
            "googleapi: Error 403: Exceeded limit 'maximum_persistent_disks' on resource "
            f"'{node}'. Limit: {limit}.0, limitExceeded"
        ),
        VSPHERE: lambda: (
            "SCSI Controller Limit of 4 has been reached, cannot create another SCSI controller"
        ),
        CINDER: lambda: (
            f"failed to attach {disk.identity} volume to {node} compute: too many volumes"
        ),
    }
    return texts[disk.plugin]()


def disk_in_other_zone(disk: CloudDisk, node: str, zone: str) -> str:
    texts: Mapping[str, Callable[[], str]] = {
        AZURE_DISK: lambda: _azure(
            400,
            "BadRequest",
            f"Disk {disk.identity} cannot be attached to the VM because it is not in the "
            "same zone as the VM. VM zone: "
            f"'{zone}'. Disk zone: '{disk.zone}'.",
        ),
        AWS_EBS: lambda: _aws(
            disk,
            node,
            "InvalidVolume.ZoneMismatch",
            (
                f"The volume '{disk.short_name}' is not in the same availability zone as "
                f"instance '{node}'"
            ),
        ),
        GCE_PD: lambda: (
            f"GCE persistent disk not found: diskName={go_quote(disk.identity)} "
            f"zone={go_quote(zone)}"
        ),
        VSPHERE: lambda: f"File {disk.identity} was not found",
        CINDER: lambda: (
            f"failed to attach {disk.identity} volume to {node} compute: availability zone {zone}"
        ),
    }
    return texts[disk.plugin]()


def device_path(disk: CloudDisk, lun: int) -> str:
    """The path that the attach/detach controller reports in the node's status."""
    match disk.plugin:
        case "kubernetes.io/azure-disk":
            return str(lun)
        case "kubernetes.io/aws-ebs":
            return (
                f"/dev/xvdb{chr(ord('a') + lun)}"
                if lun < 26
                else f"/dev/xvdc{chr(ord('a') + lun - 26)}"
            )
        case "kubernetes.io/gce-pd":
            return f"/dev/disk/by-id/google-{disk.identity}"
        case "kubernetes.io/vsphere-volume":
            return f"/dev/disk/by-id/wwn-0x{serial_number(disk)}"
    return f"/dev/disk/by-id/virtio-{disk.short_name[:20]}"


def volume_path(disk: CloudDisk) -> str:
    r"""`\\?\Volume{GUID}`, as Get-Volume of Windows shows it."""
    return f"\\\\?\\Volume{{{uuid.uuid5(_VOLUMES, disk.name)}}}"


def serial_number(disk: CloudDisk) -> str:
    return hashlib.blake2b(disk.name.encode(), digest_size=16).hexdigest()
