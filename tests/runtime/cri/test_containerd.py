"""What is particular to a real containerd, or is to be seen on none but a real one."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import ContextFactory
from tests.runtime.behaviour import RuntimeHarness
from tests.runtime.cri.conftest import benched
from tests.runtime.cri.containerd import Containerd
from tests.runtime.cri.registry import PASSWORD, USER

from transom.kit.clock import RealClock
from transom.runtime.api import (
    AuthConfig,
    LinuxContainer,
    LinuxResources,
    LinuxSandbox,
    Mount,
    RuntimeFailure,
)
from transom.runtime.cri import client
from transom.runtime.cri.runtime import CriRuntime
from transom.runtime.native import cgroups

Play = Callable[[Callable[[RuntimeHarness], Awaitable[None]]], None]


async def test_the_life_of_a_sandbox(harness: ContextFactory) -> None:
    async with harness() as b:
        first = await b.sandbox("uid-1", labels={"a": "b"})
        second = await b.sandbox("uid-2")
        assert [s.id for s in b.runtime.sandboxes()] == [second, first]
        await b.runtime.stop_sandbox(first)
        (found,) = b.runtime.sandboxes("uid-1")
        assert (found.state, found.ips, found.config.labels) == ("notready", (), {"a": "b"})
        with pytest.raises(
            RuntimeFailure, match="failed to get sandbox container task: no running task found"
        ):
            await b.create(b.programs.stay(), first)
        await b.runtime.remove_sandbox(first)
        assert b.runtime.sandboxes("uid-1") == []
        await b.runtime.stop_sandbox(first)
        await b.runtime.remove_sandbox(first)
        assert [e.kind for e in b.events if e.container_id == first] == [
            "sandbox",
            "sandbox",
            "removed",
        ]
        with pytest.raises(RuntimeFailure, match="NotFound"):
            await b.create(b.programs.stay(), first)
        with pytest.raises(RuntimeFailure, match='no runtime for "nosuch" is configured'):
            await b.runtime.run_sandbox(found.config, "nosuch")


async def test_what_cannot_start(harness: ContextFactory) -> None:
    async with harness() as b:
        sandbox = await b.sandbox()
        made = await b.create(("nosuchprogram", "x"), sandbox)
        with pytest.raises(
            RuntimeFailure, match='exec: "nosuchprogram": executable file not found'
        ) as failure:
            await b.runtime.start_container(made)
        ended = b.state(made)
        assert (ended.state, ended.exit_code, ended.reason) == ("exited", 128, "StartError")
        assert ended.message == failure.value.description
        process, _ = await b.exec(await b.run(b.programs.stay(), sandbox), ("nosuchprogram",))
        with pytest.raises(
            RuntimeFailure, match="desc = failed to exec in container: failed to start exec"
        ):
            await process.wait()


async def test_what_it_says_is_in_its_log(harness: ContextFactory) -> None:
    async with harness() as b:
        made = await b.run(
            ("sh", "-c", "echo good news; sleep 0.1; echo bad news >&2; echo -n unfinished")
        )
        await b.ended(made)
        assert b.printed(made) == ["good news", "unfinished"]
        assert b.printed(made, "stderr") == ["bad news"]
        raw = b.host.files.read(b.state(made).log_path).decode()
        # Go cuts zeros at the end of a second's fraction.
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z stdout F good news\n", raw)


@pytest.fixture
def group() -> Iterator[str]:
    """A control group, with all that a test leaves in it."""
    name = f"/transom-test-cri-{os.getpid()}"
    yield name
    assert cgroups.kill_and_remove_cgroup(name)


async def test_statistics(harness: ContextFactory, group: str) -> None:
    async with harness() as b:
        sandbox = await b.sandbox(linux=LinuxSandbox(cgroup_parent=f"{group}/poduid-1"))
        made = await b.run(b.programs.stay(), sandbox)
        await b.runtime.refresh()
        (row,) = b.runtime.container_stats("uid-1")
        assert (row.id, row.name) == (made, b.state(made).name)
        assert row.cpu is not None
        assert row.cpu.core_nanoseconds > 0
        assert row.working_set is not None
        assert 0 < row.working_set <= row.usage
        assert row.writable_layer is not None
        assert row.writable_layer.mount_point == b.runtime.image_filesystem().mount_point
        (network,) = b.runtime.sandbox_stats("uid-1")
        assert (network.id, [each.name for each in network.interfaces]) == (sandbox, ["eth0"])
        assert network.time > row.time - 60
        assert b.runtime.container_stats("another") == b.runtime.sandbox_stats("another") == []


async def test_a_port_in_a_sandbox(harness: ContextFactory) -> None:
    async with harness() as b:
        loop = asyncio.get_running_loop()
        made = await b.run(("nc", "-ll", "-p", "8080", "-e", "cat"))
        sandbox = b.state(made).sandbox_id
        with pytest.raises(
            RuntimeFailure, match=r"desc = failed to execute portforward in network .*refused"
        ):
            await b.runtime.port_forward(sandbox, 81)
        await b.until(lambda: bool(b.state(made).started_at))
        async with asyncio.timeout(10):
            while True:  # until it listens
                try:
                    connection = await b.runtime.port_forward(sandbox, 8080)
                    break
                except RuntimeFailure:
                    await asyncio.sleep(0.05)
        payload = os.urandom(1 << 18)
        sending = asyncio.create_task(loop.sock_sendall(connection, payload))
        echoed = b""
        while len(echoed) < len(payload):
            echoed += await loop.sock_recv(connection, 1 << 16)
        await sending
        assert echoed == payload
        connection.close()


async def test_a_terminal(harness: ContextFactory) -> None:
    async with harness() as b:
        made = await b.run(b.programs.stay())
        script = "tty; until [ \"$(stty size)\" = '43 132' ]; do sleep 0.02; done; exit 4"
        process, printed = await b.exec(made, ("sh", "-c", script), stdin=True, tty=True)
        process.resize(132, 43)
        assert await process.wait() == 4
        assert {stream for stream, _ in printed} == {"stdout"}
        assert b"".join(data for _, data in printed).startswith(b"/dev/pts/")


async def test_a_slow_client_holds_up_the_command(harness: ContextFactory) -> None:
    async with harness() as b:
        made = await b.run(b.programs.stay())
        process, printed = await b.exec(made, ("sh", "-c", "sleep 0.3; head -c 8000000 /dev/zero"))
        process.hold(True)
        waiting = asyncio.create_task(process.wait())
        await asyncio.sleep(0.6)
        assert not waiting.done()
        held = sum(len(data) for _, data in printed)
        await asyncio.sleep(0.1)
        assert sum(len(data) for _, data in printed) == held
        process.hold(False)
        assert await waiting == 0
        assert sum(len(data) for _, data in printed) == 8000000


async def test_images_of_a_registry_with_authentication(harness: ContextFactory) -> None:
    async with harness() as b:
        name = "registry.test/private/busybox:1"
        with pytest.raises(RuntimeFailure, match=f'failed to pull and unpack image "{name}"'):
            await b.runtime.pull_image(name)
        assert b.runtime.image(name) is None
        identity = await b.runtime.pull_image(name, AuthConfig(USER, PASSWORD))
        found = b.runtime.image(name)
        assert found is not None
        assert (found.id, found.tags) == (identity, (name,))
        assert (
            b.runtime.image(found.digests[0])
            == b.runtime.image(identity.removeprefix("sha256:"))
            == found
        )
        await b.runtime.remove_image(name)
        await b.runtime.remove_image(name)
        assert b.runtime.image(name) is None


async def test_user_and_working_directory_of_a_process(harness: ContextFactory) -> None:
    async with harness() as b:
        sandbox = await b.sandbox(
            linux=LinuxSandbox(share_processes=True, sysctls={"net.core.somaxconn": "99"})
        )
        linux = LinuxContainer(
            run_as_user=1000,
            run_as_group=50,
            supplemental_groups=(77,),
            read_only_root=True,
            no_new_privileges=True,
            drop_capabilities=("ALL",),
            pid_namespace="pod",
            seccomp="runtime/default",
        )
        script = """
            id; touch /x 2>/dev/null || echo read-only; cat /proc/1/comm; cat /proc/sys/net/core/somaxconn
            while read name value; do
              case $name in NoNewPrivs:|CapBnd:|Seccomp:) echo $name $value;; esac
            done </proc/self/status
        """
        assert await b.output(("sh", "-c", script), sandbox, linux=linux) == [
            "uid=1000(user) gid=50 groups=50,77",
            "read-only",
            "sleep",
            "99",
            "CapBnd: 0000000000000000",
            "NoNewPrivs: 1",
            "Seccomp: 2",
        ]


async def test_limits_and_the_group_of_a_pod(harness: ContextFactory, group: str) -> None:
    async with harness() as b:
        sandbox = await b.sandbox(linux=LinuxSandbox(cgroup_parent=f"{group}/poduid-1"))
        linux = LinuxContainer(resources=LinuxResources(memory_limit=12 << 20, cpu_shares=100))
        greedy = ("sh", "-c", "x=0123456789abcdef; while true; do x=$x$x; done")
        ended = await b.ended(await b.run(greedy, sandbox, linux=linux))
        assert (ended.exit_code, ended.reason) == (137, "OOMKilled")
        where = Path(cgroups.processes_file(f"{group}/poduid-1")).parent
        assert where.exists()
        await b.runtime.remove_sandbox(sandbox)
        assert not where.exists()


async def test_a_mount_of_what_is_not_there(harness: ContextFactory) -> None:
    async with harness() as b:
        mount = Mount("/data", "/new/volume")
        await b.output(b.programs.store("/data/x", "kept"), mounts=(mount,))
        assert b.host.files.read("/new/volume/x") == b"kept\n"
        assert (b.folder / "node1/new/volume/x").exists()


async def test_another_runtime_object_adopts_what_runs(
    harness: ContextFactory, containerd: Containerd
) -> None:
    async with harness() as b:
        path, inside = b.volume("data")
        sandbox = await b.sandbox(
            annotations={"a": "b"}, linux=LinuxSandbox(run_as_user=7, sysctls={})
        )
        made = await b.run(
            b.programs.stay(), sandbox, mounts=(Mount(inside, path, read_only=True),)
        )
        other = CriRuntime(
            RealClock(), containerd.endpoint, files=b.host.files, dial=containerd.dial
        )
        await other.start()
        assert list(other.sandboxes()) == list(b.runtime.sandboxes())
        assert list(other.containers()) == [b.state(made)]
        await other.close()
        b.runtime = CriRuntime(RealClock(), containerd.endpoint, files=b.host.files, period=0.1)
        await b.runtime.start()
        assert await b.output(b.programs.say("in an adopted sandbox"), sandbox) == [
            "in an adopted sandbox"
        ]
        await b.runtime.close()


async def test_containerd_goes_away_and_comes_back(
    harness: ContextFactory, containerd: Containerd
) -> None:
    async with harness() as b:
        made = await b.run(b.programs.stay())
        before = b.state(made)
        containerd.leave()
        try:
            await b.until(lambda: bool(b.runtime.status().runtime_reason))
            assert b.runtime.status().runtime_reason == "ContainerRuntimeUnreachable"
            assert b.state(made) == before
            with pytest.raises(RuntimeFailure, match="Unavailable"):
                await b.runtime.exec_sync(made, b.programs.say("alive"))
        finally:
            containerd.come_back()
        await b.until(lambda: not b.runtime.status().runtime_reason)
        assert (await b.runtime.exec_sync(made, b.programs.say("alive"))).stdout == b"alive\n"
        assert b.state(made) == before


async def test_the_old_interface(
    containerd: Containerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "VERSIONS", ("v1alpha2",))

    async with asyncio.timeout(60), benched(containerd, tmp_path) as b:
        assert b.runtime.interface == "v1alpha2"
        assert b.runtime.version.name == "containerd"
        linux = LinuxContainer(run_as_user=1000, seccomp="runtime/default")
        assert await b.output(("id", "-u"), linux=linux) == ["1000"]
        made = await b.run(b.programs.stay(), b.runtime.sandboxes()[0].id)
        await b.runtime.refresh()
        assert made in [row.id for row in b.runtime.container_stats()]
        assert b.runtime.sandbox_stats() == []
