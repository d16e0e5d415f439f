"""Command line flags as Go programs take them: `--name=value`, `--name value`, `--switch`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

HELP_WIDTH = 100


class GoFlags:
    """The values of each flag, in order; flags may be repeated."""

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: str = "") -> str:
        """The last value."""
        return self._values[name][-1] if name in self._values else default

    def words(self, name: str) -> tuple[str, ...]:
        """All values of a flag that takes a list, separated by commas."""
        found = (word.strip() for value in self._values.get(name, ()) for word in value.split(","))
        return tuple(word for word in found if word)

    def names(self) -> tuple[str, ...]:
        return tuple(self._values)


def parse_go_flags(arguments: Sequence[str], switches: Sequence[str] = ()) -> GoFlags:
    """`switches` take a value only after an equals sign. Raises ValueError."""
    values: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name:
            raise ValueError(f"unexpected argument {word!r}")
        if not equals:
            if name in switches or not rest or rest[0].startswith("--"):
                value = "true"
            else:
                value = rest.pop(0)
        values.setdefault(name, []).append(value)
    return GoFlags(values)


def flags_help(program: str, purpose: str, flags: Mapping[str, str]) -> str:
    """The help text. envtest looks for flags in it, at the beginning of a line."""
    lines = [purpose, "", "Usage:", f"  {program} [flags]", "", "Flags:"]
    width = max(map(len, flags)) + 2
    for name, text in flags.items():
        head = f"      --{name:<{width}}"
        lines += textwrap.wrap(
            text, HELP_WIDTH, initial_indent=head, subsequent_indent=" " * len(head)
        )
    return "\n".join(lines) + "\n"
