"""Strategic merge patch: a merge patch that knows, from the types, which lists are merged and by
which key.

The order of a merged list: elements of the patch in the patch's order (or in that of
`$setElementOrder`), elements that are not in the patch keep their position, and new elements come
before those. Inputs are never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import orjson

from transom.machinery import schema
from transom.machinery.errors import ApiError, bad_request
from transom.machinery.gofmt import TYPE_NAMES, go_sprint
from transom.machinery.jsonpatch import json_patch_refused
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.typed import TypeNode, type_node_of

Map = dict[str, Any]

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder"
_DELETE_FROM = "$deleteFromPrimitiveList"

_BAD_PRIMITIVE_LIST = "invalid patch format of primitive list"
_BAD_RETAIN_KEYS = "invalid patch format of retainKeys"
_BAD_ELEMENT_ORDER = "invalid patch format of setElementOrder list"
UNSUPPORTED = "strategic merge patch format is not supported"


Added = Callable[[Any], Any]  # what becomes of a value that is new in the document


def strategic_merge(doc: Map, patch: Map, type: schema.SchemaType | TypeNode) -> Map:
    """The document with `patch` merged in, by the merge keys and strategies of `type`."""
    keeps_nulls = isinstance(type, TypeNode) or not has_behaviour(
        type.table.release, "PatchesWithoutNulls"
    )
    return _merge_map(doc, patch, type_node_of(type), _same if keeps_nulls else _without_nulls)


def _same(value: Any) -> Any:
    return value


def _without_nulls(value: Any) -> Any:
    """A value that is new in the document: its nulls delete nothing."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value


def fail_strategic_patch(message: str) -> NoReturn:
    raise ApiError(500, "", message)


def _no_merge_key(element: Map, key: str) -> NoReturn:
    fail_strategic_patch(f"map: {go_sprint(element)} does not contain declared merge key: {key}")


