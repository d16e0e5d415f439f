"""Properties, methods and static members of .NET types that scripts use."""

from __future__ import annotations

import math
import re
from calendar import timegm
from collections.abc import Awaitable, Callable, Mapping
from time import gmtime, strptime
from typing import Any, Final
from urllib.parse import urlsplit

from transom.machines.windows.time_zones import offset_seconds
from transom.userland.limits import MAX_INPUT, bounded, check_size
from transom.userland.powershell import (
    cmdlets_acl,
    date_offsets,
    dotnet_objects,
    listener,
    processes,
    registry_keys,
    script_cmdlet,
    statics,
    stopwatches,
    web_client,
    wmi_objects,
    xml_objects,
)
from transom.userland.powershell.operators import format_operator, time_span
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import (
    Allocated,
    Char,
    DateTime,
    Hashtable,
    PowerShellError,
    PsObject,
    ScriptBlock,
    SecretObject,
    to_bool,
    to_items,
    to_number,
    to_text,
    type_name_of,
    unrolled,
)
from transom.userland.powershell.xml_objects import XmlObject, parse_xml


def item_at(container: Any, index: int) -> Any:
    if isinstance(container, Allocated) and len(container) <= index < container.size:
        return 0
    if isinstance(container, str | list | tuple | range | bytes):
        found = container[index] if -len(container) <= index < len(container) else None
        return Char(found) if isinstance(container, str) and found is not None else found
    return container if index in (0, -1) and container is not None else None


def parse_date_time(shown: str) -> DateTime:
    for shape in (
        "%Y-%m-%dT%H:%M:%SZ",
        "%Y-%m-%dT%H:%M:%S",
        "%Y-%m-%dT%H:%M",
        "%Y-%m-%d %H:%M:%S",
        "%Y-%m-%d %H:%M",
        "%Y-%m-%d",
        "%m/%d/%Y %H:%M:%S",
        "%m/%d/%Y %I:%M:%S %p",
        "%m/%d/%Y %I:%M %p",
        "%m/%d/%Y %H:%M",
        "%m/%d/%Y",
    ):
        try:
            kind = "Utc" if shape.endswith("Z") else "Unspecified"
            return DateTime(float(timegm(strptime(shown, shape))), 0, kind)
        except ValueError:
            continue
    raise PowerShellError(f'Cannot convert value "{shown}" to type "System.DateTime".')


def local_date(evaluator: PowerShellSession, moment: float) -> DateTime:
    """A moment in the time zone of the container or the machine."""
    offset = offset_seconds(evaluator.process.context.windows.system.registry, moment)
    return DateTime(moment + offset, offset, "Local")


def cast_value(name: str, value: Any) -> Any:
    kind = name.lower().removeprefix("system.")
    if kind.endswith("[]"):
        inner = kind[:-2]
        if inner in ("byte", "char") and isinstance(value, str):
            return list(value) if inner == "char" else [ord(c) for c in value]
        return [cast_value(inner, one) for one in to_items(value)]
    convert = _CASTS.get(kind)
    if convert is not None:
        return convert(value)
    if kind.partition("[")[0] in _KEPT:
        return value
    raise PowerShellError(
        f"Unable to find type [{name}].",
        f"InvalidOperation: ({name}:TypeName) [], RuntimeException",
        "TypeNotFound",
    )


_SYSTEM_TYPES: Final = ("activator", "appdomain", "array", "attribute", "buffer", "console", "gc")


def is_castable(kind: str) -> bool:
    """Whether the type (lower case, without `System.`) is one that values are cast to."""
    bare = kind.partition("[")[0]
    return bare in _CASTS or bare in _KEPT or bare in _SYSTEM_TYPES or kind.endswith("exception")


_LIMITS: Final = {
    "byte": (0, 0xFF, "System.Byte", "an unsigned byte"),
    "int16": (-(1 << 15), (1 << 15) - 1, "System.Int16", "an Int16"),
    "int": (-(1 << 31), (1 << 31) - 1, "System.Int32", "an Int32"),
    "int32": (-(1 << 31), (1 << 31) - 1, "System.Int32", "an Int32"),
    "sbyte": (-128, 127, "System.SByte", "a signed byte"),
    "uint16": (0, 0xFFFF, "System.UInt16", "a UInt16"),
    "ushort": (0, 0xFFFF, "System.UInt16", "a UInt16"),
    "uint": (0, (1 << 32) - 1, "System.UInt32", "a UInt32"),
    "uint64": (0, (1 << 64) - 1, "System.UInt64", "a UInt64"),
    "ulong": (0, (1 << 64) - 1, "System.UInt64", "a UInt64"),
    "uint32": (0, (1 << 32) - 1, "System.UInt32", "a UInt32"),
    "int64": (-(1 << 63), (1 << 63) - 1, "System.Int64", "an Int64"),
    "long": (-(1 << 63), (1 << 63) - 1, "System.Int64", "an Int64"),
}


