"""Checks of claims and volumes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from transom.doctor import causes
from transom.doctor.findings import DoctorFinding
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    condition_text,
    event_message,
    event_time,
    key_of_object,
    name_of_object,
    place_of_object,
    time_of,
)
from transom.machinery import quantity

_RELEASED: Final = " is Released and keeps the data of a deleted claim"
_SELECTED: Final = "volume.kubernetes.io/selected-node"  # set by the scheduler
_NO_SNAPSHOT: Final = "Claims with it as dataSource stay Pending."
_RECENT: Final = 300.0
_LATE: Final = 120.0


def check_persistent_volume_claims(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    classes = {name_of_object(one): one for one in s.of("storageclasses")}
    volumes = {name_of_object(one): one for one in s.of("persistentvolumes")}
    for claim in s.of("persistentvolumeclaims"):
        phase = (claim.get("status") or {}).get("phase")
        where, why = (
            (place_of_object("persistentvolumeclaim", claim),),
            "Pods that use it stay Pending.",
        )
        if phase == "Lost":
            volume = (claim.get("spec") or {}).get("volumeName", "")
            yield DoctorFinding(
                "error",
                f"is Lost: its volume {volume} does not exist",
                where,
                why,
                "Restore the volume, or delete the claim and create it again.",
            )
        if phase != "Pending":
            continue
        events = [
            e
            for e in s.events_of("PersistentVolumeClaim", claim)
            if s.now - event_time(e) < _RECENT * 4
        ]
        if _waits(claim, classes) and not any(e.get("type") == "Warning" for e in events):
            continue
        named = str((claim.get("spec") or {}).get("volumeName") or "")
        if named and named not in volumes and "persistentvolumes" not in s.unread:
            yield DoctorFinding(
                "error",
                f"is Pending: the volume {named} that it names does not exist",
                where,
                why,
                f"Create the PersistentVolume {named}, or delete the claim and create it without spec.volumeName.",
            )
            continue
        age = s.now - time_of(claim["metadata"].get("creationTimestamp", ""))
        text = next(
            (
                event_message(e)
                for e in events
                if causes.explain_text(causes.CLAIM, str(e.get("reason")), event_message(e))
            ),
            next((event_message(e) for e in events if e.get("type") == "Warning"), ""),
        )
        found = (
            causes.explain_text(
                causes.CLAIM, "", text, known={"namespace": key_of_object(claim)[0]}
            )
            if text
            else None
        )
        if found is not None and (age > 15 or any(e.get("type") == "Warning" for e in events)):
            near = (
                _near_misses(claim, volumes.values())
                if "PersistentVolume fits" in found.cause
                else ""
            )
            remedy, commands = found.remedy, _missing_class(s, claim, found.cause)
            if _RELEASED in near:
                remedy = f"{_release(near)} Or: {remedy[0].lower()}{remedy[1:]}"
            yield DoctorFinding(
                "error",
                f"is Pending: {found.cause}{near} ({text})",
                where,
                why,
                remedy,
                commands=commands,
            )
        elif text or age > _LATE:
            yield DoctorFinding(
                "error" if text else "warning",
                f"is Pending: {text}" if text else "is Pending",
                where,
                why,
                "Check its StorageClass, and the volumes that exist.",
            )


def _missing_class(s: ClusterSnapshot, claim: Object, cause: str) -> tuple[str, ...]:
    """Creates the StorageClass that a claim names like the default one."""
    wanted = str((claim.get("spec") or {}).get("storageClassName") or "")
    if cause != f"the StorageClass {wanted} does not exist":
        return ()
    default = next((one for one in s.of("storageclasses") if _is_default(one)), None)
    if default is None:
        return ()
    fields = ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode")
    made = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": wanted},
        **{field: default[field] for field in fields if default.get(field)},
    }
    text = shlex.quote(json.dumps(made, separators=(",", ":")))
    return (f"echo {text} | kubectl create --filename -",)


def _near_misses(claim: Object, volumes: Iterable[Object]) -> str:
    """Why no volume of the claim's class matches."""
    spec = claim.get("spec") or {}
    wanted = _storage((spec.get("resources") or {}).get("requests"))
    modes = set(spec.get("accessModes") or ())
    found = []
    for volume in volumes:
        has = volume.get("spec") or {}
        named = has.get("storageClassName") or ""
        if named != (spec.get("storageClassName") or ""):
            if not has.get("claimRef"):
                found.append(f"{name_of_object(volume)} is of class {named or '(none)'}")
            continue
        phase = (volume.get("status") or {}).get("phase")
        if phase == "Released":
            found.append(f"{name_of_object(volume)}{_RELEASED}")
        elif phase == "Bound" or has.get("claimRef"):
            continue
        elif _storage(has.get("capacity")) < wanted:
            found.append(
                f"{name_of_object(volume)} has only {(has.get('capacity') or {}).get('storage')}"
            )
        elif not modes <= set(has.get("accessModes") or ()):
            found.append(
                f"{name_of_object(volume)} has only the modes {', '.join(has.get('accessModes') or ())}"
            )
        elif has.get("volumeMode", "Filesystem") != spec.get("volumeMode", "Filesystem"):
            found.append(
                f"{name_of_object(volume)} has volumeMode {has.get('volumeMode', 'Filesystem')}"
            )
    return "".join(f"; {one}" for one in found[:3])


