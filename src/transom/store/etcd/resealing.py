"""Writes values again that are not encrypted as the configuration asks, or not where they belong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient
from transom.store.sealing import Sealing

_AT_ONCE = 64


class StaleValues:
    """Values that were found with another encryption than the configured one, or at another path than
    `path_of` their key.
    """

    def __init__(
        self, client: EtcdClient, sealing: Sealing, path_of: Callable[[str], bytes]
    ) -> None:
        self._client = client
        self._sealing = sealing
        self._path_of = path_of
        self._found: list[tuple[str, wire.EtcdKeyValue, bytes]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def clear(self) -> None:
        self._found.clear()

    def check(self, key: str, kv: wire.EtcdKeyValue) -> None:
        """Takes note of a value that is stale. Raises StoreError if it cannot be decrypted."""
        plain = self._sealing.from_disk(key, kv.value)
        if self._sealing.is_stale(key, kv.value) or kv.key != self._path_of(key):
            self._found.append((key, kv, plain))

    async def write_all(self) -> None:
        """Each with a new revision. Another server may do the same."""
        pending, self._found = self._found, []
        for at in range(0, len(pending), _AT_ONCE):
            await asyncio.gather(*(self._write(*entry) for entry in pending[at : at + _AT_ONCE]))

    async def _write(self, key: str, kv: wire.EtcdKeyValue, plain: bytes) -> None:
        path = self._path_of(key)
        put = wire.put_request(path, self._sealing.to_disk(key, plain), kv.lease)
        compare = [wire.compare_mod_revision(kv.key, kv.mod_revision)]
        success = [wire.op_put(put)]
        if path != kv.key:
            compare.append(wire.compare_mod_revision(path, 0))
            success.append(wire.op_delete(wire.delete_request(kv.key)))
        await self._client.txn(wire.txn_request(compare, success))
