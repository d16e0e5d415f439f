"""Go's fmt output for decoded JSON values. API messages quote patches and objects in that form."""

from __future__ import annotations

import math
from typing import Any

from transom.kit.goquote import go_quote

# Go's names of the types a JSON value decodes into.
TYPE_NAMES: dict[type, str] = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    int: "int64",
    float: "float64",
    bool: "bool",
    type(None): "%!s(<nil>)",
}


def go_sprint(value: Any) -> str:
    """%v: `map[image:a:9 name:a]`, `[x y]`, `<nil>`."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{k}:{go_sprint(value[k])}" for k in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_sprint, value)) + "]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    return str(value)


def go_syntax(value: Any) -> str:
    """%#v: the value in Go syntax."""
    if isinstance(value, dict):
        inner = ", ".join(f"{go_quote(k)}:{go_syntax(value[k])}" for k in sorted(value))
        return f"{TYPE_NAMES[dict]}{{{inner}}}"
    if isinstance(value, list):
        return f"{TYPE_NAMES[list]}{{{', '.join(map(go_syntax, value))}}}"
    if isinstance(value, str):
        return go_quote(value)
    return "interface {}(nil)" if value is None else go_sprint(value)


def _float(value: float) -> str:
    """The shortest form; an exponent below 1e-4 and from 1e21 on."""
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    text = repr(value)
    if 1e-4 <= abs(value) < 1e21:
        return f"{value:.0f}" if "e" in text else text.removesuffix(".0")
    mantissa, _, exponent = text.partition("e")
    return (
        f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].zfill(2)}"
        if exponent
        else mantissa
    )
