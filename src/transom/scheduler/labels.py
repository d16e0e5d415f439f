"""Labels of nodes as columns of integers, and node selectors evaluated on whole columns.

A column is created when its key is first used. The number in a row is the index of the node's
value, or -1 if the node does not have the label.
"""

from __future__ import annotations

from collections.abc import Sequence

from transom.machinery.objects import Object
from transom.machinery.selectors import (
    EQUALS,
    EXISTS,
    IN,
    NODE_SELECTOR_OPERATORS,
    NOT_IN,
    Requirement,
    SelectorError,
)
from transom.scheduler.arrays import Codes, Ints, Mask, Rows, np
from transom.scheduler.pods import PodShape

NAME_FIELD = "metadata.name"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_FIELDS = "\0fields/"  # prefix of columns for fields; not a valid label key


class LabelColumn:
    __slots__ = ("codes", "index", "values")

    def __init__(self, capacity: int) -> None:
        self.codes: Codes = np.full(capacity, -1, np.int32)
        self.index: dict[str, int] = {}
        self.values: list[str] = []

    def set(self, row: int, value: str | None) -> None:
        if value is None:
            self.codes[row] = -1
            return
        code = self.index.get(value)
        if code is None:
            code = self.index[value] = len(self.values)
            self.values.append(value)
        self.codes[row] = code

    def grow(self, capacity: int) -> None:
        self.codes = np.concatenate([self.codes, np.full(capacity - len(self.codes), -1, np.int32)])


class LabelColumns:
    """There is a column for each key that a node has and a pod has asked for. Keys that no node has
    share an empty one: pods can name any number of them.
    """

    def __init__(self) -> None:
        self._capacity = 0
        self._columns: dict[str, LabelColumn] = {}
        self._labels: dict[int, dict[str, str]] = {}
        self._nodes_with: dict[str, int] = {}  # by key
        self._empty = LabelColumn(0)

    def grow(self, capacity: int) -> None:
        self._capacity = capacity
        self._empty = LabelColumn(capacity)
        for column in self._columns.values():
            column.grow(capacity)

    def set(self, row: int, name: str | None, labels: dict[str, str]) -> None:
        """Set the labels of a row; without a name, the row has no node."""
        known = dict(labels)
        if name is not None:
            known[_FIELDS + NAME_FIELD] = name
        self._count(self._labels.get(row, {}), known)
        self._labels[row] = known
        for key, column in self._columns.items():
            column.set(row, known.get(key))

    def _count(self, before: dict[str, str], now: dict[str, str]) -> None:
        for key in now.keys() - before.keys():
            self._nodes_with[key] = self._nodes_with.get(key, 0) + 1
        for key in before.keys() - now.keys():
            self._nodes_with[key] -= 1
            if not self._nodes_with[key]:
                del self._nodes_with[key]
                self._columns.pop(key, None)

    def has_key(self, key: str) -> bool:
        """Whether any node has the label."""
        return key in self._nodes_with

    def column(self, key: str) -> LabelColumn:
        if key not in self._nodes_with:
            return self._empty
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = LabelColumn(self._capacity)
            for row, labels in self._labels.items():
                value = labels.get(key)
                if value is not None:
                    column.set(row, value)
        return column

    def codes(self, key: str) -> Codes:
        return self.column(key).codes

    def matches(self, requirement: Requirement, rows: Rows) -> Mask:
        """The rows whose labels satisfy the requirement."""
        column = self.column(requirement.key)
        codes = column.codes[rows]
        operator = requirement.operator
        if operator == EXISTS:
            return codes >= 0
        if operator in (IN, EQUALS, NOT_IN):
            wanted = [column.index[v] for v in requirement.values if v in column.index]
            found = codes == wanted[0] if len(wanted) == 1 else np.isin(codes, wanted)
            return ~found if operator == NOT_IN else found
        # The last entry is for -1, rows without the label.
        key = requirement.key
        table = np.array(
            [*(requirement.matches({key: v}) for v in column.values), requirement.matches({})],
            np.bool_,
        )
        return table[codes]

    def effective(self, requirement: Requirement) -> _Effective:
        """What of a requirement makes a difference for the nodes that exist. A pod may have
        thousands of requirements that differ only in values that no node has.
        """
        if not self.has_key(requirement.key):
            return "", NOT_IN if requirement.matches({}) else IN, ()
        if requirement.operator not in (IN, EQUALS, NOT_IN):
            return requirement
        operator = NOT_IN if requirement.operator == NOT_IN else IN
        index = self.column(requirement.key).index
        return requirement.key, operator, tuple([v for v in requirement.values if v in index])


_Effective = Requirement | tuple[str, str, tuple[str, ...]]


class NodeTerm:
    """A term of a node selector. An invalid term matches nothing."""

    def __init__(self, term: Object) -> None:
        self.problem = ""
        self.requirements: list[Requirement] = []
        try:
            for expression in term.get("matchExpressions") or ():
                self.requirements.append(_label_requirement(expression))
            for expression in term.get("matchFields") or ():
                self.requirements.append(_field_requirement(expression))
        except SelectorError as wrong:
            self.problem = str(wrong)

    def is_impossible(self, labels: LabelColumns) -> bool:
        """Whether it requires a label that no node has."""
        return bool(self.problem) or any(
            not labels.has_key(requirement.key) and not requirement.matches({})
            for requirement in self.requirements
        )

    def distinct(self, labels: LabelColumns) -> dict[_Effective, Requirement]:
        """One of the requirements for each difference that they make."""
        return {labels.effective(requirement): requirement for requirement in self.requirements}


