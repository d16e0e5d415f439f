"""Two structs compared, in the layout in which go-cmp reports a difference inside an error text.

`-` marks what the first has, `+` what the second has; runs of equal fields are only counted. The layout is meant for
people (go-cmp itself varies it from build to build), so it is followed in form, not to the last space.
"""

from __future__ import annotations

from typing import Any

from transom.machinery.field import go_quote
from transom.machinery.validation.godump import lift
from transom.machinery.validation.gotypes import GoField, fields

_NUMBERS = {"int", "int32", "int64"}


def diff(go_type: str, first: Any, second: Any) -> str:
    """The report, empty when there is no difference."""
    lines: list[str] = []
    _compare(go_type, "", first, second, 1, lines)
    return "\n".join(lines) + "\n" if lines else ""


def _line(mark: str, depth: int, text: str) -> str:
    return f"{mark} " + "\t" * depth + text if depth else f"{mark} {text}"


def _compare(go_type: str, label: str, first: Any, second: Any, depth: int, lines: list[str]) -> None:
    """Append the lines for one value that differs. `label` is `Name: ` inside a struct."""
    pointer = go_type.startswith("*")
    bare = go_type.lstrip("*")
    members = fields(bare)
    indent = depth - 1
    collection = bare.startswith(("[]", "map[", "core.ResourceList"))
    if first is None or second is None or (members is None and not collection):
        lines.append(_line("-", indent, f"{label}{_short(go_type, first)},"))
        lines.append(_line("+", indent, f"{label}{_short(go_type, second)},"))
        return
    lines.append(_line(" ", indent, f"{label}{'&' if pointer else ''}{bare}{{"))
    if members is not None:
        _compare_struct(members, first, second, depth, lines)
    elif bare.startswith("[]"):
        _compare_list(bare[2:], first, second, depth, lines)
    else:
        _compare_map(first, second, depth, lines)
    lines.append(_line(" ", indent, "}" if not indent else "},"))


def _member(field: GoField, parent: dict[str, Any]) -> Any:
    return lift(field.type, parent, parent.get(field.json)) if field.json else parent


def _same(field: GoField, first: dict[str, Any], second: dict[str, Any]) -> bool:
    if field.json:
        return bool(_member(field, first) == _member(field, second))
    return all(_same(inner, first, second) for inner in fields(field.type) or ())


def _compare_struct(
    members: tuple[GoField, ...], first: dict[str, Any], second: dict[str, Any], depth: int, lines: list[str]
) -> None:
    equal = 0
    for field in members:
        if _same(field, first, second):
            equal += 1
            continue
        _identical(equal, "fields", depth, lines)
        equal = 0
        _compare(field.type, f"{field.name}: ", _member(field, first), _member(field, second), depth + 1, lines)
    _identical(equal, "fields", depth, lines)


def _compare_list(item: str, first: list[Any], second: list[Any], depth: int, lines: list[str]) -> None:
    equal = 0
    for i in range(max(len(first), len(second))):
        if i < len(first) and i < len(second):
            if first[i] == second[i]:
                equal += 1
                continue
            _identical(equal, "elements", depth, lines)
            _compare(item, "", first[i], second[i], depth + 1, lines)
        else:
            _identical(equal, "elements", depth, lines)
            mark, value = ("-", first[i]) if i < len(first) else ("+", second[i])
            lines.append(_line(mark, depth, f"{_short(item, value)},"))
        equal = 0
    _identical(equal, "elements", depth, lines)


def _compare_map(first: dict[str, str], second: dict[str, str], depth: int, lines: list[str]) -> None:
    equal = 0
    for key in sorted({*first, *second}):
        if first.get(key) == second.get(key):
            equal += 1
            continue
        for mark, side in (("-", first), ("+", second)):
            if key in side:
                lines.append(_line(mark, depth, f"{go_quote(key)}: {_short('string', side[key])},"))
    _identical(equal, "entries", depth, lines)


def _identical(count: int, what: str, depth: int, lines: list[str]) -> None:
    if count:
        noun = {"fields": "field", "elements": "element", "entries": "entry"}[what] if count == 1 else what
        lines.append(_line(" ", depth, f"... // {count} identical {noun}"))


def _short(go_type: str, value: Any) -> str:
    """A value in one line; of a struct only what is set."""
    if value is None:
        if go_type.startswith(("*", "[]", "map[", "core.ResourceList")):
            return "nil"
        return "0" if go_type in _NUMBERS else "false" if go_type == "bool" else '""'
    if go_type.startswith("*"):
        return "&" + _short(go_type[1:], value)
    if go_type.startswith("[]"):
        return go_type + "{" + ", ".join(_short(go_type[2:], item) for item in value) + "}"
    if isinstance(value, dict):
        members = fields(go_type)
        if members is None:
            entries = (f"{go_quote(key)}: {_short('string', value[key])}" for key in sorted(value))
            return go_type + "{" + ", ".join(entries) + "}"
        return "{" + ", ".join(_set_members(members, value)) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else go_quote(str(value))


def _set_members(members: tuple[GoField, ...], value: dict[str, Any]) -> list[str]:
    out = []
    for field in members:
        inner = _member(field, value)
        if not field.json:
            inside = _set_members(fields(field.type) or (), value)
            if inside:
                out.append(f"{field.name}: {{{', '.join(inside)}}}")
        elif inner not in (None, "", 0, False, [], {}):
            out.append(f"{field.name}: {_short(field.type, inner)}")
    return out
