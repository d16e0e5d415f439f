r"""Wine's registry files as text: removes or adds sections without parsing anything else.

Wine reads a file from the beginning, and a later value replaces an earlier one. So a change is a
section at the end. Keys are in the usual notation (`Software\Microsoft`), values in Wine's
(`registry_text`, `registry_number`, `registry_expand_text`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def registry_text(value: str) -> str:
    return f'"{_escaped(value)}"'


def registry_expand_text(value: str) -> str:
    """With %VARIABLES% in it."""
    return f'str(2):"{_escaped(value)}"'


def registry_number(value: int) -> str:
    return f"dword:{value:08x}"


def registry_section(key: str, values: Mapping[str, str]) -> str:
    lines = (f'"{_escaped(name)}"={value}\n' for name, value in values.items())
    return f"\n[{_escaped(key)}] 0\n{''.join(lines)}"


def registry_sections(keys: Mapping[str, Mapping[str, str]]) -> str:
    return "".join(registry_section(key, values) for key, values in keys.items())


def without_sections(content: str, keys: Iterable[str]) -> str:
    """Removes all keys with this prefix; case-insensitive."""
    beginnings = tuple(f"[{_escaped(key)}".lower() for key in keys)
    blocks = content.split("\n\n")
    return "\n\n".join(block for block in blocks if not block.lower().startswith(beginnings))


def _escaped(value: str) -> str:
    plain = (
        value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    )
    return plain if plain.isascii() and plain.isprintable() else "".join(_unit(c) for c in plain)


def _unit(character: str) -> str:
    """Four hexadecimal digits for each non-ASCII UTF-16 code unit."""
    if 0x20 <= ord(character) < 0x7F:
        return character
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\x{data[i]:02x}{data[i + 1]:02x}" for i in range(0, len(data), 2))
