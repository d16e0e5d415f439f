"""The names of .NET types: the one that a script writes, and the full one that GetType shows."""

from __future__ import annotations

from typing import Final

# What PowerShell and C# call a type -> its name in .NET, both without the namespace System.
_ACCELERATORS: Final = {
    "bool": "Boolean",
    "byte": "Byte",
    "char": "Char",
    "datetime": "DateTime",
    "decimal": "Decimal",
    "double": "Double",
    "float": "Single",
    "guid": "Guid",
    "hashtable": "Collections.Hashtable",
    "int": "Int32",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "long": "Int64",
    "object": "Object",
    "pscustomobject": "Management.Automation.PSCustomObject",
    "psobject": "Management.Automation.PSObject",
    "sbyte": "SByte",
    "scriptblock": "Management.Automation.ScriptBlock",
    "short": "Int16",
    "single": "Single",
    "string": "String",
    "timespan": "TimeSpan",
    "uint": "UInt32",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "ulong": "UInt64",
    "uri": "Uri",
    "ushort": "UInt16",
    "version": "Version",
}
_CLASSES: Final = {
    "collections.arraylist": "Collections.ArrayList",
    "collections.generic.dictionary": "Collections.Generic.Dictionary",
    "collections.generic.hashset": "Collections.Generic.HashSet",
    "collections.generic.list": "Collections.Generic.List",
    "collections.generic.queue": "Collections.Generic.Queue",
    "collections.generic.sorteddictionary": "Collections.Generic.SortedDictionary",
    "collections.generic.stack": "Collections.Generic.Stack",
    "collections.queue": "Collections.Queue",
    "collections.stack": "Collections.Stack",
}
_ASSEMBLY: Final = "mscorlib, Version=4.0.0.0, Culture=neutral, PublicKeyToken=b77a5c561934e089"
_VALUE_TYPES: Final = frozenset(
    (
        *(f"System.{one}Int{size}" for one in ("", "U") for size in (16, 32, 64)),
        "System.Boolean",
        "System.Byte",
        "System.Char",
        "System.DateTime",
        "System.Decimal",
        "System.Double",
        "System.Guid",
        "System.SByte",
        "System.Single",
        "System.TimeSpan",
    )
)


def type_arguments(kind: str) -> list[str]:
    """`list[string]` -> string; `dictionary[string,list[int]]` -> string, list[int]."""
    _, bracket, inside = kind.partition("[")
    if not bracket:
        return []
    out, depth, word = [], 0, ""
    for letter in inside.removesuffix("]"):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            out.append(word.strip())
            word = ""
        else:
            word += letter
    return [*out, word.strip()]


def dotnet_name(kind: str) -> str:
    """`int[]` -> System.Int32[]."""
    bare = kind.removeprefix("System.").removeprefix("system.")
    lower = bare.lower()
    if lower.endswith("[]"):
        return dotnet_name(bare[:-2]) + "[]"
    base, bracket, _ = lower.partition("[")
    known = _ACCELERATORS.get(base) or _CLASSES.get(base)
    if known is None:
        return f"System.{bare}"
    if not bracket:
        return f"System.{known}"
    given = type_arguments(bare)
    inner = ",".join(f"[{dotnet_name(one)}, {_ASSEMBLY}]" for one in given)
    return f"System.{known}`{len(given)}[{inner}]"


def short_type_name(full: str) -> str:
    return full.partition("[[")[0].rpartition(".")[2]


def base_type_name(full: str) -> str:
    if full.endswith("[]"):
        return "System.Array"
    return "System.ValueType" if full in _VALUE_TYPES else "System.Object"
