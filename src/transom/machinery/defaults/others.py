"""Defaults of the kinds around workloads: autoscaling, networking, access, storage, extension, flow
control.
"""

from __future__ import annotations

from typing import Any

import orjson

from transom.machinery import certificates
from transom.machinery.defaults import pods
from transom.machinery.flowcontrol import DEFAULT_SHARES, PRESERVE_ZERO_SHARES

Object = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"
_HTTPS = 443
_CPU_UTILISATION = 80
_METRICS_ANNOTATION = "autoscaling.alpha.kubernetes.io/metrics"
_PERIOD_SECONDS = 15


def set_defaults_token_request(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = 3600


# ---- certificates ----


def set_defaults_signing_request_v1beta1(obj: Object) -> None:
    """The beta has no signer name: it is derived from the request."""
    spec = obj.setdefault("spec", {})
    if not spec.get("usages"):
        spec["usages"] = ["digital signature", "key encipherment"]
    if spec.get("signerName") is None:
        spec["signerName"] = certificates.signer_of(spec.get("request") or "", spec["usages"])
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if not condition.get("status"):
            condition["status"] = "True"


# ---- autoscaling ----


def set_defaults_autoscaler_v1(obj: Object) -> None:
    """A v1 object carries its other metrics in an annotation; it gets the CPU target only without
    any.
    """
    spec = obj.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    if spec.get("targetCPUUtilizationPercentage") is None and not _annotated_metrics(obj):
        spec["targetCPUUtilizationPercentage"] = _CPU_UTILISATION


def set_defaults_autoscaler_v2beta1(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        cpu = {"name": "cpu", "targetAverageUtilization": _CPU_UTILISATION}
        spec["metrics"] = [{"type": "Resource", "resource": cpu}]


def set_defaults_autoscaler_v2(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": _CPU_UTILISATION}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = spec.get("behavior")
    if behavior is not None:
        up = [_scaling_policy("Pods", 4), _scaling_policy("Percent", 100)]
        behavior["scaleUp"] = {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": up,
            **(behavior.get("scaleUp") or {}),
        }
        behavior["scaleDown"] = {
            "selectPolicy": "Max",
            "policies": [_scaling_policy("Percent", 100)],
            **(behavior.get("scaleDown") or {}),
        }


def _scaling_policy(kind: str, value: int) -> Object:
    return {"type": kind, "value": value, "periodSeconds": _PERIOD_SECONDS}


def _annotated_metrics(obj: Object) -> bool:
    text = ((obj.get("metadata") or {}).get("annotations") or {}).get(_METRICS_ANNOTATION)
    if not text:
        return False
    try:
        metrics = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return isinstance(metrics, list) and bool(metrics)


# ---- networking ----


def set_defaults_ingress_v1beta1(obj: Object) -> None:
    for rule in (obj.get("spec") or {}).get("rules") or ():
        for path in (rule.get("http") or {}).get("paths") or ():
            path.setdefault("pathType", "ImplementationSpecific")


def set_defaults_network_policy(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for direction in ("ingress", "egress"):
        for rule in spec.get(direction) or ():
            for port in rule.get("ports") or ():
                port.setdefault("protocol", "TCP")


def set_defaults_endpoint_slice(obj: Object) -> None:
    for port in obj.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


# ---- access, scheduling, storage ----


def set_defaults_role_binding(obj: Object) -> None:
    """RoleBinding and ClusterRoleBinding."""
    reference = obj.setdefault("roleRef", {})
    if not reference.get("apiGroup"):
        reference["apiGroup"] = _RBAC
    for subject in obj.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = _RBAC


def set_defaults_pod_security_policy(obj: Object) -> None:
    """Policies from before the field allow what was allowed then."""
    obj.setdefault("spec", {}).setdefault("allowPrivilegeEscalation", True)


def set_defaults_priority_class(obj: Object) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def set_defaults_storage_class(obj: Object) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def set_defaults_csi_driver(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("attachRequired", True)
    spec.setdefault("podInfoOnMount", False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


def set_defaults_volume_attachment(obj: Object) -> None:
    inline = ((obj.get("spec") or {}).get("source") or {}).get("inlineVolumeSpec")
    if inline is not None:
        pods.set_defaults_persistent_source(inline)


# ---- extension ----


def set_defaults_validating_webhooks(obj: Object) -> None:
    for webhook in obj.get("webhooks") or ():
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        _service_port(webhook.get("clientConfig"))
        for rule in webhook.get("rules") or ():
            rule.setdefault("scope", "*")


def set_defaults_mutating_webhooks(obj: Object) -> None:
    set_defaults_validating_webhooks(obj)
    for webhook in obj.get("webhooks") or ():
        webhook.setdefault("reinvocationPolicy", "Never")


def set_defaults_validating_webhooks_v1beta1(obj: Object) -> None:
    """The beta is more lenient about failing calls, other versions and undeclared side effects."""
    for webhook in obj.get("webhooks") or ():
        webhook.setdefault("failurePolicy", "Ignore")
        webhook.setdefault("matchPolicy", "Exact")
        webhook.setdefault("sideEffects", "Unknown")
        webhook.setdefault("timeoutSeconds", 30)
        if not webhook.get("admissionReviewVersions"):
            webhook["admissionReviewVersions"] = ["v1beta1"]
    set_defaults_validating_webhooks(obj)


def set_defaults_mutating_webhooks_v1beta1(obj: Object) -> None:
    set_defaults_validating_webhooks_v1beta1(obj)
    set_defaults_mutating_webhooks(obj)


def set_defaults_custom_resource_definition_v1beta1(obj: Object) -> None:
    """The old version is more lenient: it defaults the scope, allows a single version, and keeps
    unknown fields.
    """
    spec = obj.setdefault("spec", {})
    if not spec.get("scope"):
        spec["scope"] = "Namespaced"
    if not spec.get("versions") and spec.get("version"):
        spec["versions"] = [{"name": spec["version"], "served": True, "storage": True}]
    if not spec.get("version") and spec.get("versions"):
        spec["version"] = spec["versions"][0].get("name", "")
    spec.setdefault("preserveUnknownFields", True)
    set_defaults_custom_resource_definition(obj)
    conversion = spec["conversion"]
    if conversion.get("strategy") == "Webhook" and not conversion.get("conversionReviewVersions"):
        conversion["conversionReviewVersions"] = ["v1beta1"]
    _service_port(conversion.get("webhookClientConfig"))


def set_defaults_custom_resource_definition(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if not names.get("singular") and kind:
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = kind + "List"
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    _service_port((spec["conversion"].get("webhook") or {}).get("clientConfig"))
    status = obj.setdefault("status", {})
    if not status.get("storedVersions"):
        stored = next(
            (v.get("name", "") for v in spec.get("versions") or () if v.get("storage")), None
        )
        if stored is not None:
            status["storedVersions"] = [stored]


def set_defaults_api_service(obj: Object) -> None:
    _service_port(obj.get("spec"))


def _service_port(holder: Object | None) -> None:
    """The default port of the `service` in a client configuration."""
    service = (holder or {}).get("service")
    if service is not None:
        service.setdefault("port", _HTTPS)


# ---- flow control ----


def set_defaults_flow_schema(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("matchingPrecedence"):
        spec["matchingPrecedence"] = 1000


def set_defaults_priority_level_v1beta1(obj: Object) -> None:
    _priority_level(obj, "assuredConcurrencyShares", allows_zero=False)


def set_defaults_priority_level_v1(obj: Object) -> None:
    _priority_level(obj, "nominalConcurrencyShares", allows_zero=True)


def set_defaults_priority_level_v1beta3(obj: Object) -> None:
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    zero = PRESERVE_ZERO_SHARES in annotations
    _priority_level(obj, "nominalConcurrencyShares", allows_zero=zero)


def _priority_level(obj: Object, shares: str, *, allows_zero: bool) -> None:
    limited = (obj.get("spec") or {}).get("limited")
    if limited is None:
        return
    if limited.get(shares) is None or not (limited[shares] or allows_zero):
        limited[shares] = DEFAULT_SHARES
    queuing = (limited.get("limitResponse") or {}).get("queuing")
    if queuing is not None:
        for name, value in (("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)):
            if not queuing.get(name):
                queuing[name] = value
