"""Evaluates the expressions of admission policies and match conditions on one request, within cost
budgets (k8s.io/apiserver/pkg/admission/plugin/cel, plugin/webhook/matchconditions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from transom.kit.cel.errors import CelError
from transom.kit.cel.interpreter import EvaluationResult
from transom.kit.cel.types import struct_type
from transom.kit.cel.values import NONE, CelMap, Optional
from transom.kit.goquote import go_quote
from transom.machinery.cel.access import AccessQuery, Authorize
from transom.machinery.cel.admission import (
    CONDITION_RESULTS,
    AdmissionCompiler,
    AdmissionExpression,
)
from transom.machinery.cel.authorizer import AuthorizerValue, ResourceCheckValue
from transom.machinery.cel.brief import BriefBudget, BriefBudgetSpentError
from transom.machinery.cel.limits import (
    MATCH_CONDITIONS_COST_BUDGET,
    PER_CALL_LIMIT,
    RUNTIME_COST_BUDGET,
)
from transom.machinery.field import aggregate_text
from transom.machinery.objects import Object

_OUT_OF_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


class AdmissionInput(NamedTuple):
    """What the expressions of a policy see. `authorize` is None where they may not use the
    authorizer.
    """

    obj: Object | None
    old: Object | None
    request: Object
    namespace: Object | None
    params: Object | None
    authorize: Authorize | None


class OutOfBudgetError(Exception):
    """The expressions of a policy cost more than its budget."""


class Outcome(NamedTuple):
    value: Any
    error: str = ""


class ConditionEvaluator:
    """Evaluates expressions on one input. Each has its own limit, and all share the budget."""

    def __init__(
        self,
        variables: Mapping[str, AdmissionExpression],
        given: AdmissionInput,
        brief: BriefBudget | None,
        budget: int = RUNTIME_COST_BUDGET,
    ) -> None:
        self.remaining = budget
        self._brief = brief
        self._composed = 0  # the cost of variables that the current expression uses
        self._activation: dict[str, Any] = {
            "object": given.obj,
            "oldObject": given.old,
            "params": given.params,
            "request": given.request,
            "namespaceObject": given.namespace,
            "variables": _LazyVariables(self, variables),
        }
        if given.authorize is not None:
            request = given.request
            query = AccessQuery(
                group=request["requestResource"]["group"],
                resource=request["requestResource"]["resource"],
                subresource=request.get("subResource", ""),
                namespace=request.get("namespace", ""),
                name=request.get("name", ""),
            )
            self._activation["authorizer"] = AuthorizerValue(given.authorize, AccessQuery())
            self._activation["authorizer.requestResource"] = ResourceCheckValue(
                given.authorize, query
            )

    def evaluate(self, expression: AdmissionExpression) -> Outcome:
        """Raises OutOfBudgetError and BriefBudgetSpentError."""
        if expression.compiled is None:
            return Outcome(None, f"compilation error: {expression.problem}")
        found = self._run(expression)
        cost = self._composed + found.cost
        self._composed = 0
        if cost > self.remaining:
            self.remaining = -1
            raise OutOfBudgetError(_OUT_OF_BUDGET)
        self.remaining -= cost
        if found.error is not None:
            return Outcome(
                None, f"expression '{expression.source}' resulted in error: {found.error}"
            )
        return Outcome(found.value)

    def _run(self, expression: AdmissionExpression) -> EvaluationResult:
        assert expression.compiled is not None
        program, brief = expression.compiled.program, self._brief
        if brief is None:
            return program.evaluate(self._activation, PER_CALL_LIMIT)
        if expression.uses_authorizer:
            raise BriefBudgetSpentError
        return brief.evaluate(program, self._activation)

    def variable(self, name: str, expression: AdmissionExpression) -> Any:
        """Raises CelError."""
        if expression.compiled is None:
            raise CelError(
                f"composited variable {go_quote(name)} fails to compile: {expression.problem}"
            )
        found = self._run(expression)
        self._composed += found.cost
        if found.error is not None:
            raise CelError(f"composited variable {go_quote(name)} fails to evaluate: {found.error}")
        return found.value


class _LazyVariables(CelMap):
    """`variables`: each is evaluated on its first use."""

    __slots__ = ("_evaluator", "_expressions", "_known")
    cel_type = struct_type("kubernetes.variables")

    def __init__(
        self, evaluator: ConditionEvaluator, expressions: Mapping[str, AdmissionExpression]
    ) -> None:
        self._evaluator, self._expressions = evaluator, expressions
        self._known: dict[str, Any] = {}

    def find(self, key: Any) -> Optional:
        if key not in self._known:
            expression = self._expressions.get(key)
            if expression is None:
                return NONE
            try:
                self._known[key] = self._evaluator.variable(key, expression)
            except CelError as error:
                self._known[key] = error
        value = self._known[key]
        if isinstance(value, CelError):
            raise value
        return Optional(True, value)

    def is_set(self, key: Any) -> bool:
        return key in self._expressions

    def __iter__(self) -> Iterator[str]:
        return iter(self._expressions)

    def __len__(self) -> int:
        return len(self._expressions)


class MatchConditions:
    """The compiled match conditions of a webhook or a policy. `variables` are those of the policy.

    Kubernetes compiles them with the variables of the policy, but does not accept new ones that
    use them.
    """

    __slots__ = ("_expressions", "_ignore", "_variables")

    def __init__(
        self,
        conditions: Sequence[Object],
        compiler: AdmissionCompiler,
        *,
        ignore_failure: bool,
        variables: Mapping[str, AdmissionExpression] | None = None,
    ) -> None:
        self._expressions = [
            compiler.compile(condition.get("expression", ""), CONDITION_RESULTS, stored=True)
            for condition in conditions
        ]
        self._ignore = ignore_failure
        self._variables = variables or {}

    def match(self, given: AdmissionInput, brief: BriefBudget | None) -> Outcome:
        """Whether all conditions are true, or the error that the failure policy does not ignore.
        Raises BriefBudgetSpentError.
        """
        evaluator = ConditionEvaluator(
            self._variables, given._replace(namespace=None), brief, MATCH_CONDITIONS_COST_BUDGET
        )
        try:
            found = [evaluator.evaluate(expression) for expression in self._expressions]
        except OutOfBudgetError as problem:
            return Outcome(False) if self._ignore else Outcome(False, str(problem))
        if any(outcome.value is False for outcome in found):
            return Outcome(False)
        errors = [outcome.error for outcome in found if outcome.error]
        if not errors:
            return Outcome(True)
        return Outcome(False) if self._ignore else Outcome(False, aggregate_text(errors))
