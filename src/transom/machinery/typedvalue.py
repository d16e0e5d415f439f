"""Operations on objects along their types: checking, merging, comparing, listing and removing
fields.

These are the operations of structured merging, each one recursive function. Objects are never
changed; results share parts with their operands. Managers, conflicts and metadata are handled
elsewhere.
"""

from __future__ import annotations

from typing import Any

from transom.machinery.fieldset import MEMBER, FieldSet, element_text, is_set_member
from transom.machinery.gofmt import TYPE_NAMES, go_sprint, go_syntax
from transom.machinery.typed import ATOMIC, GRANULAR, MAP, SET, TypeNode, Unmanageable, element_name

# Checking


def validate_typed_value(value: Any, node: TypeNode) -> str:
    """All differences of a value from its type, as one message; empty if there are none."""
    errors = _errors(value, node, "")
    if len(errors) <= 1:
        return "".join(errors)
    return "\n".join(["errors:", *(f"  {e}" for e in errors)])


def _errors(value: Any, node: TypeNode, path: str) -> list[str]:
    prefix = f"{path}: " if path else ""
    if value is None:
        return []
    if isinstance(value, dict) and node.map:
        return _map_errors(value, node, path)
    if isinstance(value, list) and node.list:
        return _list_errors(value, node, path)
    if node.scalar and not (isinstance(value, dict | list) and node.map):
        problem = _scalar_error(value, node.scalar)
        return [prefix + problem] if problem else []
    return [f"{prefix}expected {'map' if node.map else 'list'}, got &{{{go_sprint(value)}}}"]


def _scalar_error(value: Any, kind: str) -> str:
    if kind == "string" and not isinstance(value, str):
        return f"expected string, got &value.valueUnstructured{{Value:{go_syntax(value)}}}"
    if kind == "numeric" and (isinstance(value, bool) or not isinstance(value, int | float)):
        return f"expected numeric (int or float), got {TYPE_NAMES[type(value)]}"
    if kind == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got &{{{go_sprint(value)}}}"
    return ""


def _map_errors(value: dict[str, Any], node: TypeNode, path: str) -> list[str]:
    out: list[str] = []
    for key, item in value.items():
        child = node.child(key)
        if child is None:
            out.append(f"{path}.{key}: field not declared in schema")
            break
        out += _errors(item, child, f"{path}.{key}")
    return out


def _list_errors(value: list[Any], node: TypeNode, path: str) -> list[str]:
    assert node.element is not None
    out: list[str] = []
    seen: set[str] = set()
    prefix = f"{path}: " if path else ""
    for i, item in enumerate(value):
        if node.list == ATOMIC:
            text = f"[{i}]"
        else:
            try:
                name = element_name(node, item)
            except Unmanageable as e:
                return [*out, f"{prefix}element {i}: {e}"]
            text = element_text(name)
            if name in seen:
                out.append(f"{prefix}duplicate entries for key {text}")
            seen.add(name)
        out += _errors(item, node.element, path + text)
    return out


def _check(value: Any, node: TypeNode) -> None:
    if node.has_nested_lists and not _fits(value, node):
        problem = validate_typed_value(value, node)
        if problem:
            raise Unmanageable(problem)


def _fits(value: Any, node: TypeNode) -> bool:
    """Whether `validate_typed_value` would find no error, without building its messages."""
    if value is None:
        return True
    kind = value.__class__
    if kind is dict and node.map:
        for key, item in value.items():
            child = node.child(key)
            if child is None or not _fits(item, child):
                return False
        return True
    if kind is list and node.list:
        element = node.element
        assert element is not None
        if node.list != ATOMIC:
            try:
                _by_name(value, node)
            except Unmanageable:
                return False
        return all(_fits(item, element) for item in value)
    return bool(node.scalar) and not _scalar_error(value, node.scalar)


# Comparing


