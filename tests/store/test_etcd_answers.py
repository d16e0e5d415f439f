"""Writes to etcd whose answer is lost, late, or overtaken by another change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.etcd_process import EtcdProcess

from transom.kit.rpc import RpcError
from transom.store.api import PreconditionFailed, StoreEvent, StoreUnavailable
from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient, parse_etcd_address
from transom.store.etcd.store import EtcdStore


class LossyClient(EtcdClient):
    """Commits the first transaction of a key without an answer, as a member does that dies then."""

    def __init__(self, url: str) -> None:
        super().__init__(parse_etcd_address(url))
        self.lose = 0
        self.after: list[bytes] = []  # transactions of others, before the retry

    @property
    def has_several_endpoints(self) -> bool:
        return True

    async def txn(self, request: bytes, seconds: float = 10.0) -> wire.EtcdTxn:
        done = await super().txn(request, seconds)
        if self.lose:
            self.lose -= 1
            for other in self.after:
                await super().txn(other)
            raise RpcError("Unavailable", "transport is closing")
        return done


class OvertakenClient(EtcdClient):
    """After a transaction, and before its answer, another client changes the keys in `after`; etcd is
    compacted, and the store has to read everything again.
    """

    def __init__(self, url: str) -> None:
        super().__init__(parse_etcd_address(url))
        self.after: list[bytes] = []
        self.read_again: Callable[[], None] = lambda: None

    async def txn(self, request: bytes, seconds: float = 10.0) -> wire.EtcdTxn:
        done = await super().txn(request, seconds)
        changes, self.after = self.after, []
        for change in changes:
            last = await super().txn(change)
            await self.compact(last.revision)
            self.read_again()
        return done


async def test_a_write_is_answered_if_it_is_overwritten_and_compacted_at_once(
    etcd: EtcdProcess,
) -> None:
    url = etcd.fresh_url()
    client = OvertakenClient(url)
    prefix = parse_etcd_address(url).prefix
    store = EtcdStore(client, prefix)
    await store.start()
    client.read_again = store._start_over

    def overwrite(key: str) -> list[bytes]:
        put = wire.op_put(wire.put_request(f"{prefix}/{key}".encode(), b"other"))
        return [wire.txn_request((), (put,))]

    client.after = overwrite("maps/a")
    made = await store.put("maps/a", lambda _: b"1", expected=0)
    assert (made.value, made.create_revision) == (b"1", made.mod_revision)
    current = store.get("maps/a")
    assert current is not None and current.value == b"other"
    client.after = overwrite("maps/a")
    changed = await store.put("maps/a", lambda _: b"2", expected=current.mod_revision)
    assert (changed.value, changed.create_revision) == (b"2", made.mod_revision)
    client.after = overwrite("maps/a")
    deleted, revision = await store.delete("maps/a")
    assert deleted.value == b"other" and deleted.mod_revision == changed.mod_revision + 1
    assert revision > deleted.mod_revision
    await store.close()


class DelayingClient(LossyClient):
    """The first transaction is on its way until `deliver`; its sender hears of a lost connection."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.held: list[bytes] = []
        self.hold = False

    async def txn(self, request: bytes, seconds: float = 10.0) -> wire.EtcdTxn:
        if self.hold:
            self.hold = False
            self.held.append(request)
            raise RpcError("Unavailable", "transport is closing")
        return await super().txn(request, seconds)

    async def deliver(self) -> wire.EtcdTxn:
        return await super().txn(self.held.pop())


async def test_a_create_that_arrives_late_is_not_committed_after_its_second_attempt(
    etcd: EtcdProcess,
) -> None:
    url = etcd.fresh_url()
    client = DelayingClient(url)
    store = EtcdStore(client, parse_etcd_address(url).prefix)
    await store.start()
    client.hold = True
    # Another create of that time compares the former fence, and is sent again.
    both = [store.put(f"maps/{name}", lambda _: b"1", expected=0) for name in "ab"]
    made = await asyncio.gather(*both)
    assert [record.value for record in made] == [b"1", b"1"]
    await store.delete("maps/a")
    await store.delete("maps/b")
    assert not (await client.deliver()).succeeded
    again = await store.put("maps/a", lambda _: b"2", expected=0)
    assert again.value == b"2"
    with pytest.raises(PreconditionFailed):
        await store.put("maps/a", lambda _: b"3", expected=0)
    await store.close()


async def test_a_write_without_an_answer_is_sent_again_and_happens_once(
    etcd: EtcdProcess,
) -> None:
    url = etcd.fresh_url()
    prefix = parse_etcd_address(url).prefix
    client = LossyClient(url)
    store = EtcdStore(client, prefix)
    await store.start()
    seen: list[StoreEvent] = []
    store.watch("maps/", store.revision, seen.extend)
    client.lose = 2
    made = await store.put("maps/a", lambda _: b"1", expected=0, lock="l")
    assert (made.value, made.mod_revision) == (b"1", seen[0].revision)
    client.lose = 1
    changed = await store.put("maps/a", lambda _: b"2", expected=made.mod_revision, lock="l")
    assert changed.value == b"2"
    assert [event.record and event.record.value for event in seen] == [b"1", b"2"]
    # Another client deletes what was created: it is not created again.
    client.lose = 1
    path = f"{prefix}/maps/b".encode()
    client.after = [wire.txn_request((), (wire.op_delete(wire.delete_request(path)),))]
    first = await store.put("maps/b", lambda _: b"1", expected=0)
    await store.sync()
    assert store.get("maps/b") is None
    revisions = [event.revision for event in seen if event.key == "maps/b"]
    assert len(revisions) == 2 and revisions[0] == first.mod_revision
    # It may have been committed and overwritten: then the history cannot show it, and nothing is claimed.
    client.lose = 1
    put = wire.op_put(wire.put_request(f"{prefix}/maps/a".encode(), b"other"))
    client.after = [wire.txn_request((), (put,))]
    with pytest.raises(StoreUnavailable):
        await store.put("maps/a", lambda _: b"3", expected=changed.mod_revision)
    # A write that compares nothing is not sent again.
    client.lose = 1
    with pytest.raises(StoreUnavailable):
        await store.put("maps/a", lambda _: b"4")
    await store.close()
