"""The kinds of resource.k8s.io that ask for devices: classes, claims and their templates.

Objects have the shape of v1 (and v1beta2). `resource_slices` validates what drivers publish.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson

from transom.machinery.cel.devices import (
    MAX_DEVICE_EXPRESSION_BYTES,
    DeviceSelectorError,
    compile_device_selector,
)
from transom.machinery.field import (
    GoText,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.resourcenames import is_extended_resource_name
from transom.machinery.schema import schema_table
from transom.machinery.validation.addresses import interface_address
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
    validate_template_metadata,
)
from transom.machinery.validation.names import (
    byte_len,
    is_cidentifier,
    is_label_value,
    name_is_dns_subdomain,
)
from transom.machinery.validation.rules import Errors, Object, RulesFactory, ValidationRules
from transom.machinery.validation.scheduling import check_node_selector

_REQUESTS: Final = 32
_CONSTRAINTS: Final = 32
_CONFIGS: Final = 32
_SELECTORS: Final = 32
_ALTERNATIVES: Final = 8
_RESULTS: Final = 32
_CONSUMERS: Final = 256
_DEVICE_CONDITIONS: Final = 8
_NETWORK_ADDRESSES: Final = 16
_PARAMETERS: Final = 10 * 1024
_MAX_ID: Final = 32
_BINDING_CONDITIONS: Final = 4
_ONE_REQUEST: Final = "exactly one of `exactly` or `firstAvailable` is required"
_REQUEST_REFERENCE: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)
TAINT_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")

Item = Any
CheckItem = Callable[[Item, str], Errors]
RequestNames = Mapping[str, Collection[str]]


def check_items(
    items: Sequence[Item] | None, path: str, check: CheckItem, most: int | None
) -> Errors:
    """Each item, unless there are too many of them."""
    items = items or ()
    if most is not None and len(items) > most:
        return [too_many(path, len(items), most)]
    return [error for i, item in enumerate(items) for error in check(item, f"{path}[{i}]")]


def check_set(
    items: Sequence[Item] | None,
    path: str,
    check: CheckItem,
    most: int | None,
    key: Callable[[Item], Any] = lambda item: item,
) -> Errors:
    """Like `check_items`, and no two items may have the same key."""
    items = items or ()
    errors = check_items(items, path, check, most)
    if most is not None and len(items) > most:
        return errors
    seen = set()
    for i, item in enumerate(items):
        found = key(item)
        if found in seen:
            errors.append(duplicate(f"{path}[{i}]", found))
        seen.add(found)
    return errors


def item_name(item: Mapping[str, Any]) -> str:
    name: str = item.get("name", "")
    return name


def c_identifier(name: str, path: str) -> Errors:
    errors = [too_long(path, "", _MAX_ID)] if byte_len(name) > _MAX_ID else []
    return errors + check_each(path, name, is_cidentifier(name))


def qualified_device_name(name: str, path: str) -> Errors:
    """The name of an attribute or a capacity: an identifier, optionally behind `domain/`."""
    parts = name.split("/")
    if len(parts) == 1:
        return c_identifier(name, path)
    if len(parts) > 2:  # Kubernetes accepts these
        return []
    errors = (
        csi_driver_name(parts[0], path)
        if parts[0]
        else [invalid(path, "", "the domain must not be empty")]
    )
    if not parts[1]:
        return [*errors, invalid(path, "", "the name must not be empty")]
    return errors + c_identifier(parts[1], path)


def _fully_qualified(name: str, path: str) -> Errors:
    errors = qualified_device_name(name, path)
    if "/" not in name:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        errors.append(invalid(path, name, text))
    return errors


def pool_name(name: str, path: str) -> Errors:
    if not name:
        return [required(path)]
    errors = [too_long(path, "", 253)] if byte_len(name) > 253 else []
    return errors + [error for part in name.split("/") for error in dns_subdomain(part, path)]


def _share_id(text: str, path: str) -> Errors:
    """A UUID in its usual form; others have a form that Go's parser accepts."""
    try:
        uuid.UUID(text)
    except ValueError:
        return [
            invalid(path, text, f"error validating uid: invalid UUID length: {byte_len(text)}")
            if byte_len(text) not in (32, 36, 38, 45)
            else invalid(path, text, "error validating uid: invalid UUID format")
        ]
    if len(text) == 36 and text == text.lower():
        return []
    return [
        invalid(
            path,
            text,
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with "
            "lowercase hexadecimal characters",
        )
    ]


