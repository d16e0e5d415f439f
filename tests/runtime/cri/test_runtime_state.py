"""What a CRI runtime reports: conditions, logs, images, statistics."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.http.fakegrpc import Refusal
from tests.runtime.cri.fakecri import FakeCri
from tests.runtime.cri.runtimes import CONTAINER, SANDBOX, pass_time, start

from transom.kit.clock import VirtualClock
from transom.machines.realfiles import RealFiles
from transom.runtime.api import (
    AuthConfig,
    CpuUsage,
    FilesystemUsage,
    InterfaceStats,
    RuntimeFailure,
    RuntimeStatus,
)
from transom.runtime.cri.codec import Message
from transom.runtime.cri.paths import CriPaths
from transom.runtime.cri.runtime import CriRuntime


async def test_conditions(tmp_path: Path) -> None:
    async with start(tmp_path) as (runtime, fake, clock):
        assert runtime.status() == RuntimeStatus()
        assert runtime.version == ("containerd", "1.4.13")
        no_network = {
            "type": "NetworkReady",
            "reason": "NetworkPluginNotReady",
            "message": "cni plugin not initialized",
        }
        fake.conditions[1] = no_network
        await pass_time(clock, 5.5)
        assert runtime.status() == RuntimeStatus(
            "", "", "NetworkPluginNotReady", "cni plugin not initialized"
        )
        fake.conditions.clear()
        await pass_time(clock, 5.5)
        assert runtime.status().runtime_reason == "Unknown"


async def test_the_runtime_is_unavailable_for_a_while(tmp_path: Path) -> None:
    async with start(tmp_path) as (runtime, fake, clock):
        await runtime.run_sandbox(SANDBOX)

        def away(request: Message) -> Message:
            raise Refusal("Unavailable", "transport is closing")

        fake.answers["ListPodSandbox"] = away
        await pass_time(clock, 1.5)
        assert runtime.status() == RuntimeStatus(
            "ContainerRuntimeUnreachable",
            "rpc error: code = Unavailable desc = transport is closing",
        )
        assert len(runtime.sandboxes()) == 1
        fake.answers.clear()
        fake.server.drop()
        await pass_time(clock, 1.5)
        assert runtime.status() == RuntimeStatus()


async def test_the_runtime_does_not_exist(tmp_path: Path) -> None:
    runtime = CriRuntime(VirtualClock(), f"unix://{tmp_path}/nothing")
    with pytest.raises(RuntimeFailure, match="Error while dialing dial unix"):
        await runtime.start()
    await runtime.close()


async def test_logs(tmp_path: Path) -> None:
    files = RealFiles(tmp_path / "node")
    files.mkdir("/var/log/pods/x/c")

    async with start(tmp_path, files=files) as (runtime, fake, clock):
        made = await runtime.create_container(await runtime.run_sandbox(SANDBOX), CONTAINER)
        with pytest.raises(RuntimeFailure, match="container is not running"):
            runtime.reopen_log(made)
        await runtime.start_container(made)
        runtime.reopen_log(made)
        await pass_time(clock, 0.5)
        assert fake.last("ReopenContainerLog") == {"container_id": made}
        path = "/var/log/pods/x/c/0.log"
        changes: list[int] = []
        end = runtime.watch_log(made, lambda: changes.append(1))
        clock.advance(1)
        assert changes == []
        files.write(path, b"one\n")
        clock.advance(1)
        assert len(changes) == 1
        files.append(path, b"two\n")
        clock.advance(1)
        assert len(changes) == 2
        files.rename(path, f"{path}.1")
        files.write(path, b"one\ntwo\n")  # as long as it was, but another
        clock.advance(1)
        assert len(changes) == 3
        end()
        files.append(path, b"three\n")
        clock.advance(1)
        assert len(changes) == 3
        for call in (
            lambda: runtime.reopen_log("nobody"),
            lambda: runtime.watch_log("nobody", print),
        ):
            with pytest.raises(
                RuntimeFailure,
                match='an error occurred when try to find container "nobody": not found',
            ):
                call()


async def test_images(tmp_path: Path) -> None:
    fake = FakeCri()
    one, two = "sha256:" + "1" * 64, "sha256:" + "2" * 64
    fake.images = [
        {
            "id": one,
            "repo_tags": ["docker.io/library/nginx:1.19"],
            "repo_digests": [f"docker.io/library/nginx@{two}"],
            "size": 7,
            "uid": {"value": 0},
        },
        {"id": two, "username": "www", "size": 1 << 40},
    ]

    async with start(tmp_path, fake) as (runtime, fake, _clock):
        nginx, other = runtime.images()
        assert (nginx.uid, nginx.username, nginx.size) == (0, "", 7)
        assert (other.uid, other.username, other.size) == (None, "www", 1 << 40)
        for name in (
            "nginx:1.19",
            "docker.io/library/nginx:1.19",
            f"nginx@{two}",
            f"nginx:1@{two}",
            one,
            "1" * 64,
        ):
            assert runtime.image(name) == nginx, name
        assert runtime.image("nginx") is runtime.image("No Name") is None
        pulled = await runtime.pull_image("x/y:1", AuthConfig("u", "p", "s"), SANDBOX)
        assert fake.last("PullImage")["auth"] == {
            "username": "u",
            "password": "p",
            "server_address": "s",
        }
        assert fake.last("PullImage")["sandbox_config"]["metadata"]["uid"] == "uid-1"
        assert [
            h
            for h in fake.server.headers
            if h[":path"].endswith("PullImage") and "grpc-timeout" in h
        ] == []
        found = runtime.image(pulled)
        assert found is not None
        assert found.tags == ("x/y:1",)
        await runtime.remove_image(pulled)
        assert runtime.image(pulled) is None
        await runtime.pull_image("x/y:1")
        assert "auth" not in fake.last("PullImage")


async def test_numbers(tmp_path: Path) -> None:
    async with start(tmp_path) as (runtime, fake, clock):
        sandbox = await runtime.run_sandbox(SANDBOX)
        made = await runtime.create_container(sandbox, CONTAINER)
        await runtime.start_container(made)
        samples = iter([(100, 10**9), (102, 10**9 + 5 * 10**8)])

        def stats(request: Message) -> Message:
            seconds, used = next(samples)
            cpu = {"timestamp": seconds * 10**9, "usage_core_nano_seconds": {"value": used}}
            memory = {
                "working_set_bytes": {"value": 5},
                "usage_bytes": {"value": 6},
                "rss_bytes": {"value": 4},
            }
            layer = {
                "fs_id": {"mountpoint": "/var/lib/c"},
                "used_bytes": {"value": 3},
                "inodes_used": {"value": 2},
            }
            attributes = {"id": made, "metadata": {"name": "c"}, "labels": {"a": "b"}}
            other = {"attributes": {"id": "stranger"}}
            row = {"attributes": attributes, "cpu": cpu, "memory": memory, "writable_layer": layer}
            return {"stats": [row, other]}

        def of_sandboxes(request: Message) -> Message:
            eth0 = {
                "name": "eth0",
                "rx_bytes": {"value": 1},
                "tx_bytes": {"value": 2},
                "rx_errors": {},
                "tx_errors": {},
            }
            network = {"default_interface": eth0, "interfaces": [{"name": "net1"}]}
            return {"stats": [{"attributes": {"id": sandbox}, "linux": {"network": network}}]}

        fake.answers |= {
            "ListContainerStats": stats,
            "ListPodSandboxStats": of_sandboxes,
            "ImageFsInfo": lambda request: {
                "image_filesystems": [{"fs_id": {"mountpoint": "/i"}, "used_bytes": {"value": 9}}]
            },
        }
        await runtime.refresh()
        (row,) = runtime.container_stats()
        assert row.cpu == CpuUsage(10**9, None)
        await runtime.refresh()
        (row,) = runtime.container_stats("uid-1")
        assert row.cpu == CpuUsage(10**9 + 5 * 10**8, 25 * 10**7)
        assert (row.id, row.name, row.labels, row.working_set, row.usage, row.rss) == (
            made,
            "c",
            {"a": "b"},
            5,
            6,
            4,
        )
        assert row.writable_layer == FilesystemUsage("/var/lib/c", 3, 2)
        (network,) = runtime.sandbox_stats("uid-1")
        assert network == (
            sandbox,
            clock.time(),
            (InterfaceStats("eth0", 1, 2, 0, 0), InterfaceStats("net1", 0, 0)),
        )
        assert runtime.image_filesystem() == FilesystemUsage("/i", 9, 0)

        def cannot(request: Message) -> Message:
            raise Refusal("Unknown", "failed to get cgroup metrics")

        fake.answers["ListPodSandboxStats"] = fake.answers["ListContainerStats"] = cannot
        await runtime.refresh()
        assert (len(runtime.sandbox_stats()), runtime.status()) == (1, RuntimeStatus())
        await runtime.stop_sandbox(sandbox)
        assert runtime.sandbox_stats() == runtime.container_stats() == []


def test_a_sub_path_stays_in_its_volume(tmp_path: Path) -> None:
    files = RealFiles(tmp_path / "node")
    try:
        files.mkdir("/volumes/v/d")
        files.symlink("d", "/volumes/v/good")
        files.symlink("/", "/volumes/v/out")
        paths = CriPaths(files)
        assert paths.mounted("/volumes/v/good", "/volumes/v") == str(tmp_path / "node/volumes/v/d")
        assert paths.mounted("/volumes/v/new/deep", "/volumes/v") == str(
            tmp_path / "node/volumes/v/new/deep"
        )
        for path in ("/volumes/v/out", "/volumes/v/out/new"):
            with pytest.raises(PermissionError):
                paths.mounted(path, "/volumes/v")
        assert not files.exists("/new")
    finally:
        files.close()
