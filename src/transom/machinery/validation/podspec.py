"""The pod spec, in a pod or in the template of a workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transom.machinery.field import (
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_long,
)
from transom.machinery.podutil import containers_with_path, visit_containers
from transom.machinery.validation.addresses import legacy_ip
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
    is_dns1123_subdomain_with_underscore,
    is_qualified_name,
    name_is_dns_subdomain,
    parse_ip,
)
from transom.machinery.validation.pod_annotations import check_pod_annotations, check_seccomp_agrees
from transom.machinery.validation.podoptions import BASE_OPTIONS, PodOptions
from transom.machinery.validation.podresources import check_pod_resources
from transom.machinery.validation.resources import check_resource_requirements
from transom.machinery.validation.rules import Errors
from transom.machinery.validation.scheduling import (
    check_affinity,
    check_scheduling_gates,
    check_tolerations,
    check_topology_spread,
)
from transom.machinery.validation.security import (
    check_host_port_equality,
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
_MANY_SEARCHES = 32
_MANY_SEARCH_CHARS = 2048
_LONGEST_HOSTNAME = 64
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
        "hostnameOverride",
        "schedulingGroup",
    )
)


def check_pod_spec(
    spec: dict[str, Any],
    pod_name: str,
    path: str,
    errs: Errors,
    options: PodOptions = BASE_OPTIONS,
) -> None:
    """`pod_name` is empty for the spec of a template."""
    if options.requires_grace and spec.get("terminationGracePeriodSeconds") is None:
        errs.append(required(f"{path}.terminationGracePeriodSeconds"))
    volumes = spec.get("volumes")
    good = check_volumes(volumes, pod_name, f"{path}.volumes", errs, options) if volumes else {}
    claims = spec.get("resourceClaims")
    if claims:
        _check_resource_claims(claims, f"{path}.resourceClaims", errs)
    context = PodContext(
        good,
        spec.get("restartPolicy", ""),
        spec.get("terminationGracePeriodSeconds"),
        frozenset(claim.get("name", "") for claim in claims or ()),
        options,
        (spec.get("os") or {}).get("name", "") if "os" in spec else None,
        spec.get("hostUsers") is not False,
    )
    _check_all_containers(spec, context, path, errs)
    if options.pod_level and spec.get("resources") is not None:
        check_pod_resources(spec, context, path, errs)
    if options.checks_host_ports and spec.get("hostNetwork"):
        check_host_port_equality(spec, path, errs, in_pod=options.in_pod)
    _check_enum(spec.get("restartPolicy", ""), RESTART_POLICIES, f"{path}.restartPolicy", errs)
    _check_enum(spec.get("dnsPolicy", ""), _DNS_POLICIES, f"{path}.dnsPolicy", errs)
    if selector := spec.get("nodeSelector"):
        errs += validate_labels(selector, f"{path}.nodeSelector")
    check_pod_security_context(spec.get("securityContext") or {}, spec, path, errs, options)
    if not _RARE.isdisjoint(spec):
        _check_rare(spec, path, errs, options)
    else:
        if spec.get("dnsPolicy") == "None":
            _check_dns_config(spec, f"{path}.dnsConfig", errs, options)
        check_host_process(spec, path, errs)
        _check_name(spec, "serviceAccountName", path, errs)
    if options.newer and _has_file_keys(spec):
        _check_file_key_volumes(spec, path, errs)


def _check_all_containers(
    spec: dict[str, Any], context: PodContext, path: str, errs: Errors
) -> None:
    containers = spec.get("containers") or []
    check_containers(containers, context, f"{path}.containers", errs)
    first = spec.get("initContainers") or []
    if first:
        check_init_containers(first, containers, context, f"{path}.initContainers", errs)
    if ephemeral := spec.get("ephemeralContainers"):
        check_ephemeral_containers(
            ephemeral, [*containers, *first], context, f"{path}.ephemeralContainers", errs
        )


def _has_file_keys(spec: dict[str, Any]) -> bool:
    for container in visit_containers(spec):
        for variable in container.get("env") or ():
            if "valueFrom" in variable and "fileKeyRef" in (variable["valueFrom"] or ()):
                return True
    return False


def _check_file_key_volumes(spec: dict[str, Any], path: str, errs: Errors) -> None:
    """Variables come from files of emptyDir volumes only."""
    volumes = {volume.get("name", ""): volume for volume in spec.get("volumes") or ()}
    for container, where in containers_with_path(spec, path):
        for i, variable in enumerate(container.get("env") or ()):
            ref = (variable.get("valueFrom") or {}).get("fileKeyRef")
            if ref is None:
                continue
            name = ref.get("volumeName", "")
            at = f"{where}.env[{i}].valueFrom.fileKeyRef.volumeName"
            if name not in volumes:
                errs.append(not_found(at, name))
            elif "emptyDir" not in volumes[name]:
                errs.append(invalid(at, name, "referenced volume must be of type emptyDir"))


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


def _check_rare(spec: dict[str, Any], path: str, errs: Errors, options: PodOptions) -> None:
    if affinity := spec.get("affinity"):
        check_affinity(affinity, f"{path}.affinity", errs, options)
    _check_dns_config(spec, f"{path}.dnsConfig", errs, options)
    for i, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType", "")
        all_invalid(
            is_qualified_name(kind), kind, f"{path}.readinessGates[{i}].conditionType", errs
        )
    if gates := spec.get("schedulingGates"):
        check_scheduling_gates(gates, f"{path}.schedulingGates", errs)
    if constraints := spec.get("topologySpreadConstraints"):
        check_topology_spread(constraints, f"{path}.topologySpreadConstraints", errs, options)
    check_host_process(spec, path, errs)
    if spec.get("hostUsers") is False:
        _check_user_namespace(spec, path, errs, options)
    if options.newer and (override := spec.get("hostnameOverride")) is not None:
        _check_hostname_override(override, spec, f"{path}.hostnameOverride", errs)
    _check_name(spec, "serviceAccountName", path, errs)
    _check_name(spec, "nodeName", path, errs)
    if (deadline := spec.get("activeDeadlineSeconds")) is not None:
        check_range(deadline, 1, MAX_INT32, f"{path}.activeDeadlineSeconds", errs)
    for field in ("hostname", "subdomain"):
        if name := spec.get(field):
            check_dns_label(name, f"{path}.{field}", errs)
    if tolerations := spec.get("tolerations"):
        check_tolerations(tolerations, f"{path}.tolerations", errs, options)
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        _check_host_alias(alias, f"{path}.hostAliases", i, errs, options)
    _check_name(spec, "priorityClassName", path, errs)
    _check_rest(spec, path, errs, options)


def _check_rest(spec: dict[str, Any], path: str, errs: Errors, options: PodOptions) -> None:
    if (name := spec.get("runtimeClassName")) is not None:
        check_dns_subdomain(name, f"{path}.runtimeClassName", errs)
    if (policy := spec.get("preemptionPolicy")) is not None:
        _check_enum(policy, PREEMPTION_POLICIES, f"{path}.preemptionPolicy", errs)
    if overhead := spec.get("overhead"):
        check_resource_requirements({"limits": overhead}, f"{path}.overhead", errs, options)
    if spec.get("os") is not None:
        check_os(spec, path, errs)
    if options.newer and (group := spec.get("schedulingGroup")) is not None:
        where, name = f"{path}.schedulingGroup.podGroupName", group.get("podGroupName")
        if name is None:
            errs.append(invalid(where, None, "must specify one of: `podGroupName`"))
        else:
            all_invalid(name_is_dns_subdomain(name, False), name, where, errs)


def _check_hostname_override(name: str, spec: dict[str, Any], path: str, errs: Errors) -> None:
    if spec.get("setHostnameAsFQDN"):
        errs.append(forbidden(path, "may not be specified when setHostnameAsFQDN is true"))
    if spec.get("hostNetwork"):
        errs.append(forbidden(path, "may not be specified when hostNetwork is true"))
    if byte_len(name) > _LONGEST_HOSTNAME:
        errs.append(too_long(path, "", _LONGEST_HOSTNAME))
    check_dns_subdomain(name, path, errs)


def _check_dns_config(spec: dict[str, Any], path: str, errs: Errors, options: PodOptions) -> None:
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
        check_pod_address(server, f"{path}.nameservers[{i}]", errs, options)
    _check_searches(searches, f"{path}.searches", errs, options)
    for i, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errs.append(required(f"{path}.options[{i}]", "must not be empty"))


def _check_searches(searches: Sequence[str], path: str, errs: Errors, options: PodOptions) -> None:
    most = _MANY_SEARCHES if options.long_searches else _MAX_SEARCHES
    longest = _MANY_SEARCH_CHARS if options.long_searches else _MAX_SEARCH_CHARS
    if len(searches) > most:
        text = f"must not have more than {most} search paths"
        errs.append(invalid(path, go_dump("[]string", searches), text))
    if byte_len(" ".join(searches)) > longest:
        text = f"must not have more than {longest} characters (including spaces) in the search list"
        errs.append(invalid(path, go_dump("[]string", searches), text))
    for i, search in enumerate(searches):
        if not options.relaxed_searches:
            check_dns_subdomain(search.removesuffix("."), f"{path}[{i}]", errs)
        elif search != ".":
            name = search.removesuffix(".")
            all_invalid(is_dns1123_subdomain_with_underscore(name), name, f"{path}[{i}]", errs)


def check_pod_address(address: str, path: str, errs: Errors, options: PodOptions) -> None:
    if options.indexes_aliases:
        errs += legacy_ip(address, path, strict=options.strict_addresses)
    elif parse_ip(address) is None:
        errs.append(invalid(path, address, _NOT_AN_IP))


def _check_host_alias(
    alias: dict[str, Any], path: str, index: int, errs: Errors, options: PodOptions
) -> None:
    """Older releases omit the indexes."""
    where = f"{path}[{index}]" if options.indexes_aliases else path
    check_pod_address(alias.get("ip", ""), f"{where}.ip", errs, options)
    for i, name in enumerate(alias.get("hostnames") or ()):
        at = f"{where}.hostnames[{i}]" if options.indexes_aliases else f"{where}.hostnames"
        check_dns_subdomain(name, at, errs)


def _check_user_namespace(
    spec: dict[str, Any], path: str, errs: Errors, options: PodOptions
) -> None:
    """A pod with its own user namespace must not share another namespace with the host."""
    shown_field = "hostUsers" if options.checks_volume_devices else "pod.Spec.HostUsers"
    text = f"when `{shown_field}` is false"
    for field, shown in (
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ):
        if spec.get(field) and not (field == "hostNetwork" and options.host_network_users):
            errs.append(forbidden(f"{path}.{shown}", text))
    if options.checks_volume_devices:
        for container, where in containers_with_path(spec, path):
            if container.get("volumeDevices"):
                errs.append(forbidden(f"{where}.volumeDevices", text))


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
            errs.append(invalid(f"{path}[{i}]", go_dump("core.PodResourceClaim", claim), text))
        if not refs:
            text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errs.append(invalid(f"{path}[{i}]", go_dump("core.PodResourceClaim", claim), text))
        for field in refs:
            all_invalid(
                name_is_dns_subdomain(claim[field], False),
                claim[field],
                f"{path}[{i}].{field}",
                errs,
            )


def check_pod_template(
    template: dict[str, Any], path: str, errs: Errors, options: PodOptions = BASE_OPTIONS
) -> None:
    """The template of a workload: its metadata and its spec."""
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    check_template_metadata(meta, spec, path, errs, options)
    check_pod_spec(spec, "", f"{path}.spec", errs, options)
    check_seccomp_agrees(meta.get("annotations") or {}, spec, f"{path}.spec", errs)
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        errs.append(forbidden(f"{path}.spec.ephemeralContainers", text))


def check_template_metadata(
    meta: dict[str, Any],
    spec: dict[str, Any],
    path: str,
    errs: Errors,
    options: PodOptions = BASE_OPTIONS,
) -> None:
    # Kubernetes omits `metadata` in these two paths.
    errs += validate_labels(meta.get("labels"), f"{path}.labels")
    annotations = meta.get("annotations")
    if annotations:
        errs += validate_annotations(annotations, f"{path}.annotations")
        check_pod_annotations(annotations, spec, f"{path}.annotations", errs, options)
