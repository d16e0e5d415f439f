"""Compaction of etcd every five minutes, by one of the servers that use it.

The rule is that of Kubernetes, with the same key, so that its API servers may run on the same etcd:
the server that first increments the version of `compact_rev_key` compacts to the revision that was current
an interval before.
"""

from __future__ import annotations

import logging

from transom.kit.clock import Clock
from transom.kit.rpc import RpcError
from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient

_log = logging.getLogger(__name__)

COMPACT_SECONDS = 300.0
_KEY = b"compact_rev_key"


class EtcdCompactor:
    def __init__(self, client: EtcdClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._version = 0  # of the key, as far as known
        self._revision = 0  # that was current an interval ago

    async def run(self) -> None:
        while True:
            await self._clock.sleep(COMPACT_SECONDS)
            try:
                await self.compact_once()
            except RpcError as problem:
                _log.warning("etcd could not be compacted: %s", problem)

    async def compact_once(self) -> bool:
        """Whether this server was the one to compact."""
        put = wire.op_put(wire.put_request(_KEY, str(self._revision).encode()))
        read = wire.op_range(wire.range_request(_KEY))
        done = await self._client.txn(
            wire.txn_request((wire.compare_version(_KEY, self._version),), (put,), (read,))
        )
        former, self._revision = self._revision, done.revision
        if not done.succeeded:
            self._version = done.found[0].version if done.found else 0
            return False
        self._version += 1
        if not former:
            return False  # the first round only notes the revision
        await self._client.compact(former)
        _log.info("compacted etcd to revision %d", former)
        return True
