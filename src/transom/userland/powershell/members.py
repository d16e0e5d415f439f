"""Properties, methods and static members of .NET types that scripts use."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from time import gmtime
from typing import Any

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
from transom.userland.powershell.casts import convert_value
from transom.userland.powershell.dotnet_collections import (
    ARRAY_METHODS,
    call_collection,
    call_table,
)
from transom.userland.powershell.dotnet_names import (
    base_type_name,
    short_type_name,
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
    TypedArray,
    to_bool,
    to_items,
    to_number,
    to_text,
    type_name_of,
    unrolled,
)
from transom.userland.powershell.xml_objects import XmlObject


def item_at(container: Any, index: int) -> Any:
    if isinstance(container, Allocated) and len(container) <= index < container.size:
        return 0
    if isinstance(container, str | list | tuple | range | bytes):
        found = container[index] if -len(container) <= index < len(container) else None
        return Char(found) if isinstance(container, str) and found is not None else found
    return container if index in (0, -1) and container is not None else None


def local_date(evaluator: PowerShellSession, moment: float) -> DateTime:
    """A moment in the time zone of the container or the machine."""
    offset = offset_seconds(evaluator.process.context.windows.system.registry, moment)
    return DateTime(moment + offset, offset, "Local")


def check_property(target: Any, name: str) -> None:
    """Raises PowerShellError for a property that the object does not have."""
    known = isinstance(target, PsObject) and target.has(name)
    if known or name.lower() in ("psobject", "count", "length"):
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


_PROPERTY_LIST: dict[str, Callable[[Any, list[Any]], Any]] = {
    "add": lambda target, a: target.add_property(a[0]),
    "remove": lambda target, a: target.remove_property(to_text(a[0])),
}
_ADD_TIME = {
    "addseconds": 1.0,
    "addminutes": 60.0,
    "addhours": 3600.0,
    "adddays": 86400.0,
    "addmilliseconds": 0.001,
}


def _value_methods(target: Any) -> Mapping[str, Callable[[Any, list[Any]], Any]]:
    """The methods of strings and arrays of objects."""
    if isinstance(target, str):
        return _STRING
    if isinstance(target, list):
        return _PROPERTY_LIST if isinstance(target, PropertyList) else ARRAY_METHODS
    return {}


def _call_collection(
    evaluator: PowerShellSession, target: Any, name: str, arguments: list[Any]
) -> Any | Awaitable[Any]:
    """NotImplemented if the value is no collection with this method."""
    if isinstance(target, Hashtable):
        return call_table(target, name, arguments, convert_value)
    if isinstance(target, TypedArray):
        return call_collection(evaluator, target, name, arguments, convert_value)
    return NotImplemented


def type_object(full: str) -> PsObject:
    """What GetType returns."""
    base = base_type_name(full)
    return PsObject(
        "System.RuntimeType",
        {
            "IsPublic": True,
            "IsSerial": full != "System.Management.Automation.PSCustomObject",
            "Name": short_type_name(full),
            "BaseType": PsObject(
                "System.RuntimeType", {"Name": short_type_name(base), "FullName": base}, base
            ),
            "FullName": full,
            "Namespace": full.partition("[[")[0].rpartition(".")[0],
            "IsArray": full.endswith("[]"),
        },
        full,
    )


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
        return type_object(full)
    if isinstance(target, XmlObject) and lower in xml_objects.METHODS:
        return xml_objects.METHODS[lower](target.node, arguments)
    if method is not None:
        return method(evaluator, target, arguments)
    if lower == "dispose" or lower == "close":
        return None
    if lower in ("foreach", "where") and arguments and not isinstance(target, Hashtable):
        apply = _for_each if lower == "foreach" else _where
        return apply(evaluator, to_items(target), arguments)
    result = _call_collection(evaluator, target, name, arguments)
    if result is not NotImplemented:
        return result
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
