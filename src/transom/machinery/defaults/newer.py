"""Defaults by release: those of 1.20, and those that later releases added."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from transom.machinery.defaults import find_default_rule
from transom.machinery.defaults.newer_pods import (
    WITH_POD_SPEC,
    has_pod_template,
    pod_default_rule,
    without_template_ports,
)
from transom.machinery.flowcontrol import DEFAULT_SHARES
from transom.machinery.kinds import GVK
from transom.machinery.releases import Release, has_tables
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import is_enabled

Rule = Callable[[Release, dict[str, Any]], None]
DefaultRule = Callable[[dict[str, Any]], None]


def _service(release: Release, obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    if spec.get("type") in ("ClusterIP", "NodePort", "LoadBalancer") and has_behaviour(
        release, "InternalTrafficPolicy"
    ):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec.get("type") == "LoadBalancer" and has_behaviour(
        release, "AllocateLoadBalancerNodePorts"
    ):
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if (
        spec.get("type") == "ClusterIP"
        and spec.get("externalIPs")
        and not spec.get("externalTrafficPolicy")
        and has_behaviour(release, "ExternallyAccessible")
    ):
        spec["externalTrafficPolicy"] = "Cluster"
    if spec.get("type") == "LoadBalancer" and is_enabled(release, "LoadBalancerIPMode"):
        status = (obj.get("status") or {}).get("loadBalancer") or {}
        for ingress in status.get("ingress") or ():
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


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


def _priority_level(release: Release, obj: dict[str, Any]) -> None:
    spec = obj["spec"]
    limited = spec.get("limited")
    if limited is not None and has_behaviour(release, "LentSeats"):
        limited.setdefault("lendablePercent", 0)
        zero = limited.get("nominalConcurrencyShares") == 0
        if zero and not has_behaviour(release, "PreservedZeroShares"):  # whatever is annotated
            limited["nominalConcurrencyShares"] = DEFAULT_SHARES
    if spec.get("exempt") is not None:
        spec["exempt"].setdefault("nominalConcurrencyShares", 0)
        spec["exempt"].setdefault("lendablePercent", 0)


def _ingress_class(release: Release, obj: dict[str, Any]) -> None:
    parameters = obj["spec"].get("parameters")
    if parameters is None or not is_enabled(release, "IngressClassNamespacedParams"):
        return
    if parameters.get("scope") is None:  # decoding shows the field even if it is not set
        parameters["scope"] = "Cluster"


def _job_spec(release: Release, spec: dict[str, Any]) -> None:
    if is_enabled(release, "IndexedJob"):
        spec.setdefault("completionMode", "NonIndexed")
    if is_enabled(release, "SuspendJob"):
        spec.setdefault("suspend", False)
    if is_enabled(release, "JobPodReplacementPolicy"):
        policy = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
        spec.setdefault("podReplacementPolicy", policy)
    if has_behaviour(release, "ManualSelectorDefault"):
        spec.setdefault("manualSelector", False)
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


def _device_request(request: dict[str, Any]) -> None:
    request.setdefault("allocationMode", "ExactCount")
    if request["allocationMode"] == "ExactCount" and not request.get("count"):
        request["count"] = 1
    for toleration in request.get("tolerations") or ():
        toleration.setdefault("operator", "Equal")


def _device_claim(spec: dict[str, Any]) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        if request.get("exactly") is not None:
            _device_request(request["exactly"])
        elif request.get("deviceClassName"):  # v1beta1 has the fields in the request itself
            _device_request(request)
        for alternative in request.get("firstAvailable") or ():
            _device_request(alternative)


def _resource_claim(_release: Release, obj: dict[str, Any]) -> None:
    _device_claim(obj["spec"])


def _resource_claim_template(_release: Release, obj: dict[str, Any]) -> None:
    _device_claim(obj["spec"].get("spec") or {})


def _resource_slice(_release: Release, obj: dict[str, Any]) -> None:
    for device in obj["spec"].get("devices") or ():
        for mapping in (device.get("nodeAllocatableResourceMappings") or {}).values():
            mapping.setdefault("allocationMultiplier", "1")


def _pod_certificate(_release: Release, obj: dict[str, Any]) -> None:
    obj["spec"].setdefault("maxExpirationSeconds", 86400)


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
    ("certificates.k8s.io", "PodCertificateRequest"): _pod_certificate,
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): _priority_level,
    ("networking.k8s.io", "IngressClass"): _ingress_class,
    ("resource.k8s.io", "ResourceClaim"): _resource_claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): _resource_claim_template,
    ("resource.k8s.io", "ResourceSlice"): _resource_slice,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
}


def _backoff_limit(obj: dict[str, Any]) -> None:
    """Before the defaults of 1.20: what decides about one of those."""
    spec = obj["spec"]
    if spec.get("backoffLimitPerIndex") is not None and spec.get("backoffLimit") is None:
        spec["backoffLimit"] = 2147483647


def default_rules(release: Release, gvk: GVK) -> tuple[DefaultRule, ...]:
    """The rules that set defaults of objects of this group, version and kind in a release, in
    their order. Compiled once, because every write applies them.
    """
    key = (gvk.group, gvk.kind)
    rules: list[DefaultRule] = []
    if has_tables(release) and key == ("batch", "Job"):
        rules.append(_backoff_limit)
    base = find_default_rule(gvk)
    if base is not None:
        without_ports = has_behaviour(release, "TemplatesWithoutHostPorts")
        rules.append(
            partial(without_template_ports, gvk, base)
            if without_ports and has_pod_template(gvk)
            else base
        )
    if has_tables(release):
        if key in WITH_POD_SPEC:
            rules.append(pod_default_rule(release, gvk))
        if key in _RULES:
            rules.append(partial(_RULES[key], release))
    return tuple(rules)
