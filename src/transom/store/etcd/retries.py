"""Retries of writes that are safe to send twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from transom.kit.rpc import RpcError
from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient

_WRITE_SECONDS = 10.0  # how long a write is tried at several members
_ATTEMPT_SECONDS = 3.0  # less than etcd itself waits when its leader is lost
_RETRY_SECONDS = 0.05


async def submit_until_known(
    client: EtcdClient, request: bytes, value: bytes, is_open: Callable[[], bool]
) -> wire.EtcdTxn:
    """Sends a write that compares the revision of its key again when a member fails before it
    answers: it cannot be committed twice. If an earlier attempt was committed, the later one
    finds its value.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _WRITE_SECONDS
    lost: RpcError | None = None
    while True:
        try:
            done = await client.txn(request, _ATTEMPT_SECONDS)
        except RpcError as problem:
            refused = problem.code not in ("Unavailable", "DeadlineExceeded", "Canceled")
            if refused or not is_open() or loop.time() > deadline:
                raise
            lost = problem
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        if done.succeeded or lost is None:
            return done
        if done.found and done.found[0].value == value:
            return wire.EtcdTxn(done.found[0].mod_revision, True, (), 0)
        raise lost  # it may have been committed, and overwritten since
