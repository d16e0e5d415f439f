"""Edits of YAML text by the places of its nodes: comments, quotes and layout of everything else stay as they are.

An edit that cannot be made with confidence is not made (None). Whoever applies edits reads the text again and compares: what
is here may be clever, but nobody has to trust it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import yaml

from transom.lint.findings import Change
from transom.lint.fixes.values import dropped
from transom.lint.tree import Document, Steps, key_text, locate

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*")
_WORDS: Final = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


class Edit(NamedTuple):
    start: int
    end: int
    text: str


def edit(document: Document, steps: Steps, change: Change) -> Edit | None:
    """The edit of a change; `steps` lead from the root of the document, where the change's lead from the object."""
    whole = steps + change.steps
    if change.verb == "drop":
        try:
            whole = dropped(document.value, whole)
        except (KeyError, IndexError, TypeError):
            return None
        return _drop(document, whole)
    if change.verb == "set":
        return _set(document, whole, change.value)
    return _add(document, whole, change.value)


# --- taking away --------------------------------------------------------------------------------------------------------------

def _drop(document: Document, steps: Steps) -> Edit | None:
    place = locate(document.node, steps)
    parent = place.parent
    if place.found < len(steps) or place.key is None or not isinstance(parent, yaml.MappingNode):
        return None
    index = next((i for i, (key, _) in enumerate(parent.value) if key is place.key), None)
    if index is None:
        return None  # it comes from a merged map
    if parent.flow_style:
        return _drop_from_flow(document, parent, index)
    if len(parent.value) == 1:
        return None  # an empty map would need other words
    return _drop_lines(document, parent, index)


def _drop_from_flow(document: Document, parent: yaml.MappingNode, index: int) -> Edit:
    start = document.span(parent.value[index][0]).start
    if index + 1 < len(parent.value):
        return Edit(start, document.span(parent.value[index + 1][0]).start, "")
    if index > 0:
        return Edit(document.span(parent.value[index - 1][1]).end, document.span(parent.value[index][1]).end, "")
    return Edit(start, document.span(parent.value[index][1]).end, "")


def _drop_lines(document: Document, parent: yaml.MappingNode, index: int) -> Edit | None:
    text = document.text
    key, value = parent.value[index]
    start = document.span(key).start
    line, column = text.place(start)
    last = last_line(document, key, value)
    before = text.line(line)[:column - 1]
    if not before.strip():
        return Edit(text.start(line), text.start(last + 1), "")
    if before.strip(" -"):
        return None
    # The first key of a list's element: the next one takes its place behind the dash.
    following = document.span(parent.value[index + 1][0]).start if index + 1 < len(parent.value) else None
    if following is None:
        return None
    between = text.text[text.start(last + 1):following]
    return Edit(start, following, "") if not between.strip() else None


def last_line(document: Document, key: yaml.Node, value: yaml.Node) -> int:
    """The last line of a value; what the parser counts to it behind that are comments and empty lines."""
    text = document.text
    end = _real_end(document, value) if not _empty(value) else document.span(key).end
    return text.place(max(document.span(key).start, end - 1))[0]


def _empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.start_mark.index == node.end_mark.index


def _real_end(document: Document, node: yaml.Node) -> int:
    if not isinstance(node, yaml.CollectionNode) or node.flow_style:
        end = document.span(node).end
        # A block scalar ends where the next thing begins, with its last line break.
        return end - 1 if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") else end
    last = node.value[-1]
    if isinstance(node, yaml.MappingNode):
        return document.span(last[0]).end + 1 if _empty(last[1]) else _real_end(document, last[1])
    return document.span(last).start if _empty(last) else _real_end(document, last)


# --- adding -------------------------------------------------------------------------------------------------------------------

def _set(document: Document, steps: Steps, value: Any) -> Edit | None:
    place = locate(document.node, steps)
    if place.found == len(steps):
        if not isinstance(place.value, yaml.ScalarNode) or place.value.style in ("|", ">"):
            return None
        span = document.span(place.value)
        if span.end == span.start:
            return None
        return Edit(span.start, span.end, _scalar(value, place.value.style == '"'))
    for step in reversed(steps[place.found + 1:]):
        if not isinstance(step, str):
            return None
        value = {step: value}
    name = steps[place.found]
    if not isinstance(name, str) or not isinstance(place.value, yaml.MappingNode):
        return None
    return _insert(document, place.value, name, value)


