"""Scripted parts of a kubelet that act at once, for tests of the core."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from transom.kit.clock import Clock
from transom.kubelet.failures import ContainerFailure, PodRejection, VolumeFailure
from transom.kubelet.interfaces import HookFailure
from transom.kubelet.labels import container_annotations, container_labels, pod_labels
from transom.machinery.objects import Object
from transom.runtime.api import (
    Container,
    ContainerConfig,
    ContainerStats,
    ExecResult,
    FilesystemUsage,
    Image,
    LinuxResources,
    LinuxSandbox,
    RuntimeEvent,
    RuntimeFailure,
    RuntimeStatus,
    RuntimeVersion,
    Sandbox,
    SandboxConfig,
    SandboxStats,
    WindowsResources,
)


class FakeRuntime:
    """Containers run until `exit`; `calls` records the calls, `fail` makes the next such call
    fail. With `delay` a call takes that long, and takes place also when no caller waits for it any
    more.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.version = RuntimeVersion("docker", "19.3.14-sim")
        self.state = RuntimeStatus()
        self.calls: list[tuple[Any, ...]] = []
        self.delay = 0.0
        self.fail: dict[str, list[RuntimeFailure]] = {}
        # exit codes of containers that end as soon as they are started
        self.start_exits: dict[str, list[int]] = {}
        self.present: dict[str, Image] = {}
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, Container] = {}
        self._listeners: list[Callable[[RuntimeEvent], None]] = []
        self._count = itertools.count(1)

    def status(self) -> RuntimeStatus:
        return self.state

    def _call(self, *what: Any) -> None:
        self.calls.append(what)
        if self.fail.get(what[0]):
            raise self.fail[what[0]].pop(0)

    async def _do(self, effect: Callable[[], str]) -> str:
        if not self.delay:
            return effect()

        async def later() -> str:
            await self.clock.sleep(self.delay)
            return effect()

        return await asyncio.shield(asyncio.ensure_future(later()))

    def _tell(self, kind: Any, uid: str, container_id: str = "") -> None:
        for listener in [*self._listeners]:
            listener(RuntimeEvent(kind, uid, container_id))

    async def run_sandbox(self, config: SandboxConfig, handler: str = "") -> str:
        return await self._do(lambda: self._run_sandbox(config, handler))

    def _run_sandbox(self, config: SandboxConfig, handler: str) -> str:
        self._call("run_sandbox", config.name)
        number = next(self._count)
        sandbox_id = f"sandbox{number}"
        ips = () if config.linux.host_network else (f"10.0.{number >> 8}.{number & 255}",)
        self._sandboxes[sandbox_id] = Sandbox(
            sandbox_id, config, "ready", self.clock.time(), handler, ips
        )
        self._tell("sandbox", config.uid)
        return sandbox_id

    async def stop_sandbox(self, sandbox_id: str) -> None:
        await self._do(lambda: self._stop_sandbox(sandbox_id))

    def _stop_sandbox(self, sandbox_id: str) -> str:
        self._call("stop_sandbox", sandbox_id)
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is not None and sandbox.state == "ready":
            for container in [*self._containers.values()]:
                if container.sandbox_id == sandbox_id and container.state == "running":
                    self.exit(container.id, 137)
            self._sandboxes[sandbox_id] = replace(sandbox, state="notready", ips=())
            self._tell("sandbox", sandbox.config.uid)
        return ""

    async def remove_sandbox(self, sandbox_id: str) -> None:
        await self._do(lambda: self._remove_sandbox(sandbox_id))

    def _remove_sandbox(self, sandbox_id: str) -> str:
        self._call("remove_sandbox", sandbox_id)
        self._sandboxes.pop(sandbox_id, None)
        return ""

    def sandboxes(self, uid: str = "") -> Sequence[Sandbox]:
        return [s for s in reversed(self._sandboxes.values()) if not uid or s.config.uid == uid]

    async def create_container(self, sandbox_id: str, config: ContainerConfig) -> str:
        return await self._do(lambda: self._create_container(sandbox_id, config))

    def _create_container(self, sandbox_id: str, config: ContainerConfig) -> str:
        self._call("create_container", config.name)
        container_id = f"container{next(self._count)}"
        self._containers[container_id] = Container(
            container_id,
            sandbox_id,
            config.name,
            config.attempt,
            "created",
            config.image,
            config.image_ref,
            config.labels,
            config.annotations,
            self.clock.time(),
            mounts=config.mounts,
        )
        return container_id

    async def start_container(self, container_id: str) -> None:
        await self._do(lambda: self._start_container(container_id))

    def _start_container(self, container_id: str) -> str:
        container = self._containers[container_id]
        self._call("start_container", container.name)
        self._containers[container_id] = replace(
            container, state="running", started_at=self.clock.time()
        )
        self._tell("started", container.labels["io.kubernetes.pod.uid"], container_id)
        if self.start_exits.get(container.name):
            self.exit(container_id, self.start_exits[container.name].pop(0))
        return ""

    async def stop_container(self, container_id: str, grace: float) -> None:
        await self._do(lambda: self._stop_container(container_id, grace))

    def _stop_container(self, container_id: str, grace: float) -> str:
        container = self._containers[container_id]
        self._call("stop_container", container.name, grace)
        if container.state == "running":
            self.exit(container_id, 0)
        return ""

    async def remove_container(self, container_id: str) -> None:
        await self._do(lambda: self._remove_container(container_id))

    def _remove_container(self, container_id: str) -> str:
        self._call("remove_container", container_id)
        self._containers.pop(container_id, None)
        return ""

    async def update_container_resources(
        self, container_id: str, resources: LinuxResources | WindowsResources
    ) -> None:
        self._call("update_container_resources", self._containers[container_id].name, resources)

    async def update_sandbox_resources(self, sandbox_id: str, resources: LinuxResources) -> None:
        self._call("update_sandbox_resources", sandbox_id, resources)

    def containers(self, uid: str = "") -> Sequence[Container]:
        return [
            c
            for c in reversed(self._containers.values())
            if not uid or c.labels["io.kubernetes.pod.uid"] == uid
        ]

    def container(self, container_id: str) -> Container | None:
        return self._containers.get(container_id)

    def image(self, image: str) -> Image | None:
        return self.present.get(image)

    def images(self) -> Sequence[Image]:
        return [*self.present.values()]

    async def pull_image(
        self, image: str, auth: Any = None, sandbox: SandboxConfig | None = None
    ) -> str:
        self._call("pull_image", image)
        self.present[image] = Image(f"sha256:{len(self.present)}", (image,), (), 1 << 20)
        return self.present[image].id

    def image_filesystem(self) -> FilesystemUsage:
        return FilesystemUsage("/var/lib/docker", 0, 0)

    def container_stats(self, uid: str = "") -> Sequence[ContainerStats]:
        return ()

    def sandbox_stats(self, uid: str = "") -> Sequence[SandboxStats]:
        return ()

    async def exec_sync(
        self, container_id: str, command: Sequence[str], seconds: float = 0
    ) -> ExecResult:
        self._call("exec_sync", *command)
        return ExecResult(b"", b"", 0)

    def subscribe(self, listener: Callable[[RuntimeEvent], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # What happens to containers

    def exit(self, container_id: str, code: int) -> None:
        container = self._containers[container_id]
        self._containers[container_id] = replace(
            container,
            state="exited",
            exit_code=code,
            finished_at=self.clock.time(),
            reason="Completed" if code == 0 else "Error",
        )
        self._tell("died", container.labels["io.kubernetes.pod.uid"], container_id)

    def exit_all(self, name: str, code: int) -> None:
        for container in self.containers():
            if container.name == name and container.state == "running":
                self.exit(container.id, code)

    def lose_sandboxes(self) -> None:
        """As after a reboot."""
        for container in self.containers():
            if container.state == "running":
                self.exit(container.id, 137)
        for sandbox_id, sandbox in self._sandboxes.items():
            self._sandboxes[sandbox_id] = replace(sandbox, state="notready", ips=())


class FakeParts:
    """Images, hooks, builder, volumes, admission, mirrors and prober in one."""

    def __init__(self) -> None:
        self.pull_failures: dict[str, list[ContainerFailure]] = {}
        self.config_failures: list[ContainerFailure] = []
        self.hook_failures: list[HookFailure] = []
        self.mount_failures: list[VolumeFailure] = []
        self.mount_waits: Any = None
        self.hooks: list[tuple[str, Object]] = []
        self.hook_seconds = 0.0
        self.clock: Clock | None = None
        self.short_hash = False
        self.resize_rejections: list[PodRejection] = []
        self.mounts: dict[str, int] = {}
        self.refused: PodRejection | None = None
        self.blocked: PodRejection | None = None
        self.probed: dict[str, Object] = {}
        self.results: dict[tuple[str, str], bool] = {}
        self.changed: Callable[[str], None] = lambda uid: None
        self.mirrors: list[tuple[Any, ...]] = []

    async def ensure_volume(self, pod: Object, source: Object, sandbox: SandboxConfig) -> Image:
        return await self.ensure(pod, {"image": source["reference"]}, sandbox)

    async def ensure(self, pod: Object, container: Object, sandbox: SandboxConfig) -> Image:
        failures = self.pull_failures.get(container["image"])
        if failures:
            raise failures.pop(0)
        return Image("sha256:1", (container["image"],), (), 1)

    async def run(self, pod: Object, container: Object, container_id: str, handler: Object) -> None:
        self.hooks.append((container["name"], handler))
        if self.hook_seconds and self.clock is not None:
            await self.clock.sleep(self.hook_seconds)
        if self.hook_failures:
            raise self.hook_failures.pop(0)

    def sandbox_config(self, pod: Object, attempt: int) -> SandboxConfig:
        meta = pod["metadata"]
        return SandboxConfig(
            meta["name"],
            meta["namespace"],
            meta["uid"],
            attempt,
            labels=pod_labels(pod),
            log_directory=f"/var/log/pods/{meta['uid']}",
            linux=LinuxSandbox(host_network=bool(pod["spec"].get("hostNetwork"))),
        )

    async def runtime_handler(self, pod: Object) -> str:
        return ""

    async def container_config(
        self,
        pod: Object,
        container: Object,
        sandbox: Sandbox,
        image: Image,
        attempt: int,
        volume_images: Mapping[str, Image],
    ) -> ContainerConfig:
        if self.config_failures:
            raise self.config_failures.pop(0)
        return ContainerConfig(
            container["name"],
            attempt,
            container["image"],
            image.id,
            labels=container_labels(pod, container),
            annotations=container_annotations(pod, container, attempt, self.short_hash),
        )

    async def mount(self, pod: Object) -> None:
        if self.mount_waits is not None:
            await self.mount_waits.wait()
        if self.mount_failures:
            raise self.mount_failures.pop(0)
        self.mounts[pod["metadata"]["uid"]] = self.mounts.get(pod["metadata"]["uid"], 0) + 1

    async def unmount(self, uid: str) -> None:
        self.mounts.pop(uid, None)

    def mounted(self, uid: str) -> bool:
        return uid in self.mounts

    def pods(self) -> Sequence[str]:
        return [*self.mounts]

    def admit(self, pod: Object, active_pods: Sequence[Object]) -> PodRejection | None:
        return self.refused

    def admit_resize(self, pod: Object, active_pods: Sequence[Object]) -> PodRejection | None:
        return self.resize_rejections.pop(0) if self.resize_rejections else None

    def can_run(self, pod: Object) -> PodRejection | None:
        return self.blocked

    async def create(self, pod: Object) -> None:
        self.mirrors.append(("create", pod["metadata"]["name"]))

    async def delete(self, namespace: str, name: str, uid: str = "") -> bool:
        self.mirrors.append(("delete", name))
        return True

    def is_mirror_of(self, mirror: Object, pod: Object) -> bool:
        return True

    def prober(self, changed: Callable[[str], None]) -> FakeParts:
        self.changed = changed
        return self

    def add_pod(self, pod: Object) -> None:
        self.probed[pod["metadata"]["uid"]] = pod

    def remove_pod(self, uid: str) -> None:
        self.probed.pop(uid, None)

    def sync(self, uid: str) -> None: ...

    def readiness(self, container_id: str) -> bool | None:
        return self.results.get(("readiness", container_id))

    def liveness(self, container_id: str) -> bool | None:
        return self.results.get(("liveness", container_id))

    def startup(self, container_id: str) -> bool | None:
        return self.results.get(("startup", container_id))

    def report(self, uid: str, kind: str, container_id: str, good: bool) -> None:
        self.results[kind, container_id] = good
        self.changed(uid)
