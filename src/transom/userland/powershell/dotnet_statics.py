"""Static members of .NET's converters and of the types of numbers, texts, addresses and moments."""

from __future__ import annotations

import html
import math
import struct
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from transom.userland.powershell import members
from transom.userland.powershell.casts import cast_value
from transom.userland.powershell.date_offsets import offset_object
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import (
    DateTime,
    PowerShellError,
    PsObject,
    VariableLink,
    to_bool,
    to_items,
    to_number,
    to_text,
)

Static = Callable[[PowerShellSession, "list[Any] | None"], Any]


def _first(convert: Callable[[Any], Any]) -> Static:
    return lambda evaluator, a: convert((a or [None])[0])


def _converted(kind: str) -> Static:
    """`[Convert]::ToDouble(value)`: like the cast, with a base for whole numbers."""

    def run(evaluator: PowerShellSession, a: list[Any] | None) -> Any:
        given = a or [None]
        try:
            if len(given) > 1:
                return cast_value(kind, int(to_text(given[0]), int(to_number(given[1]))))
            return cast_value(kind, 0 if given[0] is None else given[0])
        except (ValueError, PowerShellError):
            raise PowerShellError(
                f'Exception calling "To{_CONVERTED[kind]}" with "{len(given)}" argument(s): '
                '"Input string was not in a correct format."',
                "NotSpecified: (:) [], MethodInvocationException",
                "FormatException",
            ) from None

    return run


def _to_boolean(value: Any) -> bool:
    if isinstance(value, str):
        if value.strip().lower() not in ("true", "false"):
            raise PowerShellError(
                'Exception calling "ToBoolean" with "1" argument(s): "String was not recognized as '
                'a valid Boolean."',
                "NotSpecified: (:) [], MethodInvocationException",
                "FormatException",
            )
        return value.strip().lower() == "true"
    return to_bool(value)


_CONVERTED: Final = {
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "byte": "Byte",
    "double": "Double",
    "decimal": "Decimal",
    "char": "Char",
    "datetime": "DateTime",
}
_LIMITS: Final = {
    ("byte",): (0, 255),
    ("sbyte",): (-128, 127),
    ("int16", "short"): (-(1 << 15), (1 << 15) - 1),
    ("uint16", "ushort"): (0, (1 << 16) - 1),
    ("int", "int32"): (-(1 << 31), (1 << 31) - 1),
    ("uint", "uint32"): (0, (1 << 32) - 1),
    ("long", "int64"): (-(1 << 63), (1 << 63) - 1),
    ("ulong", "uint64"): (0, (1 << 64) - 1),
    ("double",): (-1.7976931348623157e308, 1.7976931348623157e308),
}
_SHAPES: Final = {"int16": "<h", "int32": "<i", "int64": "<q", "double": "<d"}
_SHAPES_UNSIGNED: Final = {"uint16": "<H", "uint32": "<I", "uint64": "<Q"}


def _constant_number(value: float) -> Static:
    return lambda evaluator, a: value


def _bytes_of(value: Any) -> list[int]:
    if isinstance(value, bool):
        return [int(value)]
    number = to_number(value)
    if isinstance(number, float):
        return list(struct.pack("<d", number))
    return list(struct.pack("<i" if -(1 << 31) <= number < 1 << 31 else "<q", number))


def _from_bytes(shape: str) -> Static:
    def run(evaluator: PowerShellSession, a: list[Any] | None) -> Any:
        given = a or [[]]
        start = int(to_number(given[1])) if len(given) > 1 else 0
        data = bytes(int(to_number(one)) & 0xFF for one in to_items(given[0]))[start:]
        try:
            return struct.unpack_from(shape, data)[0]
        except struct.error:
            raise PowerShellError(
                "Destination array is not long enough to copy all the items in the collection. "
                "Check array index and length."
            ) from None

    return run


def new_offset(evaluator: PowerShellSession, arguments: list[Any]) -> PsObject:
    date = cast_value("datetime", arguments[0]) if arguments else DateTime(-62135596800.0)
    if len(arguments) > 1 and isinstance(arguments[1], PsObject):
        offset = int(arguments[1].get("TotalSeconds") or 0)
    elif date.kind == "Utc":
        offset = 0
    else:
        offset = members.local_date(evaluator, date.moment).offset
    return offset_object(DateTime(date.moment, offset))


def _now_offset(local: bool) -> Static:
    def run(evaluator: PowerShellSession, a: list[Any] | None) -> PsObject:
        now = evaluator.process.context.clock.time()
        return offset_object(members.local_date(evaluator, now) if local else DateTime(now))

    return run


def _unix(scale: float) -> Static:
    return lambda evaluator, a: offset_object(DateTime(float(to_number((a or [0])[0])) * scale))


def _texts_equal(evaluator: PowerShellSession, a: list[Any] | None) -> bool:
    given = [*(a or []), None, None]
    one, two = to_text(given[0]), to_text(given[1])
    if "ignorecase" in to_text(given[2]).lower():
        return one.lower() == two.lower()
    return one == two


def _power(evaluator: PowerShellSession, a: list[Any] | None) -> int:
    base, exponent = (int(to_number(one)) for one in (a or [0, 0])[:2])
    if not 0 <= exponent <= 4096 or abs(base) > 1 << 64:
        raise PowerShellError("Value was either too large or too small for an Int32.")
    return int(base**exponent)


