"""Disks and shares of clouds that Kubernetes knows itself, made and enlarged without a cloud.

There is no provider behind a cluster here: a disk is a name, and becomes a directory of the node that mounts it. What
Windows nodes mount can be provisioned; other classes below kubernetes.io say, as ever, that no plugin matched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from transom.controllers.base import Provisioner
from transom.machinery.objects import Object

Parameters = Mapping[str, Any]
_FS: Final = ("fsType", "fstype")


def _fs_type(parameters: Parameters) -> dict[str, str]:
    found = next((str(parameters[key]) for key in _FS if parameters.get(key)), "")
    return {"fsType": found} if found else {}


def _azure_disk(name: str, parameters: Parameters) -> Object:
    disk = f"kubernetes-dynamic-{name}"
    uri = f"/subscriptions/simulated/resourceGroups/transom/providers/Microsoft.Compute/disks/{disk}"
    kind = str(parameters.get("kind") or "Managed").capitalize()
    return {"azureDisk": {"diskName": disk, "diskURI": uri, "kind": kind, **_fs_type(parameters)}}


def _azure_file(name: str, parameters: Parameters) -> Object:
    account = parameters.get("storageAccount") or "simulated"
    share = parameters.get("shareName") or f"kubernetes-dynamic-{name}"
    return {"azureFile": {"secretName": f"azure-storage-account-{account}-secret", "shareName": share}}


_SOURCES: Final[Mapping[str, Callable[[str, Parameters], Object]]] = {
    "kubernetes.io/aws-ebs": lambda name, p: {
        "awsElasticBlockStore": {"volumeID": f"aws://simulated/vol-{name.removeprefix('pvc-')[:17]}", **_fs_type(p)},
    },
    "kubernetes.io/azure-disk": _azure_disk,
    "kubernetes.io/azure-file": _azure_file,
    "kubernetes.io/gce-pd": lambda name, p: {
        "gcePersistentDisk": {"pdName": f"kubernetes-dynamic-{name}", **_fs_type(p)},
    },
    "kubernetes.io/vsphere-volume": lambda name, p: {
        "vsphereVolume": {"volumePath": f"[{p.get('datastore') or 'simulated'}] kubevols/{name}.vmdk", **_fs_type(p)},
    },
}

# Sources that the controllers can enlarge, with their plugins, and whether the node has to enlarge a file system then.
GROWING: Final[Mapping[str, tuple[str, bool]]] = {
    "awsElasticBlockStore": ("kubernetes.io/aws-ebs", True),
    "azureDisk": ("kubernetes.io/azure-disk", True),
    "azureFile": ("kubernetes.io/azure-file", False),
    "cinder": ("kubernetes.io/cinder", True),
    "gcePersistentDisk": ("kubernetes.io/gce-pd", True),
    "glusterfs": ("kubernetes.io/glusterfs", False),
    "portworxVolume": ("kubernetes.io/portworx-volume", False),
    "rbd": ("kubernetes.io/rbd", True),
}


class _InTree:
    def __init__(self, source: Callable[[str, Parameters], Object]) -> None:
        self._source = source

    async def provision(self, claim: Object, storage_class: Object, name: str, node: str) -> Object:
        return self._source(name, storage_class.get("parameters") or {})

    async def delete(self, volume: Object) -> None:
        return None


PROVISIONERS: Final[Mapping[str, Provisioner]] = {name: _InTree(source) for name, source in _SOURCES.items()}
