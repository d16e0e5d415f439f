"""Links in log directories, termination messages and volumes: what the kubelet and the runtime
read, write and remove for a pod stays in the pod's own files. A pod with a hostPath volume has the
node's directories, and must not get the machine's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ContextFactory
from tests.runtime import behaviour
from tests.runtime.oci.realnode import RealNode, real_node, status

from transom.http.messages import HttpResponse
from transom.kubelet.server import container_logs, hostlogs
from transom.kubelet.server.answers import HttpFailure
from transom.kubelet.server.logs import LogOptions
from transom.machinery.objects import Object
from transom.machines import mounting

Play = Callable[[Callable[[RealNode], Awaitable[None]]], None]
LOGS: list[Object] = [{"name": "logs", "hostPath": {"path": "/var/log"}}]
MOUNT: Object = {"volumeMounts": [{"name": "logs", "mountPath": "/logs"}]}
SECRET = "/var/lib/kubelet/secret"


@pytest.fixture
def node(tmp_path: Path) -> ContextFactory:
    why = behaviour.unavailable("oci")
    if why:
        pytest.skip(why)

    @asynccontextmanager
    async def start() -> AsyncIterator[RealNode]:
        async with asyncio.timeout(100), real_node("oci", tmp_path) as made:
            made.harness.host.files.mkdir("/var/lib/kubelet")
            made.harness.host.files.write(
                SECRET, b"2020-01-02T03:04:05.000000000Z stdout F of the node\n"
            )
            yield made

    return start


def running(pod: Object) -> bool:
    return "running" in (status(pod).get("state") or {})


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def _identity(pod: Object) -> str:
    return str(status(pod)["containerID"]).removeprefix("containerd://")


async def _do(n: RealNode, pod: Object, command: str) -> None:
    done = await n.harness.runtime.exec_sync(_identity(pod), ("sh", "-c", command), 20)
    assert done.exit_code == 0, done


def _kubectl_logs(n: RealNode, pod: Object) -> bytes:
    """What the kubelet answers; empty when it refuses."""
    env = n.env
    try:
        reader, _ = container_logs._open(env, status(pod)["containerID"], LogOptions())
        found = container_logs._whole(env, reader)
        assert isinstance(found, HttpResponse) and isinstance(found.body, bytes)
        return found.body
    except (HttpFailure, LookupError):
        return b""


@pytest.mark.parametrize("target", ["{secret}", "../../../../../..{secret}", "{machine}"])
async def test_a_log_that_is_a_link(node: ContextFactory, tmp_path: Path, target: str) -> None:
    async with node() as n:
        machine = tmp_path / "of-the-machine"
        machine.write_text("2020-01-02T03:04:05.000000000Z stdout F of the machine\n")
        await n.create("web", "sh", "-c", "echo mine; sleep 1000", container=MOUNT, volumes=LOGS)
        pod = await n.until("web", running)
        await n.harness.until(lambda: n.harness.printed(_identity(pod)) == ["mine"])
        assert _kubectl_logs(n, pod) == b"mine\n"
        link = target.format(secret=SECRET, machine=machine)
        await _do(n, pod, f"cd /logs/pods/*/c; rm 0.log; ln -s {link} 0.log")
        assert _kubectl_logs(n, pod) == b""


async def test_the_next_log_is_a_link(node: ContextFactory, tmp_path: Path) -> None:
    """Its name is known before it is made: what the next container says would be added to any file
    of the machine.
    """

    async with node() as n:
        outside = tmp_path / "outside"
        plant = (
            f"cd /logs/pods/*/c; ln -s {outside} 1.log; ln -s {outside} 2.log; echo '* * * * * "
            "evil'"
        )
        await n.create("web", "sh", "-c", plant, container=MOUNT, volumes=LOGS)
        refused = ("RunContainerError", "CrashLoopBackOff")
        await n.until(
            "web",
            lambda pod: (
                ((status(pod).get("state") or {}).get("waiting") or {}).get("reason") in refused
            ),
        )
        assert any(
            "0.log" in event["message"] or "1.log" in event["message"] for event in await n.events()
        )
        assert not _exists(outside)


async def test_a_rotated_log_is_a_link(node: ContextFactory, tmp_path: Path) -> None:
    async with node() as n:
        outside = tmp_path / "outside"
        await n.create(
            "web",
            "sh",
            "-c",
            "while true; do echo tick; sleep 0.05; done",
            container=MOUNT,
            volumes=LOGS,
        )
        pod = await n.until("web", running)
        await _do(n, pod, f"cd /logs/pods/*/c; mv 0.log ../../moved; ln -s {outside} 0.log")
        n.harness.runtime.reopen_log(_identity(pod))
        await n.harness.runtime.exec_sync(_identity(pod), ("sleep", "0.3"), 20)
        assert not _exists(outside)
        moved = n.harness.host.files.read("/var/log/pods/moved")
        assert moved.count(b"tick") > 0, (
            "the container goes on writing to the file that was its log"
        )


async def test_the_machines_log_directory(node: ContextFactory, tmp_path: Path) -> None:
    """GET /logs/..., of which a pod with /var/log as a volume could make a way to all files (Aqua
    Security, 2019).
    """

    async with node() as n:
        env = n.env
        able = {**MOUNT, "securityContext": {"capabilities": {"add": ["MKNOD"]}}}
        await n.create("web", "sleep", "1000", container=able, volumes=LOGS)
        pod = await n.until("web", running)
        disk = os.stat(tmp_path).st_dev
        await _do(
            n,
            pod,
            f"echo mine > /logs/real; ln -s real /logs/good; ln -s {SECRET} /logs/node; ln "
            "-s / /logs/root; "
            f"ln -s ../.. /logs/up; mknod /logs/disk b {os.major(disk)} {os.minor(disk)}",
        )

        def get(path: str) -> Any:
            return hostlogs.serve_host_logs(env.host.files, env.os, path)

        assert (get("good").status, bytes(get("good").body)) == (200, b"mine\n")
        for path in ("node", "root/", f"root{SECRET}", "up/", f"up{SECRET}", "disk"):
            assert get(path).status in (403, 404), path
        assert b"good" in bytes(get("").body)
        links = n.harness.host.files.listdir("/var/log/containers")
        assert get(f"containers/{links[0]}").status == 200, (
            "links to logs of containers are followed"
        )


async def test_a_termination_message_that_is_a_link(node: ContextFactory) -> None:
    async with node() as n:
        mounts = [
            {"name": "v", "mountPath": "/dev/termination-log", "subPath": "message"},
            {"name": "v", "mountPath": "/v"},
        ]
        first = {
            "name": "make",
            "image": n.harness.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", "echo mine > /v/message"],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }
        await n.create(
            "job",
            "sh",
            "-c",
            f"rm /v/message; ln -s {SECRET} /v/message; ls -l /v",
            restartPolicy="Never",
            container={"volumeMounts": mounts},
            initContainers=[first],
            volumes=[{"name": "v", "emptyDir": {}}],
        )
        pod = await n.until("job", lambda pod: pod["status"].get("phase") == "Succeeded")
        assert "of the node" not in str(pod["status"])


async def test_removal_stays_in_the_pod(node: ContextFactory, tmp_path: Path) -> None:
    """Links and mounts that a container leaves in its volumes: what they lead to is not removed
    with the pod.
    """

    async with node() as n:
        machine = tmp_path / "of-the-machine"
        machine.mkdir()
        (machine / "file").write_text("")
        n.harness.host.files.mkdir("/data")
        n.harness.host.files.write("/data/file", b"")
        volumes = [{"name": "v", "emptyDir": {}}, {"name": "data", "hostPath": {"path": "/data"}}]
        mounts = [
            {"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"},
            {"name": "data", "mountPath": "/data"},
        ]
        container = {"volumeMounts": mounts, "securityContext": {"privileged": True}}
        await n.create("web", "sleep", "1000", container=container, volumes=volumes)
        pod = await n.until("web", running)
        await _do(
            n,
            pod,
            f"ln -s {machine} /v/link; ln -s /data /v/node; mkdir /v/mounted; mount -o bind "
            "/data /v/mounted; "
            "d=/v/deep; for i in $(seq 300); do d=$d/d; done; mkdir -p $d; chmod 0 /v/deep",
        )
        uid = pod["metadata"]["uid"]
        assert any(
            uid in entry.point and entry.point.endswith("/mounted")
            for entry in mounting.mount_points(str(tmp_path))
        )
        await n.delete("web")
        await n.gone("web")
        await n.harness.until(
            lambda: not n.harness.host.files.exists(f"/var/lib/kubelet/pods/{uid}")
        )
        assert n.harness.host.files.exists("/data/file")
        assert (machine / "file").exists()
        assert not any(uid in entry.point for entry in mounting.mount_points(str(tmp_path)))


async def test_ownership_stays_in_the_volume(node: ContextFactory, tmp_path: Path) -> None:
    """fsGroup: neither links nor what is exchanged meanwhile is changed elsewhere."""

    async with node() as n:
        files: Any = n.harness.host.files
        machine = tmp_path / "of-the-machine"
        machine.write_text("")
        machine.chmod(0o600)
        files.mkdir("/volumes/v/inner", 0o700)
        files.write("/volumes/v/inner/file", b"", 0o600)
        files.write("/of-the-node", b"", 0o600)
        files.symlink("/of-the-node", "/volumes/v/inner/node")
        (Path(files.folder) / "volumes/v/machine").symlink_to(machine)
        files.give_to_group("/volumes/v", 2000, 0o660, 0o2110)
        assert (
            files.stat("/volumes/v/inner/file").gid,
            files.stat("/volumes/v/inner/file").mode,
        ) == (2000, 0o660)
        assert (files.stat("/volumes/v/inner").gid, files.stat("/volumes/v/inner").mode) == (
            2000,
            0o2770,
        )
        assert (files.stat("/of-the-node").gid, files.stat("/of-the-node").mode) == (0, 0o600)
        assert (machine.stat().st_gid, machine.stat().st_mode & 0o777) == (os.getgid(), 0o600)
