"""One row for each kind that differs from the default strategy."""

from __future__ import annotations

import uuid
from dataclasses import replace

from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.strategies import (
    certificates,
    custom,
    devices,
    gates,
    pods,
    services,
)
from transom.apiserver.core.strategies.base import StorageRules, Strategy
from transom.kit.clock import rfc3339
from transom.machinery.defaults.workloads import TEMPLATE_GENERATION
from transom.machinery.kinds import Kind
from transom.machinery.objects import Object
from transom.machinery.releases.behaviour import has_behaviour

EVENT_TTL = 3600.0
_SPEC = ("spec",)
_RESET = ("labels", "annotations", "ownerReferences", "finalizers")


def _namespace_create(_storage: StorageRules, _ctx: RequestContext, obj: Object) -> None:
    obj["status"] = {"phase": "Active"}
    finalizers = (obj.get("spec") or {}).get("finalizers") or []
    if "kubernetes" not in finalizers:
        obj["spec"] = {**(obj.get("spec") or {}), "finalizers": [*finalizers, "kubernetes"]}


def _namespace_update(
    _storage: StorageRules, _ctx: RequestContext, new: Object, old: Object
) -> None:
    new["spec"] = old.get("spec") or {}


def _daemonset_create(storage: StorageRules, ctx: RequestContext, obj: Object) -> None:
    pods.drop_disabled_pod_fields(storage, obj["spec"].get("template"), None)


def _daemonset_generation(
    storage: StorageRules, ctx: RequestContext, new: Object, old: Object
) -> None:
    """apps/v1 stores the template generation as an annotation; it counts changes of the
    template.
    """
    pods.drop_disabled_pod_fields(storage, new["spec"].get("template"), old["spec"].get("template"))
    before = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION)
    if before is not None:
        count = int(before) + (new["spec"].get("template") != old["spec"].get("template"))
        new["metadata"]["annotations"] = {
            **(new["metadata"].get("annotations") or {}),
            TEMPLATE_GENERATION: str(count),
        }


def _daemonset_status(
    _storage: StorageRules, _ctx: RequestContext, new: Object, old: Object
) -> None:
    """The annotation is a field of the spec, which a status update keeps."""
    kept = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION)
    if kept is not None:
        annotations = new["metadata"].get("annotations") or {}
        new["metadata"]["annotations"] = {**annotations, TEMPLATE_GENERATION: kept}


def _daemonset_annotation(storage: StorageRules, ctx: RequestContext, obj: Object) -> None:
    _daemonset_create(storage, ctx, obj)
    annotations = obj["metadata"].get("annotations") or {}
    if annotations.get(TEMPLATE_GENERATION, "0") == "0":
        obj["metadata"]["annotations"] = {**annotations, TEMPLATE_GENERATION: "1"}


def _template_create(storage: StorageRules, _ctx: RequestContext, obj: Object) -> None:
    pods.drop_disabled_pod_fields(storage, (obj.get("spec") or {}).get("template"), None)


def _template_update(storage: StorageRules, _ctx: RequestContext, new: Object, old: Object) -> None:
    pods.drop_disabled_pod_fields(
        storage, (new.get("spec") or {}).get("template"), (old.get("spec") or {}).get("template")
    )


def _cron_create(storage: StorageRules, _ctx: RequestContext, obj: Object) -> None:
    pods.drop_disabled_pod_fields(storage, _job_template(obj), None)


def _cron_update(storage: StorageRules, _ctx: RequestContext, new: Object, old: Object) -> None:
    pods.drop_disabled_pod_fields(storage, _job_template(new), _job_template(old))


def _job_template(cron: Object) -> Object | None:
    template: Object | None = cron["spec"]["jobTemplate"]["spec"].get("template")
    return template


def _pod_template_create(storage: StorageRules, _ctx: RequestContext, obj: Object) -> None:
    pods.drop_disabled_pod_fields(storage, obj.get("template"), None)


def _pod_template_update(
    storage: StorageRules, _ctx: RequestContext, new: Object, old: Object
) -> None:
    pods.drop_disabled_pod_fields(storage, new.get("template"), old.get("template"))


def _drop_ttl(storage: StorageRules, new: Object, old: Object | None = None) -> None:
    """Before release 1.21, drops the TTL of Jobs unless the gate is enabled or the stored Job has
    one.
    """
    before = ((old or {}).get("spec") or {}).get("ttlSecondsAfterFinished")
    if before is None and not storage.feature("TTLAfterFinished"):
        new["spec"].pop("ttlSecondsAfterFinished", None)


