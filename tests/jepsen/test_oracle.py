"""The watch of etcd itself has every change of the objects that the test follows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from tests.etcd_process import EtcdProcess, require_etcd
from tests.jepsen.history import Change
from tests.jepsen.oracle import EtcdOracle

from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient, parse_etcd_address


def _describe(obj: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    return obj["value"], obj["uid"], ()


async def test_the_log_has_each_change_once_across_a_restart_of_etcd(tmp_path: Path) -> None:
    require_etcd()
    member = EtcdProcess(tmp_path).start()
    client = EtcdClient(parse_etcd_address(f"etcd://{member.address}"))
    oracle = EtcdOracle(client, {"/registry/maps/n": "maps"}, _describe)

    async def write(operation: bytes) -> int:
        return (await client.txn(wire.txn_request((), (operation,)))).revision

    def put(key: str, value: str) -> bytes:
        data = orjson.dumps({"value": value, "uid": "u"})
        return wire.op_put(wire.put_request(key.encode(), data))

    await oracle.start()
    running = asyncio.create_task(oracle.run())
    try:
        first = await write(put("/registry/maps/n/a", "1"))
        await write(put("/registry/maps/other/a", "not of this namespace"))
        await oracle.wait_for(first + 1)
        member.kill()
        await asyncio.to_thread(member.start)
        await write(put("/registry/maps/n/a", "2"))
        await write(put("/registry/maps/n/without", ""))
        last = await write(wire.op_delete(wire.delete_request(b"/registry/maps/n/a")))
        await oracle.wait_for(last)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()
        member.kill()
    assert oracle.log.changes == [
        Change(first, "maps/a", "ADDED", "1", "u"),
        Change(first + 2, "maps/a", "MODIFIED", "2", "u"),
        Change(last, "maps/a", "DELETED", "2", "u"),
    ]
