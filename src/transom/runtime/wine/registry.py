r"""Wine's registry files as text: sections are left out or added; nothing else is understood.

Wine reads a file from its beginning, and a value that comes again replaces the earlier one. So a change is a section at the
end. A key is written as people write it (`Software\Microsoft`), a value as Wine writes it (`text`, `number`, `expanded`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def text(value: str) -> str:
    return f'"{_escaped(value)}"'


def expanded(value: str) -> str:
    """With %VARIABLES% in it."""
    return f'str(2):"{_escaped(value)}"'


def number(value: int) -> str:
    return f"dword:{value:08x}"


def section(key: str, values: Mapping[str, str]) -> str:
    lines = (f'"{_escaped(name)}"={value}\n' for name, value in values.items())
    return f"\n[{_escaped(key)}] 0\n{''.join(lines)}"


def sections(keys: Mapping[str, Mapping[str, str]]) -> str:
    return "".join(section(key, values) for key, values in keys.items())


def without(content: str, keys: Iterable[str]) -> str:
    """Leaves out all keys that begin so; case does not count."""
    beginnings = tuple(f"[{_escaped(key)}".lower() for key in keys)
    blocks = content.split("\n\n")
    return "\n\n".join(block for block in blocks if not block.lower().startswith(beginnings))


def _escaped(value: str) -> str:
    plain = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return plain if plain.isascii() and plain.isprintable() else "".join(_unit(c) for c in plain)


def _unit(character: str) -> str:
    """Four hexadecimal digits for each unit of UTF-16 that is not ASCII."""
    if 0x20 <= ord(character) < 0x7F:
        return character
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\x{data[i]:02x}{data[i + 1]:02x}" for i in range(0, len(data), 2))
