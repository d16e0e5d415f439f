"""The end of a definition: its instances are deleted first, then the finalizer goes and the definition with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from transom.apiserver.crd.conditions import TERMINATING, condition
from transom.apiserver.resources import Resource
from transom.machinery.errors import ApiError
from transom.machinery.field import aggregate_text
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer

CHECK_AFTER = 60.0  # how long instances may take before the condition says that they do

IN_PROGRESS = condition(TERMINATING, "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
COMPLETED = condition(TERMINATING, "False", "InstanceDeletionCompleted", "removed all instances")
NEVER_ESTABLISHED = condition(TERMINATING, "False", "NeverEstablished", "resource was never established")
LEFT_OVER = condition(
    TERMINATING, "True", "InstanceDeletionCheck",
    "could not confirm zero CustomResources remaining: timed out waiting for the condition",
)


async def delete_instances(server: ApiServer, res: Resource) -> Object | None:
    """Delete every instance; the condition that tells why some could not be, if so."""
    problems = []
    for record in server.storage.store.list(f"{res.bucket}/").records:
        meta = orjson.loads(record.value)["metadata"]
        try:
            await server.storage.delete(
                server.context(), res, meta.get("namespace", ""), meta["name"], {}, admitted=True
            )
        except ApiError as problem:
            if problem.code != 404:
                problems.append(problem.message)
    if not problems:
        return None
    text = aggregate_text(problems)
    return condition(TERMINATING, "True", "InstanceDeletionFailed", f"could not issue all deletes: {text}")


async def wait_until_empty(server: ApiServer, res: Resource) -> bool:
    """False when instances are still there after the time that Kubernetes waits."""
    store = server.storage.store
    prefix = f"{res.bucket}/"
    changed = asyncio.Event()
    timed_out = False

    def expire() -> None:
        nonlocal timed_out
        timed_out = True
        changed.set()

    subscription = store.watch(prefix, store.revision, lambda _events: changed.set())
    timer = server.clock.call_later(CHECK_AFTER, expire)
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