def _raw_object(value: Any, path: str, *, stored: bool = False) -> Errors:
    """An embedded JSON object of limited size."""
    if value is None:
        return [required(path)]
    if not stored and len(orjson.dumps(value)) > _PARAMETERS:
        return [too_long(path, "", _PARAMETERS)]
    if not isinstance(value, dict):
        return [invalid(path, "<value omitted>", "must be a valid JSON object")]
    return []


class _Checks:
    """The rules that depend on the release."""

    def __init__(self, features: FeatureSet) -> None:
        self._features = features
        self._consumable = features.enabled("DRAConsumableCapacity")

    def dump(self, name: str, value: Any) -> GoText:
        return dump_internal(schema_table(self._features.release).get(f"resource/v1.{name}"), value)

    # ---- selectors and configuration ----

    def selector(self, selector: Mapping[str, Any], path: str) -> Errors:
        cel = selector.get("cel")
        if cel is None:
            return [required(f"{path}.cel")]
        text, where = cel.get("expression", ""), f"{path}.cel.expression"
        if byte_len(text) > MAX_DEVICE_EXPRESSION_BYTES:
            return [too_long(where, "", MAX_DEVICE_EXPRESSION_BYTES)]
        try:
            compile_device_selector(
                text, self._features.release, consumable_capacity=self._consumable
            )
        except DeviceSelectorError as error:
            if error.too_complex:
                return [forbidden(where, str(error))]
            return [invalid(where, text, str(error))]
        return []

    def selectors(self, holder: Mapping[str, Any], path: str) -> Errors:
        return check_items(holder.get("selectors"), f"{path}.selectors", self.selector, _SELECTORS)

    @staticmethod
    def configuration(config: Mapping[str, Any], path: str, *, stored: bool = False) -> Errors:
        opaque = config.get("opaque")
        if opaque is None:
            return [required(f"{path}.opaque")]
        errors = csi_driver_name(opaque.get("driver", ""), f"{path}.opaque.driver")
        return errors + _raw_object(
            opaque.get("parameters"), f"{path}.opaque.parameters", stored=stored
        )

    # ---- classes ----

    def class_spec(self, spec: Mapping[str, Any], old: Mapping[str, Any] | None) -> Errors:
        errors = self.selectors(spec, "spec")
        same = old is not None and old.get("config") == spec.get("config")
        errors += check_items(
            spec.get("config"), "spec.config", partial(self.configuration, stored=same), _CONFIGS
        )
        name = spec.get("extendedResourceName")
        if name is not None and not is_extended_resource_name(name):
            text = "must be a valid extended resource name"
            errors.append(invalid("spec.extendedResourceName", name, text))
        return errors

    # ---- claims ----

    def claim_spec(self, spec: Mapping[str, Any], path: str) -> Errors:
        devices, path = spec.get("devices") or {}, f"{path}.devices"
        names = _request_names(devices)
        errors = check_set(
            devices.get("requests"), f"{path}.requests", self.request, _REQUESTS, item_name
        )
        errors += check_items(
            devices.get("constraints"),
            f"{path}.constraints",
            partial(self.constraint, names=names),
            _CONSTRAINTS,
        )
        return errors + check_items(
            devices.get("config"),
            f"{path}.config",
            partial(self.claim_configuration, names=names),
            _CONFIGS,
        )

    def request(self, request: Mapping[str, Any], path: str) -> Errors:
        errors = dns_label(request.get("name", ""), f"{path}.name")
        exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
        if alternatives and exactly is not None:
            return [*errors, invalid(path, None, f"{_ONE_REQUEST}, but multiple fields are set")]
        if alternatives:
            return errors + check_set(
                alternatives,
                f"{path}.firstAvailable",
                self.subrequest,
                _ALTERNATIVES,
                item_name,
            )
        if exactly is not None:
            return errors + self.device_request(exactly, f"{path}.exactly")
        return [*errors, required(path, _ONE_REQUEST)]

    def subrequest(self, request: Mapping[str, Any], path: str) -> Errors:
        errors = dns_label(request.get("name", ""), f"{path}.name")
        return errors + self.device_request(request, path)

    def device_request(self, request: Mapping[str, Any], path: str) -> Errors:
        name = request.get("deviceClassName", "")
        where = f"{path}.deviceClassName"
        errors = dns_subdomain(name, where) if name else [required(where)]
        errors += self.selectors(request, path)
        errors += _allocation_mode(request, path)
        return errors + check_items(
            request.get("tolerations"), f"{path}.tolerations", _toleration, None
        )

    def constraint(
        self, constraint: Mapping[str, Any], path: str, *, names: RequestNames
    ) -> Errors:
        errors = _request_references(constraint, path, names)
        for name in ("matchAttribute", "distinctAttribute"):
            if constraint.get(name) is not None:
                return errors + _fully_qualified(constraint[name], f"{path}.{name}")
        if self._consumable:
            text = (
                'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple '
                "fields are set"
            )
            return [*errors, required(path, text)]
        return [*errors, required(f"{path}.matchAttribute")]

    def claim_configuration(
        self, config: Mapping[str, Any], path: str, *, names: RequestNames
    ) -> Errors:
        return _request_references(config, path, names) + self.configuration(config, path)

    # ---- the status of a claim ----

    def claim_status(self, new: Object, old: Object) -> Errors:
        status, before = new.get("status") or {}, old.get("status") or {}
        names = _request_names((new.get("spec") or {}).get("devices") or {})
        errors = check_set(
            status.get("reservedFor"),
            "status.reservedFor",
            _consumer,
            _CONSUMERS,
            lambda consumer: consumer.get("uid", ""),
        )
        allocation = status.get("allocation")
        allocated = {
            _device_id(r) for r in ((allocation or {}).get("devices") or {}).get("results") or ()
        }
        errors += check_set(
            status.get("devices"),
            "status.devices",
            partial(_device_status, allocated=allocated),
            None,
            _device_id,
        )
        errors += _reservations(new, status, before)
        if allocation is None:
            return errors
        if before.get("allocation") is not None:
            return errors + immutable(
                allocation,
                before["allocation"],
                "status.allocation",
                self.dump("AllocationResult", allocation),
            )
        return errors + self.allocation(allocation, names)

    def allocation(self, allocation: Mapping[str, Any], names: RequestNames) -> Errors:
        devices, path = allocation.get("devices") or {}, "status.allocation.devices"
        errors = check_items(
            devices.get("results"), f"{path}.results", partial(_result, names=names), _RESULTS
        )
        errors += check_items(
            devices.get("config"),
            f"{path}.config",
            partial(self.allocated_configuration, names=names),
            2 * _CONFIGS,
        )
        if allocation.get("nodeSelector") is not None:
            check_node_selector(
                allocation["nodeSelector"], "status.allocation.nodeSelector", errors, values=True
            )
        return errors

    def allocated_configuration(
        self, config: Mapping[str, Any], path: str, *, names: RequestNames
    ) -> Errors:
        source, sources = config.get("source", ""), ("FromClaim", "FromClass")
        errors: Errors = []
        if not source:
            errors.append(required(f"{path}.source"))
        elif source not in sources:
            errors.append(not_supported(f"{path}.source", source, sources))
        return errors + self.claim_configuration(config, path, names=names)


