"""Applies changes to plain values. The result of a text edit must match this."""

from __future__ import annotations

from typing import Any

from transom.lint.findings import FixStep
from transom.lint.tree import Steps


def with_change(value: Any, change: FixStep) -> Any:
    """A copy with the change applied. Raises KeyError if the path does not exist."""
    whole = _copy(value)
    if change.verb == "drop":
        steps = without_dropped(whole, change.steps)
        parent = value_at_path(whole, steps[:-1])
        del parent[steps[-1]]
        return whole
    parent = whole
    for step in change.steps[:-1]:
        if isinstance(parent, dict) and parent.get(step) is None and isinstance(step, str):
            parent[step] = {}
        parent = parent[step]
    last = change.steps[-1]
    if change.verb == "set":
        parent[last] = change.value
    else:
        if parent.get(last) is None:
            parent[last] = []
        parent[last].append(change.value)
    return whole


def without_dropped(whole: Any, steps: Steps) -> Steps:
    """Removes a value and the maps that become empty, but never a list element."""
    while len(steps) > 1:
        parent = value_at_path(whole, steps[:-1])
        if (
            not isinstance(parent, dict)
            or set(parent) != {steps[-1]}
            or not isinstance(steps[-2], str)
        ):
            break
        if len(steps) == 2 or steps[-2] in ("spec", "metadata", "template"):
            break
        steps = steps[:-1]
    if steps[-1] not in value_at_path(whole, steps[:-1]) and not isinstance(steps[-1], int):
        raise KeyError(steps[-1])
    return steps


def value_at_path(whole: Any, steps: Steps) -> Any:
    for step in steps:
        whole = whole[step]
    return whole


def _copy(value: Any) -> Any:
    """Replaces aliases by copies, so that changing one does not change the others."""
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value
