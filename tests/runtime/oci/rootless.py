"""What works without root: `python -m tests.runtime.oci.rootless FOLDER`. Run by
`test_rootless.py`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.runtime import behaviour
from tests.runtime.behaviour import Posix, RuntimeHarness
from tests.runtime.native.images import FakeImages
from tests.runtime.oci.escapes.attack import exchange, running, tried

from transom.runtime.api import LinuxContainer, LinuxResources, Mount
from transom.runtime.native.runtime import destroy_cluster


async def main(folder: Path) -> None:
    images = FakeImages(folder / "images")
    images.add("busybox")
    host, runtime, network, monitor = await behaviour.started(
        folder, "/transom-test/rootless", images
    )
    try:
        assert any(line.startswith("not root") for line in runtime.capabilities())
        b = RuntimeHarness(
            "oci",
            runtime,
            host,
            Posix(),
            "busybox",
            "/var/log/pods/ns_web_uid-1",
            network,
            images.add,
            folder,
            "",
        )
        runtime.subscribe(b.received)
        await start(b)
        await attack(b, folder)
        await runtime.destroy()
    finally:
        runtime.close()
        monitor.close()
        await destroy_cluster(folder / "native", "/transom-test/rootless")
        host.destroy()


async def start(b: RuntimeHarness) -> None:
    sandbox = await b.sandbox()
    limits = LinuxContainer(
        run_as_user=1000, resources=LinuxResources(memory_limit=1 << 25, oom_score_adj=1000)
    )
    made = await b.run(
        (
            "sh",
            "-c",
            "echo $(id -u) $(hostname); echo x > /tmp/y; while ! test -e /data/go; do sleep 0.02; "
            "done; exit 3",
        ),
        sandbox,
        linux=limits,
        mounts=(Mount(*reversed(b.volume("data"))),),
    )
    assert (await b.runtime.exec_sync(made, ("cat", "/tmp/y"))).stdout == b"x\n"
    b.host.files.write("/volumes/data/go", b"")
    assert (await b.ended(made)).exit_code == 3
    assert b.printed(made) == ["0 web"]
    stubborn = await b.run(b.programs.insist(), sandbox)
    await b.ready(stubborn)
    await b.runtime.stop_container(stubborn, 0.1)
    assert b.state(stubborn).exit_code == 137
    printed: list[bytes] = []
    shell = await b.run(("sh",), sandbox, stdin=True, tty=True)
    process = await b.runtime.attach(shell, lambda stream, data: printed.append(data), stdin=True)
    process.write(b"tty; exit 4\n")
    assert await process.wait() == 4
    assert b"/dev/pts/0" in b"".join(printed)


async def attack(b: RuntimeHarness, folder: Path) -> None:
    """CVE-2021-25741 and CVE-2021-30465, as in `escapes`."""
    outside = folder / "outside"
    await asyncio.to_thread(outside.mkdir)
    path, _ = b.volume("shared")
    sandbox = await b.sandbox("uid-2")
    victim = (
        Mount("/mnt", f"{path}/d", volume_path=path),
        Mount("/v", path),
        Mount("/v/d/made", b.volume("inner")[0]),
    )
    async with running(b, exchange("/data/d", str(outside)), sandbox, Mount("/data", path)):
        for _ in range(8):
            printed = await tried(
                b, "ls /mnt; touch /mnt/from-inside 2>/dev/null; true", sandbox, *victim
            )
            assert not os.listdir(outside), "the container reached the machine"
            assert printed is None or set(printed) <= {"inside", "from-inside", "made"}, printed
    outside.rmdir()


if __name__ == "__main__":
    at = Path(sys.argv[1])
    asyncio.run(main(at))
    assert [path.name for path in at.iterdir()] == ["images"]
    sys.stdout.write("everything is gone\n")
