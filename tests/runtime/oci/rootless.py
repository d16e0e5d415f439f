"""What works without root: `python -m tests.runtime.oci.rootless FOLDER`. Run by `test_rootless.py`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.runtime import behaviour
from tests.runtime.behaviour import Bench, Posix
from tests.runtime.native.images import FakeImages

from transom.runtime.api import LinuxContainer, LinuxResources, Mount
from transom.runtime.native.runtime import destroy_cluster


async def main(folder: Path) -> None:
    images = FakeImages(folder / "images")
    images.add("busybox")
    host, runtime, network, monitor = await behaviour.started(folder, "/transom-test/rootless", images)
    try:
        assert any(line.startswith("not root") for line in runtime.capabilities())
        b = Bench("oci", runtime, host, Posix(), "busybox", "/var/log/pods/ns_web_uid-1", network, images.add, folder, "")
        runtime.subscribe(b.heard)
        await play(b)
        await runtime.destroy()
    finally:
        runtime.close()
        monitor.close()
        await destroy_cluster(folder / "native", "/transom-test/rootless")
        host.destroy()


async def play(b: Bench) -> None:
    sandbox = await b.sandbox()
    limits = LinuxContainer(run_as_user=1000, resources=LinuxResources(memory_limit=1 << 25, oom_score_adj=1000))
    made = await b.run(("sh", "-c", "echo $(id -u) $(hostname); echo x > /tmp/y; while ! test -e /data/go; do sleep 0.02; "
                        "done; exit 3"), sandbox, linux=limits, mounts=(Mount(*reversed(b.volume("data"))),))  # fmt: skip
    assert (await b.runtime.exec_sync(made, ("cat", "/tmp/y"))).stdout == b"x\n"
    b.host.files.write("/volumes/data/go", b"")
    assert (await b.ended(made)).exit_code == 3
    assert b.said(made) == ["0 web"]
    stubborn = await b.run(b.programs.insist(), sandbox)
    await b.ready(stubborn)
    await b.runtime.stop_container(stubborn, 0.1)
    assert b.state(stubborn).exit_code == 137
    said: list[bytes] = []
    shell = await b.run(("sh",), sandbox, stdin=True, tty=True)
    process = await b.runtime.attach(shell, lambda stream, data: said.append(data), stdin=True)
    process.write(b"tty; exit 4\n")
    assert await process.wait() == 4
    assert b"/dev/pts/0" in b"".join(said)


if __name__ == "__main__":
    at = Path(sys.argv[1])
    asyncio.run(main(at))
    assert [path.name for path in at.iterdir()] == ["images"]
    sys.stdout.write("everything is gone\n")
