"""Defaults that releases after 1.20 added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from transom.machinery.defaults.newer_pods import apply_pod_defaults
from transom.machinery.kinds import GVK
from transom.machinery.releases import TABLES_SINCE, Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import is_enabled

Rule = Callable[[Release, dict[str, Any]], None]


def _service(release: Release, obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    if spec.get("type") == "ExternalName":
        return
    if has_behaviour(release, "InternalTrafficPolicy"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec.get("type") == "LoadBalancer" and has_behaviour(
        release, "AllocateLoadBalancerNodePorts"
    ):
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _namespace(release: Release, obj: dict[str, Any]) -> None:
    name = obj["metadata"].get("name")
    if name and has_behaviour(release, "MetadataNameLabel"):
        labels = obj["metadata"].get("labels") or {}
        obj["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": name}


def _daemon_set(release: Release, obj: dict[str, Any]) -> None:
    rolling = (obj["spec"].get("updateStrategy") or {}).get("rollingUpdate")
    if rolling is not None and has_behaviour(release, "DaemonSetSurge"):
        rolling.setdefault("maxSurge", 0)


def _stateful_set(release: Release, obj: dict[str, Any]) -> None:
    if is_enabled(release, "StatefulSetAutoDeletePVC"):
        policy = obj["spec"].setdefault("persistentVolumeClaimRetentionPolicy", {})
        policy.setdefault("whenDeleted", "Retain")
        policy.setdefault("whenScaled", "Retain")
    rolling = (obj["spec"].get("updateStrategy") or {}).get("rollingUpdate")
    if rolling is not None and is_enabled(release, "MaxUnavailableStatefulSet"):
        rolling.setdefault("maxUnavailable", 1)


def _csi_driver(release: Release, obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    for field, gate in (
        ("storageCapacity", "CSIStorageCapacity"),
        ("requiresRepublish", "CSIServiceAccountToken"),
        ("seLinuxMount", "SELinuxMountReadWriteOncePod"),
    ):
        if is_enabled(release, gate):
            spec.setdefault(field, False)


def _job_spec(release: Release, spec: dict[str, Any]) -> None:
    if is_enabled(release, "IndexedJob"):
        spec.setdefault("completionMode", "NonIndexed")
    if is_enabled(release, "SuspendJob"):
        spec.setdefault("suspend", False)
    if is_enabled(release, "JobPodReplacementPolicy"):
        policy = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
        spec.setdefault("podReplacementPolicy", policy)
    if spec.get("backoffLimitPerIndex") is not None and "backoffLimit" not in spec:
        spec["backoffLimit"] = 2147483647
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"


def _job(release: Release, obj: dict[str, Any]) -> None:
    _job_spec(release, obj["spec"])


def _match_resources(given: dict[str, Any] | None) -> None:
    if given is None:
        return
    for field in ("resourceRules", "excludeResourceRules"):
        for rule in given.get(field) or ():
            rule.setdefault("scope", "*")
    given.setdefault("matchPolicy", "Equivalent")
    given.setdefault("namespaceSelector", {})
    given.setdefault("objectSelector", {})


def _admission_policy(_release: Release, obj: dict[str, Any]) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("failurePolicy", "Fail")
    _match_resources(spec.get("matchConstraints"))


def _admission_policy_binding(_release: Release, obj: dict[str, Any]) -> None:
    _match_resources(obj.setdefault("spec", {}).get("matchResources"))


_REGISTRATION: Final = "admissionregistration.k8s.io"
_RULES: dict[tuple[str, str], Rule] = {
    ("", "Namespace"): _namespace,
    ("", "Service"): _service,
    (_REGISTRATION, "MutatingAdmissionPolicy"): _admission_policy,
    (_REGISTRATION, "MutatingAdmissionPolicyBinding"): _admission_policy_binding,
    (_REGISTRATION, "ValidatingAdmissionPolicy"): _admission_policy,
    (_REGISTRATION, "ValidatingAdmissionPolicyBinding"): _admission_policy_binding,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
}


def apply_newer_defaults(release: Release, gvk: GVK, obj: dict[str, Any]) -> None:
    """In addition to the defaults of 1.20."""
    if release >= TABLES_SINCE:
        apply_pod_defaults(release, gvk, obj)
        rule = _RULES.get((gvk.group, gvk.kind))
        if rule is not None:
            rule(release, obj)
