"""Label and field selectors: their text forms, the `LabelSelector` object, and matching.

Why: lists, watches, controllers and services all choose objects this way, and the error texts of a bad selector are
part of the API. One compiled form serves the text (`app in (a,b),!old`) and the `LabelSelector` object.
This module knows which field labels each kind offers; it knows no store and no request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from transom.machinery.field import go_quote
from transom.machinery.kinds import GVK, Kind

Object = Mapping[str, Any]


class SelectorError(ValueError):
    """The selector cannot be understood; `str()` is Kubernetes' own message."""


# --- label selectors -------------------------------------------------------------------------------------------------

IN, NOT_IN, EXISTS, DOES_NOT_EXIST = "in", "notin", "exists", "!"
EQUALS, DOUBLE_EQUALS, NOT_EQUALS, GREATER, LESS = "=", "==", "!=", "gt", "lt"

_SYMBOLS = {GREATER: ">", LESS: "<"}
_OBJECT_OPERATORS = {"In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": DOES_NOT_EXIST}
_INTEGER = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)
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


class LabelSelector:
    """All requirements must hold. Immutable; build it with the functions below."""

    __slots__ = ("_equal", "_other", "_selectable", "requirements")

    def __init__(self, requirements: Iterable[Requirement], *, selectable: bool = True) -> None:
        self.requirements = tuple(sorted(requirements, key=lambda r: r.key))
        self._selectable = selectable
        # Most selectors only ask for equal values, which needs no call per requirement.
        equal = (EQUALS, DOUBLE_EQUALS)
        self._equal = tuple((r.key, r.values[0]) for r in self.requirements if r.operator in equal)
        self._other = tuple(r for r in self.requirements if r.operator not in equal)

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        labels = labels or {}
        for key, value in self._equal:
            if labels.get(key) != value:
                return False
        if self._other:
            return all(r.matches(labels) for r in self._other)
        return self._selectable

    @property
    def empty(self) -> bool:
        """True when it matches everything because it asks for nothing."""
        return self._selectable and not self.requirements

    def exact(self, key: str) -> str | None:
        """The only value of label `key` that can match, if there is one."""
        for r in self.requirements:
            if r.key == key:
                return r.values[0] if r.operator in (EQUALS, DOUBLE_EQUALS, IN) and len(r.values) == 1 else None
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


@lru_cache(maxsize=1024)
def parse_labels(text: str) -> LabelSelector:
    """The selector in its text form (`labelSelector=` of a list); raises SelectorError."""
    return LabelSelector(_LabelParser(text).parse()) if text else _EVERYTHING


def from_map(labels: Mapping[str, str] | None) -> LabelSelector:
    """A plain map of equal values, as Services and ReplicationControllers hold; without checks."""
    return LabelSelector(Requirement(k, EQUALS, (v,)) for k, v in labels.items()) if labels else _EVERYTHING


