"""Services in releases from 1.21 on: what differs from the rules of 1.20 in `service`."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, Final

from transom.kit.named_tuple import NamedTuple
from transom.machinery.field import forbidden, invalid, not_supported, required
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation import service as base
from transom.machinery.validation.addresses import STRICT_ADDRESSES, legacy_cidr, legacy_ip
from transom.machinery.validation.checks import check_each, dns_subdomain, non_special_ip, one_of
from transom.machinery.validation.meta import (
    validate_labels,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import (
    is_qualified_name,
    is_valid_port_num,
    name_is_dns1035_label,
    name_is_dns_label,
    parse_ip,
)
from transom.machinery.validation.rules import Errors, Object, ValidationRules

_LOAD_BALANCER_ONLY: Final = "may only be used when `type` is 'LoadBalancer'"
_EXTERNAL: Final = ("LoadBalancer", "NodePort")
_TOPOLOGY_HINTS: Final = "service.kubernetes.io/topology-aware-hints"
_TOPOLOGY_MODE: Final = "service.kubernetes.io/topology-mode"


class ServiceOptions(NamedTuple):
    """What the rules of a release depend on."""

    strict: bool  # addresses in legacy fields must be in their usual form
    relaxed_names: bool
    mixed_protocols: bool  # a load balancer may have ports of several protocols
    load_balancer_class: bool
    node_port_control: bool
    internal_policy: bool
    distributions: tuple[str, ...]
    ip_modes: bool
    external_policy: bool  # the policy of external traffic is required where it applies
    external_ips: bool  # services with external addresses count as reachable from outside
    kubelet_port: bool  # a load balancer may not have the port of kubelets
    range_items: bool  # errors of source ranges name the item


def service_options(features: FeatureSet) -> ServiceOptions:
    distributions: tuple[str, ...] = ()
    if features.enabled("ServiceTrafficDistribution"):
        distributions = ("PreferClose",)
        if features.enabled("PreferSameTrafficDistribution"):
            distributions += ("PreferSameZone", "PreferSameNode")
    release = features.release
    return ServiceOptions(
        strict=features.enabled(STRICT_ADDRESSES),
        relaxed_names=features.enabled("RelaxedServiceNameValidation"),
        mixed_protocols=features.enabled("MixedProtocolLBService"),
        load_balancer_class=features.enabled("ServiceLoadBalancerClass"),
        node_port_control=has_behaviour(release, "AllocateLoadBalancerNodePorts"),
        internal_policy=has_behaviour(release, "InternalTrafficPolicy"),
        distributions=distributions,
        ip_modes=features.enabled("LoadBalancerIPMode"),
        external_policy=has_behaviour(release, "ExternalPolicyRequired"),
        external_ips=has_behaviour(release, "ExternallyAccessible"),
        kubelet_port=not has_behaviour(release, "LoadBalancersOnAnyPort"),
        range_items=has_behaviour(release, "SourceRangeItems"),
    )


def _annotations(service: Object) -> dict[str, str]:
    return service["metadata"].get("annotations") or {}


def validate_service_spec(service: Object, old: Object | None, options: ServiceOptions) -> Errors:
    spec, before = service.get("spec") or {}, (old or {}).get("spec") or {}
    kind, ports = spec.get("type", ""), spec.get("ports") or ()
    errors = _topology_annotations(service)
    if not ports and not base.headless(spec) and kind != "ExternalName":
        errors.append(required("spec.ports"))
    errors += base.check_service_type(spec, kind, ports if options.kubelet_port else ())
    names: set[str] = set()
    for i, port in enumerate(ports):
        errors += base.check_service_port(port, len(ports) > 1, names, f"spec.ports[{i}]")
    errors += validate_labels(spec.get("selector"), "spec.selector")
    errors += base.check_session_affinity(spec)
    if not options.external_policy:
        errors += find_cluster_ip_errors(service, old, strict=options.strict, newer=False)
    for i, ip in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{i}]"
        known = before.get("externalIPs") or ()
        errors += legacy_ip(ip, path, strict=options.strict, old=known) or non_special_ip(ip, path)
    errors += one_of(kind, "spec.type", base.SERVICE_TYPES)
    errors += base.check_port_conflicts(kind, ports)
    errors += _source_ranges(service, old, options)
    if not options.mixed_protocols:
        errors += base.check_mixed_protocols(spec, before)
    errors += _load_balancer_fields(spec, options)
    errors += _external_traffic(spec, options)
    errors += _internal_traffic(spec, options)
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in options.distributions:
        path = "spec.trafficDistribution"
        errors.append(not_supported(path, distribution, options.distributions))
    return errors


def _topology_annotations(service: Object) -> Errors:
    annotations = _annotations(service)
    mode, hints = annotations.get(_TOPOLOGY_MODE), annotations.get(_TOPOLOGY_HINTS)
    if mode is None or hints is None or mode == hints:
        return []
    text = f"must match annotations[{_TOPOLOGY_HINTS}] when both are specified"
    return [invalid(f"metadata.annotations[{_TOPOLOGY_MODE}]", mode, text)]


def _source_ranges(service: Object, old: Object | None, options: ServiceOptions) -> Errors:
    spec = service.get("spec") or {}
    if not options.range_items:
        return base.check_source_ranges(service, spec)
    ranges = spec.get("loadBalancerSourceRanges") or ()
    name = base.SOURCE_RANGES_ANNOTATION
    annotation = _annotations(service).get(name)
    errors: Errors = []
    path = "spec.LoadBalancerSourceRanges" if ranges else f"metadata.annotations[{name}]"
    if (ranges or annotation is not None) and spec.get("type") != "LoadBalancer":
        errors.append(forbidden(path, _LOAD_BALANCER_ONLY))
    if ranges:
        known = ((old or {}).get("spec") or {}).get("loadBalancerSourceRanges") or ()
        stored = [text.strip() for text in known]
        for i, text in enumerate(ranges):
            errors += legacy_cidr(text.strip(), f"{path}[{i}]", strict=options.strict, old=stored)
        return errors
    changed = annotation if old is None or _annotations(old).get(name) != annotation else None
    for text in changed.split(",") if changed and changed.strip() else ():
        errors += legacy_cidr(text.strip(), path, strict=options.strict)
    return errors


def _load_balancer_fields(spec: dict[str, Any], options: ServiceOptions) -> Errors:
    errors: Errors = []
    balanced = spec.get("type") == "LoadBalancer"
    name = "allocateLoadBalancerNodePorts"
    if spec.get(name) is not None and not balanced:
        errors.append(forbidden(f"spec.{name}", _LOAD_BALANCER_ONLY))
    elif spec.get(name) is None and balanced and options.node_port_control:
        errors.append(required(name))
    if options.load_balancer_class:
        errors += _load_balancer_class(spec)
    return errors


def _load_balancer_class(spec: dict[str, Any]) -> Errors:
    name, path = spec.get("loadBalancerClass"), "spec.loadBalancerClass"
    if name is None:
        return []
    if spec.get("type") != "LoadBalancer":
        return [forbidden(path, _LOAD_BALANCER_ONLY)]
    return check_each(path, name, is_qualified_name(name))


def _external_traffic(spec: dict[str, Any], options: ServiceOptions) -> Errors:
    policy, health = spec.get("externalTrafficPolicy", ""), spec.get("healthCheckNodePort", 0)
    if not options.external_policy:
        return base.check_traffic_values(policy, health)
    path, health_path = "spec.externalTrafficPolicy", "spec.healthCheckNodePort"
    errors: Errors = []
    reachable = spec.get("type") in _EXTERNAL or (
        options.external_ips and spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs"))
    )
    if not reachable:
        if policy:
            text = "may only be set when `type` is 'NodePort' or 'LoadBalancer'"
            if options.external_ips:
                text = "may only be set for externally-accessible services"
            errors.append(invalid(path, policy, text))
    else:
        errors += one_of(policy, path, ("Cluster", "Local"))
    if not base.needs_health_check(spec):
        if health:
            text = (
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is "
                "'Local'"
            )
            errors.append(invalid(health_path, health, text))
    elif health:  # otherwise it is allocated
        errors += check_each(health_path, health, is_valid_port_num(health))
    return errors


def _internal_traffic(spec: dict[str, Any], options: ServiceOptions) -> Errors:
    policy, path = spec.get("internalTrafficPolicy"), "spec.internalTrafficPolicy"
    if not options.internal_policy:
        return []
    if policy is None:
        return [required(path)] if spec.get("type") in (*_EXTERNAL, "ClusterIP") else []
    return one_of(policy, path, ("Cluster", "Local"), empty=None)


def find_cluster_ip_errors(
    service: Object, old: Object | None, *, strict: bool, newer: bool = True
) -> Errors:
    """What keeps a service from getting its addresses. Since 1.23 they are allocated before the
    service is validated, so these errors are the only ones.
    """
    known = ((old or {}).get("spec") or {}).get("clusterIPs") or ()
    valid_address = partial(legacy_ip, strict=strict, old=known)
    return base.check_cluster_ips(service.get("spec") or {}, valid_address, newer=newer)


def _early_errors(service: Object, old: Object | None, options: ServiceOptions) -> Errors:
    if not options.external_policy:
        return []
    return find_cluster_ip_errors(service, old, strict=options.strict)


def validate_service_create_with_options(service: Object, options: ServiceOptions) -> Errors:
    if early := _early_errors(service, None, options):
        return early
    rule = name_is_dns_label if options.relaxed_names else name_is_dns1035_label
    errors = validate_object_meta(service["metadata"], True, rule)
    errors += validate_service_spec(service, None, options)
    if options.external_policy:
        return errors
    return errors or base.check_traffic_combination(service.get("spec") or {})


def validate_service_update_with_options(
    new: Object, old: Object, options: ServiceOptions
) -> Errors:
    if early := _early_errors(new, old, options):
        return early
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        newer = options.external_policy
        errors += base.check_cluster_ips_change(spec, before, names_policy=newer)
        errors += base.check_families_change(spec, before, names_policy=newer)
    balanced = spec.get("type") == "LoadBalancer"
    if balanced and before.get("type") == "LoadBalancer" and options.load_balancer_class:
        name = spec.get("loadBalancerClass")
        if name != before.get("loadBalancerClass"):
            errors.append(invalid("spec.loadBalancerClass", name, "may not change once set"))
    if options.load_balancer_class:
        errors += _load_balancer_class(spec)
    checked = base.needs_health_check(spec) and base.needs_health_check(before)
    health = "healthCheckNodePort"
    if options.external_policy and checked and spec.get(health, 0) != before.get(health, 0):
        errors.append(forbidden(f"spec.{health}", "field is immutable"))
    errors += validate_service_spec(new, old, options)
    if options.external_policy:
        return errors
    return errors or base.check_traffic_change(spec, before)


def validate_service_status_update_with_options(
    new: Object, old: Object, options: ServiceOptions
) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    ingress = _ingress(new)
    path = "status.loadBalancer.ingress"
    if ingress and (new.get("spec") or {}).get("type") != "LoadBalancer" and options.ip_modes:
        text = "may only be used when `spec.type` is 'LoadBalancer'"
        return [*errors, forbidden(path, text)]
    known = [each["ip"] for each in _ingress(old) if each.get("ip")]
    for i, each in enumerate(ingress):
        errors += check_load_balancer_ingress(
            each, f"{path}[{i}]", known, strict=options.strict, modes=options.ip_modes
        )
    return errors


def _ingress(service: Object) -> list[dict[str, Any]]:
    status = (service.get("status") or {}).get("loadBalancer") or {}
    return status.get("ingress") or []


def check_load_balancer_ingress(
    ingress: dict[str, Any], path: str, known: Collection[str], *, strict: bool, modes: bool
) -> Errors:
    ip, mode, host = ingress.get("ip", ""), ingress.get("ipMode"), ingress.get("hostname", "")
    errors = legacy_ip(ip, f"{path}.ip", strict=strict, old=known) if ip else []
    if modes:
        if mode is None and ip:
            errors.append(required(f"{path}.ipMode", "must be specified when `ip` is set"))
        elif mode is not None and not ip:
            text = "may not be specified when `ip` is not set"
            errors.append(forbidden(f"{path}.ipMode", text))
        elif mode is not None:
            errors += one_of(mode, f"{path}.ipMode", ("Proxy", "VIP"), empty=None)
    if host:
        errors += dns_subdomain(host, f"{path}.hostname")
        if parse_ip(host) is not None:
            text = "must be a DNS name, not an IP address"
            errors.append(invalid(f"{path}.hostname", host, text))
    return errors


def service_rules(features: FeatureSet) -> ValidationRules:
    options = service_options(features)
    return ValidationRules(
        partial(validate_service_create_with_options, options=options),
        partial(validate_service_update_with_options, options=options),
        partial(validate_service_status_update_with_options, options=options),
    )


VALIDATORS = {"/Service": service_rules}
