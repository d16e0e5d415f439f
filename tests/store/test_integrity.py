"""Quarantine, the check in the background, the reported health, and the upgrade of old files."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from transom.store import disk, opening, sqlite
from transom.store.api import KeyQuarantined, OutOfSpace, ReadOnlyDisk, StoreError, StoreEvent
from transom.store.mvcc import Row
from transom.store.rows import Ledger, LedgerWriter, is_intact, written_before
from transom.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


async def opened(path: Path, **options: object) -> SqliteStore:
    store = SqliteStore(path, **options)  # type: ignore[arg-type]
    await store.start()
    return store


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def put(store: SqliteStore, key: str, value: bytes = b"{}") -> asyncio.Future[object]:
    return store.put(key, lambda _: value)  # type: ignore[return-value]


def change(path: Path, changed: Callable[[bytes], bytes]) -> bytes:
    data = changed(path.read_bytes() if path.exists() else b"")
    path.write_bytes(data)
    return data


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in the store's thread
            await asyncio.sleep(0.01)


# ---- rows and ledger ----


def test_a_checksum_covers_every_field() -> None:
    writer = LedgerWriter(Ledger())
    writer.add(2, "pods/a", 2, None, b"one")
    row = writer.add(3, "pods/b", 2, 5.0, b"two")
    assert is_intact(row)
    for changed in (
        {"revision": 4},
        {"checksum": 1},
        {"trail": b""},
        {"key": "pods/c"},
        {"create_revision": 3},
        {"expires": None},
        {"expires": 6.0},
        {"value": None},
        {"value": b"twp"},
        {"value": b""},
        {"key": None},
        {"value": "two"},
    ):
        assert not is_intact(row._replace(**changed)), changed  # type: ignore[arg-type]


def test_a_ledger_comes_back_and_a_changed_one_does_not() -> None:
    writer = LedgerWriter(Ledger(compacted=7))
    for revision in range(10, 400):
        writer.add(revision, f"pods/{revision}", revision, None, b"x")
    packed = writer.ledger.pack()
    assert Ledger.unpack(packed) == writer.ledger
    assert [at for at, _ in written_before(399, writer.ledger.trail)] == list(
        range(399, 399 - 256, -1)
    )
    for at in range(len(packed)):
        assert Ledger.unpack(packed[:at] + bytes([packed[at] ^ 4]) + packed[at + 1 :]) is None


# ---- quarantine ----


async def test_a_changed_value_is_quarantined_and_its_key_can_be_written_again(path: Path) -> None:
    store = await opened(path)
    for n in range(3):
        await put(store, f"pods/{n}", b"value %d" % n)
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE log SET value = ? WHERE key = 'pods/1'", (b"other 1",))
    connection.close()
    store = await opened(path)
    assert [record.key for record in store.list("pods/").records] == ["pods/0", "pods/2"]
    (one,) = store.quarantined()
    assert (one.key, one.revision) == ("pods/1", 3) and "checksum" in one.reason
    assert store.revision == store.compacted == 4 + opening.REVISION_BUMP
    await put(store, "pods/1", b"again")
    await store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT key, raw FROM quarantine").fetchall() == [
            ("pods/1", b"other 1")
        ]
    connection.close()
    store = await opened(path)
    assert store.get("pods/1").value == b"again"  # type: ignore[union-attr]
    assert store.quarantined() == (one,)
    store.clear_quarantine()
    await store.close()
    store = await opened(path)
    assert store.quarantined() == ()
    await store.close()
    assert [file.name for file in path.parent.glob("*.damaged-*")]


async def test_the_damaged_file_is_kept_as_it_was(path: Path) -> None:
    store = await opened(path)
    await put(store, "pods/a")
    await put(store, "pods/b")
    await store.close()
    data = change(path, lambda found: found.replace(b"pods/b", b"pods/q"))
    store = await opened(path)
    await store.close()
    (kept,) = path.parent.glob("*.damaged-*")
    assert kept.read_bytes() == data


@pytest.mark.parametrize("is_durable", [False, True])
async def test_a_value_that_makes_no_sense_is_put_aside_while_the_store_runs(
    path: Path, is_durable: bool
) -> None:
    store = await opened(path)
    seen: list[StoreEvent] = []
    recorded: list[KeyQuarantined] = []
    store.on_quarantine(recorded.append)
    store.watch("pods/", 1, seen.extend)
    await put(store, "pods/a", b"not json")
    await store.quarantine("pods/a", "it does not decode", b'{"metadata":{}}')
    assert store.get("pods/a") is None
    assert (
        seen[-1].record is None
        and seen[-1].previous is not None
        and seen[-1].previous.value == b'{"metadata":{}}'
    )
    assert (
        [one[:3] for one in recorded]
        == [("pods/a", 2, "it does not decode")]
        == [one[:3] for one in store.quarantined()]
    )
    await put(store, "pods/a")
    await store.close()
    store = await opened(path)
    assert len(store.quarantined()) == 1 and store.count("pods/") == 1
    await store.close()


# ---- in the background ----


async def test_a_row_that_changes_on_disk_is_found_and_written_again_from_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_SCRUB_SECONDS", 0.01)
    monkeypatch.setattr(sqlite, "_SCRUB_ROUND_SECONDS", 0.01)
    monkeypatch.setattr(sqlite, "_SCRUB_ROWS", 7)

    store = await opened(path)
    for n in range(40):
        await put(store, f"pods/{n}", b"value %d" % n)
    recorded: list[KeyQuarantined] = []
    store.on_quarantine(recorded.append)
    store._log.run_job(  # type: ignore[attr-defined]
        lambda connection: connection.execute("UPDATE log SET value = x'00' WHERE key = 'pods/23'")
    )
    await until(lambda: recorded)
    assert recorded[0].key == "pods/23" and "from memory" in recorded[0].reason
    await asyncio.sleep(0.1)
    assert len(recorded) == 1  # once repaired it is intact
    await store.close()
    store = await opened(path)
    assert store.get("pods/23").value == b"value 23" and store.count("pods/") == 40  # type: ignore[union-attr]
    assert [one.key for one in store.quarantined()] == ["pods/23"]
    assert not list(path.parent.glob("*.damaged-*"))
    await store.close()


# ---- health ----


async def test_health_reports_a_failed_write_and_the_recovery(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_PROBE_SECONDS", 0.02)

    store = await opened(path)
    await put(store, "pods/a")
    assert not store.health().problem and store.health().last_commit > 0
    full = True
    write, commit = disk.write_ledger, disk.commit_rows

    def failing(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            if full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args)

        return call

    monkeypatch.setattr(disk, "commit_rows", failing(commit))
    monkeypatch.setattr(disk, "write_ledger", failing_sqlite(write, lambda: full))
    with pytest.raises(OutOfSpace, match="No space left on device"):
        await put(store, "pods/b")
    assert "No space left" in store.health().problem
    await asyncio.sleep(0.1)
    assert store.health().problem
    full = False
    await until(lambda: not store.health().problem)  # without a write
    await put(store, "pods/b")
    await store.close()


def failing_sqlite(
    real: Callable[..., object], is_failing: Callable[[], bool]
) -> Callable[..., object]:
    def call(*args: object) -> object:
        if is_failing():
            raise sqlite3.OperationalError("database or disk is full")
        return real(*args)

    return call


async def test_health_reports_a_write_that_hangs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    monkeypatch.setattr(sqlite, "STUCK_SECONDS", 0.05)

    store = await opened(path)
    commit, gate = disk.commit_rows, threading.Event()
    monkeypatch.setattr(disk, "commit_rows", lambda *args: (gate.wait(20), commit(*args))[1])
    write = put(store, "pods/a")
    await until(lambda: "waiting for the disk" in store.health().problem)
    gate.set()
    await write
    assert not store.health().problem
    await store.close()


FULL_DISK = """
import asyncio, pathlib, resource, sys
from transom.store.api import StoreError
from transom.store.sqlite import SqliteStore
async def main():
    store = SqliteStore(pathlib.Path(sys.argv[1]))
    await store.start()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    kept, failed = [], 0
    for n in range(200):
        try:
            await store.put(f"pods/{n}", lambda revision: bytes(5000))
            kept.append(f"pods/{n}")
        except StoreError:
            failed += 1
    assert kept and failed > 50, (len(kept), failed)
    assert [r.key for r in store.list("").records] == sorted(kept)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await store.put("pods/after", lambda revision: b"x")
    await store.close()
    store = SqliteStore(pathlib.Path(sys.argv[1]))
    await store.start()
    assert [r.key for r in store.list("").records] == sorted([*kept, "pods/after"])
    assert not store.quarantined(), store.quarantined()
    await store.close()
