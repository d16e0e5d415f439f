"""csi-attacher: asks the driver to attach volumes for VolumeAttachment objects, and to detach them
before the objects go away.
"""

from __future__ import annotations

from typing import Final

from transom.kit.clock import parse_rfc3339, rfc3339
from transom.kit.rpc import RpcError
from transom.userland.csi.api import ApiFailure, Object
from transom.userland.csi.sidecar import VOLUMES, Sidecar, fixed, sidecar

_ATTACHMENTS: Final = "/apis/storage.k8s.io/v1/volumeattachments"
_NODE_ID: Final = "csi.alpha.kubernetes.io/node-id"
_REPEAT: Final = 60.0
_NODES: Final = "/apis/storage.k8s.io/v1/csinodes"


async def _once(side: Sidecar) -> None:
    finalizer = f"external-attacher/{side.driver.replace('.', '-')}"

    async def reconcile(one: Object) -> None:
        if one["metadata"].get("deletionTimestamp"):
            await _detach(one, finalizer, side)
        elif not (one.get("status") or {}).get("attached"):
            await _attach(one, finalizer, side)

    attachments = await side.api.list(_ATTACHMENTS)
    await side.each(
        (one for one in attachments if one["spec"]["attacher"] == side.driver), reconcile
    )


async def _attach(attachment: Object, finalizer: str, side: Sidecar) -> None:
    path = f"{_ATTACHMENTS}/{attachment['metadata']['name']}"
    try:
        request = await _request(attachment, side)
        held = attachment["metadata"].get("finalizers") or []
        if finalizer not in held:
            metadata = {
                "finalizers": [*held, finalizer],
                "annotations": {_NODE_ID: request["node_id"]},
            }
            await side.api.patch(path, {"metadata": metadata})
        answer = await side.call("ControllerPublishVolume", request)
    except (RpcError, ApiFailure) as problem:
        await _report_error(attachment, "attachError", str(problem), side)
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
    except (RpcError, ApiFailure) as problem:
        # 404: the volume or the node is gone, so there is nothing to detach
        if isinstance(problem, RpcError) or problem.code != 404:
            await _report_error(attachment, "detachError", str(problem), side)
            raise
    rest = [one for one in held if one != finalizer]
    await side.api.patch(
        f"{_ATTACHMENTS}/{attachment['metadata']['name']}",
        {"metadata": {"finalizers": rest or None}},
    )


async def _report_error(attachment: Object, field: str, message: str, side: Sidecar) -> None:
    """Writes an error that is new, or repeats it once a minute: each write starts another round."""
    status, now = attachment.get("status") or {}, side.context.clock.time()
    reported = status.get(field) or {}
    last = parse_rfc3339(reported["time"]) if reported.get("time") else 0.0
    if reported.get("message") == message and now - last < _REPEAT:
        return
    error = {"message": message, "time": rfc3339(now)}
    attached = bool(status.get("attached"))
    await side.api.patch(
        f"{_ATTACHMENTS}/{attachment['metadata']['name']}/status",
        {"status": {"attached": attached, field: error}},
    )


async def _request(attachment: Object, side: Sidecar) -> Object:
    spec = attachment["spec"]
    volume = await side.api.get(f"{VOLUMES}/{spec['source']['persistentVolumeName']}")
    node = await side.api.get(f"{_NODES}/{spec['nodeName']}")
    rows = {row["name"]: row["nodeID"] for row in (node.get("spec") or {}).get("drivers") or ()}
    # a driver that left the node can still detach what it attached
    known = (attachment["metadata"].get("annotations") or {}).get(_NODE_ID)
    node_id = rows.get(side.driver) or known
    if not node_id:
        raise ApiFailure(0, f'node "{spec["nodeName"]}" has no NodeID for driver "{side.driver}"')
    source = volume["spec"]["csi"]
    return {
        "volume_id": source["volumeHandle"],
        "node_id": node_id,
        "volume_context": source.get("volumeAttributes") or {},
    }


csi_attacher = sidecar(fixed(_ATTACHMENTS, _NODES), _once)
