"""The schema of a CustomResourceDefinition as OpenAPI v3: allowed keywords, and list and map types.

`structural` checks whether it is structural.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from transom.machinery.field import forbidden, invalid, not_supported, required
from transom.machinery.validation.custom import Schema
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.repetitions import repetitions
from transom.machinery.validation.rules import Errors
from transom.machinery.validation.schema_extensions import (
    EMBEDDED,
    INT_OR_STRING,
    META_FIELDS,
    PRESERVE,
)

TYPES = ("array", "boolean", "integer", "number", "object", "string")
LIST_TYPE, MAP_TYPE, MAP_KEYS = (
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-list-map-keys",
)
_UNIQUE = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
_ATOMIC = "must be atomic as item of a list with x-kubernetes-list-type=set"


class Demands(NamedTuple):
    """The requirements for a schema; an update requires no more than the stored one already
    meets.
    """

    known_types: bool = True
    atomic_sets: bool = True
    sound_map_keys: bool = True
    defaults_forbidden: str | None = None  # the reason, if defaults are not allowed here
    inside_meta: bool = False


def children(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Every directly nested schema, with its part of the path."""
    if isinstance(schema.get("additionalProperties"), dict):
        yield ".additionalProperties", schema["additionalProperties"]
    for key, inner in (schema.get("properties") or {}).items():
        yield f".properties[{key}]", inner
    if schema.get("not") is not None:
        yield ".not", schema["not"]
    for name in ("allOf", "oneOf", "anyOf"):
        for i, inner in enumerate(schema.get(name) or ()):
            yield f".{name}[{i}]", inner
    for key, inner in (schema.get("definitions") or {}).items():
        yield f".definitions[{key}]", inner
    items = schema.get("items")
    if isinstance(items, dict):
        yield ".items", items
    elif items:
        yield from ((f".items[{i}]", inner) for i, inner in enumerate(items))
    for key, inner in (schema.get("dependencies") or {}).items():
        if isinstance(inner, dict):
            yield f".dependencies[{key}]", inner


def schema_has(schema: Schema | None, wanted: Callable[[Schema], Any]) -> bool:
    """Whether a schema, or a nested one, has a certain property."""
    if schema is None:
        return False
    return (
        bool(wanted(schema))
        or any(schema_has(inner, wanted) for _, inner in children(schema))
        or any(
            schema_has(inner, wanted) for inner in (schema.get("patternProperties") or {}).values()
        )
    )


def has_defaults(schema: Schema | None) -> bool:
    return schema_has(schema, lambda s: s.get("default") is not None)


def has_extensions(schema: Schema | None) -> bool:
    return schema_has(
        schema,
        lambda s: (
            s.get(EMBEDDED)
            or s.get(PRESERVE) is not None
            or s.get(INT_OR_STRING)
            or s.get(MAP_KEYS)
            or s.get(LIST_TYPE) is not None
        ),
    )


def has_unknown_types(schema: Schema | None) -> bool:
    return schema_has(schema, lambda s: s.get("type") and s["type"] not in TYPES)


def has_non_atomic_sets(schema: Schema | None) -> bool:
    return schema_has(schema, lambda s: _set_items(s, ""))


def has_unsound_map_keys(schema: Schema | None) -> bool:
    return schema_has(schema, lambda s: _map_keys(s, ""))


def validate_schema(schema: Schema, path: str, demands: Demands, *, root: bool = True) -> Errors:
    errors = _keywords(schema, path, demands)
    if schema.get("uniqueItems"):
        errors.append(forbidden(f"{path}.uniqueItems", _UNIQUE))
    additional = schema.get("additionalProperties")
    if additional is not None and schema.get("properties") and additional is not True:
        errors.append(
            forbidden(
                f"{path}.additionalProperties",
                "additionalProperties and properties are mutual exclusive",
            )
        )
    for step, inner in children(schema):
        errors += validate_schema(
            inner, path + step, _inside(schema, step, demands, root), root=False
        )
    if schema.get(PRESERVE) is False:
        errors.append(invalid(f"{path}.{PRESERVE}", False, "must be true or undefined"))
    return errors + _map_type(schema, path) + _list_type(schema, path, demands)


def _inside(schema: Schema, step: str, demands: Demands, root: bool) -> Demands:
    """Defaults are not allowed in the metadata of a resource where their meaning would be
    ambiguous.
    """
    if step == ".additionalProperties" and demands.inside_meta:
        return demands._replace(
            defaults_forbidden="inside additionalProperties applying to object metadata"
        )
    name = (
        step.removeprefix(".properties[").removesuffix("]")
        if step.startswith(".properties[")
        else ""
    )
    if name in META_FIELDS and (root or schema.get(EMBEDDED)):
        reason = f"in top-level {name}" if root else demands.defaults_forbidden
        return demands._replace(inside_meta=True, defaults_forbidden=reason)
    return demands


