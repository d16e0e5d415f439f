"""Lists, queues, stacks, sets and dictionaries of .NET, and arrays with a type. Their elements are
converted to the type of the collection; a pipeline enumerates them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from transom.userland.limits import bounded
from transom.userland.powershell.dotnet_names import dotnet_name, type_arguments
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import (
    Dictionary,
    Hashtable,
    OrderedDictionary,
    PowerShellError,
    ScriptBlock,
    TypedArray,
    table_entries,
    to_bool,
    to_items,
    to_number,
    unrolled,
)

Convert = Callable[[str, Any], Any]


class ResizableList(TypedArray):
    """ArrayList and List<T>."""


class Queue(TypedArray):
    """The next one is the first element."""


class Stack(TypedArray):
    """The top is the first element, as enumerated."""


class HashSet(TypedArray):
    """Its elements are distinct."""


_LISTS: Final[dict[str, type[TypedArray]]] = {
    "collections.arraylist": ResizableList,
    "collections.generic.list": ResizableList,
    "collections.objectmodel.collection": ResizableList,
    "collections.queue": Queue,
    "collections.generic.queue": Queue,
    "collections.stack": Stack,
    "collections.generic.stack": Stack,
    "collections.generic.hashset": HashSet,
}
_TABLES: Final = ("collections.generic.dictionary", "collections.generic.sorteddictionary")


def is_collection(kind: str) -> bool:
    base = kind.partition("[")[0]
    return base in _LISTS or base in _TABLES


def create_collection(kind: str, first: Any, convert: Convert) -> Any:
    """`kind` is lower case and without `System.`; `first` are the elements, or the capacity."""
    base = kind.partition("[")[0]
    given = type_arguments(kind)
    if base in _TABLES:
        table = Dictionary()
        table.kind = dotnet_name(kind)
        if len(given) == 2:
            table.keys_as, table.values_as = given
        if isinstance(first, Hashtable):
            for key, value in first.items():
                table.put(convert(table.keys_as, key), convert(table.values_as, value))
        return table
    element = given[0] if given else "object"
    items = to_items(first) if isinstance(first, list | tuple | range) else []
    made = _LISTS[base]([convert(element, one) for one in items])
    made.kind, made.element = dotnet_name(kind), element
    if isinstance(made, Stack):
        made.reverse()
    if isinstance(made, HashSet):
        made[:] = _distinct(made)
    return made


def _distinct(values: list[Any]) -> list[Any]:
    out: list[Any] = []
    for value in values:
        if value not in out:
            out.append(value)
    return out


def typed_array(element: str, values: list[Any]) -> TypedArray:
    made = TypedArray(values)
    made.kind, made.element = dotnet_name(element) + "[]", element
    return made


def _failure(method: str, count: int, why: str, inner: str) -> PowerShellError:
    return PowerShellError(
        f'Exception calling "{method}" with "{count}" argument(s): "{why}"',
        "NotSpecified: (:) [], MethodInvocationException",
        inner,
        inner=inner,
    )


def _fixed(method: str) -> Callable[..., Any]:
    def run(target: list[Any], a: list[Any]) -> None:
        raise _failure(method, len(a), "Collection was of a fixed size.", "NotSupportedException")

    return run


def _position(target: list[Any], method: str, count: int, value: Any, most: int) -> int:
    index = int(to_number(value))
    if not 0 <= index < most:
        raise _failure(
            method,
            count,
            "Index was out of range. Must be non-negative and less than the size of the "
            "collection.\r\nParameter name: index",
            "ArgumentOutOfRangeException",
        )
    return index


def _get_value(target: list[Any], a: list[Any]) -> Any:
    index = int(to_number(a[0]))
    if not 0 <= index < len(target):
        raise _failure(
            "GetValue",
            1,
            "Index was outside the bounds of the array.",
            "IndexOutOfRangeException",
        )
    return target[index]


def _fill(target: list[Any], a: list[Any]) -> None:
    target[:] = [type(one)() if isinstance(one, int | float) else None for one in target]


def _copy(target: list[Any]) -> list[Any]:
    if not isinstance(target, TypedArray):
        return list(target)
    made = type(target)(target)
    made.kind, made.element = target.kind, target.element
    return made


def _copy_to(target: list[Any], a: list[Any]) -> None:
    start = int(to_number(a[1])) if len(a) > 1 else 0
    if start + len(target) > len(a[0]):
        raise _failure(
            "CopyTo",
            len(a),
            "Destination array was not long enough. Check destIndex and length, and the array's "
            "lower bounds.",
            "ArgumentException",
        )
    a[0][start : start + len(target)] = target


_COMMON: Final[dict[str, Callable[[list[Any], list[Any]], Any]]] = {
    "contains": lambda target, a: a[0] in target,
    "copyto": _copy_to,
    "getenumerator": lambda target, a: list(target),
    "indexof": lambda target, a: target.index(a[0]) if a[0] in target else -1,
}
ARRAY_METHODS: Final[dict[str, Callable[[list[Any], list[Any]], Any]]] = {
    **_COMMON,
    **{
        name.lower(): _fixed(name)
        for name in ("Add", "AddRange", "Insert", "Remove", "RemoveAt", "RemoveRange")
    },
    "clear": _fill,
    "clone": lambda target, a: _copy(target),
    "getlength": lambda target, a: len(target),
    "getlowerbound": lambda target, a: 0,
    "getupperbound": lambda target, a: len(target) - 1,
    "getvalue": _get_value,
    "setvalue": lambda target, a: target.__setitem__(int(to_number(a[1])), a[0]),
}


def _list_add(target: TypedArray, value: Any, convert: Convert) -> int | None:
    bounded(target).append(_argument(target, value, "Add", convert))
    return len(target) - 1 if target.kind == "System.Collections.ArrayList" else None


def _argument(target: TypedArray, value: Any, method: str, convert: Convert) -> Any:
    try:
        return convert(target.element, value)
    except PowerShellError as problem:
        raise PowerShellError(
            f'Cannot convert argument "item", with value: "{value}", for "{method}" to type '
            f'"{dotnet_name(target.element)}": "{problem.message}"',
            "NotSpecified: (:) [], MethodException",
            "MethodArgumentConversionInvalidCastArgument",
        ) from None


def _remove_first(target: list[Any], value: Any) -> bool | None:
    found = value in target
    if found:
        target.remove(value)
    arrays = isinstance(target, TypedArray) and target.kind == "System.Collections.ArrayList"
    return None if arrays else found


def _remove_at(target: list[Any], a: list[Any]) -> None:
    del target[_position(target, "RemoveAt", 1, a[0], len(target))]


def _range(target: list[Any], a: list[Any]) -> slice:
    start, count = (int(to_number(one)) for one in a[:2])
    if start < 0 or count < 0 or start + count > len(target):
        raise _failure(
            "GetRange",
            2,
            "Offset and length were out of bounds for the array or count is greater than the "
            "number of elements from index to the end of the source collection.",
            "ArgumentException",
        )
    return slice(start, start + count)


def sort_elements(target: list[Any]) -> None:
    """Numbers, then text without regard to case."""
    target.sort(
        key=lambda one: (isinstance(one, str), one.lower() if isinstance(one, str) else one)
    )


def _binary_search(target: list[Any], a: list[Any]) -> int:
    return target.index(a[0]) if a[0] in target else -1


_LIST_METHODS: Final[dict[str, Callable[[Any, list[Any]], Any]]] = {
    **_COMMON,
    "binarysearch": _binary_search,
    "clear": lambda target, a: target.clear(),
    "clone": lambda target, a: _copy(target),
    "getrange": lambda target, a: _part(target, target[_range(target, a)]),
    "lastindexof": lambda target, a: (
        len(target) - 1 - target[::-1].index(a[0]) if a[0] in target else -1
    ),
    "remove": lambda target, a: _remove_first(target, a[0]),
    "removeat": _remove_at,
    "removerange": lambda target, a: target.__delitem__(_range(target, a)),
    "reverse": lambda target, a: target.reverse(),
    "sort": lambda target, a: sort_elements(target),
    "toarray": lambda target, a: typed_array(target.element, list(target)),
    "trimexcess": lambda target, a: None,
    "trimtosize": lambda target, a: None,
}


def _part(target: TypedArray, values: list[Any]) -> TypedArray:
    made = type(target)(values)
    made.kind, made.element = target.kind, target.element
    return made


def _taken(target: TypedArray, method: str, remove: bool) -> Any:
    if not target:
        word = "Stack" if isinstance(target, Stack) else "Queue"
        raise _failure(method, 0, f"{word} empty.", "InvalidOperationException")
    return target.pop(0) if remove else target[0]


_SET_OPERATIONS: Final[dict[str, Callable[[list[Any], list[Any]], list[Any]]]] = {
    "unionwith": lambda own, other: _distinct(own + other),
    "intersectwith": lambda own, other: [one for one in own if one in other],
    "exceptwith": lambda own, other: [one for one in own if one not in other],
}


def _other_methods(target: TypedArray, name: str, a: list[Any], convert: Convert) -> Any:
    """Of queues, stacks and sets; NotImplemented if they have none of this name."""
    lower = name.lower()
    if isinstance(target, Queue) and lower == "enqueue":
        return bounded(target).append(convert(target.element, a[0]))
    if isinstance(target, Queue) and lower in ("dequeue", "peek"):
        return _taken(target, name, lower == "dequeue")
    if isinstance(target, Stack) and lower == "push":
        return bounded(target).insert(0, convert(target.element, a[0]))
    if isinstance(target, Stack) and lower in ("pop", "peek"):
        return _taken(target, name, lower == "pop")
    if isinstance(target, HashSet):
        if lower == "add":
            value = convert(target.element, a[0])
            fresh = value not in target
            if fresh:
                bounded(target).append(value)
            return fresh
        if lower == "remove":
            return _remove_first(target, a[0])
        change = _SET_OPERATIONS.get(lower)
        if change is not None:
            target[:] = change(target, [convert(target.element, one) for one in to_items(a[0])])
            return None
        if lower == "issubsetof":
            return all(one in to_items(a[0]) for one in target)
        if lower == "issupersetof":
            return all(one in target for one in to_items(a[0]))
    if lower in ("contains", "copyto", "getenumerator", "clear", "toarray", "clone", "trimexcess"):
        return _LIST_METHODS[lower](target, a)
    return NotImplemented


async def _matching(
    evaluator: PowerShellSession, target: list[Any], block: ScriptBlock
) -> list[int]:
    """The positions of the elements for which the block returns true."""
    return [
        index
        for index, one in enumerate(list(target))
        if to_bool(unrolled(await evaluator.invoke_with(block, [one])))
    ]


async def _search(evaluator: PowerShellSession, target: TypedArray, name: str, block: Any) -> Any:
    found = await _matching(evaluator, target, block)
    if name == "exists":
        return bool(found)
    if name == "trueforall":
        return len(found) == len(target)
    if name == "find":
        return target[found[0]] if found else None
    if name == "findlast":
        return target[found[-1]] if found else None
    if name == "findindex":
        return found[0] if found else -1
    if name == "findall":
        return _part(target, [target[one] for one in found])
    target[:] = [one for index, one in enumerate(target) if index not in found]
    return len(found)


_SEARCHES: Final = (
    "exists",
    "find",
    "findall",
    "findindex",
    "findlast",
    "removeall",
    "trueforall",
)


def call_collection(
    evaluator: PowerShellSession, target: TypedArray, name: str, a: list[Any], convert: Convert
) -> Any | Awaitable[Any]:
    """A method of a collection; NotImplemented if it has none of this name."""
    lower = name.lower()
    if not isinstance(target, ResizableList):
        if isinstance(target, Queue | Stack | HashSet):
            return _other_methods(target, name, a, convert)
        method = ARRAY_METHODS.get(lower)
        return NotImplemented if method is None else method(target, a)
    if lower in _SEARCHES and a and isinstance(a[0], ScriptBlock):
        return _search(evaluator, target, lower, a[0])
    if lower == "add":
        return _list_add(target, a[0], convert)
    if lower in ("addrange", "insertrange"):
        at = len(target) if lower == "addrange" else int(to_number(a[0]))
        bounded(target)[at:at] = [_argument(target, one, name, convert) for one in to_items(a[-1])]
        return None
    if lower == "insert":
        index = _position(target, "Insert", 2, a[0], len(target) + 1)
        bounded(target).insert(index, _argument(target, a[1], name, convert))
        return None
    method = _LIST_METHODS.get(lower)
    return NotImplemented if method is None else method(target, a)


def convert_element(target: TypedArray, index: int, value: Any, convert: Convert) -> Any:
    """`$array[index] = value`"""
    try:
        return convert(target.element, value)
    except PowerShellError as problem:
        raise PowerShellError(
            f"Array assignment to [{index}] failed: {problem.message}",
            "InvalidOperation: (:) [], RuntimeException",
            "ArrayAssignmentFailed",
        ) from None


def _add_entry(target: Hashtable, a: list[Any], convert: Convert) -> None:
    key, value = a[0], a[1]
    if isinstance(target, Dictionary):
        key, value = convert(target.keys_as, key), convert(target.values_as, value)
    if target.has(key):
        why = (
            "An item with the same key has already been added."
            if isinstance(target, Dictionary | OrderedDictionary)
            else f"Item has already been added. Key in dictionary: '{target.written(key)}'  Key "
            f"being added: '{key}'"
        )
        raise _failure("Add", 2, why, "ArgumentException")
    target.put(key, value)


def _insert_entry(target: OrderedDictionary, a: list[Any]) -> None:
    entries = list(target.items())
    entries.insert(int(to_number(a[0])), (a[1], a[2]))
    target.clear()
    target.update(entries)


def call_table(target: Hashtable, name: str, a: list[Any], convert: Convert) -> Any:
    """A method of a hashtable or dictionary; NotImplemented if it has none of this name."""
    lower = name.lower()
    if lower == "add":
        return _add_entry(target, a, convert)
    if isinstance(target, OrderedDictionary) and lower == "insert":
        return _insert_entry(target, a)
    if isinstance(target, OrderedDictionary) and lower == "removeat":
        return target.pop(list(target)[int(to_number(a[0]))]) and None
    if isinstance(target, Dictionary) and lower == "trygetvalue":
        found = target.has(a[0])
        a[1].set(target.find(a[0]))
        return found
    if lower == "remove":
        found = target.has(a[0])
        target.pop(target.written(a[0]), None)
        return found if isinstance(target, Dictionary) else None
    method = _TABLE_METHODS.get(lower)
    return NotImplemented if method is None else method(target, a)


def _cloned(target: Hashtable) -> Hashtable:
    made = type(target)(target)
    made.kind = target.kind
    return made


_TABLE_METHODS: Final[dict[str, Callable[[Hashtable, list[Any]], Any]]] = {
    "clear": lambda target, a: target.clear(),
    "clone": lambda target, a: _cloned(target),
    "contains": lambda target, a: target.has(a[0]),
    "containskey": lambda target, a: target.has(a[0]),
    "containsvalue": lambda target, a: a[0] in target.values(),
    "get_item": lambda target, a: target.find(a[0]),
    "getenumerator": lambda target, a: table_entries(target),
    "item": lambda target, a: target.find(a[0]),
    "set_item": lambda target, a: target.put(a[0], a[1]),
}
