"""The switches of tools that take `/switch`: which ones a tool performs, and what it prints about
all others. A switch that is not performed is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from transom.kit.named_tuple import NamedTuple

Refusal = tuple[str, int]
"""What the tool prints, and its exit code."""


class ToolSwitches(NamedTuple):
    performed: frozenset[str]  # in lower case, without the slash and the value
    refuse: Callable[[str, int], Refusal]
    """Takes the word and its position on the command line."""
    with_value: frozenset[str] = frozenset()  # the next word is their value
    dashes: bool = False  # a dash may replace the slash


def _switches(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _invalid_option(tool: str, code: int = 1) -> Callable[[str, int], Refusal]:
    def refuse(word: str, _position: int) -> Refusal:
        return (
            f"ERROR: Invalid argument/option - '{word}'.\r\nType \"{tool} /?\" for usage.",
            code,
        )

    return refuse


SWITCHES: Final[Mapping[str, ToolSwitches]] = {
    "find": ToolSwitches(_switches("c i n v"), lambda _word, _at: ("FIND: Invalid switch", 2)),
    "robocopy": ToolSwitches(
        _switches("e s mir purge mov move l xf xd xo log njh njs nfl ndl nc ns np r w mt z"),
        lambda word, at: (f'ERROR : Invalid Parameter #{at} : "{word}"', 16),
    ),
    "taskkill": ToolSwitches(
        _switches("f t pid im fi s u p"),
        _invalid_option("TASKKILL"),
        _switches("pid im fi s u p"),
        dashes=True,
    ),
    "tasklist": ToolSwitches(
        _switches("s u p m svc v fi fo nh"),
        _invalid_option("TASKLIST"),
        _switches("s u p fi fo"),
        dashes=True,
    ),
    "where": ToolSwitches(
        _switches("r q f t"),
        lambda word, _at: (
            f"ERROR: Invalid argument or option - '{word}'.\r\nType \"WHERE /?\" for usage help.",
            2,
        ),
        _switches("r"),
    ),
    "tree": ToolSwitches(
        _switches("f a"), lambda word, _at: (f"Invalid switch - {word.upper()}", 1)
    ),
    "xcopy": ToolSwitches(
        _switches("s e i q f l t u d h r y c v z j k exclude"),
        lambda word, _at: (f"Invalid parameter - {word}", 4),
    ),
}


def refused_switch(tool: str, arguments: Sequence[str]) -> Refusal | None:
    """What the tool prints about the first switch that it does not perform; None if it performs
    all.
    """
    known = SWITCHES.get(tool)
    if known is None:
        return None
    is_value = False
    for position, word in enumerate(arguments, 1):
        if is_value or not word.startswith(("/", "-") if known.dashes else "/"):
            is_value = False
            continue
        name = word[1:].partition(":")[0].lower()
        if name not in known.performed:
            return known.refuse(word, position)
        is_value = name in known.with_value
    return None
