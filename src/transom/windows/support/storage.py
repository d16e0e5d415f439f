"""Volumes: plugins with Windows support, and how mounts are there."""

from __future__ import annotations

from typing import Final

from transom.windows.records import Support

_S: Final = "Persistent storage"
_FLEX: Final = "a PowerShell script below C:\\usr\\libexec\\kubernetes\\kubelet-plugins\\volume\\exec on the node"

SUPPORT: Final = (
    Support("SUP-STO-001", "Persistent volumes", "Data outlives pods; volumes are provisioned, attached, mounted and resized.",
            checklist=("STO-01", "STO-02"), section=_S, topics=("PersistentVolume",)),
    Support("SUP-STO-002", "Three classes of plugins", "In-tree, FlexVolume and CSI.", checklist=("STO-03",), section=_S),
    Support("SUP-STO-003", "In-tree plugins", "Part of Kubernetes, nothing to deploy; they provision, attach, mount, resize.",
            checklist=("STO-04", "STO-05"), section=_S),
    Support("SUP-STO-004", "awsElasticBlockStore", "In-tree plugin with Windows support.", checklist=("STO-06",),
            since=(1, 16), section=_S),
    Support("SUP-STO-005", "azureDisk", "In-tree plugin with Windows support.", checklist=("STO-07",), section=_S),
    Support("SUP-STO-006", "azureFile", "In-tree plugin with Windows support (SMB).", checklist=("STO-08",), section=_S),
    Support("SUP-STO-007", "gcePersistentDisk", "In-tree plugin with Windows support.", checklist=("STO-09",), section=_S),
    Support("SUP-STO-008", "vsphereVolume", "In-tree plugin with Windows support.", checklist=("STO-10",), since=(1, 16),
            section=_S),
    Support("SUP-STO-009", "FlexVolume", "Scripts or programs deployed on the node attach and mount; provisioning is "
            "somebody else's.", checklist=("STO-11", "STO-12", "STO-13", "STO-14"), enable=_FLEX, section=_S),
    Support("SUP-STO-010", "FlexVolume SMB", "microsoft.com/smb.cmd mounts a share.", checklist=("STO-15",), enable=_FLEX,
            section=_S, topics=("smb",)),
    Support("SUP-STO-011", "FlexVolume iSCSI", "microsoft.com/iscsi.cmd mounts a LUN.", checklist=("STO-16",), enable=_FLEX,
            section=_S, topics=("iscsi",)),
    Support("SUP-STO-012", "CSI", "Drivers from elsewhere, as images in DaemonSets and StatefulSets: they provision, resize, "
            "attach, mount, snapshot and clone.",
            checklist=("STO-17", "STO-18", "STO-19", "STO-20", "STO-21", "STO-22", "STO-26"), since=(1, 19),
            needs=("csi-proxy",), enable="csi-proxy on each Windows node, and the driver's manifests", stage="beta",
            section=_S, topics=("csi",)),
    Support("SUP-STO-013", "csi-proxy does what privileged containers do on Linux",
            "Scanning disks and mounting need rights over the node. Linux node plugins are privileged containers; on Windows "
            "a program on the node does it for them, over named pipes.",
            "rule", checklist=("STO-23", "STO-24", "STO-25"), since=(1, 18), section=_S, topics=("csi-proxy", "privileged")),
    Support("SUP-STO-014", "Layered NTFS", "A container's files are layers over NTFS, writable at the top; paths are resolved "
            "inside the container.", "rule", checklist=("LSTO-01", "LSTO-02"), section="Storage"),
    Support("SUP-STO-015", "Read-only volumes", "A mount with readOnly: true refuses writes: Access is denied.",
            checklist=("LSTO-07",), section="Storage", topics=("readOnly",)),
    Support("SUP-STO-016", "Permissions are the container's", "ACLs are of the container's own accounts.",
            "rule", checklist=("LSTO-09",), section="Storage", topics=("ACL", "icacls")),
    Support("SUP-STO-017", "hostPath", "Directories of the node, by C:\\ or without.", checklist=("API-44",), section="V1.Pod"),
    Support("SUP-STO-018", "emptyDir is on disk", "The default medium is the node's disk.", "default", checklist=("API-45",),
            section="V1.Pod", topics=("emptyDir",)),
)
