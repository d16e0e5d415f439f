"""XPath queries of event logs, as Get-WinEvent -FilterXPath and `wevtutil qe /q:` take them: the
subset that Windows supports, over the fields that an event has here.
"""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from transom.machines.windows.journal import LogEntry

LEVELS: Final = {"Error": 2, "Warning": 3, "Information": 4}
EventFilter = Callable[[LogEntry], bool]

_TOKEN: Final = re.compile(r"\s*(@?\w+|'[^']*'|\"[^\"]*\"|<=|>=|!=|[=<>()\[\]/*])")
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_Node = Any  # the fields of an element by name, or the value of a field
_Expression = Callable[[_Node], Any]


class EventQueryError(Exception):
    """The query is not valid."""


def event_filter(query: str, now: float) -> EventFilter:
    """Raises EventQueryError."""
    expression = _Parser(query, now).query()
    return lambda entry: bool(expression(_element(entry)))


def event_xml_time(moment: float) -> str:
    """The time of an event as its XML shows it."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    return f"{whole}.{int(moment % 1 * 1000):03d}Z"


def _element(entry: LogEntry) -> _Node:
    return {
        "System": {
            "Provider": {"@Name": entry.source},
            "EventID": entry.event_id,
            "Level": LEVELS[entry.level],
            "TimeCreated": {"@SystemTime": event_xml_time(entry.time), "": entry.time},
            "EventRecordID": entry.number,
            "Channel": entry.log,
        },
        "EventData": {"Data": entry.message},
    }


def _compare(sign: str, left: Any, right: Any) -> bool:
    if left is None or right is None:
        return False
    if type(left) is not type(right):
        left, right = str(left), str(right)
    return _COMPARISONS[sign](left, right)


class _Parser:
    def __init__(self, query: str, now: float) -> None:
        self._now = now
        self._tokens: list[str] = []
        position, query = 0, query.strip()
        while position < len(query):
            match = _TOKEN.match(query, position)
            if match is None:
                raise EventQueryError(query)
            self._tokens.append(match[1])
            position = match.end()
        self._tokens.reverse()

    def query(self) -> _Expression:
        """`*` or `*[EXPRESSION]`"""
        self._expect("*")
        expression: _Expression = lambda node: True  # noqa: E731
        if self._accept("["):
            expression = self._or()
            self._expect("]")
        if self._tokens:
            raise EventQueryError(self._tokens[-1])
        return expression

    def _accept(self, *wanted: str) -> str:
        return self._tokens.pop() if self._tokens and self._tokens[-1] in wanted else ""

    def _expect(self, wanted: str) -> None:
        if not self._accept(wanted):
            raise EventQueryError(wanted)

    def _or(self) -> _Expression:
        parts = [self._and()]
        while self._accept("or"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else lambda node: any(part(node) for part in parts)

    def _and(self) -> _Expression:
        parts = [self._comparison()]
        while self._accept("and"):
            parts.append(self._comparison())
        return parts[0] if len(parts) == 1 else lambda node: all(part(node) for part in parts)

    def _comparison(self) -> _Expression:
        if self._accept("("):
            inner = self._or()
            self._expect(")")
            return inner
        left, sign = self._operand(), self._accept(*_COMPARISONS)
        if not sign:
            return left
        right = self._operand()
        return lambda node: _compare(sign, left(node), right(node))

    def _operand(self) -> _Expression:
        word = self._tokens.pop() if self._tokens else ""
        if word[:1] in ("'", '"'):
            return lambda node: word[1:-1]
        if word.isdigit():
            return lambda node: int(word)
        if word == "timediff":  # milliseconds before now
            self._expect("(")
            self._expect("@SystemTime")
            self._expect(")")
            return lambda node: int((self._now - node[""]) * 1000)
        if not re.fullmatch(r"@?[A-Za-z]\w*", word):
            raise EventQueryError(word)
        return self._path(word)

    def _path(self, name: str) -> _Expression:
        """`NAME`, `NAME[EXPRESSION]`, `NAME/REST`. Absent where the expression is false."""
        condition: _Expression | None = None
        if self._accept("["):
            condition = self._or()
            self._expect("]")
        rest = self._operand() if self._accept("/") else None

        def find(node: _Node) -> Any:
            found = node.get(name) if isinstance(node, dict) else None
            if found is None or (condition is not None and not condition(found)):
                return None
            return rest(found) if rest is not None else found

        return find