def _job_update(storage: StorageRules, ctx: RequestContext, new: Object, old: Object) -> None:
    _template_update(storage, ctx, new, old)
    _drop_ttl(storage, new, old)


def _job_create(storage: StorageRules, ctx: RequestContext, obj: Object) -> None:
    """Jobs select their pods by the job's own uid unless the user sets manualSelector."""
    _template_create(storage, ctx, obj)
    _drop_ttl(storage, obj)
    spec = obj["spec"]
    if spec.get("manualSelector"):
        return
    meta, uid = obj["metadata"], obj["metadata"]["uid"]
    template = spec.setdefault("template", {})
    given = template.setdefault("metadata", {}).get("labels")
    labels = dict(given or {})
    labels.setdefault("job-name", meta.get("name", ""))
    labels.setdefault("controller-uid", uid)  # validation rejects an invalid one
    prefix = ""
    if has_behaviour(storage.release, "JobControllerLabels"):
        prefix = "batch.kubernetes.io/"
        labels.setdefault(f"{prefix}job-name", meta.get("name", ""))
        labels.setdefault(f"{prefix}controller-uid", uid)
    template["metadata"]["labels"] = labels
    if given and meta.get("labels") is given:
        meta["labels"] = dict(labels)
    match = dict((spec.get("selector") or {}).get("matchLabels") or {})
    match.setdefault(f"{prefix}controller-uid", uid)
    spec["selector"] = {**(spec.get("selector") or {}), "matchLabels": match}


def _volume_create(storage: StorageRules, ctx: RequestContext, obj: Object) -> None:
    if has_behaviour(storage.release, "VolumePhaseTransitionTime"):
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": rfc3339(ctx.now)}


def _volume_status(storage: StorageRules, ctx: RequestContext, new: Object, old: Object) -> None:
    """Notes when the phase changed, unless the client does."""
    if not has_behaviour(storage.release, "VolumePhaseTransitionTime"):
        return
    status, before = new.get("status") or {}, old.get("status") or {}
    time = "lastPhaseTransitionTime"
    if status.get("phase") == before.get("phase"):
        if status.get(time) is None and before.get(time) is not None:
            new["status"] = {**status, time: before[time]}
    elif status.get(time) in (None, before.get(time)):
        new["status"] = {**status, time: rfc3339(ctx.now)}


def _secret_update(_storage: StorageRules, _ctx: RequestContext, new: Object, old: Object) -> None:
    if not new.get("type") and old.get("type"):
        new["type"] = old["type"]


def _service_account(
    _storage: StorageRules, _ctx: RequestContext, obj: Object, _old: Object | None = None
) -> None:
    if obj.get("secrets"):
        obj["secrets"] = [
            {"name": ref["name"]} if ref.get("name") else {} for ref in obj["secrets"]
        ]


def _limit_range(_storage: StorageRules, _ctx: RequestContext, obj: Object) -> None:
    if not obj["metadata"].get("name"):
        obj["metadata"]["name"] = str(uuid.uuid4())


def _pod_security_policy(
    _storage: StorageRules, _ctx: RequestContext, new: Object, old: Object | None = None
) -> None:
    """The feature gate of procMount is disabled, so only existing values are kept."""
    if not ((old or {}).get("spec") or {}).get("allowedProcMountTypes"):
        new.get("spec", {}).pop("allowedProcMountTypes", None)


def _api_service_create(_storage: StorageRules, ctx: RequestContext, obj: Object) -> None:
    if not obj["spec"].get("service"):
        obj["status"] = {
            "conditions": [
                {
                    "type": "Available",
                    "status": "True",
                    "reason": "Local",
                    "message": "Local APIServices are always available",
                    "lastTransitionTime": rfc3339(ctx.now),
                }
            ]
        }


