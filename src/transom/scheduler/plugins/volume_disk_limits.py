"""EBSLimits, GCEPDLimits, AzureDiskLimits, CinderLimits: how many disks of a cloud a node can have attached."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from transom.machinery.objects import Object
from transom.scheduler.arrays import Mask, Rows
from transom.scheduler.framework import Cycle, Handle, Verdict, Verdicts, everywhere
from transom.scheduler.snapshot import NodeInfo
from transom.scheduler.volumes import volumes

TOO_MANY = Verdict(("node(s) exceed max volume count",))
_INSTANCE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_NITRO = re.compile(r"^[cmr]5.*|t3|z1d")
_EBS_MOST, _EBS_NITRO_MOST = 39, 25


class _DiskLimits:
    name = ""
    _source = ""  # the field of a volume
    _id = ""  # the field that tells disks apart
    _provisioner = ""
    _resource = ""  # where a node says how many it can have
    _most = 0  # how many when it does not

    def __init__(self, args: Object, handle: Handle) -> None:
        self._volumes = volumes(handle)

    def filter(self, cycle: Cycle, rows: Rows) -> Mask | None:
        if not cycle.pod.pod["spec"].get("volumes"):
            return None
        new = self._disks(cycle.pod.volumes, cycle.pod.namespace)
        if not new:
            return None
        return np.array([self._room(cycle.snapshot.at(row), new) for row in rows.tolist()], np.bool_)

    def verdicts(self, cycle: Cycle, rows: Rows) -> Verdicts:
        return everywhere(TOO_MANY, rows)

    def _room(self, node: NodeInfo, new: set[str]) -> bool:
        there: set[str] = set()
        for pod in {**node.disks, **node.claims}.values():
            there |= self._disks(pod.volumes, pod.namespace)
        return len(there | new) <= dict(node.allocatable.scalars).get(self._resource, self._limit(node))

    def _limit(self, node: NodeInfo) -> int:
        return self._most

    def _disks(self, pod_volumes: Iterable[Object], namespace: str) -> set[str]:
        """The disks of this kind. A claim without a volume counts if its class would make such a disk."""
        out = set()
        for volume in pod_volumes:
            if self._source in volume:
                out.add(volume[self._source].get(self._id, ""))
            elif "persistentVolumeClaim" in volume:
                name = volume["persistentVolumeClaim"].get("claimName", "")
                claim = self._volumes.claim(namespace, name)
                if claim is None:
                    continue
                bound = self._volumes.volume(claim["spec"].get("volumeName", ""))
                if bound is not None:
                    if self._source in bound["spec"]:
                        out.add(bound["spec"][self._source].get(self._id, ""))
                elif self._would_make(claim):
                    out.add(f"claim {namespace}/{name}")
        return out

    def _would_make(self, claim: Object) -> bool:
        found = self._volumes.storage_class(claim["spec"].get("storageClassName") or "")
        return found is not None and found.get("provisioner") == self._provisioner


class EbsLimits(_DiskLimits):
    name = "EBSLimits"
    _source, _id, _provisioner = "awsElasticBlockStore", "volumeID", "kubernetes.io/aws-ebs"
    _resource = "attachable-volumes-aws-ebs"

    def _limit(self, node: NodeInfo) -> int:
        kind = next((node.labels[key] for key in _INSTANCE_TYPES if key in node.labels), "")
        return _EBS_NITRO_MOST if _NITRO.search(kind) else _EBS_MOST


class GcePdLimits(_DiskLimits):
    name = "GCEPDLimits"
    _source, _id, _provisioner = "gcePersistentDisk", "pdName", "kubernetes.io/gce-pd"
    _resource, _most = "attachable-volumes-gce-pd", 16


class AzureDiskLimits(_DiskLimits):
    name = "AzureDiskLimits"
    _source, _id, _provisioner = "azureDisk", "diskName", "kubernetes.io/azure-disk"
    _resource, _most = "attachable-volumes-azure-disk", 16


class CinderLimits(_DiskLimits):
    name = "CinderLimits"
    _source, _id, _provisioner = "cinder", "volumeID", "kubernetes.io/cinder"
    _resource, _most = "attachable-volumes-cinder", 256
