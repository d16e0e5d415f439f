"""Strategic merge patch: a merge patch that knows, from the types, which lists are merged and by which key.

The order of a merged list: elements of the patch in the patch's order (or in that of `$setElementOrder`), those the
patch does not name where they stood before, and an element that is new in front of those. Inputs are never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from transom.machinery import schema
from transom.machinery.errors import ApiError, bad_request
from transom.machinery.gofmt import TYPE_NAMES, sprint
from transom.machinery.jsonpatch import refused
from transom.machinery.typed import Node, node_of

Map = dict[str, Any]

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder"
_DELETE_FROM = "$deleteFromPrimitiveList"

_BAD_PRIMITIVE_LIST = "invalid patch format of primitive list"
_BAD_RETAIN_KEYS = "invalid patch format of retainKeys"
_BAD_ELEMENT_ORDER = "invalid patch format of setElementOrder list"
UNSUPPORTED = "strategic merge patch format is not supported"


def strategic_merge(doc: Map, patch: Map, type: schema.Type | Node) -> Map:
    """The document with `patch` merged in, by the merge keys and strategies of `type`."""
    return _merge_map(doc, patch, node_of(type))


def fail(message: str) -> NoReturn:
    raise ApiError(500, "", message)


def _no_merge_key(element: Map, key: str) -> NoReturn:
    fail(f"map: {sprint(element)} does not contain declared merge key: {key}")


def _expect(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        fail(f"expected a {TYPE_NAMES[kind]}, but received a {TYPE_NAMES[type(value)]}")
    return value


def _unknown_directive(directive: Any, where: Map) -> NoReturn:
    text = directive if isinstance(directive, str) else f"%!s({TYPE_NAMES[type(directive)]}={sprint(directive)})"
    fail(f"unknown patch type: {text} in map: {sprint(where)}")


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _strategy(strategies: str) -> str:
    """What a field's strategy says beside retainKeys."""
    return next((s for s in strategies.split(",") if s != "retainKeys"), "")


def _field(type: Node, key: str) -> tuple[Node, str, str]:
    """The node of a field, its strategy and its merge key."""
    if type.fields is None:
        fail("merging an object in json but data type is not struct, instead is: map")
    found = type.fields.get(key)
    if found is None:
        fail(f'unable to find api field in struct {type.name} for the json field "{key}"')
    return found, _strategy(found.strategy), found.merge_key


def _list_field(type: Node, key: str) -> tuple[Node, str, str]:
    """As _field, with the node of the list's elements."""
    node, strategy, merge_key = _field(type, key)
    if node.element is None:
        fail("expected slice or array type, but got: struct")
    return node.element, strategy, merge_key


def _merge_map(original: Map, patch: Map, type: Node) -> Map:
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
        _set_element_orders(out, patch, type)
    for key, value in patch.items():
        deleting = key.startswith(_DELETE_FROM)
        if deleting:
            key = _after(key, _DELETE_FROM, _BAD_PRIMITIVE_LIST)
        if value is None:
            out.pop(key, None)
            continue
        current: Any = out.get(key)
        # A list of deletions without anything to delete from becomes the list: so it is in Kubernetes.
        if current.__class__ is not value.__class__:
            out[key] = value
        elif isinstance(value, dict):
            node, strategy, _ = _field(type, key)
            out[key] = value if strategy == "replace" else _merge_map(current, value, node)
        elif isinstance(value, list):
            element, strategy, merge_key = _list_field(type, key)
            merge = strategy == "merge"
            out[key] = _merge_list(current, value, element, merge_key, deleting) if merge else value
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
    keys = patch.pop(_RETAIN)
    if not isinstance(keys, list):
        raise bad_request(_BAD_RETAIN_KEYS)
    for key, value in patch.items():
        if value is not None and not key.startswith((_DELETE_FROM, _ORDER)) and key not in keys:
            raise bad_request(_BAD_RETAIN_KEYS)
    for key in [k for k in out if k not in keys]:
        del out[key]


def _set_element_orders(out: Map, patch: Map, type: Node) -> None:
    """Merges and orders every list that has a `$setElementOrder`, and takes both out of the patch."""
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
            elif (whole := _merge_whole(original, changes, order, element, merge_key)) is not None:
                out[key] = whole
                del patch[key]
                continue
            else:
                merged = _merge_list(original, changes, element, merge_key, False)
        elif key in out or key in patch:
            merged = original if key in out else changes
        else:
            continue
        maps = _element_kind(original, changes) is dict
        out[key] = _in_order(merged, order, original, merge_key, maps)
        patch.pop(key, None)


