"""One call of one webhook in admission: the review goes out, its answer is judged, warnings and annotations are kept."""

from __future__ import annotations

import asyncio
import random
import re
import uuid

from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.admission.webhook_matching import Hook, Invocation
from transom.apiserver.webhooks import review
from transom.apiserver.webhooks.client import CallFailed, WebhookClient
from transom.apiserver.webhooks.subject import Subject, own_kind
from transom.kit.clock import Clock
from transom.machinery import errors
from transom.machinery.errors import ApiError
from transom.machinery.field import go_quote

# name, or prefix/name: what an audit annotation may be called.
_KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")


class Dispatch:
    def __init__(self, client: WebhookClient, clock: Clock, rng: random.Random) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng

    async def ask(
        self, invocation: Invocation, attributes: Attributes, subject: Subject, *, mutating: bool
    ) -> review.Answer:
        """The answer of a webhook that allowed the request; ApiError when it did not, CallFailed when there is none."""
        hook, ctx = invocation.hook, attributes.ctx
        if ctx.dry_run and not hook.no_side_effects:
            raise errors.bad_request(f"admission webhook {go_quote(hook.name)} does not support dry run")
        version = review.version_for(hook.review_versions)
        uid = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        question = review.request(
            version, uid, attributes, subject.kind, own_kind(attributes, attributes.resource), invocation.target,
            subject.obj, subject.old,
        )
        within = min(hook.seconds, self.left(attributes))
        if within <= 0:
            raise self.out_of_time()
        raw = await self._client.post(hook.client, question, within)
        answer = review.answer(raw, version, uid, mutating=mutating)
        for key, value in answer.annotations.items():
            if _KEY.fullmatch(key):
                ctx.annotations[f"{hook.name}/{key}"] = value
        for text in answer.warnings:
            ctx.warn(text)
        if not answer.allowed:
            raise review.denial(hook.name, answer.status)
        return answer

    def left(self, attributes: Attributes) -> float:
        """How much of the request's own time is left."""
        ctx = attributes.ctx
        return ctx.timeout - (self._clock.time() - ctx.now)

    def out_of_time(self) -> ApiError:
        return errors.timeout("Timeout: request did not complete within requested timeout")


def closed(hook: Hook, problem: CallFailed) -> ApiError:
    """What a failed call means for the request when the webhook insists on being asked."""
    return errors.internal(calling(hook, problem))


def calling(hook: Hook, problem: CallFailed) -> str:
    return f"failed calling webhook {go_quote(hook.name)}: {problem}"


async def gather_first(calls: list[asyncio.Task[ApiError | None]]) -> ApiError | None:
    """All calls run to their end; the refusal that came first counts."""
    first: ApiError | None = None
    for done in asyncio.as_completed(calls):
        problem = await done
        first = first or problem
    return first
