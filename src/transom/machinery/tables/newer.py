"""Cells of columns that releases after 1.20 added, by kind and column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.machinery.tables.text import (
    NONE,
    UNKNOWN,
    UNSET,
    Object,
    age_cell,
    condition_of_type,
    human_duration,
    name_cell,
    part_cell,
    timestamp,
)

Cell = Callable[[Object, float], Any]


def _restarts(pod: Object, now: float) -> str:
    """The restarts, and how long ago the last one was."""
    status = part_cell(pod, "status")
    statuses = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    count = sum(s.get("restartCount", 0) for s in statuses)
    ends = [
        ended["finishedAt"]
        for s in statuses
        if (ended := (s.get("lastState") or {}).get("terminated")) and ended.get("finishedAt")
    ]
    if not count or not ends:
        return str(count)
    return f"{count} ({human_duration(now - max(map(timestamp, ends)))} ago)"


def _job_status(job: Object, _now: float) -> str:
    conditions = part_cell(job, "status").get("conditions") or ()
    for kind, text in (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
    ):
        if _is_true(condition_of_type(conditions, kind)):
            return text
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for kind, text in (
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if _is_true(condition_of_type(conditions, kind)):
            return text
    return "Running"


def _is_true(condition: Object | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _claim_state(claim: Object, _now: float) -> str:
    states = []
    if claim["metadata"].get("deletionTimestamp"):
        states.append("deleted")
    status = claim.get("status") or {}
    if status.get("allocation") is None:
        states += [] if states else ["pending"]
    else:
        states.append("allocated")
        states.append("reserved" if status.get("reservedFor") else "")
    return ",".join(filter(None, states))


def _param_kind(policy: Object, _now: float) -> str:
    kind = part_cell(policy, "spec").get("paramKind")
    return UNSET if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"


def _param_ref(binding: Object, _now: float) -> str:
    ref = part_cell(binding, "spec").get("paramRef")
    if ref is None:
        return UNSET
    if ref.get("name"):
        namespace = ref.get("namespace")
        return f"{namespace}/{ref['name']}" if namespace else f"*/{ref['name']}"
    return "*"


def _parent_ref(address: Object, _now: float) -> str:
    ref = part_cell(address, "spec").get("parentRef") or {}
    parts = [ref.get(name, "") for name in ("resource", "group", "namespace", "name")]
    resource = f"{parts[0]}.{parts[1]}" if parts[1] else parts[0]
    return "/".join(part for part in (resource, parts[2], parts[3]) if part)


def _replicas(section: str) -> Cell:
    return lambda scale, _now: part_cell(scale, section).get("replicas", 0)


def _requested_duration(request: Object, _now: float) -> str:
    seconds = part_cell(request, "spec").get("expirationSeconds")
    return NONE if seconds is None else human_duration(seconds)


def _text(*path: str, missing: str = UNSET) -> Cell:
    def cell(obj: Object, _now: float) -> Any:
        found: Any = obj
        for name in path:
            found = (found or {}).get(name)
        return missing if found in (None, "") else found

    return cell


def _count(*path: str) -> Cell:
    def cell(obj: Object, _now: float) -> int:
        found: Any = obj
        for name in path:
            found = (found or {}).get(name)
        return len(found or ())

    return cell


def _token_requests(driver: Object, _now: float) -> str:
    audiences = [
        r.get("audience", "") for r in part_cell(driver, "spec").get("tokenRequests") or ()
    ]
    return ",".join(audiences) if audiences else UNSET


def _slice_pool(item: Object, _now: float) -> str:
    return str(((item.get("spec") or {}).get("pool") or {}).get("name", ""))


def _cidrs(item: Object, _now: float) -> str:
    return ",".join(part_cell(item, "spec").get("cidrs") or ())


def _flag(*path: str) -> Cell:
    def cell(obj: Object, _now: float) -> bool:
        found: Any = obj
        for name in path:
            found = (found or {}).get(name)
        return bool(found)

    return cell


def _taint(field: str) -> Cell:
    def cell(rule: Object, _now: float) -> str:
        return str((part_cell(rule, "spec").get("taint") or {}).get(field, ""))

    return cell


def _taint_age(rule: Object, now: float) -> str:
    added = (part_cell(rule, "spec").get("taint") or {}).get("timeAdded")
    return human_duration(now - timestamp(added)) if added else ""


def _migrated_resource(migration: Object, _now: float) -> str:
    resource = part_cell(migration, "spec").get("resource") or {}
    return ".".join(filter(None, (resource.get("resource"), resource.get("group"))))


def _migration_status(migration: Object, _now: float) -> str:
    """The last of these conditions that is true."""
    found = "Unknown"
    for condition in part_cell(migration, "status").get("conditions") or ():
        if _is_true(condition) and condition["type"] in ("Running", "Failed", "Succeeded"):
            found = condition["type"]
    return found


def _pod_certificate_state(request: Object, _now: float) -> str:
    found = "Pending"
    for condition in part_cell(request, "status").get("conditions") or ():
        if condition["type"] in ("Issued", "Denied", "Failed"):
            found = condition["type"]
    return found


def _user_annotations(request: Object, _now: float) -> str:
    found = part_cell(request, "spec").get("unverifiedUserAnnotations") or {}
    return ",".join(f"{key}={found[key]}" for key in sorted(found)) or NONE


CELLS: dict[tuple[str, str], Cell] = {
    ("Scale", "Available"): _replicas("status"),
    ("Scale", "Desired"): _replicas("spec"),
    ("CSIDriver", "StorageCapacity"): _flag("spec", "storageCapacity"),
    ("CSIDriver", "TokenRequests"): _token_requests,
    ("CSIDriver", "RequiresRepublish"): _flag("spec", "requiresRepublish"),
    ("CSIStorageCapacity", "StorageClassName"): _text("storageClassName", missing=""),
    ("CSIStorageCapacity", "Capacity"): _text("capacity"),
    ("CertificateSigningRequest", "RequestedDuration"): _requested_duration,
    ("ClusterTrustBundle", "SignerName"): _text("spec", "signerName", missing=NONE),
    ("CronJob", "Timezone"): _text("spec", "timeZone", missing=NONE),
    ("DeviceTaintRule", "Effect"): _taint("effect"),
    ("DeviceTaintRule", "Key"): _taint("key"),
    ("DeviceTaintRule", "TimeAdded"): _taint_age,
    ("DeviceTaintRule", "Value"): _taint("value"),
    ("IPAddress", "ParentRef"): _parent_ref,
    ("Job", "Status"): _job_status,
    ("MutatingAdmissionPolicy", "Mutations"): _count("spec", "mutations"),
    ("MutatingAdmissionPolicy", "ParamKind"): _param_kind,
    ("MutatingAdmissionPolicyBinding", "ParamRef"): _param_ref,
    ("MutatingAdmissionPolicyBinding", "PolicyName"): _text("spec", "policyName", missing=""),
    ("PersistentVolume", "VolumeAttributesClass"): _text("spec", "volumeAttributesClassName"),
    ("PersistentVolumeClaim", "VolumeAttributesClass"): _text("spec", "volumeAttributesClassName"),
    ("Pod", "Restarts"): _restarts,
    ("PodCertificateRequest", "NodeName"): _text("spec", "nodeName", missing=""),
    ("PodCertificateRequest", "PodName"): _text("spec", "podName", missing=""),
    ("PodCertificateRequest", "ServiceAccountName"): _text(
        "spec", "serviceAccountName", missing=""
    ),
    ("PodCertificateRequest", "SignerName"): _text("spec", "signerName", missing=""),
    ("PodCertificateRequest", "State"): _pod_certificate_state,
    ("PodCertificateRequest", "UnverifiedUserAnnotations"): _user_annotations,
    ("PriorityClass", "PreemptionPolicy"): _text("preemptionPolicy"),
    ("ResourceClaim", "State"): _claim_state,
    ("ResourceSlice", "Node"): _text("spec", "nodeName"),
    ("ResourceSlice", "Driver"): _text("spec", "driver", missing=""),
    ("ResourceSlice", "Pool"): _slice_pool,
    ("ServiceCIDR", "CIDRs"): _cidrs,
    ("StorageVersionMigration", "Resource"): _migrated_resource,
    ("StorageVersionMigration", "Status"): _migration_status,
    ("ValidatingAdmissionPolicy", "Validations"): _count("spec", "validations"),
    ("ValidatingAdmissionPolicy", "ParamKind"): _param_kind,
    ("ValidatingAdmissionPolicyBinding", "ParamRef"): _param_ref,
    ("ValidatingAdmissionPolicyBinding", "PolicyName"): _text("spec", "policyName", missing=""),
    ("VolumeAttributesClass", "DriverName"): _text("driverName", missing=""),
}
# Columns that have been renamed.
RENAMED = {
    ("PriorityLevelConfiguration", "NominalConcurrencyShares"): "AssuredConcurrencyShares",
}


def newer_cell(kind: str, column: str, obj: Object, now: float) -> Any:
    made = CELLS.get((kind, column))
    if made is not None:
        return made(obj, now)
    if column == "Name":
        return name_cell(obj)
    return age_cell(obj, now) if column == "Age" else UNKNOWN
