"""Commands that Windows takes for the name of one file: whole command lines as one word, and what only cmd knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene
from transom.lint.tree import Steps
from transom.windows.podchecks import inner, listed
from transom.windows.records import Limit

_LINE: Final = re.compile(r"(?i)^(powershell|pwsh|cmd)(\.exe)?\s")
_OF_CMD: Final = frozenset(
    ("assoc", "call", "cd", "cls", "copy", "date", "del", "dir", "echo", "erase", "exit", "for", "if", "md", "mkdir", "move",
     "pushd", "rd", "ren", "rmdir", "set", "time", "type", "ver", "vol")
)
_CMDLET: Final = re.compile(r"^(Get|Set|Test|Invoke|Start|Stop|New|Remove|Write|Restart|Add|Out)-[A-Z][A-Za-z]+$")
_HANDLERS: Final = (
    ("livenessProbe",), ("readinessProbe",), ("startupProbe",), ("lifecycle", "postStart"), ("lifecycle", "preStop"),
)


def find(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        for steps, container in workload.containers():
            for at, word in _first_words(steps, container):
                message = _problem(word)
                if message:
                    yield Found(workload.obj, at, message)


def _first_words(steps: Steps, container: Any) -> Iterator[tuple[Steps, str]]:
    places = [("command",), *((*handler, "exec", "command") for handler in _HANDLERS)]
    for place in places:
        command = listed(inner(container, *place))
        if command and isinstance(command[0], str):
            yield (*steps, *place, 0), command[0]


def _problem(word: str) -> str:
    if _LINE.match(word):
        return f"Windows looks for a program named {word!r}: each word is an element of its own"
    if word.lower() in _OF_CMD:
        return f"{word} is a command of cmd, not a program"
    if _CMDLET.match(word):
        return f"{word} is a command of PowerShell, not a program"
    return ""


RULE = Rule("one-word-command", find, Limit(
    id="WIN-LINT-010",
    title="The first word of a command is the name of a program",
    statement="Nothing splits the words of a command, and no shell is asked: Windows looks for a file of that name.",
    effect="fails",
    remedy='Write ["cmd", "/c", "dir"] or ["powershell", "-Command", "Get-Date"].',
    checklist=("API-08",),
    severity="error",
    reason="Error",
    message="The system cannot find the file specified. (0x2)",
))
