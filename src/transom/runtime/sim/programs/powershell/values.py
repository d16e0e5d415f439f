"""PowerShell's values, and how they become text, numbers and truth. Arrays are Python lists."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any


class PowerShellError(Exception):
    """An error that a script can catch. `category` and `identity` stand in the lines below the message."""

    def __init__(self, message: str, category: str = "NotSpecified: (:) [], RuntimeException",
    identity: str = "RuntimeException",
                 *, where: str = "", value: Any = None) -> None:  # fmt: skip
        super().__init__(message)
        self.message = message
        self.category = category
        self.identity = identity
        self.where = where  # the command that says it; in front of the message
        self.value = value  # what was thrown


class Hashtable(dict[Any, Any]):
    """Keys that are text compare without case."""

    ordered = False

    def _key(self, key: Any) -> Any:
        if isinstance(key, str):
            for known in self:
                if isinstance(known, str) and known.lower() == key.lower():
                    return known
        return key

    def find(self, key: Any) -> Any:
        return dict.get(self, self._key(key))

    def put(self, key: Any, value: Any) -> None:
        self[self._key(key)] = value

    def has(self, key: Any) -> bool:
        return self._key(key) in self


class PsObject:
    """Something with properties; `kind` is its .NET type, by which it is shown. `text` is what it says of itself."""

    __slots__ = ("kind", "properties", "text")

    def __init__(self, kind: str, properties: dict[str, Any], text: str = "") -> None:
        self.kind = kind
        self.properties = properties
        self.text = text

    def get(self, name: str) -> Any:
        if name in self.properties:
            return self.properties[name]
        lower = name.lower()
        return next((value for key, value in self.properties.items() if key.lower() == lower), None)


class ScriptBlock:
    __slots__ = ("body", "parameters")

    def __init__(self, parameters: tuple[tuple[str, Any], ...], body: Any) -> None:
        self.parameters = parameters
        self.body = body


class TypeName:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name.lower().removeprefix("system.")


class DateTime:
    """UTC, in seconds since 1970."""

    __slots__ = ("moment",)

    def __init__(self, moment: float) -> None:
        self.moment = moment

    def format(self, shape: str) -> str:
        """.NET's custom and the usual standard formats."""
        shape = _STANDARD.get(shape, shape)
        now = time.gmtime(self.moment)
        milliseconds = int(self.moment % 1 * 1000)
        pieces = {
            "yyyy": f"{now.tm_year:04d}", "yy": f"{now.tm_year % 100:02d}", "MMMM": time.strftime("%B", now),
            "MMM": time.strftime("%b", now),
            "MM": f"{now.tm_mon:02d}", "M": str(now.tm_mon), "dddd": time.strftime("%A", now), "ddd": time.strftime("%a", now),
            "dd": f"{now.tm_mday:02d}", "d": str(now.tm_mday), "HH": f"{now.tm_hour:02d}", "H": str(now.tm_hour),
            "hh": f"{(now.tm_hour + 11) % 12 + 1:02d}", "h": str((now.tm_hour + 11) % 12 + 1), "mm": f"{now.tm_min:02d}",
            "m": str(now.tm_min), "ss": f"{now.tm_sec:02d}", "s": str(now.tm_sec), "fff": f"{milliseconds:03d}",
            "ff": f"{milliseconds // 10:02d}", "f": str(milliseconds // 100), "tt": "AM" if now.tm_hour < 12 else "PM",
            "zzz": "+00:00", "K": "Z", "fffffff": f"{milliseconds:03d}0000",
        }  # fmt: skip
        pattern = r"'([^']*)'|\\(.)|fffffff|fff|ff|f|yyyy|yy|MMMM|MMM|MM|M|dddd|ddd|dd|d|HH|H|hh|h|mm|m|ss|s|tt|zzz|K"
        return re.sub(pattern, lambda match: match[1] if match[1] is not None else match[2] or pieces[match[0]], shape)


_STANDARD = {"o": "yyyy-MM-ddTHH:mm:ss.fffffffK", "s": "yyyy-MM-ddTHH:mm:ss", "u": "yyyy-MM-dd HH:mm:ssZ", "d": "M/d/yyyy",
             "D": "dddd, MMMM d, yyyy", "t": "h:mm tt", "T": "h:mm:ss tt", "g": "M/d/yyyy h:mm tt", "G": "M/d/yyyy h:mm:ss tt",
             "F": "dddd, MMMM d, yyyy h:mm:ss tt"}  # fmt: skip


def text(value: Any) -> str:
    """As in a string with variables."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, float):
        return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
    if isinstance(value, list | tuple):
        return " ".join(text(item) for item in value)
    if isinstance(value, bytes):
        return " ".join(str(byte) for byte in value)
    if isinstance(value, DateTime):
        return value.format("MM/dd/yyyy HH:mm:ss")
    if isinstance(value, PsObject):
        if value.text:
            return value.text
        inner = "; ".join(f"{name}={text(item)}" for name, item in value.properties.items())
        return f"@{{{inner}}}" if value.kind == "System.Management.Automation.PSCustomObject" else value.kind
    if isinstance(value, Hashtable):
        return "System.Collections.Hashtable"
    if isinstance(value, TypeName):
        return value.name
    return str(value)


def truth(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return truth(value[0]) if len(value) == 1 else bool(value)
    if value is None:
        return False
    if isinstance(value, str | bytes | bool | int | float):
        return bool(value)
    return True


def number(value: Any) -> int | float:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    if value is None:
        return 0
    if isinstance(value, DateTime):
        return value.moment
    shown = text(value).strip()
    try:
        if shown[:2].lower() == "0x":
            return int(shown, 16)
        return float(shown) if any(c in shown for c in ".eE") else int(shown or "0")
    except ValueError:
        raise PowerShellError(
            f'Cannot convert value "{shown}" to type "System.Int32". Error: "Input string was not in a correct format."',
            "InvalidArgument: (:) [], RuntimeException",
            "InvalidCastFromStringToInteger",
        ) from None


def items(value: Any) -> list[Any]:
    """What a pipeline gets of a value."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple | range) else [value]


def unrolled(values: Iterable[Any]) -> Any:
    """What a variable gets of a pipeline's output: nothing, the one value, or an array."""
    collected = list(values)
    return None if not collected else collected[0] if len(collected) == 1 else collected


def type_name(value: Any) -> str:
    names: tuple[tuple[type, str], ...] = (
        (bool, "System.Boolean"), (int, "System.Int32"), (float, "System.Double"), (str, "System.String"), (list,
        "System.Object[]"),
        (bytes, "System.Byte[]"), (Hashtable, "System.Collections.Hashtable"), (DateTime, "System.DateTime"),
        (ScriptBlock, "System.Management.Automation.ScriptBlock"),
    )  # fmt: skip
    if isinstance(value, PsObject):
        return value.kind
    return next((name for kind, name in names if isinstance(value, kind)), "System.Object")
