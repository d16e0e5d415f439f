"""How each kind of volume is attached: disks by the cloud provider, CSI volumes by a
VolumeAttachment for their driver.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from transom.client.api import ApiClient, is_already_exists, is_not_found
from transom.client.resources import VOLUME_ATTACHMENTS
from transom.cloud.calls import CloudCalls
from transom.cloud.errors import CloudError
from transom.controllers.attachdetach.desired import VolumeSpec
from transom.machinery import quantity
from transom.machinery.attachable import ATTACHABLE, CLOUD_PLUGINS, split_unique_name
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

_NAME: Final = re.compile(r"csi-[0-9a-f]{64}")
_ZONES: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")

# The errors of Kubernetes' plugins when the controller manager has no cloud provider.
_NO_CLOUD: Final = {
    "awsElasticBlockStore": "Failed to get AWS Cloud Provider. GetCloudProvider returned <nil> instead",
    "azureDisk": "AzureDisk -  failed to get Azure Cloud Provider. GetCloudProvider returned <nil> instead",
    "gcePersistentDisk": "failed to get GCE GCECloudProvider with error <nil>",
    "vsphereVolume": "cloud provider not initialized properly",
    "cinder": "cloud provider not initialized properly",
}


class InTreeAttacher:
    def __init__(self, cloud: CloudCalls | None) -> None:
        self._cloud = cloud

    async def attach(self, spec: VolumeSpec, node: Object) -> str:
        """The device path. Raises CloudError."""
        if not ATTACHABLE[spec.kind].cloud:
            return ""  # the kubelet finds the device itself
        if self._cloud is None:
            raise CloudError(_NO_CLOUD[spec.kind])
        labels = node["metadata"].get("labels") or {}
        zone = next((labels[key] for key in _ZONES if key in labels), "")
        return await self._cloud.attach(
            spec.unique_name,
            node["metadata"]["name"],
            size=_size(spec),
            read_only=_attached_read_only(spec),
            zone=zone,
        )

    async def detach(self, name: str, node: str, *, force: bool) -> None:
        """Raises CloudError."""
        if self._cloud is not None and split_unique_name(name)[0] in CLOUD_PLUGINS:
            await self._cloud.detach(name, node, force=force)

    async def is_attached(self, name: str, node: str) -> bool:
        """The volume may have been detached outside of this controller. Raises CloudError."""
        if self._cloud is None or split_unique_name(name)[0] not in CLOUD_PLUGINS:
            return True
        return await self._cloud.is_attached(name, node)


def _attached_read_only(spec: VolumeSpec) -> bool:
    """Only GCE attaches disks read-only."""
    return spec.kind == "gcePersistentDisk" and (
        spec.read_only or bool(spec.source.get("readOnly"))
    )


def _size(spec: VolumeSpec) -> int:
    capacity = ((spec.persistent or {}).get("spec") or {}).get("capacity") or {}
    return int(quantity.parse_quantity(capacity["storage"]).value()) if "storage" in capacity else 0


# ---- CSI ----


def volume_attachment_name(handle: str, driver: str, node: str) -> str:
    return "csi-" + hashlib.sha256(f"{handle}{driver}{node}".encode()).hexdigest()


def is_own_attachment(attachment: Object) -> bool:
    """Whether this controller created it: those of other clients are none of its business."""
    return _NAME.fullmatch(attachment["metadata"]["name"]) is not None


async def create_volume_attachment(client: ApiClient, spec: VolumeSpec, node: str) -> None:
    driver = spec.source["driver"]
    assert spec.persistent is not None
    body = {
        "metadata": {"name": volume_attachment_name(spec.source["volumeHandle"], driver, node)},
        "spec": {
            "attacher": driver,
            "nodeName": node,
            "source": {"persistentVolumeName": spec.persistent["metadata"]["name"]},
        },
    }
    try:
        await client.create(VOLUME_ATTACHMENTS, "", body)
    except ApiError as problem:
        if not is_already_exists(problem):
            raise


async def delete_volume_attachment(client: ApiClient, attachment: Object) -> None:
    meta = attachment["metadata"]
    try:
        await client.delete(VOLUME_ATTACHMENTS, "", meta["name"], uid=meta["uid"])
    except ApiError as problem:
        if not is_not_found(problem):
            raise
