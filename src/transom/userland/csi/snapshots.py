"""snapshot-controller and csi-snapshotter: create the content of a VolumeSnapshot, and the driver's
snapshot of the content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from transom.kit.clock import rfc3339
from transom.kit.rpc import RpcError
from transom.machinery import quantity
from transom.userland.csi.api import ApiFailure, CsiApi, Object
from transom.userland.csi.provisioner import snapshot_version
from transom.userland.csi.sidecar import VOLUMES, Paths, Sidecar, sidecar

_GROUP: Final = "snapshot.storage.k8s.io"
_DEFAULT: Final = "snapshot.storage.kubernetes.io/is-default-class"


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
    snapshots = await side.api.list(f"{base}/volumesnapshots")
    alive = {f"snapcontent-{one['metadata']['uid']}" for one in snapshots}
    released = [
        content
        for name, content in contents.items()
        if name.startswith("snapcontent-")
        and name not in alive
        and not content["metadata"].get("deletionTimestamp")
        and content["spec"].get("deletionPolicy") == "Delete"
    ]

    async def reconcile(one: Object) -> None:
        await _bind(one, contents, base, side)

    async def delete(content: Object) -> None:
        await side.api.delete(f"{base}/volumesnapshotcontents/{content['metadata']['name']}")

    try:
        await side.each(
            (one for one in snapshots if not one["metadata"].get("deletionTimestamp")), reconcile
        )
    finally:
        await side.each(released, delete)


async def _bind(snapshot: Object, contents: Mapping[str, Object], base: str, side: Sidecar) -> None:
    source = snapshot["spec"]["source"]
    name = source.get("volumeSnapshotContentName") or f"snapcontent-{snapshot['metadata']['uid']}"
    content = contents.get(name)
    if content is not None:
        await _report(snapshot, content, base, side)
        return
    if source.get("volumeSnapshotContentName"):
        await _report_error(
            snapshot, "SnapshotContentMissing", "VolumeSnapshotContent is missing", base, side
        )
        return
    try:
        await _make_content(snapshot, name, base, side)
    except _NotCreated as failure:
        await _report_error(snapshot, failure.reason, str(failure), base, side)
        raise


class _NotCreated(ApiFailure):
    """Why a snapshot gets no content; `reason` is the reason of its event."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(0, message)
        self.reason = reason


async def _report_error(
    snapshot: Object, reason: str, message: str, base: str, side: Sidecar
) -> None:
    """Writes an error that is new."""
    meta, status = snapshot["metadata"], snapshot.get("status") or {}
    if (status.get("error") or {}).get("message") == message:
        return
    error = {"message": message, "time": rfc3339(side.context.clock.time())}
    path = f"{base}/namespaces/{meta['namespace']}/volumesnapshots/{meta['name']}/status"
    await side.api.update(
        path, {**snapshot, "status": {**status, "error": error, "readyToUse": False}}
    )
    await side.record_event(_reference(snapshot, base), "Warning", reason, message)


def _reference(snapshot: Object, base: str) -> Object:
    return {**snapshot, "kind": "VolumeSnapshot", "apiVersion": base.removeprefix("/apis/")}


async def _claim_volume(snapshot: Object, side: Sidecar) -> Object:
    """The volume of the snapshot's claim. Raises ApiFailure."""
    namespace = snapshot["metadata"]["namespace"]
    called = snapshot["spec"]["source"]["persistentVolumeClaimName"]
    try:
        claim = await side.api.get(
            f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{called}"
        )
    except ApiFailure as problem:
        raise ApiFailure(
            problem.code, f'failed to retrieve PVC {called} from the lister: "{problem}"'
        ) from problem
    if not claim["spec"].get("volumeName"):
        raise ApiFailure(
            0, f"the PVC {called} is not yet bound to a PV, will not attempt to take a snapshot"
        )
    volume = await side.api.get(f"{VOLUMES}/{claim['spec']['volumeName']}")
    if not volume["spec"].get("csi"):
        raise ApiFailure(
            0, f"cannot find CSI PersistentVolumeSource for volume {volume['metadata']['name']}"
        )
    return volume


async def _make_content(snapshot: Object, name: str, base: str, side: Sidecar) -> None:
    meta, spec = snapshot["metadata"], snapshot["spec"]
    namespace, class_name = meta["namespace"], spec.get("volumeSnapshotClassName")
    kind: Object = {}
    if class_name:
        try:
            kind = await side.api.get(f"{base}/volumesnapshotclasses/{class_name}")
        except ApiFailure as problem:
            text = f"Failed to get snapshot class with error {problem}"
            raise _NotCreated("GetSnapshotClassFailed", text) from problem
    try:
        volume = await _claim_volume(snapshot, side)
    except ApiFailure as problem:
        text = f"Failed to create snapshot content with error {problem}"
        raise _NotCreated("SnapshotContentCreationFailed", text) from problem
    driver = volume["spec"]["csi"]["driver"]
    kind = kind or await _default_class(driver, base, side)
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
        _reference(snapshot, base),
        "Normal",
        "CreatingSnapshot",
        f"Waiting for a snapshot {namespace}/{meta['name']} to be created by the CSI driver.",
    )


