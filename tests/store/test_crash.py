"""kill -9 at random moments: nothing acknowledged is lost, nothing is incomplete, the revision
never decreases.
"""

import asyncio
import hashlib
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from transom.store.sqlite import SqliteStore

KILLS = 200


def round_of_writes(
    victim: subprocess.Popen[str], rng: random.Random
) -> tuple[int, list[tuple[int, str, str]]]:
    """Let the child write for a moment, kill it, and give the revision it started at and what it
    acknowledged.
    """
    assert victim.stdin is not None and victim.stdout is not None
    victim.stdin.write(f"{rng.randrange(1 << 30)} {rng.uniform(0.01, 0.06)}\n")
    victim.stdin.flush()
    started = 0
    acknowledged = []
    for line in victim.stdout:
        word, *rest = line.split()
        if word == "started":
            started = int(rest[0])
        elif word == "ack":
            acknowledged.append((int(rest[0]), rest[1], rest[2]))
        else:
            assert word == "killed", line
            break
    return started, acknowledged


def digest_of(value: bytes | None) -> str:
    return "-" if value is None else hashlib.sha256(value).hexdigest()


async def contents(path: Path) -> tuple[int, dict[str, tuple[int, bytes]], dict[str, int]]:
    """The revision, what is there, and the revisions at which keys were deleted, as a new server
    finds them.
    """
    store = SqliteStore(path, history_events=200)
    await store.start()
    found = {record.key: (record.mod_revision, record.value) for record in store.list("").records}
    deleted: dict[str, int] = {}
    store.watch(
        "",
        store.compacted,
        lambda events: deleted.update((e.key, e.revision) for e in events if not e.record),
    )
    revision = store.revision
    await store.close()
    return revision, found, deleted


def copied(path: Path) -> Path:
    """A copy to look at, so that the next victim recovers from the crash itself."""
    copy = path.with_name("copy")
    for suffix in ("", "-wal"):
        target = Path(f"{copy}{suffix}")
        target.unlink(missing_ok=True)
        if Path(f"{path}{suffix}").exists():
            shutil.copyfile(f"{path}{suffix}", target)
    return copy


def test_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "db"
    rng = random.Random(20)
    newest: dict[str, tuple[int, str]] = {}  # key: newest acknowledged revision and hash
    highest = 1
    total = 0
    program = Path(__file__).with_name("crash_writer.py")
    with subprocess.Popen(
        [sys.executable, str(program), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as victim:
        for kill in range(KILLS):
            started, acknowledged = round_of_writes(victim, rng)
            assert started >= highest, f"kill {kill}: the counter went back"
            total += len(acknowledged)
            for revision, key, digest in acknowledged:
                assert revision > started
                newest[key] = max(newest.get(key, (0, "")), (revision, digest))
            highest = max([highest, started, *(revision for revision, _, _ in acknowledged)])
            revision, found, deleted = asyncio.run(contents(copied(path)))
            assert revision >= highest, f"kill {kill}: the counter went back"
            highest = revision
            for key, (at, value) in found.items():
                assert value.startswith(b"%d:" % at), f"kill {kill}: half a write of {key}"
            for key, (acked, digest) in newest.items():
                # An acknowledged deletion may be out of the history by now.
                forgotten = acked if digest == "-" else 0
                at, value = found.get(key, (deleted.get(key, forgotten), None))
                # An unacknowledged write may have come after the last one that was
                # acknowledged.
                assert at >= acked, f"kill {kill}: {key} was acknowledged at {acked} and is at {at}"
                assert at > acked or digest == digest_of(value), (
                    f"kill {kill}: {key} is not what was written"
                )
            newest = {key: (at, digest_of(value)) for key, (at, value) in found.items()}
        assert victim.stdin is not None
        victim.stdin.close()
    assert total > KILLS  # on a busy machine a victim may die before its first write
    assert os.path.getsize(f"{path}-wal") < 30 << 20
