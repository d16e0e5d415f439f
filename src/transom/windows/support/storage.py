"""Volumes: plugins with Windows support, and the behaviour of mounts."""

from __future__ import annotations

from typing import Final

from transom.windows.records import WindowsSupport

_S: Final = "Persistent storage"
_FLEX: Final = (
    "a PowerShell script below C:\\usr\\libexec\\kubernetes\\kubelet-plugins\\volume\\exec on "
    "the node"
)

SUPPORT: Final = (
    WindowsSupport(
        "SUP-STO-001",
        "Persistent volumes",
        "Data persists beyond pods; volumes are provisioned, attached, mounted and resized.",
        checklist=("STO-01", "STO-02"),
        section=_S,
        topics=("PersistentVolume",),
    ),
    WindowsSupport(
        "SUP-STO-002",
        "Three classes of plugins",
        "In-tree, FlexVolume and CSI.",
        checklist=("STO-03",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-STO-003",
        "In-tree plugins",
        "Part of Kubernetes, nothing to deploy; they provision, attach, mount, resize.",
        checklist=("STO-04", "STO-05"),
        section=_S,
    ),
    WindowsSupport(
        "SUP-STO-004",
        "awsElasticBlockStore",
        "In-tree plugin with Windows support.",
        until=(1, 26),
        checklist=("STO-06",),
        since=(1, 16),
        section=_S,
    ),
    WindowsSupport(
        "SUP-STO-005",
        "azureDisk",
        "In-tree plugin with Windows support.",
        until=(1, 26),
        checklist=("STO-07",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-STO-006",
        "azureFile",
        "In-tree plugin with Windows support (SMB).",
        until=(1, 29),
        checklist=("STO-08",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-STO-007",
        "gcePersistentDisk",
        "In-tree plugin with Windows support.",
        until=(1, 27),
        checklist=("STO-09",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-STO-008",
        "vsphereVolume",
        "In-tree plugin with Windows support.",
        until=(1, 29),
        checklist=("STO-10",),
        since=(1, 16),
        section=_S,
    ),
    WindowsSupport(
        "SUP-STO-009",
        "FlexVolume",
        "Scripts or programs on the node attach and mount volumes; they do not provision them.",
        checklist=("STO-11", "STO-12", "STO-13", "STO-14"),
        enable=_FLEX,
        section=_S,
    ),
    WindowsSupport(
        "SUP-STO-010",
        "FlexVolume SMB",
        "microsoft.com/smb.cmd mounts a share.",
        checklist=("STO-15",),
        enable=_FLEX,
        section=_S,
        topics=("smb",),
    ),
    WindowsSupport(
        "SUP-STO-011",
        "FlexVolume iSCSI",
        "microsoft.com/iscsi.cmd mounts a LUN.",
        checklist=("STO-16",),
        enable=_FLEX,
        section=_S,
        topics=("iscsi",),
    ),
    WindowsSupport(
        "SUP-STO-012",
        "CSI",
        "External drivers, as images in DaemonSets and StatefulSets: they provision, resize, "
        "attach, mount, snapshot and clone.",
        checklist=("STO-17", "STO-18", "STO-19", "STO-20", "STO-21", "STO-22", "STO-26"),
        since=(1, 19),
        needs=("csi-proxy",),
        enable="csi-proxy on each Windows node, and the driver's manifests",
        stage="beta",
        section=_S,
        topics=("csi",),
    ),
    WindowsSupport(
        "SUP-STO-013",
        "csi-proxy replaces the privileged containers of Linux",
        "Scanning disks and mounting need privileges on the node. On Linux, node plugins are "
        "privileged containers; on Windows, they call a program on the node over named pipes.",
        "rule",
        checklist=("STO-23", "STO-24", "STO-25"),
        since=(1, 18),
        section=_S,
        topics=("csi-proxy", "privileged"),
    ),
    WindowsSupport(
        "SUP-STO-014",
        "Layered NTFS",
        "A container's files are layers over NTFS, writable at the top; paths are resolved "
        "inside the container.",
        "rule",
        checklist=("LSTO-01", "LSTO-02"),
        section="Storage",
    ),
    WindowsSupport(
        "SUP-STO-015",
        "Read-only volumes",
        "A mount with readOnly: true rejects writes: Access is denied.",
        checklist=("LSTO-07",),
        section="Storage",
        topics=("readOnly",),
    ),
    WindowsSupport(
        "SUP-STO-016",
        "Permissions are the container's",
        "ACLs use the accounts of the container.",
        "rule",
        checklist=("LSTO-09",),
        section="Storage",
        topics=("ACL", "icacls"),
    ),
    WindowsSupport(
        "SUP-STO-017",
        "hostPath",
        "Directories of the node, with or without C:\\.",
        checklist=("API-44",),
        section="V1.Pod",
    ),
    WindowsSupport(
        "SUP-STO-018",
        "emptyDir is on disk",
        "The default medium is the disk of the node.",
        "default",
        checklist=("API-45",),
        section="V1.Pod",
        topics=("emptyDir",),
    ),
)
