"""Embedded objects in custom objects: checks their type and normalises their metadata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transom.kit.named_tuple import NamedTuple
from transom.machinery import codec, schema
from transom.machinery.field import FieldError, GoText, invalid
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.schema import SchemaTable, SchemaType
from transom.machinery.structural.node import StructuralSchema
from transom.machinery.validation.custom import shown_value


class CoerceError(Exception):
    """An embedded object that is invalid."""

    def __init__(self, problem: FieldError) -> None:
        super().__init__(str(problem))


class Coercion(NamedTuple):
    """How metadata is read: invalid parts raise, or are removed if `drop` is set; names of unknown
    fields are added to `unknown`.
    """

    types: SchemaTable = schema.BASE
    drop: bool = False
    unknown: list[str] | None = None


_DEFAULT = Coercion()


def coerce_object(
    value: Any, node: StructuralSchema | None, path: str = "", how: Coercion = _DEFAULT
) -> Any:
    """The value with normalised metadata of embedded objects."""
    if node is None or not node.embeds:
        return value
    if value.__class__ is dict:
        return _map(value, node, path, how)
    if value.__class__ is list and node.items is not None:
        items = [
            coerce_object(item, node.items, f"{path}[{i}]", how) for i, item in enumerate(value)
        ]
        return (
            items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        )
    return value


def _map(value: dict[str, Any], node: StructuralSchema, path: str, how: Coercion) -> dict[str, Any]:
    out = _embedded(value, path, how) if node.embedded else value
    for key, item in out.items():
        child = node.properties.get(key)
        where = (f"{path}.{key}" if path else key) if child is not None else f"{path}[{key}]"
        new = coerce_object(item, child or node.additional, where, how)
        if new is not item:
            out = dict(out) if out is value else out
            out[key] = new
    return out


def _embedded(value: dict[str, Any], path: str, how: Coercion) -> dict[str, Any]:
    out = value
    for key in ("apiVersion", "kind"):
        if key in value and not isinstance(value[key], str):
            if not how.drop:
                raise CoerceError(
                    invalid(_child(path, key), shown_value(value[key]), "must be a string")
                )
            out = {k: v for k, v in out.items() if k != key}
    if "metadata" not in value:
        return out
    meta = _metadata(value["metadata"], _child(path, "metadata"), how)
    return out if meta == value["metadata"] else {**out, "metadata": meta}


def _child(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _metadata(given: Any, path: str, how: Coercion) -> Any:
    try:
        meta = codec.normalise_object_meta(given, how.types)
    except codec.DecodeError as problem:
        if not how.drop:
            shown = shown_value(given)
            if isinstance(shown, GoText) and has_behaviour(how.types.release, "JsonValuesInErrors"):
                shown = GoText(shown.json)
            raise CoerceError(invalid(path, shown, problem.base)) from None
        return _readable(given)
    if how.unknown is not None:
        how.unknown.extend(_unknown(given, how.types.get(schema.OBJECT_META), path))
    if meta.get("creationTimestamp") is None:
        meta.pop("creationTimestamp", None)
    return meta


def _unknown(given: Any, of: SchemaType, path: str) -> Iterator[str]:
    """The paths of fields that metadata does not have."""
    for key, item in given.items() if isinstance(given, dict) else ():
        known = of.properties.get(key)
        where = _child(path, key)
        if known is None:
            yield where
        elif known.struct is not None and known.kind in ("list", "struct"):
            items = item if isinstance(item, list) else [item]
            for i, inner in enumerate(items):
                at = f"{where}[{i}]" if known.kind == "list" else where
                yield from _unknown(inner, known.struct, at)


def _readable(given: Any) -> Any:
    """The valid part of metadata, field by field."""
    if not isinstance(given, dict):
        return given
    out: dict[str, Any] = {}
    for key, value in given.items():
        try:
            out.update(
                {
                    k: v
                    for k, v in codec.normalise_object_meta({key: value}).items()
                    if v is not None
                }
            )
        except codec.DecodeError:
            continue  # drops only this field
    return out
