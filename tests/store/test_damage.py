"""A file that was modified from outside: only what was written is served, and losses are reported."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from transom.kit.keyring import KeyRing
from transom.store import disk
from transom.store.api import DamagedStore, KeyQuarantined, StoreError
from transom.store.pages import PageFile
from transom.store.recover import row_of_cell
from transom.store.sealing import Sealing
from transom.store.sqlite import SqliteStore

ROUNDS = int(os.environ.get("DAMAGE_ROUNDS", "15"))  # of each kind
SEALING = Sealing(KeyRing({"k1": bytes(range(32))}), ("secrets",))
PAGE = disk.PAGE_SIZE


@dataclass
class Original:
    """A store as its server left it: `closed` in order, `crashed` by kill -9, `older` some writes
    before.
    """

    folder: Path
    values: dict[str, bytes]
    revision: int

    def copy(self, name: str, target: Path) -> Path:
        for file in self.folder.glob(f"{name}*"):
            shutil.copyfile(file, target / file.name.replace(name, "state.db", 1))
        (target / "state.db.lock").write_text("1\ninitialized\n")
        return target / "state.db"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    folder = tmp_path_factory.mktemp("original")
    path = folder / "work"
    rng = random.Random(7)
    values: dict[str, bytes] = {}
    revision = 0

    async def write(store: SqliteStore, count: int) -> None:
        nonlocal revision
        for _ in range(count):
            key = f"{rng.choice(('pods', 'secrets', 'leases'))}/default/{rng.randrange(60)}"
            if key in values and rng.random() < 0.15:
                del values[key]
                _, revision = await store.delete(key)
            else:
                size = 20_000 if rng.random() < 0.05 else rng.randrange(20, 3000)
                body = rng.randbytes(size)
                record = await store.put(key, lambda at, body=body: b"%d:" % at + body)  # type: ignore[misc]
                values[key], revision = record.value, record.mod_revision

    async def fill() -> None:
        store = SqliteStore(path, sealing=SEALING)
        await store.start()
        await write(store, 250)
        store.compact(revision - 40)
        await asyncio.sleep(0.01)
        await write(store, 60)
        await store.close()
        shutil.copyfile(path, folder / "older")
        store = SqliteStore(path, sealing=SEALING)
        await store.start()
        await write(store, 60)
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", f"{folder / 'crashed'}{suffix}")
        await store.close()
        shutil.copyfile(path, folder / "closed")

    asyncio.run(fill())
    return Original(folder, values, revision)


def keys_by_page(path: Path) -> dict[int, set[str]]:
    """Which keys have a row, or a part of one, on a page."""
    file = PageFile(path.read_bytes(), b"", PAGE)
    found: dict[int, set[str]] = {}
    for number in file.walk(2)[0]:
        for cell in file.leaf(number).cells:
            row = row_of_cell(cell.rowid, cell.fields)
            assert row is not None
            for page in {number, *file.overflow_pages(file.page(number))}:
                found.setdefault(page, set()).add(row.key)
    return found


@dataclass
class Found:
    revision: int
    values: dict[str, bytes]
    quarantined: list[KeyQuarantined]


def reopened(path: Path) -> Found:
    async def look() -> Found:
        store = SqliteStore(path, sealing=SEALING)
        await store.start()
        values = {record.key: record.value for record in store.list("").records}
        found = Found(store.revision, values, list(store.quarantined()))
        created = await store.put("pods/default/new", lambda at: b"%d" % at)
        assert created.mod_revision > found.revision
        await store.close()
        return found

    found = asyncio.run(look())
    again = asyncio.run(look())
    del again.values["pods/default/new"]
    assert again.values == found.values and again.quarantined == found.quarantined
    return found


def check(found: Found, original: Original, hit: set[str]) -> None:
    for key, value in found.values.items():
        assert original.values.get(key) == value, f"{key} is not what was written last"
    missing = set(original.values) - set(found.values)
    assert missing <= hit, f"{missing - hit} were not touched"
    reported = {one.key for one in found.quarantined}
    unknown = [one for one in found.quarantined if not one.key]
    assert missing <= reported or unknown, f"{missing - reported} are gone, and nothing says so"
    assert found.revision >= original.revision


Damage = Callable[[bytearray, random.Random], set[int]]


def flip_bit(data: bytearray, rng: random.Random) -> set[int]:
    at = rng.randrange(len(data))
    data[at] ^= 1 << rng.randrange(8)
    return {at // PAGE + 1}


def flip_bytes(data: bytearray, rng: random.Random) -> set[int]:
    places = [rng.randrange(len(data)) for _ in range(rng.randrange(1, 9))]
    for at in places:
        data[at] = rng.randrange(256)
    return {at // PAGE + 1 for at in places}


def flip_in_a_page_head(data: bytearray, rng: random.Random) -> set[int]:
    page = rng.randrange(len(data) // PAGE)
    data[page * PAGE + rng.randrange(24)] ^= 1 << rng.randrange(8)
    return {page + 1}


def overwrite(size: int, *, zeros: bool) -> Damage:
    def damage(data: bytearray, rng: random.Random) -> set[int]:
        at = rng.randrange(len(data) // size) * size
        data[at : at + size] = bytes(size) if zeros else rng.randbytes(size)
        return set(range(at // PAGE + 1, (at + size - 1) // PAGE + 2))

    return damage


def truncate(data: bytearray, rng: random.Random) -> set[int]:
    before = len(data)
    del data[rng.randrange(1, len(data)) :]
    return set(range(len(data) // PAGE + 1, before // PAGE + 2))


def swap_pages(data: bytearray, rng: random.Random) -> set[int]:
    one, two = (rng.randrange(len(data) // PAGE) for _ in range(2))
    first, second = (bytes(data[n * PAGE : (n + 1) * PAGE]) for n in (one, two))
    data[one * PAGE : (one + 1) * PAGE], data[two * PAGE : (two + 1) * PAGE] = second, first
    return {one + 1, two + 1}


def misdirect(data: bytearray, rng: random.Random) -> set[int]:
    one, two = (rng.randrange(len(data) // PAGE) for _ in range(2))
    data[two * PAGE : (two + 1) * PAGE] = data[one * PAGE : (one + 1) * PAGE]
    return {one + 1, two + 1}


DAMAGES: dict[str, Damage] = {
    "a flipped bit": flip_bit,
    "changed bytes": flip_bytes,
    "a page head": flip_in_a_page_head,
    "a lost sector": overwrite(512, zeros=True),
    "a torn sector": overwrite(512, zeros=False),
    "a lost block": overwrite(4096, zeros=True),
    "a lost page": overwrite(PAGE, zeros=True),
    "lost pages": overwrite(4 * PAGE, zeros=True),
    "a cut": truncate,
    "swapped pages": swap_pages,
    "a misdirected write": misdirect,
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_serves_what_was_written_and_reports_the_rest(
    kind: str, original: Original, tmp_path: Path
) -> None:
    places = keys_by_page(original.folder / "closed")
    refused = 0
    for seed in range(ROUNDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = original.copy("closed", folder)
        data = bytearray(path.read_bytes())
        pages = DAMAGES[kind](data, random.Random(seed))
        path.write_bytes(data)
        try:
            found = reopened(path)
        except DamagedStore:
            refused += 1
            assert kind == "a cut" and path.read_bytes() == data and len(data) < 6 * PAGE, seed
        except StoreError as error:
            assert "newer release" in str(error), f"seed {seed}: {error}"
        else:
            try:
                check(found, original, set().union(*(places.get(page, ()) for page in pages)))
            except AssertionError as problem:
                raise AssertionError(f"seed {seed}, pages {pages}: {problem}") from None
        shutil.rmtree(folder)
    assert refused <= ROUNDS // 5


def test_a_write_that_never_reached_the_disk_is_noticed(original: Original, tmp_path: Path) -> None:
    """A page as it was some time ago is a page without an error in it."""
    places = keys_by_page(original.folder / "closed")
    old = (original.folder / "older").read_bytes()
    changed = 0
    for page in range(len(old) // PAGE):
        folder = tmp_path / str(page)
        folder.mkdir()
        path = original.copy("closed", folder)
        data = bytearray(path.read_bytes())
        before = bytes(data)
        data[page * PAGE : (page + 1) * PAGE] = old[page * PAGE : (page + 1) * PAGE]
        if data != before:
            changed += 1
            path.write_bytes(data)
            check(reopened(path), original, places.get(page + 1, set()))
        shutil.rmtree(folder)
    assert changed > 5


@pytest.mark.parametrize(
    "kind",
    ["a flipped bit", "changed bytes", "a lost sector", "a torn sector", "a lost block", "a cut"],
)
def test_a_damaged_log_loses_no_more_than_the_writes_that_were_hit(
    kind: str, original: Original, tmp_path: Path
) -> None:
    log = (original.folder / "crashed-wal").read_bytes()
    lost = 0
    for seed in range(ROUNDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = original.copy("crashed", folder)
        data = bytearray(log)
        DAMAGES[kind](data, random.Random(seed))
        Path(f"{path}-wal").write_bytes(data)
        found = reopened(path)
        for key, value in found.values.items():
            newest = original.values.get(key)
            if newest == value:
                continue
            # Only what was written last may be taken for a write that was in progress.
            assert not found.quarantined and kind == "a cut", (
                f"seed {seed}: {key} is not what was written last"
            )
        missing = set(original.values) - set(found.values)
        lost += len(missing)
        if kind != "a cut":
            assert len(missing) <= 12, f"seed {seed}: {missing}"
            assert found.revision >= original.revision - 1 or kind == "a cut", seed
        shutil.rmtree(folder)


def test_acknowledged_writes_that_a_cut_log_lost_are_reported(
    original: Original, tmp_path: Path
) -> None:
    """A log that ends early looks like one that was being written; the lock file knows better."""
    log = (original.folder / "crashed-wal").read_bytes()
    reported = 0
    for seed in range(ROUNDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = original.copy("crashed", folder)
        lock = os.open(f"{path}.lock", os.O_RDWR)
        disk.note_acknowledged(lock, original.revision)
        os.close(lock)
        data = bytearray(log)
        DAMAGES["a cut"](data, random.Random(seed))
        Path(f"{path}-wal").write_bytes(data)
        found = reopened(path)
        assert found.revision >= original.revision, seed
        if found.values != original.values:
            assert [one for one in found.quarantined if "are missing" in one.reason], seed
            reported += 1
        shutil.rmtree(folder)
    assert reported > ROUNDS // 2


def test_the_newest_acknowledged_revision_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def write() -> int:
        store = SqliteStore(path)
        await store.start()
        for number in range(3):
            record = await store.put(f"pods/default/{number}", lambda at: b"%d" % at)
        lock = os.open(f"{path}.lock", os.O_RDONLY)
        assert disk.acknowledged_revision(lock) == record.mod_revision
        os.close(lock)
        await store.close()
        return record.mod_revision

    first = asyncio.run(write())
    assert asyncio.run(write()) == first + 3
