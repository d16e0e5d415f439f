"""Names of rights in access control lists: of icacls, and of .NET, which PowerShell shows."""

from __future__ import annotations

import re
from typing import Final

from transom.machines.security import (
    CONTAINER_INHERIT,
    FULL,
    INHERIT_ONLY,
    MODIFY,
    NO_PROPAGATE,
    OBJECT_INHERIT,
    READ,
    READ_EXECUTE,
    SYNCHRONIZE,
    WRITE,
    Ace,
)

_SIMPLE: Final = {
    "N": 0,
    "F": FULL,
    "M": MODIFY,
    "RX": READ_EXECUTE,
    "R": READ,
    "W": WRITE,
    "D": 0x110000,
}
_SPECIFIC: Final = {
    "DE": 0x10000,
    "RC": 0x20000,
    "WDAC": 0x40000,
    "WO": 0x80000,
    "S": 0x100000,
    "AS": 0x1000000,
    "MA": 0x2000000,
    "GR": READ,
    "GW": WRITE,
    "GE": READ_EXECUTE,
    "GA": FULL,
    "RD": 0x1,
    "WD": 0x2,
    "AD": 0x4,
    "REA": 0x8,
    "WEA": 0x10,
    "X": 0x20,
    "DC": 0x40,
    "RA": 0x80,
    "WA": 0x100,
}
_SHOWN: Final = (
    "DE",
    "RC",
    "WDAC",
    "WO",
    "S",
    "RD",
    "WD",
    "AD",
    "REA",
    "WEA",
    "X",
    "DC",
    "RA",
    "WA",
)
_FLAGS: Final = {
    "OI": OBJECT_INHERIT,
    "CI": CONTAINER_INHERIT,
    "IO": INHERIT_ONLY,
    "NP": NO_PROPAGATE,
}
_PART: Final = re.compile(r"\(([A-Za-z,]+)\)|([A-Za-z]+)")


def parse_rights(text: str) -> tuple[int, int]:
    """The mask and the inheritance flags of `(OI)(CI)(RX,W)`. Raises ValueError."""
    mask = flags = 0
    seen = False
    position = 0
    for match in _PART.finditer(text):
        if match.start() != position:
            raise ValueError(text)
        position = match.end()
        for word in (match[1] or match[2]).upper().split(","):
            if match[1] and word in _FLAGS:
                flags |= _FLAGS[word]
            elif word == "I" and match[1]:
                continue
            elif word in _SIMPLE or word in _SPECIFIC:
                mask |= _SIMPLE.get(word, _SPECIFIC.get(word, 0))
                seen = True
            else:
                raise ValueError(text)
    if position != len(text) or not seen:
        raise ValueError(text)
    return mask, flags


def show_entry(ace: Ace) -> str:
    """`(I)(OI)(CI)(F)`."""
    flags = "(I)" if ace.inherited else ""
    flags += "".join(f"({name})" for name, bit in _FLAGS.items() if ace.flags & bit)
    if ace.deny and ace.mask == FULL:
        return flags + "(N)"
    mask = ace.mask
    simple = next((name for name, bits in _SIMPLE.items() if bits == mask), None)
    if ace.deny and simple is None:
        simple = next(
            (name for name, bits in _SIMPLE.items() if bits and bits & ~SYNCHRONIZE == mask), None
        )
    shown = simple or ",".join(name for name in _SHOWN if mask & _SPECIFIC[name])
    return f"{flags}{'(DENY)' if ace.deny else ''}({shown})"


# ---- .NET ----

_NET: Final = {
    "FullControl": FULL,
    "Modify": MODIFY & ~SYNCHRONIZE,
    "ReadAndExecute": READ_EXECUTE & ~SYNCHRONIZE,
    "Read": READ & ~SYNCHRONIZE,
    "Write": WRITE & ~SYNCHRONIZE,
    "Delete": 0x10000,
    "ReadPermissions": 0x20000,
    "ChangePermissions": 0x40000,
    "TakeOwnership": 0x80000,
    "Synchronize": SYNCHRONIZE,
    "ListDirectory": 0x1,
    "ReadData": 0x1,
    "CreateFiles": 0x2,
    "WriteData": 0x2,
    "AppendData": 0x4,
    "CreateDirectories": 0x4,
    "ExecuteFile": 0x20,
    "Traverse": 0x20,
    "DeleteSubdirectoriesAndFiles": 0x40,
    "ReadAttributes": 0x80,
    "WriteAttributes": 0x100,
    "ReadExtendedAttributes": 0x8,
    "WriteExtendedAttributes": 0x10,
}
_INHERITANCE: Final = {
    "None": 0,
    "ContainerInherit": CONTAINER_INHERIT,
    "ObjectInherit": OBJECT_INHERIT,
}
_PROPAGATION: Final = {"None": 0, "InheritOnly": INHERIT_ONLY, "NoPropagateInherit": NO_PROPAGATE}


def _named(table: dict[str, int], text: str) -> int:
    known = {name.lower(): bits for name, bits in table.items()}
    total = 0
    for word in text.split(","):
        total |= known[word.strip().lower()]
    return total


def parse_net_rights(text: str) -> int:
    """Raises KeyError."""
    return _named(_NET, text) | SYNCHRONIZE


def parse_net_flags(inheritance: str, propagation: str) -> int:
    return _named(_INHERITANCE, inheritance) | _named(_PROPAGATION, propagation)


def net_rights(mask: int) -> str:
    for name in ("FullControl", "Modify", "ReadAndExecute", "Read", "Write"):
        if mask & ~SYNCHRONIZE == _NET[name] & ~SYNCHRONIZE:
            return (
                name if name == "FullControl" or not mask & SYNCHRONIZE else f"{name}, Synchronize"
            )
    names = [name for name, bits in _NET.items() if bits.bit_count() == 1 and mask & bits]
    seen: dict[int, str] = {}
    for name in names:
        seen.setdefault(_NET[name], name)
    return ", ".join(seen.values()) or "0"


def net_flags(flags: int) -> tuple[str, str]:
    inheritance = [name for name, bit in _INHERITANCE.items() if bit and flags & bit]
    propagation = [name for name, bit in _PROPAGATION.items() if bit and flags & bit]
    return ", ".join(inheritance) or "None", ", ".join(propagation) or "None"
