"""Ingress, IngressClass and NetworkPolicy.

The rules for Ingress depend on the version of the request: v1beta1 has different field names and is
more lenient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from transom.machinery.field import GoText, forbidden, invalid, not_supported, required, too_long
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.addresses import STRICT_ADDRESSES, legacy_cidr
from transom.machinery.validation.checks import (
    check_each,
    dns_subdomain,
    load_balancer_status,
    port_num_or_name,
)
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import (
    immutable,
    validate_label_selector,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import (
    byte_len,
    domain_prefixed_path,
    is_dns1123_subdomain,
    is_path_segment_name,
    is_valid_port_name,
    is_valid_port_num,
    is_wildcard_dns1123_subdomain,
    name_is_dns1035_label,
    name_is_dns_label,
    name_is_dns_subdomain,
    parse_cidr,
    parse_ip,
)
from transom.machinery.validation.rules import (
    Errors,
    Object,
    RulesFactory,
    Update,
    ValidationRules,
)
from transom.machinery.validation.service_releases import check_load_balancer_ingress

CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_BAD_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_BAD_SUFFIXES = ("/..", "/.")


class _Version(NamedTuple):
    """The field names of an Ingress version, and whether it is lenient about secret names and
    wildcard rules.
    """

    backend: str
    service_name: str
    port_name: str
    port_number: str
    lenient: bool
    relaxed_names: bool = False  # of services


_V1 = _Version("defaultBackend", "service.name", "service.port.name", "service.port.number", False)
_BETA = _Version("backend", "serviceName", "servicePort", "servicePort", True)


def _host(host: str) -> list[str]:
    return is_wildcard_dns1123_subdomain(host) if "*" in host else is_dns1123_subdomain(host)


def _secret_name(name: str) -> list[str]:
    return is_dns1123_subdomain(name) if name else []


def _object_reference(reference: Mapping[str, Any] | None, path: str) -> Errors:
    if reference is None:
        return []
    errors: Errors = []
    if reference.get("apiGroup") is not None:
        errors += dns_subdomain(reference["apiGroup"], f"{path}.apiGroup")
    for name in ("kind", "name"):
        value = reference.get(name, "")
        if not value:
            errors.append(required(f"{path}.{name}", f"{name} is required"))
        else:
            errors += check_each(f"{path}.{name}", value, is_path_segment_name(value))
    return errors


def _backend(backend: Mapping[str, Any], path: str, version: _Version) -> Errors:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        return [invalid(path, "", "cannot set both resource and service backends")]
    if resource is not None:
        return _object_reference(resource, f"{path}.resource")
    if service is None:
        return [invalid(path, "", "resource or service backend is required")]
    name, port = service.get("name", ""), service.get("port") or {}
    where = f"{path}.{version.service_name}"
    rule = name_is_dns_label if version.relaxed_names else name_is_dns1035_label
    errors = check_each(where, name, rule(name, False)) if name else [required(where)]
    port_name, number = port.get("name", ""), port.get("number", 0)
    if port_name and number:
        errors.append(invalid(path, "", "cannot set both port name & port number"))
    elif port_name:
        errors += check_each(
            f"{path}.{version.port_name}", port_name, is_valid_port_name(port_name)
        )
    elif number:
        errors += check_each(f"{path}.{version.port_number}", number, is_valid_port_num(number))
    else:
        errors.append(required(path, "port name or number is required"))
    return errors


def _path(entry: Mapping[str, Any], path: str, version: _Version) -> Errors:
    kind, text, where = entry.get("pathType"), entry.get("path", ""), f"{path}.path"
    if kind is None:
        return [required(f"{path}.pathType", "pathType must be specified")]
    errors: Errors = []
    if kind not in _PATH_TYPES:
        errors.append(not_supported(f"{path}.pathType", kind, _PATH_TYPES))
    else:
        strict = kind != "ImplementationSpecific"
        if (strict or text) and not text.startswith("/"):
            errors.append(invalid(where, text, "must be an absolute path"))
        if strict:
            errors += [
                invalid(where, text, f"must not contain '{part}'")
                for part in _BAD_SEQUENCES
                if part in text
            ]
            errors += [
                invalid(where, text, f"cannot end with '{end}'")
                for end in _BAD_SUFFIXES
                if text.endswith(end)
            ]
    return errors + _backend(entry.get("backend") or {}, f"{path}.backend", version)


def _rule_value(rule: Mapping[str, Any], path: str, version: _Version) -> Errors:
    http = rule.get("http")
    if http is None:
        return []
    paths = http.get("paths") or ()
    errors = [] if paths else [required(f"{path}.http.paths")]
    for i, entry in enumerate(paths):
        errors += _path(entry, f"{path}.http.paths[{i}]", version)
    return errors


def _rules(
    rules: Sequence[Mapping[str, Any]], version: _Version, allow_invalid_wildcards: bool
) -> Errors:
    errors: Errors = []
    for i, rule in enumerate(rules):
        host, path = rule.get("host", ""), f"spec.rules[{i}]"
        if host:
            if parse_ip(host) is not None:
                errors.append(
                    invalid(f"{path}.host", host, "must be a DNS name, not an IP address")
                )
            errors += check_each(f"{path}.host", host, _host(host))
        if not (allow_invalid_wildcards and "*" in host):
            errors += _rule_value(rule, path, version)
    return errors


def _tls(entries: Sequence[Mapping[str, Any]], allow_invalid_secrets: bool) -> Errors:
    errors: Errors = []
    for i, entry in enumerate(entries):
        path, secret = f"spec.tls[{i}]", entry.get("secretName", "")
        for j, host in enumerate(entry.get("hosts") or ()):
            errors += check_each(f"{path}.hosts[{j}]", host, _host(host))
        if not allow_invalid_secrets:
            errors += check_each(f"{path}.secretName", secret, _secret_name(secret))
    return errors


def _ingress(ingress: Object, version: _Version, old: Mapping[str, Any]) -> Errors:
    """`old` is the spec before an update: its existing errors are ignored."""
    spec = ingress.get("spec") or {}
    rules, backend, name = (
        spec.get("rules") or (),
        spec.get("defaultBackend"),
        spec.get("ingressClassName"),
    )
    allow_invalid_secrets = version.lenient or any(
        _secret_name(entry.get("secretName", "")) for entry in old.get("tls") or ()
    )
    allow_invalid_wildcards = version.lenient or any(
        "*" in rule.get("host", "") and _rule_value(rule, "", version)
        for rule in old.get("rules") or ()
    )
    errors = validate_object_meta(ingress["metadata"], True, name_is_dns_subdomain)
    if not rules and backend is None:
        errors.append(
            invalid(
                "spec",
                GoText("[]networking.IngressRule(nil)", "null"),
                f"either `{version.backend}` or `rules` must be specified",
            )
        )
    if backend is not None:
        errors += _backend(backend, f"spec.{version.backend}", version)
    errors += _rules(rules, version, allow_invalid_wildcards) + _tls(
        spec.get("tls") or (), allow_invalid_secrets
    )
    return errors + (dns_subdomain(name, "spec.ingressClassName") if name is not None else [])


def validate_ingress_create(
    version: _Version, ingress: Object, *, same_class: bool = False
) -> Errors:
    """`same_class`: the annotation may have the same class as the field."""
    errors = _ingress(ingress, version, {})
    annotation = (ingress["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    name = (ingress.get("spec") or {}).get("ingressClassName")
    if annotation is None or name is None or (same_class and annotation == name):
        return errors
    text = "can not be set when the class field is also set"
    if same_class:
        text = "must match `ingressClassName` when both are specified"
    return [*errors, invalid(f"annotations.{CLASS_ANNOTATION}", annotation, text)]


def validate_ingress_update(version: _Version, new: Object, old: Object) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    return errors + _ingress(new, version, old.get("spec") or {})


def validate_ingress_status_update(new: Object, old: Object) -> Errors:
    status = (new.get("status") or {}).get("loadBalancer") or {}
    return validate_object_meta_update(new["metadata"], old["metadata"]) + load_balancer_status(
        status, "status.loadBalancer"
    )


def _update_ingress_status_of(features: FeatureSet, new: Object, old: Object) -> Errors:
    """Addresses of the stored object stay valid."""
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    strict = features.enabled(STRICT_ADDRESSES)
    ingress, known = (
        ((each.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
        for each in (new, old)
    )
    stored = [each["ip"] for each in known if each.get("ip")]
    for i, each in enumerate(ingress):
        path = f"status.loadBalancer.ingress[{i}]"
        errors += check_load_balancer_ingress(each, path, stored, strict=strict, modes=False)
    return errors


def _parameters_scope(parameters: Mapping[str, Any] | None) -> Errors:
    if parameters is None:
        return []
    path, scopes = "spec.parameters", ("Cluster", "Namespace")
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        return [required(f"{path}.scope")]
    if scope not in scopes:
        return [not_supported(f"{path}.scope", scope, scopes)]
    if scope == "Cluster":
        text = "`parameters.scope` is set to 'Cluster'"
        return [] if namespace is None else [forbidden(f"{path}.namespace", text)]
    if namespace is None:
        return [required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")]
    return check_each(f"{path}.namespace", namespace, name_is_dns_label(namespace, False))


def _ingress_class_rules(features: FeatureSet) -> ValidationRules:
    if not features.enabled("IngressClassNamespacedParams"):
        return ValidationRules(validate_ingress_class, validate_ingress_class_update)

    def create(obj: Object) -> Errors:
        parameters = (obj.get("spec") or {}).get("parameters")
        return validate_ingress_class(obj) + _parameters_scope(parameters)

    def update(new: Object, old: Object) -> Errors:
        parameters = (new.get("spec") or {}).get("parameters")
        return validate_ingress_class_update(new, old) + _parameters_scope(parameters)

    return ValidationRules(create, update)


def validate_ingress_class(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    controller, path = spec.get("controller", ""), "spec.controller"
    errors = validate_object_meta(obj["metadata"], False, name_is_dns_subdomain)
    if byte_len(controller) > 250:
        errors.append(too_long(path, controller, 250))
    if not controller:
        errors.append(required(path))
    else:
        errors += [invalid(path, part, text) for part, text in domain_prefixed_path(controller)]
    return errors + _object_reference(spec.get("parameters"), "spec.parameters")


def validate_ingress_class_update(new: Object, old: Object) -> Errors:
    controller = (new.get("spec") or {}).get("controller", "")
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    errors += immutable(
        controller, (old.get("spec") or {}).get("controller", ""), "spec.controller"
    )
    return errors + validate_ingress_class(new)


class PolicyOptions(NamedTuple):
    """What the rules of network policies depend on."""

    end_ports: bool = False
    legacy_cidrs: bool = False  # errors of CIDRs are those of all legacy fields
    strict: bool = False
    known: tuple[str, ...] = ()  # CIDRs of the stored object, which stay valid


_BASE_POLICY = PolicyOptions()


def _legacy_block(block: Mapping[str, Any], path: str, options: PolicyOptions) -> Errors:
    cidr = block.get("cidr", "")
    if not cidr:
        return [required(f"{path}.cidr")]
    errors = legacy_cidr(cidr, f"{path}.cidr", strict=options.strict, old=options.known)
    parsed = parse_cidr(cidr)
    if parsed is None:
        return errors
    outer = parsed[1]
    for i, text in enumerate(block.get("except") or ()):
        where, inner = f"{path}.except[{i}]", parse_cidr(text)
        errors += legacy_cidr(text, where, strict=options.strict, old=options.known)
        if inner is None:
            continue
        if inner[1].network_address not in outer or outer.prefixlen >= inner[1].prefixlen:
            errors.append(invalid(where, text, "must be a strict subset of `cidr`"))
    return errors


def _ip_block(block: Mapping[str, Any], path: str, options: PolicyOptions) -> Errors:
    if options.legacy_cidrs:
        return _legacy_block(block, path, options)
    cidr = block.get("cidr", "")
    if not cidr:
        return [required(f"{path}.cidr")]
    parsed = parse_cidr(cidr)
    if parsed is None:
        return [invalid(f"{path}.cidr", cidr, "not a valid CIDR")]
    outer = parsed[1]
    errors: Errors = []
    for i, text in enumerate(block.get("except") or ()):
        where, inner = f"{path}.except[{i}]", parse_cidr(text)
        if inner is None:
            return [*errors, invalid(where, text, "not a valid CIDR")]
        if inner[1].network_address not in outer or outer.prefixlen >= inner[1].prefixlen:
            errors.append(invalid(where, text, "must be a strict subset of `cidr`"))
    return errors


def _peer(peer: Mapping[str, Any], path: str, options: PolicyOptions) -> Errors:
    errors: Errors = []
    selectors = [
        name for name in ("podSelector", "namespaceSelector") if peer.get(name) is not None
    ]
    for name in selectors:
        errors += validate_label_selector(peer[name], f"{path}.{name}")
    block = peer.get("ipBlock")
    if block is not None:
        errors += _ip_block(block, f"{path}.ipBlock", options)
        if selectors:
            errors.append(forbidden(path, "may not specify both ipBlock and another peer"))
    elif not selectors:
        errors.append(required(path, "must specify a peer"))
    return errors


def _end_port(port: Mapping[str, Any], path: str) -> Errors:
    first, last = port.get("port"), port.get("endPort")
    if last is None:
        return []
    path = f"{path}.endPort"
    if first is None:
        return [invalid(path, last, "may not be specified when `port` is not specified")]
    if isinstance(first, str):
        return [invalid(path, last, "may not be specified when `port` is non-numeric")]
    errors = []
    if last < first:
        errors.append(invalid(path, first, "must be greater than or equal to `port`"))
    return errors + check_each(path, last, is_valid_port_num(last))


def _policy_port(port: Mapping[str, Any], path: str, options: PolicyOptions) -> Errors:
    errors: Errors = []
    protocol = port.get("protocol")
    if protocol is not None and protocol not in _PROTOCOLS:
        errors.append(not_supported(f"{path}.protocol", protocol, _PROTOCOLS))
    last = _end_port(port, path) if options.end_ports else []
    if port.get("port") is None:
        return errors + last
    first = port_num_or_name(port["port"], f"{path}.port")
    return errors + (last + first if isinstance(port["port"], str) else first + last)


def _policy_spec(obj: Object, options: PolicyOptions) -> Errors:
    spec = obj.get("spec") or {}
    errors = validate_label_selector(spec.get("podSelector"), "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for i, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{i}]"
            for j, port in enumerate(rule.get("ports") or ()):
                errors += _policy_port(port, f"{path}.ports[{j}]", options)
            for j, peer in enumerate(rule.get(peers) or ()):
                errors += _peer(peer, f"{path}.{peers}[{j}]", options)
    types = spec.get("policyTypes") or ()
    if len(types) > 2:
        shown = go_dump("[]networking.PolicyType", types)
        return [
            *errors,
            invalid("spec.policyTypes", shown, "may not specify more than two policyTypes"),
        ]
    return errors + [
        not_supported(f"spec.policyTypes[{i}]", kind, ("Ingress", "Egress"))
        for i, kind in enumerate(types)
        if kind not in ("Ingress", "Egress")
    ]


def validate_network_policy(obj: Object, options: PolicyOptions = _BASE_POLICY) -> Errors:
    errors = validate_object_meta(obj["metadata"], True, name_is_dns_subdomain)
    return errors + _policy_spec(obj, options)


def validate_network_policy_update(
    new: Object, old: Object, options: PolicyOptions = _BASE_POLICY
) -> Errors:
    options = options._replace(known=tuple(_stored_cidrs(old)))
    errors = validate_network_policy(new, options) + validate_object_meta_update(
        new["metadata"], old["metadata"]
    )
    return errors + _policy_spec(new, options)


def _stored_cidrs(policy: Object) -> Iterator[str]:
    spec = policy.get("spec") or {}
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(direction) or ():
            for peer in rule.get(peers) or ():
                block = peer.get("ipBlock") or {}
                yield block.get("cidr", "")
                yield from block.get("except") or ()


def _policy_rules(features: FeatureSet) -> ValidationRules:
    options = PolicyOptions(
        features.enabled("NetworkPolicyEndPort"),
        has_behaviour(features.release, "PolicyCidrErrors"),
        features.enabled(STRICT_ADDRESSES),
    )
    return ValidationRules(
        partial(validate_network_policy, options=options),
        partial(validate_network_policy_update, options=options),
    )


def _ingress_rules(version: _Version, features: FeatureSet) -> ValidationRules:
    version = version._replace(relaxed_names=features.enabled("RelaxedServiceNameValidation"))
    same_class = has_behaviour(features.release, "SameIngressClass")
    status_update: Update = validate_ingress_status_update
    if has_behaviour(features.release, "LegacyAddressErrors"):
        status_update = partial(_update_ingress_status_of, features)
    return ValidationRules(
        partial(validate_ingress_create, version, same_class=same_class),
        partial(validate_ingress_update, version),
        status_update,
    )


VALIDATORS: Mapping[str, RulesFactory] = {
    "networking.k8s.io/Ingress": partial(_ingress_rules, _V1),
    "networking.k8s.io/Ingress@networking.k8s.io/v1beta1": partial(_ingress_rules, _BETA),
    "networking.k8s.io/Ingress@extensions/v1beta1": partial(_ingress_rules, _BETA),
    "networking.k8s.io/IngressClass": _ingress_class_rules,
    "networking.k8s.io/NetworkPolicy": _policy_rules,
}
