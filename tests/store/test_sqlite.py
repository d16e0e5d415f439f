"""What is specific to the store on disk: durability, failures, the file itself."""

import asyncio
import hashlib
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from transom.kit.clock import VirtualClock
from transom.store import disk
from transom.store.api import StoreError, StoreEvent, StoreRecord
from transom.store.rows import Ledger
from transom.store.sqlite import SqliteStore


def put(
    store: SqliteStore, key: str, value: bytes = b"x", **options: float
) -> asyncio.Future[StoreRecord]:
    return store.put(key, lambda revision: value, **options)  # type: ignore[arg-type]


async def opened(path: Path, **options: object) -> SqliteStore:
    store = SqliteStore(path, **options)  # type: ignore[arg-type]
    await store.start()
    return store


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def wait_until_idle(store: SqliteStore) -> None:
    while not store._log._idle:  # type: ignore[attr-defined]
        os.sched_yield()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def rows(path: Path) -> list[tuple[int, str]]:
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT revision, key FROM log ORDER BY revision").fetchall()
    connection.close()
    return found


async def test_watches_and_page_tokens_survive_a_restart(path: Path) -> None:
    store = await opened(path)
    for n in range(5):
        await put(store, "pods/a", b"%d" % n)
    await store.delete("pods/a")
    await put(store, "pods/b")
    await store.close()
    store = await opened(path)
    seen: list[StoreEvent] = []
    store.watch("pods/", 5, seen.extend)
    assert [
        (e.revision, e.record and e.record.value, e.previous and e.previous.value) for e in seen
    ] == [
        (6, b"4", b"3"),
        (7, None, b"4"),
        (8, b"x", None),
    ]
    assert [record.value for record in store.list("pods/", revision=4).records] == [b"2"]
    assert (await put(store, "pods/c")).mod_revision == 9
    await store.close()


async def test_the_counter_does_not_go_back_when_the_newest_rows_are_gone(path: Path) -> None:
    store = await opened(path)
    await put(store, "pods/a")
    await put(store, "pods/b")
    await store.delete("pods/b")
    store.compact(4)
    await asyncio.sleep(0)
    await asyncio.to_thread(wait_until_idle, store)
    await store.close()
    assert rows(path) == [(2, "pods/a")]
    store = await opened(path)
    assert (store.revision, store.compacted) == (4, 4)
    assert (await put(store, "pods/c")).mod_revision == 5
    await store.close()


async def test_rows_left_by_an_interrupted_compaction_are_removed_later(path: Path) -> None:
    store = await opened(path)
    for n in range(5):
        await put(store, "pods/a", b"%d" % n)
    await store.delete("pods/a")
    await put(store, "pods/b")
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM log WHERE revision < 4")
        ledger = disk.recount_rows(connection, Ledger(7, 8))
        disk.write_ledger(connection, ledger)
    connection.close()
    store = await opened(path)
    assert [record.key for record in store.list("").records] == ["pods/b"]
    await put(store, "pods/c")
    await put(store, "pods/d")
    await store.close()
    assert rows(path) == [(8, "pods/b"), (9, "pods/c"), (10, "pods/d")]


def test_file_and_log_stay_small_however_much_is_written(path: Path) -> None:
    sizes: list[int] = []

    def measure(name: str) -> None:
        sizes.append(os.path.getsize(name))

    async def scenario() -> None:
        store = await opened(path, history_events=500)
        value = bytes(8000)
        for _ in range(10):
            await asyncio.gather(*(put(store, f"pods/{n % 20}", value) for n in range(1000)))
        measure(f"{path}-wal")
        await store.close()
        measure(str(path))

    run(scenario)
    assert all(size < 30 << 20 for size in sizes), sizes  # 80 MB were written
    assert len(rows(path)) < 3000