def _add(document: Document, steps: Steps, value: Any) -> Edit | None:
    place = locate(document.node, steps)
    if place.found < len(steps):
        return _set(document, steps, [value])
    node = place.value
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        return None
    if node.flow_style:
        end = document.span(node.value[-1]).end
        return Edit(end, end, f", {_flow(value, _is_json(document))}")
    text = document.text
    dash = document.span(node).start
    indent = text.place(dash)[1] - 1
    if text.text[dash:dash + 1] != "-":
        return None
    line = text.place(max(dash, _real_end(document, node) - 1))[0]
    return _after_line(document, line, _Layout(2, 0).item(value, indent))


def _insert(document: Document, node: yaml.MappingNode, name: str, value: Any) -> Edit | None:
    """A new key in a map: before the containers in a pod's spec, else as the last."""
    if node.flow_style:
        quoted = _is_json(document)
        entry = f"{_scalar(name, quoted)}: {_flow(value, quoted)}"
        if not node.value:
            start = document.span(node).start + 1
            return Edit(start, start, entry)
        end = document.span(node.value[-1][1]).end
        return Edit(end, end, f", {entry}")
    if not node.value:
        return None
    text = document.text
    indent = text.place(document.span(node.value[0][0]).start)[1] - 1
    lines = _layout_of(document, node, indent).entry(name, value, indent)
    for i, (key, _) in enumerate(node.value):
        if key_text(key) in ("containers", "initContainers") and (i or not _behind_dash(document, key)):
            return _before_line(document, text.place(document.span(key).start)[0], lines, indent)
    last_key, last_value = node.value[-1]
    return _after_line(document, last_line(document, last_key, last_value), lines)


def _behind_dash(document: Document, key: yaml.Node) -> bool:
    line, column = document.text.place(document.span(key).start)
    return bool(document.text.line(line)[:column - 1].strip())


def _before_line(document: Document, line: int, lines: list[str], indent: int) -> Edit:
    """Above a line, and above the comments that belong to it."""
    text = document.text
    while line > 1 and text.line(line - 1).startswith(" " * indent + "#"):
        line -= 1
    at = text.start(line)
    return Edit(at, at, "".join(f"{one}{_break(document)}" for one in lines))


def _after_line(document: Document, line: int, lines: list[str]) -> Edit:
    text, line_end = document.text, _break(document)
    at = text.start(line + 1)
    body = line_end.join(lines)
    if at > 0 and text.text[at - 1:at] != "\n":  # the last line of the text has no end
        return Edit(at, at, line_end + body)
    return Edit(at, at, body + line_end)


def _break(document: Document) -> str:
    return "\r\n" if "\r\n" in document.text.text else "\n"


def _is_json(document: Document) -> bool:
    root = document.node
    return isinstance(root, yaml.MappingNode) and bool(root.flow_style) and all(key.style == '"' for key, _ in root.value)


# --- writing values -----------------------------------------------------------------------------------------------------------

class _Layout(NamedTuple):
    """How far in its neighbours put maps and lists."""

    maps: int
    lists: int

    def entry(self, name: str, value: Any, indent: int) -> list[str]:
        space = " " * indent
        if isinstance(value, Mapping):
            inner = [line for key, one in value.items() for line in self.entry(key, one, indent + self.maps)]
            return [f"{space}{_scalar(name)}:", *inner]
        if isinstance(value, list):
            return [f"{space}{_scalar(name)}:", *(line for one in value for line in self.item(one, indent + self.lists))]
        return [f"{space}{_scalar(name)}: {_scalar(value)}"]

    def item(self, value: Any, indent: int) -> list[str]:
        if not isinstance(value, Mapping):
            return [f"{' ' * indent}- {_scalar(value)}"]
        lines = [line for key, one in value.items() for line in self.entry(key, one, indent + 2)]
        return [f"{' ' * indent}- {lines[0].lstrip()}", *lines[1:]]


def _layout_of(document: Document, node: yaml.MappingNode, indent: int) -> _Layout:
    maps, lists = [2], [0]
    for _, value in node.value:
        if isinstance(value, yaml.CollectionNode) and not value.flow_style and value.value:
            deeper = document.text.place(document.span(value).start)[1] - 1 - indent
            (maps if isinstance(value, yaml.MappingNode) else lists).append(deeper)
    return _Layout(max(1, maps[-1]), max(0, lists[-1]))


def _flow(value: Any, quoted: bool) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key, quoted)}: {_flow(one, quoted)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(one, quoted) for one in value) + "]"
    return _scalar(value, quoted)


def _scalar(value: Any, quoted: bool = False) -> str:
    if not quoted and isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)
