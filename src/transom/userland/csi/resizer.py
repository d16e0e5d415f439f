"""csi-resizer: expands volumes whose claims request more storage.

The driver expands the volume; the kubelets of the nodes where it is mounted expand the file system.
"""

from __future__ import annotations

from transom.kit.clock import rfc3339
from transom.kit.rpc import RpcError
from transom.machinery import quantity
from transom.userland.csi.api import Object
from transom.userland.csi.sidecar import CLAIMS, VOLUMES, Sidecar, fixed, sidecar

_PENDING = "Waiting for user to (re-)start a pod to finish file system resize of volume on node."


async def _once(side: Sidecar) -> None:
    volumes = {one["metadata"]["name"]: one for one in await side.api.list(VOLUMES)}

    async def reconcile(claim: Object) -> None:
        volume = volumes.get(claim["spec"].get("volumeName") or "")
        if volume is None or (volume["spec"].get("csi") or {}).get("driver") != side.driver:
            return
        if (claim.get("status") or {}).get("phase") != "Bound":
            return
        requested = claim["spec"]["resources"]["requests"]["storage"]
        if quantity.parse_quantity(requested) > quantity.parse_quantity(
            volume["spec"]["capacity"]["storage"]
        ):
            await _grow(
                {**claim, "kind": "PersistentVolumeClaim", "apiVersion": "v1"},
                volume,
                requested,
                side,
            )

    await side.each(await side.api.list(CLAIMS), reconcile)


async def _grow(claim: Object, volume: Object, requested: str, side: Sidecar) -> None:
    meta, name = claim["metadata"], volume["metadata"]["name"]
    path = f"/api/v1/namespaces/{meta['namespace']}/persistentvolumeclaims/{meta['name']}/status"
    await side.record_event(
        claim, "Normal", "Resizing", f"External resizer is resizing volume {name}"
    )
    await side.api.patch(path, {"status": {"conditions": _conditions(claim, "Resizing", "", side)}})
    try:
        answer = await side.call(
            "ControllerExpandVolume",
            {
                "volume_id": volume["spec"]["csi"]["volumeHandle"],
                "capacity_range": {
                    "required_bytes": int(quantity.parse_quantity(requested).value())
                },
            },
        )
    except RpcError as problem:
        text = f'resize volume "{name}" by resizer "{side.driver}" failed: {problem}'
        await side.record_event(claim, "Warning", "VolumeResizeFailed", text)
        raise
    await side.api.patch(f"{VOLUMES}/{name}", {"spec": {"capacity": {"storage": requested}}})
    if answer.get("node_expansion_required"):
        conditions = _conditions(claim, "FileSystemResizePending", _PENDING, side)
        await side.api.patch(path, {"status": {"conditions": conditions}})
        await side.record_event(
            claim,
            "Normal",
            "FileSystemResizeRequired",
            "Require file system resize of volume on node",
        )
    else:
        rest = _conditions(claim, "", "", side)
        await side.api.patch(
            path, {"status": {"conditions": rest or None, "capacity": {"storage": requested}}}
        )
        await side.record_event(
            claim, "Normal", "VolumeResizeSuccessful", "Resize volume succeeded"
        )


def _conditions(claim: Object, kind: str, message: str, side: Sidecar) -> list[Object]:
    rows = (claim.get("status") or {}).get("conditions") or ()
    rest = [row for row in rows if row["type"] not in ("Resizing", "FileSystemResizePending")]
    if not kind:
        return rest
    new = {"type": kind, "status": "True", "lastTransitionTime": rfc3339(side.context.clock.time())}
    return [*rest, {**new, "message": message} if message else new]


csi_resizer = sidecar(fixed(CLAIMS, VOLUMES), _once)