def _release(near: str) -> str:
    """The command that makes a Released volume available again."""
    called = near.partition(_RELEASED)[0].rpartition("; ")[2]
    patch = """-p '{"spec":{"claimRef":null}}'"""
    return f"Let new claims use the data: kubectl patch persistentvolume {called} --type merge {patch}."


def _storage(amounts: Object | None) -> int:
    return quantity.parse_quantity(str((amounts or {}).get("storage", "0"))).value()


def _waits(claim: Object, classes: Mapping[str, Object]) -> bool:
    """Whether binding waits for the first consumer: until the scheduler has selected its node."""
    if _SELECTED in (claim["metadata"].get("annotations") or {}):
        return False
    spec = claim.get("spec") or {}
    called = spec.get("storageClassName") or (claim["metadata"].get("annotations") or {}).get(
        "volume.beta.kubernetes.io/storage-class", ""
    )
    return (classes.get(called) or {}).get(
        "volumeBindingMode"
    ) == "WaitForFirstConsumer" and not spec.get("volumeName")


def unprovisioned(s: ClusterSnapshot, pod: Object) -> Iterator[tuple[str, str]]:
    """The pod's claims whose volumes are to be created for the node that the scheduler has selected,
    and their provisioners.
    """
    namespace, classes = (
        key_of_object(pod)[0],
        {name_of_object(c): c for c in s.of("storageclasses")},
    )
    named = {
        str((volume.get("persistentVolumeClaim") or {}).get("claimName", ""))
        for volume in (pod.get("spec") or {}).get("volumes") or ()
    }
    for claim in s.of("persistentvolumeclaims"):
        if key_of_object(claim)[0] != namespace or name_of_object(claim) not in named:
            continue
        chosen = _SELECTED in (claim["metadata"].get("annotations") or {})
        if chosen and (claim.get("status") or {}).get("phase") == "Pending":
            used = classes.get(str((claim.get("spec") or {}).get("storageClassName")), {})
            yield name_of_object(claim), str(used.get("provisioner", "of its class"))


def bound_volumes(s: ClusterSnapshot, pod: Object) -> Iterator[tuple[str, Object]]:
    """The PersistentVolumes of the pod's claims, with their names."""
    namespace = key_of_object(pod)[0]
    claims = {
        (namespace, str((volume.get("persistentVolumeClaim") or {}).get("claimName", "")))
        for volume in (pod.get("spec") or {}).get("volumes") or ()
    }
    for volume in s.of("persistentvolumes"):
        claim = (volume.get("spec") or {}).get("claimRef") or {}
        if (claim.get("namespace"), claim.get("name")) in claims:
            yield name_of_object(volume), volume


def _is_default(storage_class: Object) -> bool:
    annotations = storage_class["metadata"].get("annotations") or {}
    return "true" in (
        annotations.get("storageclass.kubernetes.io/is-default-class"),
        annotations.get("storageclass.beta.kubernetes.io/is-default-class"),
    )


