"""One admission webhook call: sends the review, evaluates the response, records warnings and
annotations.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.offload import compute_in_worker
from transom.apiserver.core.request_authorizer import Decide
from transom.apiserver.webhooks import review
from transom.apiserver.webhooks.client import CallFailed, WebhookClient
from transom.apiserver.webhooks.matching import Invocation, RegisteredWebhook
from transom.apiserver.webhooks.versioned_object import VersionedObject, own_kind
from transom.kit.clock import Clock
from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_pattern
from transom.kit.uuids import random_uuid
from transom.machinery import errors
from transom.machinery.errors import ApiError
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour

T = TypeVar("T")
# name, or prefix/name: valid keys of audit annotations.
_KEY = lazy_pattern(
    r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
)


class WebhookDispatcher:
    def __init__(
        self, client: WebhookClient, clock: Clock, rng: random.Random, decide: Decide
    ) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._decide = decide

    async def matches(
        self, hook: RegisteredWebhook, attributes: Attributes, subject: VersionedObject
    ) -> bool:
        """Whether the match conditions of a hook select the request."""
        return not hook.conditions or await hook.conditions.match(
            attributes, subject, self._client.workers, self._decide
        )

    async def ask(
        self,
        invocation: Invocation,
        attributes: Attributes,
        subject: VersionedObject,
        *,
        mutating: bool,
    ) -> review.AdmissionResponse:
        """The response of a webhook that allowed the request; raises ApiError if it did not,
        CallFailed if the call failed.
        """
        hook, ctx = invocation.hook, attributes.ctx
        if ctx.dry_run and not hook.no_side_effects:
            raise errors.bad_request(
                f"admission webhook {go_quote(hook.name)} does not support dry run"
            )
        version = review.version_for(hook.review_versions)
        uid = random_uuid(self._rng)
        question = review.admission_review(
            version,
            uid,
            attributes,
            subject.kind,
            own_kind(attributes, attributes.resource),
            invocation.target,
            subject.obj,
            subject.old,
        )
        within = min(hook.seconds, self.left(attributes))
        if within <= 0:
            raise self.out_of_time()
        raw = await self._client.post(hook.client, question, within)
        answer = await self._client.read(
            raw, partial(review.parse_admission_response, raw, version, uid, mutating=mutating)
        )
        for key, value in answer.annotations.items():
            if _KEY.fullmatch(key):
                ctx.annotations[f"{hook.name}/{key}"] = value
        for text in answer.warnings:
            ctx.warn(text)
        if not answer.allowed:
            raise review.webhook_denial(hook.name, answer.status)
        return answer

    async def compute(self, ctx: RequestContext, work: Callable[[], T]) -> T:
        """The result of a pure function, computed in the worker thread if the request is large."""
        return await compute_in_worker(self._client.workers, ctx, work) if ctx.large else work()

    def left(self, attributes: Attributes) -> float:
        """The remaining time of the request."""
        ctx = attributes.ctx
        return ctx.timeout - (self._clock.time() - ctx.now)

    def out_of_time(self) -> ApiError:
        return errors.timeout("Timeout: request did not complete within requested timeout")


def failure_policy_error(
    hook: RegisteredWebhook, problem: CallFailed, release: Release
) -> ApiError:
    """The error for a failed call with failurePolicy Fail."""
    return errors.internal(calling(hook, problem, release))


def calling(hook: RegisteredWebhook, problem: CallFailed, release: Release) -> str:
    call = "failed to call webhook: " if has_behaviour(release, "WebhookErrorsNameCall") else ""
    return f"failed calling webhook {go_quote(hook.name)}: {call}{problem}"


async def gather_first(calls: list[asyncio.Task[ApiError | None]]) -> ApiError | None:
    """All calls run to completion; the first rejection counts."""
    first: ApiError | None = None
    for done in asyncio.as_completed(calls):
        problem = await done
        first = first or problem
    return first
