"""A process that starts containers and is then killed: `python -m tests.runtime.oci.child FOLDER
CGROUP [churn]`.

It writes one line of JSON when everything runs: the names of what it has made. With `churn` it
makes and removes pods, six at a time, without end, and writes a line for each.
"""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import count
from pathlib import Path

from tests.runtime.behaviour import Bench, Posix, started
from tests.runtime.native.images import FakeImages

TICK = "i=0; while true; do i=$((i+1)); echo $i; sleep 0.02; done"


async def main(folder: Path, cgroup: str) -> None:
    images = FakeImages(folder / "images")
    images.add("busybox", Cmd=["sh"])
    host, runtime, network, _ = await started(folder, cgroup, images)
    bench = Bench(
        "oci",
        runtime,
        host,
        Posix(),
        "busybox",
        "/var/log/pods/ns_web_uid-1",
        network,
        images.add,
        folder,
        cgroup,
    )
    sandbox = await bench.sandbox()
    made = {
        "sandbox": sandbox,
        "stopped": await bench.sandbox("uid-2"),
        "ticks": await bench.run(("sh", "-c", TICK), sandbox),
        "input": await bench.run(("cat",), sandbox, stdin=True, tty=True),
        "ends": await bench.run(
            ("sh", "-c", "while ! test -e /volume/go; do sleep 0.02; done; exit 7"),
            sandbox,
            mounts=(_volume(bench),),
        ),
        "ended": await bench.run(("sh", "-c", "exit 3"), sandbox),
        "created": await bench.create(("true",), sandbox),
    }
    await bench.ended(made["ended"])
    await runtime.stop_sandbox(made["stopped"])
    sys.stdout.write(json.dumps(made) + "\n")
    sys.stdout.flush()
    await asyncio.sleep(1000)


async def churn(folder: Path, cgroup: str) -> None:
    images = FakeImages(folder / "images")
    images.add("busybox", Cmd=["sh"])
    host, runtime, network, _ = await started(folder, cgroup, images)
    bench = Bench(
        "oci",
        runtime,
        host,
        Posix(),
        "busybox",
        "/var/log/pods/ns_web_uid-1",
        network,
        images.add,
        folder,
        cgroup,
    )
    for sandbox in runtime.sandboxes():  # of the one before
        assert sandbox.state in ("ready", "notready")

    async def worker(number: int) -> None:
        for i in count():
            sandbox = await bench.sandbox(f"uid-{number}-{i}")
            first = await bench.run(("sh", "-c", TICK), sandbox, labels={"ticks": ""})
            await bench.run(("sh", "-c", "exit 3"), sandbox)
            if i % 3:
                await runtime.stop_container(first, 0)
                await runtime.remove_sandbox(sandbox)
            sys.stdout.write(f"{number} {i}\n")
            sys.stdout.flush()

    await asyncio.gather(*(worker(number) for number in range(6)))


def _volume(bench: Bench) -> object:
    from transom.runtime.api import Mount

    return Mount("/volume", bench.volume("v")[0])


if __name__ == "__main__":
    asyncio.run((churn if sys.argv[3:] else main)(Path(sys.argv[1]), sys.argv[2]))
