"""The container runtime of a Windows machine as a service: its named pipe, and what happens to
containers when it stops.

docker stops its containers when it ends, because it has no live restore on Windows. containerd's
keep running: each has its own shim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from transom.runtime.api import RuntimeFailure, RuntimeStatus
from transom.runtime.sim import containers, sandboxes
from transom.runtime.sim.core import SimCore

PIPES: Final = {
    "docker": ("\\\\.\\pipe\\docker_engine",),
    "containerd": (
        "\\\\.\\pipe\\containerd-containerd",
        "\\\\.\\pipe\\containerd-containerd.ttrpc",
    ),
}
_DOCKER_SHUTDOWN_TIMEOUT: Final = 15.0  # dockerd --shutdown-timeout
_DOCKER_DOWN: Final = (
    "docker: failed to get docker version: Cannot connect to the Docker daemon at "
    "npipe:////./pipe/docker_engine. "
    "Is the docker daemon running?"
)
_CONTAINERD_DOWN: Final = {
    "windows": 'connection error: desc = "transport: error while dialing: open '
    "//./pipe/containerd-containerd: The system cannot find "
    'the file specified."',
    "linux": 'connection error: desc = "transport: Error while dialing dial unix '
    '/run/containerd/containerd.sock: connect: connection refused"',
}


class RuntimeService:
    """Runs from the start, until its service is stopped."""

    __slots__ = ("_configure", "_core", "_runtime", "running")

    def __init__(self, core: SimCore) -> None:
        self._core = core
        self._runtime = "docker" if core.docker else "containerd"
        self.running = False
        self._configure: Callable[[], bool] | None = None
        self.start()

    def use_configuration(self, configure: Callable[[], bool]) -> None:
        """`configure` reads the configuration at each further start; False if it is invalid, and
        the service then does not start.
        """
        self._configure = configure

    def start(self) -> None:
        if not self.running and (self._configure is None or self._configure()):
            self.running = True
            files = self._core.host.files
            for pipe in PIPES[self._runtime] if self._core.windows else ():
                if not files.exists(pipe):
                    files.make(pipe, "pipe", 0o666)

    def stop(self) -> None:
        if not self.running:
            return
        self.running = False
        core = self._core
        for pipe in PIPES[self._runtime] if core.windows else ():
            if core.host.files.exists(pipe):
                core.host.files.remove(pipe)
        if core.docker:
            for sandbox in list(core.sandboxes.values()):
                for container in list(sandbox.containers):
                    containers.kill_sim_container(core, container, code=containers.SHUT_DOWN)
                sandboxes.power_off_sandbox(core, sandbox)

    async def shut_down(self, seconds: float) -> None:
        """The machine shuts down: docker stops its containers before it ends. containerd leaves
        them to the machine.
        """
        core = self._core
        if core.docker:
            running = [c for sandbox in core.sandboxes.values() for c in sandbox.containers]
            limit = min(seconds, _DOCKER_SHUTDOWN_TIMEOUT)
            await asyncio.gather(*(containers.stop_sim_container(core, c, limit) for c in running))

    def status(self) -> RuntimeStatus | None:
        """None while it runs."""
        if self.running:
            return None
        if self._core.docker:
            return RuntimeStatus("DockerDaemonNotReady", _DOCKER_DOWN)
        return RuntimeStatus(
            "ContainerdNotReady",
            f"rpc error: code = Unavailable desc = {_CONTAINERD_DOWN[self._core.os]}",
        )

    def check(self) -> None:
        """Raises RuntimeFailure while it is stopped: nothing listens on its pipe."""
        if not self.running:
            raise RuntimeFailure(
                "Unavailable" if not self._core.docker else "Unknown",
                _DOCKER_DOWN.partition(": ")[2]
                if self._core.docker
                else _CONTAINERD_DOWN[self._core.os],
            )
