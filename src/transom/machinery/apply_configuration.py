"""Merges the apply configuration of a mutating policy into an object, without field ownership
(k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch/smd.go).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transom.machinery.objects import Object
from transom.machinery.schema import SchemaType
from transom.machinery.typed import ATOMIC, TypeNode, type_node_of
from transom.machinery.typedvalue import merge_typed_values, validate_typed_value


def merge_apply_configuration(type: SchemaType | TypeNode, obj: Object, patch: Object) -> Object:
    """The object with the fields of the patch; raises ValueError with the reason if that is not
    possible.
    """
    node = type_node_of(type)
    patch = {**patch, "apiVersion": obj.get("apiVersion"), "kind": obj.get("kind")}
    problem = validate_typed_value(patch, node)
    if problem:
        raise ValueError(f"failed to convert patch object to typed object: {problem}")
    atomics = list(_atomics(patch, node, ""))
    if atomics:
        raise ValueError(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
            f"{', '.join(atomics)}"
        )
    merged: Object = merge_typed_values(obj, patch, node)
    return merged


def _atomics(value: Any, node: TypeNode, path: str) -> Iterator[str]:
    """The paths of atomic values, which a patch would replace as a whole."""
    if isinstance(value, dict) and node.map:
        if node.map == ATOMIC:
            yield path
        for key, item in value.items():
            child = (node.fields or {}).get(key)
            if child is not None:
                yield from _atomics(item, child, f"{path}.{key}")
    elif isinstance(value, list) and node.list:
        if node.list == ATOMIC:
            yield path
        if node.element is not None:
            for i, item in enumerate(value):
                yield from _atomics(item, node.element, f"{path}[{i}]")
