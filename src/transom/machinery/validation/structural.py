"""Structural schemas: the form that an OpenAPI schema needs for pruning and defaulting.

A schema is plain JSON. Its skeleton (types, properties, items) is outside `anyOf`, `allOf`, `oneOf`
and `not`; those may only restrict values of fields that are in the skeleton.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from transom.kit.regexp import RegexpError, compile_regexp
from transom.machinery.field import FieldError, aggregate_text, forbidden, invalid, required
from transom.machinery.validation.custom import Schema, shown_value, validate_value
from transom.machinery.validation.customobject import validate_embedded
from transom.machinery.validation.rules import Errors
from transom.machinery.validation.schema_extensions import (
    EMBEDDED,
    INT_OR_STRING,
    META_FIELDS,
    PRESERVE,
    VALIDATIONS,
)

_INT_OR_STRING_CHOICE = [{"type": "integer"}, {"type": "string"}]
_NO_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
# What a junctor must not contain: the name and the required value instead.
_FORBIDDEN_NESTED = (
    ("type", "empty"),
    ("additionalProperties", "undefined"),
    ("default", "undefined"),
    ("title", "empty"),
    ("description", "empty"),
    ("nullable", "false"),
    (PRESERVE, "false"),
    (EMBEDDED, "false"),
    (INT_OR_STRING, "false"),
    ("x-kubernetes-list-map-keys", "empty"),
    ("x-kubernetes-list-type", "undefined"),
    ("x-kubernetes-map-type", "undefined"),
)
_UNSUPPORTED = (
    "id",
    "$schema",
    "$ref",
    "patternProperties",
    "dependencies",
    "additionalItems",
    "definitions",
)
_UNSUPPORTED_NAMES = frozenset(_UNSUPPORTED)
_NESTING = frozenset(
    ("properties", "items", "additionalProperties", "not", "allOf", "anyOf", "oneOf")
)
# Allowed for a root's `metadata` because it does not restrict it.
_METADATA_IGNORED = frozenset(("type", "default", "properties", "externalDocs", "example"))


def is_structural_possible(schema: Schema) -> bool:
    """False if the schema contains something that cannot be structural."""
    waiting = [schema]
    while waiting:
        schema = waiting.pop()
        if not _UNSUPPORTED_NAMES.isdisjoint(schema) and any(
            schema.get(name) for name in _UNSUPPORTED
        ):
            return False
        if schema.get(PRESERVE) is False or isinstance(schema.get("items"), list):
            return False
        if not _NESTING.isdisjoint(schema):
            waiting += _children(schema)
    return True


def _children(schema: Schema) -> list[Schema]:
    found: list[Schema] = list((schema.get("properties") or {}).values())
    for name in ("items", "additionalProperties", "not"):
        if isinstance(schema.get(name), dict):
            found.append(schema[name])
    for name in ("allOf", "anyOf", "oneOf"):
        found += schema.get(name) or ()
    return found


def validate_structural(schema: Schema, path: str, *, nested_rules: bool = True) -> Errors:
    """Why a schema is not structural, sorted by message. `nested_rules`: whether validation rules
    may be inside of anyOf, oneOf and not.
    """
    errors = _invariants(schema, "root", path) + _completeness(schema, schema, path, path)
    if nested_rules:
        errors = [error for error in errors if not error.field.endswith(VALIDATIONS)]
    return sorted(errors, key=str)


def _invariants(schema: Schema, level: str, path: str) -> Errors:
    errors: Errors = []
    kind, items = schema.get("type", ""), schema.get("items")
    if kind == "array" and items is None:
        errors.append(required(f"{path}.items", "must be specified"))
    if isinstance(items, dict):
        errors += _invariants(items, "item", f"{path}.items")
    properties = schema.get("properties") or {}
    for key, inner in properties.items():
        errors += _invariants(inner, "field", f"{path}.properties[{key}]")
    additional = schema.get("additionalProperties")
    if additional is not None:
        if level == "root":
            errors.append(forbidden(f"{path}.additionalProperties", "must not be used at the root"))
        if isinstance(additional, dict):
            errors += _invariants(additional, "field", f"{path}.additionalProperties")
    if schema.get(INT_OR_STRING):
        errors += [
            invalid(f"{path}.{name}", True, f"must be false if {INT_OR_STRING} is true")
            for name in (PRESERVE, EMBEDDED)
            if schema.get(name)
        ]
    errors += _junctors(
        schema,
        schema.get("anyOf") == _INT_OR_STRING_CHOICE,
        _first_all_of(schema) == _INT_OR_STRING_CHOICE,
        path,
    )
    return errors + _own_type(schema, kind, level, path) + _meta(schema, properties, level, path)


def _first_all_of(schema: Schema) -> Any:
    options = schema.get("allOf")
    return options[0].get("anyOf") if options else None


def _own_type(schema: Schema, kind: str, level: str, path: str) -> Errors:
    errors: Errors = []
    embedded = schema.get(EMBEDDED)
    if embedded and kind != "object":
        text = f"must be object if {EMBEDDED} is true"
        errors.append(
            invalid(f"{path}.type", kind, text) if kind else required(f"{path}.type", text)
        )
    elif not kind and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        errors.append(required(f"{path}.type", _NO_TYPE[level]))
    if embedded and schema.get("additionalProperties") is not None:
        errors.append(
            forbidden(f"{path}.additionalProperties", f"must not be used if {EMBEDDED} is set")
        )
    if level == "root" and kind and kind != "object":
        errors.append(invalid(f"{path}.type", kind, "must be object at the root"))
    if embedded and not schema.get(PRESERVE) and not schema.get("properties"):
        errors.append(
            required(
                f"{path}.properties", f"must not be empty if {EMBEDDED} is true without {PRESERVE}"
            )
        )
    return errors


def _meta(schema: Schema, properties: Mapping[str, Schema], level: str, path: str) -> Errors:
    errors: Errors = []
    if level == "root" or schema.get(EMBEDDED):
        for name, kind in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
            found = properties.get(name)
            if found is not None and found.get("type", "") != kind:
                errors.append(
                    invalid(
                        f"{path}.properties[{name}].type", found.get("type", ""), f"must be {kind}"
                    )
                )
    metadata = properties.get("metadata")
    if level == "root" and metadata is not None:
        named = set(metadata.get("properties") or ())
        rest = {key for key, value in metadata.items() if key not in _METADATA_IGNORED and value}
        if rest or not named <= {"name", "generateName"}:
            errors.append(
                forbidden(
                    f"{path}.properties[metadata]",
                    "must not specify anything other than name and "
                    "generateName, but metadata is implicitly specified",
                )
            )
    return errors


def _junctors(schema: Schema, skip_any_of: bool, skip_in_first_all_of: bool, path: str) -> Errors:
    errors: Errors = []
    if not skip_any_of:
        for i, option in enumerate(schema.get("anyOf") or ()):
            errors += _nested(option, False, f"{path}.anyOf[{i}]", rules=False)
    for i, option in enumerate(schema.get("allOf") or ()):
        errors += _nested(option, skip_in_first_all_of and i == 0, f"{path}.allOf[{i}]")
    for i, option in enumerate(schema.get("oneOf") or ()):
        errors += _nested(option, False, f"{path}.oneOf[{i}]", rules=False)
    if schema.get("not") is not None:
        errors += _nested(schema["not"], False, f"{path}.not", rules=False)
    pattern = schema.get("pattern")
    if pattern:
        try:
            compile_regexp(pattern)
        except RegexpError as error:
            errors.append(
                invalid(
                    f"{path}.pattern",
                    pattern,
                    f"must be a valid regular expression, but isn't: {error}",
                )
            )
    return errors


def _nested(schema: Schema, skip_any_of: bool, path: str, *, rules: bool = True) -> Errors:
    """`rules`: whether validation rules are allowed here."""
    errors = _junctors(schema, skip_any_of, False, path)
    if isinstance(schema.get("items"), dict):
        errors += _nested(schema["items"], False, f"{path}.items", rules=rules)
    properties = schema.get("properties") or {}
    for key, inner in properties.items():
        errors += _nested(inner, False, f"{path}.properties[{key}]", rules=rules)
    if schema.get(VALIDATIONS) and not rules:
        errors.append(forbidden(f"{path}.{VALIDATIONS}", "must be empty to be structural"))
    errors += [
        forbidden(f"{path}.{name}", f"must be {wanted} to be structural")
        for name, wanted in _FORBIDDEN_NESTED
        if (schema.get(name) is not None if wanted == "undefined" else schema.get(name))
    ]
    if "metadata" in properties:
        errors.append(
            forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")
        )
    return errors


def _completeness(values: Schema, schema: Schema, path: str, value_path: str) -> Errors:
    """Every field in a junctor must be in the skeleton."""
    errors: Errors = []
    if values.get("not") is not None:
        errors += _complete(values["not"], schema, path, f"{value_path}.not")
    for name in ("allOf", "anyOf", "oneOf"):
        for i, option in enumerate(values.get(name) or ()):
            errors += _complete(option, schema, path, f"{value_path}.{name}[{i}]")
    return errors


def _complete(values: Schema, schema: Schema | None, path: str, value_path: str) -> Errors:
    if schema is None:
        return [required(path, f"because it is defined in {value_path}")]
    errors = _completeness(values, schema, path, value_path)
    if isinstance(values.get("items"), dict):
        items = schema.get("items")
        errors += _complete(
            values["items"],
            items if isinstance(items, dict) else None,
            f"{path}.items",
            f"{value_path}.items",
        )
    properties = schema.get("properties") or {}
    for key, inner in (values.get("properties") or {}).items():
        errors += _complete(
            inner,
            properties.get(key),
            f"{path}.properties[{key}]",
            f"{value_path}.properties[{key}]",
        )
    return errors


def prune_default(value: Any, schema: Schema | None, *, resource: bool = False) -> None:
    """Drops, in place, fields that the schema does not specify. Type and metadata of a resource
    stay.
    """
    if schema is not None and schema.get(PRESERVE):
        _prune_known(value, schema, resource)
    elif isinstance(value, dict):
        for key in list(value):
            if (resource or (schema or {}).get(EMBEDDED)) and key in META_FIELDS:
                continue
            known, inner = _inner(schema, key)
            if known:
                prune_default(value[key], inner)
            else:
                del value[key]
    elif isinstance(value, list):
        items = (schema or {}).get("items")
        for item in value:
            prune_default(item, items)


def _inner(schema: Schema | None, key: str) -> tuple[bool, Schema | None]:
    if schema is None:
        return False, None
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    if key in properties:
        return True, properties[key]
    return additional is not None, additional if isinstance(additional, dict) else None


def _prune_known(value: Any, schema: Schema, resource: bool) -> None:
    if isinstance(value, dict):
        for key in value:
            if (resource or schema.get(EMBEDDED)) and key in META_FIELDS:
                continue
            known, inner = _inner(schema, key)
            if known:
                prune_default(value[key], inner)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            _prune_known(item, schema["items"], False)


def validate_defaults(schema: Schema, path: str, require_pruned: bool) -> Errors:
    """Default values must satisfy their own schema and contain nothing that pruning would drop."""
    return _defaults({**schema, EMBEDDED: True}, path, (), False, require_pruned)


def _defaults(
    schema: Schema, path: str, inside: tuple[str, ...], in_meta: bool, require_pruned: bool
) -> Errors:
    """`inside` is the path from the innermost resource to here, for defaults of its metadata."""
    embedded = bool(schema.get(EMBEDDED))
    if embedded:
        in_meta, inside = False, ()
    errors: Errors = []
    default = schema.get("default")
    if default is not None:
        errors += _default(
            schema, default, f"{path}.default", inside, in_meta, embedded, require_pruned
        )
    if isinstance(schema.get("items"), dict):
        errors += _defaults(
            schema["items"], f"{path}.items", (*inside, "[]"), in_meta, require_pruned
        )
    for key, inner in (schema.get("properties") or {}).items():
        meta = in_meta or (embedded and key in META_FIELDS)
        errors += _defaults(
            inner, f"{path}.properties[{key}]", (*inside, key), meta, require_pruned
        )
    return errors


def _default(
    schema: Schema,
    default: Any,
    path: str,
    inside: tuple[str, ...],
    in_meta: bool,
    embedded: bool,
    require_pruned: bool,
) -> Errors:
    if in_meta:
        whole = _surround(default, inside)
        if problems := validate_embedded({}, whole, resource=True):
            text = aggregate_text(_from_root(problems))
            return [invalid(path, shown_value(default), f"must result in valid metadata: {text}")]
        return validate_value(schema, default, path)
    errors: Errors = []
    if require_pruned:
        pruned = copy.deepcopy(default)
        prune_default(pruned, schema, resource=embedded)
        if pruned != default:
            errors.append(invalid(path, shown_value(default), "must not have unknown fields"))
    return errors + (
        validate_embedded(schema, default, path) or validate_value(schema, default, path)
    )


def _surround(value: Any, inside: tuple[str, ...]) -> dict[str, Any]:
    for step in reversed(inside):
        value = [value] if step == "[]" else {step: value}
    return {"kind": "Validation", "apiVersion": "validation/v1", **value}


def _from_root(errors: list[FieldError]) -> list[FieldError]:
    return [error._replace(field=error.field.lstrip(".")) for error in errors]


def has_unpruned_defaults(schema: Schema) -> bool:
    return any(
        error.detail == "must not have unknown fields"
        for error in validate_defaults(schema, "", True)
    )
