"""A node of which only one part is under test: a memory host, a scripted runtime, events as a list."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.kubelet.fakes import FakeRuntime
from tests.runtime.tablenet import TableDataplane

from transom.kit.clock import VirtualClock
from transom.kubelet import os_linux, os_windows
from transom.kubelet.base import KubeletContext
from transom.kubelet.config import KubeletConfig
from transom.kubelet.labels import container_labels, pod_labels
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machines.linux import LinuxHost
from transom.machines.windows import WindowsHost
from transom.runtime.api import (
    AuthConfig,
    ContainerConfig,
    ContainerStats,
    CpuUsage,
    ExecResult,
    FilesystemUsage,
    Image,
    RuntimeFailure,
    SandboxConfig,
)


class SmallRuntime(FakeRuntime):
    """With images, commands and statistics."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.store: dict[str, Image] = {}
        self.registry: dict[str, Image] = {}
        self.pull_seconds = 0.0
        # answers to exec_sync: results or failures; the last one stays
        self.commands: list[Any] = []
        self.memory: dict[str, int] = {}  # working set by container name
        self.layers: dict[str, int] = {}

    async def pull_image(
        self, image: str, auth: AuthConfig | None = None, sandbox: SandboxConfig | None = None
    ) -> str:
        self._call("pull_image", image, auth)
        if self.pull_seconds:
            await self.clock.sleep(self.pull_seconds)
        if image not in self.registry:
            raise RuntimeFailure(
                "NotFound", f'failed to pull and unpack image "{image}": not found'
            )
        self.store[image] = self.registry[image]
        return self.registry[image].id

    def image(self, image: str) -> Image | None:
        self._call("image", image)
        return self.store.get(image) or next(
            (i for i in self.store.values() if i.id == image), None
        )

    def images(self) -> Sequence[Image]:
        return list(self.store.values())

    async def remove_image(self, image: str) -> None:
        self._call("remove_image", image)
        self.store = {name: known for name, known in self.store.items() if known.id != image}

    async def exec_sync(
        self, container_id: str, command: Sequence[str], seconds: float = 0
    ) -> ExecResult:
        self._call("exec", container_id, tuple(command), seconds)
        answer = self.commands.pop(0) if len(self.commands) > 1 else self.commands[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def reopen_log(self, container_id: str) -> None:
        self._call("reopen_log", container_id)

    def container_stats(self, uid: str = "") -> Sequence[ContainerStats]:
        return [
            ContainerStats(
                c.id,
                c.name,
                c.attempt,
                c.labels,
                self.clock.time(),
                CpuUsage(0, None),
                self.memory.get(c.name, 0),
                writable_layer=FilesystemUsage("/", self.layers.get(c.name, 0), 1),
            )
            for c in reversed(self.containers(uid))
            if c.state == "running"
        ]


class RecordedEvents:
    """Events: (reason, message) and the path in the object."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str]] = []
        self.paths: list[str] = []
        self.notes: list[dict[str, str] | None] = []

    def event(
        self,
        about: Object,
        kind: str,
        reason: str,
        message: str,
        *,
        annotations: dict[str, str] | None = None,
        field_path: str = "",
    ) -> None:
        self.all.append((reason, message))
        self.paths.append(about.get("fieldPath", ""))
        self.notes.append(annotations)

    def take(self) -> list[tuple[str, str]]:
        taken, self.all = self.all, []
        return taken


class Secrets:
    """A client that knows secrets only."""

    def __init__(self) -> None:
        self.known: dict[str, Object] = {}

    async def get(self, resource: Any, namespace: str, name: str) -> Object:
        if name not in self.known:
            raise ApiError(404, "NotFound", f'secrets "{name}" not found')
        return self.known[name]


class Node:
    def __init__(self, system: str = "linux", **config: Any) -> None:
        self.clock = VirtualClock()
        self.runtime = SmallRuntime(self.clock)
        self.recorded = RecordedEvents()
        self.secrets = Secrets()
        self.net = TableDataplane()
        host: Any = (LinuxHost if system == "linux" else WindowsHost)("n1", self.clock)
        self.host = host
        rules: Any = os_linux.RULES if system == "linux" else os_windows.RULES

        async def dial(address: str, port: int) -> socket.socket:
            return await self.net.connect(address, port)

        self.env = KubeletContext(
            KubeletConfig("n1", "10.0.0.1", **config),
            rules,
            self.secrets,
            self.clock,
            random.Random(3),
            self.recorded,  # type: ignore[arg-type]
            self.host,
            self.runtime,
            None,
            dial,
            lambda: None,  # type: ignore[arg-type]
        )

    async def start(self, pod: Object, **fields: Any) -> list[str]:
        """Run all containers of a pod; their ids."""
        meta = pod["metadata"]
        sandbox = await self.runtime.run_sandbox(
            SandboxConfig(
                meta["name"],
                meta["namespace"],
                meta["uid"],
                labels=pod_labels(pod),
            )
        )
        return [
            await self.start_container(pod, c, sandbox, **fields) for c in pod["spec"]["containers"]
        ]

    async def start_container(
        self, pod: Object, container: Object, sandbox: str, attempt: int = 0, **fields: Any
    ) -> str:
        config = ContainerConfig(
            container["name"],
            attempt,
            container.get("image", "i"),
            fields.pop("image_ref", "sha256:1"),
            labels=container_labels(pod, container),
            **fields,
        )
        container_id = await self.runtime.create_container(sandbox, config)
        await self.runtime.start_container(container_id)
        return container_id


def make_pod(name: str = "web", *containers: Object, **spec: Any) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
        },
        "spec": {
            "containers": list(containers) or [{"name": "app", "image": "nginx"}],
            "restartPolicy": "Always",
            **spec,
        },
        "status": {"phase": "Running"},
    }


@asynccontextmanager
async def running_node(**config: Any) -> AsyncIterator[Node]:
    async with asyncio.timeout(20):
        yield Node(**config)
