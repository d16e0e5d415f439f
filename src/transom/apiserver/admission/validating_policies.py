"""ValidatingAdmissionPolicy: evaluates the expressions of policies; a failed one denies the request,
warns, or is audited, as the binding says.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple

import orjson

from transom.apiserver.admission.plugin import ValidatingPlugin
from transom.apiserver.admission.policy_source import (
    EXCLUDED,
    PolicyBinding,
    PolicyConfigError,
    PolicyHook,
    PolicySource,
    request_value,
)
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.offload import compute_in_worker
from transom.apiserver.core.request_authorizer import Decide, RequestAuthorizer
from transom.apiserver.core.resources import Resource
from transom.apiserver.webhooks.versioned_object import VersionedObject, seen_by
from transom.kit.lazy import lazy_import
from transom.kit.time_slice import TimeSlice
from transom.machinery.cel.access import Authorize
from transom.machinery.cel.brief import BriefBudget, BriefBudgetSpentError
from transom.machinery.errors import ApiError

if TYPE_CHECKING:
    from transom.machinery.cel import conditions
    from transom.machinery.cel.policies import (
        CompiledValidatingPolicy,
        PolicyDecision,
        PolicyResult,
    )
else:
    conditions = lazy_import("transom.machinery.cel.conditions")

_FAILURE = "validation.policy.admission.k8s.io/validation_failure"
_LONGEST_ANNOTATION = 10 * 1024
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}


class _Denial(NamedTuple):
    policy: str
    binding: str  # "" if the policy itself cannot be applied
    message: str
    reason: str = "Invalid"


class _Evaluation:
    """The state of one request."""

    def __init__(self, attributes: Attributes, authorize: Authorize) -> None:
        self.attributes = attributes
        self.authorize = authorize
        self.brief = BriefBudget()
        self.denials: list[_Denial] = []
        self.shown: dict[Resource, VersionedObject] = {}

    async def show(self, target: Resource) -> VersionedObject:
        found = self.shown.get(target)
        if found is None:
            found = self.shown[target] = await seen_by(self.attributes, target)
        return found

    def config_error(
        self,
        hook: PolicyHook[CompiledValidatingPolicy],
        binding: PolicyBinding | None,
        problem: PolicyConfigError,
    ) -> None:
        if hook.ignore_failure:
            return
        what, name = ("policy", "") if binding is None else ("binding", binding.name)
        self.denials.append(_Denial(hook.name, name, f"failed to configure {what}: {problem}"))


class ValidatingAdmissionPolicy(ValidatingPlugin):
    name = "ValidatingAdmissionPolicy"
    thread_safe = False

    def __init__(self, source: PolicySource[CompiledValidatingPolicy], decide: Decide) -> None:
        self._source = source
        self._decide = decide

    def handles(self, resource: Resource, _operation: str, _subresource: str) -> bool:
        return resource.kind.key not in EXCLUDED

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        if not self._source.any:
            return None
        plan = self._source.plan(attributes)
        return self._run(plan, attributes) if plan else None

    async def _run(
        self, plan: tuple[PolicyHook[CompiledValidatingPolicy], ...], attributes: Attributes
    ) -> None:
        state = _Evaluation(attributes, RequestAuthorizer(self._decide, attributes.ctx.user))
        time_slice = TimeSlice()
        for hook in plan:
            try:
                target = await self._source.match(hook.constraints, attributes)
                if target is None:
                    continue
                param = self._source.param_resource(hook.policy)
            except PolicyConfigError as problem:
                state.config_error(hook, None, problem)
                continue
            annotations: dict[str, list[str]] = {}
            for binding in hook.bindings:
                await time_slice.pause()
                try:
                    await self._bound(state, hook, binding, target, param, annotations)
                except PolicyConfigError as problem:
                    state.config_error(hook, binding, problem)
            for key, values in annotations.items():
                attributes.ctx.annotations.setdefault(f"{hook.name}/{key}", ", ".join(values))
        if state.denials:
            raise _denied(attributes, state.denials[0])

    async def _bound(
        self,
        state: _Evaluation,
        hook: PolicyHook[CompiledValidatingPolicy],
        binding: PolicyBinding,
        target: Resource,
        param: Resource | None,
        annotations: dict[str, list[str]],
    ) -> None:
        attributes, source = state.attributes, self._source
        if (
            binding.resources is not None
            and await source.match(binding.resources, attributes) is None
        ):
            return
        params = await source.params(param, binding, attributes)
        if not params:
            return
        compiled = await source.compiled(hook, attributes)
        shown = await state.show(target)
        given = conditions.AdmissionInput(
            shown.obj,
            shown.old,
            request_value(attributes, target, shown),
            source.namespace_object(attributes),
            None,
            state.authorize,
        )
        for one in params:
            result = await self._evaluate(state, compiled, given._replace(params=one))
            for i, decision in enumerate(result.decisions):
                if decision.denied:
                    _act(state, hook.name, binding, i, decision)
            for key, value in result.annotations:
                held = annotations.setdefault(key, [])
                value = value.encode()[:_LONGEST_ANNOTATION].decode("utf-8", "ignore")
                if value not in held:
                    held.append(value)
            for text in result.annotation_errors:
                state.denials.append(_Denial(hook.name, binding.name, text))

    async def _evaluate(
        self,
        state: _Evaluation,
        compiled: CompiledValidatingPolicy,
        given: conditions.AdmissionInput,
    ) -> PolicyResult:
        """On the event loop if it takes a few milliseconds, otherwise in a worker thread."""
        try:
            return compiled.validate(given, state.brief)
        except BriefBudgetSpentError:
            return await compute_in_worker(
                self._source.objects.workers,
                state.attributes.ctx,
                lambda: compiled.validate(given, None),
            )


def _act(
    state: _Evaluation, policy: str, binding: PolicyBinding, index: int, decision: PolicyDecision
) -> None:
    ctx = state.attributes.ctx
    actions = binding.spec.get("validationActions") or ()
    for action in actions:
        if action == "Deny":
            state.denials.append(
                _Denial(policy, binding.name, decision.message, decision.reason or "Invalid")
            )
        elif action == "Audit":
            value = {
                "message": decision.message,
                "policy": policy,
                "binding": binding.name,
                "expressionIndex": index,
                "validationActions": actions,
            }
            ctx.annotations.setdefault(_FAILURE, orjson.dumps([value]).decode())
        elif action == "Warn":
            ctx.warn(
                f"Validation failed for ValidatingAdmissionPolicy '{policy}' with binding "
                f"'{binding.name}': {decision.message}"
            )


def _denied(attributes: Attributes, denial: _Denial) -> ApiError:
    binding = f" with binding '{denial.binding}'" if denial.binding else ""
    message = (
        f"ValidatingAdmissionPolicy '{denial.policy}'{binding} denied request: {denial.message}"
    )
    error = attributes.forbidden(message)
    return ApiError(
        _CODES.get(denial.reason, 422),
        denial.reason,
        error.message,
        {**(error.details or {}), "causes": [{"message": message}]},
    )
