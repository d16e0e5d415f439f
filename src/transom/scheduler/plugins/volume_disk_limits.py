"""EBSLimits, GCEPDLimits, AzureDiskLimits, CinderLimits: the number of cloud disks a node can have
attached.
"""

from __future__ import annotations

from collections.abc import Iterable

from transom.kit.lazy import lazy_pattern
from transom.machinery.objects import Object
from transom.scheduler.plugins.volume_limits import VolumeLimits
from transom.scheduler.snapshot import NodeInfo

_INSTANCE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_NITRO = lazy_pattern(r"^[cmr]5.*|t3|z1d")
_EBS_LIMIT, _EBS_NITRO_LIMIT = 39, 25


class _DiskLimits(VolumeLimits[set[str]]):
    _source = ""  # the field of a volume
    _id = ""  # the field that identifies a disk
    _provisioner = ""
    _resource = ""  # the allocatable resource with the limit of a node
    _default_limit = 0  # the limit of nodes without that resource

    def _has_room(self, node: NodeInfo, new: set[str]) -> bool:
        there: set[str] = set()
        for pod in {**node.disks, **node.claims}.values():
            there |= self._attached(pod.volumes, pod.namespace, pod.name)
        return len(there | new) <= dict(node.allocatable.scalars).get(
            self._resource, self._limit(node)
        )

    def _limit(self, node: NodeInfo) -> int:
        return self._default_limit

    def _attached(self, pod_volumes: Iterable[Object], namespace: str, pod_name: str) -> set[str]:
        """The disks of this kind. An unbound claim counts if its class provisions such disks."""
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
                elif self._would_provision(claim):
                    out.add(f"claim {namespace}/{name}")
        return out

    def _would_provision(self, claim: Object) -> bool:
        found = self._volumes.storage_class(claim["spec"].get("storageClassName") or "")
        return found is not None and found.get("provisioner") == self._provisioner


class EbsLimits(_DiskLimits):
    name = "EBSLimits"
    _source, _id, _provisioner = "awsElasticBlockStore", "volumeID", "kubernetes.io/aws-ebs"
    _resource = "attachable-volumes-aws-ebs"

    def _limit(self, node: NodeInfo) -> int:
        kind = next((node.labels[key] for key in _INSTANCE_TYPES if key in node.labels), "")
        return _EBS_NITRO_LIMIT if _NITRO.search(kind) else _EBS_LIMIT


class GcePdLimits(_DiskLimits):
    name = "GCEPDLimits"
    _source, _id, _provisioner = "gcePersistentDisk", "pdName", "kubernetes.io/gce-pd"
    _resource, _default_limit = "attachable-volumes-gce-pd", 16


class AzureDiskLimits(_DiskLimits):
    name = "AzureDiskLimits"
    _source, _id, _provisioner = "azureDisk", "diskName", "kubernetes.io/azure-disk"
    _resource, _default_limit = "attachable-volumes-azure-disk", 16


class CinderLimits(_DiskLimits):
    name = "CinderLimits"
    _source, _id, _provisioner = "cinder", "volumeID", "kubernetes.io/cinder"
    _resource, _default_limit = "attachable-volumes-cinder", 256