def _merge_whole(
    original: list[Any], changes: list[Any], order: list[Any], element: Node, merge_key: str
) -> list[Any] | None:
    """The usual case, in one go: maps with names that are told apart, changed or added, and an order of all of them. None
    where anything is different."""
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
        merged[name] = _merge_map(merged[name], item, element) if name in merged else item
    out: list[Any] = []
    for item in order:
        name = item.get(merge_key) if item.__class__ is dict and _DIRECTIVE not in item else None
        if name.__class__ is not str or name not in merged:
            return None
        out.append(merged.pop(name))
    return None if merged else out


def _check_order(changes: list[Any], order: list[Any], merge_key: str) -> None:
    """The patch's elements, deletions apart, must stand in the order list, and in its order."""
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
        fail(f"The order in patch list:\n{sprint(changes)}\n doesn't match {_ORDER} list:\n"
             f"{sprint(order)}\n")


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
        fail("no elements in any of the given slices")
    if list in kinds and type(next(v for values in lists for v in values)) is list:
        raise refused()
    if len(kinds) > 1:
        fail(f"list element types are not identical: {sprint(list(lists))}")
    return kinds.pop()


def _merge_list(original: list[Any], patch: list[Any], element: Node, merge_key: str, deleting: bool) -> list[Any]:
    if not original and not patch:
        return original
    maps = _element_kind(original, patch) is dict
    if not maps:
        if deleting:
            return [v for v in original if not any(_equal(v, d) for d in patch)]
        merged = _without_repetition([*original, *patch])
    else:
        if not merge_key:
            fail("cannot merge lists without merge key for struct")
        original, patch = _special_elements(original, patch, merge_key)
        merged = _merge_elements(original, patch, element, merge_key)
    return _in_order(merged, patch, original, merge_key, maps)


def _without_repetition(values: list[Any]) -> list[Any]:
    out: list[Any] = []
    for value in values:
        if not any(_equal(value, o) for o in out):
            out.append(value)
    return out


def _special_elements(original: list[Any], patch: list[Any], merge_key: str) -> tuple[list[Any], list[Any]]:
    """Both lists after the `$patch` elements have done their work."""
    plain: list[Any] = []
    replace = False
    for item in patch:
        if _DIRECTIVE not in item:
            plain.append(item)
            continue
        directive = item[_DIRECTIVE]
        if directive == "delete":
            if merge_key not in item:
                _no_merge_key(item, merge_key)
            gone = item[merge_key]
            original = [o for o in original if merge_key not in o or not _equal(o[merge_key], gone)]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            fail("merging lists cannot yet be specified in the patch")
        else:
            _unknown_directive(directive, item)
    return (plain, []) if replace else (original, plain)


def _merge_elements(original: list[Any], patch: list[Any], element: Node, merge_key: str) -> list[Any]:
    merged = list(original)
    for item in patch:
        if merge_key not in item:
            _no_merge_key(item, merge_key)
        at = _position(merged, item[merge_key], merge_key)
        if at < 0:
            merged.append(item)
        else:
            merged[at] = _merge_map(merged[at], item, element)
    return merged


def _position(items: list[Any], value: Any, merge_key: str) -> int:
    for i, item in enumerate(items):
        if _equal(item.get(merge_key) if merge_key else item, value):
            return i
    return -1


def _in_order(
    merged: list[Any], patch_order: list[Any], live_order: list[Any], merge_key: str, maps: bool
) -> list[Any]:
    """Elements the patch orders and elements only the live list has, each in their own order, interleaved so that a
    live-only element stays in front of a patched one it stood in front of."""
    key = merge_key if maps else ""
    if maps:
        for item in (*merged, *patch_order, *live_order):
            if merge_key not in _expect(dict, item):
                _no_merge_key(item, merge_key)

    patched, lived = _places(patch_order, key), _places(live_order, key)

    def deletion(item: Any) -> bool:
        return maps and item.get(_DIRECTIVE) == "delete"

    ordered = [m for m in merged if patched(m) >= 0]
    ordered = sorted((m for m in ordered if not deletion(m)), key=patched) + [m for m in ordered if deletion(m)]
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
    """Where an element stands in the order; -1 when it does not."""
    values = [item[key] if key else item for item in order]
    if all(type(value) is str for value in values):  # nearly always; other values are equal in Go's own ways
        places = {value: at for at, value in reversed([*enumerate(values)])}

        def look_up(item: Any) -> int:
            value = item[key] if key else item
            return places.get(value, -1) if type(value) is str else -1

        return look_up
    return lambda item: _position(order, item[key] if key else item, key)


def without_directives(patch: Any) -> Any:
    """A patch as it looks after it was merged: orders and retained keys are gone, with the lists that had an order."""
    if isinstance(patch, list):
        return [without_directives(v) for v in patch]
    if not isinstance(patch, dict):
        return patch
    ordered = {k.partition("/")[2] for k in patch if k.startswith(_ORDER)}
    return {k: without_directives(v) for k, v in patch.items()
            if k != _RETAIN and k not in ordered and not k.startswith(_ORDER)}