def _cast_integer(kind: str) -> Callable[[Any], Any]:
    least, most, name, shown = _LIMITS[kind]

    def cast(value: Any) -> Any:
        found = ord(value) if isinstance(value, Char) else to_number(value)
        found = round(found) if isinstance(found, float) and math.isfinite(found) else found
        if not least <= found <= most:
            raise PowerShellError(
                f'Cannot convert value "{to_text(value)}" to type "{name}". Error: "Value was '
                f'either too large or too small for {shown}."',
                "InvalidArgument: (:) [], RuntimeException",
                "InvalidCastIConvertible",
            )
        return found

    return cast


def _cast_float(value: Any) -> float:
    return float(to_number(value))


def _cast_char(value: Any) -> Char:
    return Char(chr(value) if isinstance(value, int) else to_text(value)[:1])


def _cast_date(value: Any) -> DateTime:
    return value if isinstance(value, DateTime) else parse_date_time(to_text(value))


def _unless_object(convert: Callable[[Any], PsObject]) -> Callable[[Any], PsObject]:
    return lambda value: value if isinstance(value, PsObject) else convert(value)


def _cast_principal(value: Any) -> PsObject:
    return PsObject("System.Security.Principal.WindowsPrincipal", {"Identity": value})


def _cast_custom_object(value: Any) -> PsObject:
    properties = dict(value) if isinstance(value, Hashtable) else {}
    return PsObject(
        "System.Management.Automation.PSCustomObject",
        {to_text(key): one for key, one in properties.items()},
    )


# Types of values that a cast leaves as they are: they have the type already, or are converted where
# they are used.
_KEPT: Final = frozenset(
    (
        "object",
        "psobject",
        "management.automation.psobject",
        "hashtable",
        "collections.hashtable",
        "collections.idictionary",
        "collections.arraylist",
        "collections.generic.list",
        "collections.generic.dictionary",
        "ordered",
        "scriptblock",
        "management.automation.scriptblock",
        "management.automation.errorrecord",
        "type",
        "enum",
        "exception",
        "guid",
        "ref",
        "securestring",
        "security.securestring",
        "pscredential",
        "management.automation.pscredential",
        "ciminstance",
        "io.fileinfo",
        "io.directoryinfo",
        "net.securityprotocoltype",
        "consolecolor",
        "microsoft.win32.registrykey",
        "microsoft.win32.registryvaluekind",
        "diagnostics.process",
        "serviceprocess.servicecontroller",
        "security.accesscontrol.filesystemaccessrule",
    )
)


def _uri(value: Any) -> PsObject:
    text = to_text(value)
    parts = urlsplit(text)
    usual = {"http": 80, "https": 443, "ftp": 21}.get(parts.scheme, -1)
    return PsObject(
        "System.Uri",
        {
            "AbsolutePath": parts.path or "/",
            "AbsoluteUri": text,
            "Authority": parts.netloc,
            "Host": parts.hostname or "",
            "IsAbsoluteUri": bool(parts.scheme),
            "Port": parts.port or usual,
            "Query": f"?{parts.query}" if parts.query else "",
            "Scheme": parts.scheme,
            "Segments": [f"{one}/" for one in parts.path.split("/")[:-1]]
            + [one for one in parts.path.split("/")[-1:] if one],
            "OriginalString": text,
        },
        text,
    )


