"""The conditions that `wait` understands: those of `kubectl wait`, or a function of the object."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from transom.machinery.objects import Object

Predicate = Callable[[Object | None], bool]
"""Whether an object is as wanted; None stands for an object that does not exist."""

_JSON_PATH = re.compile(r"jsonpath=\{?\.?([^}=]+)\}?(?:=(.*))?", re.DOTALL)
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class WaitTimeout(AssertionError):
    """The condition was not met in time; the message has the last state of the object."""


def parse_wait_condition(text: str) -> Predicate:
    """`create`, `delete`, `condition=Ready`, `condition=Ready=False`,
    `jsonpath={.status.phase}=Running`.
    """
    if text == "delete":
        return lambda obj: obj is None
    if text == "create":
        return lambda obj: obj is not None
    if text.startswith("condition="):
        name, _, value = text.removeprefix("condition=").partition("=")
        return lambda obj: _condition(obj, name) == (value or "True").lower()
    match = _JSON_PATH.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a condition; use create, delete, condition=NAME[=VALUE] or "
            "jsonpath={.PATH}[=VALUE]"
        )
    steps, wanted = _STEP.findall(match[1]), match[2]

    def matches(obj: Object | None) -> bool:
        found = _value_at(obj, steps)
        return found is not None and (wanted is None or _text(found) == wanted)

    return matches


def _condition(obj: Object | None, name: str) -> str:
    """The status of a condition, in lower case; as in kubectl, an outdated one does not count."""
    if obj is None:
        return ""
    generation = obj["metadata"].get("generation", 0)
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type", "").lower() == name.lower():
            if condition.get("observedGeneration", generation) < generation:
                return ""
            return str(condition.get("status", "")).lower()
    return ""


def _value_at(obj: Object | None, steps: list[tuple[str, str]]) -> Any:
    value: Any = obj
    for name, index in steps:
        if name and isinstance(value, dict):
            value = value.get(name)
        elif index and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        else:
            return None
    return value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
