"""Containers survive the process that started them: kill -9 of that process, of the monitor, and
during a start.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.runtime import behaviour
from tests.runtime.behaviour import Posix, RuntimeHarness
from tests.runtime.native.images import FakeImages

from transom.machines import mounting
from transom.machines.realfiles import RealFiles
from transom.runtime.api import RuntimeFailure
from transom.runtime.native import cgroups
from transom.runtime.native.client import Monitor
from transom.runtime.native.runtime import destroy_cluster

pytestmark = pytest.mark.skipif(
    bool(behaviour.unavailable("oci")), reason=behaviour.unavailable("oci")
)
ROOT = Path(__file__).parents[3]
Made = dict[str, str]


@contextmanager
def killed_child(folder: Path, cgroup: str) -> Iterator[Made]:
    """What a process has left behind that was killed."""
    command = [sys.executable, "-m", "tests.runtime.oci.child", str(folder), cgroup]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            made = json.loads(child.stdout.readline())
        finally:
            child.send_signal(signal.SIGKILL)
    yield made


def adopted(folder: Path, scenario: Callable[[RuntimeHarness, Made], Awaitable[None]]) -> None:
    """Plays a scenario on a runtime that comes after one that was killed."""
    cgroup = f"/transom-test/adoption-{os.getpid()}"
    images = FakeImages(folder / "images")
    images.add("busybox")

    async def main(made: Made) -> None:
        host, runtime, network, monitor = await behaviour.started(folder, cgroup, images)
        try:
            directory = "/var/log/pods/ns_web_uid-1"
            b = RuntimeHarness(
                "oci",
                runtime,
                host,
                Posix(),
                "busybox",
                directory,
                network,
                images.add,
                folder,
                cgroup,
            )
            runtime.subscribe(b.received)
            async with asyncio.timeout(60):
                await scenario(b, made)
        finally:
            runtime.close()
            monitor.close()

    try:
        with killed_child(folder, cgroup) as made:
            asyncio.run(main(made))
    finally:
        asyncio.run(destroy_cluster(folder / "native", cgroup))
        RealFiles(folder / "node1").destroy()
    assert mounting.mount_points(str(folder)) == []
    assert cgroups.cgroup_leaves(cgroup) == []


def test_everything_is_as_it_was(tmp_path: Path) -> None:
    async def scenario(b: RuntimeHarness, made: Made) -> None:
        states = {
            name: b.state(made[name]).state
            for name in ("ticks", "input", "ends", "ended", "created")
        }
        assert states == {
            "ticks": "running",
            "input": "running",
            "ends": "running",
            "ended": "exited",
            "created": "created",
        }
        assert (b.state(made["ended"]).exit_code, b.state(made["ended"]).reason) == (3, "Error")
        assert [s.state for s in b.runtime.sandboxes()] == ["notready", "ready"]
        (sandbox,) = b.runtime.sandboxes("uid-1")
        assert (sandbox.id, len(sandbox.ips), sandbox.config.hostname) == (
            made["sandbox"],
            1,
            "web",
        )
        ticks = b.state(made["ticks"])
        assert ticks.started_at > 0

        # It ran on while no kubelet ran, and still runs.
        seen = b.printed(ticks.id)
        assert seen == [str(i + 1) for i in range(len(seen))]
        await b.until(lambda: len(b.printed(ticks.id)) > len(seen))
        assert (await b.runtime.exec_sync(ticks.id, ("echo", "hello"))).stdout == b"hello\n"
        printed: list[bytes] = []
        process = await b.runtime.attach(
            made["input"], lambda stream, data: printed.append(data), stdin=True, tty=True
        )
        process.write(b"typed\n")
        await b.until(lambda: b"".join(printed).count(b"typed") == 2)  # its echo, and what cat says
        process.close()
        b.host.files.write("/volumes/v/go", b"")
        assert (await b.ended(made["ends"])).exit_code == 7

        # And everything can be done with it.
        await b.runtime.start_container(made["created"])
        assert (await b.ended(made["created"])).exit_code == 0
        another = await b.run(("hostname",), made["sandbox"])
        await b.ended(another)
        assert b.printed(another) == ["web"]
        await b.runtime.stop_container(ticks.id, 0)
        assert b.state(ticks.id).exit_code == 137
        for found in list(b.runtime.sandboxes()):
            await b.runtime.remove_sandbox(found.id)
        assert b.runtime.containers() == []
        assert cgroups.cgroup_leaves(f"{b.cgroup}/node1") in ([], [f"{b.cgroup}/node1/pods"])

    adopted(tmp_path, scenario)


def test_what_ended_while_no_kubelet_ran(tmp_path: Path) -> None:
    cgroup = f"/transom-test/adoption-{os.getpid()}"
    images = FakeImages(tmp_path / "images")

    async def main(made: Made) -> None:
        files = RealFiles(tmp_path / "node1")
        files.write("/volumes/v/go", b"")
        record = tmp_path / "native/node1/containers" / made["ends"] / "exit.json"
        await behaviour.until(record.exists)
        _, runtime, _, monitor = await behaviour.started(tmp_path, cgroup, images)
        try:
            found = runtime.container(made["ends"])
            assert found is not None
            assert (found.state, found.exit_code, found.reason) == ("exited", 7, "Error")
            assert found.started_at < found.finished_at
        finally:
            runtime.close()
            monitor.close()

    try:
        with killed_child(tmp_path, cgroup) as made:
            asyncio.run(main(made))
    finally:
        asyncio.run(destroy_cluster(tmp_path / "native", cgroup))
        RealFiles(tmp_path / "node1").destroy()


def test_without_its_monitor_a_containers_exit_code_is_unknown(tmp_path: Path) -> None:
    async def scenario(b: RuntimeHarness, made: Made) -> None:
        pid = b.runtime._core.containers[made["ticks"]].pid
        os.kill(b.runtime._core.monitor.pid, signal.SIGKILL)
        ended = await b.ended(made["ticks"])
        assert (ended.exit_code, ended.reason) == (255, "Unknown")
        await b.until(lambda: not os.path.exists(f"/proc/{pid}"))
        await b.until(lambda: b.runtime.sandboxes("uid-1")[0].state == "notready")
        # The next one is there already.
        fresh = await b.run(("sh", "-c", "exit 5"), await b.sandbox("uid-3"))
        assert (await b.ended(fresh)).exit_code == 5
        with pytest.raises(RuntimeFailure):
            await b.runtime.exec_sync(made["ticks"], ("true",))

    adopted(tmp_path, scenario)


def test_what_was_half_made_is_cleared_away(tmp_path: Path) -> None:
    async def scenario(b: RuntimeHarness, made: Made) -> None:
        b.runtime.close()
        half = tmp_path / "native/node1/containers" / ("a" * 64)
        (half / "rootfs").mkdir(parents=True)
        mounting.mount_filesystem("tmpfs", str(half / "rootfs"), "tmpfs")
        group = f"{b.cgroup}/node1/pods/podgone/{'a' * 64}"
        for mount in set(cgroups.cgroup_hierarchies().mounts.values()):
            os.makedirs(f"{mount}{group}")
        _, runtime, _, monitor = await behaviour.started(
            tmp_path, b.cgroup, FakeImages(tmp_path / "images")
        )
        try:
            assert not half.exists()
            assert group not in cgroups.cgroup_leaves(b.cgroup)
            ticks = runtime.container(made["ticks"])
            assert ticks is not None
            assert ticks.state == "running"
        finally:
            runtime.close()
            monitor.close()

    adopted(tmp_path, scenario)


def test_killed_again_and_again_in_the_middle(tmp_path: Path) -> None:
    cgroup = f"/transom-test/churn-{os.getpid()}"
    command = [sys.executable, "-m", "tests.runtime.oci.child", str(tmp_path), cgroup, "churn"]
    images = FakeImages(tmp_path / "images")
    images.add("busybox")

    async def clear() -> None:
        _, runtime, _, monitor = await behaviour.started(tmp_path, cgroup, images)
        try:
            found = list(runtime.sandboxes())
            assert any(s.state == "ready" for s in found)
            running = [c for c in runtime.containers() if c.state == "running"]
            for c in [c for c in running if "ticks" in c.labels][:3]:
                assert (await runtime.exec_sync(c.id, ("echo", "alive"))).stdout == b"alive\n"
            await asyncio.gather(*(runtime.remove_sandbox(s.id) for s in found))
            assert (runtime.sandboxes(), runtime.containers()) == ([], [])
            assert [
                p
                for kind in ("sandboxes", "containers")
                for p in (tmp_path / "native/node1" / kind).iterdir()
            ] == []
            mounted = [entry.point for entry in mounting.mount_points(str(tmp_path / "native"))]
            assert mounted == []
            assert cgroups.cgroup_members(cgroup) == []
        finally:
            runtime.close()
            monitor.close()

    try:
        for lines in (3, 7, 5):
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                try:
                    printed = [child.stdout.readline() for _ in range(lines)]
                finally:
                    child.send_signal(signal.SIGKILL)
                assert all(printed)
        asyncio.run(clear())
    finally:
        asyncio.run(destroy_cluster(tmp_path / "native", cgroup))
        RealFiles(tmp_path / "node1").destroy()


async def test_the_monitor_leaves_when_it_is_of_no_use(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path / "native")
    await monitor.open()
    pid = monitor.pid
    monitor.close()
    await behaviour.until(lambda: not os.path.exists(f"/proc/{pid}"))
    assert not (tmp_path / "native/monitor.sock").exists()