def check_storage_classes(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Several default classes: claims that name none are rejected, or get any of them."""
    defaults = [one for one in s.of("storageclasses") if _is_default(one)]
    if len(defaults) > 1:
        name = name_of_object(defaults[-1])
        off = '\'{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"false"}}}\''
        yield DoctorFinding(
            "warning",
            f"{len(defaults)} StorageClasses are the default",
            tuple(place_of_object("storageclass", one) for one in defaults),
            "Claims without storageClassName are rejected before Kubernetes 1.26, and get the newest class later.",
            f"Keep one default: kubectl patch storageclass {name} --patch {off}",
        )


def check_persistent_volumes(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for volume in s.of("persistentvolumes"):
        status = volume.get("status") or {}
        if status.get("phase") == "Failed":
            yield DoctorFinding(
                "error",
                f"has failed: {condition_text(status)}",
                (place_of_object("persistentvolume", volume),),
                "What it stores was not removed, and it cannot be used again.",
                f"Remove the data or the disk, then: kubectl delete persistentvolume {name_of_object(volume)}; "
                "or use the reclaim policy Retain.",
            )


def check_volume_snapshots(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for one in s.of("volumesnapshots"):
        status, source = one.get("status") or {}, (one.get("spec") or {}).get("source") or {}
        namespace, name = key_of_object(one)
        where = (place_of_object("volumesnapshot", one),)
        error = (status.get("error") or {}).get("message")
        age = s.now - time_of(one["metadata"].get("creationTimestamp", ""))
        if status.get("readyToUse") or one["metadata"].get("deletionTimestamp"):
            continue
        if error:
            known = {"namespace": namespace, "claim": str(source.get("persistentVolumeClaimName"))}
            found = causes.explain_text(causes.VOLUME_SNAPSHOT, "", error, known=known)
            yield DoctorFinding(
                "error",
                f"is not taken: {found.cause} ({error})" if found else f"is not taken: {error}",
                where,
                _NO_SNAPSHOT,
                found.remedy
                if found
                else "Correct what the message names, and read the log of csi-snapshotter.",
            )
        elif age > _LATE:
            yield DoctorFinding(
                "error",
                "is not taken, and nothing reports why",
                where,
                _NO_SNAPSHOT,
                "Install or start the snapshot controller and the csi-snapshotter of the driver; see "
                f"kubectl describe volumesnapshot {name} --namespace {namespace}",
            )


def check_attachments(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for one in s.of("volumeattachments"):
        status = one.get("status") or {}
        error = status.get("attachError") or status.get("detachError")
        if error and time_of(str(error.get("time") or "")) > s.now - _RECENT:
            verb = "attached" if status.get("attachError") else "detached"
            yield DoctorFinding(
                "error",
                f"cannot be {verb}: {error.get('message', '')}",
                (place_of_object("volumeattachment", one),),
                "Pods that use the volume wait.",
                "Start the driver's attacher, or correct what its message names.",
            )


def check_cloud_operations(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Disks of the emulated cloud that cannot be detached, or are slow to attach or detach."""
    for one in s.cloud:
        disk, node, verb = str(one["disk"]), str(one["node"]), str(one["verb"])
        where = (f"node/{node}",)
        if one["error"] and verb == "detach":
            yield DoctorFinding(
                "warning",
                f"the cloud cannot detach disk {disk}: {one['error']}",
                where,
                "Pods on other nodes that use the disk wait for it.",
                _cloud_fix(disk, str(one["error"]), "detach-error"),
            )
        elif not one["error"]:
            yield DoctorFinding(
                "warning",
                f"{verb}ing disk {disk} has taken {one['seconds']} s so far",
                where,
                "Pods that use the disk wait for it.",
                f"Wait; or end the delay: transom cloud set {disk} latency=0",
            )


def explain_cloud(
    s: ClusterSnapshot, node: str, text: str, found: causes.ExplainedCause
) -> causes.ExplainedCause:
    """What the emulated cloud knows about a disk that cannot be attached; otherwise `found`."""
    for one in s.cloud:
        error, disk, zone = str(one["error"]), str(one["disk"]), str(one.get("zone") or "")
        if one["verb"] != "attach" or one["node"] != node or not error or error not in text:
            continue
        if one.get("fault"):
            return found._replace(remedy=_cloud_fix(disk, error, str(one["fault"])))
        labels = s.node[node]["metadata"].get("labels") or {} if node in s.node else {}
        own = labels.get("topology.kubernetes.io/zone", "")
        if zone and zone != own:
            return found._replace(
                cause=f"disk {disk} is in zone {zone}, and node {node} in {own or 'no zone'}",
                remedy=f"Let the pod select nodes of the zone: nodeSelector topology.kubernetes.io/zone: {zone}; or use "
                "a disk of the node's zone.",
            )
    return found


def _cloud_fix(disk: str, error: str, fault: str) -> str:
    off = f"{fault}=off" if fault == "missing" else f"{fault}="
    return f"Correct what the provider's message names; a fault of the emulated cloud ends with: transom cloud set {disk} {off}"
