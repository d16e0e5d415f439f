"""The behaviour of every store, with any engine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.conftest import ContextFactory
from tests.etcd_process import EtcdProcess

from transom.kit.clock import Clock, VirtualClock
from transom.store.api import (
    FutureRevision,
    PreconditionFailed,
    RevisionCompacted,
    Store,
    StoreError,
    StoreEvent,
    StoreRecord,
)
from transom.store.etcd.client import EtcdClient, parse_etcd_address
from transom.store.etcd.store import EtcdStore
from transom.store.memory import MemoryStore
from transom.store.sqlite import SqliteStore

Run = Callable[[Callable[[Store], Awaitable[None]]], None]
Make = Callable[..., Store]


@pytest.fixture(params=["memory", "sqlite", "etcd"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Make:
    """Makes an empty store."""

    def make_store(clock: Clock | None = None, **bounds: float) -> Store:
        if kind == "memory":
            return MemoryStore(clock, **bounds)
        if kind == "sqlite":
            return SqliteStore(tmp_path / f"db{len(list(tmp_path.iterdir()))}", clock, **bounds)
        member: EtcdProcess = request.getfixturevalue("etcd")
        address = parse_etcd_address(member.fresh_url())
        return EtcdStore(EtcdClient(address), address.prefix, clock=clock, **bounds)  # type: ignore[arg-type]

    return make_store


@pytest.fixture
def run(make: Make) -> ContextFactory:
    @asynccontextmanager
    async def run_scenario() -> AsyncIterator[Store]:
        store = make()
        await store.start()
        yield store
        await store.close()

    return run_scenario


async def in_order(store: Store, *writes: Callable[[], Awaitable[object]]) -> None:
    """Together if that keeps their order; etcd orders concurrent writes as it likes."""
    if store.follows:
        for write in writes:
            await write()
    else:
        await asyncio.gather(*(write() for write in writes))


async def refusal(write: Callable[[], Awaitable[object]]) -> PreconditionFailed:
    """A check fails at once or when the write is committed."""
    with pytest.raises(PreconditionFailed) as refused:
        await write()
    return refused.value


def put(
    store: Store, key: str, value: bytes = b"x", **options: float
) -> asyncio.Future[StoreRecord]:
    return store.put(key, lambda revision: value, **options)  # type: ignore[arg-type]


def short(events: Sequence[StoreEvent]) -> list[tuple[int, str, bytes | None]]:
    return [(event.revision, event.key, event.record and event.record.value) for event in events]


async def test_a_write_is_visible_when_its_future_resolves_and_not_before(
    run: ContextFactory,
) -> None:
    async with run() as store:
        base = store.revision
        assert base == 1 or store.follows
        seen: list[StoreEvent] = []
        store.watch("pods/", base, seen.extend)
        encoded_with: list[int] = []

        def encode(revision: int) -> bytes:
            encoded_with.append(revision)
            return b"v%d" % revision

        future = store.put("pods/a", encode)
        assert encoded_with == [0 if store.follows else 2]  # etcd has not chosen it yet
        assert (
            store.get("pods/a") is None
            and store.count("pods/") == 0
            and store.revision == base
            and not seen
        )
        latest = store.latest("pods/a")
        assert store.follows or (latest is not None and latest.value == b"v2")
        record = await future
        assert record is store.get("pods/a") is store.latest("pods/a") is seen[0].record
        new = base + 1
        assert (record.create_revision, record.mod_revision, store.revision) == (new, new, new)


async def test_a_check_that_fails_changes_nothing_and_shows_the_current_record(
    run: ContextFactory,
) -> None:
    async with run() as store:
        base = store.revision
        await put(store, "pods/a", expected=0)
        refused = await refusal(lambda: put(store, "pods/a", b"other", expected=0))
        assert refused.current is store.get("pods/a") is not None
        second = await put(store, "pods/a", b"y", expected=base + 1)
        await refusal(lambda: put(store, "pods/a", expected=base + 1))
        await refusal(lambda: store.delete("pods/a", expected=base + 1))
        await refusal(lambda: store.delete("pods/b"))
        await refusal(lambda: store.delete("pods/b", expected=base + 1))
        assert store.get("pods/a") is second
        deleted, revision = await store.delete("pods/a", expected=base + 2)
        assert (deleted, revision) == (second, base + 3)
        assert (await refusal(lambda: store.delete("pods/a"))).current is None
        assert (await put(store, "pods/a", b"z", expected=0)).create_revision == base + 4
        assert store.revision == base + 4  # refused writes take no revision


async def test_writes_of_one_key_are_committed_in_the_order_of_the_calls(
    run: ContextFactory,
) -> None:
    async with run() as store:
        seen: list[StoreEvent] = []
        store.watch("pods/", store.revision, seen.extend)
        await asyncio.gather(*(put(store, "pods/a", b"%d" % n) for n in range(20)))
        assert [e.record and e.record.value for e in seen] == [b"%d" % n for n in range(20)]


@pytest.mark.parametrize("kind", ["memory", "sqlite"], indirect=True)
async def test_preconditions_are_checked_at_once_against_what_is_accepted(
    run: ContextFactory,
) -> None:
    async with run() as store:
        first = put(store, "pods/a", expected=0)
        with pytest.raises(PreconditionFailed) as refused:
            put(store, "pods/a", expected=0)
        assert refused.value.current is store.latest("pods/a")
        second = put(store, "pods/a", b"y", expected=2)
        with pytest.raises(PreconditionFailed):
            put(store, "pods/a", expected=2)
        with pytest.raises(PreconditionFailed):
            store.delete("pods/a", expected=2)
        third = store.delete("pods/a", expected=3)
        assert store.latest("pods/a") is None
        with pytest.raises(PreconditionFailed) as missing:
            store.delete("pods/a")
        assert missing.value.current is None
        fourth = put(store, "pods/a", b"z", expected=0)
        await asyncio.gather(first, second, third, fourth)
        deleted, revision = third.result()
        assert (deleted.value, deleted.create_revision, revision) == (b"y", 2, 4)
        assert fourth.result().create_revision == 5
        assert store.revision == 5  # refused writes take no revision


async def test_an_encoder_that_fails_leaves_no_trace(run: ContextFactory) -> None:
    async with run() as store:
        base = store.revision

        def broken(revision: int) -> bytes:
            raise LookupError

        with pytest.raises(LookupError):
            store.put("pods/a", broken)
        with pytest.raises(ValueError):
            put(store, "no-bucket")
        with pytest.raises(UnicodeEncodeError):
            put(store, "pods/\ud800")
        assert store.latest("pods/a") is None
        assert (await put(store, "pods/a")).mod_revision == base + 1


async def test_a_cancelled_caller_does_not_stop_the_write(run: ContextFactory) -> None:
    async with run() as store:
        written = asyncio.Event()
        store.watch("pods/a", store.revision, lambda events: written.set())
        put(store, "pods/a").cancel()
        await written.wait()
        assert store.get("pods/a") is not None


async def test_lists_are_sorted_and_paged(run: ContextFactory) -> None:
    async with run() as store:
        names = [
            "pods/b/1",
            "pods/a/2",
            "pods/a/1",
            "pods/a0/1",
            "pods.x/a/9",
            "podsx/1",
            "pods/a/é",
            "pods/a/\U0010ffff",
        ]
        await asyncio.gather(*(put(store, name) for name in names))
        expected = sorted(names)

        def keys(prefix: str, **options: object) -> list[str]:
            return [record.key for record in store.list(prefix, **options).records]  # type: ignore[arg-type]

        for prefix in (
            "",
            "pods",
            "pods/",
            "pods/a",
            "pods/a/",
            "pods/a/1",
            "pods/c",
            "nothing/",
            "podsx/1",
        ):
            assert keys(prefix) == [name for name in expected if name.startswith(prefix)]
            assert store.count(prefix) == len(keys(prefix))
        page = store.list("pods/", limit=2)
        assert ([r.key for r in page.records], page.revision, page.more, page.remaining) == (
            ["pods/a/1", "pods/a/2"],
            store.revision,
            True,
            4,
        )
        await store.delete("pods/a/é")
        await put(store, "pods/a/3")
        await put(store, "pods/b/1", b"changed")
        await put(store, "pods/a/1", b"changed, but on the page before")
        rest = store.list("pods/", after="pods/a/2", limit=9, revision=page.revision)
        assert [record.key for record in rest.records] == [
            k for k in expected if k.startswith("pods/") and k > "pods/a/2"
        ]
        assert (rest.revision, rest.more, rest.remaining) == (page.revision, False, 0)
        assert rest.records[-1].value == b"x"


async def test_reading_outside_of_history(run: ContextFactory) -> None:
    async with run() as store:
        zero = store.revision - 1
        for value in (b"2", b"3", b"4"):
            await put(store, "pods/a", value)
        with pytest.raises(FutureRevision) as future:
            store.list("pods/", revision=zero + 5)
        assert future.value.current == zero + 4
        with pytest.raises(FutureRevision):
            store.compact(zero + 5)
        store.compact(zero + 3)
        await asyncio.sleep(0)
        assert store.compacted == zero + 3
        for read in (
            lambda: store.list("pods/", revision=zero + 2),
            lambda: store.get("pods/a", zero + 2),
            lambda: store.get("nodes/a", zero + 2),
            lambda: store.watch("pods/", zero + 2, print),
        ):
            with pytest.raises(RevisionCompacted) as gone:
                read()
            assert gone.value.revision == zero + 3
        record = store.get("pods/a", zero + 3)
        assert record is not None and record.value == b"3"
        assert [r.value for r in store.list("pods/", revision=zero + 3).records] == [b"3"]
        seen: list[StoreEvent] = []
        store.watch("pods/", zero + 3, seen.extend)
        assert short(seen) == [(zero + 4, "pods/a", b"4")]


async def test_watches_have_no_gaps_and_no_duplicates(run: ContextFactory) -> None:
    async with run() as store:
        zero = store.revision - 1

        def shown(name: str) -> list[tuple[int, str, bytes | None]]:
            return [(revision - zero, *rest) for revision, *rest in short(batches[name])]  # type: ignore[misc]

        await in_order(
            store,
            *(partial(put, store, f"pods/{ns}/{n}") for ns in "ab" for n in range(3)),
            partial(put, store, "nodes/n"),
        )
        batches: dict[str, list[StoreEvent]] = {
            "late": [],
            "everything": [],
            "one": [],
            "future": [],
        }

        def join_late(events: Sequence[StoreEvent]) -> None:
            if not batches["late"]:
                store.watch("pods/a/", events[0].revision - 1, batches["late"].extend)

        # Called before the watchers of pods/a/, to whom it adds one in the middle of a batch.
        store.watch("pods/", store.revision, join_late)
        early = store.watch("pods/a/", zero + 1, batches.setdefault("early", []).extend)
        store.watch("pods/b/1", zero + 1, batches["one"].extend)
        store.watch("", zero + 3, batches["everything"].extend)
        store.watch("pods/", zero + 10, batches["future"].extend)
        await in_order(
            store,
            partial(put, store, "pods/a/0", b"y"),
            partial(store.delete, "pods/a/1"),
            partial(put, store, "pods/b/9"),
            partial(put, store, "pods/a/7"),
        )
        early.cancel()
        early.cancel()
        await put(store, "pods/a/8")
        a = [(2, "pods/a/0", b"x"), (3, "pods/a/1", b"x"), (4, "pods/a/2", b"x")]
        b = [
            (5, "pods/b/0", b"x"),
            (6, "pods/b/1", b"x"),
            (7, "pods/b/2", b"x"),
            (8, "nodes/n", b"x"),
        ]
        new = [
            (9, "pods/a/0", b"y"),
            (10, "pods/a/1", None),
            (11, "pods/b/9", b"x"),
            (12, "pods/a/7", b"x"),
        ]
        last = (13, "pods/a/8", b"x")
        assert shown("early") == [*a, new[0], new[1], new[3]]
        assert shown("one") == [b[1]]
        assert shown("everything") == [a[2], *b, *new, last]
        assert shown("future") == [new[2], new[3], last]
        assert shown("late") == [new[0], new[1], new[3], last]
        assert batches["early"][3].previous is batches["early"][0].record


async def test_a_watcher_that_fails_or_leaves_does_not_disturb_others(
    run: ContextFactory, caplog: pytest.LogCaptureFixture
) -> None:
    async with run() as store:
        seen: list[StoreEvent] = []

        def leave(events: Sequence[StoreEvent]) -> None:
            second.cancel()

        def fail(events: Sequence[StoreEvent]) -> None:
            raise RuntimeError("not my day")

        base = store.revision
        store.watch("pods/", base, leave)
        second = store.watch("pods/", base, lambda events: pytest.fail("cancelled"))
        store.watch("pods/", base, fail)
        store.watch("pods/", base, seen.extend)
        await put(store, "pods/a")
        await put(store, "pods/b")
        assert [event.key for event in seen] == ["pods/a", "pods/b"]
    assert "not my day" in caplog.text


async def test_a_closed_store_refuses_writes_and_finished_what_it_had(make: Make) -> None:
    store = make()
    with pytest.raises(StoreError):
        put(store, "pods/a")
    await store.start()
    base = store.revision
    future = put(store, "pods/a")
    await store.close()
    assert (await future).mod_revision == base + 1
    with pytest.raises(StoreError):
        put(store, "pods/b")
    await store.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"], indirect=True)
async def test_keys_expire_on_their_own(make: Make) -> None:
    clock = VirtualClock()
    store = make(clock)
    await store.start()
    await put(store, "events/short", ttl=10)
    await put(store, "events/renewed", ttl=10)
    await put(store, "events/kept", ttl=10)
    long = await put(store, "events/long", ttl=100)
    assert long.expires == clock.time() + 100
    clock.advance(5)
    await put(store, "events/renewed", ttl=10)
    await put(store, "events/kept")
    seen: asyncio.Queue[StoreEvent] = asyncio.Queue()
    store.watch(
        "events/",
        store.revision,
        lambda events: [seen.put_nowait(event) for event in events] and None,
    )
    clock.advance(4.9)
    await put(store, "pods/a")
    assert store.count("events/") == 4
    clock.advance(0.1)
    event = await seen.get()
    assert (event.key, event.record, event.revision) == ("events/short", None, 9)
    clock.advance(5)
    assert (await seen.get()).key == "events/renewed"
    clock.advance(85)
    assert (await seen.get()).key == "events/long"
    assert [record.key for record in store.list("events/").records] == ["events/kept"]
    await store.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"], indirect=True)
async def test_many_keys_expiring_at_once_all_go(make: Make) -> None:
    clock = VirtualClock()
    store = make(clock)
    await store.start()
    await asyncio.gather(*(put(store, f"events/{n}", ttl=5) for n in range(1000)))
    gone = asyncio.Event()
    store.watch(
        "events/", store.revision, lambda events: None if store.count("events/") else gone.set()
    )
    clock.advance(5)
    await gone.wait()
    await store.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"], indirect=True)
async def test_history_is_kept_for_a_time_and_within_bounds(make: Make) -> None:
    clock = VirtualClock()
    store = make(clock, history_seconds=300, compact_interval=60, history_events=50)
    await store.start()
    await put(store, "pods/a")
    await clock.run_for(299)
    assert store.compacted == 0
    await clock.run_for(1)
    assert store.compacted == 1  # what was there at the start of the history: nothing
    await clock.run_for(60)
    assert store.compacted == 2
    for _ in range(60):
        await put(store, "pods/a")
    assert store.compacted == store.revision - 50
    await store.close()

    store = make(clock, history_bytes=100_000)
    await store.start()
    for _ in range(30):
        await put(store, "pods/a", bytes(10_000))
    assert 5 <= store.revision - store.compacted <= 15
    await store.close()