_CASTS: dict[str, Callable[[Any], Any]] = {
    "uri": lambda value: value if isinstance(value, PsObject) else _uri(value),
    **{kind: _cast_integer(kind) for kind in _LIMITS},
    **dict.fromkeys(("double", "single", "float", "decimal"), _cast_float),
    **dict.fromkeys(
        ("regex", "text.regularexpressions.regex"),
        _unless_object(lambda value: PsObject(statics.REGEX_TYPE, {}, to_text(value))),
    ),
    "string": to_text,
    **dict.fromkeys(("bool", "boolean", "switch"), to_bool),
    "char": _cast_char,
    **dict.fromkeys(("xml", "xml.xmldocument"), parse_xml),
    "datetime": _cast_date,
    "array": to_items,
    "version": _unless_object(dotnet_objects.parse_version_object),
    **dict.fromkeys(("ipaddress", "net.ipaddress"), _unless_object(dotnet_objects.address_object)),
    "security.principal.securityidentifier": _unless_object(cmdlets_acl.identifier_object),
    "security.principal.ntaccount": _unless_object(cmdlets_acl.account_object),
    "timespan": _unless_object(lambda value: statics.parse_time_span(to_text(value))),
    "security.principal.windowsprincipal": _cast_principal,
    "void": lambda value: None,
    "pscustomobject": _cast_custom_object,
}


def check_property(target: PsObject, name: str) -> None:
    """Raises PowerShellError for a property that the object does not have."""
    if name.lower() in ("psobject", "count", "length") or target.has(name):
        return
    raise PowerShellError(
        f"The property '{name}' cannot be found on this object. Verify that the property exists.",
        "InvalidOperation: (:) [], RuntimeException",
        "PropertyNotFound",
    )


def get_property(evaluator: PowerShellSession, target: Any, name: str) -> Any:
    lower = name.lower()
    if target is None:
        return 0 if lower in ("count", "length") else None
    if isinstance(target, Hashtable):
        if target.has(name):
            return target.find(name)
        return {"keys": list(target), "values": list(target.values()), "count": len(target)}.get(
            lower
        )
    if isinstance(target, PsObject):
        if lower == "psobject":
            return _reflected(target)
        if target.kind == stopwatches.STOPWATCH:
            stopwatches.update_elapsed(evaluator, target)
        if lower == "count" and target.get(name) is None:
            return 1
        return target.get(name)
    if isinstance(target, list | range | bytes):
        if lower in ("count", "length", "longlength"):
            return target.size if isinstance(target, Allocated) else len(target)
        values = [get_property(evaluator, one, name) for one in target]
        return [value for value in values if value is not None] or None
    if lower in ("length", "count"):
        return len(target) if isinstance(target, str) and lower == "length" else 1
    if isinstance(target, DateTime):
        read = _DATE_PROPERTIES.get(lower)
        return read(target) if read is not None else None
    return None


def _date_number(shape: str) -> Callable[[DateTime], int]:
    return lambda date: int(date.format(shape))


_DATE_PROPERTIES: dict[str, Callable[[DateTime], Any]] = {
    "year": _date_number("yyyy"),
    "month": _date_number("MM"),
    "day": _date_number("dd"),
    "hour": _date_number("HH"),
    "minute": _date_number("mm"),
    "second": _date_number("ss"),
    "dayofweek": lambda date: date.format("dddd"),
    "dayofyear": lambda date: gmtime(date.moment).tm_yday,
    "millisecond": lambda date: int(date.moment % 1 * 1000),
    "timeofday": lambda date: time_span(date.moment % 86400),
    "ticks": lambda date: int(date.moment * 10_000_000) + 621355968000000000,
    "kind": lambda date: date.kind,
    "date": lambda date: DateTime(date.moment - date.moment % 86400, date.offset, date.kind),
}


class PropertyList(list[PsObject]):
    """The properties of an object, which has what is added to them or removed."""

    def __init__(self, rows: list[PsObject], target: PsObject) -> None:
        super().__init__(rows)
        self.target = target

    def remove_property(self, name: str) -> None:
        known = next((one for one in self.target.properties if one.lower() == name.lower()), "")
        self.target.properties.pop(known, None)
        if self.target.script_properties:
            self.target.script_properties.pop(known, None)

    def add_property(self, given: Any) -> None:
        if isinstance(given, PsObject):
            self.target.properties[to_text(given.get("Name"))] = given.get("Value")


def _reflected(target: PsObject) -> PsObject:
    """The value of the property PSObject: what the object consists of."""
    custom = target.kind == "System.Management.Automation.PSCustomObject"
    rows = [
        PsObject(
            "System.Management.Automation.PSNoteProperty",
            {
                "MemberType": "NoteProperty" if custom else "Property",
                "IsSettable": True,
                "IsGettable": True,
                "Value": value,
                "TypeNameOfValue": type_name_of(value),
                "Name": name,
                "IsInstance": True,
            },
            f"{type_name_of(value)} {name}={to_text(value)}",
        )
        for name, value in target.properties.items()
    ]
    return PsObject(
        "System.Management.Automation.PSObject",
        {
            "Properties": PropertyList(rows, target),
            "TypeNames": [target.kind, "System.Object"],
            "BaseObject": target,
        },
    )


