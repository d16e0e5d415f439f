"""How Go prints a struct in an error text (`core.Taint{Key:"a", ...}`), driven by a table of the structs that appear.

Only field names, their order and their types matter here. A pointer inside a struct prints as an address in Go, which
no client can rely on; it gets a constant one.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from transom.machinery.field import GoText, go_quote

# struct -> ((Go name, JSON name, type), ...). Types: string, int, bool, IntOrString, Quantity, Time, *T, []T,
# map[string]T, or a struct of this table.
_Fields = tuple[tuple[str, str, str], ...]


def _fields(text: str) -> _Fields:
    """`Key:string TimeAdded:*Time`; the JSON name is the Go name with a small first letter, or follows `=`."""
    out = []
    for part in text.split():
        name, _, kind = part.partition(":")
        name, _, json_name = name.partition("=")
        out.append((name, json_name or name[0].lower() + name[1:], kind))
    return tuple(out)


STRUCTS: dict[str, _Fields] = {
    "v1.OwnerReference": _fields(
        "APIVersion=apiVersion:string Kind:string Name:string UID=uid:string Controller:*bool BlockOwnerDeletion:*bool"
    ),
    "v1.LabelSelector": _fields(
        "MatchLabels:map[string]string MatchExpressions:[]v1.LabelSelectorRequirement"
    ),
    "v1.LabelSelectorRequirement": _fields("Key:string Operator:string Values:[]string"),
    "core.Taint": _fields("Key:string Value:string Effect:string TimeAdded:*v1.Time"),
    "core.Toleration": _fields("Key:string Operator:string Value:string Effect:string TolerationSeconds:*int64"),
    "core.ServicePort": _fields(
        "Name:string Protocol:string AppProtocol:*string Port:int TargetPort:IntOrString NodePort:int"
    ),
}

_POINTER = "0xc000000000"
_SCALARS = {"string": '""', "int": "0", "bool": "false", "int64": "0", "int32": "0"}


def dump(kind: str, value: Any) -> GoText:
    """`value` as Go's %#v would print a `kind` holding it."""
    return GoText(_dump(kind, value))


def _dump(kind: str, value: Any) -> str:
    if kind.startswith("*"):
        return _pointer(kind, value)
    if kind.startswith("[]"):
        return _slice(kind, value)
    if kind.startswith("map[string]"):
        return _map(kind, value)
    if kind == "v1.Time":
        return _time(value)
    if kind == "IntOrString":
        return _int_or_string(value)
    if kind in STRUCTS:
        got: Mapping[str, Any] = value or {}
        return f"{kind}{{{', '.join(f'{name}:{_dump(of, got.get(key))}' for name, key, of in STRUCTS[kind])}}}"
    return _scalar(kind, value)


def _scalar(kind: str, value: Any) -> str:
    if value is None:
        return _SCALARS.get(kind, '""')
    if isinstance(value, bool):
        return "true" if value else "false"
    return go_quote(value) if isinstance(value, str) else str(value)


def _pointer(kind: str, value: Any) -> str:
    if kind == "*v1.Time":  # prints itself even as a pointer
        return "<nil>" if value is None else _time(value)
    return f"({kind})(nil)" if value is None else f"({kind})({_POINTER})"


def _slice(kind: str, value: Sequence[Any] | None) -> str:
    if value is None:
        return f"{kind}(nil)"
    if kind == "[]byte":
        return f"[]byte{{{', '.join(hex(byte) for byte in value)}}}"
    return f"{kind}{{{', '.join(_dump(kind[2:], item) for item in value)}}}"


def _map(kind: str, value: Mapping[str, Any] | None) -> str:
    if value is None:
        return f"{kind}(nil)"
    of = kind.removeprefix("map[string]")
    return f"{kind}{{{', '.join(f'{go_quote(k)}:{_dump(of, value[k])}' for k in sorted(value))}}}"


def _int_or_string(value: Any) -> str:
    number, text = (0, value) if isinstance(value, str) else (value or 0, "")
    kind = 1 if isinstance(value, str) else 0
    return f"intstr.IntOrString{{Type:{kind}, IntVal:{number}, StrVal:{go_quote(text)}}}"


def _time(value: str | None) -> str:
    """Go's String() of a time in UTC: `2020-01-02 03:04:05 +0000 UTC`."""
    if not value:
        return "0001-01-01 00:00:00 +0000 UTC"
    moment = datetime.datetime.fromisoformat(value).astimezone(datetime.UTC)
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"
