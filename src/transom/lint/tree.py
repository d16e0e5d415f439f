"""YAML documents as values with positions.

A text is split at its document markers, so that an error in one document does not hide the others.
Each document has the nodes from libyaml and the plain value that Kubernetes would read;
`locate_path` finds the position of a path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import yaml

from transom.kit.lazy_dataclass import dataclass
from transom.lint.text import SourceText
from transom.machinery import goyaml

Steps = tuple[str | int, ...]

_MARKER: Final = re.compile(r"^---(?=[ \t\r\n]|$)|^\.\.\.(?=[ \t\r\n]|$)", re.MULTILINE)
_KIND: Final = re.compile(r"^kind:[ \t]*[\"']?(\w+)", re.MULTILINE)
_DENSE: Final = re.compile(r"(?:[-?] +){100}|^ {200}", re.MULTILINE)  # could be nested deeply
_STR: Final = "tag:yaml.org,2002:str"
_DEEPEST: Final = 200


class TextSpan(NamedTuple):
    """A span of the text, by character offsets."""

    start: int
    end: int


class BrokenDocument(NamedTuple):
    """Why a document cannot be parsed, and where."""

    at: int
    message: str
    kind: str = ""  # of the object that it appears to be


@dataclass(slots=True)
class YamlDocument:
    text: SourceText
    start: int  # of the document in the text
    end: int
    node: yaml.Node
    value: Any

    def span(self, node: yaml.Node) -> TextSpan:
        return TextSpan(self.start + node.start_mark.index, self.start + node.end_mark.index)

    def head(self) -> str:
        """The comments before the first value, and their content."""
        return self.text.text[self.start : self.start + self.node.start_mark.index]


class YamlLocation(NamedTuple):
    """The position of the last step of a path. `key` is None for list elements and whole
    documents.
    """

    key: yaml.ScalarNode | None
    value: yaml.Node
    parent: yaml.Node | None
    found: int  # the number of steps that exist in the text


def parse_documents(
    text: SourceText, skip: Callable[[str], Any] | None = None
) -> Iterator[YamlDocument | BrokenDocument]:
    """All documents except those that `skip` recognizes by their text, which are not parsed."""
    for start, end in _cut(text.text):
        body = text.text[start:end]
        if not body or body.isspace() or (skip is not None and skip(body)):
            continue
        try:
            if _may_be_deep(body):
                _check_depth(body)
            composer = _Composer(body)
            node = composer.get_node() if composer.check_node() else None
            if node is not None:
                yield YamlDocument(text, start, end, node, _Values().of(node, 0))
        except (yaml.YAMLError, RecursionError, _Unreadable) as error:
            at, message = _why(error)
            kind = _KIND.search(body)
            yield BrokenDocument(start + min(at, len(body)), message, kind[1] if kind else "")


def _why(error: Exception) -> tuple[int, str]:
    """The position and the message of a syntax error."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        return mark.index if mark is not None else 0, error.problem or "this is not YAML"
    if isinstance(error, yaml.reader.ReaderError):
        at = error.position if isinstance(error.position, int) else 0
        return at, f"the character {error.character!r} may not stand here"
    return 0, str(error) if isinstance(
        error, yaml.YAMLError
    ) else "it is nested too deeply, or contains itself"


def _cut(text: str) -> Iterator[tuple[int, int]]:
    """The spans between markers. Text after a marker on the same line belongs to the document."""
    start = 0
    directives = False
    for marker in _MARKER.finditer(text):
        at = marker.start()
        if text.startswith("%", start) and not directives:
            directives = True  # `%YAML 1.2` belongs to the document after its marker
            continue
        directives = False
        yield start, at
        start = marker.end()
    yield start, len(text)


class _Unreadable(Exception):
    pass


def _may_be_deep(body: str) -> bool:
    """Whether a document could have more than _DEEPEST levels: many brackets, many list items in a
    line, or a line that is indented far. Cheap, for all documents.
    """
    return len(body) > _DEEPEST and (
        body.count("[") + body.count("{") > _DEEPEST or _DENSE.search(body) is not None
    )


def _check_depth(body: str) -> None:
    """Raises _Unreadable for a document with too many levels. libyaml's composer is recursive and
    would overflow the stack; its parser is not.
    """
    depth = 0
    for event in yaml.parse(body, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise _Unreadable
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Composer(
    yaml.cyaml.CParser,  # type: ignore[name-defined,misc]
    yaml.constructor.BaseConstructor,
    yaml.resolver.BaseResolver,
):
    """Builds nodes. Plain scalars get no tag, because they are interpreted as in go-yaml."""

    def __init__(self, text: str) -> None:
        yaml.cyaml.CParser.__init__(self, text)  # type: ignore[attr-defined]
        yaml.constructor.BaseConstructor.__init__(self)
        yaml.resolver.BaseResolver.__init__(self)

    def resolve(self, kind: type, value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return "" if implicit[0] else _STR
        return ""


class _Values:
    """Builds plain values from nodes. A node with aliases gives one value, so aliases cost
    nothing.
    """

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def of(self, node: yaml.Node, depth: int) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.tag else goyaml.resolve_scalar(node.value)[1]
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
                for part in (
                    reversed(inner.value) if isinstance(inner, yaml.SequenceNode) else (inner,)
                ):
                    value = self.of(part, depth)
                    if isinstance(value, dict):
                        merged.update(value)
            else:
                out[key_text(key)] = self.of(inner, depth)
        return {**merged, **out} if merged else out


def is_merge(key: yaml.Node) -> bool:
    return isinstance(key, yaml.ScalarNode) and key.value == "<<" and not key.tag


def key_text(key: yaml.Node) -> str:
    """A key as in JSON: numbers and booleans become strings."""
    if not isinstance(key, yaml.ScalarNode):
        return ""
    text: str = key.value
    if key.tag:
        return text
    kind, value = goyaml.resolve_scalar(text)
    if kind == "str":
        return text
    return (
        str(value).lower()
        if isinstance(value, bool)
        else str(value)
        if isinstance(value, int)
        else text
    )


def locate_path(node: yaml.Node, steps: Steps) -> YamlLocation:
    """The position of a path, or of its longest existing prefix."""
    key: yaml.ScalarNode | None = None
    parent: yaml.Node | None = None
    for found, step in enumerate(steps):
        entry = _child(node, step)
        if entry is None:
            return YamlLocation(key, node, parent, found)
        parent, (key, node) = node, entry
    return YamlLocation(key, node, parent, len(steps))


def _child(node: yaml.Node, step: str | int) -> tuple[yaml.ScalarNode | None, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode):
        inside = isinstance(step, int) and 0 <= step < len(node.value)
        return (None, node.value[step]) if inside else None
    if not isinstance(node, yaml.MappingNode):
        return None
    found = None
    for key, inner in node.value:  # the last of duplicate keys wins
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
