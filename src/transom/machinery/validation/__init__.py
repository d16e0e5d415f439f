"""Validation of built-in objects: `create(kind, obj)` and `update(kind, new, old, subresource)`.

Objects come in the storage version, normalised, with defaults. The rules of a kind live in the module that the table
below names; it is imported when the first object of the kind arrives. Custom objects are judged by `custom`.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

from transom.machinery.field import FieldError
from transom.machinery.kinds import Kind
from transom.machinery.validation.meta import validate_any_object_meta, validate_any_object_meta_update
from transom.machinery.validation.names import name_is_path_segment
from transom.machinery.validation.rules import Rules

_MODULES = {
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
        "flowcontrol.apiserver.k8s.io/FlowSchema", "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration",
    ),
    "networking": (
        "networking.k8s.io/Ingress", "networking.k8s.io/IngressClass", "networking.k8s.io/NetworkPolicy",
    ),
    "node": (
        "/Node", "coordination.k8s.io/Lease", "node.k8s.io/RuntimeClass", "scheduling.k8s.io/PriorityClass",
    ),
    "persistentvolume": ("/PersistentVolume",),
    "pod": ("/Pod",),
    "podsecuritypolicy": ("policy/PodSecurityPolicy",),
    "policy": ("policy/Eviction", "policy/PodDisruptionBudget"),
    "quota": ("/LimitRange", "/ResourceQuota"),
    "rbac": (
        "rbac.authorization.k8s.io/ClusterRole", "rbac.authorization.k8s.io/ClusterRoleBinding",
        "rbac.authorization.k8s.io/Role", "rbac.authorization.k8s.io/RoleBinding",
    ),
    "reviews": (
        "authentication.k8s.io/SelfSubjectReview", "authentication.k8s.io/TokenRequest",
        "authentication.k8s.io/TokenReview", "authorization.k8s.io/LocalSubjectAccessReview",
        "authorization.k8s.io/SelfSubjectAccessReview", "authorization.k8s.io/SelfSubjectRulesReview",
        "authorization.k8s.io/SubjectAccessReview",
    ),
    "scale": ("autoscaling/Scale",),
    "service": ("/Service",),
    "storage": (
        "storage.k8s.io/CSIDriver", "storage.k8s.io/CSINode", "storage.k8s.io/CSIStorageCapacity",
        "storage.k8s.io/StorageClass", "storage.k8s.io/VolumeAttachment",
    ),
    "workloads": (
        "/PodTemplate", "/ReplicationController", "apps/ControllerRevision", "apps/DaemonSet", "apps/Deployment",
        "apps/ReplicaSet", "apps/StatefulSet",
    ),
}
_MODULE_OF = {key: module for module, keys in _MODULES.items() for key in keys}

ERROR_KINDS: dict[str, tuple[str, str]] = {
    # Kind.key -> the group and kind that errors name, where these are not the kind's own.
    "networking.k8s.io/Ingress": ("extensions", "Ingress"),
    "networking.k8s.io/NetworkPolicy": ("extensions", "NetworkPolicy"),
    "authorization.k8s.io/LocalSubjectAccessReview": ("authorization.k8s.io", ""),
    "authorization.k8s.io/SelfSubjectAccessReview": ("authorization.k8s.io", ""),
    "authorization.k8s.io/SubjectAccessReview": ("authorization.k8s.io", ""),
}

# Requests that carry an object but are not stored: nobody looks at their metadata.
_NOT_STORED = frozenset(("/Binding", "policy/Eviction", "autoscaling/Scale", *_MODULES["reviews"]))


@lru_cache(maxsize=256)
def rules(key: str, api_version: str = "") -> Rules:
    """The rules of a kind; some kinds have others for a certain version of the request."""
    validators: dict[str, Rules] = import_module(f"{__name__}.{_MODULE_OF[key]}").VALIDATORS
    return validators.get(f"{key}@{api_version}") or validators[key]


def create(kind: Kind, obj: dict[str, Any], api_version: str = "") -> list[FieldError]:
    """What is wrong with a new object. `api_version` is that of the request (`events.k8s.io/v1`)."""
    errors = rules(kind.key, api_version).create(obj)
    if errors or kind.key in _NOT_STORED:
        return errors
    # Last, so that the kind's own words come first.
    return validate_any_object_meta(obj["metadata"], kind.namespaced, name_is_path_segment)


def update(
    kind: Kind, new: dict[str, Any], old: dict[str, Any], subresource: str = "", api_version: str = ""
) -> list[FieldError]:
    """What is wrong with a change to an object, made directly or through a sub-resource."""
    found = rules(kind.key, api_version)
    check = found.update
    if subresource == "status":
        check = found.status_update or check
    elif subresource:
        check = found.subresources.get(subresource, check)
    errors = validate_any_object_meta(new["metadata"], kind.namespaced, name_is_path_segment)
    errors += validate_any_object_meta_update(new["metadata"], old["metadata"])
    return errors + check(new, old)
