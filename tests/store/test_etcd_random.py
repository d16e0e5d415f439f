"""Random writes by two stores on one etcd while their connections are cut, by seed.

Checked at the end: every acknowledged write is in the history of its key, both copies are equal, and
each watch, replayed, gives the same state: no gap, no duplicate, no reordering.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from tests.etcd_process import EtcdProcess, Forwarder

from transom.store.api import PreconditionFailed, StoreEvent, StoreUnavailable
from transom.store.etcd.client import EtcdClient, parse_etcd_address
from transom.store.etcd.store import EtcdStore

_STEPS = 150
_WRITERS = 6
_KEYS = 5


class ReplayedWatch:
    """The state that a watcher builds from its events."""

    def __init__(self, store: EtcdStore) -> None:
        self.state: dict[str, tuple[bytes, int]] = {}
        self.history: set[tuple[str, int, bytes | None]] = set()
        self._revision = store.revision
        store.watch("", store.revision, self._add)

    def _add(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            assert event.revision > self._revision, "an event came twice or too late"
            self._revision = event.revision
            before = self.state.get(event.key)
            assert (event.previous and event.previous.mod_revision) == (before and before[1])
            if event.record is None:
                del self.state[event.key]
            else:
                self.state[event.key] = (event.record.value, event.record.mod_revision)
            value = None if event.record is None else event.record.value
            self.history.add((event.key, event.revision, value))


@pytest.mark.parametrize("seed", range(3))
async def test_no_acknowledged_write_is_lost_and_watches_are_complete(
    etcd: EtcdProcess, seed: int
) -> None:
    rng = random.Random(seed)

    async def write(store: EtcdStore, number: int, acknowledged: set[object]) -> None:
        key = f"pods/{rng.randrange(_KEYS)}"
        current = store.latest(key)
        expected = 0 if current is None else current.mod_revision
        try:
            if current is not None and rng.random() < 0.3:
                _, revision = await store.delete(key, expected=expected)
                acknowledged.add((key, revision, None))
            else:
                value = b"%d" % number
                record = await store.put(key, lambda revision: value, expected=expected)
                acknowledged.add((key, record.mod_revision, value))
        except (PreconditionFailed, StoreUnavailable):
            return

    url = etcd.fresh_url()
    proxies, stores = [], []
    for _ in range(2):
        proxy = Forwarder(etcd)
        address = parse_etcd_address(url.replace(etcd.address, await proxy.start()))
        store = EtcdStore(EtcdClient(address), address.prefix)
        await store.start()
        proxies.append(proxy)
        stores.append(store)
    watches = [ReplayedWatch(store) for store in stores]
    acknowledged: set[object] = set()
    numbers = iter(range(_STEPS))

    async def work(store: EtcdStore) -> None:
        for number in numbers:
            await write(store, number, acknowledged)
            if rng.random() < 0.1:
                proxy = rng.choice(proxies)
                proxy.disconnect()
                proxy.cut = rng.random() < 0.5
            elif rng.random() < 0.3:
                for proxy in proxies:
                    proxy.cut = False

    await asyncio.gather(*(work(stores[n % 2]) for n in range(_WRITERS)))
    for proxy in proxies:
        proxy.cut = False
    for store in stores:
        while True:
            try:
                await store.sync()
                break
            except StoreUnavailable:
                continue
    states = [{r.key: (r.value, r.mod_revision) for r in s.list("").records} for s in stores]
    assert states[0] == states[1]
    assert [watch.state for watch in watches] == states
    assert watches[0].history == watches[1].history
    assert acknowledged and acknowledged <= watches[0].history
    for store, proxy in zip(stores, proxies, strict=True):
        await store.close()
        await proxy.stop()
