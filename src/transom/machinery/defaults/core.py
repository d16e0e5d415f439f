"""Defaults of the core kinds other than pods."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from transom.machinery.defaults import pods

Object = dict[str, Any]

_AFFINITY_SECONDS = 10800


def namespace(obj: Object) -> None:
    obj.setdefault("status", {}).setdefault("phase", "Active")


def node(obj: Object) -> None:
    status = obj.get("status") or {}
    capacity = status.get("capacity")
    if capacity:
        pods.resource_list(capacity)
        if status.get("allocatable") is None:
            status["allocatable"] = dict(capacity)
    pods.resource_list(status.get("allocatable"))
    spec = obj.get("spec") or {}
    # `podCIDR` is the first of `podCIDRs`; when they disagree, `podCIDR` is right.
    single, several = spec.get("podCIDR"), spec.get("podCIDRs")
    if single:
        if not several or several[0] != single:
            spec["podCIDRs"] = [single]
    elif several and several[0]:
        spec["podCIDR"] = several[0]


def secret(obj: Object) -> None:
    obj.setdefault("type", "Opaque")
    written = obj.pop("stringData", None)
    if written:
        data = obj.get("data") or {}
        data.update((k, b64encode(v.encode("utf-8", "surrogatepass")).decode()) for k, v in written.items())
        obj["data"] = data


def service(obj: Object) -> None:
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


def endpoints(obj: Object) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            port.setdefault("protocol", "TCP")


def limit_range(obj: Object) -> None:
    for item in (obj.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            default = {**(item.get("max") or {}), **(item.get("default") or {})}
            request = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
            if default:
                item["default"] = default
            if request:
                item["defaultRequest"] = request
        for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            pods.resource_list(item.get(name))


def resource_quota(obj: Object) -> None:
    status = obj.get("status") or {}
    pods.resource_list((obj.get("spec") or {}).get("hard"))
    pods.resource_list(status.get("hard"))
    pods.resource_list(status.get("used"))


def persistent_volume(obj: Object) -> None:
    obj.setdefault("status", {}).setdefault("phase", "Pending")
    spec = obj.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    pods.persistent_source(spec)


def persistent_volume_claim(obj: Object) -> None:
    status = obj.setdefault("status", {})
    status.setdefault("phase", "Pending")
    pods.resource_list(status.get("capacity"))
    pods.claim_spec(obj.setdefault("spec", {}))


def pod_template(obj: Object) -> None:
    pods.template(obj.setdefault("template", {}))


def replication_controller(obj: Object) -> None:
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
        pods.template(template)
    spec.setdefault("replicas", 1)
