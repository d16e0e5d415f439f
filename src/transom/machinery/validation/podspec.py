"""The pod spec, in a pod or in the template of a workload."""

from __future__ import annotations

from typing import Any

from transom.machinery.field import duplicate, forbidden, invalid, not_supported, required
from transom.machinery.validation.common import (
    MAX_INT32,
    all_invalid,
    check_dns_label,
    check_dns_subdomain,
    check_range,
)
from transom.machinery.validation.containers import (
    PodContext,
    check_containers,
    check_ephemeral_containers,
    check_init_containers,
)
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import validate_annotations, validate_labels
from transom.machinery.validation.names import (
    byte_len,
    is_qualified_name,
    name_is_dns_subdomain,
    parse_ip,
)
from transom.machinery.validation.pod_annotations import check_pod_annotations, check_seccomp_agrees
from transom.machinery.validation.resources import check_resource_requirements
from transom.machinery.validation.rules import Errors
from transom.machinery.validation.scheduling import (
    check_affinity,
    check_scheduling_gates,
    check_tolerations,
    check_topology_spread,
)
from transom.machinery.validation.security import (
    check_host_process,
    check_os,
    check_pod_security_context,
)
from transom.machinery.validation.volumes import check_volumes

RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_MAX_NAMESERVERS = 3
_MAX_SEARCHES = 6
_MAX_SEARCH_CHARS = 256
_NOT_AN_IP = "must be valid IP address"
# Fields whose checks run in Kubernetes' order; a spec without any of them is done.
_RARE = frozenset(
    (
        "affinity",
        "dnsConfig",
        "readinessGates",
        "schedulingGates",
        "topologySpreadConstraints",
        "nodeName",
        "activeDeadlineSeconds",
        "hostname",
        "subdomain",
        "tolerations",
        "hostAliases",
        "priorityClassName",
        "runtimeClassName",
        "preemptionPolicy",
        "overhead",
        "os",
        "hostUsers",
    )
)


def check_pod_spec(spec: dict[str, Any], pod_name: str, path: str, errs: Errors) -> None:
    """`pod_name` is empty for the spec of a template."""
    volumes = spec.get("volumes")
    good = check_volumes(volumes, pod_name, f"{path}.volumes", errs) if volumes else {}
    claims = spec.get("resourceClaims")
    if claims:
        _check_resource_claims(claims, f"{path}.resourceClaims", errs)
    context = PodContext(
        good,
        spec.get("restartPolicy", ""),
        spec.get("terminationGracePeriodSeconds"),
        frozenset(claim.get("name", "") for claim in claims or ()),
    )
    containers = spec.get("containers") or []
    check_containers(containers, context, f"{path}.containers", errs)
    first = spec.get("initContainers") or []
    if first:
        check_init_containers(first, containers, context, f"{path}.initContainers", errs)
    if ephemeral := spec.get("ephemeralContainers"):
        check_ephemeral_containers(
            ephemeral, [*containers, *first], context, f"{path}.ephemeralContainers", errs
        )
    _check_enum(spec.get("restartPolicy", ""), RESTART_POLICIES, f"{path}.restartPolicy", errs)
    _check_enum(spec.get("dnsPolicy", ""), _DNS_POLICIES, f"{path}.dnsPolicy", errs)
    if selector := spec.get("nodeSelector"):
        errs += validate_labels(selector, f"{path}.nodeSelector")
    check_pod_security_context(spec.get("securityContext") or {}, spec, path, errs)
    if not _RARE.isdisjoint(spec):
        _check_rare(spec, path, errs)
        return
    if spec.get("dnsPolicy") == "None":
        _check_dns_config(spec, f"{path}.dnsConfig", errs)
    check_host_process(spec, path, errs)
    _check_name(spec, "serviceAccountName", path, errs)


def _check_enum(value: str, supported: tuple[str, ...], path: str, errs: Errors) -> None:
    if value not in supported:
        errs.append(not_supported(path, value, supported) if value else required(path))


def _check_name(spec: dict[str, Any], field: str, path: str, errs: Errors) -> None:
    """A field that refers to another object."""
    name = spec.get(field)
    if name:
        messages = name_is_dns_subdomain(name, False)
        if messages:
            all_invalid(messages, name, f"{path}.{field}", errs)


