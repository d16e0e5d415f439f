"""Labels of nodes as columns of small integers, and node selectors evaluated on whole columns at once.

A column exists from the moment somebody asks for its key. The number in a row says which of the column's values the node
has, -1 that it lacks the label.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transom.machinery.objects import Object
from transom.machinery.selectors import (
    DOES_NOT_EXIST,
    EQUALS,
    EXISTS,
    GREATER,
    IN,
    LESS,
    NOT_IN,
    Requirement,
    SelectorError,
)
from transom.scheduler.arrays import Codes, Mask, Rows

NAME_FIELD = "metadata.name"
_FIELDS = "\0fields/"  # columns of fields live beside those of labels; no label can have such a key
_OPERATORS = {"In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": DOES_NOT_EXIST, "Gt": GREATER, "Lt": LESS}


class Column:
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
    def __init__(self) -> None:
        self._capacity = 0
        self._columns: dict[str, Column] = {}
        self._labels: dict[int, dict[str, str]] = {}

    def grow(self, capacity: int) -> None:
        self._capacity = capacity
        for column in self._columns.values():
            column.grow(capacity)

    def set(self, row: int, name: str | None, labels: dict[str, str]) -> None:
        """The labels of the node in this row; without a name there is no node."""
        known = dict(labels)
        if name is not None:
            known[_FIELDS + NAME_FIELD] = name
        self._labels[row] = known
        for key, column in self._columns.items():
            column.set(row, known.get(key))

    def column(self, key: str) -> Column:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = Column(self._capacity)
            for row, labels in self._labels.items():
                value = labels.get(key)
                if value is not None:
                    column.set(row, value)
        return column

    def codes(self, key: str) -> Codes:
        return self.column(key).codes

    def holds(self, requirement: Requirement, rows: Rows) -> Mask:
        """Where a requirement on a label holds."""
        column = self.column(requirement.key)
        codes = column.codes[rows]
        operator = requirement.operator
        if operator == EXISTS:
            return codes >= 0
        if operator in (IN, EQUALS, NOT_IN):
            wanted = [column.index[v] for v in requirement.values if v in column.index]
            found = codes == wanted[0] if len(wanted) == 1 else np.isin(codes, wanted)
            return ~found if operator == NOT_IN else found
        # The last entry answers for -1, rows without the label.
        key = requirement.key
        table = np.array([*(requirement.matches({key: v}) for v in column.values), requirement.matches({})], np.bool_)
        return table[codes]


class NodeTerm:
    """A term of a node selector. One that cannot be read never matches."""

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

    def mask(self, labels: LabelColumns, rows: Rows) -> Mask:
        if self.problem:
            return np.zeros(len(rows), np.bool_)
        out = np.ones(len(rows), np.bool_)
        for requirement in self.requirements:
            out &= labels.holds(requirement, rows)
        return out


def _label_requirement(expression: Object) -> Requirement:
    operator, values = expression.get("operator", ""), tuple(expression.get("values") or ())
    if operator not in _OPERATORS:
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
    return Requirement(expression.get("key", ""), _OPERATORS[operator], values)


def _field_requirement(expression: Object) -> Requirement:
    operator, values = expression.get("operator", ""), tuple(expression.get("values") or ())
    if operator not in ("In", "NotIn"):
        raise SelectorError(f'"{operator}" is not a valid node field selector operator')
    if len(values) != 1:
        raise SelectorError(f'unexpected number of value ({len(values)}) for node field selector operator "{operator}"')
    return Requirement(_FIELDS + expression.get("key", ""), _OPERATORS[operator], values)


def node_terms(terms: Sequence[Object] | None) -> list[NodeTerm]:
    """The terms of a node selector; empty ones match nothing and are left out."""
    return [NodeTerm(term) for term in terms or () if term.get("matchExpressions") or term.get("matchFields")]


def any_term(terms: Sequence[NodeTerm], labels: LabelColumns, rows: Rows) -> Mask:
    """Where at least one term matches."""
    out = np.zeros(len(rows), np.bool_)
    for term in terms:
        out |= term.mask(labels, rows)
    return out


def has_labels(wanted: dict[str, str], labels: LabelColumns, rows: Rows) -> Mask:
    out = np.ones(len(rows), np.bool_)
    for key, value in wanted.items():
        out &= labels.holds(Requirement(key, EQUALS, (value,)), rows)
    return out
