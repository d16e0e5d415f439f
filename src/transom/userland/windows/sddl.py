"""Access control lists in the security descriptor definition language."""

from __future__ import annotations

import re
from typing import Final

from transom.machines.security import Ace, SecurityDescriptor

_ALIASES: Final = {
    "S-1-5-18": "SY",
    "S-1-5-32-544": "BA",
    "S-1-5-32-545": "BU",
    "S-1-1-0": "WD",
    "S-1-5-11": "AU",
    "S-1-3-0": "CO",
}
_MASKS: Final = {0x1F01FF: "FA", 0x1200A9: "0x1200a9", 0x120089: "FR"}
_SIDS: Final = {alias: sid for sid, alias in _ALIASES.items()}
_NAMED_MASKS: Final = {"FA": 0x1F01FF, "FR": 0x120089}
_FLAGS: Final = ((1, "OI"), (2, "CI"), (4, "NP"), (8, "IO"))
_DACL: Final = re.compile(r"D:(P?)(?:AR)?(?:AI)?((?:\([^)]*\))*)(?:S:.*)?")
_FIELDS: Final = 6


def sid_text(sid: str) -> str:
    return _ALIASES.get(sid, sid)


def dacl_text(descriptor: SecurityDescriptor) -> str:
    """`D:AI(A;OICIID;FA;;;SY)`"""
    return f"D:{'PAI' if descriptor.protected else 'AI'}" + "".join(
        _entry(ace) for ace in descriptor.aces
    )


def _entry(ace: Ace) -> str:
    flags = "".join(name for bit, name in _FLAGS if ace.flags & bit)
    flags += "ID" if ace.inherited else ""
    mask = _MASKS.get(ace.mask, f"0x{ace.mask:x}")
    return f"({'D' if ace.deny else 'A'};{flags};{mask};;;{sid_text(ace.sid)})"


def with_dacl(descriptor: SecurityDescriptor, text: str) -> SecurityDescriptor:
    """The descriptor with another list. Raises ValueError."""
    match = _DACL.fullmatch(text)
    if match is None:
        raise ValueError(text)
    aces = tuple(_ace(entry) for entry in re.findall(r"\(([^)]*)\)", match[2]))
    return descriptor._replace(aces=aces, protected=bool(match[1]))


def _ace(text: str) -> Ace:
    fields = text.split(";")
    if len(fields) != _FIELDS:
        raise ValueError(text)
    kind, flags, mask, _, _, who = fields
    bits = sum(bit for bit, name in _FLAGS if name in flags)
    number = _NAMED_MASKS[mask] if mask in _NAMED_MASKS else int(mask, 16)
    return Ace(_SIDS.get(who, who), number, kind == "D", bits, "ID" in flags)