# Kinds that 1.20 does not have.
_POLICY = Strategy(has_status=False, unconditional_update=False, generation=("spec",))
_OF_LATER_RELEASES: dict[str, Strategy] = {
    "admissionregistration.k8s.io/MutatingAdmissionPolicy": _POLICY,
    "admissionregistration.k8s.io/MutatingAdmissionPolicyBinding": _POLICY,
    "admissionregistration.k8s.io/ValidatingAdmissionPolicy": Strategy(
        unconditional_update=False, generation=("spec",)
    ),
    "admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding": _POLICY,
    "certificates.k8s.io/ClusterTrustBundle": Strategy(
        has_status=False, unconditional_update=False
    ),
    "certificates.k8s.io/PodCertificateRequest": certificates.POD_CERTIFICATE,
    "networking.k8s.io/IPAddress": Strategy(has_status=False),
    "networking.k8s.io/ServiceCIDR": Strategy(status_keeps=_RESET),
    "resource.k8s.io/DeviceClass": Strategy(has_status=False, generation=("spec",)),
    "resource.k8s.io/DeviceTaintRule": devices.TAINT_RULE,
    "resource.k8s.io/ResourceClaim": devices.CLAIM,
    "resource.k8s.io/ResourceClaimTemplate": devices.CLAIM_TEMPLATE,
    "resource.k8s.io/ResourceSlice": devices.SLICE,
    "storage.k8s.io/VolumeAttributesClass": Strategy(has_status=False),
    "storagemigration.k8s.io/StorageVersionMigration": Strategy(
        unconditional_update=False, status_keeps=_RESET
    ),
}
_WORKLOAD = {"generation": _SPEC, "on_create": _template_create, "on_update": _template_update}
# Beta versions of workloads, whose deletion orphans pods.
_ORPHANING = ("apps/v1beta1", "apps/v1beta2", "extensions/v1beta1")

STRATEGIES: dict[str, Strategy] = {
    "/ConfigMap": Strategy(has_status=False),
    "/Endpoints": Strategy(has_status=False, create_on_update=True),
    "/Event": Strategy(has_status=False, create_on_update=True, ttl=EVENT_TTL),
    "/LimitRange": Strategy(has_status=False, create_on_update=True, on_create=_limit_range),
    "/Namespace": Strategy(
        return_deleted=True, on_create=_namespace_create, on_update=_namespace_update
    ),
    "/Node": Strategy(
        created_with_status=True,
        on_create=gates.drop_disabled_node_fields,
        on_update=gates.drop_disabled_node_fields,
        on_status=gates.drop_disabled_node_status,
    ),
    "/PersistentVolume": Strategy(
        return_deleted=True, on_create=_volume_create, on_status=_volume_status
    ),
    "/PersistentVolumeClaim": Strategy(
        return_deleted=True,
        on_create=gates.drop_disabled_claim_fields,
        on_update=gates.drop_disabled_claim_fields,
    ),
    "/Pod": pods.STRATEGY,
    "/PodTemplate": Strategy(
        has_status=False,
        return_deleted=True,
        generation=("template",),
        generation_since="BatchGeneration",
        on_create=_pod_template_create,
        on_update=_pod_template_update,
    ),
    "/ReplicationController": Strategy(orphan_versions=("v1",), **_WORKLOAD),  # type: ignore[arg-type]
    "/ResourceQuota": Strategy(return_deleted=True),
    "/Secret": Strategy(has_status=False, on_update=_secret_update),
    "/Service": services.STRATEGY,
    "/ServiceAccount": Strategy(
        has_status=False,
        return_deleted=True,
        on_create=_service_account,
        on_update=_service_account,
    ),
    "admissionregistration.k8s.io/MutatingWebhookConfiguration": Strategy(
        has_status=False, unconditional_update=False, generation=("webhooks",)
    ),
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration": Strategy(
        has_status=False, unconditional_update=False, generation=("webhooks",)
    ),
    "apiextensions.k8s.io/CustomResourceDefinition": custom.DEFINITION,
    "apiregistration.k8s.io/APIService": Strategy(
        unconditional_update=False, on_create=_api_service_create, status_keeps=_RESET
    ),
    "apps/ControllerRevision": Strategy(has_status=False),
    "apps/DaemonSet": Strategy(
        generation=_SPEC,
        on_create=_daemonset_annotation,
        on_update=_daemonset_generation,
        on_status=_daemonset_status,
        orphan_versions=_ORPHANING,
    ),
    "apps/Deployment": Strategy(
        generation=("spec", "metadata.annotations"),
        on_create=_template_create,
        on_update=_template_update,
        status_keeps=("labels",),
        orphan_versions=_ORPHANING,
    ),
    "apps/ReplicaSet": Strategy(orphan_versions=_ORPHANING, **_WORKLOAD),  # type: ignore[arg-type]
    "apps/StatefulSet": Strategy(orphan_versions=_ORPHANING, **_WORKLOAD),  # type: ignore[arg-type]
    "batch/CronJob": Strategy(
        orphan_versions=("batch/v1beta1",),
        generation=_SPEC,
        generation_since="BatchGeneration",
        on_create=_cron_create,
        on_update=_cron_update,
    ),
    "batch/Job": Strategy(
        orphan_versions=("batch/v1",),
        generation=_SPEC,
        generation_since="BatchGeneration",
        on_create=_job_create,
        on_update=_job_update,
    ),
    "certificates.k8s.io/CertificateSigningRequest": certificates.STRATEGY,
    "coordination.k8s.io/Lease": Strategy(
        has_status=False, create_on_update=True, unconditional_update=False
    ),
    "discovery.k8s.io/EndpointSlice": Strategy(
        has_status=False,
        generation=("*",),
        on_create=gates.drop_slice_topology,
        on_update=gates.drop_slice_topology,
    ),
    "flowcontrol.apiserver.k8s.io/FlowSchema": Strategy(generation=_SPEC, status_keeps=_RESET),
    "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration": Strategy(
        generation=_SPEC, status_keeps=_RESET
    ),
    **_OF_LATER_RELEASES,
    "networking.k8s.io/Ingress": Strategy(generation=_SPEC),
    "networking.k8s.io/IngressClass": Strategy(has_status=False, generation=_SPEC),
    "networking.k8s.io/NetworkPolicy": Strategy(has_status=False, generation=_SPEC),
    "node.k8s.io/RuntimeClass": Strategy(
        has_status=False, create_on_update=True, unconditional_update=False
    ),
    "policy/PodDisruptionBudget": Strategy(unconditional_update=False, generation=_SPEC),
    "policy/PodSecurityPolicy": Strategy(
        has_status=False,
        return_deleted=True,
        on_create=_pod_security_policy,
        on_update=_pod_security_policy,
    ),
    "rbac.authorization.k8s.io/ClusterRole": Strategy(has_status=False, create_on_update=True),
    "rbac.authorization.k8s.io/ClusterRoleBinding": Strategy(
        has_status=False, create_on_update=True
    ),
    "rbac.authorization.k8s.io/Role": Strategy(has_status=False, create_on_update=True),
    "rbac.authorization.k8s.io/RoleBinding": Strategy(has_status=False, create_on_update=True),
    "scheduling.k8s.io/PriorityClass": Strategy(has_status=False, generation=("value",)),
    "storage.k8s.io/CSIDriver": Strategy(
        has_status=False,
        unconditional_update=False,
        return_deleted=True,
        on_create=gates.drop_disabled_csi_driver_fields,
        on_update=gates.drop_disabled_csi_driver_fields,
    ),
    "storage.k8s.io/CSINode": Strategy(
        has_status=False, unconditional_update=False, return_deleted=True
    ),
    "storage.k8s.io/CSIStorageCapacity": Strategy(has_status=False, unconditional_update=False),
    "storage.k8s.io/StorageClass": Strategy(has_status=False, return_deleted=True),
    "storage.k8s.io/VolumeAttachment": Strategy(
        unconditional_update=False, return_deleted=True, status_keeps=_RESET
    ),
}

