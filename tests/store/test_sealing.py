"""Values of chosen buckets are encrypted on disk and nowhere else; keys are replaced by a
restart.
"""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from transom.kit import keyring
from transom.kit.keyring import KeyFileError, KeyRing
from transom.store import disk
from transom.store.api import StoreError
from transom.store.sealing import NOTHING, Sealing
from transom.store.sqlite import SqliteStore

OLD, NEW, OTHER = (bytes([n]) * 16 + bytes(range(16)) for n in (11, 22, 33))
SECRET = b'{"data":{"password":"%s"}}' % base64.b64encode(b"a password of the tests!")


def sealing(buckets: tuple[str, ...] = ("secrets",), **keys: bytes) -> Sealing:
    return Sealing(KeyRing(keys), buckets)


def with_store(path: Path, seal: Sealing, body: Callable[[SqliteStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = SqliteStore(path, sealing=seal)
        await store.start()
        await body(store)
        await store.close()

    asyncio.run(main())


async def nothing(_store: SqliteStore) -> None:
    return


async def write(store: SqliteStore) -> None:
    await store.put("secrets/default/a", lambda _: SECRET)
    await store.put("configmaps/default/a", lambda _: b'{"data":{"open":"yes"}}')


async def check(store: SqliteStore) -> None:
    found = store.get("secrets/default/a")
    assert found is not None and found.value == SECRET
    assert store.get("configmaps/default/a").value == b'{"data":{"open":"yes"}}'  # type: ignore[union-attr]
    assert store.revision == 3


def on_disk(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(path.name + "*")))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_only_chosen_buckets_are_sealed_and_all_come_back(path: Path) -> None:
    async def in_memory(store: SqliteStore) -> None:
        await write(store)
        await check(store)
        await store.put("secrets/default/a", lambda _: b"{}")
        await store.put("secrets/default/a", lambda _: SECRET)
        assert b"password" not in on_disk(path) and b'"open"' in on_disk(path)

    async def after(store: SqliteStore) -> None:
        assert store.get("secrets/default/a", 4).value == b"{}"  # type: ignore[union-attr]
        assert store.get("secrets/default/a").value == SECRET  # type: ignore[union-attr]

    with_store(path, sealing(k1=OLD), in_memory)
    with_store(path, sealing(k1=OLD), after)


def test_turning_it_on_leaves_no_plain_value_behind(path: Path) -> None:
    async def churn(store: SqliteStore) -> None:
        await write(store)
        for n in range(50):  # deleted ones, which lie in free pages and in the write-ahead log
            await store.put(f"secrets/default/gone-{n}", lambda _: SECRET * 40)
            await store.delete(f"secrets/default/gone-{n}")
        store.compact(store.revision)
        await asyncio.sleep(0)
        await store.put("pods/x", lambda _: b"{}")

    with_store(path, NOTHING, churn)
    assert b"password" in on_disk(path)
    with_store(path, sealing(k1=OLD), nothing)
    assert b"password" not in on_disk(path)


def test_a_wipe_that_was_interrupted_is_done_at_the_next_start(path: Path) -> None:
    with_store(path, NOTHING, write)
    connection = disk.open_database(path, is_new=False)
    ledger = disk.read_ledger(connection)
    assert ledger is not None
    real = disk.sqlite3.Connection.execute

    class Crashing:
        in_transaction = False

        def execute(self, text: str, *more: object) -> object:
            if text == "VACUUM":
                raise sqlite3.OperationalError("disk is full")
            return real(connection, text, *more)  # type: ignore[arg-type]

    with pytest.raises(StoreError, match="could not be sealed"):
        disk.reseal_rows(Crashing(), [2], sealing(k1=OLD), path, ledger)  # type: ignore[arg-type]
    assert connection.execute("SELECT value FROM meta WHERE name = 'wipe'").fetchone() == (1,)
    connection.close()
    with_store(path, sealing(k1=OLD), check)
    with sqlite3.connect(path) as fresh:
        assert fresh.execute("SELECT count(*) FROM meta WHERE name = 'wipe'").fetchone() == (0,)


def test_a_new_first_key_takes_over_at_the_start_and_the_old_one_can_go(path: Path) -> None:
    with_store(path, sealing(old=OLD), write)
    with_store(path, sealing(new=NEW, old=OLD), check)
    with_store(path, sealing(new=NEW), check)
    with pytest.raises(StoreError, match='needs the key "new", and there is only old'):
        with_store(path, sealing(old=OLD), check)


def test_turning_it_off_needs_the_key_once(path: Path) -> None:
    with_store(path, sealing(k1=OLD), write)
    with_store(path, sealing(buckets=(), k1=OLD), check)
    with_store(path, NOTHING, check)


@pytest.mark.parametrize(
    ("seal", "text"),
    [
        (
            NOTHING,
            (
                "state.db cannot be read: the record secrets/default/a is encrypted, and no key "
                "was given"
            ),
        ),
        (sealing(k1=OTHER), 'the key "k1" does not open it'),
        (sealing(k2=OLD), 'needs the key "k1", and there is only k2'),
    ],
)
def test_a_missing_or_wrong_key_is_reported_at_the_start(
    path: Path, seal: Sealing, text: str
) -> None:
    with_store(path, sealing(k1=OLD), write)
    before = on_disk(path)
    with pytest.raises(StoreError, match=text):
        with_store(path, seal, check)
    assert on_disk(path) == before


def test_a_sealed_value_does_not_open_as_another_record(path: Path) -> None:
    with_store(path, sealing(k1=OLD), write)
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE log SET key = 'secrets/default/b' WHERE key = 'secrets/default/a'"
        )
    connection.close()

    async def is_quarantined(store: SqliteStore) -> None:
        assert store.get("secrets/default/a") is store.get("secrets/default/b") is None
        assert [one.revision for one in store.quarantined()] == [2]

    with_store(path, sealing(k1=OLD), is_quarantined)
    seal = sealing(k1=OLD)
    with pytest.raises(StoreError, match="cannot be decrypted"):
        seal.from_disk("secrets/default/b", seal.to_disk("secrets/default/a", SECRET))


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00S", b"\x00Sxyz", b"\x00P", b"{}"])
@pytest.mark.parametrize("bucket", ["secrets", "pods"])
def test_any_value_comes_back_as_it_was(value: bytes, bucket: str) -> None:
    seal = sealing(k1=OLD)
    stored = seal.to_disk(f"{bucket}/x", value)
    assert seal.from_disk(f"{bucket}/x", stored) == value
    assert not seal.is_stale(f"{bucket}/x", stored)


# The key file


def key_file(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_made_key_file_is_private_and_works(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    keyring.create_key_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    ring = keyring.load_key_file(path)
    assert ring.unseal("a/b", ring.seal("a/b", b"x")) == b"x"


GOOD = base64.b64encode(OLD).decode()


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        (f"key1 {GOOD}", 0o640, "has mode 0640"),
        (f"key1 {GOOD}", 0o604, "has mode 0604"),
        ("", 0o600, "holds no key"),
        (f"key1 {GOOD[:-8]}", 0o600, 'line 1: the key "key1" has 2[67] bytes, not 32'),
        (f"# a\nkey1 !{GOOD}", 0o600, 'line 2: the key "key1" is not base64'),
        (f"{GOOD}", 0o600, "line 1: a line is a name and a key"),
        (f"a {GOOD}\na {GOOD}", 0o600, 'two keys named "a"'),
    ],
)
def test_a_key_file_that_cannot_be_used_is_refused_without_telling_keys(
    tmp_path: Path, text: str, mode: int, problem: str
) -> None:
    with pytest.raises(KeyFileError, match=problem) as refused:
        keyring.load_key_file(key_file(tmp_path, text, mode))
    assert GOOD[:20] not in str(refused.value) + refused.value.hint


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"cannot read the key file .*/none: No such file"):
        keyring.load_key_file(tmp_path / "none")
