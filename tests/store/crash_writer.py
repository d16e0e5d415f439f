"""The victims of test_crash.py. For each line on stdin (a seed and how long to wait) it forks a
child that writes as fast as it can and prints what was acknowledged, kills it, and says so.

Forking from a process that has imported everything makes a kill cheap.
"""

import asyncio
import hashlib
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

from transom.store.sqlite import SqliteStore


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


async def write(path: Path, seed: int, ready: int) -> None:
    rng = random.Random(seed)
    store = SqliteStore(path, history_events=200)
    await store.start()
    say(f"started {store.revision}")
    os.write(ready, b"!")

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
        seed, seconds = line.split()
        is_ready, ready = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(write(path, int(seed), ready))
            finally:
                os._exit(1)
        select.select([is_ready], [], [], 10.0)
        time.sleep(float(seconds))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(is_ready)
        os.close(ready)
        say("killed" if os.WIFSIGNALED(status) else "died of itself")


if __name__ == "__main__":
    main()