def _request_names(devices: Mapping[str, Any]) -> RequestNames:
    """Each request with its alternatives."""
    return {
        item_name(request): {item_name(sub) for sub in request.get("firstAvailable") or ()}
        for request in devices.get("requests") or ()
    }


def _request_reference(name: str, path: str, *, names: RequestNames) -> Errors:
    parts = name.split("/")
    if len(parts) > 2:
        return [invalid(path, name, _REQUEST_REFERENCE)]
    errors = [error for part in parts for error in dns_label(part, path)]
    known = parts[0] in names and (len(parts) == 1 or parts[1] in names[parts[0]])
    if not known:
        errors.append(invalid(path, name, _REQUEST_REFERENCE))
    return errors


def _request_references(holder: Mapping[str, Any], path: str, names: RequestNames) -> Errors:
    return check_set(
        holder.get("requests"),
        f"{path}.requests",
        partial(_request_reference, names=names),
        _REQUESTS,
    )


def _allocation_mode(request: Mapping[str, Any], path: str) -> Errors:
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode == "All":
        if count != 0:
            text = "must not be specified when allocationMode is 'All'"
            return [invalid(f"{path}.count", count, text)]
        return []
    if mode == "ExactCount":
        return [] if count > 0 else [invalid(f"{path}.count", count, "must be greater than zero")]
    return [not_supported(f"{path}.allocationMode", mode, ("All", "ExactCount"))]


