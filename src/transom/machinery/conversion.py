"""Conversion between the served versions of a kind: every version converts to the storage version
and back.

Most versions have the same shape and only the `apiVersion` changes; the others have a pair of
functions in the table below. A function gets an object of its own at the top level, but must not
change anything inside it in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.machinery import hpa, normalise, schema
from transom.machinery.flowcontrol import PRESERVE_ZERO_SHARES
from transom.machinery.kinds import GVK, Kind

Object = dict[str, Any]
_Change = Callable[[Object], None]


def convert(kind: Kind, obj: Object, version: str) -> Object:
    """The object in another served version of its group."""
    group, _, found = obj["apiVersion"].rpartition("/")
    return from_storage(
        kind,
        to_storage(kind, obj, GVK(group, found, kind.kind)),
        GVK(kind.group, version, kind.kind),
    )


def to_storage(kind: Kind, obj: Object, gvk: GVK) -> Object:
    """An object of the given version in the storage version; the same object if that is its
    version.
    """
    return _move(kind, obj, gvk, kind.gvk(), 0)


def from_storage(kind: Kind, obj: Object, gvk: GVK) -> Object:
    """A stored object in the given version; the same object if that is the storage version."""
    return _move(kind, obj, kind.gvk(), gvk, 1)


def apply_storage_changes(kind: Kind, obj: Object, gvk: GVK) -> None:
    """Applies, in place, what storing changes in an object of the storage version, for a request in
    version `gvk`.

    Kubernetes 1.20 stores some kinds in a version with fewer fields, which affects all versions.
    """
    kept = _KEPT_AS.get((kind.key, gvk.version))
    if kept is not None:
        version = GVK(kind.group, kept, kind.kind)
        settled = to_storage(kind, from_storage(kind, obj, version), version)
        obj.clear()
        obj.update(settled)


def _move(kind: Kind, obj: Object, source: GVK, target: GVK, direction: int) -> Object:
    if source == target or kind.custom:
        return obj
    out = {**obj, "apiVersion": target.api_version}
    version = target if direction else source
    changes = _CHANGES.get((kind.key, version.api_version))
    if changes is None:
        return out
    changes[direction](out)
    of = schema.lookup_schema_type(target)
    # Of a version newer than 1.20, the change keeps the order of fields.
    return out if of is None else normalise.normaliser(of)(out)


def _renamer(pairs: dict[str, str]) -> tuple[_Change, _Change]:
    """Renamed fields: other version's name -> storage version's name."""

    def rename(out: Object, names: dict[str, str]) -> None:
        for old, new in names.items():
            if old in out:
                out[new] = out.pop(old)

    back = {new: old for old, new in pairs.items()}
    return lambda out: rename(out, pairs), lambda out: rename(out, back)


def _in_spec(changes: tuple[_Change, _Change]) -> tuple[_Change, _Change]:
    def inside(change: _Change) -> _Change:
        def apply(out: Object) -> None:
            spec = dict(out.get("spec") or {})
            change(spec)
            out["spec"] = spec

        return apply

    return inside(changes[0]), inside(changes[1])


# --- events.k8s.io ----------

_EVENT = _renamer(
    {
        "regarding": "involvedObject",
        "note": "message",
        "reportingController": "reportingComponent",
        "deprecatedSource": "source",
        "deprecatedFirstTimestamp": "firstTimestamp",
        "deprecatedLastTimestamp": "lastTimestamp",
        "deprecatedCount": "count",
    }
)


# --- networking.k8s.io/v1beta1 and extensions/v1beta1 Ingress ----------


def _ingress(name_from: str, name_to: str, backend: Callable[[Object], Object]) -> _Change:
    def change(out: Object) -> None:
        spec = dict(out.get("spec") or {})
        default = spec.pop(name_from, None)
        if default is not None:
            spec[name_to] = backend(default)
        if spec.get("rules"):
            spec["rules"] = [_ingress_rule(rule, backend) for rule in spec["rules"]]
        out["spec"] = spec

    return change


def _ingress_rule(rule: Object, backend: Callable[[Object], Object]) -> Object:
    http = rule.get("http")
    if not http:
        return rule
    paths = [
        {**path, "backend": backend(path.get("backend") or {})} for path in http.get("paths") or ()
    ]
    return {**rule, "http": {**http, "paths": paths}}


def _backend_to_v1(backend: Object) -> Object:
    out = {k: v for k, v in backend.items() if k not in ("serviceName", "servicePort")}
    name, port = backend.get("serviceName", ""), backend.get("servicePort", 0)
    if name or port != 0:
        out["service"] = {
            "name": name,
            "port": {"name": port} if isinstance(port, str) else {"number": port},
        }
    return out


def _backend_from_v1(backend: Object) -> Object:
    out = {k: v for k, v in backend.items() if k != "service"}
    service = backend.get("service")
    if service is not None:
        port = service.get("port") or {}
        out["serviceName"] = service.get("name", "")
        out["servicePort"] = port.get("name") or port.get("number", 0)
    return out


# --- discovery.k8s.io/v1beta1 EndpointSlice ----------

_ZONE = "topology.kubernetes.io/zone"
_HOSTNAME = "kubernetes.io/hostname"


def _slice_to_v1(out: Object) -> None:
    out["endpoints"] = [_endpoint_to_v1(endpoint) for endpoint in out.get("endpoints") or ()]


def _endpoint_to_v1(endpoint: Object) -> Object:
    out = {k: v for k, v in endpoint.items() if k != "topology"}
    topology = dict(endpoint.get("topology") or {})
    if _ZONE in topology:
        out["zone"] = topology.pop(_ZONE)
    # Omits a host name that only repeats the node's name.
    if _HOSTNAME in topology and topology[_HOSTNAME] == endpoint.get("nodeName"):
        del topology[_HOSTNAME]
    if topology:
        out["deprecatedTopology"] = topology
    return out


def _slice_from_v1(out: Object) -> None:
    out["endpoints"] = [_endpoint_from_v1(endpoint) for endpoint in out.get("endpoints") or ()]


def _endpoint_from_v1(endpoint: Object) -> Object:
    out = {k: v for k, v in endpoint.items() if k not in ("zone", "deprecatedTopology")}
    topology = dict(endpoint.get("deprecatedTopology") or {})
    if "zone" in endpoint:
        topology[_ZONE] = endpoint["zone"]
    if "nodeName" in endpoint and not topology.get(_HOSTNAME):
        topology[_HOSTNAME] = endpoint["nodeName"]
    if topology:
        out["topology"] = topology
    return out


# ---- policy/v1beta1 PodDisruptionBudget: there an empty selector matches no pod, in v1 every pod ----

_NEVER = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
_MATCH_NONE = {"matchExpressions": [{"key": _NEVER, "operator": "Exists"}]}
_MATCH_ALL = {"matchExpressions": [{"key": _NEVER, "operator": "DoesNotExist"}]}


def _budget_to_v1(spec: Object) -> None:
    selector = spec.get("selector")
    if selector is None:
        return
    if selector == {}:
        spec["selector"] = _MATCH_NONE
    elif selector == _MATCH_ALL:
        spec["selector"] = {}
    elif selector.get("matchExpressions"):
        kept = [e for e in selector["matchExpressions"] if e.get("key") != _NEVER]
        spec["selector"] = {**selector, "matchExpressions": kept}


def _budget_from_v1(spec: Object) -> None:
    selector = spec.get("selector")
    if selector == _MATCH_NONE:
        spec["selector"] = {}
    elif selector == {}:
        spec["selector"] = _MATCH_ALL


# --- flowcontrol.apiserver.k8s.io/v1beta1 and v1beta2 ----------


def _limited_to_v1(spec: Object) -> None:
    if spec.get("limited") is not None:
        limited = dict(spec["limited"])
        shares = limited.pop("assuredConcurrencyShares", 0)
        spec["limited"] = {"nominalConcurrencyShares": shares, **limited}


def _limited_from_v1(spec: Object) -> None:
    if spec.get("limited") is not None:
        limited = dict(spec["limited"])
        shares = limited.pop("nominalConcurrencyShares", 0)
        spec["limited"] = {"assuredConcurrencyShares": shares, **limited}


def _zero_shares_to_v1(out: Object) -> None:
    if PRESERVE_ZERO_SHARES in ((out.get("metadata") or {}).get("annotations") or {}):
        _annotate(out, PRESERVE_ZERO_SHARES, None)


def _zero_shares_from_v1(out: Object) -> None:
    """v1beta3 does not distinguish zero shares from unset ones, unless they are annotated."""
    limited = (out.get("spec") or {}).get("limited")
    if limited is not None and limited.get("nominalConcurrencyShares") == 0:
        _annotate(out, PRESERVE_ZERO_SHARES, "")


# ---- apiextensions.k8s.io/v1beta1: what all versions have in common stands once, above them ----

_SHARED = (
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
)
# v1beta1 is not served by releases that have this field, but kube-apiserver still stores it.
_SHARED_IN_ETCD = (*_SHARED, ("selectableFields", "selectableFields"))


def _columns(columns: Any, path_from: str, path_to: str) -> Any:
    return [
        {**{k: v for k, v in c.items() if k != path_from}, path_to: c.get(path_from, "")}
        for c in columns
    ]


def _definition_to_v1(spec: Object) -> None:
    versions = [dict(v) for v in spec.get("versions") or ()]
    if not versions and spec.get("version"):
        versions = [{"name": spec["version"], "served": True, "storage": True}]
    spec.pop("version", None)
    for above, below in _SHARED_IN_ETCD:
        shared = spec.pop(above, None)
        for version in versions if shared is not None else ():
            version[below] = shared
    for version in versions:
        if version.get("additionalPrinterColumns"):
            version["additionalPrinterColumns"] = _columns(
                version["additionalPrinterColumns"], "JSONPath", "jsonPath"
            )
    spec["versions"] = versions
    conversion = dict(spec.get("conversion") or {})
    webhook = {
        "clientConfig": conversion.pop("webhookClientConfig", None),
        "conversionReviewVersions": conversion.pop("conversionReviewVersions", None),
    }
    if any(v is not None for v in webhook.values()):
        conversion["webhook"] = {k: v for k, v in webhook.items() if v is not None}
    if conversion:
        spec["conversion"] = conversion


def _definition_from_v1(spec: Object) -> None:
    versions = [dict(v) for v in spec.get("versions") or ()]
    for version in versions:
        if version.get("additionalPrinterColumns"):
            version["additionalPrinterColumns"] = _columns(
                version["additionalPrinterColumns"], "jsonPath", "JSONPath"
            )
    if versions:
        spec["version"] = versions[0].get("name", "")
    for above, below in _SHARED:
        first = versions[0].get(below) if versions else None
        if first and all(v.get(below) == first for v in versions):
            spec[above] = first
            for version in versions:
                del version[below]
    spec["versions"] = versions
    conversion = dict(spec.get("conversion") or {})
    webhook = conversion.pop("webhook", None) or {}
    if webhook.get("clientConfig") is not None:
        conversion["webhookClientConfig"] = webhook["clientConfig"]
    if webhook.get("conversionReviewVersions") is not None:
        conversion["conversionReviewVersions"] = webhook["conversionReviewVersions"]
    if conversion:
        spec["conversion"] = conversion
    spec.setdefault("preserveUnknownFields", False)


# --- apps/v1beta1 and extensions/v1beta1: fields that became annotations ----------

_ROLLBACK_TO = "deprecated.deployment.rollback.to"
_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _annotate(out: Object, key: str, value: str | None) -> None:
    """The object with another annotation, or without one (None)."""
    metadata = dict(out.get("metadata") or {})
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != key}
    if value is not None:
        annotations[key] = value
    metadata["annotations"] = annotations
    if not annotations:
        del metadata["annotations"]
    out["metadata"] = metadata


def _annotated(out: Object, key: str) -> int | None:
    text = ((out.get("metadata") or {}).get("annotations") or {}).get(key, "")
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() else None


def _deployment_to_v1(out: Object) -> None:
    spec = dict(out.get("spec") or {})
    wanted = spec.pop("rollbackTo", None)
    out["spec"] = spec
    _annotate(out, _ROLLBACK_TO, None if wanted is None else str(wanted.get("revision", 0)))


def _deployment_from_v1(out: Object) -> None:
    revision = _annotated(out, _ROLLBACK_TO)
    if revision is not None:
        out["spec"] = {**(out.get("spec") or {}), "rollbackTo": {"revision": revision}}
        _annotate(out, _ROLLBACK_TO, None)


def _daemon_set_to_v1(out: Object) -> None:
    spec = dict(out.get("spec") or {})
    generation = spec.pop("templateGeneration", 0)
    out["spec"] = spec
    _annotate(out, _TEMPLATE_GENERATION, str(generation) if generation else None)


def _daemon_set_from_v1(out: Object) -> None:
    generation = _annotated(out, _TEMPLATE_GENERATION)
    if generation is not None:
        out["spec"] = {**(out.get("spec") or {}), "templateGeneration": generation}
        _annotate(out, _TEMPLATE_GENERATION, None)


_DEPLOYMENT = (_deployment_to_v1, _deployment_from_v1)
_INGRESS = (
    _ingress("backend", "defaultBackend", _backend_to_v1),
    _ingress("defaultBackend", "backend", _backend_from_v1),
)
_SUBJECT = _in_spec(_renamer({"group": "groups"}))

# (kind, version) -> (to the storage version, from it)
_CHANGES: dict[tuple[str, str], tuple[_Change, _Change]] = {
    ("/Event", "events.k8s.io/v1"): _EVENT,
    ("/Event", "events.k8s.io/v1beta1"): _EVENT,
    ("apiextensions.k8s.io/CustomResourceDefinition", "apiextensions.k8s.io/v1beta1"): _in_spec(
        (_definition_to_v1, _definition_from_v1)
    ),
    ("apps/DaemonSet", "extensions/v1beta1"): (_daemon_set_to_v1, _daemon_set_from_v1),
    ("apps/Deployment", "apps/v1beta1"): _DEPLOYMENT,
    ("apps/Deployment", "extensions/v1beta1"): _DEPLOYMENT,
    ("authorization.k8s.io/LocalSubjectAccessReview", "authorization.k8s.io/v1beta1"): _SUBJECT,
    ("authorization.k8s.io/SubjectAccessReview", "authorization.k8s.io/v1beta1"): _SUBJECT,
    ("autoscaling/HorizontalPodAutoscaler", "autoscaling/v1"): (
        hpa.autoscaler_from_v1,
        hpa.autoscaler_to_v1,
    ),
    ("autoscaling/HorizontalPodAutoscaler", "autoscaling/v2beta1"): (
        hpa.autoscaler_from_v2beta1,
        hpa.autoscaler_to_v2beta1,
    ),
    ("autoscaling/HorizontalPodAutoscaler", "autoscaling/v2beta2"): (
        hpa.drop_annotations,
        hpa.drop_annotations,
    ),
    ("discovery.k8s.io/EndpointSlice", "discovery.k8s.io/v1beta1"): (_slice_to_v1, _slice_from_v1),
    (
        "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration",
        "flowcontrol.apiserver.k8s.io/v1beta1",
    ): _in_spec((_limited_to_v1, _limited_from_v1)),
    (
        "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration",
        "flowcontrol.apiserver.k8s.io/v1beta2",
    ): _in_spec((_limited_to_v1, _limited_from_v1)),
    (
        "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration",
        "flowcontrol.apiserver.k8s.io/v1beta3",
    ): (_zero_shares_to_v1, _zero_shares_from_v1),
    ("networking.k8s.io/Ingress", "extensions/v1beta1"): _INGRESS,
    ("networking.k8s.io/Ingress", "networking.k8s.io/v1beta1"): _INGRESS,
    ("policy/PodDisruptionBudget", "policy/v1beta1"): _in_spec((_budget_to_v1, _budget_from_v1)),
}

# (kind, version of the request) -> the version that 1.20 stores. Newer versions are stored
# unchanged.
_KEPT_AS = {
    ("autoscaling/HorizontalPodAutoscaler", version): "v1"
    for version in ("v1", "v2beta1", "v2beta2")
}
