"""ValidatingAdmissionWebhook: calls webhooks concurrently; they may only allow or reject."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from transom.apiserver.admission.plugin import ValidatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.resources import Resource
from transom.apiserver.webhooks.client import CallFailed
from transom.apiserver.webhooks.dispatch import (
    WebhookDispatcher,
    calling,
    failure_policy_error,
    gather_first,
)
from transom.apiserver.webhooks.matching import CONFIGURATIONS, Invocation, WebhookConfigurations
from transom.apiserver.webhooks.versioned_object import VersionedObject, seen_by
from transom.machinery.errors import ApiError

log = logging.getLogger("transom.apiserver")


class ValidatingAdmissionWebhook(ValidatingPlugin):
    name = "ValidatingAdmissionWebhook"
    thread_safe = False

    def __init__(self, hooks: WebhookConfigurations, dispatch: WebhookDispatcher) -> None:
        self._hooks = hooks
        self._dispatch = dispatch

    def handles(self, resource: Resource, _operation: str, _subresource: str) -> bool:
        return resource.kind.key not in CONFIGURATIONS

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        if not self._hooks.any:
            return None
        plan = self._hooks.plan(attributes)
        return self._run(plan, attributes) if plan else None

    async def _run(self, plan: tuple[Invocation, ...], attributes: Attributes) -> None:
        chosen = [i for i in plan if await self._hooks.selected(i.hook, attributes)]
        if not chosen:
            return
        if self._dispatch.left(attributes) <= 0:
            raise self._dispatch.out_of_time()
        subjects: dict[Resource, VersionedObject] = {}
        for invocation in chosen:
            if invocation.target not in subjects:
                subjects[invocation.target] = await seen_by(attributes, invocation.target)
        chosen = [
            invocation
            for invocation in chosen
            if await self._dispatch.matches(
                invocation.hook, attributes, subjects[invocation.target]
            )
        ]
        problem = await self._first_problem(chosen, attributes, subjects)
        try:
            if problem is not None:
                raise problem
        finally:
            problem = None  # its traceback refers to this frame

    async def _first_problem(
        self,
        chosen: list[Invocation],
        attributes: Attributes,
        subjects: dict[Resource, VersionedObject],
    ) -> ApiError | None:
        if len(chosen) == 1:
            return await self._call(chosen[0], attributes, subjects[chosen[0].target])
        calls = [
            asyncio.ensure_future(self._call(i, attributes, subjects[i.target])) for i in chosen
        ]
        try:
            return await gather_first(calls)
        finally:
            for call in calls:
                call.cancel()

    async def _call(
        self, invocation: Invocation, attributes: Attributes, subject: VersionedObject
    ) -> ApiError | None:
        hook = invocation.hook
        try:
            await self._dispatch.ask(invocation, attributes, subject, mutating=False)
        except CallFailed as problem:
            if not hook.ignore_failure:
                return failure_policy_error(hook, problem, attributes.resource.release)
            log.warning("%s", calling(hook, problem, attributes.resource.release))
        except ApiError as problem:
            return problem
        return None
