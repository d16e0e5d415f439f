"""Commands that Windows interprets as one file name: whole command lines as one word, and built-in
commands of cmd.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.lint.tree import Steps
from transom.windows.podchecks import inner_pod, list_or_empty
from transom.windows.records import WindowsLimit

_LINE: Final = re.compile(r"(?i)^(powershell|pwsh|cmd)(\.exe)?\s")
_OF_CMD: Final = frozenset(
    (
        "assoc",
        "call",
        "cd",
        "cls",
        "copy",
        "date",
        "del",
        "dir",
        "echo",
        "erase",
        "exit",
        "for",
        "if",
        "md",
        "mkdir",
        "move",
        "pushd",
        "rd",
        "ren",
        "rmdir",
        "set",
        "time",
        "type",
        "ver",
        "vol",
    )
)
_CMDLET: Final = re.compile(
    r"^(Get|Set|Test|Invoke|Start|Stop|New|Remove|Write|Restart|Add|Out)-[A-Z][A-Za-z]+$"
)
_HANDLERS: Final = (
    ("livenessProbe",),
    ("readinessProbe",),
    ("startupProbe",),
    ("lifecycle", "postStart"),
    ("lifecycle", "preStop"),
)


def find_one_word(context: LintContext) -> Iterator[RuleMatch]:
    for workload in context.windows:
        for steps, container in workload.containers():
            for at, word in _first_words(steps, container):
                message = _problem(word)
                if message:
                    yield RuleMatch(workload.obj, at, message)


def _first_words(steps: Steps, container: Any) -> Iterator[tuple[Steps, str]]:
    places = [("command",), *((*handler, "exec", "command") for handler in _HANDLERS)]
    for place in places:
        command = list_or_empty(inner_pod(container, *place))
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


RULE = LintRule(
    "one-word-command",
    find_one_word,
    WindowsLimit(
        id="WIN-LINT-010",
        title="The first word of a command is the name of a program",
        statement=(
            "Nothing splits the words of a command, and no shell is asked: Windows looks for a "
            "file of that name."
        ),
        effect="fails",
        remedy='Write ["cmd", "/c", "dir"] or ["powershell", "-Command", "Get-Date"].',
        checklist=("API-08",),
        severity="error",
        reason="Error",
        message="The system cannot find the file specified. (0x2)",
    ),
)