def _keywords(schema: Schema, path: str, demands: Demands) -> Errors:
    errors: Errors = []
    kind = schema.get("type", "")
    if demands.known_types and kind and kind not in TYPES:
        errors.append(not_supported(f"{path}.type", kind, TYPES))
    if schema.get("default") is not None and demands.defaults_forbidden is not None:
        errors.append(
            forbidden(f"{path}.default", f"must not be set {demands.defaults_forbidden}".rstrip())
        )
    if schema.get("id"):
        errors.append(forbidden(f"{path}.id", "id is not supported"))
    if schema.get("additionalItems") is not None:
        errors.append(forbidden(f"{path}.additionalItems", "additionalItems is not supported"))
    for name in ("patternProperties", "definitions"):
        if schema.get(name):
            errors.append(forbidden(f"{path}.{name}", f"{name} is not supported"))
    for name in ("dependencies", "$ref"):
        if schema.get(name) is not None:
            errors.append(forbidden(f"{path}.{name}", f"{name} is not supported"))
    if kind == "null":
        errors.append(
            forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
        )
    if isinstance(schema.get("items"), list) and schema["items"]:
        errors.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
    if demands.inside_meta and schema.get(EMBEDDED):
        errors.append(forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta"))
    return errors


def _must_be(kind: str, wanted: str, because: str, path: str) -> Errors:
    text = f"must be {wanted} if {because} is specified"
    return [invalid(f"{path}.type", kind, text) if kind else required(f"{path}.type", text)]


def _map_type(schema: Schema, path: str) -> Errors:
    map_type, kind = schema.get(MAP_TYPE), schema.get("type", "")
    if map_type is None:
        return []
    errors = [] if kind == "object" else _must_be(kind, "object", MAP_TYPE, path)
    if map_type not in ("atomic", "granular"):
        errors.append(not_supported(f"{path}.{MAP_TYPE}", map_type, ("atomic", "granular")))
    return errors


def _set_items(schema: Schema, path: str) -> Errors:
    """Elements of a set are compared as a whole, so they must not be merged field by field."""
    items = schema.get("items")
    if schema.get(LIST_TYPE) != "set" or not isinstance(items, dict):
        return []
    list_type = items.get(LIST_TYPE)
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        return [invalid(f"{path}.items.{LIST_TYPE}", list_type, _ATOMIC)]
    if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        return [invalid(f"{path}.items.{MAP_TYPE}", list_type, _ATOMIC)]
    return []


def _list_type(schema: Schema, path: str, demands: Demands) -> Errors:
    list_type, kind, keys = schema.get(LIST_TYPE), schema.get("type", ""), schema.get(MAP_KEYS)
    errors: Errors = []
    if list_type is not None and kind != "array":
        errors += _must_be(kind, "array", LIST_TYPE, path)
    elif demands.atomic_sets:
        errors += _set_items(schema, path)
    if list_type is not None and list_type not in ("atomic", "set", "map"):
        errors.append(not_supported(f"{path}.{LIST_TYPE}", list_type, ("atomic", "set", "map")))
    if keys and list_type != "map":
        text = f"must be map if {MAP_KEYS} is non-empty"
        where = f"{path}.{LIST_TYPE}"
        errors.append(
            required(where, text) if list_type is None else invalid(where, list_type, text)
        )
    if list_type == "map":
        errors += _list_map(schema, keys or [], path)
    return errors + (_map_keys(schema, path) if demands.sound_map_keys else [])


def _list_map(schema: Schema, keys: list[str], path: str) -> Errors:
    errors: Errors = []
    items = schema.get("items")
    if not keys:
        errors.append(required(f"{path}.{MAP_KEYS}", f"must not be empty if {LIST_TYPE} is map"))
    if items is None:
        errors.append(required(f"{path}.items", f"must have a schema if {LIST_TYPE} is map"))
    elif not isinstance(items, dict):
        errors.append(
            invalid(
                f"{path}.items",
                go_dump("apiextensions.JSONSchemaPropsOrArray", {"jsonSchemas": items}),
                f"must only have a single schema if {LIST_TYPE} is map",
            )
        )
    elif items.get("type", "") != "object":
        errors.append(
            invalid(
                f"{path}.items.type",
                items.get("type", ""),
                f"must be object if parent array's {LIST_TYPE} is map",
            )
        )
    else:
        properties = items.get("properties") or {}
        repeated, shown = repetitions(keys), go_dump("[]string", keys)
        for i, key in enumerate(keys):
            if key not in properties:
                errors.append(
                    invalid(
                        f"{path}.{MAP_KEYS}", shown, "entries must all be names of item properties"
                    )
                )
            elif properties[key].get("type") in ("array", "object"):
                errors.append(
                    invalid(
                        f"{path}.items.properties[{key}].type",
                        "object",
                        f"must be a scalar type if parent array's {LIST_TYPE} is map",
                    )
                )
            if i in repeated:
                errors.append(
                    invalid(f"{path}.{MAP_KEYS}", shown, "must not contain duplicate entries")
                )
    return errors


def _map_keys(schema: Schema, path: str) -> Errors:
    """Keys must always have a value, and neither they nor whole elements may be null."""
    items, list_type = schema.get("items"), schema.get(LIST_TYPE)
    if not isinstance(items, dict) or list_type not in ("set", "map"):
        return []
    errors: Errors = []
    if items.get("nullable"):
        errors.append(
            forbidden(
                f"{path}.items.nullable", f"cannot be nullable when {LIST_TYPE} is {list_type}"
            )
        )
    properties, needed = items.get("properties") or {}, items.get("required") or ()
    for key in (schema.get(MAP_KEYS) or ()) if list_type == "map" else ():
        if key not in properties:
            continue
        where = f"{path}.items.properties[{key}]"
        if key not in needed and properties[key].get("default") is None:
            errors.append(
                required(
                    f"{where}.default",
                    f"this property is in {MAP_KEYS}, so it must have a default or "
                    "be a required property",
                )
            )
        if properties[key].get("nullable"):
            errors.append(
                forbidden(
                    f"{where}.nullable", f"this property is in {MAP_KEYS}, so it cannot be nullable"
                )
            )
    return errors