def from_object(selector: Object | None) -> LabelSelector:
    """A `LabelSelector` object: None selects nothing, an empty one everything; raises SelectorError."""
    if selector is None:
        return _NOTHING
    found = [_requirement(k, EQUALS, (v,)) for k, v in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        operator = expression.get("operator", "")
        if operator not in _OBJECT_OPERATORS:
            raise SelectorError(f"{go_quote(operator)} is not a valid pod selector operator")
        values = tuple(expression.get("values") or ())
        found.append(_requirement(expression.get("key", ""), _OBJECT_OPERATORS[operator], values))
    return LabelSelector(found) if found else _EVERYTHING


def format_object(selector: Object | None) -> str:
    """A `LabelSelector` object as tables print it."""
    try:
        return str(from_object(selector)) or "<none>"
    except SelectorError:
        return "<error>"


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
        raise SelectorError(problem)
    for value in values:
        _check_value(key, value)
    return Requirement(key, operator, values)


@lru_cache(maxsize=4096)
def _check_key(key: str) -> None:
    from transom.machinery.validation.names import is_qualified_name  # validators use selectors: not at import time

    if errors := is_qualified_name(key):
        raise SelectorError(f"invalid label key {go_quote(key)}: {'; '.join(errors)}")


@lru_cache(maxsize=4096)
def _check_value(key: str, value: str) -> None:
    from transom.machinery.validation.names import is_label_value

    if errors := is_label_value(value):
        raise SelectorError(f"invalid label value: {go_quote(value)}: at key: {go_quote(key)}: {'; '.join(errors)}")


def _int64(text: str | None) -> int | None:
    if text is None or len(text) > 20 or not _INTEGER.match(text):
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None


_TOKEN = re.compile(r"[ \t\r\n]*(?:(==|!=|[=!(),<>])|([^=!(),<> \t\r\n\0]+)|(?:\0|\Z))")
_END = ("end", "")
_BINARY = {"=": EQUALS, "==": DOUBLE_EQUALS, "!=": NOT_EQUALS, ">": GREATER, "<": LESS, "in": IN, "notin": NOT_IN}


class _LabelParser:
    """Tokens are (type, text): a symbol is its own type, everything else is `id`; `in` and `notin` are ordinary
    identifiers except where an operator stands."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        self.at = 0
        position = 0
        while True:
            found = _TOKEN.match(text, position)
            symbol, word = found.groups() if found else (None, None)
            if found is None or not (symbol or word):
                break
            position = found.end()
            self.tokens.append((symbol, symbol) if symbol else ("id", word or ""))
        self.tokens.append(_END)

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else _END

    def take(self) -> tuple[str, str]:
        self.at += 1
        return self.tokens[self.at - 1]

    def parse(self) -> list[Requirement]:
        found: list[Requirement] = []
        while True:
            kind, text = self.peek()
            if kind == "end":
                return found
            if kind not in ("id", "!"):
                raise SelectorError(f"found '{text}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self.requirement())
            except SelectorError as err:
                raise SelectorError(f"unable to parse requirement: {err}") from None
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
            raise SelectorError(f"found '{text}', expected: '=', '!=', '==', 'in', notin'")
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


# --- field selectors -------------------------------------------------------------------------------------------------


class FieldTerm(NamedTuple):
    field: str
    equal: bool
    value: str


class FieldSelector(NamedTuple):
    terms: tuple[FieldTerm, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.terms

    def matches(self, values: Mapping[str, str]) -> bool:
        """Against the selectable fields of an object; a field that is not there counts as empty."""
        return all((values.get(field, "") == value) is equal for field, equal, value in self.terms)

    def matches_object(self, kind: Kind, obj: Object) -> bool:
        """The same, reading only the fields that are asked for."""
        return all((field_value(kind, obj, field) == value) is equal for field, equal, value in self.terms)

    def exact(self, field: str) -> str | None:
        """The only value of `field` that can match, if there is one."""
        for term in self.terms:
            if term.field == field and term.equal:
                return term.value
        return None

    def __str__(self) -> str:
        return ",".join(f"{f}{'=' if equal else '!='}{_escape(v)}" for f, equal, v in self.terms)


@lru_cache(maxsize=1024)
def parse_fields(text: str) -> FieldSelector:
    """The selector in its text form (`fieldSelector=` of a list), any field label; raises SelectorError."""
    terms = []
    for part in sorted(_split_terms(text)):
        if not part:
            continue
        found = _FIELD_OPERATOR.search(part)
        if found is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        terms.append(FieldTerm(part[: found.start()], found.group() != "!=", _unescape(part[found.end() :])))
    return FieldSelector(tuple(terms))


def convert_fields(selector: FieldSelector, kind: Kind, gvk: GVK) -> FieldSelector:
    """Field labels of the request's version to those of `field_values`; raises SelectorError for one it has not."""
    if not selector.terms:
        return selector
    return FieldSelector(tuple(FieldTerm(_convert_label(kind, gvk, t.field), t.equal, t.value) for t in selector.terms))


def field_values(kind: Kind, obj: Object) -> dict[str, str]:
    """Every selectable field of an object in its storage version."""
    values = {label: get(obj) for label, get in _GETTERS.get(kind.key, {}).items()} if not kind.custom else {}
    metadata = obj.get("metadata") or {}
    values["metadata.name"] = metadata.get("name", "")
    if kind.namespaced:
        values["metadata.namespace"] = metadata.get("namespace", "")
    return values


def field_value(kind: Kind, obj: Object, label: str) -> str:
    """One selectable field, empty when the kind has no such field."""
    if label == "metadata.name":
        return str((obj.get("metadata") or {}).get("name", ""))
    if label == "metadata.namespace":
        return str((obj.get("metadata") or {}).get("namespace", "")) if kind.namespaced else ""
    getter = None if kind.custom else _GETTERS.get(kind.key, {}).get(label)
    return getter(obj) if getter else ""


_FIELD_OPERATOR = re.compile("!=|==|=")
_TERM = re.compile(r"(?:[^\\,]|\\.|\\\Z)+", re.DOTALL)
_ESCAPE = str.maketrans({"\\": "\\\\", ",": "\\,", "=": "\\="})


def _escape(value: str) -> str:
    return value.translate(_ESCAPE)


def _split_terms(text: str) -> list[str]:
    """At commas, except those behind a backslash."""
    if "\\" not in text:
        return text.split(",")
    return _TERM.findall(text)


def _unescape(text: str) -> str:
    if not any(ch in text for ch in "\\,="):
        return text
    out = []
    characters = iter(text)
    for ch in characters:
        if ch == "\\":
            escaped = next(characters, "")
            if escaped not in ("\\", ",", "="):
                raise SelectorError(f"invalid field selector: invalid escape sequence: \\{escaped}")
            out.append(escaped)
        elif ch in ",=":
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(ch)}")
        else:
            out.append(ch)
    return "".join(out)


