"""Defaults of the core kinds other than pods."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from transom.machinery.defaults import pods

Object = dict[str, Any]

_AFFINITY_SECONDS = 10800


def set_defaults_namespace(obj: Object) -> None:
    obj.setdefault("status", {}).setdefault("phase", "Active")


def set_defaults_node(obj: Object) -> None:
    status = obj.get("status") or {}
    capacity = status.get("capacity")
    if capacity:
        pods.set_defaults_resource_list(capacity)
        if status.get("allocatable") is None:
            status["allocatable"] = dict(capacity)
    pods.set_defaults_resource_list(status.get("allocatable"))
    spec = obj.get("spec") or {}
    # `podCIDR` is the first of `podCIDRs`; if they disagree, `podCIDR` wins.
    single, several = spec.get("podCIDR"), spec.get("podCIDRs")
    if single:
        if not several or several[0] != single:
            spec["podCIDRs"] = [single]
    elif several and several[0]:
        spec["podCIDR"] = several[0]


def set_defaults_secret(obj: Object) -> None:
    obj.setdefault("type", "Opaque")
    written = obj.pop("stringData", None)
    if written:
        data = obj.get("data") or {}
        data.update(
            (k, b64encode(v.encode("utf-8", "surrogatepass")).decode()) for k, v in written.items()
        )
        obj["data"] = data


def set_defaults_service(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    affinity = spec.setdefault("sessionAffinity", "None")
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if client.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _AFFINITY_SECONDS}}
    kind = spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port", 0)
    if kind in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")


def set_defaults_endpoints(obj: Object) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            port.setdefault("protocol", "TCP")


def set_defaults_limit_range(obj: Object) -> None:
    for item in (obj.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            default = {**(item.get("max") or {}), **(item.get("default") or {})}
            request = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
            if default:
                item["default"] = default
            if request:
                item["defaultRequest"] = request
        for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            pods.set_defaults_resource_list(item.get(name))


def set_defaults_resource_quota(obj: Object) -> None:
    status = obj.get("status") or {}
    pods.set_defaults_resource_list((obj.get("spec") or {}).get("hard"))
    pods.set_defaults_resource_list(status.get("hard"))
    pods.set_defaults_resource_list(status.get("used"))


def set_defaults_persistent_volume(obj: Object) -> None:
    obj.setdefault("status", {}).setdefault("phase", "Pending")
    spec = obj.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    pods.set_defaults_persistent_source(spec)


def set_defaults_persistent_volume_claim(obj: Object) -> None:
    status = obj.setdefault("status", {})
    status.setdefault("phase", "Pending")
    pods.set_defaults_resource_list(status.get("capacity"))
    pods.set_defaults_claim_spec(obj.setdefault("spec", {}))


def set_defaults_pod_template(obj: Object) -> None:
    pods.set_defaults_template(obj.setdefault("template", {}))


def set_defaults_replication_controller(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    template = spec.get("template")
    if template is not None:
        labels = (template.get("metadata") or {}).get("labels")
        if labels:
            metadata = obj.setdefault("metadata", {})
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            if not metadata.get("labels"):
                metadata["labels"] = dict(labels)
        pods.set_defaults_template(template)
    spec.setdefault("replicas", 1)
