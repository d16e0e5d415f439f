"""A whole kubelet on a real containerd: a pod from its creation to its end."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.runtime.cri.conftest import benched
from tests.runtime.cri.containerd import Containerd

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.events import EventRecorder
from transom.client.resources import CONFIG_MAPS, EVENTS, PODS, SERVICE_ACCOUNTS
from transom.kit.clock import RealClock
from transom.kubelet import os_linux
from transom.kubelet.base import KubeletContext
from transom.kubelet.config import KubeletConfig
from transom.kubelet.kubelet import Kubelet
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT
from transom.store.memory import MemoryStore

NODE, IP = "node1", "192.168.0.1"
POD: Object = {
    "metadata": {"name": "web"},
    "spec": {
        "nodeName": NODE,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "restartPolicy": "OnFailure",
        "volumes": [
            {"name": "page", "configMap": {"name": "page"}},
            {"name": "shared", "emptyDir": {}},
        ],
        "initContainers": [
            {
                "name": "first",
                "image": "busybox",
                "command": ["sh", "-c", "cat /page/index.html > /shared/index.html"],
                "volumeMounts": [
                    {"name": "page", "mountPath": "/page"},
                    {"name": "shared", "mountPath": "/shared"},
                ],
            },
        ],
        "containers": [
            {
                "name": "server",
                "image": "busybox",
                "command": [
                    "sh",
                    "-c",
                    (
                        "echo serving; trap 'exit 0' TERM; httpd -h /shared; while :; do sleep "
                        "0.1; done"
                    ),
                ],
                "volumeMounts": [{"name": "shared", "mountPath": "/shared", "readOnly": True}],
                "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 1},
                "lifecycle": {
                    "preStop": {
                        "exec": {"command": ["sh", "-c", "echo bye > /dev/termination-log"]}
                    }
                },
            },
            {
                "name": "twice",
                "image": "busybox",
                "command": [
                    "sh",
                    "-c",
                    "[ -e /shared/mark ] && sleep 600; touch /shared/mark; exit 3",
                ],
                "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
            },
        ],
    },
}


class NoServices:
    async def synced(self) -> None: ...

    def list(self, namespace: str) -> list[Object]:
        return []


async def _until(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(30):
        while True:
            found = await condition()
            if found:
                return found
            await asyncio.sleep(0.05)


async def test_a_pod(containerd: Containerd, tmp_path: Path) -> None:
    clock, rng = RealClock(), random.Random(7)
    api = build_api_server(ServerOptions(store=MemoryStore(clock), clock=clock, rng=rng))
    admin = InProcessClient(api, UserInfo("admin", ("system:masters", "system:authenticated")))
    node = InProcessClient(
        api, UserInfo(f"system:node:{NODE}", ("system:nodes", "system:authenticated"))
    )
    await api.start()
    async with asyncio.timeout(60), benched(containerd, tmp_path) as b:
        events = EventRecorder(node, "kubelet", clock, rng, release=DEFAULT, host=NODE)
        # Groups of containerd's own, so that nothing of a kubelet that this machine may have is
        # touched.
        config = KubeletConfig(
            NODE, IP, cgroups_per_qos=False, enforce_node_allocatable=(), eviction_hard={}
        )
        env = KubeletContext(
            config,
            os_linux.RULES,
            node,
            clock,
            rng,
            events,
            b.host,
            b.runtime,
            NoServices(),
            _dial(containerd),
            lambda: None,
        )
        tasks = [asyncio.create_task(Kubelet(env).run()), asyncio.create_task(events.run())]
        try:
            await _scenario(admin, b)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    await api.stop()


def _dial(containerd: Containerd) -> Callable[[str, int], Awaitable[socket.socket]]:
    async def dial(address: str, port: int) -> socket.socket:
        return await containerd.dial(address, port)

    return dial


async def _scenario(admin: InProcessClient, b: Any) -> None:
    async def pod() -> Object | None:
        try:
            return await admin.get(PODS, "default", "web")
        except ApiError:
            return None

    async def ready() -> Object | None:
        found = await pod()
        status = (found or {}).get("status") or {}
        states = {s["name"]: s for s in status.get("containerStatuses") or ()}
        good = (
            states.get("server", {}).get("ready")
            and states.get("twice", {}).get("restartCount") == 1
        )
        return found if good and "running" in states["twice"]["state"] else None

    await admin.create(SERVICE_ACCOUNTS, "default", {"metadata": {"name": "default"}})
    await admin.create(
        CONFIG_MAPS, "default", {"metadata": {"name": "page"}, "data": {"index.html": "hello"}}
    )
    await admin.create(PODS, "default", POD)
    found = await _until(ready)
    status = found["status"]
    assert status["phase"] == "Running"
    assert status["podIP"].startswith("10.88.0.")
    (server,) = (s for s in status["containerStatuses"] if s["name"] == "server")
    assert server["image"] == "docker.io/library/busybox:latest"
    assert server["imageID"].startswith("docker.io/library/busybox@sha256:")
    assert server["containerID"].startswith("containerd://")
    (twice,) = (s for s in status["containerStatuses"] if s["name"] == "twice")
    assert twice["lastState"]["terminated"]["exitCode"] == 3
    (log,) = (c.log_path for c in b.runtime.containers() if c.name == "server")
    assert log == f"/var/log/pods/default_web_{found['metadata']['uid']}/server/0.log"
    assert b.host.files.read(log).endswith(b" stdout F serving\n")

    await admin.delete(PODS, "default", "web")

    async def gone() -> bool:
        return await pod() is None and not b.runtime.sandboxes()

    await _until(gone)
    assert b.runtime.containers() == []
    recorded = {event["reason"] for event in (await admin.list(EVENTS, "default")).items}
    assert {"Pulled", "Created", "Started", "Killing"} <= recorded
    assert not {reason for reason in recorded if "Fail" in reason}
