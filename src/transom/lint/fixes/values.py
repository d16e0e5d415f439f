"""What changes mean for plain values: the measure that edits of the text are held to."""

from __future__ import annotations

from typing import Any

from transom.lint.findings import Change
from transom.lint.tree import Steps


def changed(value: Any, change: Change) -> Any:
    """A copy with the change made. Raises KeyError when there is nothing to change."""
    whole = _copy(value)
    if change.verb == "drop":
        steps = dropped(whole, change.steps)
        parent = inside(whole, steps[:-1])
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


def dropped(whole: Any, steps: Steps) -> Steps:
    """What goes when a value goes: with it the maps that it leaves empty, but never an element of a list."""
    while len(steps) > 1:
        parent = inside(whole, steps[:-1])
        if not isinstance(parent, dict) or set(parent) != {steps[-1]} or not isinstance(steps[-2], str):
            break
        if len(steps) == 2 or steps[-2] in ("spec", "metadata", "template"):
            break
        steps = steps[:-1]
    if steps[-1] not in inside(whole, steps[:-1]) and not isinstance(steps[-1], int):
        raise KeyError(steps[-1])
    return steps


def inside(whole: Any, steps: Steps) -> Any:
    for step in steps:
        whole = whole[step]
    return whole


def _copy(value: Any) -> Any:
    """Aliases become values of their own: a change of one must not change the others unseen."""
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value