class _TermMasks:
    """The rows that terms match; what several of them have in common is evaluated once."""

    def __init__(self, labels: LabelColumns, rows: Rows) -> None:
        self._labels = labels
        self._rows = rows
        self._requirements: dict[_Effective, Mask] = {}
        self._terms: dict[frozenset[_Effective], Mask] = {}

    def mask(self, term: NodeTerm) -> Mask:
        if term.problem:
            return np.zeros(len(self._rows), np.bool_)
        distinct = term.distinct(self._labels)
        key = frozenset(distinct)
        found = self._terms.get(key)
        if found is None:
            found = np.ones(len(self._rows), np.bool_)
            for effective, requirement in distinct.items():
                found &= self._requirement(effective, requirement)
            self._terms[key] = found
        return found

    def _requirement(self, effective: _Effective, requirement: Requirement) -> Mask:
        found = self._requirements.get(effective)
        if found is None:
            found = self._requirements[effective] = self._labels.matches(requirement, self._rows)
        return found


def _label_requirement(expression: Object) -> Requirement:
    operator, values = expression.get("operator", ""), tuple(expression.get("values") or ())
    if operator not in NODE_SELECTOR_OPERATORS:
        raise SelectorError(f'"{operator}" is not a valid node selector operator')
    if operator in ("In", "NotIn") and not values:
        raise SelectorError("for 'in', 'notin' operators, values set can't be empty")
    if operator in ("Exists", "DoesNotExist") and values:
        raise SelectorError("values set must be empty for exists and does not exist")
    if operator in ("Gt", "Lt"):
        if len(values) != 1:
            raise SelectorError("for 'Gt', 'Lt' operators, exactly one value is required")
        try:
            int(values[0])
        except ValueError:
            raise SelectorError("for 'Gt', 'Lt' operators, the value must be an integer") from None
    return Requirement(expression.get("key", ""), NODE_SELECTOR_OPERATORS[operator], values)


def _field_requirement(expression: Object) -> Requirement:
    operator, values = expression.get("operator", ""), tuple(expression.get("values") or ())
    if operator not in ("In", "NotIn"):
        raise SelectorError(f'"{operator}" is not a valid node field selector operator')
    if len(values) != 1:
        raise SelectorError(
            f'unexpected number of value ({len(values)}) for node field selector operator "{operator}"'
        )
    return Requirement(
        _FIELDS + expression.get("key", ""), NODE_SELECTOR_OPERATORS[operator], values
    )


def node_terms(terms: Sequence[Object] | None) -> list[NodeTerm]:
    """The terms of a node selector; empty ones, which match nothing, are left out."""
    return [
        NodeTerm(term)
        for term in terms or ()
        if term.get("matchExpressions") or term.get("matchFields")
    ]


class PreferredTerms:
    """Preferred scheduling terms with their weights."""

    def __init__(self, terms: Sequence[Object]) -> None:
        wanted = [
            t
            for t in terms
            if t.get("weight")
            and (
                (t.get("preference") or {}).get("matchExpressions")
                or (t.get("preference") or {}).get("matchFields")
            )
        ]
        self.terms = [(NodeTerm(t["preference"]), t["weight"]) for t in wanted]
        self.problem = next((term.problem for term, _ in self.terms if term.problem), "")

    def add_to(self, scores: Ints, labels: LabelColumns, rows: Rows) -> None:
        masks = _TermMasks(labels, rows)
        for term, weight in self.terms:
            if not term.is_impossible(labels):
                scores += masks.mask(term) * weight


def parsed_required_terms(shape: PodShape) -> list[NodeTerm] | None:
    """The terms of the required node affinity of a pod; parsed once."""
    required = (shape.node_affinity or {}).get(REQUIRED)
    if required is None:
        return None
    terms: list[NodeTerm] | None = shape.memo.get(REQUIRED)
    if terms is None:
        terms = shape.memo[REQUIRED] = node_terms(required.get("nodeSelectorTerms"))
    return terms


def preferred_terms(shape: PodShape) -> PreferredTerms:
    """Those of the preferred node affinity; parsed once."""
    terms: PreferredTerms | None = shape.memo.get(PREFERRED)
    if terms is None:
        given = (shape.node_affinity or {}).get(PREFERRED) or []
        terms = shape.memo[PREFERRED] = PreferredTerms(given)
    return terms


def any_term(terms: Sequence[NodeTerm], labels: LabelColumns, rows: Rows) -> Mask:
    """The rows that match at least one term."""
    out = np.zeros(len(rows), np.bool_)
    values: dict[str, list[str]] = {}  # of terms that require one of some values of a label, by key
    others: list[NodeTerm] = []
    for term in terms:
        if term.is_impossible(labels):
            continue
        first = term.requirements[0]
        if len(term.requirements) == 1 and first.operator in (IN, EQUALS):
            values.setdefault(first.key, []).extend(first.values)
        else:
            others.append(term)
    for key, wanted in values.items():
        out |= labels.matches(Requirement(key, IN, tuple(wanted)), rows)
    masks = _TermMasks(labels, rows)
    for term in others:
        if out.all():
            break
        out |= masks.mask(term)
    return out


def has_labels(wanted: dict[str, str], labels: LabelColumns, rows: Rows) -> Mask:
    out = np.ones(len(rows), np.bool_)
    for key, value in wanted.items():
        if not labels.has_key(key):
            return np.zeros(len(rows), np.bool_)
        out &= labels.matches(Requirement(key, EQUALS, (value,)), rows)
    return out
