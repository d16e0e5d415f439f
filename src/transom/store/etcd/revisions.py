"""Advances the revision of an etcd: for objects that come from a store with a higher revision.

A client that continues a watch at a revision of the former store then learns that it is too old, and
lists again. With a lower revision, etcd would keep it waiting until it reaches that revision.
"""

from __future__ import annotations

import asyncio

from transom.kit.rpc import RpcError
from transom.store.api import StoreUnavailable
from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient
from transom.store.etcd.layout import MARKER
from transom.store.etcd.waiters import etcd_error_text

_AT_ONCE = 256


async def advance_revision(client: EtcdClient, prefix: str, revision: int) -> None:
    """Each write of the marker key advances etcd by one."""
    key = f"{prefix.rstrip('/')}/{MARKER}".encode()
    put = wire.txn_request((), (wire.op_put(wire.put_request(key, b"{}")),))
    try:
        current = (await client.range(wire.range_request(key, count_only=True))).revision
        while current < revision:
            writes = [client.txn(put) for _ in range(min(_AT_ONCE, revision - current))]
            current = max(done.revision for done in await asyncio.gather(*writes))
    except RpcError as problem:
        raise StoreUnavailable(f"etcd: {etcd_error_text(problem)}") from problem
