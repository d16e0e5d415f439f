"""Edits YAML text by the positions of its nodes; comments, quotes and the layout of everything else
are preserved.

Returns None for an edit that is not safe. The caller parses the edited text and compares the
result, so every edit is verified.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import yaml

from transom.lint.findings import FixStep
from transom.lint.fixes.values import without_dropped
from transom.lint.tree import Steps, YamlDocument, key_text, locate_path

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*")
_WORDS: Final = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


class TextEdit(NamedTuple):
    start: int
    end: int
    text: str


def make_edit(document: YamlDocument, steps: Steps, change: FixStep) -> TextEdit | None:
    """The edit for a change; `steps` start at the root of the document, the change's path at the
    object.
    """
    whole = steps + change.steps
    if change.verb == "drop":
        try:
            whole = without_dropped(document.value, whole)
        except (KeyError, IndexError, TypeError):
            return None
        return _drop(document, whole)
    if change.verb == "set":
        return _set(document, whole, change.value)
    return _add(document, whole, change.value)


# ---- deletions ----


def _drop(document: YamlDocument, steps: Steps) -> TextEdit | None:
    place = locate_path(document.node, steps)
    parent = place.parent
    if place.found < len(steps) or place.key is None or not isinstance(parent, yaml.MappingNode):
        return None
    index = next((i for i, (key, _) in enumerate(parent.value) if key is place.key), None)
    if index is None:
        return None  # it comes from a merge key
    if parent.flow_style:
        return _drop_from_flow(document, parent, index)
    if len(parent.value) == 1:
        return None  # an empty map needs a different notation
    return _drop_lines(document, parent, index)


def _drop_from_flow(document: YamlDocument, parent: yaml.MappingNode, index: int) -> TextEdit:
    start = document.span(parent.value[index][0]).start
    if index + 1 < len(parent.value):
        return TextEdit(start, document.span(parent.value[index + 1][0]).start, "")
    if index > 0:
        return TextEdit(
            document.span(parent.value[index - 1][1]).end,
            document.span(parent.value[index][1]).end,
            "",
        )
    return TextEdit(start, document.span(parent.value[index][1]).end, "")


def _drop_lines(document: YamlDocument, parent: yaml.MappingNode, index: int) -> TextEdit | None:
    text = document.text
    key, value = parent.value[index]
    start = document.span(key).start
    line, column = text.place(start)
    last = last_line(document, key, value)
    before = text.line(line)[: column - 1]
    if not before.strip():
        return TextEdit(text.start(line), text.start(last + 1), "")
    if before.strip(" -"):
        return None
    # The first key of a list element: the next key moves behind the dash.
    following = (
        document.span(parent.value[index + 1][0]).start if index + 1 < len(parent.value) else None
    )
    if following is None:
        return None
    between = text.text[text.start(last + 1) : following]
    return TextEdit(start, following, "") if not between.strip() else None


def last_line(document: YamlDocument, key: yaml.Node, value: yaml.Node) -> int:
    """The last line of a value; the parser also includes trailing comments and empty lines."""
    text = document.text
    end = _real_end(document, value) if not _empty(value) else document.span(key).end
    return text.place(max(document.span(key).start, end - 1))[0]


def _empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.start_mark.index == node.end_mark.index


def _real_end(document: YamlDocument, node: yaml.Node) -> int:
    if not isinstance(node, yaml.CollectionNode) or node.flow_style:
        end = document.span(node).end
        # A block scalar ends where the next node begins, including its last line break.
        return end - 1 if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") else end
    last = node.value[-1]
    if isinstance(node, yaml.MappingNode):
        return document.span(last[0]).end + 1 if _empty(last[1]) else _real_end(document, last[1])
    return document.span(last).start if _empty(last) else _real_end(document, last)


# ---- adding ----


def _set(document: YamlDocument, steps: Steps, value: Any) -> TextEdit | None:
    place = locate_path(document.node, steps)
    if place.found == len(steps):
        if not isinstance(place.value, yaml.ScalarNode) or place.value.style in ("|", ">"):
            return None
        span = document.span(place.value)
        if span.end == span.start:
            return None
        return TextEdit(span.start, span.end, _scalar(value, place.value.style == '"'))
    for step in reversed(steps[place.found + 1 :]):
        if not isinstance(step, str):
            return None
        value = {step: value}
    name = steps[place.found]
    if not isinstance(name, str) or not isinstance(place.value, yaml.MappingNode):
        return None
    return _insert(document, place.value, name, value)


def _add(document: YamlDocument, steps: Steps, value: Any) -> TextEdit | None:
    place = locate_path(document.node, steps)
    if place.found < len(steps):
        return _set(document, steps, [value])
    node = place.value
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        return None
    if node.flow_style:
        end = document.span(node.value[-1]).end
        return TextEdit(end, end, f", {_flow(value, _is_json(document))}")
    text = document.text
    dash = document.span(node).start
    indent = text.place(dash)[1] - 1
    if text.text[dash : dash + 1] != "-":
        return None
    line = text.place(max(dash, _real_end(document, node) - 1))[0]
    return _after_line(document, line, _Layout(2, 0).item(value, indent))


def _insert(
    document: YamlDocument, node: yaml.MappingNode, name: str, value: Any
) -> TextEdit | None:
    """Adds a key to a map: before the containers in a pod's spec, otherwise at the end."""
    if node.flow_style:
        quoted = _is_json(document)
        entry = f"{_scalar(name, quoted)}: {_flow(value, quoted)}"
        if not node.value:
            start = document.span(node).start + 1
            return TextEdit(start, start, entry)
        end = document.span(node.value[-1][1]).end
        return TextEdit(end, end, f", {entry}")
    if not node.value:
        return None
    text = document.text
    indent = text.place(document.span(node.value[0][0]).start)[1] - 1
    lines = _layout_of(document, node, indent).entry(name, value, indent)
    for i, (key, _) in enumerate(node.value):
        if key_text(key) in ("containers", "initContainers") and (
            i or not _behind_dash(document, key)
        ):
            return _before_line(document, text.place(document.span(key).start)[0], lines, indent)
    last_key, last_value = node.value[-1]
    return _after_line(document, last_line(document, last_key, last_value), lines)