async def _for_each(
    evaluator: PowerShellSession, values: list[Any], arguments: list[Any]
) -> list[Any]:
    """The method ForEach of arrays, with a block or the name of a property."""
    out: list[Any] = []
    for item in values:
        if isinstance(arguments[0], ScriptBlock):
            out += await evaluator.invoke(arguments[0], [], item)
        else:
            out += to_items(get_property(evaluator, item, to_text(arguments[0])))
    return out


async def _where(
    evaluator: PowerShellSession, values: list[Any], arguments: list[Any]
) -> list[Any]:
    """The method Where of arrays: a block, then a mode and a number."""
    mode = to_text(arguments[1]).lower() if len(arguments) > 1 else "default"
    hits: list[Any] = []
    misses: list[Any] = []
    for item in values:
        found = to_bool(unrolled(await evaluator.invoke(arguments[0], [], item)))
        (hits if found else misses).append(item)
    count = int(to_number(arguments[2])) if len(arguments) > 2 else 1
    if mode == "split":
        return [hits, misses]
    return {"first": hits[:count], "last": hits[-count:]}.get(mode, hits)


def _length(value: Any) -> int:
    """The length of a string before it is created."""
    check_size(to_number(value))
    return int(to_number(value))


def _substring(target: str, start: Any, length: Any = None) -> str:
    first = int(start)
    count = len(target) - first if length is None else int(length)
    why = ""
    if first < 0:
        why = "StartIndex cannot be less than zero.\r\nParameter name: startIndex"
    elif first > len(target):
        why = "startIndex cannot be larger than length of string.\r\nParameter name: startIndex"
    elif count < 0:
        why = "Length cannot be less than zero.\r\nParameter name: length"
    elif first + count > len(target):
        why = (
            "Index and length must refer to a location within the string.\r\nParameter name: length"
        )
    if why:
        raise PowerShellError(
            f'Exception calling "Substring" with "{1 if length is None else 2}" argument(s): "{why}"',
            "NotSpecified: (:) [], MethodInvocationException",
            "ArgumentOutOfRangeException",
        )
    return target[first : first + count]


