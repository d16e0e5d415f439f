"""Writes values again that are not encrypted as the configuration asks."""

from __future__ import annotations

import asyncio

from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient
from transom.store.sealing import Sealing

_AT_ONCE = 64


class StaleValues:
    """Values that were found with another encryption than the configured one."""

    def __init__(self, client: EtcdClient, sealing: Sealing) -> None:
        self._client = client
        self._sealing = sealing
        self._found: list[tuple[str, wire.EtcdKeyValue, bytes]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def clear(self) -> None:
        self._found.clear()

    def add(self, key: str, kv: wire.EtcdKeyValue, plain: bytes) -> None:
        self._found.append((key, kv, plain))

    async def write_all(self) -> None:
        """Each with a new revision. Another server may do the same."""
        pending, self._found = self._found, []
        for at in range(0, len(pending), _AT_ONCE):
            await asyncio.gather(*(self._write(*entry) for entry in pending[at : at + _AT_ONCE]))

    async def _write(self, key: str, kv: wire.EtcdKeyValue, plain: bytes) -> None:
        put = wire.put_request(kv.key, self._sealing.to_disk(key, plain), kv.lease)
        compare = wire.compare_mod_revision(kv.key, kv.mod_revision)
        await self._client.txn(wire.txn_request((compare,), (wire.op_put(put),)))