def _path(*names: str, none: str = "") -> Callable[[Object], str]:
    """Reads a nested field as text; `none` stands for one that is not there (Go's zero value)."""

    def get(obj: Any) -> str:
        for name in names:
            obj = obj.get(name)
            if obj is None:
                return none
        return obj if isinstance(obj, str) else str(obj)

    return get


def _unschedulable(obj: Object) -> str:
    return "true" if (obj.get("spec") or {}).get("unschedulable") else "false"


def _event_source(obj: Object) -> str:
    return (obj.get("source") or {}).get("component") or obj.get("reportingComponent") or ""


_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

# What each kind offers beside its name and namespace, read from the storage version.
_GETTERS: dict[str, dict[str, Callable[[Object], str]]] = {
    "/Pod": {
        "spec.nodeName": _path("spec", "nodeName"),
        "spec.restartPolicy": _path("spec", "restartPolicy"),
        "spec.schedulerName": _path("spec", "schedulerName"),
        "spec.serviceAccountName": _path("spec", "serviceAccountName"),
        "status.phase": _path("status", "phase"),
        "status.podIP": _path("status", "podIP"),
        "status.nominatedNodeName": _path("status", "nominatedNodeName"),
    },
    "/Node": {"spec.unschedulable": _unschedulable},
    "/Namespace": {"status.phase": _path("status", "phase")},
    "/Secret": {"type": _path("type")},
    "/ReplicationController": {"status.replicas": _path("status", "replicas", none="0")},
    "/Event": {
        **{f"involvedObject.{name}": _path("involvedObject", name) for name in _INVOLVED},
        "reason": _path("reason"),
        "reportingComponent": _path("reportingComponent"),
        "source": _event_source,
        "type": _path("type"),
    },
    "batch/Job": {"status.successful": _path("status", "succeeded", none="0")},
    "certificates.k8s.io/CertificateSigningRequest": {"spec.signerName": _path("spec", "signerName")},
}

_NAME, _NAMESPACE = "metadata.name", "metadata.namespace"
_EVENTS_GROUP = {
    **{f"regarding.{name}": f"involvedObject.{name}" for name in _INVOLVED},
    "reason": "reason",
    "reportingController": "reportingComponent",
    "type": "type",
}


def _same(*labels: str) -> dict[str, str]:
    return {label: label for label in labels}


# Kinds whose labels are not just name and namespace: request label -> our label, and the text for an unknown one.
_UNKNOWN = "field label not supported: {0}"
_LABELS: dict[tuple[str, str, str], tuple[dict[str, str], str]] = {
    ("", "v1", "Pod"): (
        {**_same(_NAME, _NAMESPACE, "status.podIPs", *_GETTERS["/Pod"]), "spec.host": "spec.nodeName"}, _UNKNOWN,
    ),
    ("", "v1", "Node"): (_same(_NAME, *_GETTERS["/Node"]), _UNKNOWN),
    ("", "v1", "Namespace"): (_same(_NAME, *_GETTERS["/Namespace"]), _UNKNOWN),
    ("", "v1", "Secret"): (_same(_NAME, _NAMESPACE, "type"), _UNKNOWN),
    ("", "v1", "ReplicationController"): (_same(_NAME, _NAMESPACE, "status.replicas"), _UNKNOWN),
    ("", "v1", "Event"): (_same(_NAME, _NAMESPACE, *_GETTERS["/Event"]), _UNKNOWN),
    ("events.k8s.io", "v1", "Event"): ({**_same(_NAME, _NAMESPACE), **_EVENTS_GROUP}, _UNKNOWN),
    ("events.k8s.io", "v1beta1", "Event"): ({**_same(_NAME, _NAMESPACE), **_EVENTS_GROUP}, _UNKNOWN),
    ("batch", "v1", "Job"): (
        _same(_NAME, _NAMESPACE, "status.successful"), "field label {1} not supported for batchv1.Job",
    ),
    ("batch", "v1beta1", "CronJob"): (
        _same(_NAME, _NAMESPACE, "status.successful"), 'field label {1} not supported for "CronJob"',
    ),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest"): (_same(_NAME, "spec.signerName"), _UNKNOWN),
    ("certificates.k8s.io", "v1beta1", "CertificateSigningRequest"): (_same(_NAME, "spec.signerName"), _UNKNOWN),
}  # fmt: skip
_ORDINARY = (_same(_NAME, _NAMESPACE), '{1} is not a known field selector: only "metadata.name", "metadata.namespace"')
_CUSTOM = (_same(_NAME, _NAMESPACE), _UNKNOWN)
_CUSTOM_CLUSTER = (_same(_NAME), _UNKNOWN)


def _convert_label(kind: Kind, gvk: GVK, label: str) -> str:
    if kind.custom:
        labels, text = _CUSTOM if kind.namespaced else _CUSTOM_CLUSTER
    else:
        labels, text = _LABELS.get((gvk.group, gvk.version, gvk.kind), _ORDINARY)
    known = labels.get(label)
    if known is None:
        raise SelectorError(text.format(label, go_quote(label)))
    return known
