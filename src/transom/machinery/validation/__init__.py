"""Validation of built-in objects: `validate_create(kind, obj)` and `validate_update(kind, new, old, subresource)`.

Objects are in the storage version, normalised, with defaults. The rules of a kind live in the
module that the table below names; it is imported when the first object of the kind arrives.
`custom` validates custom objects.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any, Final

from transom.kit.lazy import load_submodule
from transom.machinery.field import FieldError, NoNameError, SelectorValueError, bounded_errors
from transom.machinery.kinds import Kind
from transom.machinery.releases import DEFAULT, Release, has_tables
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.meta import (
    validate_any_object_meta,
    validate_any_object_meta_update,
    validate_object_name,
)
from transom.machinery.validation.names import is_plain_segment, name_is_path_segment
from transom.machinery.validation.rules import RulesFactory, ValidationRules

_MODULES = {
    "admission_policies": (
        "admissionregistration.k8s.io/MutatingAdmissionPolicy",
        "admissionregistration.k8s.io/MutatingAdmissionPolicyBinding",
        "admissionregistration.k8s.io/ValidatingAdmissionPolicy",
        "admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding",
    ),
    "admissionregistration": (
        "admissionregistration.k8s.io/MutatingWebhookConfiguration",
        "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
    ),
    "apiextensions": ("apiextensions.k8s.io/CustomResourceDefinition",),
    "apiregistration": ("apiregistration.k8s.io/APIService",),
    "autoscaling": ("autoscaling/HorizontalPodAutoscaler",),
    "batch": ("batch/CronJob", "batch/Job"),
    "binding": ("/Binding",),
    "certificates": ("certificates.k8s.io/CertificateSigningRequest",),
    "claim": ("/PersistentVolumeClaim",),
    "config": ("/ConfigMap", "/Namespace", "/Secret", "/ServiceAccount"),
    "endpoints": ("/Endpoints", "discovery.k8s.io/EndpointSlice"),
    "events": ("/Event",),
    "flowcontrol": (
        "flowcontrol.apiserver.k8s.io/FlowSchema",
        "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration",
    ),
    "networking": (
        "networking.k8s.io/Ingress",
        "networking.k8s.io/IngressClass",
        "networking.k8s.io/NetworkPolicy",
    ),
    "node": (
        "/Node",
        "coordination.k8s.io/Lease",
        "node.k8s.io/RuntimeClass",
        "scheduling.k8s.io/PriorityClass",
    ),
    "persistentvolume": ("/PersistentVolume",),
    "pod": ("/Pod",),
    "pod_certificates": ("certificates.k8s.io/PodCertificateRequest",),
    "podsecuritypolicy": ("policy/PodSecurityPolicy",),
    "policy": ("policy/Eviction", "policy/PodDisruptionBudget"),
    "quota": ("/LimitRange", "/ResourceQuota"),
    "rbac": (
        "rbac.authorization.k8s.io/ClusterRole",
        "rbac.authorization.k8s.io/ClusterRoleBinding",
        "rbac.authorization.k8s.io/Role",
        "rbac.authorization.k8s.io/RoleBinding",
    ),
    "resource": (
        "resource.k8s.io/DeviceClass",
        "resource.k8s.io/ResourceClaim",
        "resource.k8s.io/ResourceClaimTemplate",
    ),
    "resource_slices": (
        "resource.k8s.io/DeviceTaintRule",
        "resource.k8s.io/ResourceSlice",
    ),
    "reviews": (
        "authentication.k8s.io/SelfSubjectReview",
        "authentication.k8s.io/TokenRequest",
        "authentication.k8s.io/TokenReview",
        "authorization.k8s.io/LocalSubjectAccessReview",
        "authorization.k8s.io/SelfSubjectAccessReview",
        "authorization.k8s.io/SelfSubjectRulesReview",
        "authorization.k8s.io/SubjectAccessReview",
    ),
    "scale": ("autoscaling/Scale",),
    "service": ("/Service",),
    "service_cidr": ("networking.k8s.io/IPAddress", "networking.k8s.io/ServiceCIDR"),
    "storage": (
        "storage.k8s.io/CSIDriver",
        "storage.k8s.io/CSINode",
        "storage.k8s.io/CSIStorageCapacity",
        "storage.k8s.io/StorageClass",
        "storage.k8s.io/VolumeAttachment",
        "storage.k8s.io/VolumeAttributesClass",
    ),
    "storage_migration": ("storagemigration.k8s.io/StorageVersionMigration",),
    "trust_bundles": ("certificates.k8s.io/ClusterTrustBundle",),
    "workloads": (
        "/PodTemplate",
        "/ReplicationController",
        "apps/ControllerRevision",
        "apps/DaemonSet",
        "apps/Deployment",
        "apps/ReplicaSet",
        "apps/StatefulSet",
    ),
}
_MODULE_OF = {key: module for module, keys in _MODULES.items() for key in keys}
# Kinds with another module for releases from 1.21 on.
_RELEASE_MODULES = {
    "/Service": "service_releases",
    "apps/StatefulSet": "stateful_sets",
    "batch/Job": "jobs",
}

ERROR_KINDS: dict[str, tuple[str, str]] = {
    # Kind.key -> the group and kind in errors, if they are not the kind's own.
    "networking.k8s.io/Ingress": ("extensions", "Ingress"),
    "networking.k8s.io/NetworkPolicy": ("extensions", "NetworkPolicy"),
    "authorization.k8s.io/LocalSubjectAccessReview": ("authorization.k8s.io", ""),
    "authorization.k8s.io/SelfSubjectAccessReview": ("authorization.k8s.io", ""),
    "authorization.k8s.io/SubjectAccessReview": ("authorization.k8s.io", ""),
}


def error_kind(kind: Kind, release: Release) -> tuple[str, str]:
    """The group and kind that errors of a kind name."""
    if kind.group == "networking.k8s.io" and has_behaviour(release, "NetworkingErrors"):
        return kind.group, kind.kind
    return ERROR_KINDS.get(kind.key, (kind.group, kind.kind))


# Requests that carry an object but are not stored: their metadata is not validated.
NOT_STORED = frozenset(("/Binding", "policy/Eviction", "autoscaling/Scale", *_MODULES["reviews"]))

# Kinds whose own rules do not check metadata. All others have checked it before the common rules
# run.
WITHOUT_METADATA_RULES = frozenset(("/Event", "policy/PodDisruptionBudget"))
_METADATA_RULES = ValidationRules(lambda obj: [], lambda new, old: [])


_DEFAULT_FEATURES = FeatureSet(DEFAULT)


@lru_cache(maxsize=256)
def validation_rules(
    key: str, api_version: str = "", features: FeatureSet = _DEFAULT_FEATURES
) -> ValidationRules:
    """The rules of a kind; some kinds have different rules for certain versions of the request,
    and in some releases.
    """
    module = _MODULE_OF.get(key)
    if has_tables(features.release) and key in _RELEASE_MODULES:
        module = _RELEASE_MODULES[key]
    if module is None:  # a kind of a later release, whose metadata alone is validated
        return _METADATA_RULES
    validators: dict[str, ValidationRules | RulesFactory] = load_submodule(
        __name__, module
    ).VALIDATORS
    found = validators.get(f"{key}@{api_version}") or validators[key]
    return found if isinstance(found, ValidationRules) else found(features)


def validate_create(
    kind: Kind,
    obj: dict[str, Any],
    api_version: str = "",
    features: FeatureSet = _DEFAULT_FEATURES,
) -> list[FieldError]:
    """The errors of a new object. `api_version` is that of the request (`events.k8s.io/v1`)."""
    with bounded_errors():
        errors = validation_rules(kind.key, api_version, features).create(obj)
        if errors:
            errors = _in_release(kind, errors, features.release)
        if errors or kind.key in NOT_STORED:
            return errors
        # Last, so that the kind's own errors come first.
        if kind.key in WITHOUT_METADATA_RULES or kind.key not in _MODULE_OF:
            return validate_any_object_meta(obj["metadata"], kind.namespaced, name_is_path_segment)
        meta = obj["metadata"]
        if not meta.get("generateName") and is_plain_segment(meta.get("name", "")):
            return errors
        return validate_object_name(meta, name_is_path_segment)


def validate_update(
    kind: Kind,
    new: dict[str, Any],
    old: dict[str, Any],
    subresource: str = "",
    api_version: str = "",
    features: FeatureSet = _DEFAULT_FEATURES,
) -> list[FieldError]:
    """The errors of a change to an object, made directly or through a sub-resource."""
    found = validation_rules(kind.key, api_version, features)
    check = found.update
    if subresource == "status":
        check = found.status_update or check
    elif subresource:
        check = found.subresources.get(subresource, check)
    with bounded_errors():
        errors = validate_any_object_meta(new["metadata"], kind.namespaced, name_is_path_segment)
        errors += validate_any_object_meta_update(new["metadata"], old["metadata"])
        errors += check(new, old)
        if any(isinstance(error, SelectorValueError) for error in errors):
            before = found.create(old)
            if any(isinstance(error, SelectorValueError) for error in before):
                errors = [e for e in errors if not isinstance(e, SelectorValueError)]
        if not errors:
            return errors
        again = found.create(new) if kind.key in _VALIDATED_ONCE else []
        return _in_release(kind, errors, features.release, again)


# Kinds that Kubernetes validated twice, at the update as a new object too, so that each error
# appeared twice, and the release that changed this.
_VALIDATED_ONCE: Final = {
    "/PersistentVolumeClaim": Release(1, 35),
    "/ReplicationController": Release(1, 35),
    "/ResourceQuota": Release(1, 21),
    "apps/DaemonSet": Release(1, 34),
    "apps/ReplicaSet": Release(1, 34),
    "apps/StatefulSet": Release(1, 25),
    "networking.k8s.io/NetworkPolicy": Release(1, 36),
    "storage.k8s.io/CSINode": Release(1, 36),
}


def _in_release(
    kind: Kind,
    errors: list[FieldError],
    release: Release,
    again: list[FieldError] | None = None,
) -> list[FieldError]:
    """The errors that the release reports. `again`: those of the object as a new one, for an
    update.
    """
    if not has_behaviour(release, "SelectorValues"):
        errors = [error for error in errors if not isinstance(error, SelectorValueError)]
    if has_behaviour(release, "NoNameErrors"):
        errors = [error for error in errors if not isinstance(error, NoNameError)]
    since = _VALIDATED_ONCE.get(kind.key)
    if since is None or release < since:
        return errors
    if again is None:
        return errors
    return _without(errors, again)


def _without(errors: list[FieldError], again: list[FieldError]) -> list[FieldError]:
    """The errors of an update without those of the same object as a new one, if they appear
    twice. Only a new object needs a good name.
    """
    extra = Counter(str(error) for error in again)
    total = Counter(str(error) for error in errors)
    dropped = {text: count for text, count in extra.items() if total[text] >= 2 * count}
    kept = []
    for error in errors:
        text = str(error)
        if dropped.get(text):
            dropped[text] -= 1
        elif error.field != "metadata.generateName":
            kept.append(error)
    return kept
