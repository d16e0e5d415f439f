"""Services. Cluster IPs and node ports are allocated elsewhere; only their form is checked here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.machinery.field import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from transom.machinery.validation.checks import (
    PROTOCOLS,
    check_each,
    dns_label,
    dns_subdomain,
    load_balancer_status,
    non_special_ip,
    one_of,
    port_num_or_name,
)
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import (
    validate_labels,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import (
    is_ipv6,
    is_qualified_name,
    is_valid_ip,
    is_valid_port_num,
    name_is_dns1035_label,
    parse_cidr,
)
from transom.machinery.validation.repetitions import repetitions
from transom.machinery.validation.rules import Errors, Object, ValidationRules

KUBELET_PORT = 10250
SOURCE_RANGES_ANNOTATION = "service.beta.kubernetes.io/load-balancer-source-ranges"
SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_CLUSTER_IPS = "spec.clusterIPs"
_IP_FAMILIES = ("IPv4", "IPv6")
_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")


def headless(spec: dict[str, Any]) -> bool:
    return spec.get("clusterIPs") == ["None"]


def needs_health_check(spec: dict[str, Any]) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def validate_service(service: Object) -> Errors:
    spec = service.get("spec") or {}
    kind, ports = spec.get("type", ""), spec.get("ports") or ()
    errors = validate_object_meta(service["metadata"], True, name_is_dns1035_label)
    if not ports and not headless(spec) and kind != "ExternalName":
        errors.append(required("spec.ports"))
    errors += check_service_type(spec, kind, ports)
    names: set[str] = set()
    for i, port in enumerate(ports):
        errors += check_service_port(port, len(ports) > 1, names, f"spec.ports[{i}]")
    errors += validate_labels(spec.get("selector"), "spec.selector")
    errors += check_session_affinity(spec)
    errors += check_cluster_ips(spec)
    for i, ip in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{i}]"
        errors += check_each(path, ip, is_valid_ip(ip)) or non_special_ip(ip, path)
    errors += one_of(kind, "spec.type", SERVICE_TYPES)
    errors += check_port_conflicts(kind, ports)
    errors += _topology_keys(spec)
    errors += check_source_ranges(service, spec)
    if spec.get("allocateLoadBalancerNodePorts") is not None and kind != "LoadBalancer":
        errors.append(
            forbidden(
                "spec.allocateLoadBalancerNodePorts",
                "may only be used when `type` is 'LoadBalancer'",
            )
        )
    return errors + check_traffic_values(
        spec.get("externalTrafficPolicy", ""), spec.get("healthCheckNodePort", 0)
    )


def check_traffic_values(policy: str, health: int) -> Errors:
    errors: Errors = []
    if policy not in ("", "Cluster", "Local"):
        errors.append(
            invalid(
                "spec.externalTrafficPolicy",
                policy,
                "ExternalTrafficPolicy must be empty, Cluster or Local",
            )
        )
    if health < 0:
        errors.append(
            invalid(
                "spec.healthCheckNodePort", health, "HealthCheckNodePort must be not less than 0"
            )
        )
    return errors


def check_service_type(spec: dict[str, Any], kind: str, ports: Any) -> Errors:
    errors: Errors = []
    if kind == "LoadBalancer":
        errors += [
            invalid(
                f"spec.ports[{i}]",
                KUBELET_PORT,
                f"may not expose port {KUBELET_PORT} externally since it is used by kubelet",
            )
            for i, port in enumerate(ports)
            if port.get("port") == KUBELET_PORT
        ]
    if kind in ("LoadBalancer", "NodePort") and headless(spec):
        errors.append(
            invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
        )
    if kind == "ExternalName":
        errors += [
            forbidden(f"spec.{name}", "may not be set for ExternalName services")
            for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
            if spec.get(name)
        ]
        cname = spec.get("externalName", "").removesuffix(".")
        errors += (
            dns_subdomain(cname, "spec.externalName") if cname else [required("spec.externalName")]
        )
    return errors


def check_service_port(port: dict[str, Any], need_name: bool, names: set[str], path: str) -> Errors:
    errors: Errors = []
    name, number, app = port.get("name", ""), port.get("port", 0), port.get("appProtocol")
    if name:
        errors += dns_label(name, f"{path}.name")
        if name in names:
            errors.append(duplicate(f"{path}.name", name))
        names.add(name)
    elif need_name:
        errors.append(required(f"{path}.name"))
    errors += check_each(f"{path}.port", number, is_valid_port_num(number))
    errors += one_of(port.get("protocol", ""), f"{path}.protocol", PROTOCOLS)
    errors += port_num_or_name(port.get("targetPort", 0), f"{path}.targetPort")
    if app is not None:
        errors += check_each(f"{path}.appProtocol", app, is_qualified_name(app))
    return errors


def check_session_affinity(spec: dict[str, Any]) -> Errors:
    affinity, config = spec.get("sessionAffinity", ""), spec.get("sessionAffinityConfig")
    path = "spec.sessionAffinityConfig"
    errors = one_of(affinity, "spec.sessionAffinity", ("ClientIP", "None"))
    if affinity == "None" and config is not None:
        errors.append(forbidden(path, "must not be set when session affinity is None"))
    if affinity != "ClientIP":
        return errors
    value: Any = config
    for name in ("clientIP", "timeoutSeconds"):
        if value is None:
            break
        path, value = f"{path}.{name}", value.get(name)
    if value is None:
        errors.append(required(path, "when session affinity type is ClientIP"))
    elif not 0 < value <= 86400:
        errors.append(invalid(path, value, "must be greater than 0 and less than 86400"))
    return errors


def _valid_address(ip: str, path: str) -> Errors:
    return check_each(path, ip, is_valid_ip(ip))


def check_cluster_ips(
    spec: dict[str, Any],
    valid_address: Callable[[str, str], Errors] = _valid_address,
    *,
    newer: bool = False,
) -> Errors:
    """`newer` are the texts since 1.23."""
    if spec.get("type") == "ExternalName":
        return []
    primary, ips = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    families = spec.get("ipFamilies") or []
    errors: Errors = []
    if primary and not ips:
        errors.append(required(_CLUSTER_IPS))
    elif primary and ips[0] != primary:
        text = "first value must match `clusterIP`" if newer else "element [0] must match clusterIP"
        errors.append(_invalid_cluster_ips(ips, text))
    elif not primary and ips:
        why = "`clusterIP` is not specified" if newer else "clusterIP is empty"
        errors.append(_invalid_cluster_ips(ips, f"must be empty when {why}"))
    errors += _ip_families(families, spec.get("ipFamilyPolicy"))
    syntax_errors = _cluster_ip_syntax(ips, valid_address)
    errors += syntax_errors
    if len(ips) > 2:
        errors.append(_invalid_cluster_ips(ips, "may only hold up to 2 values"))
    if syntax_errors:
        return errors
    if len(ips) > 1 and len({is_ipv6(ip) for ip in ips}) < 2:
        errors.append(
            _invalid_cluster_ips(ips, "may specify no more than one IP for each IP family")
        )
    if not headless(spec):
        errors += [
            invalid(
                f"{_CLUSTER_IPS}[{i}]",
                ip,
                f"expected an {family} value as indicated by `ipFamilies[{i}]`",
            )
            for i, (ip, family) in enumerate(zip(ips, families, strict=False))
            if family in _IP_FAMILIES and is_ipv6(ip) != (family == "IPv6")
        ]
    return errors


def _invalid_cluster_ips(ips: list[str], detail: str) -> FieldError:
    return invalid(_CLUSTER_IPS, go_dump("[]string", ips), detail)


def _ip_families(families: list[str], policy: str | None) -> Errors:
    errors: Errors = []
    repeated = repetitions(families)
    for i, family in enumerate(families):
        if family not in _IP_FAMILIES:
            errors.append(not_supported(f"spec.ipFamilies[{i}]", family, _IP_FAMILIES))
        if i in repeated:
            errors.append(duplicate(f"spec.ipFamilies[{i}]", family))
    if policy is not None and policy not in _POLICIES:
        errors.append(not_supported("spec.ipFamilyPolicy", policy, _POLICIES))
    return errors


def _cluster_ip_syntax(ips: list[str], valid_address: Callable[[str, str], Errors]) -> Errors:
    errors: Errors = []
    for i, ip in enumerate(ips):
        if i > 0 or ip != "None":
            errors += valid_address(ip, f"{_CLUSTER_IPS}[{i}]")
        elif len(ips) > 1:
            errors.append(_invalid_cluster_ips(ips, "'None' must be the first and only value"))
    return errors


def check_port_conflicts(kind: str, ports: Any) -> Errors:
    errors: Errors = []
    if kind == "ClusterIP":
        errors += [
            forbidden(f"spec.ports[{i}].nodePort", "may not be used when `type` is 'ClusterIP'")
            for i, port in enumerate(ports)
            if port.get("nodePort")
        ]
    seen: set[tuple[str, int]] = set()
    for i, port in enumerate(ports):
        key = (port.get("protocol", ""), port.get("nodePort", 0))
        if key[1] and key in seen:
            errors.append(duplicate(f"spec.ports[{i}].nodePort", key[1]))
        seen.add(key)
    seen = set()
    for i, port in enumerate(ports):
        key = (port.get("protocol", ""), port.get("port", 0))
        if key in seen:
            errors.append(
                duplicate(
                    f"spec.ports[{i}]",
                    go_dump("core.ServicePort", {"protocol": key[0], "port": key[1]}),
                )
            )
        seen.add(key)
    return errors


def _topology_keys(spec: dict[str, Any]) -> Errors:
    keys = spec.get("topologyKeys") or ()
    path = "spec.topologyKeys"
    errors: Errors = []
    if keys and spec.get("externalTrafficPolicy") == "Local":
        errors.append(forbidden(path, "may not be specified when `externalTrafficPolicy=Local`"))
    if len(keys) > 16:
        errors.append(too_many(path, len(keys), 16))
    repeated, shown = repetitions(keys), go_dump("[]string", keys)
    for i, key in enumerate(keys):
        if i in repeated:
            errors.append(duplicate(f"{path}[{i}]", key))
        if key != "*":
            errors += check_each(f"{path}[{i}]", shown, is_qualified_name(key))
        elif i != len(keys) - 1:
            errors.append(invalid(f"{path}[{i}]", key, '"*" must be the last value specified'))
    return errors


def check_source_ranges(service: Object, spec: dict[str, Any]) -> Errors:
    ranges = spec.get("loadBalancerSourceRanges") or ()
    annotation = (service["metadata"].get("annotations") or {}).get(SOURCE_RANGES_ANNOTATION)
    if ranges:
        path, shown = "spec.LoadBalancerSourceRanges", f"[{' '.join(ranges)}]"
    elif annotation is not None:
        path, shown = f"metadata.annotations[{SOURCE_RANGES_ANNOTATION}]", annotation
        ranges = annotation.strip().split(",") if annotation.strip() else ()
    else:
        return []
    errors: Errors = []
    if spec.get("type") != "LoadBalancer":
        errors.append(forbidden(path, "may only be used when `type` is 'LoadBalancer'"))
    if any(parse_cidr(text.strip()) is None for text in ranges):
        errors.append(
            invalid(
                path,
                shown,
                "must be a list of IP ranges. For example, 10.240.0.0/24,10.250.0.0/24 ",
            )
        )
    return errors


def _mixed_protocols(spec: dict[str, Any]) -> bool:
    return len({port.get("protocol", "") for port in spec.get("ports") or ()}) > 1


def check_mixed_protocols(spec: dict[str, Any], old: dict[str, Any]) -> Errors:
    if spec.get("type") == "LoadBalancer" and _mixed_protocols(spec) and not _mixed_protocols(old):
        return [
            invalid(
                "spec.ports",
                go_dump("[]core.ServicePort", spec["ports"]),
                "may not contain more than 1 protocol when type is 'LoadBalancer'",
            )
        ]
    return []


def _traffic_combination(kind: str, policy: str, health_port: int) -> Errors:
    errors: Errors = []
    if kind not in ("LoadBalancer", "NodePort") and policy:
        errors.append(
            invalid(
                "spec.externalTrafficPolicy",
                policy,
                "ExternalTrafficPolicy can only be set on NodePort and LoadBalancer service",
            )
        )
    if health_port and not (kind == "LoadBalancer" and policy == "Local"):
        errors.append(
            invalid(
                "spec.healthCheckNodePort",
                health_port,
                "HealthCheckNodePort can only be set on LoadBalancer service with "
                "ExternalTrafficPolicy=Local",
            )
        )
    return errors


def check_traffic_combination(spec: dict[str, Any]) -> Errors:
    return _traffic_combination(
        spec.get("type", ""),
        spec.get("externalTrafficPolicy", ""),
        spec.get("healthCheckNodePort", 0),
    )


def validate_service_create(service: Object) -> Errors:
    spec = service.get("spec") or {}
    # Combinations of traffic fields are only checked if the rest is valid.
    errors = validate_service(service) + check_mixed_protocols(spec, {})
    return errors or check_traffic_combination(spec)


def validate_service_update(new: Object, old: Object) -> Errors:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        errors += check_cluster_ips_change(spec, before) + check_families_change(spec, before)
    errors += validate_service(new) + check_mixed_protocols(spec, before)
    return errors or check_traffic_change(spec, before)


def check_traffic_change(spec: dict[str, Any], before: dict[str, Any]) -> Errors:
    """A change of type drops traffic fields that no longer apply, so they are ignored here."""
    kind, policy = spec.get("type", ""), spec.get("externalTrafficPolicy", "")
    health = spec.get("healthCheckNodePort", 0)
    external = ("LoadBalancer", "NodePort")
    if needs_health_check(before):
        if not needs_health_check(spec):
            health = 0
        elif health != before.get("healthCheckNodePort", 0):
            return [
                invalid(
                    "spec.healthCheckNodePort",
                    health,
                    "cannot change healthCheckNodePort on loadBalancer "
                    "service with externalTraffic=Local during update",
                )
            ]
    if before.get("type") in external and kind not in external:
        policy = ""
    return _traffic_combination(kind, policy, health)


def _keeps_dual_stack(spec: dict[str, Any], what: str) -> FieldError:
    return invalid(
        "spec.ipFamilyPolicy",
        spec.get("ipFamilyPolicy"),
        f"must be 'SingleStack' to release the secondary {what}",
    )


def check_cluster_ips_change(
    spec: dict[str, Any], before: dict[str, Any], *, names_policy: bool = False
) -> Errors:
    """`names_policy`: an error about the policy is one of its field."""
    if headless(spec) and headless(before):
        return []
    ips, old = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    errors: Errors = []

    def refuse(i: int, detail: str) -> None:
        errors.append(invalid(f"spec.clusterIPs[{i}]", go_dump("[]string", ips), detail))

    if len(ips) == len(old):
        for i, (ip, was) in enumerate(zip(ips, old, strict=True)):
            if ip != was:
                refuse(i, "may not change once set")
        return errors
    if not ips:
        refuse(0, "primary clusterIP can not be unset")
    elif old and ips[0] != old[0]:
        refuse(0, "may not change once set")
    if len(old) > len(ips) == 1 and spec.get("ipFamilyPolicy") != "SingleStack":
        if names_policy:
            return [*errors, _keeps_dual_stack(spec, "cluster IP")]
        refuse(
            0,
            "`ipFamilyPolicy` must be set to 'SingleStack' when releasing the secondary clusterIP",
        )
    return errors


def check_families_change(
    spec: dict[str, Any], before: dict[str, Any], *, names_policy: bool = False
) -> Errors:
    if headless(spec) or headless(before):
        return []
    families, old = spec.get("ipFamilies") or [], before.get("ipFamilies") or []
    path, ips = "spec.ipFamilies[0]", go_dump("[]string", spec.get("clusterIPs"))
    shown = go_dump("[]core.IPFamily", families)
    if len(families) == len(old):
        return [
            invalid(path, shown, "may not change once set")
            for family, was in zip(families, old, strict=True)
            if family != was
        ]
    errors: Errors = []
    if len(old) > len(families) and not spec.get("clusterIPs"):
        errors.append(invalid(path, shown, "primary ipFamily can not be unset"))
    if families and old and families[0] != old[0]:
        errors.append(invalid(path, ips, "may not change once set"))
    if len(old) > len(families) == 1 and spec.get("ipFamilyPolicy") != "SingleStack":
        if names_policy:
            return [*errors, _keeps_dual_stack(spec, "IP family")]
        errors.append(
            invalid(
                "spec.clusterIPs[0]",
                ips,
                (
                    "`ipFamilyPolicy` must be set to 'SingleStack' when releasing the secondary "
                    "ipFamily"
                ),
            )
        )
    return errors


def validate_service_status_update(new: Object, old: Object) -> Errors:
    status = (new.get("status") or {}).get("loadBalancer") or {}
    return validate_object_meta_update(new["metadata"], old["metadata"]) + load_balancer_status(
        status, "status.loadBalancer"
    )


VALIDATORS = {
    "/Service": ValidationRules(
        validate_service_create, validate_service_update, validate_service_status_update
    )
}
