"""Unknown and duplicate fields of a request body, for `fieldValidation=Warn` and `Strict`.

Parses the body a second time, so it runs only on request. Most bodies are clean: their decoding
finds no unknown fields (`normalise`), and a count of their keys no duplicate ones.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson

from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.machinery import gojson, schema
from transom.machinery.schema import SchemaType, SchemaValue

if TYPE_CHECKING:
    from transom.machinery import goyaml
else:
    goyaml = lazy_import("transom.machinery.goyaml")

_LIMIT = 100
_WHITESPACE = b" \t\r\n"
# Go writes <, > and & as escape sequences; no others are common.
_OTHER_ESCAPE = re.compile(rb"\\u(?!00(?:3[ce]|26))")


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


def has_no_duplicates(value: Any, raw: bytes) -> bool:
    """Whether the JSON of a parsed value certainly has no duplicate fields; cheap, unlike the search
    for them. The value as JSON again has as many keys, unless some of the body's are lost. Strings
    that look like the end of a key are counted too, equally often in both.
    """
    if b"\\u" in raw and _OTHER_ESCAPE.search(raw):  # a quote or colon in a string
        return False
    try:
        again = orjson.dumps(value)
    except orjson.JSONEncodeError:  # an integer of more than 64 bits
        return False
    written = raw.translate(None, _WHITESPACE).count(b'":')
    return written == again.translate(None, _WHITESPACE).count(b'":')


_OPERATION_FIELDS = frozenset(("op", "path", "from", "value"))


def patch_problems(raw: bytes, *, json_patch: bool) -> list[str]:
    """Duplicate fields of a patch, and unknown ones of the operations of a JSON patch. Empty for a
    patch that is not JSON.
    """
    if _is_clean_patch(raw, json_patch):
        return []
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


def _is_clean_patch(raw: bytes, json_patch: bool) -> bool:
    """Whether a patch certainly has no problems."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return False
    if json_patch and not (
        value.__class__ is list
        and all(one.__class__ is dict and _OPERATION_FIELDS.issuperset(one) for one in value)
    ):
        return False
    return has_no_duplicates(value, raw)


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
