"""Cells of nodes, storage, configuration, access control and the other kinds around the workloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transom.machinery.tables.text import NONE, UNKNOWN, UNSET, Object, age, condition, name, part, since

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_ACCESS_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _roles(labels: Object) -> str:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get(_ROLE_LABEL, ""))
    return ",".join(sorted(roles - {""})) or NONE


def _address(status: Object, kind: str) -> str:
    return next((a.get("address", "") for a in status.get("addresses") or () if a.get("type") == kind), NONE)


def node(obj: Object, now: float) -> list[Any]:
    status = part(obj, "status")
    # Of conditions with the same type the last one counts.
    ready = condition(reversed(status.get("conditions") or ()), "Ready")
    state = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    if part(obj, "spec").get("unschedulable"):
        state += ",SchedulingDisabled"
    info = part(status, "nodeInfo")
    return [
        name(obj),
        state,
        _roles(part(obj, "metadata", "labels")),
        age(obj, now),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        *(info.get(key) or UNKNOWN for key in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def namespace(obj: Object, now: float) -> list[Any]:
    return [name(obj), part(obj, "status").get("phase", ""), age(obj, now)]


def component_status(obj: Object, now: float) -> list[Any]:
    healthy = condition(obj.get("conditions"), "Healthy")
    if healthy is None:
        return [name(obj), "Unknown", "", ""]
    state = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [name(obj), state, healthy.get("message", ""), healthy.get("error", "")]


def config_map(obj: Object, now: float) -> list[Any]:
    return [name(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age(obj, now)]


def secret(obj: Object, now: float) -> list[Any]:
    return [name(obj), obj.get("type", ""), len(obj.get("data") or ()), age(obj, now)]


def service_account(obj: Object, now: float) -> list[Any]:
    return [name(obj), len(obj.get("secrets") or ()), age(obj, now)]


def _access_modes(modes: Sequence[str] | None) -> str:
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in (modes or ()))


def _storage_class(obj: Object) -> str:
    annotated = part(obj, "metadata", "annotations").get(_CLASS_ANNOTATION)
    return part(obj, "spec").get("storageClassName", "") if annotated is None else annotated


def _phase(obj: Object) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else part(obj, "status").get("phase", "")


def persistent_volume(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    claim = spec.get("claimRef")
    return [
        name(obj),
        part(spec, "capacity").get("storage", "0"),
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        "" if claim is None else f"{claim.get('namespace', '')}/{claim.get('name', '')}",
        _storage_class(obj),
        part(obj, "status").get("reason", ""),
        age(obj, now),
        spec.get("volumeMode", UNSET),
    ]


def persistent_volume_claim(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    volume = spec.get("volumeName", "")
    return [
        name(obj),
        _phase(obj),
        volume,
        part(status, "capacity").get("storage", "0") if volume else "",
        _access_modes(status.get("accessModes")) if volume else "",
        _storage_class(obj),
        age(obj, now),
        spec.get("volumeMode", UNSET),
    ]


def _resource_names(obj: Object, limits: bool) -> str:
    status = part(obj, "status")
    hard, used = part(status, "hard"), part(status, "used")
    return ", ".join(
        f"{resource}: {used.get(resource, '0')}/{hard[resource]}"
        for resource in sorted(hard)
        if resource.startswith("limits.") is limits
    )


def resource_quota(obj: Object, now: float) -> list[Any]:
    return [name(obj), age(obj, now), _resource_names(obj, False), _resource_names(obj, True)]


def event(obj: Object, now: float) -> list[Any]:
    first = since(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = since(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else first
    count, series = obj.get("count") or 1, obj.get("series")
    if series is not None:
        # The event that began the series is not in its count.
        last, count = since(series.get("lastObservedTime"), now), series.get("count", 0) + 1
    about, source = part(obj, "involvedObject"), part(obj, "source")
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
        name(obj),
    ]


def _subjects(obj: Object, kind: str) -> str:
    of = [s for s in obj.get("subjects") or () if s.get("kind") == kind]
    if kind == "ServiceAccount":
        return ", ".join(f"{s.get('namespace', '')}/{s.get('name', '')}" for s in of)
    return ", ".join(s.get("name", "") for s in of)


def binding(obj: Object, now: float) -> list[Any]:
    role = part(obj, "roleRef")
    return [
        name(obj),
        f"{role.get('kind', '')}/{role.get('name', '')}",
        age(obj, now),
        *(_subjects(obj, kind) for kind in ("User", "Group", "ServiceAccount")),
    ]


def certificate_signing_request(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    types = {c.get("type") for c in status.get("conditions") or ()}
    state = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    if "Failed" in types:
        state += ",Failed"
    if status.get("certificate"):
        state += ",Issued"
    return [name(obj), age(obj, now), spec.get("signerName") or NONE, spec.get("username", ""), state]


def pod_security_policy(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name(obj),
        "true" if spec.get("privileged") else "false",
        ",".join(spec.get("allowedCapabilities") or ()),
        *(part(spec, key).get("rule", "") for key in ("seLinux", "runAsUser", "fsGroup", "supplementalGroups")),
        spec.get("readOnlyRootFilesystem", False),
        ",".join(spec.get("volumes") or ()),
    ]


def lease(obj: Object, now: float) -> list[Any]:
    return [name(obj), part(obj, "spec").get("holderIdentity", ""), age(obj, now)]


def priority_class(obj: Object, now: float) -> list[Any]:
    return [name(obj), obj.get("value", 0), obj.get("globalDefault", False), age(obj, now)]


def runtime_class(obj: Object, now: float) -> list[Any]:
    return [name(obj), obj.get("handler", ""), age(obj, now)]


def storage_class(obj: Object, now: float) -> list[Any]:
    annotations = part(obj, "metadata", "annotations")
    default = any(annotations.get(key) == "true" for key in _DEFAULT_CLASS)
    return [
        f"{name(obj)} (default)" if default else name(obj),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        obj.get("allowVolumeExpansion", False),
        age(obj, now),
    ]


def volume_attachment(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name(obj),
        spec.get("attacher", ""),
        part(spec, "source").get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        part(obj, "status").get("attached", False),
        age(obj, now),
    ]


def csi_node(obj: Object, now: float) -> list[Any]:
    return [name(obj), len(part(obj, "spec").get("drivers") or ()), age(obj, now)]


def csi_driver(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        name(obj),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        age(obj, now),
    ]


def webhooks(obj: Object, now: float) -> list[Any]:
    return [name(obj), len(obj.get("webhooks") or ()), age(obj, now)]


def flow_schema(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    method = spec.get("distinguisherMethod")
    dangling = condition(part(obj, "status").get("conditions"), "Dangling")
    return [
        name(obj),
        part(spec, "priorityLevelConfiguration").get("name", ""),
        spec.get("matchingPrecedence", 0),
        NONE if method is None else method.get("type", ""),
        age(obj, now),
        "?" if dangling is None else dangling.get("status", ""),
    ]


def priority_level(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    shares, queues = NONE, [NONE, NONE, NONE]
    limited = spec.get("limited")
    if limited is not None:
        shares = limited.get("nominalConcurrencyShares", 0)
        queuing = part(limited, "limitResponse").get("queuing")
        if queuing is not None:
            queues = [queuing.get(key, 0) for key in ("queues", "handSize", "queueLengthLimit")]
    return [name(obj), spec.get("type", ""), shares, *queues, age(obj, now)]


def api_service(obj: Object, now: float) -> list[Any]:
    service = part(obj, "spec").get("service")
    where = "Local" if service is None else f"{service.get('namespace', '')}/{service.get('name', '')}"
    state = "Unknown"
    available = condition(part(obj, "status").get("conditions"), "Available")
    if available is not None:
        state = available.get("status", "")
        if state != "True" and available.get("reason"):
            state = f"{state} ({available['reason']})"
    return [name(obj), where, state, age(obj, now)]


CELLS = {
    "/ComponentStatus": component_status,
    "/ConfigMap": config_map,
    "/Event": event,
    "/Namespace": namespace,
    "/Node": node,
    "/PersistentVolume": persistent_volume,
    "/PersistentVolumeClaim": persistent_volume_claim,
    "/ResourceQuota": resource_quota,
    "/Secret": secret,
    "/ServiceAccount": service_account,
    "admissionregistration.k8s.io/MutatingWebhookConfiguration": webhooks,
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration": webhooks,
    "apiregistration.k8s.io/APIService": api_service,
    "certificates.k8s.io/CertificateSigningRequest": certificate_signing_request,
    "coordination.k8s.io/Lease": lease,
    "flowcontrol.apiserver.k8s.io/FlowSchema": flow_schema,
    "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration": priority_level,
    "node.k8s.io/RuntimeClass": runtime_class,
    "policy/PodSecurityPolicy": pod_security_policy,
    "rbac.authorization.k8s.io/ClusterRoleBinding": binding,
    "rbac.authorization.k8s.io/RoleBinding": binding,
    "scheduling.k8s.io/PriorityClass": priority_class,
    "storage.k8s.io/CSIDriver": csi_driver,
    "storage.k8s.io/CSINode": csi_node,
    "storage.k8s.io/StorageClass": storage_class,
    "storage.k8s.io/VolumeAttachment": volume_attachment,
}
