"""Node, Lease, RuntimeClass and PriorityClass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_pattern
from transom.machinery.field import (
    FieldError,
    duplicate,
    forbidden,
    internal_error,
    invalid,
    required,
)
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.addresses import STRICT_ADDRESSES, legacy_cidr
from transom.machinery.validation.checks import (
    check_each,
    dns_label,
    dns_subdomain,
    one_of,
    parse_json,
)
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import (
    immutable,
    validate_any_object_meta,
    validate_any_object_meta_update,
    validate_label_name,
    validate_labels,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import (
    DNS1123_SUBDOMAIN_MAX,
    byte_len,
    is_config_map_key,
    is_label_value,
    name_is_dns_label,
    name_is_dns_subdomain,
    parse_cidr,
)
from transom.machinery.validation.podoptions import BASE_OPTIONS, PodOptions, pod_options
from transom.machinery.validation.repetitions import repetitions
from transom.machinery.validation.resources import (
    check_resource_quantity,
    check_resource_requirements,
)
from transom.machinery.validation.rules import Errors, Object, RulesFactory, ValidationRules
from transom.machinery.validation.scheduling import TAINT_EFFECTS, check_tolerations

TAINTS_ANNOTATION = "scheduler.alpha.kubernetes.io/taints"
AVOID_PODS_ANNOTATION = "scheduler.alpha.kubernetes.io/preferAvoidPods"
SYSTEM_PRIORITIES = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
HIGHEST_USER_PRIORITY = 1000000000
_CIDR_CHANGE = 'node updates may not change podCIDR except from "" to valid'


def _taints(taints: Sequence[Mapping[str, Any]], path: str) -> Errors:
    errors: Errors = []
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(taints):
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        errors += validate_label_name(key, f"{path}[{i}].key")
        if messages := is_label_value(value):
            errors.append(invalid(f"{path}[{i}].value", value, ";".join(messages)))
        errors += one_of(effect, f"{path}[{i}].effect", TAINT_EFFECTS)
        if (key, effect) in seen:
            errors.append(
                FieldError(
                    "Duplicate",
                    f"{path}[{i}]",
                    go_dump("core.Taint", taint),
                    "taints must be unique by key and effect pair",
                )
            )
        seen.add((key, effect))
    return errors


def _annotations(meta: Mapping[str, Any]) -> Errors:
    annotations = meta.get("annotations")
    if not annotations:
        return []
    errors: Errors = []
    path = "metadata.annotations"
    if text := annotations.get(TAINTS_ANNOTATION):
        taints, problem = parse_json(text.encode(), list, "[]core.Taint")
        if problem:
            errors.append(invalid(path, TAINTS_ANNOTATION, problem))
        else:
            errors += _taints(taints or (), f"{path}.{TAINTS_ANNOTATION}")
    if text := annotations.get(AVOID_PODS_ANNOTATION):
        avoids, problem = parse_json(text.encode(), dict, "v1.AvoidPods")
        if problem:
            errors.append(invalid(f"{path}.AvoidPods", AVOID_PODS_ANNOTATION, problem))
        for i, entry in enumerate((avoids or {}).get("preferAvoidPods") or ()):
            signature = f"{path}.{AVOID_PODS_ANNOTATION}[{i}].PodSignature"
            owner = (entry.get("podSignature") or {}).get("podController")
            if owner is None:
                errors.append(required(signature))
            elif not owner.get("controller"):
                errors.append(
                    invalid(
                        f"{signature}.PodController.Controller", False, "must point to a controller"
                    )
                )
    return errors


def _resources(node: Object) -> Errors:
    errors: Errors = []
    status = node.get("status") or {}
    for name in ("capacity", "allocatable"):
        for resource, text in (status.get(name) or {}).items():
            check_resource_quantity(resource, text, f"status.{name}.{resource}", errors)
    return errors


def _pod_cidrs(cidrs: Sequence[str]) -> Errors:
    if not cidrs:
        return []
    path, shown = "spec.podCIDRs", go_dump("[]string", cidrs)
    parsed = [parse_cidr(cidr) for cidr in cidrs]
    errors = [
        invalid(f"{path}[{i}]", shown, "must be valid CIDR")
        for i, net in enumerate(parsed)
        if net is None
    ]
    if len(cidrs) > 1:
        bad = next((cidr for cidr, net in zip(cidrs, parsed, strict=True) if net is None), None)
        if bad is not None:
            errors.append(
                internal_error(
                    path,
                    "invalid PodCIDRs. failed to check with dual stack with error:failed to "
                    "parse cidr value:"
                    f'"{bad}" with error:invalid CIDR address: {bad}',
                )
            )
        families = {net[1].version for net in parsed if net is not None}
        if bad is not None or len(families) < 2 or len(cidrs) > 2:
            errors.append(
                invalid(path, shown, "may specify no more than one CIDR for each IP family")
            )
        errors += [duplicate(f"{path}[{i}]", cidrs[i]) for i in sorted(repetitions(cidrs))]
    return errors


_FEATURE_NAME = lazy_pattern(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*\Z")


def _declared_features(node: Object) -> Errors:
    """Of the status, in releases that have them."""
    errors: Errors = []
    names = (node.get("status") or {}).get("declaredFeatures") or ()
    for i, name in enumerate(names):
        path, begin = f"status.declaredFeatures[{i}]", f"invalid feature name {go_quote(name)}: "
        if i and name == names[i - 1]:
            errors.append(duplicate(path, name))
        elif i and name < names[i - 1]:
            errors.append(invalid(path, name, "list must be sorted alphabetically"))
        if byte_len(name) > DNS1123_SUBDOMAIN_MAX:
            text = f"must be no more than {DNS1123_SUBDOMAIN_MAX} characters"
            errors.append(invalid(path, name, begin + text))
        elif not _FEATURE_NAME.match(name):
            text = (
                "must start with an UpperCamelCase segment, with subsequent segments separated by "
                "'/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric "
                "characters and slashes"
            )
            errors.append(invalid(path, name, begin + text))
    return errors


def validate_node(node: Object) -> Errors:
    spec = node.get("spec") or {}
    errors = validate_object_meta(node["metadata"], False, name_is_dns_subdomain) + _annotations(
        node["metadata"]
    )
    errors += _taints(spec.get("taints") or (), "metadata.taints") + _resources(node)
    errors += _declared_features(node)
    return errors + _pod_cidrs(spec.get("podCIDRs") or ())


def validate_node_update(new: Object, old: Object) -> Errors:
    return validate_node(new) + validate_node_status_update(new, old)


def validate_node_status_update(new: Object, old: Object) -> Errors:
    spec, before, status = new.get("spec") or {}, old.get("spec") or {}, new.get("status") or {}
    errors = validate_object_meta_update(new["metadata"], old["metadata"]) + _annotations(
        new["metadata"]
    )
    errors += _resources(new) + _declared_features(new)
    addresses = status.get("addresses") or ()
    repeated = repetitions(addresses)
    errors += [
        duplicate(f"status.addresses[{i}]", go_dump("core.NodeAddress", address))
        for i, address in enumerate(addresses)
        if i in repeated
    ]
    was, cidrs = before.get("podCIDRs") or (), spec.get("podCIDRs") or ()
    if was and len(was) != len(cidrs):
        errors.append(forbidden("spec.podCIDRs", _CIDR_CHANGE))
    elif was:
        errors += [
            forbidden("spec.podCIDRs", _CIDR_CHANGE)
            for a, b in zip(was, cidrs, strict=True)
            if a != b
        ]
    if before.get("providerID") and before["providerID"] != spec.get("providerID"):
        errors.append(
            forbidden(
                "spec.providerID", 'node updates may not change providerID except from "" to valid'
            )
        )
    if spec.get("configSource") is not None:
        errors += _config_source(spec["configSource"], "spec.configSource", in_spec=True)
    for name in ("assigned", "active", "lastKnownGood"):
        source = (status.get("config") or {}).get(name)
        if source is not None:
            errors += _config_source(source, f"status.config.{name}", in_spec=False)
    errors += _taints(spec.get("taints") or (), "metadata.taints")
    if spec.get("externalID", "") != before.get("externalID", ""):
        errors.append(forbidden("spec.externalID", "may not be updated"))
    return errors


def _config_source(source: Mapping[str, Any], path: str, *, in_spec: bool) -> Errors:
    config = source.get("configMap")
    if config is None:
        return [
            invalid(
                path,
                go_dump("core.NodeConfigSource", source),
                "exactly one reference subfield must be non-nil",
            )
        ]
    errors: Errors = []
    path += ".configMap"
    for name in ("uid", "resourceVersion"):
        if in_spec and config.get(name):
            errors.append(forbidden(f"{path}.{name}", f"{name} must not be set in spec"))
        elif not in_spec and not config.get(name):
            errors.append(required(f"{path}.{name}", f"{name} must be set in status"))
    for name, check in (("namespace", dns_label), ("name", dns_subdomain)):
        value = config.get(name, "")
        errors += (
            check(value, f"{path}.{name}")
            if value
            else [required(f"{path}.{name}", f"{name} must be set")]
        )
    key = config.get("kubeletConfigKey", "")
    if not key:
        errors.append(required(f"{path}.kubeletConfigKey", "kubeletConfigKey must be set"))
    else:
        errors += check_each(f"{path}.kubeletConfigKey", key, is_config_map_key(key))
    return errors


def _lease_spec(lease: Object) -> Errors:
    spec = lease.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    errors: Errors = []
    if duration is not None and duration <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        errors.append(
            invalid("spec.leaseTransitions", transitions, "must to greater or equal than 0")
        )
    return errors


def validate_lease(lease: Object) -> Errors:
    return validate_any_object_meta(lease["metadata"], True, name_is_dns_subdomain) + _lease_spec(
        lease
    )


def validate_lease_update(new: Object, old: Object) -> Errors:
    return validate_any_object_meta_update(new["metadata"], old["metadata"]) + _lease_spec(new)


def validate_runtime_class(obj: Object, options: PodOptions = BASE_OPTIONS) -> Errors:
    handler, overhead, scheduling = (
        obj.get("handler", ""),
        obj.get("overhead"),
        obj.get("scheduling"),
    )
    errors = validate_any_object_meta(obj["metadata"], False, name_is_dns_subdomain)
    errors += check_each("handler", handler, name_is_dns_label(handler, False))
    if overhead is not None:
        check_resource_requirements({"limits": overhead.get("podFixed")}, "overhead", errors)
    if scheduling is None:
        return errors
    errors += validate_labels(scheduling.get("nodeSelector"), "scheduling.nodeSelector")
    tolerations = scheduling.get("tolerations") or ()
    check_tolerations(tolerations, "scheduling.tolerations.tolerations", errors, options)
    seen: set[tuple[str, ...]] = set()
    for i, toleration in enumerate(tolerations):
        key = tuple(toleration.get(name, "") for name in ("key", "operator", "value", "effect"))
        if key in seen:
            errors.append(
                duplicate(f"scheduling.tolerations[{i}]", go_dump("core.Toleration", toleration))
            )
        seen.add(key)
    return errors


def _current_runtime_class(error: FieldError) -> FieldError:
    """The errors of 1.36: a missing handler is required, and tolerations have their own path."""
    if error.field == "handler" and error.value == "":
        return required("handler")
    doubled = "scheduling.tolerations.tolerations"
    if error.field.startswith(doubled):
        return error._replace(field="scheduling.tolerations" + error.field.removeprefix(doubled))
    return error


def _runtime_class_rules(features: FeatureSet) -> ValidationRules:
    # Features do not change which tolerations a class may have.
    options = pod_options(features)._replace(comparing_tolerations=False)
    create = partial(validate_runtime_class, options=options)
    update = partial(validate_runtime_class_update, options=options)
    if not has_behaviour(features.release, "RuntimeClassErrors"):
        return ValidationRules(create, update)
    return ValidationRules(
        lambda obj: [_current_runtime_class(e) for e in create(obj)],
        lambda new, old: [_current_runtime_class(e) for e in update(new, old)],
    )


def _legacy_pod_cidrs(features: FeatureSet, node: Object, old: Object | None) -> Errors:
    """CIDRs of pods with the errors of all legacy fields."""
    cidrs = (node.get("spec") or {}).get("podCIDRs") or ()
    known = ((old or {}).get("spec") or {}).get("podCIDRs") or ()
    strict = features.enabled(STRICT_ADDRESSES)
    errors: Errors = []
    for i, cidr in enumerate(cidrs):
        errors += legacy_cidr(cidr, f"spec.podCIDRs[{i}]", strict=strict, old=known)
    return errors


def _node_rules(features: FeatureSet) -> ValidationRules:
    if not has_behaviour(features.release, "PodCidrErrors"):
        return ValidationRules(validate_node, validate_node_update, validate_node_status_update)

    def create(node: Object) -> Errors:
        errors = [e for e in validate_node(node) if e.detail != "must be valid CIDR"]
        return errors + _legacy_pod_cidrs(features, node, None)

    return ValidationRules(create, validate_node_update, validate_node_status_update)


def validate_runtime_class_update(
    new: Object, old: Object, options: PodOptions = BASE_OPTIONS
) -> Errors:
    return (
        validate_runtime_class(new, options)
        + validate_any_object_meta_update(new["metadata"], old["metadata"])
        + immutable(new.get("handler", ""), old.get("handler", ""), "handler")
    )


def _system_priority(name: str, value: int, default: bool) -> str:
    """Why this is not one of the two system classes; empty if it is."""
    if name not in SYSTEM_PRIORITIES:
        return f"{name} is not a known system priority class"
    if value != SYSTEM_PRIORITIES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if default else ""


def validate_priority_class(obj: Object) -> Errors:
    name, value, policy = (
        obj["metadata"].get("name", ""),
        obj.get("value", 0),
        obj.get("preemptionPolicy"),
    )
    errors = validate_object_meta(obj["metadata"], False, name_is_dns_subdomain)
    if name.startswith("system-"):
        if problem := _system_priority(name, value, bool(obj.get("globalDefault"))):
            errors.append(
                forbidden(
                    "metadata.name",
                    (
                        "priority class names with 'system-' prefix are reserved for system use "
                        f"only. error: {problem}"
                    ),
                )
            )
    elif value > HIGHEST_USER_PRIORITY:
        errors.append(
            forbidden(
                "value",
                f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}",
            )
        )
    if policy is not None:
        errors += one_of(policy, "preemptionPolicy", ("PreemptLowerPriority", "Never"))
    return errors


def validate_priority_class_update(new: Object, old: Object) -> Errors:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    if new.get("value", 0) != old.get("value", 0):
        errors.append(forbidden("Value", "may not be changed in an update."))
    return errors + immutable(
        new.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy"
    )


VALIDATORS: Mapping[str, ValidationRules | RulesFactory] = {
    "/Node": _node_rules,
    "coordination.k8s.io/Lease": ValidationRules(validate_lease, validate_lease_update),
    "node.k8s.io/RuntimeClass": _runtime_class_rules,
    "scheduling.k8s.io/PriorityClass": ValidationRules(
        validate_priority_class, validate_priority_class_update
    ),
}