def _expect(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        fail_strategic_patch(
            f"expected a {TYPE_NAMES[kind]}, but received a {TYPE_NAMES[type(value)]}"
        )
    return value


def _unknown_directive(directive: Any, where: Map) -> NoReturn:
    text = (
        directive
        if isinstance(directive, str)
        else f"%!s({TYPE_NAMES[type(directive)]}={go_sprint(directive)})"
    )
    fail_strategic_patch(f"unknown patch type: {text} in map: {go_sprint(where)}")


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _hashable(value: Any) -> Any:
    """A dict key that is the same for two values exactly if they are equal in Go."""
    if value.__class__ is str:
        return value
    if isinstance(value, dict | list):
        return type(value), orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return type(value), value


def _strategy(strategies: str) -> str:
    """The strategy of a field other than retainKeys."""
    return next((s for s in strategies.split(",") if s != "retainKeys"), "")


def _field(type: TypeNode, key: str) -> tuple[TypeNode, str, str]:
    """The node of a field, its strategy and its merge key."""
    if type.fields is None:
        fail_strategic_patch(
            "merging an object in json but data type is not struct, instead is: map"
        )
    found = type.fields.get(key)
    if found is None:
        fail_strategic_patch(
            f'unable to find api field in struct {type.name} for the json field "{key}"'
        )
    return found, _strategy(found.strategy), found.merge_key


def _list_field(type: TypeNode, key: str) -> tuple[TypeNode, str, str]:
    """Like _field, with the node of the list's elements."""
    node, strategy, merge_key = _field(type, key)
    if node.element is None:
        fail_strategic_patch("expected slice or array type, but got: struct")
    return node.element, strategy, merge_key


def _merge_map(original: Map, patch: Map, type: TypeNode, added: Added) -> Map:
    if _DIRECTIVE in patch:
        directive = patch[_DIRECTIVE]
        if directive == "replace":
            return {k: v for k, v in patch.items() if k != _DIRECTIVE}
        if directive == "delete":
            return {}
        _unknown_directive(directive, patch)
    out = dict(original)
    if any(k[:1] == "$" for k in patch):
        patch = dict(patch)
        _retain_keys(out, patch)
        _set_element_orders(out, patch, type, added)
    for key, value in patch.items():
        deleting = key.startswith(_DELETE_FROM)
        if deleting:
            key = _after(key, _DELETE_FROM, _BAD_PRIMITIVE_LIST)
        if value is None:
            out.pop(key, None)
            continue
        current: Any = out.get(key)
        # A list of deletions without a live list becomes the list, as in Kubernetes.
        if current.__class__ is not value.__class__:
            out[key] = added(value)
        elif isinstance(value, dict):
            node, strategy, _ = _field(type, key)
            out[key] = value if strategy == "replace" else _merge_map(current, value, node, added)
        elif isinstance(value, list):
            element, strategy, merge_key = _list_field(type, key)
            merge = strategy == "merge"
            out[key] = (
                _merge_list(current, value, element, merge_key, deleting, added) if merge else value
            )
        else:
            out[key] = value
    return out


def _after(key: str, prefix: str, problem: str) -> str:
    head, slash, rest = key.partition("/")
    if not slash or head != prefix:
        raise bad_request(problem)
    return rest


def _retain_keys(out: Map, patch: Map) -> None:
    if _RETAIN not in patch:
        return
    given = patch.pop(_RETAIN)
    if not isinstance(given, list):
        raise bad_request(_BAD_RETAIN_KEYS)
    keys = {key for key in given if isinstance(key, str)}
    for key, value in patch.items():
        if value is not None and not key.startswith((_DELETE_FROM, _ORDER)) and key not in keys:
            raise bad_request(_BAD_RETAIN_KEYS)
    for key in [k for k in out if k not in keys]:
        del out[key]


def _set_element_orders(out: Map, patch: Map, type: TypeNode, added: Added) -> None:
    """Merges and orders every list that has a `$setElementOrder`, and removes both from the patch."""
    for directive in [k for k in patch if k.startswith(_ORDER)]:
        order = _expect(list, patch.pop(directive))
        key = _after(directive, _ORDER, _BAD_ELEMENT_ORDER)
        original: list[Any] = _expect(list, out[key]) if key in out else []
        changes: list[Any] = _expect(list, patch[key]) if key in patch else []
        element, strategy, merge_key = _list_field(type, key)
        _check_order(changes, order, merge_key)
        if key in out and key in patch:
            if strategy != "merge":
                merged = changes
            elif (
                whole := _merge_whole(original, changes, order, element, merge_key, added)
            ) is not None:
                out[key] = whole
                del patch[key]
                continue
            else:
                merged = _merge_list(original, changes, element, merge_key, False, added)
        elif key in out or key in patch:
            merged = original if key in out else changes
        else:
            continue
        maps = _element_kind(original, changes) is dict
        out[key] = _in_order(merged, order, original, merge_key, maps)
        patch.pop(key, None)


def _merge_whole(
    original: list[Any],
    changes: list[Any],
    order: list[Any],
    element: TypeNode,
    merge_key: str,
    added: Added,
) -> list[Any] | None:
    """The common case, in one pass: maps with distinct names, changed or added, and an order of all
    of them. None in any other case.
    """
    if not original and not changes:
        return None
    merged: dict[str, Map] = {}
    for item in original:
        name = item.get(merge_key) if item.__class__ is dict else None
        if name.__class__ is not str or name in merged:
            return None
        merged[name] = item
    for item in changes:
        name = item.get(merge_key) if item.__class__ is dict and _DIRECTIVE not in item else None
        if name.__class__ is not str:
            return None
        merged[name] = _merge_map(merged[name], item, element, added) if name in merged else item
    out: list[Any] = []
    for item in order:
        name = item.get(merge_key) if item.__class__ is dict and _DIRECTIVE not in item else None
        if name.__class__ is not str or name not in merged:
            return None
        out.append(merged.pop(name))
    return None if merged else out


def _check_order(changes: list[Any], order: list[Any], merge_key: str) -> None:
    """The patch's elements, except deletions, must be in the order list, and in its order."""
    if not order or not changes:
        return
    kept = changes
    if merge_key:
        kept = [c for c in changes if _expect(dict, c).get(_DIRECTIVE) != "delete"]
    at = place = 0
    while at < len(kept) and place < len(order):
        item = kept[at]
        if isinstance(item, dict) and _DIRECTIVE in item:
            at += 1
            continue
        if _equal(_merge_value(item, merge_key), _merge_value(order[place], merge_key)):
            at += 1
        place += 1
    if at < len(kept) and place >= len(order):
        fail_strategic_patch(
            f"The order in patch list:\n{go_sprint(changes)}\n doesn't match {_ORDER} list:\n"
            f"{go_sprint(order)}\n"
        )


def _merge_value(item: Any, merge_key: str) -> Any:
    if not merge_key:
        return item
    if merge_key not in _expect(dict, item):
        _no_merge_key(item, merge_key)
    return item[merge_key]


def _element_kind(*lists: list[Any]) -> type:
    """The one type of all elements; lists of lists and mixed lists cannot be merged."""
    kinds = {type(v) for values in lists for v in values}
    if not kinds:
        fail_strategic_patch("no elements in any of the given slices")
    if list in kinds and type(next(v for values in lists for v in values)) is list:
        raise json_patch_refused()
    if len(kinds) > 1:
        fail_strategic_patch(f"list element types are not identical: {go_sprint(list(lists))}")
    return kinds.pop()


def _merge_list(
    original: list[Any],
    patch: list[Any],
    element: TypeNode,
    merge_key: str,
    deleting: bool,
    added: Added,
) -> list[Any]:
    if not original and not patch:
        return original
    maps = _element_kind(original, patch) is dict
    if not maps:
        if deleting:
            gone = {_hashable(value) for value in patch}
            return [v for v in original if _hashable(v) not in gone]
        merged = _without_repetition([*original, *patch])
    else:
        if not merge_key:
            fail_strategic_patch("cannot merge lists without merge key for struct")
        original, patch = _special_elements(original, patch, merge_key)
        merged = _merge_elements(original, patch, element, merge_key, added)
    return _in_order(merged, patch, original, merge_key, maps)


def _without_repetition(values: list[Any]) -> list[Any]:
    first: dict[Any, Any] = {}
    for value in values:
        first.setdefault(_hashable(value), value)
    return list(first.values())


def _special_elements(
    original: list[Any], patch: list[Any], merge_key: str
) -> tuple[list[Any], list[Any]]:
    """Both lists after applying the `$patch` elements."""
    plain: list[Any] = []
    gone = set()
    replace = False
    for item in patch:
        if _DIRECTIVE not in item:
            plain.append(item)
            continue
        directive = item[_DIRECTIVE]
        if directive == "delete":
            if merge_key not in item:
                _no_merge_key(item, merge_key)
            gone.add(_hashable(item[merge_key]))
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            fail_strategic_patch("merging lists cannot yet be specified in the patch")
        else:
            _unknown_directive(directive, item)
    if gone:
        original = [
            o for o in original if merge_key not in o or _hashable(o[merge_key]) not in gone
        ]
    return (plain, []) if replace else (original, plain)


def _merge_elements(
    original: list[Any], patch: list[Any], element: TypeNode, merge_key: str, added: Added
) -> list[Any]:
    merged = list(original)
    places: dict[Any, int] = {}
    for at, item in enumerate(merged):
        places.setdefault(_hashable(item.get(merge_key)), at)
    for item in patch:
        if merge_key not in item:
            _no_merge_key(item, merge_key)
        found = places.setdefault(_hashable(item[merge_key]), len(merged))
        if found == len(merged):
            merged.append(item)
        else:
            merged[found] = _merge_map(merged[found], item, element, added)
    return merged


def _in_order(
    merged: list[Any], patch_order: list[Any], live_order: list[Any], merge_key: str, maps: bool
) -> list[Any]:
    """Elements that the patch orders and elements that only the live list has, each in their own
    order, interleaved so that a live-only element stays before a patched element that it preceded.
    """
    key = merge_key if maps else ""
    if maps:
        for item in (*merged, *patch_order, *live_order):
            if merge_key not in _expect(dict, item):
                _no_merge_key(item, merge_key)

    patched, lived = _places(patch_order, key), _places(live_order, key)

    def deletion(item: Any) -> bool:
        return maps and item.get(_DIRECTIVE) == "delete"

    ordered = [m for m in merged if patched(m) >= 0]
    ordered = sorted((m for m in ordered if not deletion(m)), key=patched) + [
        m for m in ordered if deletion(m)
    ]
    live_only = sorted((m for m in merged if patched(m) < 0), key=lived)
    out: list[Any] = []
    i = 0
    for item in ordered:
        place = lived(item)
        while i < len(live_only) and 0 <= lived(live_only[i]) < place:
            out.append(live_only[i])
            i += 1
        out.append(item)
    return out + live_only[i:]


def _places(order: list[Any], key: str) -> Callable[[Any], int]:
    """The position of an element in the order; -1 if it has none."""
    places: dict[Any, int] = {}
    for at, item in enumerate(order):
        places.setdefault(_hashable(item[key] if key else item), at)
    return lambda item: places.get(_hashable(item[key] if key else item), -1)


def without_directives(patch: Any) -> Any:
    """A patch without merge directives: removes orders and retained keys, with the lists that had
    an order.
    """
    if isinstance(patch, list):
        return [without_directives(v) for v in patch]
    if not isinstance(patch, dict):
        return patch
    ordered = {k.partition("/")[2] for k in patch if k.startswith(_ORDER)}
    return {
        k: without_directives(v)
        for k, v in patch.items()
        if k != _RETAIN and k not in ordered and not k.startswith(_ORDER)
    }
