"""The requests of the CRI runtime, how it handles responses, and its events: against a fake server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.http.fakegrpc import Refusal
from tests.runtime.cri.fakecri import FakeCri
from tests.runtime.cri.runtimes import CONTAINER, SANDBOX, pass_time, start

from transom.kit.clock import VirtualClock
from transom.machines.realfiles import RealFiles
from transom.network.api import DnsConfig, PortMapping
from transom.runtime.api import (
    IdRange,
    LinuxContainer,
    LinuxResources,
    LinuxSandbox,
    Mount,
    RuntimeEvent,
    RuntimeFailure,
    WindowsContainer,
    WindowsResources,
)
from transom.runtime.cri.codec import Message
from transom.runtime.cri.runtime import CriRuntime
from transom.runtime.cri.to_cri import SIGNALS

Scenario = Callable[[CriRuntime, FakeCri, VirtualClock], Awaitable[None]]


# ---- what is asked ----


async def test_the_request_for_a_sandbox(tmp_path: Path) -> None:
    config = replace(
        SANDBOX,
        attempt=2,
        hostname="web-0",
        dns=DnsConfig(("10.0.0.10",), ("svc",), ("ndots:5",)),
        ports=(PortMapping(80, 8080, "UDP", "1.2.3.4"),),
        annotations={"c": "d"},
        linux=LinuxSandbox(
            host_network=True,
            share_processes=True,
            host_ipc=True,
            privileged=True,
            run_as_user=0,
            run_as_group=7,
            supplemental_groups=(1, 2),
            sysctls={"x": "1"},
            selinux={"level": "s0"},
            seccomp="runtime/default",
            cgroup_parent="/kubepods/burstable/poduid-1",
        ),
    )

    async with start(tmp_path) as (runtime, fake, _clock):
        await runtime.run_sandbox(config, "kata")
        assert fake.last("RunPodSandbox") == {
            "config": {
                "metadata": {"name": "web", "uid": "uid-1", "namespace": "ns", "attempt": 2},
                "hostname": "web-0",
                "log_directory": "/var/log/pods/x",
                "dns_config": {
                    "servers": ["10.0.0.10"],
                    "searches": ["svc"],
                    "options": ["ndots:5"],
                },
                "port_mappings": [
                    {"protocol": 1, "container_port": 80, "host_port": 8080, "host_ip": "1.2.3.4"}
                ],
                "labels": {"a": "b"},
                "annotations": {"c": "d"},
                "linux": {
                    "cgroup_parent": "/kubepods/burstable/poduid-1",
                    "security_context": {
                        "namespace_options": {"network": 2, "ipc": 2},
                        "selinux_options": {"level": "s0"},
                        "run_as_user": {},
                        "run_as_group": {"value": 7},
                        "supplemental_groups": [1, 2],
                        "privileged": True,
                        "seccomp_profile_path": "runtime/default",
                        "seccomp": {},
                    },
                    "sysctls": {"x": "1"},
                },
            },
            "runtime_handler": "kata",
        }
        (found,) = runtime.sandboxes()
        assert (
            replace(found.config, linux=replace(found.config.linux, selinux={"level": "s0"}))
            == config
        )
        assert found.ips == ()  # the node's network


async def test_user_namespaces_groups_and_stop_signals(tmp_path: Path) -> None:
    linux = LinuxSandbox(user_namespace=IdRange(131072, 65536), strict_groups=True)
    strict = LinuxContainer(strict_groups=True)
    async with start(tmp_path) as (runtime, fake, _clock):
        sandbox = await runtime.run_sandbox(replace(SANDBOX, linux=linux))
        requested = fake.last("RunPodSandbox")["config"]["linux"]["security_context"]
        assert requested["supplemental_groups_policy"] == 1
        mapping = {"host_id": 131072, "length": 65536}
        users = {"uids": [mapping], "gids": [mapping]}
        assert requested["namespace_options"]["userns_options"] == users
        config = replace(CONTAINER, linux=strict, stop_signal="SIGRTMIN+3")
        await runtime.create_container(sandbox, config)
        made = fake.last("CreateContainer")["config"]
        assert made["stop_signal"] == 38
        security = made["linux"]["security_context"]
        assert security["supplemental_groups_policy"] == 1
        assert security["namespace_options"]["userns_options"] == users
    assert (len(SIGNALS), SIGNALS[13], SIGNALS[23]) == (66, "SIGKILL", "SIGTERM")
    assert (SIGNALS[51], SIGNALS[65]) == ("SIGRTMAX-14", "SIGRTMAX")


async def test_the_request_for_a_container(tmp_path: Path) -> None:
    linux = LinuxContainer(
        resources=LinuxResources(100000, 50000, 512, 1 << 20, -998, {"3MB": 0, "5MB": 5}),
        privileged=True,
        run_as_user_name="www",
        run_as_group=3,
        supplemental_groups=(9,),
        add_capabilities=("A",),
        drop_capabilities=("B",),
        read_only_root=True,
        no_new_privileges=True,
        seccomp="localhost//var/lib/kubelet/seccomp/x.json",
        apparmor="localhost/mine",
        masked_paths=("/m",),
        read_only_paths=("/r",),
        pid_namespace="target",
        target_id="t",
    )
    config = replace(
        CONTAINER,
        attempt=1,
        command=("a",),
        args=("b",),
        working_dir="/w",
        env=(("A", "b"),),
        devices=("/dev/x:/dev/y:r",),
        mounts=(Mount("/in", "/out", True, "bidirectional", True),),
        stdin=True,
        stdin_once=True,
        tty=True,
        linux=linux,
        labels={"a": "b"},
        annotations={"c": "d"},
    )

    async with start(tmp_path) as (runtime, fake, _clock):
        sandbox = await runtime.run_sandbox(replace(SANDBOX, linux=LinuxSandbox(host_ipc=True)))
        await runtime.create_container(sandbox, config)
        requested = fake.last("CreateContainer")
        assert requested["sandbox_config"] == fake.last("RunPodSandbox")["config"]
        assert requested["config"] == {
            "metadata": {"name": "c", "attempt": 1},
            "image": {"image": "sha256:1"},
            "command": ["a"],
            "args": ["b"],
            "working_dir": "/w",
            "envs": [{"key": "A", "value": "b"}],
            "mounts": [
                {
                    "container_path": "/in",
                    "host_path": "/out",
                    "readonly": True,
                    "selinux_relabel": True,
                    "propagation": 2,
                }
            ],
            "devices": [{"container_path": "/dev/y", "host_path": "/dev/x", "permissions": "r"}],
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
            "log_path": "c/0.log",
            "stdin": True,
            "stdin_once": True,
            "tty": True,
            "linux": {
                "resources": {
                    "cpu_period": 100000,
                    "cpu_quota": 50000,
                    "cpu_shares": 512,
                    "memory_limit_in_bytes": 1 << 20,
                    "oom_score_adj": -998,
                    "hugepage_limits": [{"page_size": "5MB", "limit": 5}],
                },
                "security_context": {
                    "capabilities": {"add_capabilities": ["A"], "drop_capabilities": ["B"]},
                    "privileged": True,
                    "namespace_options": {"pid": 3, "ipc": 2, "target_id": "t"},
                    "run_as_username": "www",
                    "run_as_group": {"value": 3},
                    "readonly_rootfs": True,
                    "supplemental_groups": [9],
                    "no_new_privs": True,
                    "masked_paths": ["/m"],
                    "readonly_paths": ["/r"],
                    "seccomp_profile_path": "localhost//var/lib/kubelet/seccomp/x.json",
                    "seccomp": {
                        "profile_type": 2,
                        "localhost_ref": "/var/lib/kubelet/seccomp/x.json",
                    },
                    "apparmor_profile": "localhost/mine",
                    "apparmor": {"profile_type": 2, "localhost_ref": "mine"},
                },
            },
        }
        windows = WindowsContainer(WindowsResources(1, 2, 3, 4), r"NT AUTHORITY\SYSTEM", "{}")
        await runtime.create_container(sandbox, replace(CONTAINER, windows=windows))
        requested = fake.last("CreateContainer")["config"]
        assert "linux" not in requested
        assert requested["windows"] == {
            "resources": {
                "cpu_shares": 1,
                "cpu_count": 2,
                "cpu_maximum": 3,
                "memory_limit_in_bytes": 4,
            },
            "security_context": {
                "run_as_username": r"NT AUTHORITY\SYSTEM",
                "credential_spec": "{}",
            },
        }


async def test_paths_of_a_node_in_a_folder(tmp_path: Path) -> None:
    files = RealFiles(tmp_path / "node")
    files.mkdir("/var/log/pods/x")

    async with start(tmp_path, files=files) as (runtime, fake, _clock):
        sandbox = await runtime.run_sandbox(SANDBOX)
        made = await runtime.create_container(
            sandbox, replace(CONTAINER, mounts=(Mount("/in", "/new/folder"),))
        )
        assert (
            fake.last("RunPodSandbox")["config"]["log_directory"]
            == f"{tmp_path}/node/var/log/pods/x"
        )
        assert (
            fake.last("CreateContainer")["config"]["mounts"][0]["host_path"]
            == f"{tmp_path}/node/new/folder"
        )
        assert files.stat("/new/folder").kind == "directory"
        found = runtime.container(made)
        assert found is not None
        assert (found.log_path, found.mounts) == (
            "/var/log/pods/x/c/0.log",
            (Mount("/in", "/new/folder"),),
        )
        assert runtime.sandboxes()[0].config.log_directory == "/var/log/pods/x"
        files.write("/file", b"")
        with pytest.raises(RuntimeFailure, match="failed to resolve '/file/x': not a directory"):
            await runtime.create_container(
                sandbox, replace(CONTAINER, mounts=(Mount("/in", "/file/x"),))
            )


async def test_control_groups_of_systemd(tmp_path: Path) -> None:
    fake = FakeCri()
    runc = {"options": {"SystemdCgroup": True}}
    fake.config = {"containerd": {"defaultRuntimeName": "runc", "runtimes": {"runc": runc}}}

    async with start(tmp_path, fake) as (runtime, fake, _clock):
        await runtime.run_sandbox(
            replace(SANDBOX, linux=LinuxSandbox(cgroup_parent="/kubepods/burstable/poda-b"))
        )
        parent = fake.last("RunPodSandbox")["config"]["linux"]["cgroup_parent"]
        assert parent == "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice"


async def test_commands_and_timeouts(tmp_path: Path) -> None:
    async with start(tmp_path) as (runtime, fake, _clock):
        fake.answers["ExecSync"] = lambda request: {"stdout": b"out", "exit_code": 3}
        assert await runtime.exec_sync("c", ["a", "b"], 1.2) == (b"out", b"", 3)
        assert fake.last("ExecSync") == {"container_id": "c", "cmd": ["a", "b"], "timeout": 2}
        assert fake.server.headers[-1]["grpc-timeout"] == "122000m"
        await runtime.exec_sync("c", ["a"])
        assert "grpc-timeout" not in fake.server.headers[-1]

        def late(request: Message) -> Message:
            raise Refusal(
                "Unknown",
                "failed to exec in container: timeout 2s exceeded: context deadline exceeded",
            )

        fake.answers["ExecSync"] = late
        with pytest.raises(RuntimeFailure) as failure:
            await runtime.exec_sync("c", ["a", "b"], 1.2)
        assert failure.value.code == "DeadlineExceeded"
        made = await runtime.create_container(await runtime.run_sandbox(SANDBOX), CONTAINER)
        assert fake.server.headers[-1]["grpc-timeout"] == "120000m"
        await runtime.stop_container(made, 29.5)
        assert fake.last("StopContainer") == {"container_id": made, "timeout": 30}
        await runtime.stop_container("nobody", 1)
        await runtime.remove_container("nobody")
        await runtime.stop_sandbox("nobody")
        await runtime.remove_sandbox("nobody")


# ---- news ----


async def test_changes_in_the_runtime_produce_events(tmp_path: Path) -> None:
    async with start(tmp_path) as (runtime, fake, clock):
        received: list[RuntimeEvent] = []
        end = runtime.subscribe(received.append)
        sandbox = await runtime.run_sandbox(SANDBOX)
        made = await runtime.create_container(sandbox, CONTAINER)
        await runtime.start_container(made)
        assert received == [
            RuntimeEvent("sandbox", "uid-1", sandbox),
            RuntimeEvent("started", "uid-1", made),
        ]
        received.clear()
        await pass_time(clock, 3)
        assert received == []
        before = fake.counted()
        await pass_time(clock, 2)
        now = fake.counted() - before
        assert (now["ListContainers"], now["ContainerStatus"], now["PodSandboxStatus"]) == (2, 0, 0)

        fake.end(made, 5)
        await pass_time(clock, 1.5)
        assert received == [RuntimeEvent("died", "uid-1", made)]
        found = runtime.container(made)
        assert found is not None
        assert (found.state, found.exit_code, found.finished_at) == ("exited", 5, 9.0)
        received.clear()
        fake.sandboxes[sandbox].update(state=1)
        await pass_time(clock, 1.5)
        assert received == [RuntimeEvent("sandbox", "uid-1", sandbox)]
        received.clear()
        del fake.containers[made], fake.sandboxes[sandbox]
        await pass_time(clock, 1.5)
        assert received == [
            RuntimeEvent("removed", "uid-1", made),
            RuntimeEvent("removed", "uid-1", sandbox),
        ]
        assert (runtime.sandboxes(), runtime.containers(), runtime.container(made)) == (
            [],
            [],
            None,
        )
        end()
        received.clear()
        await runtime.run_sandbox(SANDBOX)
        assert received == []


async def test_a_container_that_starts_and_ends_between_two_polls(tmp_path: Path) -> None:
    async with start(tmp_path) as (runtime, fake, clock):
        received: list[RuntimeEvent] = []
        sandbox = await runtime.run_sandbox(SANDBOX)
        made = await runtime.create_container(sandbox, CONTAINER)
        await runtime.start_container(made)
        runtime.subscribe(received.append)
        del fake.containers[made]  # it ended, too, which was not seen
        fake._CreateContainer(
            {"pod_sandbox_id": sandbox, "config": {"image": {"image": "x"}}, "sandbox_config": {}}
        )
        fake.end("c3", 1)
        await pass_time(clock, 1.5)
        assert received == [
            RuntimeEvent("died", "uid-1", "c3"),
            RuntimeEvent("died", "uid-1", made),
            RuntimeEvent("removed", "uid-1", made),
        ]


async def test_a_poll_that_fails_partially(tmp_path: Path) -> None:
    async with start(tmp_path) as (runtime, fake, clock):
        sandbox = await runtime.run_sandbox(SANDBOX)
        made = await runtime.create_container(sandbox, CONTAINER)
        other = await runtime.create_container(sandbox, CONTAINER)
        fake.end(made), fake.end(other)
        whole = fake._ContainerStatus

        def partly(request: Message) -> Message:
            if request["container_id"] == made:
                raise Refusal("Unknown", "not now")
            return whole(request)

        fake.answers["ContainerStatus"] = partly
        await pass_time(clock, 1.5)
        assert [c.state for c in runtime.containers()] == ["exited", "created"]
        fake.answers.clear()
        await pass_time(clock, 1.5)
        assert [c.state for c in runtime.containers()] == ["exited", "exited"]


async def test_an_old_answer_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    """A list is on its way while a container is stopped."""

    async with start(tmp_path) as (runtime, fake, clock):
        received: list[RuntimeEvent] = []
        made = await runtime.create_container(await runtime.run_sandbox(SANDBOX), CONTAINER)
        await runtime.start_container(made)
        runtime.subscribe(received.append)
        serve, listed, go_on = fake.server.handler, asyncio.Event(), asyncio.Event()

        async def slow_list(path: str, message: bytes) -> bytes:
            answer = await serve(path, message)
            if path.endswith("/ListContainers"):
                listed.set()
                await go_on.wait()
            return answer

        fake.server.handler = slow_list
        clock.advance(1)
        await listed.wait()
        stopping = asyncio.create_task(runtime.stop_container(made, 1))
        await asyncio.sleep(0.02)
        go_on.set()
        await stopping
        assert received == [RuntimeEvent("died", "uid-1", made)]


async def test_a_container_that_ends_before_its_start_is_written_down(tmp_path: Path) -> None:
    async with start(tmp_path) as (runtime, fake, _clock):
        made = await runtime.create_container(await runtime.run_sandbox(SANDBOX), CONTAINER)
        fake.containers[made].update(state=2, started_at=6 * 10**9, finished_at=5 * 10**9)
        await runtime.refresh()
        found = runtime.container(made)
        assert found is not None
        assert (found.created_at, found.started_at, found.finished_at) == (2.0, 6.0, 6.0)


async def test_existing_containers_at_the_start(tmp_path: Path) -> None:
    fake = FakeCri()

    async with start(tmp_path, fake) as (runtime, fake, _):
        sandbox = await runtime.run_sandbox(replace(SANDBOX, linux=LinuxSandbox(run_as_user=5)))
        await runtime.start_container(await runtime.create_container(sandbox, CONTAINER))
    async with start(tmp_path, fake) as (runtime, fake, _):
        (sandbox,) = runtime.sandboxes("uid-1")
        assert (sandbox.config, sandbox.ips) == (
            replace(SANDBOX, linux=LinuxSandbox(run_as_user=5)),
            ("10.0.0.1", "fd00::1"),
        )
        assert [(c.state, c.sandbox_id) for c in runtime.containers("uid-1")] == [
            ("running", sandbox.id)
        ]
        await runtime.create_container(sandbox.id, CONTAINER)
        assert (
            fake.last("CreateContainer")["sandbox_config"] == fake.sandboxes[sandbox.id]["config"]
        )
    fake.tells_configuration = False  # as runtimes other than containerd
    async with start(tmp_path, fake) as (runtime, fake, _clock):
        (sandbox,) = runtime.sandboxes("uid-1")
        recorded = sandbox.config
        assert (
            recorded.name,
            recorded.namespace,
            recorded.uid,
            recorded.labels,
            recorded.linux.run_as_user,
        ) == (
            "web",
            "ns",
            "uid-1",
            {"a": "b"},
            None,
        )
