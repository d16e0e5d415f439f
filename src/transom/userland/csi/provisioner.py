"""csi-provisioner: creates volumes for claims of its driver's classes, also from snapshots and from
other volumes, and deletes released volumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from transom.kit.rpc import RpcError
from transom.machinery import quantity
from transom.userland.csi.api import ApiFailure, Object
from transom.userland.csi.flags import PUBLISH
from transom.userland.csi.sidecar import CLAIMS, VOLUMES, Sidecar, fixed, sidecar

_CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
_ASKED: Final = "volume.beta.kubernetes.io/storage-provisioner"
_NODE: Final = "volume.kubernetes.io/selected-node"
_MADE_BY: Final = "pv.kubernetes.io/provisioned-by"
_FS_TYPE: Final = "csi.storage.k8s.io/fstype"
_SNAPSHOTS: Final = "snapshot.storage.k8s.io"


async def _once(side: Sidecar) -> None:
    claims = [
        {**claim, "kind": "PersistentVolumeClaim", "apiVersion": "v1"}
        for claim in await side.api.list(CLAIMS)
        if (claim["metadata"].get("annotations") or {}).get(_ASKED) == side.driver
        and not claim["spec"].get("volumeName")
    ]
    volumes = [
        {**volume, "kind": "PersistentVolume", "apiVersion": "v1"}
        for volume in await side.api.list(VOLUMES)
        if _is_ours_to_delete(volume, side.driver)
    ]

    async def reconcile(one: Object) -> None:
        await (_provide if one["kind"] == "PersistentVolumeClaim" else _delete)(one, side)

    await side.each((*claims, *volumes), reconcile)


async def _provide(claim: Object, side: Sidecar) -> None:
    meta, spec = claim["metadata"], claim["spec"]
    key, name = f"{meta['namespace']}/{meta['name']}", f"pvc-{meta['uid']}"
    kind = spec.get("storageClassName") or ""
    storage_class = await side.api.get(f"{_CLASSES}/{kind}")
    late = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    if late and not (meta.get("annotations") or {}).get(_NODE):
        return
    try:
        await side.api.get(f"{VOLUMES}/{name}")
        return  # the claim is about to be bound
    except ApiFailure as problem:
        if problem.code != 404:
            raise
    await side.record_event(
        claim,
        "Normal",
        "Provisioning",
        f'External provisioner is provisioning volume for claim "{key}"',
    )
    parameters = storage_class.get("parameters") or {}
    try:
        made = (
            await side.call(
                "CreateVolume",
                {
                    "name": name,
                    "capacity_range": {"required_bytes": int(_size(spec).value())},
                    "parameters": {
                        k: v
                        for k, v in parameters.items()
                        if not k.startswith("csi.storage.k8s.io/")
                    },
                    "volume_content_source": await _source(claim, side),
                },
            )
        )["volume"]
    except (RpcError, ApiFailure) as problem:
        await side.record_event(
            claim,
            "Warning",
            "ProvisioningFailed",
            f'failed to provision volume with StorageClass "{kind}": {problem}',
        )
        raise
    await side.api.create(VOLUMES, _volume(claim, storage_class, name, made, side))
    await side.record_event(
        claim, "Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {name}"
    )


def _size(spec: Object) -> quantity.Quantity:
    return quantity.parse_quantity(spec["resources"]["requests"]["storage"])


async def _source(claim: Object, side: Sidecar) -> Object | None:
    source = claim["spec"].get("dataSource")
    if not source:
        return None
    try:
        if source["kind"] == "PersistentVolumeClaim":
            return await _volume_source(source["name"], claim["metadata"]["namespace"], side)
        if source["kind"] == "VolumeSnapshot" and source.get("apiGroup") == _SNAPSHOTS:
            return await _snapshot_source(source["name"], claim["metadata"]["namespace"], side)
    except ApiFailure as problem:
        raise ApiFailure(
            problem.code,
            f"error getting handle for DataSource Type {source['kind']} by Name {source['name']}: {problem}",
        ) from problem
    raise ApiFailure(0, f"the PVC source not in supported kinds: {source['kind']}")


async def _volume_source(name: str, namespace: str, side: Sidecar) -> Object:
    try:
        claim = await side.api.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
    except ApiFailure as problem:
        raise ApiFailure(
            problem.code,
            f'error getting PVC {name} (namespace "{namespace}") from api server: {problem}',
        ) from problem
    if (claim.get("status") or {}).get("phase") != "Bound":
        raise ApiFailure(0, "claim in dataSource not bound or invalid")
    volume = await side.api.get(f"{VOLUMES}/{claim['spec']['volumeName']}")
    handle = volume["spec"].get("csi") or {}
    if handle.get("driver") != side.driver:
        raise ApiFailure(0, "claim in dataSource not bound or invalid")
    return {"volume": {"volume_id": handle["volumeHandle"]}}


async def _snapshot_source(name: str, namespace: str, side: Sidecar) -> Object:
    try:
        base = f"/apis/{_SNAPSHOTS}/{await snapshot_version(side)}"
        snapshot = await side.api.get(f"{base}/namespaces/{namespace}/volumesnapshots/{name}")
    except ApiFailure as problem:
        raise ApiFailure(
            problem.code, f"error getting snapshot {name} from api server: {problem}"
        ) from problem
    status = snapshot.get("status") or {}
    if not status.get("readyToUse"):
        raise ApiFailure(0, f"snapshot {name} is not Ready")
    content = await side.api.get(
        f"{base}/volumesnapshotcontents/{status['boundVolumeSnapshotContentName']}"
    )
    return {"snapshot": {"snapshot_id": content["status"]["snapshotHandle"]}}


async def snapshot_version(side: Sidecar) -> str:
    """The version of the snapshot API that the cluster serves."""
    found = await side.api.get(f"/apis/{_SNAPSHOTS}")
    return str(found["preferredVersion"]["version"])


def _volume(claim: Object, storage_class: Object, name: str, made: Object, side: Sidecar) -> Object:
    meta, spec = claim["metadata"], claim["spec"]
    fs_type = (
        (storage_class.get("parameters") or {}).get(_FS_TYPE)
        or side.flags.get("default-fstype")
        or ""
    )
    block = spec.get("volumeMode") == "Block"
    size = quantity.parse_quantity(str(made.get("capacity_bytes") or 0))
    requested = _size(spec)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {_MADE_BY: side.driver}},
        "spec": {
            "accessModes": spec.get("accessModes") or [],
            "capacity": {"storage": str(size if size > requested else requested)},
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
            "storageClassName": spec.get("storageClassName") or "",
            "volumeMode": spec.get("volumeMode") or "Filesystem",
            **(
                {"mountOptions": storage_class["mountOptions"]}
                if storage_class.get("mountOptions")
                else {}
            ),
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
            },
            "csi": {
                "driver": side.driver,
                "volumeHandle": made["volume_id"],
                **({"fsType": fs_type} if fs_type and not block else {}),
                "volumeAttributes": {
                    "storage.kubernetes.io/csiProvisionerIdentity": f"{side.context.network.hostname}-{side.driver}",
                    **(made.get("volume_context") or {}),
                },
            },
        },
    }


def _is_ours_to_delete(volume: Object, driver: str) -> bool:
    notes, spec = volume["metadata"].get("annotations") or {}, volume["spec"]
    released = (volume.get("status") or {}).get("phase") in ("Released", "Failed")
    ours = notes.get(_MADE_BY) == driver and (spec.get("csi") or {}).get("driver") == driver
    return released and ours and spec.get("persistentVolumeReclaimPolicy") == "Delete"


async def _attachments(side: Sidecar) -> Sequence[Object]:
    """None for a driver that does not attach volumes: its manifests give no right to read them."""
    found = await side.call("ControllerGetCapabilities", {})
    if PUBLISH not in {one["rpc"]["type"] for one in found["capabilities"]}:
        return ()
    return await side.api.list("/apis/storage.k8s.io/v1/volumeattachments")


async def _delete(volume: Object, side: Sidecar) -> None:
    name = volume["metadata"]["name"]
    try:
        for one in await _attachments(side):
            if one["spec"]["source"].get("persistentVolumeName") == name:
                raise ApiFailure(
                    0,
                    f"persistentvolume {name} is still attached to node {one['spec']['nodeName']}",
                )
        await side.call("DeleteVolume", {"volume_id": volume["spec"]["csi"]["volumeHandle"]})
    except (RpcError, ApiFailure) as problem:
        await side.record_event(volume, "Warning", "VolumeFailedDelete", str(problem))
        raise
    await side.api.delete(f"{VOLUMES}/{name}")


csi_provisioner = sidecar(fixed(CLAIMS, VOLUMES), _once)
