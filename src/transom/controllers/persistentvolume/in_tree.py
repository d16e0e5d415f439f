"""Kubernetes' in-tree provisioners: create, delete and expand disks and shares at the cloud
provider.

Only volumes that Windows nodes can mount are supported; other classes below kubernetes.io report
that no plugin matched. A controller manager without a cloud provider only writes the
PersistentVolume.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from transom.client.api import ApiClient, is_already_exists
from transom.client.informer import Informer
from transom.client.resources import SECRETS
from transom.cloud.calls import CloudCalls
from transom.cloud.errors import CloudError
from transom.controllers.base import ProvisionedVolume, Provisioner, ProvisioningFailure
from transom.machinery import quantity
from transom.machinery.attachable import ATTACHABLE, unique_volume_name
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

Parameters = Mapping[str, Any]
_FS: Final = ("fsType", "fstype")
_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_OLD: Final = {
    _ZONE: "failure-domain.beta.kubernetes.io/zone",
    _REGION: "failure-domain.beta.kubernetes.io/region",
}
_GIB: Final = 1 << 30
_STORAGE_SUFFIX: Final = "file.core.windows.net"


def _fs_type(parameters: Parameters) -> dict[str, str]:
    found = next((str(parameters[key]) for key in _FS if parameters.get(key)), "")
    return {"fsType": found} if found else {}


def _azure_disk(name: str, parameters: Parameters, zone: str) -> Object:
    disk = f"kubernetes-dynamic-{name}"
    uri = (
        f"/subscriptions/simulated/resourceGroups/transom/providers/Microsoft.Compute/disks/{disk}"
    )
    kind = str(parameters.get("kind") or "Managed").capitalize()
    return {"azureDisk": {"diskName": disk, "diskURI": uri, "kind": kind, **_fs_type(parameters)}}


_DISKS: Final[Mapping[str, Callable[[str, Parameters, str], Object]]] = {
    "kubernetes.io/aws-ebs": lambda name, p, zone: {
        "awsElasticBlockStore": {
            "volumeID": f"aws://{zone or 'simulated'}/vol-{name.removeprefix('pvc-').replace('-', '')[:17]}",
            **_fs_type(p),
        },
    },
    "kubernetes.io/azure-disk": _azure_disk,
    "kubernetes.io/gce-pd": lambda name, p, zone: {
        "gcePersistentDisk": {"pdName": f"kubernetes-dynamic-{name}", **_fs_type(p)},
    },
    "kubernetes.io/vsphere-volume": lambda name, p, zone: {
        "vsphereVolume": {
            "volumePath": f"[{p.get('datastore') or 'simulated'}] kubevols/{name}.vmdk",
            **_fs_type(p),
        },
    },
}

# Sources that the controllers can expand, with their plugins, and whether the node has to expand a
# file system.
GROWING: Final[Mapping[str, tuple[str, bool]]] = {
    "awsElasticBlockStore": ("kubernetes.io/aws-ebs", True),
    "azureDisk": ("kubernetes.io/azure-disk", True),
    "azureFile": ("kubernetes.io/azure-file", False),
    "cinder": ("kubernetes.io/cinder", True),
    "flexVolume": ("kubernetes.io/flexvolume", True),
    "gcePersistentDisk": ("kubernetes.io/gce-pd", True),
    "glusterfs": ("kubernetes.io/glusterfs", False),
    "portworxVolume": ("kubernetes.io/portworx-volume", False),
    "rbd": ("kubernetes.io/rbd", True),
}

DELETABLE: Final[Mapping[str, str]] = {
    "awsElasticBlockStore": "kubernetes.io/aws-ebs",
    "azureDisk": "kubernetes.io/azure-disk",
    "azureFile": "kubernetes.io/azure-file",
    "gcePersistentDisk": "kubernetes.io/gce-pd",
    "vsphereVolume": "kubernetes.io/vsphere-volume",
}
"""Sources whose plugins also delete volumes they have not created."""


def requested_bytes(claim: Object) -> int:
    return int(quantity.parse_quantity(claim["spec"]["resources"]["requests"]["storage"]).value())


_MODES: Final = {
    "kubernetes.io/aws-ebs": ("ReadWriteOnce",),
    "kubernetes.io/azure-disk": ("ReadWriteOnce",),
    "kubernetes.io/gce-pd": ("ReadWriteOnce", "ReadOnlyMany"),
    "kubernetes.io/vsphere-volume": ("ReadWriteOnce",),
}


def _check_modes(claim: Object, supported: tuple[str, ...]) -> None:
    requested = claim["spec"].get("accessModes") or ()
    if not set(requested) <= set(supported):
        raise ProvisioningFailure(
            f"invalid AccessModes [{' '.join(requested)}]: only AccessModes "
            f"[{' '.join(supported)}] are supported"
        )


class _DiskProvisioner:
    def __init__(
        self,
        source: Callable[[str, Parameters, str], Object],
        cloud: CloudCalls | None,
        nodes: Informer,
    ) -> None:
        self._source = source
        self._cloud = cloud
        self._nodes = nodes

    async def provision(
        self, claim: Object, storage_class: Object, name: str, node: str
    ) -> ProvisionedVolume:
        parameters = storage_class.get("parameters") or {}
        _check_modes(claim, _MODES[storage_class["provisioner"]])
        labels = self._zone_labels(claim, storage_class, node)
        zone = next((value for key, value in labels.items() if key.endswith("/zone")), "")
        spec = self._source(name, parameters, zone)
        (field,) = spec
        size = -(-requested_bytes(claim) // _GIB) * _GIB
        spec["capacity"] = {"storage": str(quantity.from_int(size // _GIB)) + "Gi"}
        if labels:
            terms = [
                {"key": key, "operator": "In", "values": [value]} for key, value in labels.items()
            ]
            spec["nodeAffinity"] = {
                "required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}
            }
        if self._cloud is not None:
            try:
                await self._cloud.create_disk(unique_volume_name(field, spec[field]), size, zone)
            except CloudError as problem:
                raise ProvisioningFailure(str(problem)) from problem
        return ProvisionedVolume(spec, labels)

    async def delete(self, volume: Object) -> None:
        field = next((field for field in volume["spec"] if field in ATTACHABLE), "")
        if self._cloud is None or not field:
            return
        try:
            await self._cloud.delete_disk(unique_volume_name(field, volume["spec"][field]))
        except CloudError as problem:
            raise ProvisioningFailure(str(problem)) from problem

    def _zone_labels(self, claim: Object, storage_class: Object, node: str) -> dict[str, str]:
        """The labels of the zone in which the volume is created, as on the nodes of that zone;
        empty if nodes have no zones.
        """
        zones: dict[str, Mapping[str, str]] = {}  # zone -> labels of a node there
        selected = ""
        for found in self._nodes.list():
            labels = found["metadata"].get("labels") or {}
            zone = labels.get(_ZONE) or labels.get(_OLD[_ZONE]) or ""
            if zone:
                zones.setdefault(zone, labels)
                selected = zone if found["metadata"]["name"] == node else selected
        allowed = _allowed_zones(storage_class) or set(zones)
        if not selected and allowed:
            selected = choose_zone(allowed, claim["metadata"]["name"])
        if not selected:
            return {}
        if node and selected not in allowed:
            raise ProvisioningFailure(
                f"kubernetes.io: zone {selected} of node {node} is not in allowedTopologies "
                "of the StorageClass"
            )
        shown = zones.get(selected, {_ZONE: selected})
        out = {}
        for key in (_REGION, _ZONE):
            written = _OLD[key] if _OLD[key] in shown and key not in shown else key
            if shown.get(written):
                out[written] = shown[written]
        return out


def _allowed_zones(storage_class: Object) -> set[str]:
    """The zones from the parameters and allowedTopologies of the class."""
    parameters = storage_class.get("parameters") or {}
    named = {
        text.strip()
        for key in ("zone", "zones")
        for text in str(parameters.get(key) or "").split(",")
    }
    for term in storage_class.get("allowedTopologies") or ():
        for row in term.get("matchLabelExpressions") or ():
            if row["key"] in (_ZONE, _OLD[_ZONE]):
                named |= set(row.get("values") or ())
    return named - {""}


def choose_zone(zones: Iterable[str], claim: str) -> str:
    """Claims of a StatefulSet are spread over zones by their ordinal."""
    ordered = sorted(zones)
    base, index = claim, 0
    if match := re.fullmatch(r"(.*)-([0-9]{1,9})", claim):
        index = int(match[2])
        base = match[1].rpartition("-")[2]
    digest = 2166136261
    for byte in base.encode():
        digest = digest * 16777619 % (1 << 32) ^ byte  # FNV-1
    return ordered[(digest + index) % len(ordered)]


class _AzureFileProvisioner:
    """Writes the key of the storage account to a Secret. As in Kubernetes, the administrator must
    grant the controller this permission.
    """

    def __init__(self, cloud: CloudCalls | None, client: ApiClient) -> None:
        self._cloud = cloud
        self._client = client

    async def provision(
        self, claim: Object, storage_class: Object, name: str, node: str
    ) -> ProvisionedVolume:
        parameters = {
            key.lower(): value for key, value in (storage_class.get("parameters") or {}).items()
        }
        account = str(parameters.get("storageaccount") or "simulated")
        share = str(parameters.get("sharename") or f"kubernetes-dynamic-{name}")
        namespace = str(parameters.get("secretnamespace") or claim["metadata"]["namespace"])
        secret = str(parameters.get("secretname") or f"azure-storage-account-{account}-secret")
        if self._cloud is not None:
            key = base64.b64encode(
                hashlib.sha512(f"{account} of the emulated cloud".encode()).digest()
            ).decode()
            await self._write_secret(namespace, secret, account, key)
            try:
                await self._cloud.create_share(
                    f"{account}.{_STORAGE_SUFFIX}",
                    share,
                    account=account,
                    key=key,
                    size=max(requested_bytes(claim), _GIB),
                )
            except CloudError as problem:
                raise ProvisioningFailure(str(problem)) from problem
        return ProvisionedVolume(
            {"azureFile": {"secretName": secret, "shareName": share, "secretNamespace": namespace}},
            {},
        )

    async def _write_secret(self, namespace: str, name: str, account: str, key: str) -> None:
        data = {"azurestorageaccountname": account, "azurestorageaccountkey": key}
        encoded = {
            field: base64.b64encode(value.encode()).decode() for field, value in data.items()
        }
        try:
            await self._client.create(
                SECRETS, namespace, {"metadata": {"name": name}, "type": "Opaque", "data": encoded}
            )
        except ApiError as problem:
            if not is_already_exists(problem):
                raise ProvisioningFailure(f"Couldn't create secret {problem}") from problem

    async def delete(self, volume: Object) -> None:
        source = volume["spec"].get("azureFile") or {}
        account = (
            str(source.get("secretName", ""))
            .removeprefix("azure-storage-account-")
            .removesuffix("-secret")
        )
        if self._cloud is not None:
            try:
                await self._cloud.delete_share(
                    f"{account}.{_STORAGE_SUFFIX}", str(source.get("shareName", ""))
                )
            except CloudError as problem:
                raise ProvisioningFailure(str(problem)) from problem


def provisioners(
    cloud: CloudCalls | None, client: ApiClient, nodes: Informer
) -> dict[str, Provisioner]:
    out: dict[str, Provisioner] = {
        name: _DiskProvisioner(source, cloud, nodes) for name, source in _DISKS.items()
    }
    out["kubernetes.io/azure-file"] = _AzureFileProvisioner(cloud, client)
    return out
