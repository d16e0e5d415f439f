"""Unknown and duplicate fields of a request body, for `fieldValidation=Warn` and `Strict`.

Parses the body a second time, so it runs only on request. Most bodies are clean, which a count of
their keys shows.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.machinery import gojson, schema
from transom.machinery.schema import SchemaType, SchemaValue

if TYPE_CHECKING:
    from transom.machinery import goyaml
else:
    goyaml = lazy_import("transom.machinery.goyaml")

_LIMIT = 100
_KEY = re.compile(rb'"\s*:')
_PLAIN = frozenset(("string", "bool", "int32", "int64"))


class _UnknownFieldError(Exception):
    pass


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys in order, repeated ones included."""


def strict_decoding_problems(of: SchemaType | None, raw: bytes, is_yaml: bool) -> list[str]:
    """Messages such as `unknown field "spec.foo"`, in Kubernetes' order; for a custom object (no
    type) only duplicates and unknown metadata.
    """
    out: dict[str, None] = {}
    if is_yaml:
        repeated = goyaml.duplicate_keys(raw)
        if repeated:
            out["yaml: unmarshal errors:\n" + "\n".join(f"  {line}" for line in repeated)] = None
        raw = goyaml.to_json(raw)
    value = json.loads(
        gojson.go_json_text(raw), object_pairs_hook=_Pairs, parse_int=gojson.parse_json_integer
    )
    found = _struct(of, value, "") if of is not None else _custom(value)
    for what, path in found:
        if len(out) >= _LIMIT:
            break
        out[f"{what} field {go_quote(path)}"] = None
    return list(out)


def is_clean(of: SchemaType, value: dict[str, Any], raw: bytes) -> bool:
    """Whether a JSON body and its parsed value certainly have no unknown and no duplicate fields;
    cheap, unlike the search for them. A body has at least as many quotes before colons as keys, so
    if the parsed value has as many keys, none is repeated.
    """
    try:
        keys = _count_known(of, value)
    except _UnknownFieldError:
        return False
    return keys == len(_KEY.findall(raw))


class _KnownFields(NamedTuple):
    names: frozenset[str]
    # The fields whose values have fields of their own: structs, lists and maps of them, others.
    structs: dict[str, SchemaType]
    lists: dict[str, SchemaType]
    others: dict[str, SchemaValue]


def _compile_known(of: SchemaType) -> _KnownFields:
    made = _KnownFields(frozenset(of.properties), {}, {}, {})
    for name, known in of.properties.items():
        value = known.value
        if value.kind == "struct":
            made.structs[name] = value.type
        elif value.item is not None and value.item.kind not in _PLAIN:
            if value.kind == "list" and value.item.kind == "struct":
                made.lists[name] = value.item.type
            else:
                made.others[name] = value
    of.table.known_fields[of.id] = made
    return made


def _count_known(of: SchemaType, got: Any) -> int:
    """The number of keys in a value; raises _UnknownFieldError."""
    if got.__class__ is not dict:
        return _count_keys(got)
    known: _KnownFields | None = of.table.known_fields.get(of.id)
    if known is None:
        known = _compile_known(of)
    names, structs, lists, others = known
    if not names.issuperset(got):
        raise _UnknownFieldError
    total = len(got)
    for key, item in got.items():
        if item.__class__ is dict:
            inner = structs.get(key)
            if inner is not None:
                total += _count_known(inner, item)
            elif key in others:
                total += _count_known_in(others[key], item)
            else:
                total += _count_keys(item)
        elif item.__class__ is list:
            inner = lists.get(key)
            if inner is not None:
                for one in item:
                    total += _count_known(inner, one)
            elif key in others:
                total += _count_known_in(others[key], item)
            else:
                total += _count_keys(item)
    return total


def _count_known_in(value: SchemaValue, got: Any) -> int:
    kind = value.kind
    if kind == "struct":
        return _count_known(value.type, got)
    if value.item is None or value.item.kind in _PLAIN:
        return _count_keys(got)
    if kind == "list" and got.__class__ is list:
        item = value.item
        return sum(_count_known_in(item, one) for one in got)
    if kind == "map" and got.__class__ is dict:
        item = value.item
        return len(got) + sum(_count_known_in(item, one) for one in got.values())
    return _count_keys(got)


def _count_keys(got: Any) -> int:
    if got.__class__ is dict:
        total = len(got)
        items: Iterable[Any] = got.values()
    elif got.__class__ is list:
        total, items = 0, got
    else:
        return 0
    for item in items:
        if item.__class__ is dict or item.__class__ is list:
            total += _count_keys(item)
    return total


_OPERATION_FIELDS = frozenset(("op", "path", "from", "value"))


def patch_problems(raw: bytes, *, json_patch: bool) -> list[str]:
    """Duplicate fields of a patch, and unknown ones of the operations of a JSON patch. Empty for a
    patch that is not JSON.
    """
    try:
        value = json.loads(gojson.go_json_text(raw), object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return []
    if not json_patch:
        return [
            f"{what} field {go_quote(path)}"
            for what, path in itertools.islice(_untyped(value, ""), _LIMIT)
        ]
    found: dict[str, None] = {}
    for i, operation in enumerate(value if value.__class__ is list else ()):
        seen: set[str] = set()
        for key, _ in operation if isinstance(operation, _Pairs) else ():
            what = "duplicate" if key in seen else "" if key in _OPERATION_FIELDS else "unknown"
            if what and len(found) < _LIMIT:
                found[f"json patch {what} field {go_quote(f'[{i}].{key}')}"] = None
            seen.add(key)
    return list(found)


def _custom(value: Any) -> Iterator[tuple[str, str]]:
    yield from _untyped(value, "")
    for key, child in value if isinstance(value, _Pairs) else ():
        if key == "metadata":
            metadata = schema.get_schema_type(schema.OBJECT_META)
            yield from (
                found for found in _struct(metadata, child, "metadata") if found[0] == "unknown"
            )


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _typed(value: SchemaValue, got: Any, path: str) -> Iterator[tuple[str, str]]:
    if value.kind == "struct":
        yield from _struct(value.type, got, path)
    elif value.kind == "list" and got.__class__ is list:
        assert value.item is not None
        for i, item in enumerate(got):
            yield from _typed(value.item, item, f"{path}[{i}]")
    elif value.kind == "map" and isinstance(got, _Pairs):
        assert value.item is not None
        seen: set[str] = set()
        for key, item in got:
            if key in seen:
                yield "duplicate", _at(path, key)
            seen.add(key)
            yield from _typed(value.item, item, _at(path, key))
    elif value.kind == "any":
        yield from _untyped(got, path)


def _struct(of: SchemaType, got: Any, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(got, _Pairs):
        return
    seen: set[str] = set()
    for key, item in got:
        known = of.properties.get(key)
        if known is None:
            yield "unknown", _at(path, key)
            continue
        if key in seen:
            yield "duplicate", _at(path, key)
        seen.add(key)
        yield from _typed(known.value, item, _at(path, key))


def _untyped(got: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(got, _Pairs):
        seen: set[str] = set()
        for key, item in got:
            if key in seen:
                yield "duplicate", _at(path, key)
            seen.add(key)
            yield from _untyped(item, _at(path, key))
    elif got.__class__ is list:
        for i, item in enumerate(got):
            yield from _untyped(item, f"{path}[{i}]")
