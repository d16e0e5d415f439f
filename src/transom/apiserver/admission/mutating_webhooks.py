"""MutatingAdmissionWebhook: calls webhooks one after the other; they may change the object with
JSON patches.

If one changes something, the whole mutating chain runs once more. The second round calls only
webhooks that request it (`reinvocationPolicy: IfNeeded`) and were called before the last change.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from functools import partial
from operator import ne
from typing import Any

import orjson

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.admission.reinvocation import reinvocation_of
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.offload import LARGE_JSON
from transom.apiserver.core.resources import Resource
from transom.apiserver.webhooks import review
from transom.apiserver.webhooks.client import CallFailed
from transom.apiserver.webhooks.dispatch import WebhookDispatcher, calling, failure_policy_error
from transom.apiserver.webhooks.matching import (
    CONFIGURATIONS,
    Invocation,
    RegisteredWebhook,
    WebhookConfigurations,
)
from transom.apiserver.webhooks.patching import apply_webhook_patch
from transom.apiserver.webhooks.versioned_object import (
    VersionedObject,
    WebhookChange,
    read_change,
    seen_by,
    take_over,
)
from transom.kit.goquote import go_quote
from transom.machinery import codec, errors, managedfields
from transom.machinery.fieldset import InvalidFields
from transom.machinery.objects import copy_object

log = logging.getLogger("transom.apiserver")
_MUTATION = "mutation.webhook.admission.k8s.io"
_PATCH = "patch.webhook.admission.k8s.io"


class MutatingAdmissionWebhook(MutatingPlugin):
    name = "MutatingAdmissionWebhook"
    thread_safe = False

    def __init__(self, hooks: WebhookConfigurations, dispatch: WebhookDispatcher) -> None:
        self._hooks = hooks
        self._dispatch = dispatch

    def handles(self, resource: Resource, _operation: str, _subresource: str) -> bool:
        return resource.kind.key not in CONFIGURATIONS

    def admit(self, attributes: Attributes) -> Awaitable[None] | None:
        if not self._hooks.any:
            return None
        plan = self._hooks.plan(attributes)
        return self._run(plan, attributes) if plan else None

    async def _run(self, plan: tuple[Invocation, ...], attributes: Attributes) -> None:
        rounds = reinvocation_of(attributes)
        state = rounds.of_plugin(self.name)
        if rounds.second and await self._dispatch.compute(
            attributes.ctx, partial(ne, attributes.obj, state.output)
        ):
            state.changed()  # by a plugin of the second round
        before = _managed(attributes.obj)
        for invocation in plan:
            hook = invocation.hook
            if not await self._hooks.selected(hook, attributes) or (
                rounds.second and hook.uid not in state.again
            ):
                continue
            if hook.conditions and not await self._dispatch.matches(
                hook, attributes, await seen_by(attributes, invocation.target)
            ):
                continue
            changed = await self._call(invocation, attributes, int(rounds.second))
            if changed:
                state.changed()
                rounds.wanted = True
            if hook.reinvocable:
                state.requested.add(hook.uid)
        await self._dispatch.compute(attributes.ctx, partial(_check_managed, attributes, before))
        if rounds.wanted and not rounds.second:
            state.output = await self._dispatch.compute(
                attributes.ctx, partial(copy_object, attributes.obj)
            )

    async def _call(self, invocation: Invocation, attributes: Attributes, number: int) -> bool:
        """Calls one webhook and applies its response. True if that changed the object."""
        hook = invocation.hook
        changed = False
        try:
            subject = await seen_by(attributes, invocation.target)
            answer = await self._dispatch.ask(invocation, attributes, subject, mutating=True)
            changed = await self._apply(invocation, attributes, subject, answer, number)
        except CallFailed as problem:
            if not hook.ignore_failure:
                raise failure_policy_error(hook, problem, attributes.resource.release) from problem
            log.warning("%s", calling(hook, problem, attributes.resource.release))
            if self._dispatch.left(attributes) <= 0:
                raise self._dispatch.out_of_time() from problem
        finally:
            value = {"configuration": hook.configuration, "webhook": hook.name, "mutated": changed}
            attributes.ctx.annotations[f"{_MUTATION}/{_place(hook, number)}"] = orjson.dumps(
                value
            ).decode()
        return changed

    async def _apply(
        self,
        invocation: Invocation,
        attributes: Attributes,
        subject: VersionedObject,
        answer: review.AdmissionResponse,
        number: int,
    ) -> bool:
        hook, ctx = invocation.hook, attributes.ctx
        if not answer.patch:
            return False
        if len(answer.patch) > LARGE_JSON or b"copy" in answer.patch or b"\\" in answer.patch:
            ctx.large = True
        try:
            operations = await self._dispatch.compute(
                ctx, partial(review.patch_operations, answer.patch)
            )
        except ValueError as problem:
            raise errors.internal(str(problem)) from None
        if not operations:
            return False
        shown = subject.obj
        if shown is None:
            raise errors.internal(
                f"admission webhook {go_quote(hook.name)} attempted to modify the object, "
                "which is not "
                "supported for this operation"
            )
        if answer.patch_type != "JSONPatch":
            raise CallFailed(f"unsupported patch type {go_quote(answer.patch_type)}")

        def read() -> WebhookChange:
            return read_change(
                attributes, invocation.target, shown, apply_webhook_patch(shown, operations)
            )

        try:
            changed = await take_over(
                attributes, invocation.target, await self._dispatch.compute(ctx, read)
            )
        except codec.DecodeError as problem:
            raise errors.internal(problem.base) from None
        except ValueError as problem:
            raise errors.internal(str(problem)) from None
        value = {
            "configuration": hook.configuration,
            "webhook": hook.name,
            "patch": operations,
            "patchType": "JSONPatch",
        }
        ctx.body_annotations[f"{_PATCH}/{_place(hook, number)}"] = orjson.dumps(value).decode()
        return changed


def _place(hook: RegisteredWebhook, number: int) -> str:
    return f"round_{number}_index_{hook.index}"


def _managed(obj: Any) -> Any:
    return (obj.get("metadata") or {}).get("managedFields") if obj else None


def _check_managed(attributes: Attributes, before: Any) -> None:
    """Restores managed fields that a webhook made invalid, and warns the client."""
    after = _managed(attributes.obj)
    if after is before or not after:
        return
    try:
        managedfields.decode_managed_fields(after)
    except InvalidFields as problem:
        attributes.obj["metadata"]["managedFields"] = before
        attributes.ctx.warn(
            ".metadata.managedFields was in an invalid state after admission; this could be "
            "caused by an "
            f"outdated mutating admission controller; please fix your requests: {problem}"
        )