def _behind_dash(document: YamlDocument, key: yaml.Node) -> bool:
    line, column = document.text.place(document.span(key).start)
    return bool(document.text.line(line)[: column - 1].strip())


def _before_line(document: YamlDocument, line: int, lines: list[str], indent: int) -> TextEdit:
    """Inserts above a line and above the comments that belong to it."""
    text = document.text
    while line > 1 and text.line(line - 1).startswith(" " * indent + "#"):
        line -= 1
    at = text.start(line)
    return TextEdit(at, at, "".join(f"{one}{_break(document)}" for one in lines))


def _after_line(document: YamlDocument, line: int, lines: list[str]) -> TextEdit:
    text, line_end = document.text, _break(document)
    at = text.start(line + 1)
    body = line_end.join(lines)
    if at > 0 and text.text[at - 1 : at] != "\n":  # the last line has no line break
        return TextEdit(at, at, line_end + body)
    return TextEdit(at, at, body + line_end)


def _break(document: YamlDocument) -> str:
    return "\r\n" if "\r\n" in document.text.text else "\n"


def _is_json(document: YamlDocument) -> bool:
    root = document.node
    return (
        isinstance(root, yaml.MappingNode)
        and bool(root.flow_style)
        and all(key.style == '"' for key, _ in root.value)
    )


# ---- writing values ----


class _Layout(NamedTuple):
    """The indentation that neighbouring maps and lists use."""

    maps: int
    lists: int

    def entry(self, name: str, value: Any, indent: int) -> list[str]:
        space = " " * indent
        if isinstance(value, Mapping):
            inner = [
                line
                for key, one in value.items()
                for line in self.entry(key, one, indent + self.maps)
            ]
            return [f"{space}{_scalar(name)}:", *inner]
        if isinstance(value, list):
            return [
                f"{space}{_scalar(name)}:",
                *(line for one in value for line in self.item(one, indent + self.lists)),
            ]
        return [f"{space}{_scalar(name)}: {_scalar(value)}"]

    def item(self, value: Any, indent: int) -> list[str]:
        if not isinstance(value, Mapping):
            return [f"{' ' * indent}- {_scalar(value)}"]
        lines = [line for key, one in value.items() for line in self.entry(key, one, indent + 2)]
        return [f"{' ' * indent}- {lines[0].lstrip()}", *lines[1:]]


def _layout_of(document: YamlDocument, node: yaml.MappingNode, indent: int) -> _Layout:
    maps, lists = [2], [0]
    for _, value in node.value:
        if isinstance(value, yaml.CollectionNode) and not value.flow_style and value.value:
            deeper = document.text.place(document.span(value).start)[1] - 1 - indent
            (maps if isinstance(value, yaml.MappingNode) else lists).append(deeper)
    return _Layout(max(1, maps[-1]), max(0, lists[-1]))


def _flow(value: Any, quoted: bool) -> str:
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(
                f"{_scalar(key, quoted)}: {_flow(one, quoted)}" for key, one in value.items()
            )
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(_flow(one, quoted) for one in value) + "]"
    return _scalar(value, quoted)


def _scalar(value: Any, quoted: bool = False) -> str:
    if (
        not quoted
        and isinstance(value, str)
        and _PLAIN.fullmatch(value)
        and value.lower() not in _WORDS
    ):
        return value
    return json.dumps(value)
