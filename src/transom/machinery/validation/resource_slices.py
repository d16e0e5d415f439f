"""ResourceSlice, which drivers publish, and DeviceTaintRule (resource.k8s.io)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from transom.machinery.field import (
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_long,
    too_many,
)
from transom.machinery.quantity import Quantity, parse_quantity
from transom.machinery.releases.features import FeatureSet
from transom.machinery.resourcenames import is_native_resource
from transom.machinery.schema import schema_table
from transom.machinery.validation.checks import (
    check_each,
    csi_driver_name,
    dns_label,
    dns_subdomain,
)
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.internal_dump import dump_internal
from transom.machinery.validation.meta import (
    immutable,
    validate_conditions,
    validate_label_name,
    validate_object_meta,
    validate_object_meta_update,
)
from transom.machinery.validation.names import byte_len, is_label_value, name_is_dns_subdomain
from transom.machinery.validation.resource import (
    TAINT_EFFECTS,
    binding_conditions,
    check_items,
    check_set,
    item_name,
    pool_name,
    qualified_device_name,
)
from transom.machinery.validation.rules import Errors, Object, RulesFactory, ValidationRules
from transom.machinery.validation.scheduling import check_node_selector

_DEVICES: Final = 128
_ADVANCED_DEVICES: Final = 64  # with taints, counters or lists
_COUNTER_SETS: Final = 8
_COUNTERS: Final = 32
_CONSUMPTIONS: Final = 2
_ENTRIES: Final = 32
_VALUES: Final = 48
_TAINTS: Final = 16
_OPTIONS: Final = 10
_MAX_VALUE: Final = 64
_MAX_KEY: Final = 63 + 1 + 32
_RULE_CONDITIONS: Final = 8
_ONE_PLACE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
_ONE_DEVICE_PLACE: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
    "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
_LISTS: Final = ("bools", "ints", "strings", "versions")
_ATTRIBUTE_FIELDS: Final = ("bool", "int", "string", "version", *_LISTS)
_NUMBER: Final = r"(0|[1-9][0-9]*)"
_PRERELEASE: Final = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD: Final = r"[0-9a-zA-Z-]+"
_is_semver = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?"
).fullmatch


def _shown_key(key: str, limit: int) -> str:
    """Long keys are shortened in the middle."""
    limit = max(limit, 16)
    if len(key) <= limit:
        return key
    left = limit - 3
    return key[: (left + 1) // 2] + "..." + key[len(key) - left // 2 :]


def _check_map(
    values: Mapping[str, Any] | None,
    path: str,
    key_limit: int,
    check_key: Callable[[str, str], Errors],
    check_value: Callable[[Any, str], Errors],
) -> Errors:
    errors: Errors = []
    for key in sorted(values or {}):
        errors += check_key(key, path)
        errors += check_value((values or {})[key], f"{path}[{_shown_key(key, key_limit)}]")
    return errors


def _accept(_value: Any, _path: str) -> Errors:
    return []


def _counters(holder: Mapping[str, Any], path: str) -> Errors:
    counters, where = holder.get("counters") or {}, f"{path}.counters"
    if not counters:
        return [required(where)]
    if len(counters) > _COUNTERS:
        return [too_many(where, len(counters), _COUNTERS)]
    return _check_map(counters, where, 63, dns_label, _accept)


def _counter_name(name: str, path: str) -> Errors:
    return dns_label(name, path) if name else [required(path)]


def _counter_set(counter_set: Mapping[str, Any], path: str) -> Errors:
    return _counter_name(item_name(counter_set), f"{path}.name") + _counters(counter_set, path)


def _consumption(consumption: Mapping[str, Any], path: str) -> Errors:
    name = consumption.get("counterSet", "")
    return _counter_name(name, f"{path}.counterSet") + _counters(consumption, path)


def _text_value(value: str, path: str) -> Errors:
    return [too_long(path, "", _MAX_VALUE)] if byte_len(value) > _MAX_VALUE else []


def _version_value(value: str, path: str) -> Errors:
    errors = []
    if not _is_semver(value):
        errors.append(
            invalid(path, value, "must be a string compatible with semver.org spec 2.0.0")
        )
    return errors + _text_value(value, path)


def _node_name(name: str, path: str) -> Errors:
    return dns_subdomain(name, path)


def _places(
    holder: Mapping[str, Any], path: str, empty: str, flags: Sequence[str]
) -> tuple[list[str], Errors]:
    """The fields that say which nodes have the devices, and what is wrong with them."""
    chosen: list[str] = []
    errors: Errors = []
    name = holder.get("nodeName")
    if name:
        chosen.append("`nodeName`")
        errors += _node_name(name, f"{path}.nodeName")
    elif name is not None:
        errors.append(invalid(f"{path}.nodeName", name, empty))
    selector = holder.get("nodeSelector")
    if selector is not None:
        chosen.append("`nodeSelector`")
        check_node_selector(selector, f"{path}.nodeSelector", errors, values=True)
    for flag in flags:
        value = holder.get(flag)
        if value:
            chosen.append(f"`{flag}`")
        elif value is not None:
            text = "must be either unset or set to true"
            errors.append(invalid(f"{path}.{flag}", value, text))
    return chosen, errors


def validate_device_taint(
    taint: Mapping[str, Any], path: str, *, old: Mapping[str, Any] | None = None
) -> Errors:
    errors = validate_label_name(taint.get("key", ""), f"{path}.key")
    value, effect = taint.get("value", ""), taint.get("effect", "")
    if value:
        errors += check_each(f"{path}.value", value, is_label_value(value))
    if old is None or old.get("effect", "") != effect:
        if not effect:
            errors.append(required(f"{path}.effect"))
        elif effect not in TAINT_EFFECTS:
            errors.append(not_supported(f"{path}.effect", effect, TAINT_EFFECTS))
    return errors


class _SliceChecks:
    def __init__(self, features: FeatureSet) -> None:
        self._features = features

    def spec(self, spec: Mapping[str, Any], old: Mapping[str, Any] | None) -> Errors:
        errors = csi_driver_name(spec.get("driver", ""), "spec.driver")
        errors += _pool(spec.get("pool") or {}, "spec.pool")
        if old is not None:
            errors += _immutable_fields(spec, old)
        chosen, wrong = _places(
            spec,
            "spec",
            "must be either unset or set to a non-empty string",
            ("allNodes", "perDeviceNodeSelection"),
        )
        terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
        if spec.get("nodeSelector") is not None and len(terms) != 1:
            wrong.append(
                invalid(
                    "spec.nodeSelector.nodeSelectorTerms",
                    go_dump("[]core.NodeSelectorTerm", terms),
                    "must have exactly one node selector term",
                )
            )
        errors += wrong
        if not chosen:
            errors.append(required("spec", _ONE_PLACE))
        elif len(chosen) > 1:
            shown = "{" + ", ".join(chosen) + "}"
            errors.append(invalid("spec", shown, f"{_ONE_PLACE}, but multiple fields are set"))
        devices, shared = spec.get("devices"), spec.get("sharedCounters")
        if devices is not None and shared is not None:
            errors.append(
                invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
            )
        before = {item_name(device): device for device in (old or {}).get("devices") or ()}
        check = partial(
            self.device, before=before, per_device=bool(spec.get("perDeviceNodeSelection"))
        )
        most = _ADVANCED_DEVICES if any(map(_is_advanced, devices or ())) else _DEVICES
        errors += check_set(devices, "spec.devices", check, most, item_name)
        return errors + check_set(
            shared, "spec.sharedCounters", _counter_set, _COUNTER_SETS, item_name
        )

    def device(
        self,
        device: Mapping[str, Any],
        path: str,
        *,
        before: Mapping[str, Mapping[str, Any]],
        per_device: bool,
    ) -> Errors:
        errors = dns_label(item_name(device), f"{path}.name")
        attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
        count = len(attributes) + len(capacity)
        if count > _ENTRIES:
            text = f"the total number of attributes and capacities must not exceed {_ENTRIES}"
            errors.append(invalid(path, count, text))
        values = sum(_value_count(attribute) for attribute in attributes.values())
        if values > _VALUES:
            text = f"the total number of attribute values must not exceed {_VALUES}"
            errors.append(invalid(path, values, text))
        errors += _check_map(
            attributes, f"{path}.attributes", _MAX_KEY, qualified_device_name, self.attribute
        )
        shared = bool(device.get("allowMultipleAllocations"))
        errors += _check_map(
            capacity,
            f"{path}.capacity",
            _MAX_KEY,
            qualified_device_name,
            _shared_capacity if shared else _capacity,
        )
        old = before.get(item_name(device))
        if old is None or old.get("taints") != device.get("taints"):
            errors += check_items(
                device.get("taints"), f"{path}.taints", validate_device_taint, _TAINTS
            )
        errors += check_set(
            device.get("consumesCounters"),
            f"{path}.consumesCounters",
            _consumption,
            _CONSUMPTIONS,
            lambda item: item.get("counterSet", ""),
        )
        errors += _device_place(device, path, per_device)
        errors += binding_conditions(device, path)
        return errors + _resource_mappings(device, path)

    def attribute(self, attribute: Mapping[str, Any], path: str) -> Errors:
        errors: Errors = []
        if (text := attribute.get("string")) is not None:
            errors += _text_value(text, f"{path}.string")
        if (text := attribute.get("version")) is not None:
            errors += _version_value(text, f"{path}.version")
        for name in _LISTS:
            values = attribute.get(name)
            if values is None:
                continue
            if not values:
                shown = go_dump("[]string", values)
                errors.append(invalid(f"{path}.{name}", shown, "must not be empty if specified"))
            check = {"strings": _text_value, "versions": _version_value}.get(name, _accept)
            errors += check_items(values, f"{path}.{name}", check, None)
        count = sum(attribute.get(name) is not None for name in _ATTRIBUTE_FIELDS)
        text = "exactly one value must be specified"
        if count == 0:
            errors.append(invalid(path, "", text))
        elif count > 1:
            shown = dump_internal(
                schema_table(self._features.release).get("resource/v1.DeviceAttribute"), attribute
            )
            errors.append(invalid(path, shown, text))
        return errors


def _pool(pool: Mapping[str, Any], path: str) -> Errors:
    errors = pool_name(pool.get("name", ""), f"{path}.name")
    count, generation = pool.get("resourceSliceCount", 0), pool.get("generation", 0)
    if count <= 0:
        errors.append(invalid(f"{path}.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        text = "must be greater than or equal to zero"
        errors.append(invalid(f"{path}.generation", generation, text))
    return errors


def _immutable_fields(spec: Mapping[str, Any], old: Mapping[str, Any]) -> Errors:
    pool, before = spec.get("pool") or {}, old.get("pool") or {}
    errors = immutable(pool.get("name", ""), before.get("name", ""), "spec.pool.name")
    errors += immutable(spec.get("driver", ""), old.get("driver", ""), "spec.driver")
    return errors + immutable(spec.get("nodeName"), old.get("nodeName"), "spec.nodeName")


def _is_advanced(device: Mapping[str, Any]) -> bool:
    if device.get("taints") or device.get("consumesCounters"):
        return True
    attributes = (device.get("attributes") or {}).values()
    return any(attribute.get(name) is not None for attribute in attributes for name in _LISTS)


def _value_count(attribute: Mapping[str, Any]) -> int:
    return sum(len(attribute.get(name) or ()) for name in _LISTS) or 1


def _device_place(device: Mapping[str, Any], path: str, per_device: bool) -> Errors:
    if not per_device:
        if all(device.get(name) is None for name in ("nodeName", "nodeSelector", "allNodes")):
            return []
        text = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if "
            "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        )
        return [invalid(path, None, text)]
    chosen, errors = _places(device, path, "must not be empty", ("allNodes",))
    if not chosen:
        errors.append(required(path, _ONE_DEVICE_PLACE))
    elif len(chosen) > 1:
        errors.append(invalid(path, "{" + ", ".join(chosen) + "}", _ONE_DEVICE_PLACE))
    return errors


def _resource_mappings(device: Mapping[str, Any], path: str) -> Errors:
    errors: Errors = []
    mappings = device.get("nodeAllocatableResourceMappings") or {}
    for name in sorted(mappings):
        mapping, where = mappings[name], f"{path}.nodeAllocatableResourceMappings[{name}]"
        multiplier, key = mapping.get("allocationMultiplier"), mapping.get("capacityKey")
        if not is_native_resource(name):
            errors.append(invalid(where, name, "must be a node allocatable resource name"))
        if multiplier is None and key is None:
            text = "at least one of allocationMultiplier or capacityKey must be set"
            errors.append(invalid(where, "", text))
        if multiplier is not None and parse_quantity(multiplier) <= parse_quantity("0"):
            errors.append(
                invalid(f"{where}.allocationMultiplier", str(multiplier), "must be positive")
            )
        if key == "":
            text = "capacityKey must not be an empty string"
            errors.append(invalid(f"{where}.capacityKey", "", text))
        elif key is not None and key not in (device.get("capacity") or {}):
            errors.append(not_found(f"{where}.capacityKey", key))
    return errors


# ---- capacities that several claims share ----


def _capacity(capacity: Mapping[str, Any], path: str) -> Errors:
    if capacity.get("requestPolicy") is None:
        return []
    return [forbidden(f"{path}.requestPolicy", "allowMultipleAllocations must be true")]


def _shared_capacity(capacity: Mapping[str, Any], path: str) -> Errors:
    policy = capacity.get("requestPolicy")
    if policy is None:
        return []
    path = f"{path}.requestPolicy"
    values, span = policy.get("validValues") or (), policy.get("validRange")
    if values and span is not None:
        text = (
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" '
            "at the same time"
        )
        return [forbidden(path, text)]
    if not values and span is None:
        return []
    name = "validValues" if values else "validRange"
    if policy.get("default") is None:
        return [required(f"{path}.default", f"required when {name} is defined")]
    default = parse_quantity(policy["default"])
    most = parse_quantity(capacity.get("value", "0"))
    if values:
        return _valid_values([parse_quantity(v) for v in values], default, most, f"{path}.{name}")
    return _valid_range(span, default, most, f"{path}.{name}")


def _valid_values(
    values: Sequence[Quantity], default: Quantity, most: Quantity, path: str
) -> Errors:
    errors = [
        invalid(f"{path}[{i + 1}]", str(values[i + 1]), "values must be sorted in ascending order")
        for i in range(len(values) - 1)
        if values[i] > values[i + 1]
    ]

    def check(value: Quantity, where: str) -> Errors:
        if value <= most:
            return []
        return [invalid(where, str(value), f"option is larger than capacity value: {most}")]

    errors += check_set(values, path, check, _OPTIONS, lambda value: str(value.value()))
    if len(values) > _OPTIONS or all(value != default for value in values):
        text = "default value is not valid according to the requestPolicy"
        errors.append(invalid(path, str(default), text))
    return errors


def _valid_range(span: Mapping[str, Any], default: Quantity, most: Quantity, path: str) -> Errors:
    if span.get("min") is None:
        return [required(f"{path}.min", "required when validRange is defined")]
    low = parse_quantity(span["min"])
    high = None if span.get("max") is None else parse_quantity(span["max"])
    errors: Errors = []
    if low > most:
        text = f"min is larger than capacity value: {most}"
        errors.append(invalid(f"{path}.min", str(low), text))
    if default < low:
        errors.append(invalid(f"{path}.min", str(default), f"default is less than min: {low}"))
    if high is not None:
        if low > high:
            errors.append(invalid(f"{path}.max", str(low), f"min is larger than max: {high}"))
        if high > most:
            text = f"max is larger than capacity value: {most}"
            errors.append(invalid(f"{path}.max", str(high), text))
        if default > high:
            errors.append(invalid(f"{path}.max", str(default), f"default is more than max: {high}"))
    if span.get("step") is not None:
        errors += _step(parse_quantity(span["step"]), (default, low, high), most, f"{path}.step")
    return errors


def _step(
    step: Quantity, bounds: tuple[Quantity, Quantity, Quantity | None], most: Quantity, path: str
) -> Errors:
    default, low, high = bounds
    errors: Errors = []
    first = low + step
    if first > most:
        text = f"one step {first} is larger than capacity value: {most}"
        errors.append(invalid(path, str(step), text))
    for value in (default, high):
        if value is None or step.value() == 0:
            continue
        if (value.value() - low.value()) % step.value():
            text = f"value is not a multiple of a given step ({step}) from ({low})"
            errors.append(invalid(path, str(value), text))
    return errors


# ---- the kinds ----


def _slice_rules(features: FeatureSet) -> ValidationRules:
    checks = _SliceChecks(features)

    def create(obj: Object) -> Errors:
        errors = validate_object_meta(obj["metadata"], False, name_is_dns_subdomain)
        return errors + checks.spec(obj.get("spec") or {}, None)

    def update(new: Object, old: Object) -> Errors:
        errors = validate_object_meta_update(new["metadata"], old["metadata"])
        return errors + checks.spec(new.get("spec") or {}, old.get("spec") or {})

    return ValidationRules(create, update)


def _taint_rule(obj: Object, old: Object | None = None) -> Errors:
    spec = obj.get("spec") or {}
    selector = spec.get("deviceSelector") or {}
    path = "spec.deviceSelector"
    errors: Errors = []
    for name, check in (("driver", csi_driver_name), ("pool", pool_name), ("device", dns_label)):
        if selector.get(name) is not None:
            errors += check(selector[name], f"{path}.{name}")
    before = None if old is None else (old.get("spec") or {}).get("taint") or {}
    return errors + validate_device_taint(spec.get("taint") or {}, "spec.taint", old=before)


def _create_taint_rule(obj: Object) -> Errors:
    return validate_object_meta(obj["metadata"], False, name_is_dns_subdomain) + _taint_rule(obj)


def _update_taint_rule(new: Object, old: Object) -> Errors:
    return validate_object_meta_update(new["metadata"], old["metadata"]) + _taint_rule(new, old)


def _update_taint_rule_status(new: Object, old: Object) -> Errors:
    conditions = (new.get("status") or {}).get("conditions") or ()
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    errors += validate_conditions(conditions, "status.conditions")
    if len(conditions) > _RULE_CONDITIONS:
        errors.append(too_many("status.conditions", len(conditions), _RULE_CONDITIONS))
    return errors


VALIDATORS: Final[dict[str, RulesFactory]] = {
    "resource.k8s.io/ResourceSlice": _slice_rules,
    "resource.k8s.io/DeviceTaintRule": lambda _features: ValidationRules(
        _create_taint_rule, _update_taint_rule, _update_taint_rule_status
    ),
}
