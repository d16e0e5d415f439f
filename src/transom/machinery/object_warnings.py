"""Warnings about objects that are valid but probably mistaken, or that use deprecated fields.

Kubernetes returns them since release 1.22 for new and changed objects. Pure functions; each warning
is the text of a Warning header.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.machinery.pod_warnings import (
    VOLUME_PATHS,
    claim_spec_warnings,
    pod_warnings,
    selector_term_warnings,
    template_warnings,
)
from transom.machinery.quantity import parse_quantity
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import is_enabled
from transom.machinery.releases.warning_texts import warning_text
from transom.machinery.validation.addresses import (
    cidr_warnings,
    earlier_cidr_warnings,
    earlier_ip_warnings,
    ip_warnings,
)
from transom.machinery.validation.formats import is_known_format
from transom.machinery.validation.meta import STANDARD_FINALIZERS
from transom.machinery.validation.names import is_dns1123_label, is_qualified_name

if TYPE_CHECKING:
    from transom.machinery.validation import key_pairs
else:
    key_pairs = lazy_import("transom.machinery.validation.key_pairs")

Object = Mapping[str, Any]
Warnings = Iterator[str]
Find = Callable[[Release, Object, Object | None], Warnings]  # of an object and the stored one

# Headers of a response hold far fewer.
_MOST: Final = 256
_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
_MOUNT_ANNOTATION: Final = "volume.beta.kubernetes.io/mount-options"
_MOUNTABLE_SECRETS: Final = "kubernetes.io/enforce-mountable-secrets"
_MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
_SLICE_CONTROLLERS: Final = (
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
)
_PERSISTENT_VOLUMES: Final = (
    "cephfs",
    "photonPersistentDisk",
    "scaleIO",
    "storageos",
    "glusterfs",
    "rbd",
)
_QUOTA_NAMES: Final = ("cpu", "memory", "storage", "ephemeral-storage")


def object_warnings(
    release: Release, kind: str, obj: Object, old: Object | None = None, subresource: str = ""
) -> list[str]:
    """Warnings about a new object, or about a change. `kind` is Kind.key."""
    table = _KINDS if not subresource else _STATUSES if subresource == "status" else {}
    find = table.get(kind)
    if find is None or not has_behaviour(release, "ObjectWarnings"):
        return []
    return list(islice(find(release, obj, old), _MOST))


def custom_object_warnings(release: Release, obj: Object, old: Object | None) -> list[str]:
    """Finalizers that the object gets and that may conflict with others."""
    if not has_behaviour(release, "FinalizerWarnings"):
        return []
    kept = _finalizers(old) if old is not None else set()
    added = sorted(_finalizers(obj) - kept)
    return [text for name in added[:_MOST] for text in _finalizer_warnings(name)]


def job_deletion_warning(release: Release, options: Object) -> str:
    """The warning if a Job is deleted without a propagation policy."""
    if options.get("propagationPolicy") is not None or options.get("orphanDependents") is not None:
        return ""
    return warning_text(release, "job deletion")


def _finalizers(obj: Object) -> set[str]:
    return set(obj["metadata"].get("finalizers") or ())


def _finalizer_warnings(name: str) -> Warnings:
    start = f"metadata.finalizers: {go_quote(name)}:"
    for problem in is_qualified_name(name):
        yield f"{start} {problem}"
    if "/" not in name and name not in STANDARD_FINALIZERS:
        path = " including a path (/)" if "." in name else ""
        yield (
            f"{start} prefer a domain-qualified finalizer name{path} to avoid accidental conflicts "
            "with other finalizer writers"
        )


def _annotations(obj: Object) -> Object:
    return obj["metadata"].get("annotations") or {}


def _changed(obj: Object, old: Object | None) -> bool:
    """Whether the object is new, or its spec has changed."""
    if old is None:
        return True
    return bool(obj["metadata"].get("generation") != old["metadata"].get("generation"))


# ---- pods and workloads ----


def _member_names(release: Release, obj: Object, used_in: str) -> Warnings:
    """Names of pods, and of what pods are named after."""
    text = warning_text(release, "pod name")
    problems = is_dns1123_label(obj["metadata"].get("name", "")) if text else ()
    if problems:
        yield f"metadata.name: this is used in {used_in}, {text}: [{' '.join(problems)}]"


def _pod(release: Release, obj: Object, old: Object | None) -> Warnings:
    if old is not None:
        return iter(())
    return chain(_member_names(release, obj, "the Pod's hostname"), pod_warnings(release, obj))


def _template_at(obj: Object, path: tuple[str, ...]) -> Object:
    found: Any = obj
    for name in path:
        found = (found or {}).get(name)
    return found or {}


def _template(*path: str, names_pods: bool = False) -> Find:
    def find(release: Release, obj: Object, old: Object | None) -> Warnings:
        if old is None and names_pods:
            yield from _member_names(release, obj, "Pod names and hostnames")
        if _changed(obj, old):
            yield from template_warnings(release, _template_at(obj, path), ".".join(path))

    return find


_TEMPLATE: Final = ("spec", "template")


def _replication_controller(release: Release, obj: Object, old: Object | None) -> Warnings:
    """Changes report the template that was stored."""
    if old is None:
        yield from _member_names(release, obj, "Pod names and hostnames")
    if _changed(obj, old):
        shown = obj if old is None else old
        yield from template_warnings(release, _template_at(shown, _TEMPLATE), "spec.template")


def _daemon_set(release: Release, obj: Object, old: Object | None) -> Warnings:
    template = _template_at(obj, _TEMPLATE)
    if old is None or template != _template_at(old, _TEMPLATE):
        yield from template_warnings(release, template, "spec.template")


def _stateful_set(release: Release, obj: Object, old: Object | None) -> Warnings:
    spec = obj.get("spec") or {}
    if _changed(obj, old):
        yield from template_warnings(release, spec.get("template") or {}, "spec.template")
    inside = "" if old is None else ".Spec"
    for i, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        path = f"spec.volumeClaimTemplates[{i}]{inside}"
        yield from claim_spec_warnings(release, claim.get("spec") or {}, path)
    limit = spec.get("revisionHistoryLimit")
    if limit is not None and limit < 0 and has_behaviour(release, "StatefulSetServiceName"):
        yield (
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value "
            ">= 0 is recommended"
        )


def _job_spec(release: Release, spec: Object, path: str) -> Warnings:
    text = warning_text(release, "large indexed job")
    if (
        text
        and spec.get("completionMode") == "Indexed"
        and (spec.get("completions") or 0) > 100_000
        and (spec.get("parallelism") or 0) > 10_000
    ):
        yield f"{path}: {text}"
    yield from template_warnings(release, spec.get("template") or {}, f"{path}.template")


def _job(release: Release, obj: Object, old: Object | None) -> Warnings:
    if old is None:
        yield from _member_names(release, obj, "Pod names and hostnames")
    if _changed(obj, old):
        yield from _job_spec(release, obj.get("spec") or {}, "spec")


def _cron_job(release: Release, obj: Object, old: Object | None) -> Warnings:
    spec = obj.get("spec") or {}
    if old is None:
        yield from _member_names(release, obj, "Pod names and hostnames")
    if _changed(obj, old):
        inner = (spec.get("jobTemplate") or {}).get("spec") or {}
        yield from _job_spec(release, inner, "spec.jobTemplate.spec")
    text = warning_text(release, "cron job zone")
    if old is not None and text and "TZ" in spec.get("schedule", ""):
        yield text


# ---- services and addresses ----


def _addresses(release: Release, addresses: list[tuple[str, str]]) -> Warnings:
    """Warnings about values and their paths."""
    if has_behaviour(release, "AddressWarnings"):
        for path, value in addresses:
            yield from ip_warnings(value, path)


def _service_addresses(release: Release, spec: Object) -> tuple[list[str], list[str]]:
    """Warnings about cluster addresses, and about those for external clients."""
    if not has_behaviour(release, "ServiceWarnings"):
        return [], []
    newer = has_behaviour(release, "AddressWarnings")
    of_ip, of_cidr = (
        (ip_warnings, cidr_warnings) if newer else (earlier_ip_warnings, earlier_cidr_warnings)
    )
    internal: list[str] = []
    if spec.get("clusterIP") not in (None, "", "None"):
        for i, address in enumerate(spec.get("clusterIPs") or ()):
            internal += of_ip(address, f"spec.clusterIPs[{i}]")
    external: list[str] = []
    if address := spec.get("loadBalancerIP"):
        external += of_ip(address, "spec.loadBalancerIP")
    for i, cidr in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        external += of_cidr(cidr, f"spec.loadBalancerSourceRanges[{i}]")
    return internal, external


def _service(release: Release, obj: Object, _old: Object | None) -> Warnings:
    spec = obj.get("spec") or {}
    kind = spec.get("type")
    if not has_behaviour(release, "ServiceWarnings"):
        return
    if "service.kubernetes.io/topology-aware-hints" in _annotations(obj):
        yield (
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use "
            "service.kubernetes.io/topology-mode instead"
        )
    internal, external = _service_addresses(release, spec)
    yield from internal
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if headless and has_behaviour(release, "HeadlessServiceWarnings"):
        yield from _headless(spec)
    yield from _external_ips(release, spec, headless)
    yield from external
    if has_behaviour(release, "ExternalNameWarnings"):
        if kind == "ExternalName" and spec.get("externalIPs"):
            yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
        if kind != "ExternalName" and spec.get("externalName"):
            yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    deprecated = has_behaviour(release, "PreferCloseDeprecated")
    if deprecated and spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _headless(spec: Object) -> Warnings:
    if spec.get("loadBalancerIP"):
        yield "spec.loadBalancerIP is ignored for headless services"
    if spec.get("externalIPs"):
        yield "spec.externalIPs is ignored for headless services"
    if spec.get("sessionAffinity") != "None":
        yield "spec.SessionAffinity is ignored for headless services"


def _external_ips(release: Release, spec: Object, headless: bool) -> Warnings:
    addresses = spec.get("externalIPs") or ()
    newer = has_behaviour(release, "AddressWarnings")
    for i, address in enumerate(addresses):
        path = f"spec.externalIPs[{i}]"
        yield from (ip_warnings if newer else earlier_ip_warnings)(address, path)
    deprecated = has_behaviour(release, "ExternalIPsDeprecated")
    if addresses and deprecated and not headless and spec.get("type") != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"


def _load_balancer_status(release: Release, obj: Object, _old: Object | None) -> Warnings:
    entries = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    yield from _addresses(
        release,
        [
            (f"status.loadBalancer.ingress[{i}]", entry["ip"])
            for i, entry in enumerate(entries)
            if entry.get("ip")
        ],
    )


def _pod_status(release: Release, obj: Object, _old: Object | None) -> Warnings:
    status = obj.get("status") or {}
    for field in ("podIPs", "hostIPs"):
        yield from _addresses(
            release,
            [
                (f"status.{field}[{i}].ip", entry.get("ip", ""))
                for i, entry in enumerate(status.get(field) or ())
            ],
        )


def _endpoints(release: Release, obj: Object, _old: Object | None) -> Warnings:
    labels = obj["metadata"].get("labels") or {}
    if labels.get("endpoints.kubernetes.io/managed-by") == "endpoint-controller":
        return
    for i, subset in enumerate(obj.get("subsets") or ()):
        for field in ("addresses", "notReadyAddresses"):
            yield from _addresses(
                release,
                [
                    (f"subsets[{i}].{field}[{j}].ip", address.get("ip", ""))
                    for j, address in enumerate(subset.get(field) or ())
                ],
            )


def _endpoint_slice(release: Release, obj: Object, old: Object | None) -> Warnings:
    kind = obj.get("addressType")
    if kind == "FQDN" and old is None and has_behaviour(release, "EndpointSliceWarnings"):
        yield "spec.addressType: FQDN endpoints are deprecated"
    labels = obj["metadata"].get("labels") or {}
    if labels.get(_MANAGED_BY) in _SLICE_CONTROLLERS:
        return
    for i, endpoint in enumerate(obj.get("endpoints") or ()):
        yield from _addresses(
            release,
            [
                (f"endpoints[{i}].addresses[{j}]", address)
                for j, address in enumerate(endpoint.get("addresses") or ())
            ],
        )


def _network_policy(release: Release, obj: Object, _old: Object | None) -> Warnings:
    if not has_behaviour(release, "AddressWarnings"):
        return
    spec = obj.get("spec") or {}
    for field, peers in (("ingress", "from"), ("egress", "to")):
        for i, rule in enumerate(spec.get(field) or ()):
            for j, peer in enumerate(rule.get(peers) or ()):
                block = peer.get("ipBlock")
                if block is not None:
                    path = f"spec.{field}[{i}].{peers}[{j}].ipBlock"
                    yield from cidr_warnings(block.get("cidr", ""), f"{path}.cidr")
                    for k, cidr in enumerate(block.get("except") or ()):
                        yield from cidr_warnings(cidr, f"{path}.except[{k}]")


def _ingress(release: Release, obj: Object, old: Object | None) -> Warnings:
    if (
        old is None
        and has_behaviour(release, "ServiceWarnings")
        and "kubernetes.io/ingress.class" in _annotations(obj)
        and (obj.get("spec") or {}).get("ingressClassName") is None
    ):
        yield (
            'annotation "kubernetes.io/ingress.class" is deprecated, please use '
            "'spec.ingressClassName' instead"
        )


def _node(release: Release, obj: Object, _old: Object | None) -> Warnings:
    spec = obj.get("spec") or {}
    for field in ("configSource", "externalID"):
        if spec.get(field) and (text := warning_text(release, f"node {field}")):
            yield f"spec.{field}: {text}"
    if has_behaviour(release, "AddressWarnings"):
        for i, cidr in enumerate(spec.get("podCIDRs") or ()):
            yield from cidr_warnings(cidr, f"spec.podCIDRs[{i}]")


# ---- configuration ----


def _secret(release: Release, obj: Object, _old: Object | None) -> Warnings:
    if obj.get("type") == "kubernetes.io/tls" and has_behaviour(release, "ServiceWarnings"):
        data = obj.get("data") or {}
        certificate, key = (
            base64.b64decode(data.get(name) or "") for name in ("tls.crt", "tls.key")
        )
        if problem := key_pairs.key_pair_problem(certificate, key):
            yield problem


def _service_account(release: Release, obj: Object, old: Object | None) -> Warnings:
    if old is not None and _MOUNTABLE_SECRETS in _annotations(old):
        return
    text = warning_text(release, "mountable secrets")
    if text and _MOUNTABLE_SECRETS in _annotations(obj):
        yield f"metadata.annotations[{_MOUNTABLE_SECRETS}]: {text}"


def _resource_quota(release: Release, obj: Object, old: Object | None) -> Warnings:
    if old is not None or not has_behaviour(release, "QuotaWarnings"):
        return
    hard = (obj.get("spec") or {}).get("hard") or {}
    for name in _QUOTA_NAMES:
        request, limit = f"requests.{name}", f"limits.{name}"
        if request not in hard and name in ("cpu", "memory"):
            request = name
        if request in hard and limit in hard:
            requested, allowed = str(hard[request]), str(hard[limit])
            if parse_quantity(requested) > parse_quantity(allowed):
                yield (
                    f"ResourceQuota {request} ({requested}) should be less than {limit} ({allowed})"
                )


# ---- storage ----


def _annotation(release: Release, obj: Object, key: str) -> Warnings:
    if key in _annotations(obj) and (text := warning_text(release, f"annotation {key}")):
        yield f"metadata.annotations[{key}]: {text}"


def _volume(release: Release, obj: Object, _old: Object | None) -> Warnings:
    yield from _annotation(release, obj, _CLASS_ANNOTATION)
    yield from _annotation(release, obj, _MOUNT_ANNOTATION)
    spec = obj.get("spec") or {}
    recycle = warning_text(release, "reclaim policy Recycle")
    if recycle and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield f"spec.persistentVolumeReclaimPolicy: {recycle}"
    if has_behaviour(release, "StorageWarnings"):
        required = (spec.get("nodeAffinity") or {}).get("required") or {}
        for i, term in enumerate(required.get("nodeSelectorTerms") or ()):
            path = f"spec.nodeAffinity.required.nodeSelectorTerms[{i}]"
            yield from selector_term_warnings(release, term, path)
    for kind in _PERSISTENT_VOLUMES:
        text = warning_text(release, f"persistent volume {kind}")
        if spec.get(kind) is not None and text:
            yield f"spec.{VOLUME_PATHS.get(kind, kind)}: {text}"


def _claim(release: Release, obj: Object, _old: Object | None) -> Warnings:
    yield from _annotation(release, obj, _CLASS_ANNOTATION)
    yield from claim_spec_warnings(release, obj.get("spec") or {}, "spec")


def _runtime_class(release: Release, obj: Object, _old: Object | None) -> Warnings:
    if has_behaviour(release, "StorageWarnings"):
        for key in sorted((obj.get("scheduling") or {}).get("nodeSelector") or ()):
            if text := warning_text(release, f"label {key}"):
                yield f"scheduling.nodeSelector: {text}"


def _storage_class(release: Release, obj: Object, _old: Object | None) -> Warnings:
    if not has_behaviour(release, "StorageWarnings"):
        return
    for i, term in enumerate(obj.get("allowedTopologies") or ()):
        for j, rule in enumerate(term.get("matchLabelExpressions") or ()):
            if text := warning_text(release, f"label {rule.get('key', '')}"):
                yield f"allowedTopologies[{i}].matchLabelExpressions[{j}].key: {text}"


def _storage_capacity(release: Release, obj: Object, _old: Object | None) -> Warnings:
    selector = obj.get("nodeTopology") or {}
    if has_behaviour(release, "StorageWarnings"):
        yield from selector_term_warnings(release, selector, "nodeTopology")
        for key in sorted(selector.get("matchLabels") or ()):
            if text := warning_text(release, f"label {key}"):
                yield f"nodeTopology.matchLabels.{key}: {text}"


def _csi_driver(release: Release, obj: Object, old: Object | None) -> Warnings:
    spec = obj.get("spec") or {}
    requests = spec.get("tokenRequests")
    if (
        requests
        and spec.get("serviceAccountTokenInSecrets") is None
        and is_enabled(release, "CSIServiceAccountTokenSecrets")
        and (old is None or (old.get("spec") or {}).get("tokenRequests") != requests)
    ):
        yield (
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to "
            "true to prevent possible logging of tokens in volume attributes"
        )


# ---- extensions ----


def _resource_slice(release: Release, obj: Object, _old: Object | None) -> Warnings:
    driver = (obj.get("spec") or {}).get("driver", "")
    if driver != driver.lower() and has_behaviour(release, "QuotaWarnings"):
        yield (
            f"spec.driver: driver names should be lowercase; {go_quote(driver)} contains uppercase "
            "characters"
        )


def _admission_configuration(release: Release, obj: Object, _old: Object | None) -> Warnings:
    text = warning_text(release, "static suffix")
    if text and obj["metadata"].get("name", "").endswith(".static.k8s.io"):
        yield text


def _unknown_formats(definition: Object) -> dict[str, None]:
    """The formats in the schemas of a definition that the server does not check, in order."""
    found: dict[str, None] = {}
    spec = definition.get("spec") or {}
    waiting = [
        schema
        for holder in (*(spec.get("versions") or ()), {"schema": spec.get("validation")})
        if (schema := (holder.get("schema") or {}).get("openAPIV3Schema")) is not None
    ]
    waiting.reverse()
    while waiting:
        schema = waiting.pop()
        text = schema.get("format")
        if text and not is_known_format(schema.get("type", ""), text, kubernetes_names=True):
            found[text] = None
        waiting += reversed(list(_parts(schema)))
    return found


def _parts(schema: Object) -> Iterator[Object]:
    items = schema.get("items")
    yield from (items if isinstance(items, list) else [items] if items is not None else ())
    for name in ("allOf", "oneOf", "anyOf"):
        yield from schema.get(name) or ()
    if (negated := schema.get("not")) is not None:
        yield negated
    properties = schema.get("properties") or {}
    yield from (properties[name] for name in sorted(properties))
    for name in ("additionalProperties", "additionalItems"):
        if isinstance(schema.get(name), dict):
            yield schema[name]


def _definition(release: Release, obj: Object, old: Object | None) -> Warnings:
    if has_behaviour(release, "FormatWarnings"):
        known = _unknown_formats(old) if old is not None else {}
        for text in _unknown_formats(obj):
            if text not in known:
                yield f"unrecognized format {go_quote(text)}"


_NAMING_TEMPLATE: Final = _template(*_TEMPLATE, names_pods=True)
_KINDS: Final[Mapping[str, Find]] = {
    "/Endpoints": _endpoints,
    "/Node": _node,
    "/PersistentVolume": _volume,
    "/PersistentVolumeClaim": _claim,
    "/Pod": _pod,
    "/PodTemplate": _template("template"),
    "/ReplicationController": _replication_controller,
    "/ResourceQuota": _resource_quota,
    "/Secret": _secret,
    "/Service": _service,
    "/ServiceAccount": _service_account,
    "admissionregistration.k8s.io/MutatingAdmissionPolicy": _admission_configuration,
    "admissionregistration.k8s.io/MutatingAdmissionPolicyBinding": _admission_configuration,
    "admissionregistration.k8s.io/MutatingWebhookConfiguration": _admission_configuration,
    "admissionregistration.k8s.io/ValidatingAdmissionPolicy": _admission_configuration,
    "admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding": _admission_configuration,
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration": _admission_configuration,
    "apiextensions.k8s.io/CustomResourceDefinition": _definition,
    "apps/DaemonSet": _daemon_set,
    "apps/Deployment": _NAMING_TEMPLATE,
    "apps/ReplicaSet": _NAMING_TEMPLATE,
    "apps/StatefulSet": _stateful_set,
    "batch/CronJob": _cron_job,
    "batch/Job": _job,
    "discovery.k8s.io/EndpointSlice": _endpoint_slice,
    "networking.k8s.io/Ingress": _ingress,
    "networking.k8s.io/NetworkPolicy": _network_policy,
    "node.k8s.io/RuntimeClass": _runtime_class,
    "resource.k8s.io/ResourceSlice": _resource_slice,
    "storage.k8s.io/CSIDriver": _csi_driver,
    "storage.k8s.io/CSIStorageCapacity": _storage_capacity,
    "storage.k8s.io/StorageClass": _storage_class,
}
_STATUSES: Final[Mapping[str, Find]] = {
    "/Pod": _pod_status,
    "/Service": _load_balancer_status,
    "networking.k8s.io/Ingress": _load_balancer_status,
}
