"""Custom objects as a whole: type and metadata, embedded resources, lists that are sets or maps,
scale.

`schema` is the JSON of the version's `openAPIV3Schema`, or None when there is none; `scale` that of
`subresources.scale`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from transom.machinery.errors import ApiError, GroupResource
from transom.machinery.errors import invalid as invalid_object
from transom.machinery.field import FieldError, duplicate, invalid, required
from transom.machinery.kinds import Kind
from transom.machinery.validation.checks import check_each
from transom.machinery.validation.custom import (
    NO_OLD_VALUE,
    OF_1_20,
    Schema,
    SchemaOptions,
    go_json,
    shown_value,
    validate_value,
)
from transom.machinery.validation.meta import (
    validate_any_object_meta,
    validate_any_object_meta_update,
)
from transom.machinery.validation.names import (
    is_dns1035_label,
    name_is_dns_subdomain,
    name_is_path_segment,
)

Object = dict[str, Any]
Errors = list[FieldError]
_MAX_INT32 = 2**31 - 1


def validate_custom_create(
    kind: Kind,
    version: str,
    obj: Object,
    schema: Schema | None,
    scale: Mapping[str, str] | None = None,
    rules: SchemaOptions = OF_1_20,
) -> Errors:
    """The errors of a new custom object."""
    errors = _type_meta(kind, version, obj)
    if not errors:
        errors += validate_any_object_meta(
            obj.get("metadata") or {}, kind.namespaced, name_is_dns_subdomain
        )
        errors += validate_value(schema, obj, rules=rules) if schema is not None else []
        errors += _scale_spec(obj, scale) + _scale_status(obj, scale)
    if schema is not None:
        errors += validate_embedded(schema, obj) + validate_lists(schema, obj)
    return errors or validate_any_object_meta(
        obj.get("metadata") or {}, kind.namespaced, name_is_path_segment
    )


def validate_custom_update(
    kind: Kind,
    version: str,
    new: Object,
    old: Object,
    schema: Schema | None,
    scale: Mapping[str, str] | None = None,
    subresource: str = "",
    rules: SchemaOptions = OF_1_20,
    *,
    ratcheting: bool = False,
) -> Errors:
    """The errors of a change to a custom object, or to its status. `ratcheting`: values that do not
    change may stay invalid.
    """
    meta, before = new.get("metadata") or {}, old.get("metadata") or {}
    errors = validate_any_object_meta(meta, kind.namespaced, name_is_path_segment)
    errors += validate_any_object_meta_update(meta, before)
    wrong_type = _type_meta(kind, version, new)
    errors += wrong_type
    if not wrong_type:
        errors += validate_any_object_meta_update(meta, before)
        if schema is not None and subresource == "status" and rules.status_alone:
            errors += _status_errors(schema, new, old, rules, ratcheting)
        elif schema is not None:
            before = old if ratcheting else NO_OLD_VALUE
            errors += validate_value(schema, new, rules=rules, old=before)
        if subresource != "status":
            errors += _scale_spec(new, scale)
        errors += _scale_status(new, scale)
    if schema is None or (subresource == "status" and not rules.status_lists):
        return errors
    if subresource != "status":
        errors += validate_embedded(schema, new)
    # Existing errors may stay.
    if not validate_lists(schema, old):
        errors += validate_lists(schema, new)
    return errors


def _status_errors(
    schema: Schema, new: Object, old: Object, rules: SchemaOptions, ratcheting: bool
) -> Errors:
    """A new status is checked by its own schema, and messages have paths inside of it."""
    part = (schema.get("properties") or {}).get("status")
    if part is None or "status" not in new:
        return []
    if not ratcheting:
        return validate_value(part, new["status"], rules=rules)
    return validate_value(part, new["status"], "status", rules=rules, old=old.get("status"))


def _type_meta(kind: Kind, version: str, obj: Object) -> Errors:
    errors: Errors = []
    api_version = f"{kind.group}/{version}"
    if obj.get("kind") != kind.kind:
        errors.append(invalid("kind", obj.get("kind", ""), f"must be {kind.kind}"))
    if obj.get("apiVersion") != api_version:
        errors.append(invalid("apiVersion", obj.get("apiVersion", ""), f"must be {api_version}"))
    return errors


def wrong_custom_type(kind: Kind, version: str, name: str, obj: Object) -> ApiError:
    """The error for a custom object that a patch gave another kind or version: it names that."""
    group, slash, _ = obj["apiVersion"].partition("/")
    given = GroupResource(group if slash else "", obj["kind"])
    return invalid_object(given, name, _type_meta(kind, version, obj))


def nested_value(obj: Object, path: str, kind: type, zero: Any) -> tuple[Any, str]:
    """The value at a dotted path, or the reason why there is none of that type."""
    names = path.removeprefix(".").split(".")
    value: Any = obj
    for i, name in enumerate(names):
        if value is None:
            return zero, ""
        if not isinstance(value, dict):
            return zero, _accessor_error(names[: i + 1], value, "map[string]interface{}")
        if name not in value:
            return zero, ""
        value = value[name]
    if isinstance(value, kind) and not isinstance(value, bool):
        return value, ""
    return zero, _accessor_error(names, value, {int: "int64", str: "string"}[kind])


def _accessor_error(names: Sequence[str], value: Any, expected: str) -> str:
    path = "." + ".".join(names)
    return (
        f"{path} accessor error: {_go_value(value)} is of the type {go_type_of_value(value)}, expected "
        f"{expected}"
    )


def go_type_of_value(value: Any) -> str:
    names = {
        dict: "map[string]interface {}",
        list: "[]interface {}",
        str: "string",
        bool: "bool",
        int: "int64",
        float: "float64",
    }
    return names.get(type(value), "<nil>")


def _go_value(value: Any) -> str:
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_go_value(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_go_value, value)) + "]"
    if value is None:
        return "<nil>"
    return value if isinstance(value, str) else go_json(value)


def _replicas(obj: Object, path: str) -> Errors:
    value, problem = nested_value(obj, path, int, 0)
    if not problem and value < 0:
        problem = "should be a non-negative integer"
    elif not problem and value > _MAX_INT32:
        problem = f"should be less than or equal to {_MAX_INT32}"
    return [invalid(path, value, problem)] if problem else []


def _scale_spec(obj: Object, scale: Mapping[str, str] | None) -> Errors:
    return _replicas(obj, scale["specReplicasPath"]) if scale else []


def _scale_status(obj: Object, scale: Mapping[str, str] | None) -> Errors:
    if not scale:
        return []
    errors = _replicas(obj, scale["statusReplicasPath"])
    path = scale.get("labelSelectorPath")
    if path:
        value, problem = nested_value(obj, path, str, "")
        errors += [invalid(path, value, problem)] if problem else []
    return errors


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def validate_embedded(
    schema: Schema, value: Any, path: str = "", *, resource: bool = False
) -> Errors:
    """Embedded objects must have a type and valid metadata. `resource`: the value itself is one."""
    errors: Errors = []
    if isinstance(value, dict):
        if resource or schema.get("x-kubernetes-embedded-resource"):
            errors += _embedded(value, path)
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            if key in properties:
                errors += validate_embedded(properties[key], item, _child(path, key))
            elif isinstance(additional, dict):
                errors += validate_embedded(additional, item, f"{path}[{key}]")
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for i, item in enumerate(value):
            errors += validate_embedded(schema["items"], item, f"{path}[{i}]")
    return errors


def _embedded(value: Object, path: str) -> Errors:
    errors = [
        required(_child(path, name), "must not be empty")
        for name in ("apiVersion", "kind")
        if name not in value
    ]
    for name in ("apiVersion", "kind"):
        text, where = value.get(name), _child(path, name)
        if name not in value:
            continue
        if not isinstance(text, str):
            errors.append(invalid(where, shown_value(text), "must be a string"))
        elif not text:
            errors.append(invalid(where, text, "must not be empty"))
        elif name == "apiVersion" and text.count("/") > 1:
            errors.append(invalid(where, text, f"unexpected GroupVersion string: {text}"))
        elif name == "kind" and (messages := is_dns1035_label(text.lower())):
            problem = "may have mixed case, but should otherwise match: " + ",".join(messages)
            errors.append(invalid(where, text, problem))
    meta = value.get("metadata")
    if isinstance(meta, dict):
        named = meta if meta.get("name") else {**meta, "name": "fakename"}
        errors += validate_any_object_meta(
            named, bool(meta.get("namespace")), name_is_path_segment, _child(path, "metadata")
        )
    return errors


def validate_lists(schema: Schema, value: Any, path: str = "") -> Errors:
    """Lists declared as sets or maps must not contain duplicate elements or keys."""
    errors: Errors = []
    if isinstance(value, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        if isinstance(additional, dict):
            for key, item in value.items():
                errors += validate_lists(additional, item, f"{path}[{key}]")
        for key, item in value.items():
            if key in properties:
                errors += validate_lists(properties[key], item, _child(path, key))
    elif isinstance(value, list):
        kind = schema.get("x-kubernetes-list-type")
        if kind == "set":
            errors += [duplicate(f"{path}[{i}]", shown_value(value[i])) for i in _repeated(value)]
        elif kind == "map":
            errors += _list_map(schema, value, path)
        if isinstance(schema.get("items"), dict):
            for i, item in enumerate(value):
                errors += validate_lists(schema["items"], item, f"{path}[{i}]")
    return errors


def _repeated(values: Sequence[Any]) -> list[int]:
    """The positions of repeated values."""
    seen: dict[tuple[type, Any], int] = {}
    places = []
    for i, value in enumerate(values):
        compound = isinstance(value, dict | list)
        key = (
            dict if compound else type(value),
            orjson.dumps(value, option=orjson.OPT_SORT_KEYS) if compound else value,
        )
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            places.append(i)
    return places


def _list_map(schema: Schema, value: list[Any], path: str) -> Errors:
    for i, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            return check_each(
                f"{path}[{i}]",
                shown_value(item),
                ["must be an object for an array of list-type map"],
            )
    names = schema.get("x-kubernetes-list-map-keys") or ()
    keys = [{name: item[name] for name in names if item and name in item} for item in value]
    return [duplicate(f"{path}[{i}]", shown_value(keys[i])) for i in _repeated(keys)]
