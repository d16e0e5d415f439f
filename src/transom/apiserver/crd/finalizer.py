"""Deletes a definition: first its instances, then the finalizer and with it the definition."""

from __future__ import annotations

import asyncio

import orjson

from transom.apiserver.core.definition_conditions import TERMINATING, make_definition_condition
from transom.apiserver.core.loopback import Loopback
from transom.apiserver.core.resources import Resource
from transom.kit.time_slice import TimeSlice
from transom.machinery.errors import ApiError
from transom.machinery.field import aggregate_text
from transom.machinery.objects import Object

CHECK_AFTER = 60.0  # how long instances may take until the condition reports it

IN_PROGRESS = make_definition_condition(
    TERMINATING, "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"
)
COMPLETED = make_definition_condition(
    TERMINATING, "False", "InstanceDeletionCompleted", "removed all instances"
)
NEVER_ESTABLISHED = make_definition_condition(
    TERMINATING, "False", "NeverEstablished", "resource was never established"
)
LEFT_OVER = make_definition_condition(
    TERMINATING,
    "True",
    "InstanceDeletionCheck",
    "could not confirm zero CustomResources remaining: timed out waiting for the condition",
)


async def delete_instances(loopback: Loopback, res: Resource) -> Object | None:
    """Deletes every instance; returns the condition if some could not be deleted."""
    problems = []
    time_slice = TimeSlice()
    for record in loopback.storage.store.list(f"{res.bucket}/").records:
        await time_slice.pause()
        meta = orjson.loads(record.value)["metadata"]
        try:
            await loopback.storage.delete(
                loopback.context(), res, meta.get("namespace", ""), meta["name"], {}, admitted=True
            )
        except ApiError as problem:
            if problem.code != 404:
                problems.append(problem.message)
    if not problems:
        return None
    text = aggregate_text(problems)
    return make_definition_condition(
        TERMINATING, "True", "InstanceDeletionFailed", f"could not issue all deletes: {text}"
    )


async def wait_until_empty(loopback: Loopback, res: Resource) -> bool:
    """False if instances still exist after Kubernetes' timeout."""
    store = loopback.storage.store
    prefix = f"{res.bucket}/"
    changed = asyncio.Event()
    timed_out = False

    def expire() -> None:
        nonlocal timed_out
        timed_out = True
        changed.set()

    subscription = store.watch(prefix, store.revision, lambda _events: changed.set())
    timer = loopback.clock.call_later(CHECK_AFTER, expire)
    try:
        while store.count(prefix):
            if timed_out:
                return False
            await changed.wait()
            changed.clear()
    finally:
        subscription.cancel()
        timer.cancel()
    return True
