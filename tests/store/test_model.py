"""Random histories: the store shows the same as a plain list of changes."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from transom.store.api import PreconditionFailed, RevisionCompacted, Store, StoreEvent
from transom.store.memory import MemoryStore
from transom.store.sqlite import SqliteStore

KEYS = ["a/1", "a/2", "a/22", "a/n/1", "a.b/1", "b/1", "b/2"]
PREFIXES = ["", "a", "a/", "a/2", "a/n/", "b/", "c/"]
Change = tuple[int, str, bytes | None]
keys, prefixes = st.sampled_from(KEYS), st.sampled_from(PREFIXES)
writes = st.tuples(
    keys, st.sampled_from([b"", b"x", b"yy", None]), st.sampled_from(["any", "right", "wrong"])
)


class Machine(RuleBasedStateMachine):
    survives_restart = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = Path(tempfile.mkdtemp())
        self.log: list[Change] = []
        self.watches: list[tuple[str, int, list[StoreEvent]]] = []
        self.store = self.make()
        self.loop.run_until_complete(self.store.start())

    def make(self) -> Store:
        raise NotImplementedError

    def teardown(self) -> None:
        self.loop.run_until_complete(self.store.close())
        self.loop.close()
        shutil.rmtree(self.directory)

    def state_at(self, revision: int) -> dict[str, tuple[bytes, int, int]]:
        state: dict[str, tuple[bytes, int, int]] = {}
        for changed, key, value in self.log:
            if changed > revision:
                break
            if value is None:
                del state[key]
            else:
                state[key] = (value, state[key][1] if key in state else changed, changed)
        return state

    @rule(group=st.lists(writes, min_size=1, max_size=8))
    def write(self, group: list[tuple[str, bytes | None, str]]) -> None:
        async def go() -> None:
            futures: list[asyncio.Future] = []
            for key, value, check in group:
                there = self.state_at(1 << 60).get(key)
                expected = {"any": None, "right": there[2] if there else 0, "wrong": 99999}[check]
                change = (self.log[-1][0] + 1 if self.log else 2, key, value)
                fits = check != "wrong" and (value is not None or there is not None)
                try:
                    if value is None:
                        futures.append(self.store.delete(key, expected=expected))
                    else:
                        futures.append(
                            self.store.put(
                                key, lambda revision, value=value: value, expected=expected
                            )
                        )
                except PreconditionFailed as error:
                    assert not fits
                    assert (error.current and error.current.mod_revision) == (there and there[2])
                else:
                    assert fits
                    self.log.append(change)
            await asyncio.gather(*futures)

        self.loop.run_until_complete(go())

    @rule(prefix=prefixes, back=st.integers(0, 40))
    def watch(self, prefix: str, back: int) -> None:
        since = max(self.store.revision - back, 1)
        events: list[StoreEvent] = []
        self.subscribe(prefix, since, events)

    def subscribe(self, prefix: str, since: int, events: list[StoreEvent]) -> None:
        try:
            self.store.watch(prefix, since, events.extend)
        except RevisionCompacted:
            assert since < self.store.compacted
        else:
            assert since >= self.store.compacted
            self.watches.append((prefix, since, events))

    @rule(prefix=prefixes, back=st.integers(0, 40), limit=st.integers(0, 3))
    def list_by_pages(self, prefix: str, back: int, limit: int) -> None:
        revision = max(self.store.revision - back, 1)
        expected = [
            item for item in sorted(self.state_at(revision).items()) if item[0].startswith(prefix)
        ]
        if revision < self.store.compacted:
            with pytest.raises(RevisionCompacted):
                self.store.list(prefix, revision=revision)
            return
        found, after, more = [], "", True
        while more:
            page = self.store.list(prefix, after=after, limit=limit, revision=revision)
            assert page.revision == revision and (len(page.records) == limit or not page.more)
            found += [(r.key, (r.value, r.create_revision, r.mod_revision)) for r in page.records]
            assert page.remaining == len(expected) - len(found) and page.more == (
                page.remaining > 0
            )
            after, more = found[-1][0] if found else "", page.more
        assert found == expected

    @rule(key=keys, back=st.integers(0, 40))
    def get(self, key: str, back: int) -> None:
        revision = max(self.store.revision - back, self.store.compacted, 1)
        record = self.store.get(key, revision)
        expected = self.state_at(revision).get(key)
        assert (record and (record.value, record.create_revision, record.mod_revision)) == expected

    @rule(back=st.integers(0, 30))
    def compact(self, back: int) -> None:
        self.store.compact(max(self.store.revision - back, 1))
        self.loop.run_until_complete(asyncio.sleep(0))

    @rule()
    def restart(self) -> None:
        if not self.survives_restart:
            return
        before, compacted, watches = self.store.revision, self.store.compacted, self.watches
        self.loop.run_until_complete(self.store.close())
        self.store = self.make()
        self.loop.run_until_complete(self.store.start())
        assert self.store.revision == before
        assert self.store.compacted <= compacted
        self.watches = []
        for prefix, since, events in watches:
            self.subscribe(prefix, events[-1].revision if events else since, [])

    @invariant()
    def agrees(self) -> None:
        now = self.state_at(1 << 60)
        assert self.store.revision == (self.log[-1][0] if self.log else 1)
        assert {
            r.key: (r.value, r.create_revision, r.mod_revision) for r in self.store.list("").records
        } == now
        for prefix, since, events in self.watches:
            expected = [
                change for change in self.log if change[0] > since and change[1].startswith(prefix)
            ]
            assert [(e.revision, e.key, e.record and e.record.value) for e in events] == expected


class MemoryMachine(Machine):
    def make(self) -> Store:
        return MemoryStore(history_events=30)


class SqliteMachine(Machine):
    survives_restart = True

    def make(self) -> Store:
        return SqliteStore(self.directory / "db", history_events=30)


def _case(machine: type[Machine], examples: int) -> Callable[..., None]:
    machine.TestCase.settings = settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return machine.TestCase


TestMemory = _case(MemoryMachine, 100)
TestSqlite = _case(SqliteMachine, 60)
