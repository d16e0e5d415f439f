"""MutatingAdmissionPolicy: policies change objects with apply configurations or JSON patches.

If a policy changes something, the whole mutating chain runs once more; the second round applies only
policies that request it (`reinvocationPolicy: IfNeeded`) and were applied before the last change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from operator import ne
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.admission.policy_source import (
    EXCLUDED,
    PolicyBinding,
    PolicyConfigError,
    PolicyHook,
    PolicySource,
    request_value,
)
from transom.apiserver.admission.reinvocation import ReinvocationState, reinvocation_of
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.offload import compute_in_worker
from transom.apiserver.core.request_authorizer import Decide, RequestAuthorizer
from transom.apiserver.core.resources import Resource
from transom.apiserver.webhooks.patching import apply_webhook_patch
from transom.apiserver.webhooks.versioned_object import (
    VersionedObject,
    WebhookChange,
    read_change,
    seen_by,
    take_over,
)
from transom.kit.lazy import lazy_import
from transom.kit.time_slice import TimeSlice
from transom.machinery import codec, errors
from transom.machinery.cel.brief import BriefBudget, BriefBudgetSpentError
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, copy_object
from transom.machinery.typed import Unmanageable

if TYPE_CHECKING:
    from transom.machinery import apply_configuration
    from transom.machinery.cel import conditions, policies
else:
    apply_configuration = lazy_import("transom.machinery.apply_configuration")
    conditions = lazy_import("transom.machinery.cel.conditions")
    policies = lazy_import("transom.machinery.cel.policies")

T = TypeVar("T")


class _PolicyError(NamedTuple):
    policy: str
    binding: str
    message: str
    reason: str = ""

    def __str__(self) -> str:
        if self.binding:
            return (
                f"policy '{self.policy}' with binding '{self.binding}' denied request: "
                f"{self.message}"
            )
        return f'policy "{self.policy}" denied request: {self.message}'


class _Applied(NamedTuple):
    """One policy, binding and parameter that apply to the request."""

    hook: PolicyHook[policies.CompiledMutatingPolicy]
    binding: PolicyBinding
    target: Resource
    param: Object | None

    @property
    def key(self) -> str:
        meta = (self.param or {}).get("metadata") or {}
        param = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
        return f"{self.hook.name}|{self.binding.name}|{param}"


class MutatingAdmissionPolicy(MutatingPlugin):
    name = "MutatingAdmissionPolicy"
    thread_safe = False

    def __init__(
        self, source: PolicySource[policies.CompiledMutatingPolicy], decide: Decide
    ) -> None:
        self._source = source
        self._decide = decide

    def handles(self, resource: Resource, operation: str, _subresource: str) -> bool:
        return operation != "DELETE" and resource.kind.key not in EXCLUDED

    def admit(self, attributes: Attributes) -> Awaitable[None] | None:
        if not self._source.any:
            return None
        plan = self._source.plan(attributes)
        return self._run(plan, attributes) if plan else None

    async def _run(
        self, plan: tuple[PolicyHook[policies.CompiledMutatingPolicy], ...], attributes: Attributes
    ) -> None:
        problems: list[_PolicyError] = []
        applied: list[_Applied] = []
        for hook in plan:
            problems += await self._collect(hook, attributes, applied)
        if applied:
            problems += await self._apply_all(applied, attributes)
        ignored = {hook.name for hook in plan if hook.ignore_failure}
        found = [problem for problem in problems if problem.policy not in ignored]
        if found:
            raise _denied(attributes, found)

    async def _collect(
        self,
        hook: PolicyHook[policies.CompiledMutatingPolicy],
        attributes: Attributes,
        applied: list[_Applied],
    ) -> list[_PolicyError]:
        source, problems = self._source, []
        time_slice = TimeSlice()
        try:
            target = await source.match(hook.constraints, attributes)
            if target is None:
                return []
            param = source.param_resource(hook.policy)
        except PolicyConfigError as problem:
            return [_PolicyError(hook.name, "", f"failed to configure policy: {problem}")]
        for binding in hook.bindings:
            await time_slice.pause()
            try:
                if (
                    binding.resources is not None
                    and await source.match(binding.resources, attributes) is None
                ):
                    continue
                for one in await source.params(param, binding, attributes):
                    applied.append(_Applied(hook, binding, target, one))
            except PolicyConfigError as problem:
                text = f"failed to configure binding: {problem}"
                problems.append(_PolicyError(hook.name, binding.name, text))
        return problems

    async def _apply_all(
        self, applied: list[_Applied], attributes: Attributes
    ) -> list[_PolicyError]:
        rounds = reinvocation_of(attributes)
        state = rounds.of_plugin(self.name)
        if rounds.second and await self._offload(
            attributes, partial(ne, attributes.obj, state.output)
        ):
            state.changed()  # by a plugin of the second round
        problems: list[_PolicyError] = []
        brief = BriefBudget()
        for one in applied:
            found = await self._apply(one, attributes, rounds, brief)
            if found is not None:
                problems.append(found)
        if rounds.wanted:
            state.output = await self._offload(attributes, partial(copy_object, attributes.obj))
        return problems

    async def _apply(
        self,
        one: _Applied,
        attributes: Attributes,
        rounds: ReinvocationState,
        brief: BriefBudget,
    ) -> _PolicyError | None:
        state = rounds.of_plugin(self.name)
        compiled = await self._source.compiled(one.hook, attributes)
        shown = await seen_by(attributes, one.target)
        given = self._input(attributes, one, shown)
        matched = await self._compute(attributes, brief, partial(compiled.matches, given))
        if matched.error:
            return _PolicyError(one.hook.name, one.binding.name, matched.error, policies.INVALID)
        if not matched.value or (rounds.second and one.key not in state.again):
            return None
        problem, changed = None, False
        if shown.obj is not None:
            problem, changed = await self._mutate(compiled, one, attributes, brief)
        if changed:
            state.changed()
            rounds.wanted = True
        if compiled.reinvocable:
            state.requested.add(one.key)
        return problem

    async def _mutate(
        self,
        compiled: policies.CompiledMutatingPolicy,
        one: _Applied,
        attributes: Attributes,
        brief: BriefBudget,
    ) -> tuple[_PolicyError | None, bool]:
        """Applies the mutations of a policy, in order. Returns the first problem, and whether the
        object changed.
        """
        problem, changed = None, False
        for mutation in compiled.mutations:
            shown = await seen_by(attributes, one.target)
            assert shown.obj is not None
            given = self._input(attributes, one, shown)
            try:
                patch = await self._compute(
                    attributes, brief, partial(compiled.patch, mutation, given)
                )
                copies = mutation.json_patch and any(step["op"] == "copy" for step in patch)
                change = await self._offload(
                    attributes,
                    partial(_read_patched, attributes, one.target, shown.obj, patch, mutation),
                    large=copies,
                )
            except policies.MutationError as error:
                found = _PolicyError(one.hook.name, one.binding.name, str(error), policies.INVALID)
                problem = problem or found
                continue
            if change is not None:
                changed = await take_over(attributes, one.target, change) or changed
        return problem, changed

    def _input(
        self, attributes: Attributes, one: _Applied, shown: VersionedObject
    ) -> conditions.AdmissionInput:
        return conditions.AdmissionInput(
            shown.obj,
            shown.old,
            request_value(attributes, one.target, shown),
            self._source.namespace_object(attributes),
            one.param,
            RequestAuthorizer(self._decide, attributes.ctx.user),
        )

    async def _offload(
        self, attributes: Attributes, work: Callable[[], T], *, large: bool = False
    ) -> T:
        """Computed in a worker thread if the request is large."""
        if not (large or attributes.ctx.large):
            return work()
        return await compute_in_worker(self._source.objects.workers, attributes.ctx, work)

    async def _compute(
        self,
        attributes: Attributes,
        brief: BriefBudget,
        work: Callable[[BriefBudget | None], T],
    ) -> T:
        """On the event loop if it takes a few milliseconds, otherwise in a worker thread."""
        try:
            return work(brief)
        except BriefBudgetSpentError:
            return await compute_in_worker(
                self._source.objects.workers, attributes.ctx, lambda: work(None)
            )


def _read_patched(
    attributes: Attributes,
    target: Resource,
    shown: Object,
    patch: Any,
    mutation: policies.CompiledMutation,
) -> WebhookChange | None:
    """The object with the patch, decoded and defaulted. A pure function that is slow for large
    objects.
    """
    new = _patched(target, shown, patch, json_patch=mutation.json_patch)
    if new is None:
        return None
    try:
        return read_change(attributes, target, shown, new)
    except codec.DecodeError as problem:
        raise errors.internal(problem.base) from None


def _patched(target: Resource, shown: Object, patch: Any, *, json_patch: bool) -> Object | None:
    """The object with the patch, None if a test operation of the patch failed."""
    if not json_patch:
        try:
            return apply_configuration.merge_apply_configuration(target.ops.schema, shown, patch)
        except (ValueError, Unmanageable) as problem:
            raise policies.MutationError(f"error applying patch: {problem}") from None
    try:
        return apply_webhook_patch(shown, patch)
    except ValueError as problem:
        if str(problem).endswith("test failed"):
            return None
        raise policies.MutationError(f"JSON Patch: {problem}") from None


def _denied(attributes: Attributes, problems: list[_PolicyError]) -> ApiError:
    error = attributes.forbidden("admission request denied by policy")
    return ApiError(
        403,
        problems[0].reason or error.reason,
        str(problems[0]),
        {**(error.details or {}), "causes": [{"message": str(problem)} for problem in problems]},
    )