async def test_a_full_disk_fails_the_writers_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def limit(store: SqliteStore, pages: int) -> sqlite3.Connection:
        (connection,) = connections
        await asyncio.to_thread(connection.execute, f"PRAGMA max_page_count = {pages}")
        return connection

    connections: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def remembering(*args: object, **options: object) -> sqlite3.Connection:
        connections.append(connect(*args, **options, check_same_thread=False))  # type: ignore[call-overload]
        return connections[-1]

    monkeypatch.setattr(disk.sqlite3, "connect", remembering)  # type: ignore[attr-defined]
    store = await opened(path)
    await put(store, "pods/a", b"old")
    connection = await limit(store, 8)
    kept = None
    failed = 0
    for n in range(100):
        writes = [
            put(store, f"pods/{n}", bytes(3000)),
            put(store, f"pods/{n}", b"depends on it"),
        ]
        results = await asyncio.gather(*writes, return_exceptions=True)
        if isinstance(results[0], StoreError):
            failed += 1
            assert isinstance(results[1], StoreError)
            assert "full" in str(results[0])
            assert store.latest(f"pods/{n}") is None is store.get(f"pods/{n}")
        else:
            kept = results[1]
    assert failed and isinstance(kept, StoreRecord)
    before = store.revision
    assert before == kept.mod_revision
    current = store.get("pods/a")
    assert current is not None and current.value == b"old"
    await asyncio.to_thread(connection.execute, "PRAGMA max_page_count = 100000")
    again = await put(store, "pods/a", b"new", expected=current.mod_revision)
    assert again.mod_revision > before
    await store.close()
    store = await opened(path)
    assert store.revision == again.mod_revision
    assert store.get(kept.key) is not None
    await store.close()


async def test_everything_accepted_before_the_failure_was_known_fails_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = disk.commit_rows
    broken = True

    def flaky(connection: sqlite3.Connection, *args: object) -> object:
        if broken:
            raise sqlite3.OperationalError("disk I/O error")
        return commit(connection, *args)  # type: ignore[arg-type]

    store = await opened(path)
    monkeypatch.setattr(disk, "commit_rows", flaky)
    seen: list[StoreEvent] = []
    store.watch("", 1, seen.extend)
    first = put(store, "pods/a", ttl=60)
    await asyncio.sleep(0)  # what was written is handed to the thread when the loop has its turn
    # The thread fails and reports while the loop is here, accepting on top of what failed.
    while not store._log._broken:  # type: ignore[attr-defined]
        os.sched_yield()
    broken = False
    second = put(store, "pods/a", expected=2)
    other = put(store, "pods/b")
    wait_until_idle(store)
    results = await asyncio.gather(first, second, other, return_exceptions=True)
    assert all(isinstance(result, StoreError) for result in results)
    assert "disk I/O error" in str(results[0])
    assert store.revision == 1 and store.latest("pods/a") is None and not seen
    assert (
        await put(store, "pods/a", expected=0)
    ).mod_revision == 5  # revisions are not given out twice
    await store.close()


