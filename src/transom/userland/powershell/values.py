"""PowerShell's values and their conversion to text, numbers and booleans. Arrays are Python lists."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from transom.userland.limits import MAX_ITEMS, bounded
from transom.userland.powershell.extents import SourceExtent
from transom.userland.powershell.tree import ScriptParameter, StatementBlock

CUSTOM_OBJECT: Final = "System.Management.Automation.PSCustomObject"


class PowerShellError(Exception):
    """An error that a script can catch. `category` and `identity` are in the lines below the
    message.
    """

    def __init__(
        self,
        message: str,
        category: str = "NotSpecified: (:) [], RuntimeException",
        identity: str = "RuntimeException",
        *,
        where: str = "",
        value: Any = None,
        inner: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.category = category
        self.identity = identity
        self.where = where  # the command that reports it; precedes the message
        self.value = value  # the thrown value
        self.inner = inner  # the type of the inner exception
        self.extent: SourceExtent | None = None  # of the command or statement
        self.has_position = True  # whether the console shows where it is


class VariableScope(dict[str, Any]):
    """The variables of a scope. `types` are those of variables that were declared with one."""

    def __init__(self, variables: dict[str, Any] | None = None) -> None:
        super().__init__(variables or {})
        self.types: dict[str, str] = {}


class Hashtable(dict[Any, Any]):
    """A table whose text keys ignore case."""

    kind = "System.Collections.Hashtable"

    def written(self, key: Any) -> Any:
        """The key as the table has it."""
        return self._key(key)

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


class OrderedDictionary(Hashtable):
    """`[ordered]@{}`: a number is the position of an entry."""

    kind = "System.Collections.Specialized.OrderedDictionary"


class Dictionary(Hashtable):
    """Dictionary<K,V>: its keys are compared exactly."""

    keys_as = values_as = "object"

    def _key(self, key: Any) -> Any:
        return key


class PsObject:
    """An object with properties; `kind` is its .NET type, which determines its format. `text` is
    its string representation.
    """

    __slots__ = ("hidden", "kind", "properties", "script_methods", "script_properties", "text")

    def __init__(self, kind: str, properties: dict[str, Any], text: str = "") -> None:
        self.kind = kind
        self.properties = properties
        self.text = text
        self.script_methods: dict[str, ScriptBlock] | None = None  # by Add-Member
        # By Add-Member; `properties` has what they returned last.
        self.script_properties: dict[str, ScriptBlock] | None = None
        self.hidden: frozenset[str] = frozenset()  # properties that are not shown

    def has(self, name: str) -> bool:
        return any(key.lower() == name.lower() for key in self.properties)

    def get(self, name: str) -> Any:
        if name in self.properties:
            return self.properties[name]
        lower = name.lower()
        return next((value for key, value in self.properties.items() if key.lower() == lower), None)


def table_entries(target: Hashtable) -> list[PsObject]:
    """What an enumeration of a table returns."""
    if isinstance(target, Dictionary):
        kind = target.kind.replace("Dictionary`2", "KeyValuePair`2")
        return [PsObject(kind, {"Key": key, "Value": value}) for key, value in target.items()]
    return [
        PsObject("System.Collections.DictionaryEntry", {"Name": key, "Value": value, "Key": key})
        for key, value in target.items()
    ]


class SecretObject(PsObject):
    """A SecureString, or a PSCredential: `secret` is not shown."""

    __slots__ = ("secret",)

    def __init__(self, kind: str, properties: dict[str, Any], secret: str) -> None:
        super().__init__(kind, properties, kind)
        self.secret = secret


class VariableLink(PsObject):
    """`[ref]$variable`: a method sets the variable through it."""

    __slots__ = ("assign",)

    def __init__(self, value: Any, assign: Callable[[Any], None]) -> None:
        super().__init__(
            "System.Management.Automation.PSReference",
            {"Value": value},
            "System.Management.Automation.PSReference",
        )
        self.assign = assign

    def set(self, value: Any) -> None:
        self.properties["Value"] = value
        self.assign(value)


class ScriptBlock:
    """`binding` is its attribute CmdletBinding; `text` is its source code."""

    __slots__ = ("binding", "body", "parameters", "text")

    def __init__(
        self,
        parameters: tuple[ScriptParameter, ...],
        body: StatementBlock,
        binding: str = "",
        text: str = "",
    ) -> None:
        self.parameters = parameters
        self.body = body
        self.binding = binding
        self.text = text

    @property
    def advanced(self) -> bool:
        """Whether it binds its parameters like a cmdlet."""
        return bool(self.binding) or any(one.attributed for one in self.parameters)


class TypeName:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name.lower().removeprefix("system.")


class Char(str):
    """One character, which converts to its number."""

    __slots__ = ()


class TypedArray(list[Any]):
    """An array whose elements have a type, which `element` names as scripts write it. A plain list
    is an array of System.Object.
    """

    kind = "System.Object[]"
    element = "object"


class Allocated(TypedArray):
    """A large array: its first elements, and its length."""

    size = 0


class DateTime:
    """In seconds since 1970, by a clock that is `offset` seconds ahead of UTC. `kind` is Local, Utc
    or Unspecified.
    """

    __slots__ = ("kind", "moment", "offset")

    def __init__(self, moment: float, offset: int = 0, kind: str = "Unspecified") -> None:
        self.moment = moment
        self.offset = offset
        self.kind = kind

    def format(self, shape: str) -> str:
        """.NET's custom and the common standard formats."""
        shape = _STANDARD.get(shape, shape)
        now = time.gmtime(self.moment)
        milliseconds = int(self.moment % 1 * 1000)
        hours, minutes = divmod(abs(self.offset) // 60, 60)
        zone = f"{'-' if self.offset < 0 else '+'}{hours:02d}:{minutes:02d}"
        pieces = {
            "yyyy": f"{now.tm_year:04d}",
            "yy": f"{now.tm_year % 100:02d}",
            "MMMM": time.strftime("%B", now),
            "MMM": time.strftime("%b", now),
            "MM": f"{now.tm_mon:02d}",
            "M": str(now.tm_mon),
            "dddd": time.strftime("%A", now),
            "ddd": time.strftime("%a", now),
            "dd": f"{now.tm_mday:02d}",
            "d": str(now.tm_mday),
            "HH": f"{now.tm_hour:02d}",
            "H": str(now.tm_hour),
            "hh": f"{(now.tm_hour + 11) % 12 + 1:02d}",
            "h": str((now.tm_hour + 11) % 12 + 1),
            "mm": f"{now.tm_min:02d}",
            "m": str(now.tm_min),
            "ss": f"{now.tm_sec:02d}",
            "s": str(now.tm_sec),
            "fff": f"{milliseconds:03d}",
            "ff": f"{milliseconds // 10:02d}",
            "f": str(milliseconds // 100),
            "tt": "AM" if now.tm_hour < 12 else "PM",
            "zzz": zone,
            "K": {"Utc": "Z", "Local": zone}.get(self.kind, ""),
            "fffffff": f"{milliseconds:03d}0000",
        }
        pattern = r"'([^']*)'|\\(.)|fffffff|fff|ff|f|yyyy|yy|MMMM|MMM|MM|M|dddd|ddd|dd|d|HH|H|hh|h|mm|m|ss|s|tt|zzz|K"
        return re.sub(
            pattern,
            lambda match: match[1] if match[1] is not None else match[2] or pieces[match[0]],
            shape,
        )


_STANDARD = {
    "o": "yyyy-MM-ddTHH:mm:ss.fffffffK",
    "s": "yyyy-MM-ddTHH:mm:ss",
    "u": "yyyy-MM-dd HH:mm:ssZ",
    "d": "M/d/yyyy",
    "D": "dddd, MMMM d, yyyy",
    "t": "h:mm tt",
    "T": "h:mm:ss tt",
    "g": "M/d/yyyy h:mm tt",
    "G": "M/d/yyyy h:mm:ss tt",
    "F": "dddd, MMMM d, yyyy h:mm:ss tt",
}


def _double(value: float) -> str:
    """With fifteen digits, as .NET Framework prints it."""
    shown = f"{value:.15G}"
    if "E" not in shown and abs(value) >= 1e-5:
        return shown
    digits, _, exponent = f"{value:.14E}".partition("E")
    return f"{digits.rstrip('0').rstrip('.')}E{int(exponent):+03d}"


def to_text(value: Any) -> str:
    """The text of a value in an expandable string."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        if value == int(value) and abs(value) < 1e15:
            return str(int(value))
        return _double(value)
    if isinstance(value, list | tuple):
        return bounded(" ".join(to_text(item) for item in bounded(value, MAX_ITEMS)))
    if isinstance(value, bytes):
        return " ".join(str(byte) for byte in value)
    if isinstance(value, DateTime):
        return value.format("MM/dd/yyyy HH:mm:ss")
    if isinstance(value, PsObject):
        if value.text:
            return value.text
        inner = "; ".join(f"{name}={to_text(item)}" for name, item in value.properties.items())
        return f"@{{{inner}}}" if value.kind == CUSTOM_OBJECT else value.kind
    if isinstance(value, Hashtable):
        return "System.Collections.Hashtable"
    if isinstance(value, TypeName):
        return value.name
    if isinstance(value, ScriptBlock):
        return value.text
    return str(value)


def to_bool(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return to_bool(value[0]) if len(value) == 1 else bool(value)
    if value is None:
        return False
    if isinstance(value, str | bytes | bool | int | float):
        return bool(value)
    return True


def to_number(value: Any) -> int | float:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    if value is None:
        return 0
    if isinstance(value, DateTime):
        return value.moment
    if isinstance(value, Char):
        return ord(value) if not value.isdigit() else int(value)
    if isinstance(value, PsObject) and "value__" in value.properties:  # of an enum
        return int(value.properties["value__"])
    shown = to_text(value).strip()
    try:
        if shown[:2].lower() == "0x":
            return int(shown, 16)
        return float(shown) if any(c in shown for c in ".eE") else int(shown or "0")
    except ValueError:
        raise PowerShellError(
            (
                f'Cannot convert value "{shown}" to type "System.Int32". Error: "Input string '
                'was not in a correct format."'
            ),
            "InvalidArgument: (:) [], RuntimeException",
            "InvalidCastFromStringToInteger",
        ) from None


def to_items(value: Any) -> list[Any]:
    """The items that a value adds to a pipeline."""
    if value is None:
        return []
    return list(bounded(value, MAX_ITEMS)) if isinstance(value, list | tuple | range) else [value]


def unrolled(values: Iterable[Any]) -> Any:
    """The value that a variable receives from a pipeline's output: nothing, a single value, or an
    array.
    """
    collected = list(values)
    return None if not collected else collected[0] if len(collected) == 1 else collected


def type_name_of(value: Any) -> str:
    names: tuple[tuple[type, str], ...] = (
        (bool, "System.Boolean"),
        (float, "System.Double"),
        (Char, "System.Char"),
        (str, "System.String"),
        (list, "System.Object[]"),
        (bytes, "System.Byte[]"),
        (DateTime, "System.DateTime"),
        (ScriptBlock, "System.Management.Automation.ScriptBlock"),
    )
    if isinstance(value, PsObject | TypedArray | Hashtable):
        return value.kind
    if isinstance(value, int) and not isinstance(value, bool):
        return "System.Int32" if -(1 << 31) <= value < 1 << 31 else "System.Int64"
    return next((name for kind, name in names if isinstance(value, kind)), "System.Object")


def version_object(version: str) -> PsObject:
    """System.Version. .NET counts parts that are not given as -1."""
    numbers = [int(part) for part in version.split(".")]
    parts = dict(zip(("Major", "Minor", "Build", "Revision"), [*numbers, -1, -1], strict=False))
    return PsObject("System.Version", parts, version)