def _check_rare(spec: dict[str, Any], path: str, errs: Errors) -> None:
    if affinity := spec.get("affinity"):
        check_affinity(affinity, f"{path}.affinity", errs)
    _check_dns_config(spec, f"{path}.dnsConfig", errs)
    for i, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType", "")
        all_invalid(
            is_qualified_name(kind), kind, f"{path}.readinessGates[{i}].conditionType", errs
        )
    if gates := spec.get("schedulingGates"):
        check_scheduling_gates(gates, f"{path}.schedulingGates", errs)
    if constraints := spec.get("topologySpreadConstraints"):
        check_topology_spread(constraints, f"{path}.topologySpreadConstraints", errs)
    check_host_process(spec, path, errs)
    if spec.get("hostUsers") is False:
        _check_user_namespace(spec, path, errs)
    _check_name(spec, "serviceAccountName", path, errs)
    _check_name(spec, "nodeName", path, errs)
    if (deadline := spec.get("activeDeadlineSeconds")) is not None:
        check_range(deadline, 1, MAX_INT32, f"{path}.activeDeadlineSeconds", errs)
    for field in ("hostname", "subdomain"):
        if name := spec.get(field):
            check_dns_label(name, f"{path}.{field}", errs)
    if tolerations := spec.get("tolerations"):
        check_tolerations(tolerations, f"{path}.tolerations", errs)
    for alias in spec.get("hostAliases") or ():
        _check_host_alias(alias, f"{path}.hostAliases", errs)
    _check_name(spec, "priorityClassName", path, errs)
    if (name := spec.get("runtimeClassName")) is not None:
        check_dns_subdomain(name, f"{path}.runtimeClassName", errs)
    if (policy := spec.get("preemptionPolicy")) is not None:
        _check_enum(policy, PREEMPTION_POLICIES, f"{path}.preemptionPolicy", errs)
    if overhead := spec.get("overhead"):
        check_resource_requirements({"limits": overhead}, f"{path}.overhead", errs)
    if spec.get("os") is not None:
        check_os(spec, path, errs)


def _check_dns_config(spec: dict[str, Any], path: str, errs: Errors) -> None:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            errs.append(required(path, "must provide `dnsConfig` when `dnsPolicy` is None"))
            return
        if not config.get("nameservers"):
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            errs.append(required(f"{path}.nameservers", text))
            return
    if not config:
        return
    servers, searches = config.get("nameservers") or (), config.get("searches") or ()
    if len(servers) > _MAX_NAMESERVERS:
        errs.append(
            invalid(
                f"{path}.nameservers",
                go_dump("[]string", servers),
                f"must not have more than {_MAX_NAMESERVERS} nameservers",
            )
        )
    for i, server in enumerate(servers):
        if parse_ip(server) is None:
            errs.append(invalid(f"{path}.nameservers[{i}]", server, _NOT_AN_IP))
    if len(searches) > _MAX_SEARCHES:
        errs.append(
            invalid(
                f"{path}.searches",
                go_dump("[]string", searches),
                f"must not have more than {_MAX_SEARCHES} search paths",
            )
        )
    if byte_len(" ".join(searches)) > _MAX_SEARCH_CHARS:
        text = "must not have more than 256 characters (including spaces) in the search list"
        errs.append(invalid(f"{path}.searches", go_dump("[]string", searches), text))
    for i, search in enumerate(searches):
        check_dns_subdomain(search.removesuffix("."), f"{path}.searches[{i}]", errs)
    for i, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errs.append(required(f"{path}.options[{i}]", "must not be empty"))


def _check_host_alias(alias: dict[str, Any], path: str, errs: Errors) -> None:
    address = alias.get("ip", "")
    if parse_ip(address) is None:
        errs.append(invalid(f"{path}.ip", address, _NOT_AN_IP))
    for name in alias.get("hostnames") or ():
        check_dns_subdomain(name, f"{path}.hostnames", errs)


def _check_user_namespace(spec: dict[str, Any], path: str, errs: Errors) -> None:
    """A pod with its own user namespace must not share another namespace with the host."""
    for field, shown in (
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ):
        if spec.get(field):
            errs.append(forbidden(f"{path}.{shown}", "when `pod.Spec.HostUsers` is false"))


def _check_resource_claims(claims: list[dict[str, Any]], path: str, errs: Errors) -> None:
    names: set[str] = set()
    for i, claim in enumerate(claims):
        name = claim.get("name", "")
        if not name:
            errs.append(required(f"{path}[{i}].name"))
        elif name in names:
            errs.append(duplicate(f"{path}[{i}].name", name))
        else:
            check_dns_label(name, f"{path}[{i}].name", errs)
            names.add(name)
        refs = [
            field for field in ("resourceClaimName", "resourceClaimTemplateName") if field in claim
        ]
        if len(refs) > 1:
            text = (
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
            errs.append(invalid(f"{path}[{i}]", claim, text))
        if not refs:
            text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errs.append(invalid(f"{path}[{i}]", claim, text))
        for field in refs:
            all_invalid(
                name_is_dns_subdomain(claim[field], False),
                claim[field],
                f"{path}[{i}].{field}",
                errs,
            )


def check_pod_template(template: dict[str, Any], path: str, errs: Errors) -> None:
    """The template of a workload: its metadata and its spec."""
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    check_template_metadata(meta, spec, path, errs)
    check_pod_spec(spec, "", f"{path}.spec", errs)
    check_seccomp_agrees(meta.get("annotations") or {}, spec, f"{path}.spec", errs)
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        errs.append(forbidden(f"{path}.spec.ephemeralContainers", text))


def check_template_metadata(
    meta: dict[str, Any], spec: dict[str, Any], path: str, errs: Errors
) -> None:
    # Kubernetes omits `metadata` in these two paths.
    errs += validate_labels(meta.get("labels"), f"{path}.labels")
    annotations = meta.get("annotations")
    if annotations:
        errs += validate_annotations(annotations, f"{path}.annotations")
        check_pod_annotations(annotations, spec, f"{path}.annotations", errs)
