"""Limits of volumes: types that Windows cannot mount, and limits of mounts."""

from __future__ import annotations

from typing import Final

from transom.windows.records import RecordField, WindowsLimit

_MOUNT: Final = "spec.containers[*].volumeMounts[*]"
_VOLUME: Final = "spec.volumes[*]"
_LINUX_ONLY: Final = (
    "cephfs",
    "rbd",
    "glusterfs",
    "iscsi",
    "fc",
    "quobyte",
    "storageos",
    "flocker",
    "scaleIO",
    "portworxVolume",
    "photonPersistentDisk",
    "cinder",
)
_DISKS: Final = ("azureDisk", "gcePersistentDisk", "awsElasticBlockStore", "vsphereVolume")
_MODES: Final = ("secret", "configMap", "downwardAPI", "projected")

LIMITS: Final = (
    WindowsLimit(
        id="WIN-STO-001",
        title="subPath is not supported",
        statement="Windows mounts whole volumes; mounting a path inside a volume is not supported.",
        effect="degraded",
        remedy="Mount the whole volume at a separate directory.",
        checklist=("LSTO-10",),
        fields=(RecordField(f"{_MOUNT}.subPath"), RecordField(f"{_MOUNT}.subPathExpr")),
        severity="warning",
        section="Storage",
        note="Kubelets mount a subPath that is a directory although it is documented as "
        "unsupported. Before 1.37 a pod whose container has several of them stays in Terminating "
        "until the kubelet is restarted (kubernetes/kubernetes#112630).",
        topics=("subPathExpr", "volumeMount"),
    ),
    WindowsLimit(
        id="WIN-STO-002",
        title="Docker mounts directories, not files",
        statement="With Docker, the source and target of a volume mount must be directories, so a "
        "single file cannot be mounted, by subPath or from the node.",
        effect="fails",
        remedy="Mount the whole volume at a directory, or use containerd.",
        checklist=("FEAT-02", "LSTO-03"),
        runtimes=("docker",),
        fields=(RecordField(f"{_VOLUME}.hostPath.type", "one-of", ("File", "FileOrCreate")),),
        check="single-file-mount",
        severity="error",
        reason="CreateContainerError",
        message="invalid volume specification: '{source}:{target}{mode}': "
        'invalid mount config for type "bind": source path must be a directory',
        section="Storage",
        topics=("single file", "subPath", "configMap"),
    ),
    WindowsLimit(
        id="WIN-STO-003",
        title="A file of a Secret cannot be mounted with subPath",
        statement=("subPath of a Secret volume names a single file, which Windows cannot mount."),
        effect="fails",
        remedy="Mount the Secret at a directory; select keys and file names with `items`.",
        checklist=("LSTO-11",),
        runtimes=("docker",),
        check="secret-subpath",
        severity="error",
        reason="CreateContainerError",
        message="invalid volume specification: '{source}:{target}{mode}': "
        'invalid mount config for type "bind": source path must be a directory',
        section="Storage",
        topics=("secret", "subPath"),
    ),
    WindowsLimit(
        id="WIN-STO-004",
        title="Mounts are not seen by the node",
        statement=(
            "What a container mounts, or writes to its own layer, does not appear in the node's "
            "file system."
        ),
        effect="ignored",
        remedy="Use a hostPath volume to share files with the node.",
        checklist=("LSTO-05", "LSTO-12"),
        section="Storage",
        topics=("host mount projection",),
    ),
    WindowsLimit(
        id="WIN-STO-005",
        title="mountPropagation is ignored",
        statement="Mounts are not propagated between a node and its containers on Windows.",
        effect="ignored",
        remedy="Remove it; CSI node plugins use csi-proxy.",
        checklist=("API-47",),
        fields=(
            RecordField(
                f"{_MOUNT}.mountPropagation", "one-of", ("Bidirectional", "HostToContainer")
            ),
        ),
        severity="warning",
        fix="drop",
        section="V1.Pod",
        topics=("volumeMount",),
    ),
    WindowsLimit(
        id="WIN-STO-006",
        title="File modes of volumes are ignored",
        statement=(
            "defaultMode and mode are Linux permissions. Windows only uses the write permission."
        ),
        effect="ignored",
        remedy="Remove them; use ACLs inside the container.",
        checklist=("LSTO-13", "LSTO-17"),
        fields=(
            *(RecordField(f"{_VOLUME}.{kind}.defaultMode", "not", 420) for kind in _MODES),
            *(RecordField(f"{_VOLUME}.{kind}.items[*].mode", "above", -1) for kind in _MODES[:3]),
        ),
        severity="info",
        fix="drop",
        section="Storage",
        topics=("defaultMode", "permissions", "chmod"),
    ),
    WindowsLimit(
        id="WIN-STO-007",
        title="fsGroup is ignored",
        statement="The node and the container have no common accounts, so the files of a volume "
        "cannot be assigned to a group or user. Permissions are those of the accounts of the "
        "container.",
        effect="ignored",
        remedy="Remove it; set ACLs in the image or when the container starts.",
        checklist=("LSTO-08", "LSTO-17"),
        fields=(
            RecordField("spec.securityContext.fsGroup", "above", -1),
            RecordField("spec.securityContext.fsGroupChangePolicy"),
        ),
        severity="info",
        fix="drop",
        section="Storage",
        topics=("permissions", "chown", "uid", "gid"),
    ),
    WindowsLimit(
        id="WIN-STO-008",
        title="Raw block devices cannot be attached",
        statement="volumeDevices, and claims of volumeMode Block, are not implemented on Windows.",
        effect="fails",
        remedy="Use a file system volume.",
        checklist=("LSTO-15", "API-40"),
        fields=(RecordField("spec.containers[*].volumeDevices"),),
        severity="error",
        reason="FailedMapVolume",
        message="not supported for this build.",
        section="V1.Pod",
        topics=("volumeMode", "Block"),
    ),
    WindowsLimit(
        id="WIN-STO-009",
        title="emptyDir in memory lies on disk",
        statement="Windows has no built-in RAM disk: medium Memory is a directory on the disk of "
        "the node and does not count as memory.",
        effect="degraded",
        remedy="Remove the medium; keep sensitive data in the memory of the process.",
        checklist=("LSTO-16", "API-46"),
        fields=(RecordField(f"{_VOLUME}.emptyDir.medium", "is", "Memory"),),
        severity="warning",
        fix="drop",
        section="V1.Pod",
        topics=("tmpfs", "medium", "emptyDir"),
    ),
    WindowsLimit(
        id="WIN-STO-010",
        title="NFS volumes cannot be mounted",
        statement="NFS is not supported on Windows nodes.",
        effect="fails",
        remedy="Use SMB (azureFile, the SMB FlexVolume or CSI driver) or a disk.",
        checklist=("LSTO-18",),
        fields=(RecordField(f"{_VOLUME}.nfs"),),
        severity="error",
        reason="FailedMount",
        message="mount options({options}) should have at least 2 options, current number:{count}, "
        "source:{source}, "
        "target:{target}",
        section="Storage",
        topics=("nfs",),
    ),
    WindowsLimit(
        id="WIN-STO-011",
        title="Linux-only storage cannot be mounted",
        statement="Of the in-tree volume plugins, Windows supports awsElasticBlockStore, "
        "azureDisk, azureFile, gcePersistentDisk and vsphereVolume, and those that need no storage "
        "system.",
        effect="fails",
        remedy="Use one of those, FlexVolume (SMB, iSCSI) or a CSI driver with Windows support.",
        fields=tuple(RecordField(f"{_VOLUME}.{kind}") for kind in _LINUX_ONLY),
        severity="error",
        reason="FailedMount",
        message="only cifs mount is supported now, fstype: {kind}, mounting source ({source}), "
        "target ({target}), "
        "with options ({options})",
        section="Persistent storage",
        topics=("cephfs", "iscsi", "in-tree"),
    ),
    WindowsLimit(
        id="WIN-STO-012",
        title="A mounted volume does not grow",
        statement="A larger claim expands the disk or share, but not the mounted file system.",
        effect="fails",
        remedy="Create a new volume and copy the data, or use a CSI driver that resizes through csi-proxy.",
        checklist=("LSTO-19",),
        reason="VolumeResizeFailed",
        message="Resize is not supported for this build",
        section="Storage",
        topics=("resize", "expansion", "resizefs"),
    ),
    WindowsLimit(
        id="WIN-STO-013",
        title="CSI drivers do not run on Windows before 1.18",
        statement=(
            "CSI node plugins need privileged containers, which Windows does not have; csi-proxy "
            "is alpha from 1.18."
        ),
        effect="fails",
        remedy="Use an in-tree or FlexVolume plugin, or upgrade.",
        checklist=("LSTO-20",),
        until=(1, 17),
        fields=(RecordField(f"{_VOLUME}.csi"),),
        severity="error",
        reason="FailedMount",
        message="driver name {driver} not found in the list of registered CSI drivers",
        section="Storage",
        topics=("csi",),
    ),
    WindowsLimit(
        id="WIN-STO-014",
        title="CSI needs csi-proxy on the node",
        statement="On Windows, CSI node plugins use csi-proxy for privileged operations; it must "
        "be installed on every Windows node.",
        effect="fails",
        remedy="Install csi-proxy; deploy the driver's DaemonSet for Windows.",
        checklist=("STO-25",),
        since=(1, 18),
        lifted_by=("csi-proxy",),
        fields=(RecordField(f"{_VOLUME}.csi"),),
        severity="info",
        reason="FailedMount",
        message="driver name {driver} not found in the list of registered CSI drivers",
        section="Persistent storage",
        topics=("csi", "csi-proxy"),
    ),
    WindowsLimit(
        id="WIN-STO-015",
        title="EBS and vSphere disks are not supported before 1.16",
        statement=(
            "In 1.14, Windows supports the in-tree plugins azureDisk, azureFile and gcePersistentDisk."
        ),
        effect="fails",
        remedy="Use one of those, or upgrade.",
        checklist=("STO-06", "STO-10"),
        until=(1, 15),
        fields=(
            RecordField(f"{_VOLUME}.awsElasticBlockStore"),
            RecordField(f"{_VOLUME}.vsphereVolume"),
        ),
        severity="error",
        reason="FailedMount",
        message="could not find attached {disk}. Timeout waiting for mount paths to be created",
        section="Persistent storage",
    ),
    WindowsLimit(
        id="WIN-STO-016",
        title="Windows formats disks with NTFS",
        statement="A disk with a Linux file system cannot be formatted or read on a Windows node, nor "
        "an NTFS disk on a "
        "Linux node.",
        effect="fails",
        remedy="Set fsType: ntfs, and use a separate StorageClass for Windows.",
        checklist=("LSTO-01",),
        fields=(
            *(
                RecordField(
                    f"{_VOLUME}.{kind}.fsType", "one-of", ("ext2", "ext3", "ext4", "xfs", "btrfs")
                )
                for kind in _DISKS
            ),
            RecordField(f"{_VOLUME}.azureDisk.fsType", "absent"),  # the API's default is ext4
        ),
        severity="error",
        reason="FailedMount",
        message="diskMount: format disk failed, error: exit status 1, output: {output}",
        section="Storage",
        note=(
            "A disk with a file system is not formatted again. For an azureDisk without fsType, "
            "the API defaults to ext4."
        ),
        topics=("fsType", "ntfs", "ext4"),
    ),
    WindowsLimit(
        id="WIN-STO-017",
        title="The node has no such directory",
        statement="On a Windows node, a Linux hostPath refers to a directory on drive C:, which "
        "does not exist.",
        effect="fails",
        remedy=(
            "Use a directory of the Windows node (C:\\...), or a named pipe (\\\\.\\pipe\\...) "
            "for a socket."
        ),
        checklist=("API-44",),
        fields=(
            RecordField(
                f"{_VOLUME}.hostPath.path",
                "matches",
                r"^/(dev|proc|sys|run|var/run|etc|lib|usr|boot|bin|sbin|root|home|mnt|opt)(/|$)",
            ),
        ),
        severity="warning",
        reason="FailedMount",
        message="hostPath type check failed: {path} is not a {kind}",
        section="V1.Pod",
        topics=("hostPath", "docker.sock", "named pipe"),
    ),
    WindowsLimit(
        id="WIN-STO-018",
        title="Sockets and devices of the node cannot be mounted",
        statement=(
            "hostPath types for sockets and devices do not match anything on Windows; a named pipe "
            "needs the empty type."
        ),
        effect="fails",
        remedy="Mount \\\\.\\pipe\\NAME without a type.",
        checklist=("POD-16",),
        fields=(
            RecordField(
                f"{_VOLUME}.hostPath.type", "one-of", ("Socket", "CharDevice", "BlockDevice")
            ),
        ),
        severity="error",
        reason="FailedMount",
        message="hostPath type check failed: {path} is not a {kind}",
        section="Compute",
        topics=("hostPath", "named pipe", "socket"),
    ),
    WindowsLimit(
        id="WIN-STO-019",
        title="The node rejects .. in paths",
        statement="The API server finds .. only between slashes; the kubelet on Windows also finds "
        "it between backslashes and rejects the volume.",
        effect="fails",
        remedy="Write the path without back-steps.",
        fields=(
            RecordField(f"{_VOLUME}.hostPath.path", "matches", r"\\\.\.(\\|/|$)"),
            RecordField(f"{_MOUNT}.subPath", "matches", r"(^|\\)\.\.\\|\\\.\.$"),
        ),
        severity="error",
        reason="FailedMount",
        message="must not contain '..'",
        section="API",
        topics=("hostPath", "subPath"),
    ),
    WindowsLimit(
        id="WIN-STO-020",
        title="Updates of mounted files are not atomic",
        statement="When a ConfigMap or Secret changes, the link to its files is removed and "
        "created again: for a moment it does not exist.",
        effect="degraded",
        remedy="Open files again when reading fails.",
        section="Storage",
        topics=("configMap", "secret", "update"),
    ),
    WindowsLimit(
        id="WIN-STO-021",
        title="Files have no numeric owners and groups",
        statement="Linux permissions, user ids and group ids do not exist on NTFS volumes.",
        effect="ignored",
        remedy="Use ACLs for the accounts of the container.",
        checklist=("LSTO-17", "API-06"),
        section="Storage",
        topics=("permissions", "uid", "gid"),
    ),
)
