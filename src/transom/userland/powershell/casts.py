"""Casts: `[int]$value`, and the conversions of typed variables, parameters and collections."""

from __future__ import annotations

import math
from calendar import timegm
from collections.abc import Callable
from time import strptime
from typing import Any, Final
from urllib.parse import urlsplit

from transom.userland.powershell import cmdlets_acl, dotnet_objects, statics
from transom.userland.powershell.dotnet_collections import (
    create_collection,
    is_collection,
    typed_array,
)
from transom.userland.powershell.dotnet_names import dotnet_name
from transom.userland.powershell.values import (
    Char,
    DateTime,
    Hashtable,
    OrderedDictionary,
    PowerShellError,
    PsObject,
    TypedArray,
    to_bool,
    to_items,
    to_number,
    to_text,
    type_name_of,
)
from transom.userland.powershell.xml_objects import parse_xml


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


def cast_value(name: str, value: Any) -> Any:
    kind = name.lower().removeprefix("system.")
    if kind.endswith("[]"):
        inner = kind[:-2]
        if inner in ("byte", "char") and isinstance(value, str):
            return typed_array(inner, [Char(c) if inner == "char" else ord(c) for c in value])
        if isinstance(value, TypedArray) and value.kind == dotnet_name(kind):
            return value
        return typed_array(inner, [cast_value(inner, one) for one in to_items(value)])
    if is_collection(kind):
        made = create_collection(kind, to_items(value), convert_value)
        return value if type_name_of(value) == made.kind else made
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


def convert_value(name: str, value: Any) -> Any:
    """Like a cast; values of types that are not known here stay as they are."""
    kind = name.lower().removeprefix("system.")
    return cast_value(kind, value) if is_castable(kind) else value


_SYSTEM_TYPES: Final = ("activator", "appdomain", "array", "attribute", "buffer", "console", "gc")


def is_castable(kind: str) -> bool:
    """Whether the type (lower case, without `System.`) is one that values are cast to."""
    bare = kind.partition("[")[0]
    return (
        bare in _CASTS
        or bare in _KEPT
        or is_collection(bare)
        or bare in _SYSTEM_TYPES
        or kind.endswith("exception")
    )


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
    "ordered": lambda value: OrderedDictionary(value) if isinstance(value, Hashtable) else value,
    "version": _unless_object(dotnet_objects.parse_version_object),
    **dict.fromkeys(("ipaddress", "net.ipaddress"), _unless_object(dotnet_objects.address_object)),
    "security.principal.securityidentifier": _unless_object(cmdlets_acl.identifier_object),
    "security.principal.ntaccount": _unless_object(cmdlets_acl.account_object),
    "timespan": _unless_object(lambda value: statics.parse_time_span(to_text(value))),
    "security.principal.windowsprincipal": _cast_principal,
    "void": lambda value: None,
    "pscustomobject": _cast_custom_object,
}
