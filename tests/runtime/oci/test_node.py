"""A real kubelet on real containers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.conftest import ContextFactory
from tests.runtime import behaviour
from tests.runtime.oci.realnode import RealNode, real_node, status

Play = Callable[[Callable[[RealNode], Awaitable[None]]], None]


@pytest.fixture
def node(tmp_path: Path) -> ContextFactory:
    why = behaviour.unavailable("oci")
    if why:
        pytest.skip(why)

    @asynccontextmanager
    async def run_harness() -> AsyncIterator[RealNode]:
        async with asyncio.timeout(100), real_node("oci", tmp_path) as made:
            yield made

    return run_harness


def running(pod: dict) -> bool:
    return "running" in (status(pod).get("state") or {})


async def test_a_pod(node: ContextFactory) -> None:
    async with node() as n:
        await n.create(
            "web",
            "sh",
            "-c",
            "echo $HOSTNAME; cat /etc/hosts | tail -1; cat /cm/*; echo; sleep 1000",
            container={
                "env": [
                    {"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
                ],
                "volumeMounts": [
                    {"name": "v", "mountPath": "/v"},
                    {"name": "cm", "mountPath": "/cm"},
                ],
                "readinessProbe": {
                    "exec": {"command": ["sh", "-c", "test -e /v/ready"]},
                    "periodSeconds": 1,
                },
                "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}},
            },
            volumes=[
                {"name": "v", "emptyDir": {}},
                {
                    "name": "cm",
                    "downwardAPI": {
                        "items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]
                    },
                },
            ],
        )
        pod = await n.until("web", running)
        identity = status(pod)["containerID"].removeprefix("containerd://")
        ip = pod["status"]["podIP"]
        await n.harness.until(lambda: len(n.harness.printed(identity)) == 3)
        assert n.harness.printed(identity) == ["web", f"{ip}\tweb", "web"]
        assert status(pod)["ready"] is False
        done = await n.harness.runtime.exec_sync(
            identity, ("sh", "-c", "touch /v/ready; echo $WHERE")
        )
        assert done.stdout == b"node1\n"
        await n.until("web", lambda pod: status(pod)["ready"])
        await n.delete("web")
        await n.gone("web")
        assert n.harness.runtime.sandboxes() == []


async def test_a_pod_that_ends_and_one_that_crashes(node: ContextFactory) -> None:
    async with node() as n:
        await n.create(
            "job", "sh", "-c", "echo 'the result' > /dev/termination-log", restartPolicy="Never"
        )
        pod = await n.until("job", lambda pod: pod["status"].get("phase") == "Succeeded")
        ended = status(pod)["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"], ended["message"]) == (
            0,
            "Completed",
            "the result\n",
        )
        await n.create("crash", "sh", "-c", "exit 9")
        pod = await n.until("crash", lambda pod: status(pod).get("restartCount", 0) >= 1)
        assert status(pod)["lastState"]["terminated"]["exitCode"] == 9
        await n.create(
            "hungry",
            "sh",
            "-c",
            "x=0123456789abcdef; while true; do x=$x$x; done",
            restartPolicy="Never",
            container={"resources": {"limits": {"memory": "16Mi"}}},
        )
        pod = await n.until("hungry", lambda pod: pod["status"].get("phase") == "Failed")
        assert status(pod)["state"]["terminated"]["reason"] == "OOMKilled"
        await n.create("wrong", "nothing")
        broken = ("RunContainerError", "CrashLoopBackOff")
        await n.until(
            "wrong",
            lambda pod: (
                ((status(pod).get("state") or {}).get("waiting") or {}).get("reason") in broken
            ),
        )
        assert any(
            "executable file not found in $PATH: unknown" in event["message"]
            for event in await n.events()
        )


async def test_the_kubelet_comes_back(node: ContextFactory) -> None:
    async with node() as n:
        await n.create("web", "sleep", "1000")
        before = status(await n.until("web", running))
        await n.stop_kubelet()
        await n.start_kubelet()
        await n.create("another", "sleep", "1000")
        await n.until("another", running)
        after = status(await n.pod("web"))
        assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)


async def test_the_machine_is_switched_off(node: ContextFactory) -> None:
    async with node() as n:
        await n.create("web", "sleep", "1000")
        before = status(await n.until("web", running))
        n.harness.host.reboot()
        after = await n.until(
            "web", lambda pod: running(pod) and status(pod)["containerID"] != before["containerID"]
        )
        assert status(after)["restartCount"] == 1


async def test_it_is_quick(node: ContextFactory) -> None:
    async with node() as n:
        times = []
        for i in range(5):
            start = time.monotonic()
            await n.create(f"p{i}", "sleep", "1000")
            await n.until(f"p{i}", running)
            times.append(time.monotonic() - start)
        assert min(times) < 1.0, times