def _string_replace(target: str, old: str, new: str) -> str:
    check_size(len(target) * max(1, len(new) // max(1, len(old))), MAX_INPUT)
    return bounded(target.replace(old, new))


_STRING: dict[str, Callable[[str, list[Any]], Any]] = {
    "toupper": lambda target, a: target.upper(),
    "tolower": lambda target, a: target.lower(),
    "toupperinvariant": lambda target, a: target.upper(),
    "tolowerinvariant": lambda target, a: target.lower(),
    "trim": lambda target, a: target.strip(to_text(a[0]) if a else None),
    "trimstart": lambda target, a: target.lstrip(to_text(a[0]) if a else None),
    "trimend": lambda target, a: target.rstrip(to_text(a[0]) if a else None),
    "split": lambda target, a: (
        re.split("|".join(re.escape(c) for c in to_text(a[0])), target) if a else target.split()
    ),
    "replace": lambda target, a: _string_replace(target, to_text(a[0]), to_text(a[1])),
    "contains": lambda target, a: to_text(a[0]) in target,
    "startswith": lambda target, a: target.startswith(to_text(a[0])),
    "endswith": lambda target, a: target.endswith(to_text(a[0])),
    "substring": lambda target, a: _substring(target, *a),
    "indexof": lambda target, a: target.find(to_text(a[0])),
    "lastindexof": lambda target, a: target.rfind(to_text(a[0])),
    "padleft": lambda target, a: target.rjust(_length(a[0]), to_text(a[1]) if len(a) > 1 else " "),
    "padright": lambda target, a: target.ljust(_length(a[0]), to_text(a[1]) if len(a) > 1 else " "),
    "insert": lambda target, a: bounded(target[: int(a[0])] + to_text(a[1]) + target[int(a[0]) :]),
    "remove": lambda target, a: (
        target[: int(a[0])] + (target[int(a[0]) + int(a[1]) :] if len(a) > 1 else "")
    ),
    "tochararray": lambda target, a: list(target),
    "equals": lambda target, a: target == to_text(a[0]),
    "compareto": lambda target, a: (target > to_text(a[0])) - (target < to_text(a[0])),
}


def _remove_first(target: list[Any], value: Any) -> bool:
    if value not in target:
        return False
    target.remove(value)
    return True


_LIST: dict[str, Callable[[list[Any], list[Any]], Any]] = {
    "add": lambda target, a: bounded(target).append(a[0]),
    "addrange": lambda target, a: bounded(target).extend(to_items(a[0])),
    "clear": lambda target, a: target.clear(),
    "contains": lambda target, a: a[0] in target,
    "indexof": lambda target, a: target.index(a[0]) if a[0] in target else -1,
    "remove": lambda target, a: _remove_first(target, a[0]),
    "removeat": lambda target, a: target.pop(int(a[0])) and None,
    "insert": lambda target, a: bounded(target).insert(int(a[0]), a[1]),
    "reverse": lambda target, a: target.reverse(),
    "toarray": lambda target, a: list(target),
    "getenumerator": lambda target, a: list(target),
}
_PROPERTY_LIST: dict[str, Callable[[Any, list[Any]], Any]] = {
    "add": lambda target, a: target.add_property(a[0]),
    "remove": lambda target, a: target.remove_property(to_text(a[0])),
}
_HASHTABLE: dict[str, Callable[[Hashtable, list[Any]], Any]] = {
    "add": lambda target, a: target.put(a[0], a[1]),
    "set_item": lambda target, a: target.put(a[0], a[1]),
    "get_item": lambda target, a: target.find(a[0]),
    "item": lambda target, a: target.find(a[0]),
    "containskey": lambda target, a: target.has(a[0]),
    "contains": lambda target, a: target.has(a[0]),
    "containsvalue": lambda target, a: a[0] in target.values(),
    "remove": lambda target, a: target.pop(a[0], None) and None,
    "clear": lambda target, a: target.clear(),
    "getenumerator": lambda target, a: [
        PsObject("System.Collections.DictionaryEntry", {"Name": key, "Value": value, "Key": key})
        for key, value in target.items()
    ],
}
_ADD_TIME = {
    "addseconds": 1.0,
    "addminutes": 60.0,
    "addhours": 3600.0,
    "adddays": 86400.0,
    "addmilliseconds": 0.001,
}


def _value_methods(target: Any) -> Mapping[str, Callable[[Any, list[Any]], Any]]:
    """The methods of strings, arrays and hashtables."""
    if isinstance(target, str):
        return _STRING
    if isinstance(target, list):
        return _PROPERTY_LIST if isinstance(target, PropertyList) else _LIST
    return _HASHTABLE if isinstance(target, Hashtable) else {}


def call_method(
    evaluator: PowerShellSession, target: Any, name: str, arguments: list[Any]
) -> Any | Awaitable[Any]:
    lower = name.lower()
    if target is None:
        raise PowerShellError(
            "You cannot call a method on a null-valued expression.",
            "InvalidOperation: (:) [], RuntimeException",
            "InvokeMethodOnNull",
        )
    method = METHODS.get((target.kind, lower)) if isinstance(target, PsObject) else None
    if method is None and lower == "tostring":
        if arguments and isinstance(target, DateTime):
            return target.format(to_text(arguments[0]))
        return (
            format_operator("{0:" + to_text(arguments[0]) + "}", [target])
            if arguments
            else to_text(target)
        )
    if lower == "gettype":
        full = type_name_of(target)
        return PsObject(
            "System.RuntimeType",
            {"Name": full.rpartition(".")[2], "FullName": full, "BaseType": "System.Object"},
            full,
        )
    if isinstance(target, XmlObject) and lower in xml_objects.METHODS:
        return xml_objects.METHODS[lower](target.node, arguments)
    if method is not None:
        return method(evaluator, target, arguments)
    if lower == "dispose" or lower == "close":
        return None
    if lower in ("foreach", "where") and arguments and not isinstance(target, Hashtable):
        apply = _for_each if lower == "foreach" else _where
        return apply(evaluator, to_items(target), arguments)
    of_value = _value_methods(target).get(lower)
    if of_value is not None:
        try:
            return of_value(target, arguments)
        except IndexError:
            raise PowerShellError(
                f'Cannot find an overload for "{name}" and the argument count: "{len(arguments)}".'
            ) from None
    if isinstance(target, DateTime):
        result = _call_date_method(evaluator, target, lower, arguments)
        if result is not None:
            return result
    if isinstance(target, ScriptBlock) and lower in ("invoke", "invokereturnasis"):
        return evaluator.invoke_with(target, arguments)
    raise PowerShellError(
        (
            f"Method invocation failed because [{type_name_of(target)}] does not contain a method "
            f"named '{name}'."
        ),
        f"InvalidOperation: ({name}:String) [], RuntimeException",
        "MethodNotFound",
    )


_DATE_FORMATS = {
    "toshortdatestring": "d",
    "tolongdatestring": "D",
    "toshorttimestring": "t",
    "tolongtimestring": "T",
}


def _call_date_method(
    evaluator: PowerShellSession, date: DateTime, lower: str, arguments: list[Any]
) -> DateTime | PsObject | str | None:
    """None if dates do not have the method."""
    if lower in ("addmonths", "addyears"):
        return statics.add_months(
            date.moment, int(to_number(arguments[0])) * (1 if lower == "addmonths" else 12)
        )
    if lower in _ADD_TIME:
        return DateTime(
            date.moment + float(to_number(arguments[0])) * _ADD_TIME[lower], date.offset, date.kind
        )
    if lower == "add":
        return DateTime(
            date.moment + float(to_number(arguments[0].get("TotalSeconds"))), date.offset, date.kind
        )
    if lower in _DATE_FORMATS:
        return date.format(_DATE_FORMATS[lower])
    if lower == "touniversaltime":
        return DateTime(date.moment - date.offset, 0, "Utc")
    if lower == "tolocaltime":
        return date if date.kind == "Local" else local_date(evaluator, date.moment)
    if lower == "subtract":
        return time_span(date.moment - arguments[0].moment)
    return None


def _decode(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> str:
    value = arguments[0]
    data = value if isinstance(value, bytes) else bytes(int(one) & 0xFF for one in to_items(value))
    return data.decode(target.text or "utf-8", "replace")


def credential(user: str, password: Any) -> SecretObject:
    secret = password.secret if isinstance(password, SecretObject) else ""
    return SecretObject(
        "System.Management.Automation.PSCredential",
        {"UserName": user, "Password": password},
        secret,
    )


def _network_credential(
    evaluator: PowerShellSession, target: SecretObject, arguments: list[Any]
) -> PsObject:
    domain, _, user = to_text(target.get("UserName")).rpartition("\\")
    return PsObject(
        "System.Net.NetworkCredential",
        {"UserName": user, "Password": target.secret, "Domain": domain},
    )


def _delete_item(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> None:
    """Removes links, not their targets; a directory that is not empty only if requested."""
    path = to_text(target.get("FullName"))
    try:
        evaluator.process.context.files.remove(path, recursive=bool(arguments and arguments[0]))
    except OSError as problem:
        raise PowerShellError(
            f'Exception calling "Delete" with "{len(arguments)}" argument(s): "{problem.strerror}"',
            "NotSpecified: (:) [], MethodInvocationException",
            "IOException",
        ) from problem


METHODS: dict[tuple[str, str], Callable[..., Any]] = {
    **listener.METHODS,
    **dotnet_objects.METHODS,
    **statics.METHODS,
    **script_cmdlet.METHODS,
    **stopwatches.METHODS,
    **registry_keys.METHODS,
    **date_offsets.METHODS,
    ("System.IO.DirectoryInfo", "delete"): _delete_item,
    ("System.IO.FileInfo", "delete"): _delete_item,
    ("System.Management.Automation.PSCredential", "getnetworkcredential"): _network_credential,
    **cmdlets_acl.METHODS,
    **processes.METHODS,
    **wmi_objects.METHODS,
    **web_client.METHODS,
    ("System.Text.Encoding", "getbytes"): lambda evaluator, target, a: list(
        to_text(a[0]).encode(target.text or "utf-8")
    ),
    ("System.Text.Encoding", "getstring"): _decode,
    ("System.IO.TextWriter", "writeline"): lambda evaluator, target, a: evaluator.process.complain(
        to_text(a[0]) if a else ""
    ),
    ("System.Random", "next"): lambda evaluator, target, a: evaluator.process.context.rng.randrange(
        int(to_number(a[0])) if len(a) > 1 else 0, int(to_number(a[-1])) if a else 2147483647
    ),
}


def console_write_line(evaluator: PowerShellSession, a: list[Any] | None) -> None:
    evaluator.flush()
    evaluator.process.write((to_text(a[0]) if a else "") + "\r\n")


def console_write(evaluator: PowerShellSession, a: list[Any] | None) -> None:
    evaluator.flush()
    evaluator.process.write(to_text(a[0]) if a else "")
