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

from tests.runtime.behaviour import Posix, RuntimeHarness, started
from tests.runtime.native.images import FakeImages

TICK = "i=0; while true; do i=$((i+1)); echo $i; sleep 0.02; done"


async def main(folder: Path, cgroup: str) -> None:
    images = FakeImages(folder / "images")
    images.add("busybox", Cmd=["sh"])
    host, runtime, network, _ = await started(folder, cgroup, images)
    harness = RuntimeHarness(
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
    sandbox = await harness.sandbox()
    made = {
        "sandbox": sandbox,
        "stopped": await harness.sandbox("uid-2"),
        "ticks": await harness.run(("sh", "-c", TICK), sandbox),
        "input": await harness.run(("cat",), sandbox, stdin=True, tty=True),
        "ends": await harness.run(
            ("sh", "-c", "while ! test -e /volume/go; do sleep 0.02; done; exit 7"),
            sandbox,
            mounts=(_volume(harness),),
        ),
        "ended": await harness.run(("sh", "-c", "exit 3"), sandbox),
        "created": await harness.create(("true",), sandbox),
    }
    await harness.ended(made["ended"])
    await runtime.stop_sandbox(made["stopped"])
    sys.stdout.write(json.dumps(made) + "\n")
    sys.stdout.flush()
    await asyncio.sleep(1000)


async def churn(folder: Path, cgroup: str) -> None:
    images = FakeImages(folder / "images")
    images.add("busybox", Cmd=["sh"])
    host, runtime, network, _ = await started(folder, cgroup, images)
    harness = RuntimeHarness(
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
            sandbox = await harness.sandbox(f"uid-{number}-{i}")
            first = await harness.run(("sh", "-c", TICK), sandbox, labels={"ticks": ""})
            await harness.run(("sh", "-c", "exit 3"), sandbox)
            if i % 3:
                await runtime.stop_container(first, 0)
                await runtime.remove_sandbox(sandbox)
            sys.stdout.write(f"{number} {i}\n")
            sys.stdout.flush()

    await asyncio.gather(*(worker(number) for number in range(6)))


def _volume(harness: RuntimeHarness) -> object:
    from transom.runtime.api import Mount

    return Mount("/volume", harness.volume("v")[0])


if __name__ == "__main__":
    asyncio.run((churn if sys.argv[3:] else main)(Path(sys.argv[1]), sys.argv[2]))
