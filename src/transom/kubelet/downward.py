"""Values that the downward API exposes: a pod's fields and the resources of its containers.

Used for environment variables and for downward API volumes, which differ only in which fields are
allowed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from transom.kit.goquote import go_quote
from transom.machinery import quantity
from transom.machinery.objects import Object
from transom.machinery.validation.names import is_qualified_name

_DEFAULTED = ("cpu", "memory", "ephemeral-storage")
_KNOWN = frozenset(
    (
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "status.phase",
        "status.hostIP",
        "status.podIP",
        "status.podIPs",
    )
)
_ZERO = quantity.ZERO


class UnsupportedFieldPath(ValueError):
    """The value does not exist; the text is Kubernetes'."""


def env_field(pod: Object, field_path: str, host_ip: str, pod_ips: tuple[str, ...]) -> str:
    """A field for an environment variable, with the addresses that the kubelet currently knows."""
    path = "spec.nodeName" if field_path == "spec.host" else field_path
    if _split(path) is None and path not in _KNOWN:
        raise UnsupportedFieldPath(f"field label not supported: {path}")
    spec = pod["spec"]
    match path:
        case "spec.nodeName":
            return str(spec.get("nodeName") or "")
        case "spec.serviceAccountName":
            return str(spec.get("serviceAccountName") or "")
        case "status.hostIP":
            return host_ip
        case "status.podIP":
            return pod_ips[0] if pod_ips else ""
        case "status.podIPs":
            return ",".join(pod_ips)
    return pod_field(pod, path)


def pod_field(pod: Object, field_path: str) -> str:
    """A metadata field, which volumes support too."""
    meta = pod["metadata"]
    subscripted = _split(field_path)
    if subscripted is not None:
        path, key = subscripted
        if path not in ("metadata.annotations", "metadata.labels"):
            raise UnsupportedFieldPath(
                f"fieldPath {go_quote(field_path)} does not support subscript"
            )
        problems = is_qualified_name(key.lower() if path == "metadata.annotations" else key)
        if problems:
            raise UnsupportedFieldPath(
                f"invalid key subscript in {field_path}: {';'.join(problems)}"
            )
        return str((meta.get(path.removeprefix("metadata.")) or {}).get(key, ""))
    match field_path:
        case "metadata.annotations":
            return _lines(meta.get("annotations") or {})
        case "metadata.labels":
            return _lines(meta.get("labels") or {})
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(meta.get(field_path.removeprefix("metadata.")) or "")
    raise UnsupportedFieldPath(f"unsupported fieldPath: {field_path}")


def _split(path: str) -> tuple[str, str] | None:
    if not path.endswith("']"):
        return None
    before, found, key = path[:-2].partition("['")
    return (before, key) if found and before else None


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={go_quote(values[key])}" for key in sorted(values))


def resource_value(
    pod: Object, container: Object | None, ref: Object, allocatable: Mapping[str, str]
) -> str:
    """A resource of the container (or of the one that `ref` names), in units of its divisor,
    rounded up. A limit that is not set defaults to the node's allocatable.
    """
    name = ref.get("containerName")
    if name or container is None:
        container = _find(pod, name or "")
    kind, _, resource = str(ref.get("resource") or "").partition(".")
    if kind not in ("limits", "requests") or not (
        resource in _DEFAULTED or resource.startswith("hugepages-")
    ):
        raise UnsupportedFieldPath(f"unsupported container resource : {ref.get('resource')}")
    amount = _amount(container, kind, resource, allocatable)
    divisor = quantity.parse_quantity(ref.get("divisor") or "0")
    if divisor.is_zero:
        divisor = quantity.from_int(1)
    if resource == "cpu":
        return str(math.ceil(amount.milli_value() / divisor.milli_value()))
    return str(math.ceil(amount.value() / divisor.value()))


def _find(pod: Object, name: str) -> Object:
    spec = pod["spec"]
    for group in ("containers", "initContainers"):
        for container in spec.get(group) or ():
            if container["name"] == name:
                return dict(container)
    raise UnsupportedFieldPath(f"container {name} not found")


def _amount(
    container: Object, kind: str, resource: str, allocatable: Mapping[str, str]
) -> quantity.Quantity:
    text = ((container.get("resources") or {}).get(kind) or {}).get(resource)
    amount = quantity.parse_quantity(text) if text is not None else _ZERO
    if kind == "limits" and resource in _DEFAULTED and amount.is_zero and resource in allocatable:
        return quantity.parse_quantity(allocatable[resource])
    return amount