def _remainder(evaluator: PowerShellSession, a: list[Any] | None) -> int:
    """`[Math]::DivRem(7, 2, [ref]$rest)`"""
    given = a or [0, 1]
    left, right = int(to_number(given[0])), int(to_number(given[1]))
    if right == 0:
        raise PowerShellError(
            f'Exception calling "DivRem" with "{len(given)}" argument(s): "Attempted to divide by '
            'zero."',
            "NotSpecified: (:) [], MethodInvocationException",
            "DivideByZeroException",
        )
    quotient = math.trunc(left / right) if abs(left) < 1 << 50 else int(left // right)
    if len(given) > 2 and isinstance(given[2], VariableLink):
        given[2].set(left - quotient * right)
    return quotient


def _on_numbers(function: Callable[..., Any]) -> Static:
    return lambda evaluator, a: function(*[float(to_number(one)) for one in a or []])


def _character(test: Callable[[str], bool]) -> Static:
    def run(evaluator: PowerShellSession, a: list[Any] | None) -> bool:
        given = a or [""]
        place = int(to_number(given[1])) if len(given) > 1 else 0
        return test(to_text(given[0])[place : place + 1])

    return run


_WEB: Final[dict[tuple[str, str], Static]] = {
    (kind, name): run
    for kind in ("net.webutility", "web.httputility")
    for name, run in (
        ("urlencode", _first(lambda value: quote_plus(to_text(value), safe="-_.!*()"))),
        ("urldecode", _first(lambda value: unquote_plus(to_text(value)))),
        (
            "htmlencode",
            _first(lambda value: html.escape(to_text(value)).replace("&#x27;", "&#39;")),
        ),
        ("htmldecode", _first(lambda value: html.unescape(to_text(value)))),
    )
}

STATICS: Final[dict[tuple[str, str], Static]] = {
    **_WEB,
    **{
        ("convert", f"to{name.lower()}"): _converted(kind)
        for kind, name in _CONVERTED.items()
        if kind != "int32"
    },
    ("convert", "toboolean"): _first(_to_boolean),
    ("convert", "tosingle"): _converted("double"),
    **{
        (kind, name): _constant_number(value)
        for kinds, limits in _LIMITS.items()
        for kind in kinds
        for name, value in zip(("minvalue", "maxvalue"), limits, strict=True)
    },
    ("double", "nan"): lambda evaluator, a: math.nan,
    ("double", "epsilon"): lambda evaluator, a: 5e-324,
    ("double", "positiveinfinity"): lambda evaluator, a: math.inf,
    ("double", "negativeinfinity"): lambda evaluator, a: -math.inf,
    ("double", "isnan"): _first(lambda value: math.isnan(float(to_number(value)))),
    ("datetime", "maxvalue"): lambda evaluator, a: DateTime(253402300799.0),
    **{
        (kind, "parse"): _converted("int64" if kind in ("long", "int64") else kind)
        for kind in ("byte", "int16", "int32", "long", "int64", "decimal")
    },
    ("bool", "parse"): _first(_to_boolean),
    ("bitconverter", "getbytes"): _first(_bytes_of),
    **{
        ("bitconverter", f"to{kind}"): _from_bytes(shape)
        for kind, shape in (_SHAPES | _SHAPES_UNSIGNED).items()
    },
    ("bitconverter", "islittleendian"): lambda evaluator, a: True,
    ("bigint", "pow"): _power,
    ("numerics.biginteger", "pow"): _power,
    ("math", "divrem"): _remainder,
    ("math", "e"): lambda evaluator, a: math.e,
    **{
        ("math", name): _on_numbers(function)
        for name, function in (
            ("sin", math.sin),
            ("cos", math.cos),
            ("tan", math.tan),
            ("asin", math.asin),
            ("acos", math.acos),
            ("atan", math.atan),
            ("atan2", math.atan2),
        )
    },
    ("string", "equals"): _texts_equal,
    ("string", "copy"): _first(to_text),
    **{
        ("char", name): _character(test)
        for name, test in (
            ("isdigit", str.isdigit),
            ("isletter", str.isalpha),
            ("isletterordigit", str.isalnum),
            ("isupper", str.isupper),
            ("islower", str.islower),
            ("iswhitespace", str.isspace),
        )
    },
    ("char", "toupper"): _first(lambda value: to_text(value).upper()),
    ("char", "tolower"): _first(lambda value: to_text(value).lower()),
    ("uri", "escapedatastring"): _first(lambda value: quote(to_text(value), safe="-_.~")),
    ("uri", "escapeuristring"): _first(
        lambda value: quote(to_text(value), safe="-_.~!*'();:@&=+$,/?#[]")
    ),
    ("uri", "unescapedatastring"): _first(lambda value: unquote(to_text(value))),
    ("datetimeoffset", "now"): _now_offset(True),
    ("datetimeoffset", "utcnow"): _now_offset(False),
    ("datetimeoffset", "fromunixtimeseconds"): _unix(1.0),
    ("datetimeoffset", "fromunixtimemilliseconds"): _unix(0.001),
    ("datetimeoffset", "parse"): lambda evaluator, a: new_offset(evaluator, list(a or [])),
    ("datetimeoffset", "new"): lambda evaluator, a: new_offset(evaluator, list(a or [])),
}
