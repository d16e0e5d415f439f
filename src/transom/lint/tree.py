"""YAML documents as values that remember where they stand.

A text is cut at its document markers, so that a mistake in one document hides no other. Each document keeps the nodes that
libyaml found beside the plain value that Kubernetes would read; `locate` leads from a path in the value to places in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import yaml

from transom.lint.text import Text
from transom.machinery import goyaml

Steps = tuple[str | int, ...]

_MARKER: Final = re.compile(r"^---(?=[ \t\r\n]|$)|^\.\.\.(?=[ \t\r\n]|$)", re.MULTILINE)
_KIND: Final = re.compile(r"^kind:[ \t]*[\"']?(\w+)", re.MULTILINE)
_STR: Final = "tag:yaml.org,2002:str"
_DEEPEST: Final = 200


class Span(NamedTuple):
    """A stretch of the text, by characters."""

    start: int
    end: int


class Broken(NamedTuple):
    """Why a document cannot be read, and where."""

    at: int
    message: str
    kind: str = ""  # of the object that it seems to be


@dataclass(slots=True)
class Document:
    text: Text
    start: int  # of the document in the text
    end: int
    node: yaml.Node
    value: Any

    def span(self, node: yaml.Node) -> Span:
        return Span(self.start + node.start_mark.index, self.start + node.end_mark.index)

    def head(self) -> str:
        """What stands before the first value: comments, and what they tell."""
        return self.text.text[self.start:self.start + self.node.start_mark.index]


class Place(NamedTuple):
    """Where the last step of a path is. `key` is None for elements of lists and for whole documents."""

    key: yaml.ScalarNode | None
    value: yaml.Node
    parent: yaml.Node | None
    found: int  # how many steps there are in the text; the others are missing


def documents(text: Text, skip: Callable[[str], Any] | None = None) -> Iterator[Document | Broken]:
    """All documents but those that `skip` knows by their text, which are not even parsed."""
    for start, end in _cut(text.text):
        body = text.text[start:end]
        if not body or body.isspace() or (skip is not None and skip(body)):
            continue
        try:
            composer = _Composer(body)
            node = composer.get_node() if composer.check_node() else None
            if node is not None:
                yield Document(text, start, end, node, _Values().of(node, 0))
        except (yaml.YAMLError, RecursionError, _Unreadable) as error:
            at, message = _why(error)
            kind = _KIND.search(body)
            yield Broken(start + min(at, len(body)), message, kind[1] if kind else "")


def _why(error: Exception) -> tuple[int, str]:
    """Where a document is broken, and how."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        return mark.index if mark is not None else 0, error.problem or "this is not YAML"
    if isinstance(error, yaml.reader.ReaderError):
        at = error.position if isinstance(error.position, int) else 0
        return at, f"the character {error.character!r} may not stand here"
    return 0, str(error) if isinstance(error, yaml.YAMLError) else "it is nested too deeply, or contains itself"


def _cut(text: str) -> Iterator[tuple[int, int]]:
    """The stretches between markers. What follows a marker on its line belongs to the document."""
    start = 0
    directives = False
    for marker in _MARKER.finditer(text):
        at = marker.start()
        if text.startswith("%", start) and not directives:
            directives = True  # `%YAML 1.2` belongs to what follows its marker
            continue
        directives = False
        yield start, at
        start = marker.end()
    yield start, len(text)


class _Unreadable(Exception):
    pass


class _Composer(yaml.cyaml.CParser,  # type: ignore[name-defined,misc]
                yaml.constructor.BaseConstructor, yaml.resolver.BaseResolver):
    """Makes nodes; plain scalars get no tag, because their meaning is that of go-yaml."""

    def __init__(self, text: str) -> None:
        yaml.cyaml.CParser.__init__(self, text)  # type: ignore[attr-defined]
        yaml.constructor.BaseConstructor.__init__(self)
        yaml.resolver.BaseResolver.__init__(self)

    def resolve(self, kind: type, value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return "" if implicit[0] else _STR
        return ""


class _Values:
    """Plain values of nodes. A node that is referred to twice gives one value, so aliases cost nothing."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def of(self, node: yaml.Node, depth: int) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.tag else goyaml.resolve(node.value)[1]
        identity = id(node)
        if identity in self._known:
            return self._known[identity]
        if depth > _DEEPEST:
            raise _Unreadable
        if isinstance(node, yaml.SequenceNode):
            value: Any = [self.of(item, depth + 1) for item in node.value]
        else:
            value = self._mapping(node.value, depth + 1)
        self._known[identity] = value
        return value

    def _mapping(self, entries: list[tuple[yaml.Node, yaml.Node]], depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, inner in entries:
            if is_merge(key):
                for part in reversed(inner.value) if isinstance(inner, yaml.SequenceNode) else (inner,):
                    value = self.of(part, depth)
                    if isinstance(value, dict):
                        merged.update(value)
            else:
                out[key_text(key)] = self.of(inner, depth)
        return {**merged, **out} if merged else out


def is_merge(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == "<<" and not key.tag


def key_text(key: yaml.Node) -> str:
    """A key as JSON has it: numbers and booleans become text."""
    if not isinstance(key, yaml.ScalarNode):
        return ""
    text: str = key.value
    if key.tag:
        return text
    kind, value = goyaml.resolve(text)
    if kind == "str":
        return text
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int) else text


def locate(node: yaml.Node, steps: Steps) -> Place:
    """The place of a path, or of the longest part of it that is there."""
    key: yaml.ScalarNode | None = None
    parent: yaml.Node | None = None
    for found, step in enumerate(steps):
        entry = _child(node, step)
        if entry is None:
            return Place(key, node, parent, found)
        parent, (key, node) = node, entry
    return Place(key, node, parent, len(steps))


def _child(node: yaml.Node, step: str | int) -> tuple[yaml.ScalarNode | None, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode):
        inside = isinstance(step, int) and 0 <= step < len(node.value)
        return (None, node.value[step]) if inside else None
    if not isinstance(node, yaml.MappingNode):
        return None
    found = None
    for key, inner in node.value:  # the last of equal keys counts
        if key_text(key) == step and not is_merge(key):
            found = key, inner
    if found is not None:
        return found
    for key, inner in node.value:
        if is_merge(key):
            for part in inner.value if isinstance(inner, yaml.SequenceNode) else (inner,):
                entry = _child(part, step)
                if entry is not None:
                    return entry
    return None
