"""Compares two structs in the layout of go-cmp, for error messages.

`-` marks the first value, `+` the second; two equal neighbours are shown around a change, the
others are only counted. go-cmp itself varies its spaces from run to run, so only the general layout
matches.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any

from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.validation.godump import json_form, lift_fields
from transom.machinery.validation.gotypes import GoField, struct_fields

_NUMBERS = {"int", "int32", "int64"}
_COLLECTIONS = ("[]", "map[", "core.ResourceList")
_CONTEXT = 2


class _Pair(NamedTuple):
    """One member of both sides; `first` or `second` is `_ABSENT` where a list or map has none."""

    label: str
    type: str
    first: Any
    second: Any
    equal: bool


class _Line(NamedTuple):
    mark: str
    label: str  # "" if it is not aligned with its neighbours
    text: str


_ABSENT = object()


def describe_difference(release: Release, go_type: str, first: Any, second: Any) -> str:
    """The difference as the release reports it: a unified diff of JSON since 1.34."""
    if not has_behaviour(release, "UnifiedDiffs"):
        return go_diff(go_type, first, second, release)
    lines = [
        json.dumps(json_form(go_type, value, release), indent=1, ensure_ascii=False).split("\n")
        for value in (first, second)
    ]
    found = difflib.unified_diff(lines[0], lines[1], n=3, lineterm="")
    return "".join(f"{line}\n" for line in list(found)[2:])


def go_diff(go_type: str, first: Any, second: Any, release: Release = DEFAULT) -> str:
    """The report, empty if there is no difference."""
    if first == second:
        return ""
    lines = _compare(_Pair("", go_type, first, second, False), release, root=True)
    return "".join(f"{line.mark} {line.text}\n" for line in lines).removesuffix(",\n") + "\n"


def _compare(pair: _Pair, release: Release, root: bool = False) -> list[_Line]:
    """The lines of one member that differs."""
    bare = pair.type.lstrip("*")
    members = struct_fields(bare, release)
    if None in (pair.first, pair.second) or (members is None and not bare.startswith(_COLLECTIONS)):
        return [
            _Line("-", pair.label, f"{_short(pair.type, pair.first, release)},"),
            _Line("+", pair.label, f"{_short(pair.type, pair.second, release)},"),
        ]
    if members is not None:
        pairs = [_field_pair(field, pair.first, pair.second, release) for field in members]
        noun = ("field", "fields")
    elif bare.startswith("[]"):
        pairs = _list_pairs(bare[2:], pair.first, pair.second)
        noun = ("element", "elements")
    else:
        pairs = _map_pairs(pair.first, pair.second)
        noun = ("entry", "entries")
    inside = _align(_body(pairs, noun, release))
    head = bare if pair.label or root else ""  # the type of a list's elements follows from the list
    pointer = "&" if pair.type.startswith("*") else ""
    label = f"{pair.label}: " if pair.label else ""
    return [
        _Line(" ", "", f"{label}{pointer}{head}{{"),
        *(_Line(line.mark, "", "\t" + line.text) for line in inside),
        _Line(" ", "", "},"),
    ]


def _body(pairs: Sequence[_Pair], noun: tuple[str, str], release: Release) -> list[_Line]:
    out: list[_Line] = []
    start = 0
    while start < len(pairs):
        end = start
        while end < len(pairs) and pairs[end].equal == pairs[start].equal:
            end += 1
        if not pairs[start].equal:
            for pair in pairs[start:end]:
                out += _changed(pair, release)
        else:
            out += _equal_run(pairs[start:end], start > 0, end < len(pairs), noun, release)
        start = end
    return out


def _changed(pair: _Pair, release: Release) -> list[_Line]:
    if pair.first is _ABSENT:
        return [_Line("+", pair.label, f"{_short(pair.type, pair.second, release)},")]
    if pair.second is _ABSENT:
        return [_Line("-", pair.label, f"{_short(pair.type, pair.first, release)},")]
    return _compare(pair, release)


def _equal_run(
    pairs: Sequence[_Pair],
    after: bool,
    before: bool,
    noun: tuple[str, str],
    release: Release,
) -> list[_Line]:
    """Equal members: shows those next to a change, counts the rest."""
    low = min(_CONTEXT, len(pairs)) if after else 0
    high = min(_CONTEXT, len(pairs) - low) if before else 0
    if len(pairs) - low - high == 1:
        high += 1
    hidden = len(pairs) - low - high
    shown = [
        _Line(" ", p.label, f"{_short(p.type, p.first, release, typed=False)},") for p in pairs
    ]
    ellipsis = [_Line(" ", "", f"... // {hidden} identical {noun[hidden != 1]}")] if hidden else []
    return shown[:low] + ellipsis + shown[len(pairs) - high :]


def _align(lines: list[_Line]) -> list[_Line]:
    """Aligns the values of neighbouring lines."""
    out: list[_Line] = []
    start = 0
    while start < len(lines):
        end = start
        while end < len(lines) and lines[end].label:
            end += 1
        width = max((len(line.label) for line in lines[start:end]), default=0)
        for line in lines[start:end]:
            out.append(
                _Line(line.mark, "", f"{line.label}:{' ' * (width - len(line.label))} {line.text}")
            )
        if end == start:
            out.append(lines[start])
            end += 1
        start = end
    return out


def _member(field: GoField, parent: dict[str, Any]) -> Any:
    return lift_fields(field.type, parent, parent.get(field.json)) if field.json else parent


def _same(field: GoField, first: dict[str, Any], second: dict[str, Any], release: Release) -> bool:
    if field.json:
        return bool(_member(field, first) == _member(field, second))
    inside = struct_fields(field.type, release) or ()
    return all(_same(inner, first, second, release) for inner in inside)


def _field_pair(
    field: GoField, first: dict[str, Any], second: dict[str, Any], release: Release
) -> _Pair:
    equal = _same(field, first, second, release)
    return _Pair(field.name, field.type, _member(field, first), _member(field, second), equal)


def _list_pairs(item: str, first: list[Any], second: list[Any]) -> list[_Pair]:
    pairs = [_Pair("", item, a, b, a == b) for a, b in zip(first, second, strict=False)]
    pairs += [_Pair("", item, a, _ABSENT, False) for a in first[len(second) :]]
    return pairs + [_Pair("", item, _ABSENT, b, False) for b in second[len(first) :]]


def _map_pairs(first: dict[str, str], second: dict[str, str]) -> list[_Pair]:
    return [
        _Pair(
            go_quote(key),
            "string",
            first.get(key, _ABSENT),
            second.get(key, _ABSENT),
            first.get(key) == second.get(key),
        )
        for key in sorted({*first, *second})
    ]


def _short(go_type: str, value: Any, release: Release, typed: bool = True) -> str:
    """A value in one line; for a struct only the set fields. Values that are equal on both sides
    have no types.
    """
    if value is None:
        if go_type.startswith(("*", *_COLLECTIONS)):
            return "nil"
        return "0" if go_type in _NUMBERS else "false" if go_type == "bool" else '""'
    if go_type.startswith("*"):
        return "&" + _short(go_type[1:], value, release, typed)
    name = go_type if typed else ""
    if go_type.startswith("[]"):
        return (
            name
            + "{"
            + ", ".join(_short(go_type[2:], item, release, False) for item in value)
            + "}"
        )
    if isinstance(value, dict):
        members = struct_fields(go_type, release)
        if members is None:
            entries = [
                f"{go_quote(key)}: {_short('string', value[key], release)}" for key in sorted(value)
            ]
        else:
            entries = _set_members(members, value, release, typed)
        return name + "{" + ", ".join(entries) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else go_quote(str(value))


def _set_members(
    members: tuple[GoField, ...], value: dict[str, Any], release: Release, typed: bool
) -> list[str]:
    out = []
    for field in members:
        inner = _member(field, value)
        if not field.json:
            inside = _set_members(struct_fields(field.type, release) or (), value, release, typed)
            if inside:
                out.append(f"{field.name}: {field.type if typed else ''}{{{', '.join(inside)}}}")
        elif inner not in (None, "", 0, False, [], {}):
            out.append(f"{field.name}: {_short(field.type, inner, release, typed)}")
    return out
