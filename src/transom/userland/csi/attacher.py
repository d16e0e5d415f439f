"""csi-attacher: asks the driver to attach volumes for VolumeAttachment objects, and to detach them
before the objects go away.
"""

from __future__ import annotations

from typing import Final

from transom.kit.rpc import RpcError
from transom.userland.csi.api import ApiFailure, Object
from transom.userland.csi.sidecar import VOLUMES, Sidecar, fixed, sidecar

_ATTACHMENTS: Final = "/apis/storage.k8s.io/v1/volumeattachments"
_NODES: Final = "/apis/storage.k8s.io/v1/csinodes"


async def _once(side: Sidecar) -> None:
    finalizer = f"external-attacher/{side.driver.replace('.', '-')}"
    for one in await side.api.list(_ATTACHMENTS):
        if one["spec"]["attacher"] != side.driver:
            continue
        if one["metadata"].get("deletionTimestamp"):
            await _detach(one, finalizer, side)
        elif not (one.get("status") or {}).get("attached"):
            await _attach(one, finalizer, side)


async def _attach(attachment: Object, finalizer: str, side: Sidecar) -> None:
    path = f"{_ATTACHMENTS}/{attachment['metadata']['name']}"
    try:
        request = await _request(attachment, side)
        held = attachment["metadata"].get("finalizers") or []
        if finalizer not in held:
            await side.api.patch(path, {"metadata": {"finalizers": [*held, finalizer]}})
        answer = await side.call("ControllerPublishVolume", request)
    except (RpcError, ApiFailure) as problem:
        await side.api.patch(
            f"{path}/status",
            {"status": {"attached": False, "attachError": {"message": str(problem)}}},
        )
        raise
    status = {
        "attached": True,
        "attachError": None,
        "attachmentMetadata": answer.get("publish_context") or None,
    }
    await side.api.patch(f"{path}/status", {"status": status})


async def _detach(attachment: Object, finalizer: str, side: Sidecar) -> None:
    held = attachment["metadata"].get("finalizers") or []
    if finalizer not in held:
        return
    try:
        await side.call("ControllerUnpublishVolume", await _request(attachment, side))
    except ApiFailure as problem:
        if problem.code != 404:  # the volume or the node is gone, so there is nothing to detach
            raise
    rest = [one for one in held if one != finalizer]
    await side.api.patch(
        f"{_ATTACHMENTS}/{attachment['metadata']['name']}",
        {"metadata": {"finalizers": rest or None}},
    )


async def _request(attachment: Object, side: Sidecar) -> Object:
    spec = attachment["spec"]
    volume = await side.api.get(f"{VOLUMES}/{spec['source']['persistentVolumeName']}")
    node = await side.api.get(f"{_NODES}/{spec['nodeName']}")
    rows = {row["name"]: row for row in (node.get("spec") or {}).get("drivers") or ()}
    if side.driver not in rows:
        raise ApiFailure(0, f'node "{spec["nodeName"]}" has no NodeID for driver "{side.driver}"')
    source = volume["spec"]["csi"]
    return {
        "volume_id": source["volumeHandle"],
        "node_id": rows[side.driver]["nodeID"],
        "volume_context": source.get("volumeAttributes") or {},
    }


csi_attacher = sidecar(fixed(_ATTACHMENTS, _NODES), _once)