def _toleration(toleration: Mapping[str, Any], path: str) -> Errors:
    errors: Errors = []
    key, value = toleration.get("key", ""), toleration.get("value", "")
    operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
    if key:
        errors += validate_label_name(key, f"{path}.key")
    if operator == "Exists":
        if value:
            errors.append(invalid(f"{path}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        errors += check_each(f"{path}.value", value, is_label_value(value))
    elif not operator:
        errors.append(required(f"{path}.operator"))
    else:
        errors.append(not_supported(f"{path}.operator", operator, ("Equal", "Exists")))
    if effect and effect not in TAINT_EFFECTS:
        errors.append(not_supported(f"{path}.effect", effect, TAINT_EFFECTS))
    return errors


def _consumer(consumer: Mapping[str, Any], path: str) -> Errors:
    return [
        required(f"{path}.{name}") for name in ("resource", "name", "uid") if not consumer.get(name)
    ]


def _reservations(new: Object, status: Mapping[str, Any], before: Mapping[str, Any]) -> Errors:
    reserved = status.get("reservedFor") or ()
    if not reserved:
        return []
    path = "status.reservedFor"
    if status.get("allocation") is None:
        return [forbidden(path, "may not be specified when `allocated` is not set")]
    if not new["metadata"].get("deletionTimestamp"):
        return []
    known = before.get("reservedFor") or ()
    if all(consumer in known for consumer in reserved):
        return []
    text = (
        "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
    )
    return [forbidden(path, text)]


def _device_id(device: Mapping[str, Any]) -> str:
    """Also the printed form of an identifier."""
    name = "/".join(device.get(part, "") for part in ("driver", "pool", "device"))
    return f"{name}/{device['shareID']}" if device.get("shareID") else name


def _result(result: Mapping[str, Any], path: str, *, names: RequestNames) -> Errors:
    errors = _request_reference(result.get("request", ""), f"{path}.request", names=names)
    errors += _device_reference(result, path)
    errors += binding_conditions(result, path)
    if result.get("shareID") is not None:
        errors += _share_id(result["shareID"], f"{path}.shareID")
    return errors


def _device_reference(holder: Mapping[str, Any], path: str) -> Errors:
    errors = csi_driver_name(holder.get("driver", ""), f"{path}.driver")
    errors += pool_name(holder.get("pool", ""), f"{path}.pool")
    return errors + dns_label(holder.get("device", ""), f"{path}.device")


def _device_status(device: Mapping[str, Any], path: str, *, allocated: Collection[str]) -> Errors:
    errors = _device_reference(device, path)
    if device.get("shareID") is not None:
        errors += _share_id(device["shareID"], f"{path}.shareID")
    name = _device_id(device)
    if name not in allocated:
        shown = {key: device.get(key) or "" for key in ("driver", "pool", "device", "shareID")}
        parts = {key[:1].upper() + key[1:]: value for key, value in shown.items()}
        text = GoText(name, orjson.dumps(parts).decode())
        errors.append(invalid(path, text, "must be an allocated device in the claim"))
    conditions = device.get("conditions") or ()
    if len(conditions) > _DEVICE_CONDITIONS:
        errors.append(too_many(f"{path}.conditions", len(conditions), _DEVICE_CONDITIONS))
    errors += validate_conditions(conditions, f"{path}.conditions")
    if device.get("data") is not None:
        errors += _raw_object(device["data"], f"{path}.data")
    network = device.get("networkData")
    return errors + (_network_data(network, f"{path}.networkData") if network is not None else [])


def _network_data(network: Mapping[str, Any], path: str) -> Errors:
    errors = [
        too_long(f"{path}.{name}", "", limit)
        for name, limit in (("interfaceName", 256), ("hardwareAddress", 128))
        if byte_len(network.get(name, "")) > limit
    ]
    return errors + check_set(
        network.get("ips"), f"{path}.ips", interface_address, _NETWORK_ADDRESSES
    )


def binding_conditions(holder: Mapping[str, Any], path: str) -> Errors:
    """Conditions that a device must, or must not, report before a pod is bound."""
    needed, failing = (
        holder.get("bindingConditions") or [],
        holder.get("bindingFailureConditions") or [],
    )
    needed_path, failing_path = f"{path}.bindingConditions", f"{path}.bindingFailureConditions"
    errors = check_items(needed, needed_path, validate_label_name, _BINDING_CONDITIONS)
    errors += check_items(failing, failing_path, validate_label_name, _BINDING_CONDITIONS)
    errors += [
        duplicate(f"{needed_path}[{i}]", name)
        for i, name in enumerate(needed)
        if name in needed[:i]
    ]
    for i, name in enumerate(failing):
        if name in failing[:i]:
            errors.append(duplicate(f"{failing_path}[{i}]", name))
        if name in needed:
            text = "bindingFailureConditions must not overlap with bindingConditions"
            errors.append(invalid(f"{failing_path}[{i}]", name, text))
    if failing and not needed:
        text = "bindingConditions are required to use bindingFailureConditions"
        errors.append(invalid(needed_path, go_dump("[]string", needed), text))
    if needed and not failing:
        text = "bindingFailureConditions are required to use bindingConditions"
        errors.append(invalid(failing_path, go_dump("[]string", failing), text))
    return errors


# ---- the kinds ----


def _class_rules(features: FeatureSet) -> ValidationRules:
    checks = _Checks(features)

    def create(obj: Object) -> Errors:
        errors = validate_object_meta(obj["metadata"], False, name_is_dns_subdomain)
        return errors + checks.class_spec(obj.get("spec") or {}, None)

    def update(new: Object, old: Object) -> Errors:
        errors = validate_object_meta_update(new["metadata"], old["metadata"])
        return errors + checks.class_spec(new.get("spec") or {}, old.get("spec") or {})

    return ValidationRules(create, update)


def _claim_rules(features: FeatureSet) -> ValidationRules:
    checks = _Checks(features)

    def create(obj: Object) -> Errors:
        errors = validate_object_meta(obj["metadata"], True, name_is_dns_subdomain)
        return errors + checks.claim_spec(obj.get("spec") or {}, "spec")

    def update(new: Object, old: Object) -> Errors:
        errors = validate_object_meta_update(new["metadata"], old["metadata"])
        spec = new.get("spec") or {}
        return errors + immutable(
            spec, old.get("spec") or {}, "spec", checks.dump("ResourceClaimSpec", spec)
        )

    def status_update(new: Object, old: Object) -> Errors:
        errors = validate_object_meta_update(new["metadata"], old["metadata"])
        return errors + checks.claim_status(new, old)

    return ValidationRules(create, update, status_update)


def _template_rules(features: FeatureSet) -> ValidationRules:
    checks = _Checks(features)

    def create(obj: Object) -> Errors:
        errors = validate_object_meta(obj["metadata"], True, name_is_dns_subdomain)
        spec = obj.get("spec") or {}
        errors += validate_template_metadata(spec.get("metadata") or {}, "spec.metadata")
        return errors + checks.claim_spec(spec.get("spec") or {}, "spec.spec")

    def update(new: Object, old: Object) -> Errors:
        errors = validate_object_meta_update(new["metadata"], old["metadata"])
        if not has_behaviour(features.release, "UncheckedClaimTemplates"):
            errors = create(new) + errors
        spec = new.get("spec") or {}
        return errors + immutable(
            spec,
            old.get("spec") or {},
            "spec",
            checks.dump("ResourceClaimTemplateSpec", spec),
        )

    return ValidationRules(create, update)


VALIDATORS: Final[dict[str, RulesFactory]] = {
    "resource.k8s.io/DeviceClass": _class_rules,
    "resource.k8s.io/ResourceClaim": _claim_rules,
    "resource.k8s.io/ResourceClaimTemplate": _template_rules,
}