def all_fields(value: Any, node: TypeNode) -> FieldSet:
    """Every field of an added or removed value: containers are members, too."""
    if value.__class__ is dict:
        if not value:
            return MEMBER
        if node.map != GRANULAR:
            _check(value, node)
            return MEMBER
        out: FieldSet = {".": MEMBER}
        fields, extra = node.fields, node.additional
        if fields is None:
            if extra is None:
                raise Unmanageable("field not declared in schema")
            if extra.leaf:
                for key in value:
                    out["f:" + key] = MEMBER
                return out
            fields = _NO_FIELDS
        for key, item in value.items():
            child = fields.get(key)
            if child is not None:
                out[child.fkey] = MEMBER if child.leaf else all_fields(item, child)
            elif extra is not None:
                out["f:" + key] = MEMBER if extra.leaf else all_fields(item, extra)
            else:
                raise Unmanageable(f".{key}: field not declared in schema")
        return out
    return _all_elements(value, node) if value.__class__ is list and value else MEMBER


def _all_elements(value: list[Any], node: TypeNode) -> FieldSet:
    kind = node.list
    if kind != MAP and kind != SET:
        _check(value, node)
        return MEMBER
    out: FieldSet = {".": MEMBER}
    element = node.element
    assert element is not None
    for item in value:
        name = element_name(node, item)
        if name in out:
            raise Unmanageable(f"duplicate entries for key {element_text(name)}")
        out[name] = MEMBER if kind == SET else all_fields(item, element)
    return out


_NO_FIELDS: dict[str, TypeNode] = {}


def compare_typed_values(
    old: Any, new: Any, node: TypeNode
) -> tuple[FieldSet | None, FieldSet | None]:
    """(fields added or modified, fields removed) at and below a place, for two unequal existing
    values.
    """
    if node.leaf:
        return MEMBER, None
    old_class, new_class = old.__class__, new.__class__
    if node.map and (new_class is dict or new is None) and (old_class is dict or old is None):
        return _compare_maps(old or {}, new or {}, node)
    if node.list and (new_class is list or new is None) and (old_class is list or old is None):
        return _compare_lists(old or [], new or [], node)
    # Values of different kinds, which only an untyped place allows: the place is modified, its old
    # children are removed and its new children added.
    return _as_member(_below(new, node)), _below(old, node) or None


def _below(value: Any, node: TypeNode) -> FieldSet:
    if value.__class__ is dict and value and node.map == GRANULAR:
        return {k: v for k, v in all_fields(value, node).items() if k != "."}
    return {}


def _compare_maps(
    old: dict[str, Any], new: dict[str, Any], node: TypeNode
) -> tuple[FieldSet | None, FieldSet | None]:
    if node.map != GRANULAR:
        _check(new, node)
        return MEMBER, None
    if not old and not new:
        return MEMBER, None
    changed: FieldSet = {}
    removed: FieldSet = {}
    for key, item in new.items():
        if key in old:
            before = old[key]
            if before is item or before == item:
                continue
            child = _child(node, key)
            now, gone = compare_typed_values(before, item, child)
            if now is not None:
                changed[child.fkey or "f:" + key] = now
            if gone is not None:
                removed[child.fkey or "f:" + key] = gone
        else:
            child = _child(node, key)
            changed[child.fkey or "f:" + key] = MEMBER if child.leaf else all_fields(item, child)
    for key, item in old.items():
        if key not in new:
            child = _child(node, key)
            removed[child.fkey or "f:" + key] = MEMBER if child.leaf else all_fields(item, child)
    return changed or None, removed or None


def _child(node: TypeNode, key: str) -> TypeNode:
    child = node.child(key)
    if child is None:
        raise Unmanageable(f".{key}: field not declared in schema")
    return child


def _compare_lists(
    old: list[Any], new: list[Any], node: TypeNode
) -> tuple[FieldSet | None, FieldSet | None]:
    if node.list == ATOMIC:
        _check(new, node)
        return MEMBER, None
    if not old and not new:
        return MEMBER, None
    element = node.element
    assert element is not None
    before = _by_name(old, node)
    changed: FieldSet = {}
    removed: FieldSet = {}
    for name, item in _by_name(new, node).items():
        if name not in before:
            changed[name] = MEMBER if node.list == SET else all_fields(item, element)
            continue
        was = before.pop(name)
        if was is item or was == item:
            continue
        now, gone = compare_typed_values(was, item, element)
        if now is not None:
            changed[name] = now
        if gone is not None:
            removed[name] = gone
    for name, item in before.items():
        removed[name] = MEMBER if node.list == SET else all_fields(item, element)
    return changed or None, removed or None


def _by_name(items: list[Any], node: TypeNode) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for item in items:
        name = element_name(node, item)
        if name in out:
            raise Unmanageable(f"duplicate entries for key {element_text(name)}")
        out[name] = item
    return out