# Rows for API versions that behave differently.
_OLD_AUTOSCALER = Strategy(
    on_create=gates.drop_disabled_autoscaler_fields, on_update=gates.drop_disabled_autoscaler_fields
)
BY_VERSION: dict[tuple[str, str], Strategy] = {
    **{
        ("autoscaling/HorizontalPodAutoscaler", version): _OLD_AUTOSCALER
        for version in ("v1", "v2beta1", "v2beta2")
    },
    ("certificates.k8s.io/CertificateSigningRequest", "v1beta1"): certificates.BETA_STRATEGY,
    ("discovery.k8s.io/EndpointSlice", "v1beta1"): replace(
        STRATEGIES["discovery.k8s.io/EndpointSlice"],
        on_create=gates.drop_disabled_endpoint_slice_fields,
        on_update=gates.drop_disabled_endpoint_slice_fields,
    ),
    # The beta version has no status subresource.
    ("storage.k8s.io/VolumeAttachment", "v1beta1"): replace(
        STRATEGIES["storage.k8s.io/VolumeAttachment"], has_status=False
    ),
}

_DEFAULT = Strategy()


def strategy_for(kind: Kind, version: str = "") -> Strategy:
    """The strategy of a kind; some kinds differ by the version of the request."""
    if kind.custom:
        has_status = any(s.name == "status" for s in kind.subresources_of(version))
        return custom.CUSTOM_WITH_STATUS if has_status else custom.CUSTOM
    return BY_VERSION.get((kind.key, version)) or STRATEGIES.get(kind.key, _DEFAULT)
