"""Volumes that are attached to a node before its kubelet mounts them: their plugins and unique
names.

The attach/detach controller and the kubelet must agree on these names: both use them in
`volumesAttached` and `volumesInUse` of the node's status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object

Source = Mapping[str, Any]
CSI: Final = "kubernetes.io/csi"


class AttachablePlugin(NamedTuple):
    name: str
    volume_name: Callable[[Source], str]
    cloud: bool = False  # a disk of a cloud provider; others attach without one


def _field(name: str) -> Callable[[Source], str]:
    return lambda source: str(source.get(name) or "")


def _iscsi(source: Source) -> str:
    return f"{source.get('targetPortal', '')}:{source.get('iqn', '')}:{source.get('lun', 0)}"


def _fc(source: Source) -> str:
    names = source.get("targetWWNs")
    if names and source.get("lun") is not None:
        return f"[{' '.join(names)}]:{source['lun']}"
    return f"[{' '.join(source.get('wwids') or ())}]"


def _rbd(source: Source) -> str:
    return f"{source.get('pool') or 'rbd'}:{source.get('image', '')}"


def _csi(source: Source) -> str:
    return f"{source.get('driver', '')}^{source.get('volumeHandle', '')}"


ATTACHABLE: Final[Mapping[str, AttachablePlugin]] = {
    "awsElasticBlockStore": AttachablePlugin(
        "kubernetes.io/aws-ebs", _field("volumeID"), cloud=True
    ),
    "azureDisk": AttachablePlugin("kubernetes.io/azure-disk", _field("diskURI"), cloud=True),
    "gcePersistentDisk": AttachablePlugin("kubernetes.io/gce-pd", _field("pdName"), cloud=True),
    "vsphereVolume": AttachablePlugin(
        "kubernetes.io/vsphere-volume", _field("volumePath"), cloud=True
    ),
    "cinder": AttachablePlugin("kubernetes.io/cinder", _field("volumeID"), cloud=True),
    "iscsi": AttachablePlugin("kubernetes.io/iscsi", _iscsi),
    "fc": AttachablePlugin("kubernetes.io/fc", _fc),
    "rbd": AttachablePlugin("kubernetes.io/rbd", _rbd),
    "csi": AttachablePlugin(CSI, _csi),
}
"""By the field of the volume source."""

CLOUD_PLUGINS: Final = {plugin.name: field for field, plugin in ATTACHABLE.items() if plugin.cloud}


def unique_volume_name(kind: str, source: Source) -> str:
    """The name in `status.volumesAttached` of a node; `kind` is the field of the volume source."""
    plugin = ATTACHABLE[kind]
    return f"{plugin.name}/{plugin.volume_name(source)}"


def split_unique_name(name: str) -> tuple[str, str]:
    """Plugin and volume. The plugin's name has one slash."""
    vendor, _, rest = name.partition("/")
    plugin, _, volume = rest.partition("/")
    return f"{vendor}/{plugin}", volume


def is_multi_attach_allowed(kind: str, volume: Object | None) -> bool:
    """Whether several nodes may attach it; `volume` is the PersistentVolume, None if a pod
    specifies the source itself.
    """
    if volume is None:
        return kind not in ("azureDisk", "cinder")
    modes = volume["spec"].get("accessModes") or ()
    return not modes or "ReadWriteMany" in modes or "ReadOnlyMany" in modes
