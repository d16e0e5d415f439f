"""Creates and deletes the pods of an owner, with expectations, for controllers of workloads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from transom.client.api import is_namespace_terminating, is_not_found
from transom.client.store import object_key
from transom.controllers.expectations import Expectations
from transom.controllers.pods import DeleteFailed, PodControl, slow_start
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object


class ExpectedPods:
    def __init__(self, control: PodControl, expectations: Expectations) -> None:
        self._control = control
        self._expectations = expectations

    async def create(
        self, key: str, owner: Object, pods: Sequence[Object]
    ) -> tuple[int, Exception | None]:
        """The number of pods that were created, and the first failure."""
        self._expectations.expect(key, len(pods))

        async def attempt(i: int) -> None:
            try:
                await self._control.create(owner, pods[i])
            except ApiError as problem:
                # A terminating namespace accepts no new pods, which is not a failure.
                if not is_namespace_terminating(problem):
                    raise

        succeeded = 0
        try:
            succeeded, failure = await slow_start(len(pods), attempt)
        finally:
            self._expectations.created(key, len(pods) - succeeded)
        return succeeded, failure

    async def delete(self, key: str, owner: Object, pods: Sequence[Object]) -> list[Exception]:
        """Why pods could not be deleted."""
        self._expectations.expect(key, 0, [object_key(pod) for pod in pods])

        async def attempt(pod: Object) -> Exception | None:
            try:
                await self._control.delete(owner, pod["metadata"]["name"])
            except (ApiError, OSError, DeleteFailed) as problem:
                self._expectations.deleted(key, object_key(pod))
                return None if is_not_found(problem) else problem
            return None

        results = await asyncio.gather(*(attempt(pod) for pod in pods))
        return [problem for problem in results if problem is not None]
