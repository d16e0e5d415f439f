"""snapshot-controller and csi-snapshotter: create the content of a VolumeSnapshot, and the driver's
snapshot of the content.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from transom.kit.clock import rfc3339
from transom.kit.rpc import RpcError
from transom.machinery import quantity
from transom.userland.csi.api import ApiFailure, CsiApi, Object
from transom.userland.csi.provisioner import snapshot_version
from transom.userland.csi.sidecar import VOLUMES, Paths, Sidecar, sidecar

_GROUP: Final = "snapshot.storage.k8s.io"
_DEFAULT: Final = f"{_GROUP}/is-default-class"


async def _base(side: Sidecar) -> str:
    return f"/apis/{_GROUP}/{await snapshot_version(side)}"


def _paths(*plurals: str) -> Paths:
    async def found(api: CsiApi) -> Sequence[str]:
        group = await api.get(f"/apis/{_GROUP}")
        return [f"/apis/{group['preferredVersion']['groupVersion']}/{plural}" for plural in plurals]

    return found


# ---- for the whole cluster ----


async def _control(side: Sidecar) -> None:
    base = await _base(side)
    contents = {
        one["metadata"]["name"]: one
        for one in await side.api.list(f"{base}/volumesnapshotcontents")
    }
    for one in await side.api.list(f"{base}/volumesnapshots"):
        if one["metadata"].get("deletionTimestamp"):
            continue
        source = one["spec"]["source"]
        name = source.get("volumeSnapshotContentName") or f"snapcontent-{one['metadata']['uid']}"
        content = contents.get(name)
        if content is None:
            if source.get("persistentVolumeClaimName"):
                await _make_content(one, name, base, side)
            continue
        await _report(one, content, base, side)
    alive = {
        f"snapcontent-{one['metadata']['uid']}"
        for one in await side.api.list(f"{base}/volumesnapshots")
    }
    for name, content in contents.items():
        if (
            name.startswith("snapcontent-")
            and name not in alive
            and content["spec"].get("deletionPolicy") == "Delete"
        ):
            await side.api.delete(f"{base}/volumesnapshotcontents/{name}")


async def _make_content(snapshot: Object, name: str, base: str, side: Sidecar) -> None:
    meta, spec = snapshot["metadata"], snapshot["spec"]
    namespace = meta["namespace"]
    claim = await side.api.get(
        f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{spec['source']['persistentVolumeClaimName']}"
    )
    volume = await side.api.get(f"{VOLUMES}/{claim['spec'].get('volumeName') or 'none'}")
    driver = (volume["spec"].get("csi") or {}).get("driver") or ""
    kind = await _class(spec.get("volumeSnapshotClassName"), driver, base, side)
    await side.api.create(
        f"{base}/volumesnapshotcontents",
        {
            "apiVersion": base.removeprefix("/apis/"),
            "kind": "VolumeSnapshotContent",
            "metadata": {
                "name": name,
                "finalizers": [f"{_GROUP}/volumesnapshotcontent-bound-protection"],
            },
            "spec": {
                "deletionPolicy": kind.get("deletionPolicy") or "Delete",
                "driver": driver,
                "volumeSnapshotClassName": kind["metadata"]["name"],
                "source": {"volumeHandle": volume["spec"]["csi"]["volumeHandle"]},
                "volumeSnapshotRef": {
                    "apiVersion": base.removeprefix("/apis/"),
                    "kind": "VolumeSnapshot",
                    "name": meta["name"],
                    "namespace": namespace,
                    "uid": meta["uid"],
                    "resourceVersion": meta["resourceVersion"],
                },
            },
        },
    )
    await side.record_event(
        {**snapshot, "kind": "VolumeSnapshot", "apiVersion": base.removeprefix("/apis/")},
        "Normal",
        "CreatingSnapshot",
        f"Waiting for a snapshot {namespace}/{meta['name']} to be created by the CSI driver.",
    )


async def _class(name: str | None, driver: str, base: str, side: Sidecar) -> Object:
    if name:
        return await side.api.get(f"{base}/volumesnapshotclasses/{name}")
    for one in await side.api.list(f"{base}/volumesnapshotclasses"):
        if (
            one["driver"] == driver
            and (one["metadata"].get("annotations") or {}).get(_DEFAULT) == "true"
        ):
            return one
    raise ApiFailure(0, "cannot find default snapshot class")


async def _report(snapshot: Object, content: Object, base: str, side: Sidecar) -> None:
    reported, known = snapshot.get("status") or {}, content.get("status") or {}
    size = known.get("restoreSize")
    status: Object = {
        "boundVolumeSnapshotContentName": content["metadata"]["name"],
        "readyToUse": bool(known.get("readyToUse")),
        **({"restoreSize": str(quantity.parse_quantity(str(size)))} if size else {}),
        **(
            {"creationTime": rfc3339(known["creationTime"] / 1e9)}
            if known.get("creationTime")
            else {}
        ),
    }
    if any(reported.get(key) != value for key, value in status.items()):
        meta = snapshot["metadata"]
        path = f"{base}/namespaces/{meta['namespace']}/volumesnapshots/{meta['name']}/status"
        await side.api.update(path, {**snapshot, "status": {**reported, **status}})


# ---- for one driver ----


async def _take(side: Sidecar) -> None:
    base = await _base(side)
    for one in await side.api.list(f"{base}/volumesnapshotcontents"):
        if one["spec"]["driver"] != side.driver:
            continue
        status = one.get("status") or {}
        path = f"{base}/volumesnapshotcontents/{one['metadata']['name']}"
        if one["metadata"].get("deletionTimestamp"):
            await _drop(one, status, path, side)
        elif not status.get("readyToUse"):
            await side.api.update(
                f"{path}/status", {**one, "status": {**status, **await _snapshot(one, side)}}
            )


async def _snapshot(content: Object, side: Sidecar) -> dict[str, Any]:
    source = content["spec"]["source"]
    if source.get("snapshotHandle"):
        return {"snapshotHandle": source["snapshotHandle"], "readyToUse": True}
    uid = content["spec"]["volumeSnapshotRef"]["uid"]
    try:
        answer = await side.call(
            "CreateSnapshot",
            {"name": f"snapshot-{uid}", "source_volume_id": source["volumeHandle"]},
        )
    except RpcError as problem:
        return {
            "readyToUse": False,
            "error": {"message": f"Failed to take snapshot of the volume: {problem}"},
        }
    made = answer["snapshot"]
    return {
        "snapshotHandle": made["snapshot_id"],
        "readyToUse": True,
        "restoreSize": made["size_bytes"],
        "creationTime": made["creation_time"]["seconds"] * 10**9,
    }


async def _drop(content: Object, status: Object, path: str, side: Sidecar) -> None:
    if content["spec"].get("deletionPolicy") == "Delete" and status.get("snapshotHandle"):
        await side.call("DeleteSnapshot", {"snapshot_id": status["snapshotHandle"]})
    if content["metadata"].get("finalizers"):
        metadata = {key: value for key, value in content["metadata"].items() if key != "finalizers"}
        await side.api.update(path, {**content, "metadata": metadata})


snapshot_controller = sidecar(
    _paths("volumesnapshots", "volumesnapshotcontents"), _control, needs_driver=False
)
csi_snapshotter = sidecar(_paths("volumesnapshotcontents"), _take)
