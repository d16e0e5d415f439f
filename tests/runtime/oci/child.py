"""A process that starts containers and is then killed: `python -m tests.runtime.oci.child FOLDER CGROUP`.

It writes one line of JSON when everything runs: the names of what it has made.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.runtime.behaviour import Bench, Posix, started
from tests.runtime.native.images import FakeImages

TICK = "i=0; while true; do i=$((i+1)); echo $i; sleep 0.02; done"


async def main(folder: Path, cgroup: str) -> None:
    images = FakeImages(folder / "images")
    images.add("busybox", Cmd=["sh"])
    host, runtime, network, _ = await started(folder, cgroup, images)
    bench = Bench("oci", runtime, host, Posix(), "busybox", "/var/log/pods/ns_web_uid-1", network, images.add, folder, cgroup)
    sandbox = await bench.sandbox()
    made = {
        "sandbox": sandbox,
        "stopped": await bench.sandbox("uid-2"),
        "ticks": await bench.run(("sh", "-c", TICK), sandbox),
        "input": await bench.run(("cat",), sandbox, stdin=True, tty=True),
        "ends": await bench.run(("sh", "-c", "while ! test -e /volume/go; do sleep 0.02; done; exit 7"), sandbox,
                                mounts=(_volume(bench),)),
        "ended": await bench.run(("sh", "-c", "exit 3"), sandbox),
        "created": await bench.create(("true",), sandbox),
    }  # fmt: skip
    await bench.ended(made["ended"])
    await runtime.stop_sandbox(made["stopped"])
    sys.stdout.write(json.dumps(made) + "\n")
    sys.stdout.flush()
    await asyncio.sleep(1000)


def _volume(bench: Bench) -> object:
    from transom.runtime.api import Mount

    return Mount("/volume", bench.volume("v")[0])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