# Merging and listing, for apply


def merge_typed_values(live: Any, config: Any, node: TypeNode) -> Any:
    """The live value merged with an applied one: nothing is removed, new list elements come last."""
    if node.map == GRANULAR and isinstance(config, dict | None) and isinstance(live, dict | None):
        if not config or not live:
            return live or config
        out = dict(live)
        for key, item in config.items():
            out[key] = (
                merge_typed_values(live[key], item, _child(node, key)) if key in live else item
            )
        return out
    if (
        node.list in (SET, MAP)
        and isinstance(config, list | None)
        and isinstance(live, list | None)
    ):
        if not config or not live:
            return live or config
        assert node.element is not None
        merged = _by_name(live, node)
        for name, item in _by_name(config, node).items():
            merged[name] = (
                merge_typed_values(merged[name], item, node.element) if name in merged else item
            )
        return list(merged.values())
    return config


def field_set_of(value: Any, node: TypeNode) -> FieldSet:
    """The fields of an applied configuration: leaves, list elements and map keys, not the
    containers.
    """
    return _named_fields(value, node) or {}


def _named_fields(value: Any, node: TypeNode) -> FieldSet | None:
    if value is None:
        whole = node.map == ATOMIC if node.map else node.scalar or node.list == ATOMIC
        return MEMBER if whole else None
    out: FieldSet = {}
    if isinstance(value, dict) and node.map == GRANULAR:
        fields = node.fields or _NO_FIELDS
        for key, item in value.items():
            child = _child(node, key)
            below = _named_fields(item, child)
            if item is None or item == {} or key not in fields:
                below = _as_member(below)
            if below is not None:
                out["f:" + key] = below
        return out or None
    if isinstance(value, list) and node.list in (SET, MAP):
        assert node.element is not None
        for item in value:
            out[element_name(node, item)] = _as_member(_named_fields(item, node.element))
        return out or None
    return MEMBER


def _as_member(below: FieldSet | None) -> FieldSet:
    return {**below, ".": MEMBER} if below else MEMBER


def remove_fields(value: Any, items: FieldSet, node: TypeNode) -> Any:
    """The value without the fields of the set; None if a container becomes empty."""
    if isinstance(value, dict) and node.map:
        if node.map == ATOMIC:
            return None
        out: dict[str, Any] = {}
        for key, item in value.items():
            gone = items.get("f:" + key)
            if gone is None:
                out[key] = item
            elif not is_set_member(gone):
                out[key] = remove_fields(item, gone, _child(node, key))
        return out or None
    if isinstance(value, list) and node.list:
        if node.list == ATOMIC:
            return None
        assert node.element is not None
        kept: list[Any] = []
        for item in value:
            gone = items.get(element_name(node, item))
            if gone is None:
                kept.append(item)
            elif not is_set_member(gone):
                kept.append(remove_fields(item, gone, node.element))
        return kept or None
    return value


def with_named_parents(fields: FieldSet, node: TypeNode | None) -> FieldSet:
    """The set, and every declared field of a struct that has members below it."""
    out: FieldSet = {}
    for key, below in fields.items():
        if not below:
            out[key] = below
            continue
        child: TypeNode | None = None
        declared = False
        if node is not None and key[0] == "f" and node.map:
            declared = node.fields is not None and key[2:] in node.fields
            child = node.child(key[2:])
        elif node is not None and key[0] == "k" and node.list:
            child = node.element
        below = with_named_parents(below, child)
        out[key] = {**below, ".": MEMBER} if declared else below
    return out


def reconcile_field_set(fields: FieldSet, node: TypeNode) -> FieldSet:
    """The set after type changes: a manager that owned parts of a value that is now atomic owns the
    whole.
    """
    if not fields or (node.scalar and not node.map):
        return fields
    if node.map:
        if node.is_deduced_map:
            return fields
        if node.map == ATOMIC:
            return MEMBER
    elif node.list == ATOMIC:
        return MEMBER
    out: FieldSet | None = None
    for key, below in fields.items():
        child = node.child(key[2:]) if node.map else node.element
        if key == "." or child is None:
            continue
        now = reconcile_field_set(below, child)
        if now is not below:
            out = dict(fields) if out is None else out
            out[key] = now
    return fields if out is None else out
