"""Get-Member: the properties and methods of objects."""

from __future__ import annotations

from typing import Any, Final

from transom.kit.named_tuple import NamedTuple
from transom.userland.powershell import members
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import (
    DateTime,
    Hashtable,
    PsObject,
    to_items,
    to_text,
    type_name_of,
)

_CUSTOM: Final = "System.Management.Automation.PSCustomObject"


class MemberRow(NamedTuple):
    kind: str  # "Method", "Property", "NoteProperty"
    name: str
    definition: str


def _methods(*definitions: str) -> tuple[MemberRow, ...]:
    return tuple(
        MemberRow("Method", text.partition("(")[0].rpartition(" ")[2], text) for text in definitions
    )


def _properties(*definitions: str) -> tuple[MemberRow, ...]:
    return tuple(MemberRow("Property", text.split()[1], text) for text in definitions)


_COMMON: Final = _methods(
    "bool Equals(System.Object obj)", "int GetHashCode()", "type GetType()", "string ToString()"
)
_STRING: Final = (
    *_methods(
        "int CompareTo(System.Object value), int CompareTo(string strB)",
        "bool Contains(string value)",
        "bool EndsWith(string value)",
        "bool Equals(System.Object obj), bool Equals(string value)",
        "int GetHashCode()",
        "type GetType()",
        "int IndexOf(char value), int IndexOf(string value)",
        "string Insert(int startIndex, string value)",
        "int LastIndexOf(char value), int LastIndexOf(string value)",
        "string PadLeft(int totalWidth), string PadLeft(int totalWidth, char paddingChar)",
        "string PadRight(int totalWidth), string PadRight(int totalWidth, char paddingChar)",
        "string Remove(int startIndex, int count), string Remove(int startIndex)",
        "string Replace(char oldChar, char newChar), string Replace(string oldValue, "
        "string newValue)",
        "string[] Split(Params char[] separator)",
        "bool StartsWith(string value)",
        "string Substring(int startIndex), string Substring(int startIndex, int length)",
        "char[] ToCharArray()",
        "string ToLower()",
        "string ToLowerInvariant()",
        "string ToString()",
        "string ToUpper()",
        "string ToUpperInvariant()",
        "string Trim(Params char[] trimChars), string Trim()",
        "string TrimEnd(Params char[] trimChars)",
        "string TrimStart(Params char[] trimChars)",
    ),
    MemberRow("ParameterizedProperty", "Chars", "char Chars(int index) {get;}"),
    *_properties("int Length {get;}"),
)
_DATE: Final = (
    *_COMMON,
    *_methods(
        "datetime Add(timespan value)",
        "datetime AddDays(double value)",
        "datetime AddHours(double value)",
        "datetime AddMilliseconds(double value)",
        "datetime AddMinutes(double value)",
        "datetime AddMonths(int months)",
        "datetime AddSeconds(double value)",
        "datetime AddYears(int value)",
        "timespan Subtract(datetime value)",
        "datetime ToLocalTime()",
        "string ToLongDateString()",
        "string ToLongTimeString()",
        "string ToShortDateString()",
        "string ToShortTimeString()",
        "datetime ToUniversalTime()",
    ),
    *_properties(
        "datetime Date {get;}",
        "int Day {get;}",
        "System.DayOfWeek DayOfWeek {get;}",
        "int DayOfYear {get;}",
        "int Hour {get;}",
        "int Millisecond {get;}",
        "int Minute {get;}",
        "int Month {get;}",
        "int Second {get;}",
        "long Ticks {get;}",
        "timespan TimeOfDay {get;}",
        "int Year {get;}",
    ),
)
_HASHTABLE: Final = (
    *_COMMON,
    *_methods(
        "void Add(System.Object key, System.Object value)",
        "void Clear()",
        "bool Contains(System.Object key)",
        "bool ContainsKey(System.Object key)",
        "bool ContainsValue(System.Object value)",
        "System.Collections.IDictionaryEnumerator GetEnumerator()",
        "void Remove(System.Object key)",
    ),
    MemberRow("ParameterizedProperty", "Item", "System.Object Item(System.Object key) {get;set;}"),
    *_properties(
        "int Count {get;}",
        "System.Collections.ICollection Keys {get;}",
        "System.Collections.ICollection Values {get;}",
    ),
)
_LIST: Final = (
    *_COMMON,
    *_methods(
        "int Add(System.Object value)",
        "void Clear()",
        "bool Contains(System.Object value)",
        "System.Collections.IEnumerator GetEnumerator()",
        "int IndexOf(System.Object value)",
        "void Remove(System.Object value)",
    ),
    MemberRow("AliasProperty", "Count", "Count = Length"),
    *_properties("int Length {get;}", "long LongLength {get;}"),
)
_SHORT_NAMES: Final = {
    "System.String": "string",
    "System.Int32": "int",
    "System.Boolean": "bool",
    "System.Double": "double",
    "System.Char": "char",
    "System.DateTime": "datetime",
    "System.Collections.Hashtable": "hashtable",
    "System.Byte[]": "byte[]",
}


