"""The victim of test_crash.py. Reads a line, forks a child that writes as fast as it can, and says when that one died.

The child prints what was acknowledged. Forking from a process that has imported everything makes a kill cheap.
"""

import asyncio
import hashlib
import os
import random
import sys
from pathlib import Path

from transom.store.sqlite import SqliteStore


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


async def write(path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store = SqliteStore(path, history_events=200)
    await store.start()
    say(f"started {store.revision}")

    async def writer() -> None:
        while True:
            key = f"pods/{rng.randrange(40)}"
            there = store.latest(key)
            if there is not None and rng.random() < 0.2:
                _, revision = await store.delete(key)
                say(f"ack {revision} {key} -")
            else:
                # The value says what it is, so that half a value or a mixture would show.
                body = rng.randbytes(rng.randrange(1, 6000))
                record = await store.put(key, lambda revision, body=body: b"%d:" % revision + body)
                say(f"ack {record.mod_revision} {key} {hashlib.sha256(record.value).hexdigest()}")

    await asyncio.gather(*(writer() for _ in range(8)))


def main() -> None:
    path = Path(sys.argv[1])
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(write(path, int(line)))
            os._exit(1)
        say(f"child {child}")
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    main()
