"""Compiled admission policies: what a policy decides about one request
(k8s.io/apiserver/pkg/admission/plugin/policy).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from transom.machinery.cel.admission import (
    ANNOTATION_RESULTS,
    APPLY_RESULTS,
    CONDITION_RESULTS,
    JSON_PATCH_RESULTS,
    MESSAGE_RESULTS,
    AdmissionCompiler,
    AdmissionExpression,
)
from transom.machinery.cel.brief import BriefBudget
from transom.machinery.cel.conditions import (
    AdmissionInput,
    ConditionEvaluator,
    MatchConditions,
    Outcome,
    OutOfBudgetError,
)
from transom.machinery.cel.limits import MAX_MESSAGE_BYTES, RUNTIME_COST_BUDGET
from transom.machinery.cel.patches import (
    JsonPatchOperation,
    PatchTypeMismatch,
    check_object_types,
    patch_json,
)
from transom.machinery.objects import Object
from transom.machinery.releases import Release

INVALID: Final = "Invalid"


class PolicyDecision(NamedTuple):
    """The result of one validation of a policy."""

    denied: bool
    message: str = ""
    reason: str = ""


class PolicyResult(NamedTuple):
    decisions: tuple[PolicyDecision, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    annotation_errors: tuple[str, ...] = ()


class _PolicyBase:
    """What validating and mutating policies share: variables and match conditions."""

    def __init__(self, release: Release, policy: Object, *, composed: bool) -> None:
        spec = policy["spec"]
        self.ignore_failure = spec.get("failurePolicy") == "Ignore"
        self.compiler = AdmissionCompiler(
            release, params=spec.get("paramKind") is not None, composed=composed
        )
        self.variables: dict[str, AdmissionExpression] = {}
        for variable in spec.get("variables") or ():
            name = variable["name"]
            self.variables[name] = self.compiler.add_variable(
                name, variable.get("expression", ""), stored=True
            )
        conditions = spec.get("matchConditions")
        self.conditions = (
            MatchConditions(
                conditions,
                self.compiler,
                ignore_failure=self.ignore_failure,
                variables=self.variables,
            )
            if conditions
            else None
        )


class CompiledValidatingPolicy(_PolicyBase):
    def __init__(self, release: Release, policy: Object) -> None:
        super().__init__(release, policy, composed=True)
        spec, compiler = policy["spec"], self.compiler
        self._validations = spec.get("validations") or []
        self._expressions = [
            compiler.compile(v.get("expression", ""), CONDITION_RESULTS, stored=True)
            for v in self._validations
        ]
        self._messages = [
            compiler.compile(text, MESSAGE_RESULTS, authorizer=False, stored=True)
            if (text := v.get("messageExpression"))
            else None
            for v in self._validations
        ]
        self._annotations = [
            (a["key"], compiler.compile(a["valueExpression"], ANNOTATION_RESULTS, stored=True))
            for a in spec.get("auditAnnotations") or ()
        ]

    def validate(self, given: AdmissionInput, brief: BriefBudget | None) -> PolicyResult:
        """Raises BriefBudgetSpentError."""
        if self.conditions is not None:
            matched = self.conditions.match(given, brief)
            if matched.error:
                return self._failed(matched.error)
            if not matched.value:
                return PolicyResult()
        evaluator = ConditionEvaluator(self.variables, given, brief)
        try:
            outcomes = [evaluator.evaluate(expression) for expression in self._expressions]
        except OutOfBudgetError as problem:
            return self._failed(str(problem))
        without = given._replace(authorize=None)
        messages, problem_text = self._evaluate_messages(without, brief, evaluator.remaining)
        decisions = tuple(
            self._decide(validation, outcome, message, problem_text)
            for validation, outcome, message in zip(
                self._validations, outcomes, messages, strict=True
            )
        )
        return self._annotate(without, brief, decisions)

    def _failed(self, message: str) -> PolicyResult:
        return PolicyResult((PolicyDecision(not self.ignore_failure, message),))

    def _evaluate_messages(
        self, given: AdmissionInput, brief: BriefBudget | None, budget: int
    ) -> tuple[list[Outcome | None], str]:
        evaluator = ConditionEvaluator(self.variables, given, brief, budget)
        try:
            return [m and evaluator.evaluate(m) for m in self._messages], ""
        except OutOfBudgetError as problem:
            return [None] * len(self._messages), f"failed messageExpression: {problem}"

    def _decide(
        self, validation: Object, outcome: Outcome, message: Outcome | None, problem: str
    ) -> PolicyDecision:
        if outcome.error or problem:
            return PolicyDecision(not self.ignore_failure, outcome.error or problem)
        if outcome.value is True:
            return PolicyDecision(False)
        text = ""
        if message is not None and isinstance(message.value, str):
            text = message.value.strip()
            if "\n" in text or len(text.encode("utf-8", "replace")) > MAX_MESSAGE_BYTES:
                text = ""
        text = text or (validation.get("message") or "").strip()
        text = text or f"failed expression: {validation.get('expression', '').strip()}"
        return PolicyDecision(True, text, validation.get("reason") or INVALID)

    def _annotate(
        self,
        given: AdmissionInput,
        brief: BriefBudget | None,
        decisions: tuple[PolicyDecision, ...],
    ) -> PolicyResult:
        evaluator = ConditionEvaluator(self.variables, given, brief)
        values: list[tuple[str, str]] = []
        errors: list[str] = []
        try:
            for key, expression in self._annotations:
                outcome = evaluator.evaluate(expression)
                if outcome.error:
                    if not self.ignore_failure:
                        errors.append(outcome.error)
                elif isinstance(outcome.value, str) and outcome.value.strip():
                    values.append((key, outcome.value.strip()))
        except OutOfBudgetError as problem:
            return self._failed(str(problem))
        return PolicyResult(decisions, tuple(values), tuple(errors))


class MutationError(Exception):
    """A mutation cannot be applied; the text is that of Kubernetes."""


class CompiledMutation(NamedTuple):
    json_patch: bool
    expression: AdmissionExpression


class CompiledMutatingPolicy(_PolicyBase):
    def __init__(self, release: Release, policy: Object) -> None:
        super().__init__(release, policy, composed=True)
        spec = policy["spec"]
        self.reinvocable = spec.get("reinvocationPolicy") == "IfNeeded"
        self.mutations = [self._mutation(m) for m in spec.get("mutations") or ()]

    def _mutation(self, given: Object) -> CompiledMutation:
        json_patch = given.get("patchType") == "JSONPatch"
        held = given.get("jsonPatch" if json_patch else "applyConfiguration") or {}
        return CompiledMutation(
            json_patch,
            self.compiler.compile(
                held.get("expression", ""),
                JSON_PATCH_RESULTS if json_patch else APPLY_RESULTS,
                patches=True,
                stored=True,
            ),
        )

    def matches(self, given: AdmissionInput, brief: BriefBudget | None) -> Outcome:
        """Raises BriefBudgetSpentError."""
        return Outcome(True) if self.conditions is None else self.conditions.match(given, brief)

    def patch(
        self, mutation: CompiledMutation, given: AdmissionInput, brief: BriefBudget | None
    ) -> Any:
        """The operations of a JSON patch, or an apply configuration. Raises MutationError and
        BriefBudgetSpentError.
        """
        if mutation.expression.compiled is None:
            raise MutationError(mutation.expression.problem)
        evaluator = ConditionEvaluator(self.variables, given, brief, RUNTIME_COST_BUDGET)
        try:
            outcome = evaluator.evaluate(mutation.expression)
        except OutOfBudgetError as problem:
            raise MutationError(str(problem)) from None
        if outcome.error:
            raise MutationError(outcome.error)
        try:
            if mutation.json_patch:
                return [_operation(item) for item in outcome.value]
            check_object_types(outcome.value)
            return patch_json(outcome.value)
        except PatchTypeMismatch as problem:
            raise MutationError(f"type mismatch: {problem}") from None


def _operation(item: Any) -> Object:
    assert isinstance(item, JsonPatchOperation)
    fields = item.fields
    out: Object = {"op": fields.get("op", ""), "path": fields.get("path", "")}
    if fields.get("from"):
        out["from"] = fields["from"]
    if "value" in fields:
        check_object_types(fields["value"])
        try:
            out["value"] = patch_json(fields["value"])
        except ValueError as problem:
            raise MutationError(
                "JSONPath valueExpression evaluated to a type that could not marshal to JSON: "
                f"{problem}"
            ) from None
    return out
