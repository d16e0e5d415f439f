"""Sets of field paths, in the format of managedFields.

A set is a FieldsV1 tree: `{"f:data": {".": {}, "f:a": {}}}` holds `.data` and `.data.a`. A node
without entries is a member; a node with entries is a member only if one of them is `.`. The root is
never a member, so `{}` is the empty set. Sets are read-only and share their branches; an operation
that changes nothing returns its first operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import orjson

from transom.kit.goquote import go_quote
from transom.machinery import gofmt, gojson

_REMEMBERED = 4096  # bytes of a set whose order is remembered
_NOT_FIELDS = (b'"k:', b'"v:', b'"i:')
FieldSet = dict[str, Any]
Path = tuple[str, ...]

MEMBER: FieldSet = {}


class InvalidFields(ValueError):
    """A FieldsV1 tree with an invalid path element."""


def is_set_member(node: FieldSet) -> bool:
    return not node or "." in node


def set_union(a: FieldSet, b: FieldSet) -> FieldSet:
    """The fields in either set."""
    if a is b or not b:
        return a
    if not a:
        return b
    out: FieldSet | None = None
    for key, theirs in b.items():
        mine = a.get(key)
        if mine is None:
            joined = theirs
        elif key == "." or mine is theirs:
            continue
        else:
            joined = _union_node(mine, theirs)
            if joined is mine:
                continue
        if out is None:
            out = dict(a)
        out[key] = joined
    return a if out is None else out


def _union_node(a: FieldSet, b: FieldSet) -> FieldSet:
    if not b:
        return a if is_set_member(a) else {".": MEMBER, **a}
    if not a:
        return b if "." in b else {".": MEMBER, **b}
    return set_union(a, b)


def set_difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """The fields in `a` but not in `b`; removing a member keeps its children."""
    if not a or not b:
        return a
    out: FieldSet | None = None
    for key in b if len(b) < len(a) else list(a):
        if key == "." or key not in b or key not in a:
            continue
        mine = a[key]
        left = _difference_node(mine, b[key])
        if left is mine:
            continue
        if out is None:
            out = dict(a)
        if left is None:
            del out[key]
        else:
            out[key] = left
    return a if out is None else out


def _difference_node(a: FieldSet, b: FieldSet) -> FieldSet | None:
    """The node without the fields of `b`; None if nothing is left."""
    if not a:
        return None if is_set_member(b) else a
    rest = set_difference(a, b)
    if "." in rest and is_set_member(b):
        rest = {k: v for k, v in rest.items() if k != "."}
        return rest or None
    if rest is not a and "." in rest and len(rest) == 1:
        return MEMBER
    return rest or None


def set_intersection(a: FieldSet, b: FieldSet) -> FieldSet:
    """The fields in both sets."""
    out: FieldSet = {}
    if len(b) < len(a):
        a, b = b, a
    for key, mine in a.items():
        theirs = b.get(key)
        if theirs is None or key == ".":
            continue
        below = set_intersection(mine, theirs)
        if is_set_member(mine) and is_set_member(theirs):
            out[key] = {".": MEMBER, **below} if below else MEMBER
        elif below:
            out[key] = below
    return out


def has_path(fields: FieldSet, path: Path) -> bool:
    node: FieldSet | None = fields
    for element in path:
        node = node.get(element) if node is not None else None
    return bool(path) and node is not None and is_set_member(node)


def set_of_paths(members: Iterable[Path]) -> FieldSet:
    """The set with just these members."""
    out: FieldSet = {}
    for path in members:
        node = out
        for element in path[:-1]:
            below = node.get(element)
            if below is None:
                below = node[element] = {}
            elif not below:
                below["."] = MEMBER
            node = below
        below = node.setdefault(path[-1], {})
        if below:
            below["."] = MEMBER
    return out


def set_paths(fields: FieldSet) -> Iterator[Path]:
    """Every member: at each level the members first, then their children, both in Kubernetes'
    order.
    """
    keys = sorted((k for k in fields if k != "."), key=_order)
    yield from ((k,) for k in keys if is_set_member(fields[k]))
    for key in keys:
        for path in set_paths(fields[key]):
            yield (key, *path)


def in_order(fields: FieldSet) -> FieldSet:
    """The set with the elements of each level in Kubernetes' order, in which it serialises them:
    clients compare the bytes that they get in protobuf. Equal sets share one result: most objects
    of a kind have the same fields.
    """
    by_name = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    return _known_order(by_name) if len(by_name) <= _REMEMBERED else _order_by_kind(by_name)


def _order_by_kind(by_name: bytes) -> FieldSet:
    """The set of its JSON with sorted names, which is in order but for levels with elements that
    are not fields.
    """
    fields: FieldSet = orjson.loads(by_name)
    return _order_levels(fields) if any(kind in by_name for kind in _NOT_FIELDS) else fields


def _order_levels(fields: FieldSet) -> FieldSet:
    names = list(fields)
    if names and names[-1] >= "g":  # not only fields
        names.sort(key=_order)
    return {name: _order_levels(below) if (below := fields[name]) else MEMBER for name in names}


_known_order = lru_cache(256)(_order_by_kind)


def _order(element: str) -> tuple[int, Any]:
    """The node itself, named fields, then elements by key, by value, by index."""
    kind, text = element[0], element[2:]
    if kind == ".":
        return -1, ""
    if kind == "f":
        return 0, text
    if kind == "k":
        return 1, [(k, _value_order(v)) for k, v in sorted(orjson.loads(text).items())]
    if kind == "v":
        return 2, _value_order(orjson.loads(text))
    return 3, int(text)


def _value_order(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, int | float):
        return 0, value
    if isinstance(value, str):
        return 1, value
    return 3, gojson.marshal(value)


def field_path_text(path: Path) -> str:
    """A path in readable form: `.spec.containers[name="c"].image`."""
    return "".join(map(element_text, path))


def element_text(element: str) -> str:
    kind, text = element[0], element[2:]
    if kind == "f":
        return f".{text}"
    if kind == "k":
        return (
            "["
            + ",".join(f"{k}={_value_text(v)}" for k, v in sorted(orjson.loads(text).items()))
            + "]"
        )
    if kind == "v":
        return f"[={_value_text(orjson.loads(text))}]"
    return f"[{text}]"


def _value_text(value: Any) -> str:
    if isinstance(value, str):
        return go_quote(value)
    return "null" if value is None else gofmt.go_sprint(value)


def from_fields_v1(tree: Any) -> FieldSet:
    """The set of a client's FieldsV1: element names in canonical form, without unknown kinds of
    elements.
    """
    if not isinstance(tree, dict):
        raise InvalidFields(f"not an object: {tree!r}")
    out: FieldSet = {}
    for key, below in tree.items():
        if key == ".":
            continue
        element = _canonical(key)
        if element is None:
            continue
        node = from_fields_v1(below)
        if node and "." in below:
            node["."] = MEMBER
        out[element] = node
    return out


def _canonical(element: str) -> str | None:
    if len(element) < 2:
        raise InvalidFields("key must be 2 characters long:")
    if element[1] != ":":
        raise InvalidFields(f"missing colon: {element}")
    kind, text = element[0], element[2:]
    if kind == "f":
        return element
    try:
        if kind == "v":
            return "v:" + gojson.marshal(orjson.loads(text)).decode()
        if kind == "k":
            keys = orjson.loads(text)
            if not isinstance(keys, dict):
                raise InvalidFields(f"not an object: {element}")
            return "k:" + gojson.marshal(keys).decode()
        if kind == "i":
            return f"i:{int(text)}"
    except ValueError as e:
        raise InvalidFields(str(e)) from None
    return None
