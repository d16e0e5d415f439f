"""Storage systems that Kubernetes 1.20 knows itself: NFS, iSCSI, disks of clouds ...

There is no storage system behind a simulated node. Where the node's system could mount one, the volume is a plain
directory of the node, the same for all pods of the node that name the same share or disk; it is not shared between nodes.
Windows mounts SMB shares and the disks of four clouds, which it formats when they are new; everything else fails there with
the text of its mount command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from transom.kubelet import paths
from transom.kubelet.base import VolumeFailure
from transom.kubelet.volumes.plugin import Mounted, Plugin, SetUp, Spec, StageFailure, Tools, change_policy, fs_group
from transom.machinery import quantity
from transom.machinery.objects import Object

Source = Mapping[str, Any]


class _Kind(NamedTuple):
    plugin: str
    file_system: str
    source: Callable[[Source], str]  # what would be mounted
    portable: bool = False  # a disk or share that Windows can have too


def _nfs(s: Source) -> str:
    return f"{s.get('server', '')}:{s.get('path', '')}"


def _ceph(s: Source) -> str:
    monitors = s.get("monitors") or ()
    hosts = ",".join(m if ":" in m else m + ":6789" for m in monitors)
    return f"{hosts}:{s.get('path') or '/'}"


def _iscsi(s: Source) -> str:
    return f"{s.get('targetPortal', '')}-{s.get('iqn', '')}-lun-{s.get('lun', 0)}"


def _rbd(s: Source) -> str:
    return f"{s.get('pool') or 'rbd'}-image-{s.get('image', '')}"


def _gluster(s: Source) -> str:
    return f"{s.get('endpoints', '')}:{s.get('path', '')}"


def _fc(s: Source) -> str:
    return "-".join((*(s.get("targetWWNs") or ()), *(s.get("wwids") or ()), "lun", str(s.get("lun", 0))))


def _azure_file(s: Source) -> str:
    return f"{s.get('secretName', '')}-{s.get('shareName', '')}"


def _named(*fields: str) -> Callable[[Source], str]:
    return lambda s: "-".join(str(s.get(field) or "") for field in fields)


_KINDS: Final[Mapping[str, _Kind]] = {
    "nfs": _Kind("kubernetes.io/nfs", "nfs", _nfs),
    "cephfs": _Kind("kubernetes.io/cephfs", "ceph", _ceph),
    "glusterfs": _Kind("kubernetes.io/glusterfs", "glusterfs", _gluster),
    "iscsi": _Kind("kubernetes.io/iscsi", "ext4", _iscsi),
    "rbd": _Kind("kubernetes.io/rbd", "ext4", _rbd),
    "fc": _Kind("kubernetes.io/fc", "ext4", _fc),
    "quobyte": _Kind("kubernetes.io/quobyte", "quobyte", _named("registry", "volume")),
    "storageos": _Kind("kubernetes.io/storageos", "ext4", _named("volumeNamespace", "volumeName")),
    "scaleIO": _Kind("kubernetes.io/scaleio", "xfs", _named("system", "volumeName")),
    "portworxVolume": _Kind("kubernetes.io/portworx-volume", "ext4", _named("volumeID")),
    "flocker": _Kind("kubernetes.io/flocker", "ext4", _named("datasetName", "datasetUUID")),
    "photonPersistentDisk": _Kind("kubernetes.io/photon-pd", "ext4", _named("pdID")),
    "cinder": _Kind("kubernetes.io/cinder", "ext4", _named("volumeID")),
    "gitRepo": _Kind("kubernetes.io/git-repo", "", _named("repository", "revision")),
    "awsElasticBlockStore": _Kind("kubernetes.io/aws-ebs", "ext4", _named("volumeID"), portable=True),
    "azureDisk": _Kind("kubernetes.io/azure-disk", "ext4", _named("diskName"), portable=True),
    "azureFile": _Kind("kubernetes.io/azure-file", "cifs", _azure_file, portable=True),
    "gcePersistentDisk": _Kind("kubernetes.io/gce-pd", "ext4", _named("pdName"), portable=True),
    "vsphereVolume": _Kind("kubernetes.io/vsphere-volume", "ext4", _named("volumePath"), portable=True),
}


# Those whose file systems the node enlarges; shares grow at their servers alone.
_GROWING: Final = ("awsElasticBlockStore", "azureDisk", "cinder", "gcePersistentDisk", "rbd")
_DISKS: Final = ("awsElasticBlockStore", "azureDisk", "gcePersistentDisk", "vsphereVolume")


def _set_up(field: str, kind: _Kind) -> SetUp:
    async def set_up(tools: Tools, pod: Object, spec: Spec, before: Mounted | None, max_age: float) -> Mounted:
        env = tools.env
        files = env.host.files
        directory = paths.volume_dir(env, pod["metadata"]["uid"], kind.plugin, spec.name)
        source = kind.source(spec.source)
        read_only = spec.read_only or bool(spec.source.get("readOnly"))
        if not kind.portable:
            env.os.mount_share(files, source, directory, kind.file_system, _options(spec, read_only))
        backing = env.os.join(env.config.root_dir, "plugins", kind.plugin, "mounts", _file_name(source))
        if field in _DISKS:
            if problem := env.os.missing_disk(field, source, env.config.release):
                raise StageFailure("MountVolume.WaitForAttach failed", problem)
            if not files.exists(backing) and (problem := env.os.unformattable(spec.source.get("fsType") or "")):
                raise StageFailure("MountVolume.MountDevice failed", problem)
        files.mkdir(backing, 0o755)
        env.os.bind(files, backing, directory)
        if not read_only:
            env.os.set_ownership(files, backing, fs_group(pod), policy=change_policy(pod))
        return Mounted(spec.name, directory, read_only=read_only)

    return set_up


async def _grow(tools: Tools, spec: Spec, path: str, size: quantity.Quantity) -> bool:
    if problem := tools.env.os.ungrowable():
        raise VolumeFailure(problem)
    return True


def _options(spec: Spec, read_only: bool) -> tuple[str, ...]:
    """Of the persistent volume, sorted as Kubernetes joins them."""
    asked = (spec.persistent or {}).get("spec", {}).get("mountOptions") or ()
    return tuple(sorted({*asked, *(("ro",) if read_only else ())}))


def _file_name(source: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "~" for c in source)


PLUGINS: Final[Mapping[str, Plugin]] = {
    field: Plugin(kind.plugin, _set_up(field, kind), grow=_grow if field in _GROWING else None)
    for field, kind in _KINDS.items()
}
