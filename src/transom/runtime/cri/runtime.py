"""`CriRuntime`: a real containerd as `runtime.api.Runtime`.

Synchronous queries are answered from memory, at most one second old (`relist`), statistics ten
(`statistics`). The runtime provides the network of its pods itself, through CNI.
"""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from transom.kit.clock import Clock
from transom.kit.task_set import TaskSet
from transom.network.api import Dial
from transom.runtime.api import (
    AuthConfig,
    Container,
    ContainerConfig,
    ContainerProcess,
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
from transom.runtime.cdi import CdiFailure, inject_cdi_devices
from transom.runtime.cri import address, from_cri, logwatch, streams, to_cri
from transom.runtime.cri.client import REQUEST_TIMEOUT, CriClient
from transom.runtime.cri.codec import Message
from transom.runtime.cri.imagelist import ImageList
from transom.runtime.cri.paths import CriPaths, RealNodeFiles
from transom.runtime.cri.relist import Relist
from transom.runtime.cri.statistics import CriStatistics
from transom.runtime.native import cgroups

log = logging.getLogger("transom.runtime.cri")

_HEALTH: Final = 5.0
_COUNT: Final = 10.0
_UNREACHABLE: Final = "ContainerRuntimeUnreachable"


class CriRuntime:
    """Call `start` first. `files` are the node's, when they are in a directory of the machine;
    `dial` opens connections to the runtime's streaming server where plain TCP cannot reach it.
    Polls every `period` seconds.
    """

    def __init__(
        self,
        clock: Clock,
        endpoint: str = address.DEFAULT,
        *,
        files: RealNodeFiles | None = None,
        dial: Dial | None = None,
        period: float = 1.0,
        patience: float = REQUEST_TIMEOUT,
    ) -> None:
        self._clock = clock
        self._client = CriClient(endpoint, patience)
        self._files = files
        self._paths = CriPaths(files)
        self._dial = dial
        self._period = period
        self._known = Relist(self._client, self._paths)
        self._images = ImageList(self._client)
        self._statistics = CriStatistics(self._client, clock)
        self._status = RuntimeStatus()
        self._systemd = False
        self._tasks = TaskSet()

    async def start(self) -> None:
        """Connects to the runtime and loads its state. Raises RuntimeFailure when it is not
        available.
        """
        await self.refresh()
        for period, function in (
            (self._period, self._look),
            (_HEALTH, self._check),
            (_COUNT, self._statistics.look),
        ):
            self._tasks.start(self._repeat(period, function))

    async def refresh(self) -> None:
        """Refreshes everything that is kept in memory."""
        await self._check()
        await self._known.look()
        await self._statistics.look()

    async def close(self) -> None:
        """Sandboxes and containers keep running."""
        await self._tasks.close()
        self._client.close()

    async def _repeat(self, period: float, function: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._clock.sleep(period)
            try:
                await function()
            except RuntimeFailure as failure:
                self._failed(failure)

    async def _look(self) -> None:
        await self._known.look()
        if self._status.runtime_reason == _UNREACHABLE:
            await self._check()
            log.info("the container runtime answers again")

    async def _check(self) -> None:
        answer = await self._client.call("Status", {"verbose": True})
        self._status = from_cri.runtime_status_from_cri(answer)
        self._systemd = from_cri.has_systemd_groups(answer)
        await self._images.look()

    def _failed(self, failure: RuntimeFailure) -> None:
        if failure.code not in ("Unavailable", "DeadlineExceeded"):
            log.debug("a look at the container runtime failed: %s", failure)
            return
        if self._status.runtime_reason != _UNREACHABLE:
            log.warning("the container runtime does not answer: %s", failure)
        self._status = RuntimeStatus(_UNREACHABLE, str(failure))

    @property
    def version(self) -> RuntimeVersion:
        version = self._client.version
        return RuntimeVersion(
            version.get("runtime_name", "containerd"), version.get("runtime_version", "")
        )

    @property
    def interface(self) -> str:
        """The CRI version in use: v1 or v1alpha2."""
        return self._client.api

    def status(self) -> RuntimeStatus:
        return self._status

    # Sandboxes

    async def run_sandbox(self, config: SandboxConfig, handler: str = "") -> str:
        message = self._on_disk(
            lambda: to_cri.sandbox_to_cri(config, self._paths, systemd=self._systemd)
        )
        request = {"config": message, "runtime_handler": handler}
        answer = await self._client.call("RunPodSandbox", request, self._client.patience * 2)
        identity: str = answer.get("pod_sandbox_id", "")
        await self._known.look_at_sandbox(identity, message)
        return identity

    async def stop_sandbox(self, sandbox_id: str) -> None:
        await self._call_if_there("StopPodSandbox", {"pod_sandbox_id": sandbox_id})
        await self._known.look_at_pod(sandbox_id)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        known = self._known.sandbox(sandbox_id)
        await self.stop_sandbox(sandbox_id)
        await self._call_if_there("RemovePodSandbox", {"pod_sandbox_id": sandbox_id})
        await self._known.look_at_sandbox(sandbox_id)
        if known is not None:
            self._remove_group(known.config)

    def _remove_group(self, config: Message) -> None:
        """The pod's cgroup was created for its containers, and no other component removes it."""
        parent = (config.get("linux") or {}).get("cgroup_parent", "")
        if parent.startswith("/") and not self._systemd:
            cgroups.remove_empty_cgroup([parent])

    def sandboxes(self, uid: str = "") -> Sequence[Sandbox]:
        return self._known.sandboxes(uid)

    # Containers

    async def create_container(self, sandbox_id: str, config: ContainerConfig) -> str:
        known = self._known.sandbox(sandbox_id)
        if known is None:
            raise RuntimeFailure("NotFound", f'failed to find sandbox id "{sandbox_id}": not found')
        if self._files is not None:  # otherwise the runtime finds the devices itself
            try:
                config = replace(inject_cdi_devices(self._files, config), cdi_devices=())
            except CdiFailure as failure:
                raise RuntimeFailure(
                    "Unknown", f"failed to generate container spec: {failure}"
                ) from failure
        message = self._on_disk(lambda: to_cri.container_to_cri(config, known.config, self._paths))
        request = {"pod_sandbox_id": sandbox_id, "config": message, "sandbox_config": known.config}
        answer = await self._client.call("CreateContainer", request)
        identity: str = answer.get("container_id", "")
        await self._known.look_at_container(identity, sandbox_id)
        return identity

    async def start_container(self, container_id: str) -> None:
        try:
            await self._client.call("StartContainer", {"container_id": container_id})
        finally:
            await self._known.look_at_container(container_id)

    async def stop_container(self, container_id: str, grace: float) -> None:
        seconds = max(0, math.ceil(grace))
        request = {"container_id": container_id, "timeout": seconds}
        await self._call_if_there("StopContainer", request, self._client.patience + seconds)
        await self._known.look_at_container(container_id)

    async def remove_container(self, container_id: str) -> None:
        await self._call_if_there("RemoveContainer", {"container_id": container_id})
        await self._known.look_at_container(container_id)

    async def update_container_resources(
        self, container_id: str, resources: LinuxResources | WindowsResources
    ) -> None:
        request: Message = {"container_id": container_id}
        if isinstance(resources, WindowsResources):
            request["windows"] = to_cri.cri_windows_resources(resources)
        else:
            request["linux"] = to_cri.cri_linux_resources(resources)
        await self._client.call("UpdateContainerResources", request)

    async def update_sandbox_resources(self, sandbox_id: str, resources: LinuxResources) -> None:
        """The cgroups of pods belong to the kubelet of the machine, not to its runtime."""

    def containers(self, uid: str = "") -> Sequence[Container]:
        return self._known.containers(uid)

    def container(self, container_id: str) -> Container | None:
        return self._known.container(container_id)

    def reopen_log(self, container_id: str) -> None:
        """Sends the request and does not wait. The next rotation notices a log that was not
        reopened.
        """
        if self._container(container_id).state != "running":
            raise RuntimeFailure("Unknown", "container is not running")
        self._tasks.start(self._reopen(container_id))

    async def _reopen(self, container_id: str) -> None:
        try:
            await self._client.call("ReopenContainerLog", {"container_id": container_id})
        except RuntimeFailure as failure:
            log.warning("the log of container %s was not reopened: %s", container_id, failure)

    def watch_log(self, container_id: str, listener: Callable[[], None]) -> Callable[[], None]:
        path = self._container(container_id).log_path
        return logwatch.watch_log(self._clock, lambda: self._real_log(path), listener)

    def _real_log(self, path: str) -> str:
        try:
            return self._paths.real(path)
        except OSError:
            return path

    def _container(self, container_id: str) -> Container:
        container = self._known.container(container_id)
        if container is None:
            text = f'an error occurred when try to find container "{container_id}": not found'
            raise RuntimeFailure("NotFound", text)
        return container

    def _on_disk(self, make: Callable[[], Message]) -> Message:
        """The configuration with its paths resolved."""
        try:
            return make()
        except OSError as problem:
            where = problem.filename or ""
            text = f"failed to resolve {where!r}: {os.strerror(problem.errno or 5).lower()}"
            raise RuntimeFailure("Unknown", text) from problem

    async def _call_if_there(
        self, method: str, request: Message, seconds: float | None = None
    ) -> None:
        try:
            await self._client.call(method, request, seconds)
        except RuntimeFailure as failure:
            if failure.code != "NotFound":
                raise

    # Commands

    async def exec_sync(
        self, container_id: str, command: Sequence[str], seconds: float = 0
    ) -> ExecResult:
        limit = math.ceil(seconds)
        request = {"container_id": container_id, "cmd": list(command), "timeout": limit}
        try:
            answer = await self._client.call(
                "ExecSync", request, self._client.patience + limit if limit else 0
            )
        except RuntimeFailure as failure:
            if limit and f"timeout {limit}s exceeded" in failure.description:
                raise RuntimeFailure("DeadlineExceeded", failure.description) from failure
            raise
        return ExecResult(
            answer.get("stdout", b""), answer.get("stderr", b""), answer.get("exit_code", 0)
        )

    async def exec(
        self,
        container_id: str,
        command: Sequence[str],
        output: Output,
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> ContainerProcess:
        request = {"container_id": container_id, "cmd": list(command), **_streams(stdin, tty)}
        answer = await self._client.call("Exec", request)
        return await streams.open_command_stream(
            answer.get("url", ""), output, self._dial, stdin=stdin, tty=tty
        )

    async def attach(
        self, container_id: str, output: Output, *, stdin: bool = False, tty: bool = False
    ) -> ContainerProcess:
        answer = await self._client.call(
            "Attach", {"container_id": container_id, **_streams(stdin, tty)}
        )

        async def ended() -> int:
            await self._known.look_at_container(container_id)
            container = self._known.container(container_id)
            return container.exit_code if container is not None else 0

        return await streams.open_command_stream(
            answer.get("url", ""), output, self._dial, stdin=stdin, tty=tty, ended=ended
        )

    async def port_forward(self, sandbox_id: str, port: int) -> socket.socket:
        answer = await self._client.call(
            "PortForward", {"pod_sandbox_id": sandbox_id, "port": [port]}
        )
        return await streams.open_port_forward(answer.get("url", ""), sandbox_id, port, self._dial)

    # Images

    async def pull_image(
        self, image: str, auth: AuthConfig | None = None, sandbox: SandboxConfig | None = None
    ) -> str:
        of_sandbox = None
        if sandbox is not None:
            of_sandbox = self._on_disk(
                lambda: to_cri.sandbox_to_cri(sandbox, self._paths, systemd=self._systemd)
            )
        request = {
            "image": {"image": image},
            "auth": to_cri.auth_to_cri(auth),
            "sandbox_config": of_sandbox,
        }
        answer = await self._client.call("PullImage", request, 0)
        await self._images.look()
        return answer.get("image_ref", "")

    def image(self, image: str) -> Image | None:
        return self._images.find(image)

    def images(self) -> Sequence[Image]:
        return self._images.all

    async def remove_image(self, image: str) -> None:
        await self._call_if_there("RemoveImage", {"image": {"image": image}})
        await self._images.look()

    def image_filesystem(self) -> FilesystemUsage:
        return self._statistics.images

    # Statistics and events

    def container_stats(self, uid: str = "") -> Sequence[ContainerStats]:
        running = {each.id for each in self._known.containers(uid) if each.state == "running"}
        return [row for row in self._statistics.containers if row.id in running]

    def sandbox_stats(self, uid: str = "") -> Sequence[SandboxStats]:
        ready = {each.id for each in self._known.sandboxes(uid) if each.state == "ready"}
        return [row for row in self._statistics.sandboxes if row.id in ready]

    def subscribe(self, listener: Callable[[RuntimeEvent], None]) -> Callable[[], None]:
        return self._known.subscribe(listener)


def _streams(stdin: bool, tty: bool) -> Message:
    return {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