def _short_name(value: Any) -> str:
    name = type_name_of(value)
    return _SHORT_NAMES.get(name, name)


def _object_members(value: PsObject) -> list[MemberRow]:
    custom = value.kind.endswith(_CUSTOM)
    found = [*_COMMON]
    found += [
        MemberRow("Method", method.capitalize(), f"System.Object {method.capitalize()}()")
        for kind, method in members.METHODS
        if kind == value.kind
    ]
    for name, content in value.properties.items():
        if custom:
            shown = "null" if content is None else to_text(content)
            found.append(
                MemberRow("NoteProperty", name, f"{_short_name(content)} {name}={shown}".strip())
            )
        else:
            found.append(MemberRow("Property", name, f"{_short_name(content)} {name} {{get;set;}}"))
    return found


def _members_of(value: Any) -> list[MemberRow]:
    if isinstance(value, PsObject):
        return _object_members(value)
    if isinstance(value, str):
        return list(_STRING)
    if isinstance(value, DateTime):
        return list(_DATE)
    if isinstance(value, Hashtable):
        return list(_HASHTABLE)
    if isinstance(value, list | tuple | range | bytes):
        return list(_LIST)
    return list(_COMMON)


_GROUPS: Final = {
    "properties": ("Property", "NoteProperty", "AliasProperty", "ParameterizedProperty"),
    "methods": ("Method",),
    "all": ("Property", "NoteProperty", "AliasProperty", "ParameterizedProperty", "Method"),
}


def _wanted_kinds(call: CmdletCall) -> set[str] | None:
    if not call.has("MemberType"):
        return None
    names = [
        part.strip() for one in to_items(call.get("MemberType")) for part in to_text(one).split(",")
    ]
    return {kind.lower() for name in names for kind in _GROUPS.get(name.lower(), (name,))}


def _get_member(call: CmdletCall) -> None:
    given = call.input
    values = given if given is not None else [call.get("InputObject")]
    values = [value for value in values if value is not None]
    if not values:
        call.fail(
            "You must specify an object for the Get-Member cmdlet.",
            "CloseError: (:) [Get-Member], InvalidOperationException",
            "NoObjectInGetMember",
        )
        return
    kinds = _wanted_kinds(call)
    names = [to_text(one) for one in to_items(call.get("Name"))]
    shown = set[str]()
    for value in values:
        type_name = type_name_of(value)
        if type_name in shown:
            continue
        shown.add(type_name)
        for member in sorted(_members_of(value), key=lambda one: (one.kind, one.name.lower())):
            if kinds is not None and member.kind.lower() not in kinds:
                continue
            if names and not any(matches_wildcard(member.name, one) for one in names):
                continue
            call.emit(
                PsObject(
                    "Microsoft.PowerShell.Commands.MemberDefinition",
                    {
                        "TypeName": type_name,
                        "Name": member.name,
                        "MemberType": member.kind,
                        "Definition": member.definition,
                    },
                    member.definition,
                )
            )


CMDLETS = (
    cmdlet_row("Get-Member", _get_member, "Name*", "Static Force", "InputObject MemberType View"),
)
