"""Leases for keys with a TTL.

As in Kubernetes, keys that are written shortly after each other share a lease: etcd keeps leases in
memory, and a busy cluster writes thousands of events.
"""

from __future__ import annotations

import asyncio
import math

from transom.kit.clock import Clock
from transom.kit.rpc import RpcError
from transom.store.etcd.client import EtcdClient

_REUSE_SECONDS = 60.0
_REUSE_SHARE = 0.05  # of the TTL, at most
_MOST_KEYS = 1000
_LOST = "requested lease not found"


class _SharedLease:
    __slots__ = ("granting", "keys", "until")

    def __init__(self, granting: asyncio.Task[int], until: float) -> None:
        self.granting = granting
        self.until = until
        self.keys = 0


def is_lost_lease(problem: RpcError) -> bool:
    """Whether a write failed, without effect, because etcd does not have its lease: it was revoked,
    or a backup was restored that is older.
    """
    return problem.code == "NotFound" and _LOST in problem.description


class EtcdLeases:
    def __init__(self, client: EtcdClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._leases: dict[float, _SharedLease] = {}

    async def find(self, ttl: float) -> int:
        """A lease that expires `ttl` seconds from now, or a little later."""
        now = self._clock.monotonic()
        lease = self._leases.get(ttl)
        if lease is None or now >= lease.until or lease.keys >= _MOST_KEYS:
            reuse = min(_REUSE_SECONDS, ttl * _REUSE_SHARE)
            granting = asyncio.create_task(self._client.grant_lease(max(1, math.ceil(ttl + reuse))))
            lease = self._leases[ttl] = _SharedLease(granting, now + reuse)
        lease.keys += 1
        try:
            return await asyncio.shield(lease.granting)
        except BaseException:
            if self._leases.get(ttl) is lease:
                del self._leases[ttl]
            raise

    def forget(self, ttl: float) -> None:
        """The next key gets a new lease."""
        self._leases.pop(ttl, None)
