"""Label selectors: their text form, the `LabelSelector` object, and matching.

Lists, watches, controllers and services select objects this way, and the error messages of invalid
selectors are part of the API. The text form (`app in (a,b),!old`) and the `LabelSelector` object
compile to the same form. This module does not depend on the store or on requests.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any

from transom.kit.caching import text_cache
from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_pattern
from transom.kit.named_tuple import NamedTuple
from transom.machinery.gofmt import go_syntax
from transom.machinery.validation.names import is_label_value, is_qualified_name

Object = Mapping[str, Any]
_OWNERS = 256  # whose selectors are kept
_MANY = 500  # requirements and values that take about a millisecond to compile


class SelectorError(ValueError):
    """The selector cannot be parsed; `str()` is Kubernetes' own message. `newer` is that of later
    releases, if it is another one.
    """

    def __init__(self, text: str, newer: str = "") -> None:
        super().__init__(text)
        self.newer = newer or text


# ---- label selectors ----

IN, NOT_IN, EXISTS, DOES_NOT_EXIST = "in", "notin", "exists", "!"
EQUALS, DOUBLE_EQUALS, NOT_EQUALS, GREATER, LESS = "=", "==", "!=", "gt", "lt"

_SYMBOLS = {GREATER: ">", LESS: "<"}
_OBJECT_OPERATORS = {"In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": DOES_NOT_EXIST}
# Of node selectors, by the name in an object.
NODE_SELECTOR_OPERATORS = {**_OBJECT_OPERATORS, "Gt": GREATER, "Lt": LESS}
_INTEGER = lazy_pattern(r"[+-]?[0-9]+\Z", re.ASCII)
_INT64 = 1 << 63


class Requirement(NamedTuple):
    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        operator = self.operator
        if operator in (IN, EQUALS, DOUBLE_EQUALS):
            return value is not None and value in self.values
        if operator in (NOT_IN, NOT_EQUALS):
            return value is None or value not in self.values
        if operator == EXISTS:
            return value is not None
        if operator == DOES_NOT_EXIST:
            return value is None
        number, bound = _int64(value), _int64(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if operator == GREATER else number < bound

    def __str__(self) -> str:
        if self.operator == EXISTS:
            return self.key
        if self.operator == DOES_NOT_EXIST:
            return f"!{self.key}"
        text = ",".join(sorted(self.values))
        if self.operator in (IN, NOT_IN):
            return f"{self.key} {self.operator} ({text})"
        return f"{self.key}{_SYMBOLS.get(self.operator, self.operator)}{text}"


class _KeyRule:
    """All requirements on one key, combined: checking a value costs the same for any number of
    them.
    """

    __slots__ = ("_allowed", "_excluded", "_high", "_low", "absent", "present")

    def __init__(self) -> None:
        self.present = self.absent = False
        self._allowed: frozenset[str] | None = None
        self._excluded: set[str] = set()
        self._low: int | None = None
        self._high: int | None = None

    def add(self, requirement: Requirement) -> None:
        _, operator, values = requirement
        if operator in (NOT_IN, NOT_EQUALS):
            self._excluded.update(values)
            return
        if operator == DOES_NOT_EXIST:
            self.absent = True
            return
        self.present = True
        if operator in (IN, EQUALS, DOUBLE_EQUALS):
            self._allowed = (
                frozenset(values) if self._allowed is None else self._allowed.intersection(values)
            )
        elif operator in (GREATER, LESS):
            bound = _int64(values[0])
            if bound is None:
                self._allowed = frozenset()
            elif operator == GREATER:
                self._low = bound if self._low is None else max(bound, self._low)
            else:
                self._high = bound if self._high is None else min(bound, self._high)

    @property
    def impossible(self) -> bool:
        if self.present and self.absent:
            return True
        return self._allowed is not None and not any(self.accepts(value) for value in self._allowed)

    def accepts(self, value: str) -> bool:
        """Whether the label may exist with this value."""
        if (
            self.absent
            or value in self._excluded
            or (self._allowed is not None and value not in self._allowed)
        ):
            return False
        if self._low is None and self._high is None:
            return True
        number = _int64(value)
        if number is None:
            return False
        return (self._low is None or number > self._low) and (
            self._high is None or number < self._high
        )


class _Index:
    """Many requirements by key. Matching costs no more than the labels of the object, whatever the
    selector.
    """

    __slots__ = ("_never", "_optional", "_required")

    def __init__(self, requirements: Iterable[Requirement]) -> None:
        rules: dict[str, _KeyRule] = {}
        for requirement in dict.fromkeys(requirements):
            key = requirement[0]
            rule = rules.get(key)
            if rule is None:
                rule = rules[key] = _KeyRule()
            rule.add(requirement)
        self._never = any(rule.impossible for rule in rules.values())
        self._required = {key: rule for key, rule in rules.items() if rule.present}
        self._optional = {key: rule for key, rule in rules.items() if not rule.present}

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self._never or len(self._required) > len(labels):
            return False
        for key, rule in self._required.items():
            value = labels.get(key)
            if value is None or not rule.accepts(value):
                return False
        optional = self._optional
        if len(optional) < len(labels):
            return all(
                key not in labels or rule.accepts(labels[key]) for key, rule in optional.items()
            )
        return all(
            key not in optional or optional[key].accepts(value) for key, value in labels.items()
        )


_key = itemgetter(0)
_FEW = 8  # requirements, and values of one, that are checked one by one


class LabelSelector:
    """All requirements must hold. Immutable; build it with the functions below."""

    __slots__ = ("_equal", "_index", "_other", "_selectable", "_wanted", "requirements")

    def __init__(self, requirements: Iterable[Requirement], *, selectable: bool = True) -> None:
        self.requirements = tuple(sorted(requirements, key=_key))
        self._selectable = selectable
        # Most selectors only require equal values, which needs no call per requirement.
        equal = (EQUALS, DOUBLE_EQUALS)
        self._equal = tuple([(key, v[0]) for key, op, v in self.requirements if op in equal])
        self._other = tuple([r for r in self.requirements if r[1] not in equal])
        large = len(self.requirements) > _FEW or any(len(r.values) > _FEW for r in self._other)
        wanted = dict(self._equal) if large and not self._other else None
        # Of different values for one key, none matches: the index knows.
        self._wanted = wanted if wanted and len(wanted) == len(self._equal) else None
        self._index = _Index(self.requirements) if large and self._wanted is None else None

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        labels = labels or {}
        if self._wanted is not None:
            return self._wanted.items() <= labels.items()
        if self._index is not None:
            return self._index.matches(labels)
        for key, value in self._equal:
            if labels.get(key) != value:
                return False
        if self._other:
            return all(r.matches(labels) for r in self._other)
        return self._selectable

    @property
    def empty(self) -> bool:
        """True if it matches everything because it has no requirements."""
        return self._selectable and not self.requirements

    def required(self) -> list[tuple[str, tuple[str, ...] | None]]:
        """Labels that an object must have to match, each with the possible values; None: any value,
        or many.
        """
        return [
            (r.key, r.values if r.operator in (EQUALS, DOUBLE_EQUALS, IN) else None)
            for r in self.requirements
            if r.operator not in (NOT_IN, NOT_EQUALS, DOES_NOT_EXIST)
        ]

    def exact(self, key: str) -> str | None:
        """The only value of label `key` that can match, if there is one."""
        for r in self.requirements:
            if r.key == key:
                return (
                    r.values[0]
                    if r.operator in (EQUALS, DOUBLE_EQUALS, IN) and len(r.values) == 1
                    else None
                )
        return None

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def __repr__(self) -> str:
        return f"LabelSelector({str(self)!r})" if self._selectable else "LabelSelector(nothing)"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LabelSelector)
            and self.requirements == other.requirements
            and self._selectable == other._selectable
        )

    def __hash__(self) -> int:
        return hash((self.requirements, self._selectable))


_EVERYTHING = LabelSelector(())
_NOTHING = LabelSelector((), selectable=False)


def everything() -> LabelSelector:
    return _EVERYTHING


def nothing() -> LabelSelector:
    return _NOTHING


LONGEST_CACHED_SELECTOR = 2048  # total size of cached selectors, in characters


def parse_labels(text: str) -> LabelSelector:
    """The selector in its text form (`labelSelector=` of a list); raises SelectorError."""
    if not text:
        return _EVERYTHING
    return (
        _parse_labels(text)
        if len(text) <= LONGEST_CACHED_SELECTOR
        else _parse_labels.__wrapped__(text)
    )


@lru_cache(maxsize=1024)
def _parse_labels(text: str) -> LabelSelector:
    return LabelSelector(_LabelParser(text).parse())


def from_map(labels: Mapping[str, str] | None) -> LabelSelector:
    """A selector from a plain map of equal values, as in Services and ReplicationControllers; not
    validated.
    """
    return (
        LabelSelector(Requirement(k, EQUALS, (v,)) for k, v in labels.items())
        if labels
        else _EVERYTHING
    )


def from_object(selector: Object | None) -> LabelSelector:
    """A `LabelSelector` object: None selects nothing, an empty one everything; raises
    SelectorError.
    """
    if selector is None:
        return _NOTHING
    is_plain = _PLAIN.match
    found = [
        Requirement(k, EQUALS, (v,))
        if is_plain(k) and is_plain(v)
        else _requirement(k, EQUALS, (v,))
        for k, v in (selector.get("matchLabels") or {}).items()
    ]
    for expression in selector.get("matchExpressions") or ():
        operator = expression.get("operator", "")
        if operator not in _OBJECT_OPERATORS:
            raise SelectorError(f"{go_quote(operator)} is not a valid pod selector operator")
        values = tuple(expression.get("values") or ())
        key = expression.get("key", "")
        if not values and operator in ("Exists", "DoesNotExist") and is_plain(key):
            found.append(Requirement(key, _OBJECT_OPERATORS[operator]))
        else:
            found.append(_requirement(key, _OBJECT_OPERATORS[operator], values))
    return LabelSelector(found) if found else _EVERYTHING


def takes_long_to_compile(selector: Object | None) -> bool:
    """Whether it takes more than about a millisecond to compile a `LabelSelector` object."""
    if not selector:
        return False
    expressions = selector.get("matchExpressions") or ()
    count = len(selector.get("matchLabels") or ()) + len(expressions)
    return count > _MANY or any(len(e.get("values") or ()) > _MANY for e in expressions)


_owner_selectors: OrderedDict[str, tuple[Object | None, LabelSelector]] = OrderedDict()
_owners_lock = threading.Lock()


def owner_selector(owner: Object) -> LabelSelector:
    """The selector of a workload; raises SelectorError. A selector with thousands of requirements
    takes long to build, and is asked for several times. Any thread may call this.
    """
    selector, uid = (owner.get("spec") or {}).get("selector"), owner["metadata"].get("uid", "")
    known = _owner_selectors.get(uid)
    if known is not None and known[0] == selector:
        return known[1]
    built = from_object(selector)
    with _owners_lock:
        _owner_selectors[uid] = selector, built
        _owner_selectors.move_to_end(uid)
        if len(_owner_selectors) > _OWNERS:
            _owner_selectors.popitem(last=False)
    return built


def _requirement(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    _check_key(key)
    problem = ""
    if operator in (IN, NOT_IN):
        if not values:
            problem = "for 'in', 'notin' operators, values set can't be empty"
    elif operator in (EXISTS, DOES_NOT_EXIST):
        if values:
            problem = "values set must be empty for exists and does not exist"
    elif operator in (GREATER, LESS) and _int64(values[0]) is None:
        problem = "for 'Gt', 'Lt' operators, the value must be an integer"
    if problem:
        shown = "values: Invalid value: " + go_syntax(list(values))
        if operator in (GREATER, LESS) and len(values) == 1:
            shown = f"values[0]: Invalid value: {go_quote(values[0])}"
        raise SelectorError(problem, f"{shown}: {problem}")
    for i, value in enumerate(values):
        _check_value(key, value, i)
    return Requirement(key, operator, values)


# Almost all keys and values match these; only the others need the validator.
_PLAIN = lazy_pattern(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z", re.ASCII)


def _check_key(key: str) -> None:
    if _PLAIN.match(key):
        return
    _check_odd_key(key)


@text_cache(4096)
def _check_odd_key(key: str) -> None:
    if errors := is_qualified_name(key):
        shown, found = go_quote(key), "; ".join(errors)
        raise SelectorError(
            f"invalid label key {shown}: {found}", f"<nil>: Invalid value: {shown}: {found}"
        )


def _check_value(key: str, value: str, index: int) -> None:
    if not value or _PLAIN.match(value):
        return

    if errors := is_label_value(value):
        shown, found = go_quote(value), "; ".join(errors)
        raise SelectorError(
            f"invalid label value: {shown}: at key: {go_quote(key)}: {found}",
            f"values[{index}][{key}]: Invalid value: {shown}: {found}",
        )


def _int64(text: str | None) -> int | None:
    if text is None or len(text) > 20 or not _INTEGER.match(text):
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None


_TOKEN = lazy_pattern(r"[ \t\r\n]*(?:(==|!=|[=!(),<>])|([^=!(),<> \t\r\n\0]+)|(?:\0|\Z))")
_END = ("end", "")
_BINARY = {
    "=": EQUALS,
    "==": DOUBLE_EQUALS,
    "!=": NOT_EQUALS,
    ">": GREATER,
    "<": LESS,
    "in": IN,
    "notin": NOT_IN,
}


# One of many requirements in its simplest form, up to the beginning of the next one.
_WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_SIMPLE = lazy_pattern(
    rf"[ \t]*(?:!({_WORD})|({_WORD})(?:(==?|!=)({_WORD})?|([<>])([0-9]{{1,18}}))?)"
    r"[ \t]*,(?=[ \t]*[!A-Za-z0-9])",
    re.ASCII,
)


class _LabelParser:
    """Tokens are (type, text): a symbol is its own type, everything else is `id`; `in` and `notin`
    are ordinary identifiers except where an operator stands.
    """

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        self.at = 0
        self.simple: list[Requirement] = []
        begin = self._read_simple(text) if len(text) > LONGEST_CACHED_SELECTOR else 0
        for symbol, word in _TOKEN.findall(text, begin):
            if not (symbol or word):
                break
            self.tokens.append((symbol, symbol) if symbol else ("id", word))
        self.tokens.append(_END)

    def _read_simple(self, text: str) -> int:
        """Reads simple requirements, which cost little each: a client may send thousands. Returns
        where the others begin.
        """
        at = 0
        add = self.simple.append
        while found := _SIMPLE.match(text, at):
            absent, key, equality, value, comparison, number = found.groups()
            if absent:
                add(Requirement(absent, DOES_NOT_EXIST))
            elif equality:
                add(Requirement(key, _BINARY[equality], (value or "",)))
            elif comparison:
                add(Requirement(key, _BINARY[comparison], (number,)))
            else:
                add(Requirement(key, EXISTS))
            at = found.end()
        return at

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else _END

    def take(self) -> tuple[str, str]:
        self.at += 1
        return self.tokens[self.at - 1]

    def parse(self) -> list[Requirement]:
        found = self.simple
        while True:
            kind, text = self.peek()
            if kind == "end":
                return found
            if kind not in ("id", "!"):
                raise SelectorError(f"found '{text}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self.requirement())
            except SelectorError as err:
                start = "unable to parse requirement: "
                raise SelectorError(f"{start}{err}", f"{start}{err.newer}") from None
            kind, text = self.take()
            if kind == "end":
                return found
            if kind != ",":
                raise SelectorError(f"found '{text}', expected: ',' or 'end of string'")
            kind, text = self.peek()
            if kind not in ("id", "!"):
                raise SelectorError(f"found '{text}', expected: identifier after ','")

    def requirement(self) -> Requirement:
        kind, key = self.take()
        negated = kind == "!"
        if negated:
            kind, key = self.take()
        if kind != "id":
            raise SelectorError(f"found '{key}', expected: identifier")
        _check_key(key)
        if negated:
            return _requirement(key, DOES_NOT_EXIST, ())
        if self.peek()[0] in ("end", ","):
            return _requirement(key, EXISTS, ())
        _, text = self.take()
        operator = _BINARY.get(text)
        if operator is None:
            raise SelectorError(
                f"found '{text}', expected: '=', '!=', '==', 'in', notin'",
                f"found '{text}', expected: in, notin, =, ==, !=, gt, lt",
            )
        values = self.value_list() if operator in (IN, NOT_IN) else {self.value()}
        return _requirement(key, operator, tuple(sorted(values)))

    def value(self) -> str:
        if self.peek()[0] in ("end", ","):
            return ""
        kind, text = self.take()
        if kind != "id":
            raise SelectorError(f"found '{text}', expected: identifier")
        return text

    def value_list(self) -> set[str]:
        kind, text = self.take()
        if kind != "(":
            raise SelectorError(f"found '{text}' expected: '('")
        kind, text = self.peek()
        if kind == ")":
            self.take()
            return {""}
        if kind not in ("id", ","):
            raise SelectorError(f"found '{text}', expected: ',', ')' or identifier")
        values = self.identifiers()
        self.take()  # the closing parenthesis: identifiers() stops nowhere else
        return values

    def identifiers(self) -> set[str]:
        """Missing items between commas count as the empty value."""
        values: set[str] = set()
        while True:
            kind, text = self.take()
            following, next_text = self.peek()
            if kind == "id":
                values.add(text)
                if following == ")":
                    return values
                if following != ",":
                    raise SelectorError(f"found '{next_text}', expected: ',' or ')'")
            elif kind == ",":
                if not values:
                    values.add("")
                if following == ")":
                    values.add("")
                    return values
                if following == ",":
                    self.take()
                    values.add("")
            else:
                raise SelectorError(f"found '{text}', expected: ',', or identifier")
