"""Warnings about objects that are valid but probably mistaken, or that use deprecated fields.

Kubernetes returns them since release 1.22 for new and changed objects. Pure functions; each warning
is the text of a Warning header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from transom.kit.goquote import go_quote
from transom.machinery.quantity import parse_quantity
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import is_enabled

Object = Mapping[str, Any]
Warnings = Iterator[str]

# Deprecated label -> since when, and what to use instead.
_LABELS: Final = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
}
_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
_VOLUMES: Final = {
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
}


def object_warnings(release: Release, kind: str, obj: Object) -> list[str]:
    """`kind` is Kind.key."""
    if not has_behaviour(release, "ObjectWarnings"):
        return []
    find = _KINDS.get(kind)
    return [] if find is None else list(find(release, obj))


def _label(path: str, key: str, *, quoted: bool = False) -> Warnings:
    if key in _LABELS:
        since, new = _LABELS[key]
        name = f"{key} is " if quoted else ""
        yield f'{path}: {name}deprecated since {since}; use "{new}" instead'


def _fraction(path: str, text: Any) -> Warnings:
    value = parse_quantity(str(text))
    if value.exponent < 0 and value.mantissa % 10**-value.exponent:
        yield f'{path}: fractional byte value "{text}" is invalid, must be an integer'


# ---- pods ----


def _pod(release: Release, obj: Object) -> Warnings:
    yield from _pod_spec(release, obj.get("spec") or {}, "spec")


def _template(*path: str) -> Callable[[Release, Object], Warnings]:
    def find(release: Release, obj: Object) -> Warnings:
        holder: Any = obj
        for name in path:
            holder = (holder or {}).get(name)
        spec = (holder or {}).get("spec") or {}
        yield from _pod_spec(release, spec, ".".join((*path, "spec")))

    return find


def _pod_spec(release: Release, spec: Object, path: str) -> Warnings:
    for key in sorted(spec.get("nodeSelector") or ()):
        yield from _label(f"{path}.nodeSelector[{key}]", key)
    yield from _affinity(spec, path)
    aliases: set[str] = set()
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        address = alias.get("ip", "")
        if address in aliases:
            yield f'{path}.hostAliases[{i}].ip: duplicate ip "{address}"'
        aliases.add(address)
    names: set[str] = set()
    for i, secret in enumerate(spec.get("imagePullSecrets") or ()):
        name = secret.get("name", "")
        if not name:
            yield f'{path}.imagePullSecrets[{i}].name: invalid empty name ""'
        elif name in names:
            yield f'{path}.imagePullSecrets[{i}].name: duplicate name "{name}"'
        names.add(name)
    for i, volume in enumerate(spec.get("volumes") or ()):
        for kind, text in _VOLUMES.items():
            if volume.get(kind) is not None and has_behaviour(release, "VolumeWarnings"):
                yield f"{path}.volumes[{i}].{kind}: {text}"
    for field in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(field) or ()):
            yield from _container(container, f"{path}.{field}[{i}]")


def _affinity(spec: Object, path: str) -> Warnings:
    node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    where = f"{path}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    for i, term in enumerate(required.get("nodeSelectorTerms") or ()):
        for j, rule in enumerate(term.get("matchExpressions") or ()):
            place = f"{where}.nodeSelectorTerms[{i}].matchExpressions[{j}].key"
            yield from _label(place, rule.get("key", ""), quoted=True)


def _hides(entry: Object) -> bool:
    """Whether an environment variable replaces an earlier one, rather than extending its value."""
    reference = f"$({entry.get('name', '')})"
    value = entry.get("value", "")
    return entry.get("valueFrom") is not None or value == reference or reference not in value


def _container(container: Object, path: str) -> Warnings:
    for kind in ("limits", "requests"):
        resources = (container.get("resources") or {}).get(kind) or {}
        for name in ("memory", "ephemeral-storage"):
            if name in resources:
                yield from _fraction(f"{path}.resources.{kind}[{name}]", resources[name])
    seen: set[str] = set()
    for i, entry in enumerate(container.get("env") or ()):
        name = entry.get("name", "")
        if name in seen and _hides(entry):
            yield (
                f"{path}.env[{i}]: hides previous definition of {go_quote(name)}, which may be "
                "dropped when using apply"
            )
        seen.add(name)
    yield from _ports(container.get("ports") or (), path)


def _ports(ports: Any, path: str) -> Warnings:
    for i, port in enumerate(ports):
        if port.get("hostIP") and not port.get("hostPort"):
            yield (
                f"{path}.ports[{i}]: hostIP set without hostPort: {{Name:{port.get('name', '')} "
                f"HostPort:0 ContainerPort:{port.get('containerPort', 0)} "
                f"Protocol:{port.get('protocol', '')} HostIP:{port['hostIP']}}}"
            )
        for j, other in enumerate(ports[:i]):
            if any(port.get(f) != other.get(f) for f in ("containerPort", "protocol")):
                continue
            mine, theirs = port.get("hostPort", 0), other.get("hostPort", 0)
            if mine == theirs and port.get("hostIP") == other.get("hostIP"):
                yield f"{path}.ports[{i}]: duplicate port definition with {path}.ports[{j}]"
                break
            if not (mine and theirs):
                yield f"{path}.ports[{i}]: overlapping port definition with {path}.ports[{j}]"
                break


# ---- other kinds ----


def _service(release: Release, obj: Object) -> Warnings:
    spec = obj.get("spec") or {}
    annotations = obj["metadata"].get("annotations") or {}
    if "service.kubernetes.io/topology-aware-hints" in annotations:
        yield (
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use "
            "service.kubernetes.io/topology-mode instead"
        )
    if spec.get("externalIPs") and has_behaviour(release, "ExternalIPsDeprecated"):
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.get("type") != "ExternalName" and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("clusterIP") == "None":
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if spec.get("sessionAffinity") not in (None, "None"):
            yield "spec.SessionAffinity is ignored for headless services"
    if spec.get("trafficDistribution") == "PreferClose" and has_behaviour(
        release, "PreferCloseDeprecated"
    ):
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _ingress(_release: Release, obj: Object) -> Warnings:
    if "kubernetes.io/ingress.class" in (obj["metadata"].get("annotations") or {}):
        yield (
            'annotation "kubernetes.io/ingress.class" is deprecated, please use '
            "'spec.ingressClassName' instead"
        )


def _class_annotation(obj: Object) -> Warnings:
    if _CLASS_ANNOTATION in (obj["metadata"].get("annotations") or {}):
        yield (
            f"metadata.annotations[{_CLASS_ANNOTATION}]: deprecated since v1.8; use "
            '"storageClassName" attribute instead'
        )


def _volume(release: Release, obj: Object) -> Warnings:
    yield from _class_annotation(obj)
    spec = obj.get("spec") or {}
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield (
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
            "Instead, the recommended approach is to use dynamic provisioning."
        )
    for kind, text in _VOLUMES.items():
        if spec.get(kind) is not None and has_behaviour(release, "VolumeWarnings"):
            yield f"spec.{kind}: {text}"


def _claim(_release: Release, obj: Object) -> Warnings:
    yield from _class_annotation(obj)
    requests = ((obj.get("spec") or {}).get("resources") or {}).get("requests") or {}
    if "storage" in requests:
        yield from _fraction("spec.resources.requests[storage]", requests["storage"])


def _runtime_class(_release: Release, obj: Object) -> Warnings:
    for key in sorted((obj.get("scheduling") or {}).get("nodeSelector") or ()):
        yield from _label("scheduling.nodeSelector", key)


def _storage_class(_release: Release, obj: Object) -> Warnings:
    for i, term in enumerate(obj.get("allowedTopologies") or ()):
        for j, rule in enumerate(term.get("matchLabelExpressions") or ()):
            path = f"allowedTopologies[{i}].matchLabelExpressions[{j}].key"
            yield from _label(path, rule.get("key", ""))


def _csi_driver(release: Release, obj: Object) -> Warnings:
    spec = obj.get("spec") or {}
    if (
        spec.get("tokenRequests")
        and spec.get("serviceAccountTokenInSecrets") is None
        and is_enabled(release, "CSIServiceAccountTokenSecrets")
    ):
        yield (
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to "
            "true to prevent possible logging of tokens in volume attributes"
        )


def _endpoint_slice(release: Release, obj: Object) -> Warnings:
    if obj.get("addressType") == "FQDN" and has_behaviour(release, "EndpointSliceWarnings"):
        yield "spec.addressType: FQDN endpoints are deprecated"


def _stateful_set(release: Release, obj: Object) -> Warnings:
    yield from _WORKLOAD(release, obj)
    limit = (obj.get("spec") or {}).get("revisionHistoryLimit")
    if limit is not None and limit < 0 and has_behaviour(release, "StatefulSetServiceName"):
        yield (
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value "
            ">= 0 is recommended"
        )


def _resource_slice(_release: Release, obj: Object) -> Warnings:
    driver = (obj.get("spec") or {}).get("driver", "")
    if driver != driver.lower():
        yield (
            f"spec.driver: driver names should be lowercase; {go_quote(driver)} contains uppercase "
            "characters"
        )


_WORKLOAD: Final = _template("spec", "template")
_KINDS: Final[Mapping[str, Callable[[Release, Object], Warnings]]] = {
    "/PersistentVolume": _volume,
    "/PersistentVolumeClaim": _claim,
    "/Pod": _pod,
    "/PodTemplate": _template("template"),
    "/ReplicationController": _WORKLOAD,
    "/Service": _service,
    "apps/DaemonSet": _WORKLOAD,
    "apps/Deployment": _WORKLOAD,
    "apps/ReplicaSet": _WORKLOAD,
    "apps/StatefulSet": _stateful_set,
    "batch/CronJob": _template("spec", "jobTemplate", "spec", "template"),
    "batch/Job": _WORKLOAD,
    "discovery.k8s.io/EndpointSlice": _endpoint_slice,
    "networking.k8s.io/Ingress": _ingress,
    "node.k8s.io/RuntimeClass": _runtime_class,
    "resource.k8s.io/ResourceSlice": _resource_slice,
    "storage.k8s.io/CSIDriver": _csi_driver,
    "storage.k8s.io/StorageClass": _storage_class,
}
