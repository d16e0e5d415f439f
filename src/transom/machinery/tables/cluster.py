"""Cells of nodes, storage, configuration, access control and the other kinds around the
workloads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transom.machinery.tables.text import (
    NONE,
    UNKNOWN,
    UNSET,
    Object,
    age_cell,
    condition_of_type,
    name_cell,
    part_cell,
    since_cell,
)

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _roles(labels: Object) -> str:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get(_ROLE_LABEL, ""))
    return ",".join(sorted(roles - {""})) or NONE


def _address(status: Object, kind: str) -> str:
    return next(
        (a.get("address", "") for a in status.get("addresses") or () if a.get("type") == kind), NONE
    )


def print_node(obj: Object, now: float) -> list[Any]:
    status = part_cell(obj, "status")
    # If several conditions have the same type, the last one counts.
    ready = condition_of_type(reversed(status.get("conditions") or ()), "Ready")
    state = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    if part_cell(obj, "spec").get("unschedulable"):
        state += ",SchedulingDisabled"
    info = part_cell(status, "nodeInfo")
    return [
        name_cell(obj),
        state,
        _roles(part_cell(obj, "metadata", "labels")),
        age_cell(obj, now),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        *(
            info.get(key) or UNKNOWN
            for key in ("osImage", "kernelVersion", "containerRuntimeVersion")
        ),
    ]


def print_namespace(obj: Object, now: float) -> list[Any]:
    return [name_cell(obj), part_cell(obj, "status").get("phase", ""), age_cell(obj, now)]


def print_component_status(obj: Object, now: float) -> list[Any]:
    healthy = condition_of_type(obj.get("conditions"), "Healthy")
    if healthy is None:
        return [name_cell(obj), "Unknown", "", ""]
    state = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [name_cell(obj), state, healthy.get("message", ""), healthy.get("error", "")]


def print_config_map(obj: Object, now: float) -> list[Any]:
    return [
        name_cell(obj),
        len(obj.get("data") or ()) + len(obj.get("binaryData") or ()),
        age_cell(obj, now),
    ]


def print_secret(obj: Object, now: float) -> list[Any]:
    return [name_cell(obj), obj.get("type", ""), len(obj.get("data") or ()), age_cell(obj, now)]


def print_service_account(obj: Object, now: float) -> list[Any]:
    return [name_cell(obj), len(obj.get("secrets") or ()), age_cell(obj, now)]


def _access_modes(modes: Sequence[str] | None) -> str:
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in (modes or ()))


def _storage_class(obj: Object) -> str:
    annotated = part_cell(obj, "metadata", "annotations").get(_CLASS_ANNOTATION)
    return part_cell(obj, "spec").get("storageClassName", "") if annotated is None else annotated


def _phase(obj: Object) -> str:
    return (
        "Terminating"
        if obj["metadata"].get("deletionTimestamp")
        else part_cell(obj, "status").get("phase", "")
    )


def print_persistent_volume(obj: Object, now: float) -> list[Any]:
    spec = part_cell(obj, "spec")
    claim = spec.get("claimRef")
    return [
        name_cell(obj),
        part_cell(spec, "capacity").get("storage", "0"),
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        "" if claim is None else f"{claim.get('namespace', '')}/{claim.get('name', '')}",
        _storage_class(obj),
        part_cell(obj, "status").get("reason", ""),
        age_cell(obj, now),
        spec.get("volumeMode", UNSET),
    ]


def print_persistent_volume_claim(obj: Object, now: float) -> list[Any]:
    spec, status = part_cell(obj, "spec"), part_cell(obj, "status")
    volume = spec.get("volumeName", "")
    return [
        name_cell(obj),
        _phase(obj),
        volume,
        part_cell(status, "capacity").get("storage", "0") if volume else "",
        _access_modes(status.get("accessModes")) if volume else "",
        _storage_class(obj),
        age_cell(obj, now),
        spec.get("volumeMode", UNSET),
    ]


def _resource_names(obj: Object, limits: bool) -> str:
    status = part_cell(obj, "status")
    hard, used = part_cell(status, "hard"), part_cell(status, "used")
    return ", ".join(
        f"{resource}: {used.get(resource, '0')}/{hard[resource]}"
        for resource in sorted(hard)
        if resource.startswith("limits.") is limits
    )


def print_resource_quota(obj: Object, now: float) -> list[Any]:
    return [
        name_cell(obj),
        age_cell(obj, now),
        _resource_names(obj, False),
        _resource_names(obj, True),
    ]


def print_event(obj: Object, now: float) -> list[Any]:
    first = since_cell(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = since_cell(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else first
    count, series = obj.get("count") or 1, obj.get("series")
    if series is not None:
        # The count does not include the first event of the series.
        last, count = since_cell(series.get("lastObservedTime"), now), series.get("count", 0) + 1
    about, source = part_cell(obj, "involvedObject"), part_cell(obj, "source")
    target = about.get("kind", "").lower()
    component = source.get("component") or obj.get("reportingComponent", "")
    instance = source.get("host") or obj.get("reportingInstance", "")
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{target}/{about['name']}" if about.get("name") else target,
        about.get("fieldPath", ""),
        f"{component}, {instance}" if instance else component,
        obj.get("message", "").strip(),
        first,
        count,
        name_cell(obj),
    ]


def _subjects(obj: Object, kind: str) -> str:
    of = [s for s in obj.get("subjects") or () if s.get("kind") == kind]
    if kind == "ServiceAccount":
        return ", ".join(f"{s.get('namespace', '')}/{s.get('name', '')}" for s in of)
    return ", ".join(s.get("name", "") for s in of)


def print_binding(obj: Object, now: float) -> list[Any]:
    role = part_cell(obj, "roleRef")
    return [
        name_cell(obj),
        f"{role.get('kind', '')}/{role.get('name', '')}",
        age_cell(obj, now),
        *(_subjects(obj, kind) for kind in ("User", "Group", "ServiceAccount")),
    ]


def print_certificate_signing_request(obj: Object, now: float) -> list[Any]:
    spec, status = part_cell(obj, "spec"), part_cell(obj, "status")
    types = {c.get("type") for c in status.get("conditions") or ()}
    state = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    if "Failed" in types:
        state += ",Failed"
    if status.get("certificate"):
        state += ",Issued"
    return [
        name_cell(obj),
        age_cell(obj, now),
        spec.get("signerName") or NONE,
        spec.get("username", ""),
        state,
    ]


def print_pod_security_policy(obj: Object, now: float) -> list[Any]:
    spec = part_cell(obj, "spec")
    return [
        name_cell(obj),
        "true" if spec.get("privileged") else "false",
        ",".join(spec.get("allowedCapabilities") or ()),
        *(
            part_cell(spec, key).get("rule", "")
            for key in ("seLinux", "runAsUser", "fsGroup", "supplementalGroups")
        ),
        spec.get("readOnlyRootFilesystem", False),
        ",".join(spec.get("volumes") or ()),
    ]


def print_lease(obj: Object, now: float) -> list[Any]:
    return [name_cell(obj), part_cell(obj, "spec").get("holderIdentity", ""), age_cell(obj, now)]


def print_priority_class(obj: Object, now: float) -> list[Any]:
    return [
        name_cell(obj),
        obj.get("value", 0),
        obj.get("globalDefault", False),
        age_cell(obj, now),
    ]


def print_runtime_class(obj: Object, now: float) -> list[Any]:
    return [name_cell(obj), obj.get("handler", ""), age_cell(obj, now)]


def print_storage_class(obj: Object, now: float) -> list[Any]:
    annotations = part_cell(obj, "metadata", "annotations")
    default = any(annotations.get(key) == "true" for key in _DEFAULT_CLASS)
    return [
        f"{name_cell(obj)} (default)" if default else name_cell(obj),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        obj.get("allowVolumeExpansion", False),
        age_cell(obj, now),
    ]


def print_volume_attachment(obj: Object, now: float) -> list[Any]:
    spec = part_cell(obj, "spec")
    return [
        name_cell(obj),
        spec.get("attacher", ""),
        part_cell(spec, "source").get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        part_cell(obj, "status").get("attached", False),
        age_cell(obj, now),
    ]


def print_csi_node(obj: Object, now: float) -> list[Any]:
    return [name_cell(obj), len(part_cell(obj, "spec").get("drivers") or ()), age_cell(obj, now)]


def print_csi_driver(obj: Object, now: float) -> list[Any]:
    spec = part_cell(obj, "spec")
    return [
        name_cell(obj),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        age_cell(obj, now),
    ]


def print_webhooks(obj: Object, now: float) -> list[Any]:
    return [name_cell(obj), len(obj.get("webhooks") or ()), age_cell(obj, now)]


def print_flow_schema(obj: Object, now: float) -> list[Any]:
    spec = part_cell(obj, "spec")
    method = spec.get("distinguisherMethod")
    dangling = condition_of_type(part_cell(obj, "status").get("conditions"), "Dangling")
    return [
        name_cell(obj),
        part_cell(spec, "priorityLevelConfiguration").get("name", ""),
        spec.get("matchingPrecedence", 0),
        NONE if method is None else method.get("type", ""),
        age_cell(obj, now),
        "?" if dangling is None else dangling.get("status", ""),
    ]


def print_priority_level(obj: Object, now: float) -> list[Any]:
    spec = part_cell(obj, "spec")
    shares, queues = NONE, [NONE, NONE, NONE]
    limited = spec.get("limited")
    if limited is not None:
        shares = limited.get("nominalConcurrencyShares", 0)
        queuing = part_cell(limited, "limitResponse").get("queuing")
        if queuing is not None:
            queues = [queuing.get(key, 0) for key in ("queues", "handSize", "queueLengthLimit")]
    return [name_cell(obj), spec.get("type", ""), shares, *queues, age_cell(obj, now)]


def print_api_service(obj: Object, now: float) -> list[Any]:
    service = part_cell(obj, "spec").get("service")
    where = (
        "Local" if service is None else f"{service.get('namespace', '')}/{service.get('name', '')}"
    )
    state = "Unknown"
    available = condition_of_type(part_cell(obj, "status").get("conditions"), "Available")
    if available is not None:
        state = available.get("status", "")
        if state != "True" and available.get("reason"):
            state = f"{state} ({available['reason']})"
    return [name_cell(obj), where, state, age_cell(obj, now)]


CELLS = {
    "/ComponentStatus": print_component_status,
    "/ConfigMap": print_config_map,
    "/Event": print_event,
    "/Namespace": print_namespace,
    "/Node": print_node,
    "/PersistentVolume": print_persistent_volume,
    "/PersistentVolumeClaim": print_persistent_volume_claim,
    "/ResourceQuota": print_resource_quota,
    "/Secret": print_secret,
    "/ServiceAccount": print_service_account,
    "admissionregistration.k8s.io/MutatingWebhookConfiguration": print_webhooks,
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration": print_webhooks,
    "apiregistration.k8s.io/APIService": print_api_service,
    "certificates.k8s.io/CertificateSigningRequest": print_certificate_signing_request,
    "coordination.k8s.io/Lease": print_lease,
    "flowcontrol.apiserver.k8s.io/FlowSchema": print_flow_schema,
    "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration": print_priority_level,
    "node.k8s.io/RuntimeClass": print_runtime_class,
    "policy/PodSecurityPolicy": print_pod_security_policy,
    "rbac.authorization.k8s.io/ClusterRoleBinding": print_binding,
    "rbac.authorization.k8s.io/RoleBinding": print_binding,
    "scheduling.k8s.io/PriorityClass": print_priority_class,
    "storage.k8s.io/CSIDriver": print_csi_driver,
    "storage.k8s.io/CSINode": print_csi_node,
    "storage.k8s.io/StorageClass": print_storage_class,
    "storage.k8s.io/VolumeAttachment": print_volume_attachment,
}
