"""Transactions that are sent again when a member of etcd fails before it answers, and that are
nevertheless committed at most once.

An update compares the revision of its key, which no other write gives back: a second attempt fails if
the first was committed. A create compares that there is no such key, which is true again after a
deletion. It therefore also compares a key of this server, the fence. When an answer is lost, the
fence is written: from then on the lost attempt cannot be committed any more, and the history shows
whether it was.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from transom.kit.rpc import RpcError
from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient
from transom.store.etcd.leases import EtcdLeases, is_lost_lease

_PAUSE_SECONDS: Final = 0.05
_WRITE_SECONDS: Final = 10.0  # how long a write is tried at several members
_ATTEMPT_SECONDS: Final = 3.0  # less than etcd itself waits when its leader is lost
_FENCE_SECONDS: Final = 3600.0  # longer than any attempt may take


class EtcdSubmitter:
    """`folder` is where the fences of all servers are. `wait_for` waits until the history here has
    reached a revision.
    """

    def __init__(
        self,
        client: EtcdClient,
        leases: EtcdLeases,
        folder: bytes,
        wait_for: Callable[[int], Awaitable[None]],
    ) -> None:
        self._client = client
        self._leases = leases
        self._wait_for = wait_for
        self._fence_key = folder + str(uuid.uuid4()).encode()
        self._fence = 0  # its mod revision
        self._fenced = 0  # the revision at which it was that
        self._fencing = asyncio.Lock()
        self._open = True

    def close(self) -> None:
        """Nothing is sent again."""
        self._open = False

    async def update(self, request: bytes, value: bytes) -> wire.EtcdTxn:
        """`request` reads the key if it fails."""
        deadline = self._deadline()
        lost: RpcError | None = None
        while True:
            try:
                done = await self._client.txn(request, _ATTEMPT_SECONDS)
            except RpcError as problem:
                self._check(problem, deadline)
                lost = problem
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if done.succeeded or lost is None:
                return done
            if done.found and done.found[0].value == value:
                return wire.EtcdTxn(done.found[0].mod_revision, True, (), 0)
            raise lost  # it may have been committed, and overwritten since

    async def create(
        self,
        path: bytes,
        compare: Sequence[bytes],
        success: Sequence[bytes],
        find: Callable[[], int | None],
    ) -> wire.EtcdTxn:
        """`find` returns the revision at which the history has this create, 0 if it has not, None if
        the history is not complete.
        """
        deadline = self._deadline()
        ranges = [wire.op_range(wire.range_request(key)) for key in (path, self._fence_key)]
        while True:
            fence = self._fence
            guard = wire.compare_mod_revision(self._fence_key, fence)
            request = wire.txn_request((*compare, guard), success, ranges)
            try:
                done = await self._client.txn(request, _ATTEMPT_SECONDS)
            except RpcError as problem:
                self._check(problem, deadline)
                await asyncio.sleep(_PAUSE_SECONDS)
                await self._write_fence(fence, deadline)
                await self._wait_for(self._fenced)
                found = find()
                if found is None:
                    raise
                if found:
                    return wire.EtcdTxn(found, True, (), 0)
                continue
            if done.succeeded or any(kv.key == path for kv in done.found):
                return done
            if not self._notice(done.found, fence):
                return done  # another comparison failed

    def _notice(self, found: Sequence[wire.EtcdKeyValue], before: int) -> bool:
        """Whether the fence is another than the one that was compared."""
        actual = next((kv.mod_revision for kv in found if kv.key == self._fence_key), 0)
        if actual != before:
            self._fence = actual
        return actual != before

    async def _write_fence(self, before: int, deadline: float) -> None:
        async with self._fencing:
            while self._fence == before:  # one fence is enough for all attempts of that time
                try:
                    lease = await self._leases.find(_FENCE_SECONDS)
                    compare = wire.compare_mod_revision(self._fence_key, before)
                    put = wire.op_put(wire.put_request(self._fence_key, b"{}", lease))
                    current = wire.op_range(wire.range_request(self._fence_key))
                    request = wire.txn_request((compare,), (put,), (current,))
                    done = await self._client.txn(request, _ATTEMPT_SECONDS)
                except RpcError as problem:
                    if is_lost_lease(problem):
                        self._leases.forget(_FENCE_SECONDS)
                    else:
                        self._check(problem, deadline)
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                self._fenced = done.revision
                if done.succeeded:
                    self._fence = done.revision
                else:
                    self._notice(done.found, before)

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + _WRITE_SECONDS

    def _check(self, problem: RpcError, deadline: float) -> None:
        """Raises it again unless another attempt may help."""
        refused = problem.code not in ("Unavailable", "DeadlineExceeded", "Canceled")
        if refused or not self._open or asyncio.get_running_loop().time() > deadline:
            raise problem