asyncio.run(main())
"""


def test_a_file_that_may_not_grow_fails_writes_and_keeps_what_was_acknowledged(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, OutOfSpace),
        (errno.EDQUOT, OutOfSpace),
        (errno.EROFS, ReadOnlyDisk),
        (errno.EACCES, ReadOnlyDisk),
        (errno.EIO, StoreError),
    ],
)
def test_errors_of_the_disk_have_a_type_and_name_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreError]
) -> None:
    def refuse(*args: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(disk.os, "open", refuse)
    with pytest.raises(kind, match=os.strerror(number)) as refused:
        run(lambda: opened(path))  # type: ignore[arg-type, return-value]
    assert type(refused.value) is kind and str(path) in str(refused.value)


# ---- older formats ----


def first_format(path: Path, rows: list[Row], compacted: int = 0) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(
        f"""
        PRAGMA page_size = 8192; PRAGMA journal_mode = WAL;
        PRAGMA application_id = {0x5452534D}; PRAGMA user_version = 1;
        CREATE TABLE log (
            revision INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB, create_revision INTEGER NOT NULL, expires REAL
        );
        CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
        INSERT INTO meta VALUES ('compacted', {compacted});
        """
    )
    connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()


OLD_ROWS: list[Row] = [
    (2, "pods/a", b"{}", 2, None),
    (3, "pods/b", b"{broken", 3, None),
    (4, "pods/a", b"{1}", 2, None),
    (5, "leases/x", b"{}", 5, 4e9),
    (6, "pods/c", b"{}", 6, None),
    (7, "pods/c", None, 0, None),
]


def test_a_file_of_the_first_format_is_upgraded_after_a_snapshot(path: Path) -> None:
    first_format(path, OLD_ROWS, compacted=3)
    before: list[object] = []

    async def scenario() -> None:
        store = await opened(path, before_upgrade=lambda *found: before.extend(found))
        assert before == [OLD_ROWS, 7, 1]
        assert {r.key: r.value for r in store.list("").records} == {
            "leases/x": b"{}",
            "pods/a": b"{1}",
            "pods/b": b"{broken",
        }
        assert (store.revision, store.compacted) == (7, 3)
        assert (await store.put("pods/d", lambda _: b"{}")).mod_revision == 8
        await store.close()
        before.clear()
        store = await opened(path, before_upgrade=lambda *found: before.extend(found))
        assert store.count("") == 4 and not before
        await store.close()

    run(scenario)
    assert [file.name.split("-2")[0] for file in path.parent.glob("state.db.*")] != []


async def test_values_of_old_files_that_make_no_sense_are_quarantined(path: Path) -> None:
    first_format(path, OLD_ROWS)

    store = await opened(
        path, check=lambda key, revision, value: "broken" if b"broken" in value else ""
    )
    assert [r.key for r in store.list("pods/").records] == ["pods/a"]
    assert [one[:3] for one in store.quarantined()] == [("pods/b", 3, "broken")]
    assert store.revision == store.compacted == 8
    await store.close()


def test_an_upgrade_without_its_snapshot_does_not_happen(path: Path) -> None:
    first_format(path, OLD_ROWS)
    data = path.read_bytes()

    def fail(*_: object) -> None:
        raise OutOfSpace("cannot write the snapshot: No space left on device")

    with pytest.raises(OutOfSpace):
        run(lambda: opened(path, before_upgrade=fail))  # type: ignore[arg-type, return-value]
    assert path.read_bytes() == data


@pytest.mark.parametrize("stop_at", [1, 2, 3])
def test_an_interrupted_replacement_is_repeated_or_completed(
    path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    first_format(path, OLD_ROWS)
    real, count = os.replace, 0

    def interrupted(source: str, target: str) -> None:
        nonlocal count
        count += 1
        if count == stop_at:
            raise InterruptedError(errno.EINTR, "the power went")
        real(source, target)

    async def scenario() -> None:
        monkeypatch.setattr(disk.os, "replace", interrupted)
        with pytest.raises(StoreError):
            await opened(path)
        monkeypatch.setattr(disk.os, "replace", real)
        store = await opened(path)
        assert store.count("") == 3 and store.revision == 7
        await store.close()

    run(scenario)
    assert count == stop_at


@pytest.mark.parametrize("contents", [None, b""])
async def test_a_file_that_has_vanished_is_not_taken_for_a_new_cluster(
    path: Path, contents: bytes | None
) -> None:
    store = await opened(path)
    await put(store, "pods/a")
    await store.close()
    os.unlink(path)
    if contents is not None:
        change(path, lambda _: contents)
    with pytest.raises(StoreError, match="nothing in it can be recovered"):
        await opened(path)
