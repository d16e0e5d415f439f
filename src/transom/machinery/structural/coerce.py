"""Embedded objects in custom objects: checks their type and normalises their metadata."""

from __future__ import annotations

from typing import Any

from transom.machinery import codec
from transom.machinery.field import FieldError, invalid
from transom.machinery.structural.node import StructuralSchema
from transom.machinery.validation.custom import shown_value


class CoerceError(Exception):
    """An embedded object that is invalid."""

    def __init__(self, problem: FieldError) -> None:
        super().__init__(str(problem))


def coerce_object(
    value: Any, node: StructuralSchema | None, path: str = "", *, drop: bool = False
) -> Any:
    """The value with normalised metadata of embedded objects. Invalid metadata raises, or is
    removed if `drop` is set.
    """
    if node is None or not node.embeds:
        return value
    if value.__class__ is dict:
        return _map(value, node, path, drop)
    if value.__class__ is list and node.items is not None:
        items = [
            coerce_object(item, node.items, f"{path}[{i}]", drop=drop)
            for i, item in enumerate(value)
        ]
        return (
            items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        )
    return value


def _map(value: dict[str, Any], node: StructuralSchema, path: str, drop: bool) -> dict[str, Any]:
    out = _embedded(value, path, drop) if node.embedded else value
    for key, item in out.items():
        child = node.properties.get(key)
        where = (f"{path}.{key}" if path else key) if child is not None else f"{path}[{key}]"
        new = coerce_object(item, child or node.additional, where, drop=drop)
        if new is not item:
            out = dict(out) if out is value else out
            out[key] = new
    return out


def _embedded(value: dict[str, Any], path: str, drop: bool) -> dict[str, Any]:
    out = value
    for key in ("apiVersion", "kind"):
        if key in value and not isinstance(value[key], str):
            if not drop:
                raise CoerceError(
                    invalid(_child(path, key), shown_value(value[key]), "must be a string")
                )
            out = {k: v for k, v in out.items() if k != key}
    if "metadata" not in value:
        return out
    meta = _metadata(value["metadata"], _child(path, "metadata"), drop)
    return out if meta == value["metadata"] else {**out, "metadata": meta}


def _child(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _metadata(given: Any, path: str, drop: bool) -> Any:
    try:
        meta = codec.normalise_object_meta(given)
    except codec.DecodeError as problem:
        if not drop:
            raise CoerceError(invalid(path, shown_value(given), problem.base)) from None
        return _readable(given)
    if meta.get("creationTimestamp") is None:
        meta.pop("creationTimestamp", None)
    return meta


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
