"""MutatingAdmissionWebhook: webhooks are asked one after the other and may change the object by JSON patches.

When one changed something, the whole mutating chain runs once more; in that second round only those webhooks are asked
that wish to be (`reinvocationPolicy: IfNeeded`) and were asked before the last change.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any

import orjson

from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.admission.webhook_matching import CONFIGURATIONS, Hook, Hooks, Invocation
from transom.apiserver.resources import Resource
from transom.apiserver.webhooks import review
from transom.apiserver.webhooks.client import CallFailed
from transom.apiserver.webhooks.dispatch import Dispatch, calling, closed
from transom.apiserver.webhooks.patching import patched
from transom.apiserver.webhooks.subject import Subject, seen_by, take_over
from transom.machinery import codec, errors, managedfields
from transom.machinery.field import go_quote
from transom.machinery.fieldset import InvalidFields
from transom.machinery.objects import copy_object

log = logging.getLogger("transom.apiserver")
_MUTATION = "mutation.webhook.admission.k8s.io"
_PATCH = "patch.webhook.admission.k8s.io"


class Rounds:
    """What has to be known from the first round in the second."""

    __slots__ = ("again", "asked", "output", "second", "wanted")

    def __init__(self) -> None:
        self.second = False
        self.wanted = False  # something was changed, so there has to be a second round
        self.asked: set[str] = set()  # hooks that wish to see later changes
        self.again: set[str] = set()  # those of them that have changes to see
        self.output: Any = None  # the object as the webhooks left it

    def changed(self) -> None:
        self.again |= self.asked
        self.asked = set()


class MutatingAdmissionWebhook:
    name = "MutatingAdmissionWebhook"

    def __init__(self, hooks: Hooks, dispatch: Dispatch) -> None:
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
        rounds = attributes.rounds
        if not isinstance(rounds, Rounds):
            rounds = attributes.rounds = Rounds()
        if rounds.second and attributes.obj != rounds.output:
            rounds.changed()  # by a plugin of the second round
        before = _managed(attributes.obj)
        for invocation in plan:
            hook = invocation.hook
            if not self._hooks.selected(hook, attributes) or (rounds.second and hook.uid not in rounds.again):
                continue
            changed = await self._call(invocation, attributes, int(rounds.second))
            if changed:
                rounds.changed()
                rounds.wanted = True
            if hook.reinvocable:
                rounds.asked.add(hook.uid)
        _check_managed(attributes, before)
        if rounds.wanted and not rounds.second:
            rounds.output = copy_object(attributes.obj)

    async def _call(self, invocation: Invocation, attributes: Attributes, number: int) -> bool:
        """Ask one webhook and do what it says. True when that changed the object."""
        hook = invocation.hook
        changed = False
        try:
            subject = await seen_by(attributes, invocation.target)
            answer = await self._dispatch.ask(invocation, attributes, subject, mutating=True)
            changed = await _apply(invocation, attributes, subject, answer, number)
        except CallFailed as problem:
            if not hook.ignore_failure:
                raise closed(hook, problem) from problem
            log.warning("%s", calling(hook, problem))
            if self._dispatch.left(attributes) <= 0:
                raise self._dispatch.out_of_time() from problem
        finally:
            value = {"configuration": hook.configuration, "webhook": hook.name, "mutated": changed}
            attributes.ctx.annotations[f"{_MUTATION}/{_place(hook, number)}"] = orjson.dumps(value).decode()
        return changed


def _place(hook: Hook, number: int) -> str:
    return f"round_{number}_index_{hook.index}"


async def _apply(
    invocation: Invocation, attributes: Attributes, subject: Subject, answer: review.Answer, number: int
) -> bool:
    hook = invocation.hook
    if not answer.patch:
        return False
    try:
        operations = review.operations(answer.patch)
    except ValueError as problem:
        raise errors.internal(str(problem)) from None
    if not operations:
        return False
    if subject.obj is None:
        raise errors.internal(f"admission webhook {go_quote(hook.name)} attempted to modify the object, which is not "
                              "supported for this operation")
    if answer.patch_type != "JSONPatch":
        raise CallFailed(f"unsupported patch type {go_quote(answer.patch_type)}")
    try:
        new = patched(subject.obj, operations)
        changed = await take_over(attributes, invocation.target, subject.obj, new)
    except codec.DecodeError as problem:
        raise errors.internal(problem.base) from None
    except ValueError as problem:
        raise errors.internal(str(problem)) from None
    value = {"configuration": hook.configuration, "webhook": hook.name, "patch": operations, "patchType": "JSONPatch"}
    attributes.ctx.body_annotations[f"{_PATCH}/{_place(hook, number)}"] = orjson.dumps(value).decode()
    return changed


def _managed(obj: Any) -> Any:
    return (obj.get("metadata") or {}).get("managedFields") if obj else None


def _check_managed(attributes: Attributes, before: Any) -> None:
    """Field ownership that a webhook spoiled is put back, and the client told."""
    after = _managed(attributes.obj)
    if after is before or not after:
        return
    try:
        managedfields.decode(after)
    except InvalidFields as problem:
        attributes.obj["metadata"]["managedFields"] = before
        attributes.ctx.warn(f".metadata.managedFields was in an invalid state after admission; this could be caused by an "
                            f"outdated mutating admission controller; please fix your requests: {problem}")
