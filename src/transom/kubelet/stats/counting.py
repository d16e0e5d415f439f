"""Counts and times runtime operations and pod start latency, for /metrics.

Wraps a runtime and delegates everything; statistics and lists, which cost nothing here, are not
counted.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from transom.kit.clock import Clock, parse_rfc3339
from transom.kubelet.stats.metrics import KubeletMetrics
from transom.machinery.objects import Object
from transom.runtime.api import (
    AuthConfig,
    Container,
    ContainerConfig,
    ContainerProcess,
    ContainerRuntime,
    ContainerStats,
    ExecResult,
    FilesystemUsage,
    Image,
    LinuxResources,
    Output,
    RuntimeEvent,
    RuntimeFailure,
    RuntimeStatus,
    RuntimeVersion,
    Sandbox,
    SandboxConfig,
    SandboxStats,
    WindowsResources,
)

T = TypeVar("T")


def count_runtime_operations(
    runtime: ContainerRuntime,
    metrics: KubeletMetrics,
    clock: Clock,
    pod: Callable[[str], Object | None],
) -> ContainerRuntime:
    """`pod` finds a pod by its uid."""
    return _CountedRuntime(runtime, metrics, clock, pod)


class _CountedRuntime:
    __slots__ = ("_clock", "_metrics", "_pod", "_runtime")

    def __init__(
        self,
        runtime: ContainerRuntime,
        metrics: KubeletMetrics,
        clock: Clock,
        pod: Callable[[str], Object | None],
    ) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._clock = clock
        self._pod = pod

    # Not counted

    @property
    def version(self) -> RuntimeVersion:
        return self._runtime.version

    def status(self) -> RuntimeStatus:
        return self._runtime.status()

    def sandboxes(self, uid: str = "") -> Sequence[Sandbox]:
        return self._runtime.sandboxes(uid)

    def containers(self, uid: str = "") -> Sequence[Container]:
        return self._runtime.containers(uid)

    def container(self, container_id: str) -> Container | None:
        return self._runtime.container(container_id)

    def reopen_log(self, container_id: str) -> None:
        self._runtime.reopen_log(container_id)

    def watch_log(self, container_id: str, listener: Callable[[], None]) -> Callable[[], None]:
        return self._runtime.watch_log(container_id, listener)

    def image(self, image: str) -> Image | None:
        return self._runtime.image(image)

    def images(self) -> Sequence[Image]:
        return self._runtime.images()

    def image_filesystem(self) -> FilesystemUsage:
        return self._runtime.image_filesystem()

    def container_stats(self, uid: str = "") -> Sequence[ContainerStats]:
        return self._runtime.container_stats(uid)

    def sandbox_stats(self, uid: str = "") -> Sequence[SandboxStats]:
        return self._runtime.sandbox_stats(uid)

    def subscribe(self, listener: Callable[[RuntimeEvent], None]) -> Callable[[], None]:
        return self._runtime.subscribe(listener)

    # Counted

    async def run_sandbox(self, config: SandboxConfig, handler: str = "") -> str:
        started = self._clock.monotonic()
        try:
            return await self._timed("run_podsandbox", self._runtime.run_sandbox(config, handler))
        except RuntimeFailure:
            self._metrics.count("kubelet_run_podsandbox_errors_total", handler)
            raise
        finally:
            seconds = self._clock.monotonic() - started
            self._metrics.observe("kubelet_run_podsandbox_duration_seconds", seconds, handler)

    async def start_container(self, container_id: str) -> None:
        await self._timed("start_container", self._runtime.start_container(container_id))
        container = self._runtime.container(container_id)
        if container is not None and container.attempt == 0:
            self._started(container)

    async def stop_sandbox(self, sandbox_id: str) -> None:
        await self._timed("stop_podsandbox", self._runtime.stop_sandbox(sandbox_id))

    async def remove_sandbox(self, sandbox_id: str) -> None:
        await self._timed("remove_podsandbox", self._runtime.remove_sandbox(sandbox_id))

    async def create_container(self, sandbox_id: str, config: ContainerConfig) -> str:
        created = self._runtime.create_container(sandbox_id, config)
        return await self._timed("create_container", created)

    async def stop_container(self, container_id: str, grace: float) -> None:
        await self._timed("stop_container", self._runtime.stop_container(container_id, grace))

    async def remove_container(self, container_id: str) -> None:
        await self._timed("remove_container", self._runtime.remove_container(container_id))

    async def update_container_resources(
        self, container_id: str, resources: LinuxResources | WindowsResources
    ) -> None:
        updated = self._runtime.update_container_resources(container_id, resources)
        await self._timed("update_container", updated)

    async def update_sandbox_resources(self, sandbox_id: str, resources: LinuxResources) -> None:
        updated = self._runtime.update_sandbox_resources(sandbox_id, resources)
        await self._timed("update_podsandbox_resources", updated)

    async def exec_sync(
        self, container_id: str, command: Sequence[str], seconds: float = 0
    ) -> ExecResult:
        result = self._runtime.exec_sync(container_id, command, seconds)
        return await self._timed("exec_sync", result)

    async def exec(
        self,
        container_id: str,
        command: Sequence[str],
        output: Output,
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> ContainerProcess:
        process = self._runtime.exec(container_id, command, output, stdin=stdin, tty=tty)
        return await self._timed("exec", process)

    async def attach(
        self, container_id: str, output: Output, *, stdin: bool = False, tty: bool = False
    ) -> ContainerProcess:
        process = self._runtime.attach(container_id, output, stdin=stdin, tty=tty)
        return await self._timed("attach", process)

    async def port_forward(self, sandbox_id: str, port: int) -> socket.socket:
        return await self._timed("port_forward", self._runtime.port_forward(sandbox_id, port))

    async def pull_image(
        self, image: str, auth: AuthConfig | None = None, sandbox: SandboxConfig | None = None
    ) -> str:
        return await self._timed("pull_image", self._runtime.pull_image(image, auth, sandbox))

    async def remove_image(self, image: str) -> None:
        await self._timed("remove_image", self._runtime.remove_image(image))

    async def _timed(self, operation: str, call: Awaitable[T]) -> T:
        started = self._clock.monotonic()
        self._metrics.count("kubelet_runtime_operations_total", operation)
        try:
            return await call
        except RuntimeFailure:
            self._metrics.count("kubelet_runtime_operations_errors_total", operation)
            raise
        finally:
            seconds = self._clock.monotonic() - started
            self._metrics.observe("kubelet_runtime_operations_duration_seconds", seconds, operation)

    def _started(self, container: Container) -> None:
        """A pod has started when its last container has, measured from when the kubelet first saw
        it.
        """
        pod = self._pod(container.labels.get("io.kubernetes.pod.uid", ""))
        if pod is None:
            return
        containers = pod["spec"]["containers"]
        if container.name != containers[-1]["name"]:
            return
        seen = (pod.get("status") or {}).get("startTime") or pod["metadata"].get(
            "creationTimestamp"
        )
        if seen:
            seconds = max(0.0, self._clock.time() - parse_rfc3339(seen))
            self._metrics.observe("kubelet_pod_start_duration_seconds", seconds)
            self._metrics.observe("kubelet_containers_per_pod_count", len(containers))
