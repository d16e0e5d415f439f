"""Counts and times runtime operations and pod start latency, for /metrics.

Wraps a runtime and delegates everything; statistics and lists, which cost nothing here, are not
counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, cast

from transom.kit.clock import Clock, parse_rfc3339
from transom.kubelet.stats.metrics import KubeletMetrics
from transom.machinery.objects import Object
from transom.runtime.api import (
    Container,
    ContainerRuntime,
    RuntimeFailure,
    RuntimeStatus,
    Sandbox,
    SandboxConfig,
)

_OPERATIONS: Final = {
    "stop_sandbox": "stop_podsandbox",
    "remove_sandbox": "remove_podsandbox",
    "create_container": "create_container",
    "stop_container": "stop_container",
    "remove_container": "remove_container",
    "exec_sync": "exec_sync",
    "exec": "exec",
    "attach": "attach",
    "port_forward": "port_forward",
    "pull_image": "pull_image",
    "remove_image": "remove_image",
}


def count_runtime_operations(
    runtime: ContainerRuntime,
    metrics: KubeletMetrics,
    clock: Clock,
    pod: Callable[[str], Object | None],
) -> ContainerRuntime:
    """`pod` finds a pod by its uid."""
    return cast(ContainerRuntime, _CountedRuntime(runtime, metrics, clock, pod))


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

    # These are called on every sync of a pod, and `__getattr__` is slow.

    def status(self) -> RuntimeStatus:
        return self._runtime.status()

    def sandboxes(self, uid: str = "") -> Sequence[Sandbox]:
        return self._runtime.sandboxes(uid)

    def containers(self, uid: str = "") -> Sequence[Container]:
        return self._runtime.containers(uid)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._runtime, name)
        operation = _OPERATIONS.get(name)
        return found if operation is None else partial(self._timed, operation, found)

    async def run_sandbox(self, config: SandboxConfig, handler: str = "") -> str:
        started = self._clock.monotonic()
        try:
            return await self._timed("run_podsandbox", self._runtime.run_sandbox, config, handler)
        except RuntimeFailure:
            self._metrics.count("kubelet_run_podsandbox_errors_total", handler)
            raise
        finally:
            seconds = self._clock.monotonic() - started
            self._metrics.observe("kubelet_run_podsandbox_duration_seconds", seconds, handler)

    async def start_container(self, container_id: str) -> None:
        await self._timed("start_container", self._runtime.start_container, container_id)
        container = self._runtime.container(container_id)
        if container is not None and container.attempt == 0:
            self._started(container)

    async def _timed(
        self, operation: str, call: Callable[..., Awaitable[Any]], *args: Any, **more: Any
    ) -> Any:
        started = self._clock.monotonic()
        self._metrics.count("kubelet_runtime_operations_total", operation)
        try:
            return await call(*args, **more)
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