async def test_latest_shows_the_newest_of_several_writes_on_their_way(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = disk.commit_rows
    gate = threading.Semaphore(1)

    def one_at_a_time(connection: sqlite3.Connection, *args: object) -> object:
        gate.acquire()
        return commit(connection, *args)  # type: ignore[arg-type]

    store = await opened(path)
    monkeypatch.setattr(disk, "commit_rows", one_at_a_time)
    first = put(store, "pods/a")
    await asyncio.sleep(0)
    wait_until_idle(store)  # it is durable, but the loop was not notified yet
    second = put(store, "pods/a", b"y", expected=2)
    await first
    current, latest = store.get("pods/a"), store.latest("pods/a")
    assert current is not None and latest is not None
    assert (current.mod_revision, latest.mod_revision) == (2, 3)
    gate.release()
    assert await second is store.get("pods/a") is latest
    await store.close()


async def test_an_expiry_that_fails_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = disk.commit_rows
    attempts = 0

    def flaky(connection: sqlite3.Connection, *args: object) -> object:
        nonlocal attempts
        attempts += 1
        if attempts == 2:
            raise sqlite3.OperationalError("database or disk is full")
        return commit(connection, *args)  # type: ignore[arg-type]

    clock = VirtualClock()
    store = await opened(path, clock=clock)
    monkeypatch.setattr(disk, "commit_rows", flaky)
    failed = asyncio.Event()
    report = store._log._failed  # type: ignore[attr-defined]
    monkeypatch.setattr(store._log, "_failed", lambda *args: (report(*args), failed.set()))
    await put(store, "events/a", ttl=10)
    clock.advance(10)
    await failed.wait()
    assert store.get("events/a") is store.latest("events/a") is not None
    gone = asyncio.Event()
    store.watch("events/", store.revision, lambda events: gone.set())
    clock.advance(1)
    await gone.wait()
    assert store.get("events/a") is None
    await store.close()


async def test_keys_that_expired_while_stopped_are_deleted_at_the_start(
    path: Path,
) -> None:
    store = await opened(path, clock=VirtualClock(start=1000.0))
    await put(store, "events/gone", ttl=10)
    await put(store, "events/stays", ttl=100)
    await store.close()
    clock = VirtualClock(start=1050.0)
    store = await opened(path, clock=clock)
    assert [record.key for record in store.list("events/").records] == ["events/stays"]
    seen: asyncio.Queue[StoreEvent] = asyncio.Queue()
    store.watch("events/", 3, lambda events: [seen.put_nowait(event) for event in events] and None)
    event = await seen.get()
    assert (event.revision, event.key, event.record) == (4, "events/gone", None)
    clock.advance(50)
    assert (await seen.get()).key == "events/stays"
    await store.close()


async def test_two_servers_cannot_open_the_same_file(path: Path) -> None:
    store = await opened(path)
    with pytest.raises(StoreError, match=rf"in use by another server \(process {os.getpid()}\)"):
        await opened(path)
    program = (
        "import asyncio, pathlib, sys\n"
        "from transom.store.sqlite import SqliteStore\n"
        "asyncio.run(SqliteStore(pathlib.Path(sys.argv[1])).start())"
    )
    second = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1 and "in use by another server" in second.stderr
    await put(store, "pods/a")
    await store.close()
    store = await opened(path)
    assert store.count("pods/") == 1
    await store.close()


async def test_files_are_private(path: Path) -> None:
    store = await opened(path)
    await put(store, "secrets/a")
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db.lock": 0o600}
    await store.close()


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (
            lambda path: path.write_bytes(b"no database at all, but long enough to be one" * 50),
            "not a database",
        ),
        (lambda path: script(path, "CREATE TABLE t (x)"), "not the data of a Transom server"),
        (
            lambda path: fresh(path, "PRAGMA user_version = 3"),
            "format 3, written by a newer release",
        ),
        (lambda path: fresh(path, "DELETE FROM meta"), "damaged"),
        (lambda path: path.mkdir(), "cannot open"),
    ],
)
def test_files_that_cannot_be_used_are_refused_with_a_reason(
    path: Path, prepare: Callable[[Path], object], message: str
) -> None:
    prepare(path)
    contents = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StoreError, match=message) as refused:
        asyncio.run(opened(path))
    assert str(path) in str(refused.value)
    assert (
        path.is_dir()
        or hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(contents).digest()
    )


def script(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(sql)
    connection.close()


def fresh(path: Path, sql: str) -> None:
    async def scenario() -> None:
        await (await opened(path)).close()

    run(scenario)
    script(path, sql)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        asyncio.run(opened(tmp_path / "nowhere" / "db"))


def test_a_pipe_in_place_of_the_file_does_not_block_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "db")
    with pytest.raises(StoreError, match="not a regular file"):
        asyncio.run(opened(tmp_path / "db"))


async def test_a_file_from_a_start_that_was_interrupted_is_completed(path: Path) -> None:
    path.touch(0o600)
    script(path, "PRAGMA journal_mode = WAL")

    store = await opened(path)
    assert (await put(store, "pods/a")).mod_revision == 2
    await store.close()