async def _default_class(driver: str, base: str, side: Sidecar) -> Object:
    found = [
        one
        for one in await side.api.list(f"{base}/volumesnapshotclasses")
        if one["driver"] == driver
        and (one["metadata"].get("annotations") or {}).get(_DEFAULT) == "true"
    ]
    if len(found) != 1:
        why = (
            f"{len(found)} default snapshot classes were found"
            if found
            else "cannot find default snapshot class"
        )
        text = f"Failed to set default snapshot class with error {why}"
        raise _NotCreated("SetDefaultSnapshotClassFailed", text)
    return found[0]


async def _report(snapshot: Object, content: Object, base: str, side: Sidecar) -> None:
    reported, known = snapshot.get("status") or {}, content.get("status") or {}
    size = known.get("restoreSize")
    status: Object = {
        "boundVolumeSnapshotContentName": content["metadata"]["name"],
        "readyToUse": bool(known.get("readyToUse")),
        **(
            {"restoreSize": str(quantity.Quantity(int(size), 0, quantity.BINARY_SI))}
            if size
            else {}
        ),
        **(
            {"creationTime": rfc3339(known["creationTime"] / 1e9)}
            if known.get("creationTime")
            else {}
        ),
    }
    error = known.get("error")
    if not error and "error" in reported:
        reported = {key: value for key, value in reported.items() if key != "error"}
    elif error:
        status["error"] = error
    if reported == snapshot.get("status") and all(reported.get(k) == v for k, v in status.items()):
        return
    meta, was = snapshot["metadata"], snapshot.get("status") or {}
    path = f"{base}/namespaces/{meta['namespace']}/volumesnapshots/{meta['name']}/status"
    await side.api.update(path, {**snapshot, "status": {**reported, **status}})
    about, key = _reference(snapshot, base), f"{meta['namespace']}/{meta['name']}"
    if status.get("creationTime") and not was.get("creationTime"):
        await side.record_event(
            about,
            "Normal",
            "SnapshotCreated",
            f"Snapshot {key} was successfully created by the CSI driver.",
        )
    if status["readyToUse"] and not was.get("readyToUse"):
        await side.record_event(
            about, "Normal", "SnapshotReady", f"Snapshot {key} is ready to use."
        )


# ---- for one driver ----


async def _take(side: Sidecar) -> None:
    base = await _base(side)

    async def reconcile(one: Object) -> None:
        status = one.get("status") or {}
        path = f"{base}/volumesnapshotcontents/{one['metadata']['name']}"
        if one["metadata"].get("deletionTimestamp"):
            await _drop(one, status, path, side)
        elif not status.get("readyToUse"):
            await _snapshot(one, path, base, side)

    contents = await side.api.list(f"{base}/volumesnapshotcontents")
    await side.each((one for one in contents if one["spec"]["driver"] == side.driver), reconcile)


async def _snapshot(content: Object, path: str, base: str, side: Sidecar) -> None:
    source, status = content["spec"]["source"], content.get("status") or {}
    try:
        made = await _create_snapshot(content, side)
    except RpcError as problem:
        text = (
            "Failed to check and update snapshot content: failed to take snapshot of the volume "
            f'{source["volumeHandle"]}: "{problem}"'
        )
        if (status.get("error") or {}).get("message") != text:
            error = {"message": text, "time": rfc3339(side.context.clock.time())}
            failed = {**status, "readyToUse": False, "error": error}
            await side.api.update(f"{path}/status", {**content, "status": failed})
            about = {
                **content,
                "kind": "VolumeSnapshotContent",
                "apiVersion": base.removeprefix("/apis/"),
            }
            await side.record_event(about, "Warning", "SnapshotContentCheckandUpdateFailed", text)
        raise
    rest = {key: value for key, value in status.items() if key != "error"}
    await side.api.update(f"{path}/status", {**content, "status": {**rest, **made}})


async def _create_snapshot(content: Object, side: Sidecar) -> Object:
    """The status of a content with a snapshot. Raises RpcError."""
    source = content["spec"]["source"]
    if source.get("snapshotHandle"):
        return {"snapshotHandle": source["snapshotHandle"], "readyToUse": True}
    uid = content["spec"]["volumeSnapshotRef"]["uid"]
    answer = await side.call(
        "CreateSnapshot",
        {"name": f"snapshot-{uid}", "source_volume_id": source["volumeHandle"]},
    )
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
