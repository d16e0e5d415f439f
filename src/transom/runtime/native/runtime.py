"""`NativeRuntime`: the containers of one node as real processes, as `runtime.api.Runtime`.

This is the door; sandboxes, containers, commands and statistics each have their module. It outlives the process that uses
it: `start` finds what is there, `close` leaves it running, `destroy` removes everything.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from transom.hosts import mounting
from transom.hosts.realhost import RealHost, Use
from transom.kit.clock import Clock
from transom.runtime.api import (
    Auth,
    Container,
    ContainerConfig,
    ContainerStats,
    Event,
    ExecResult,
    Filesystem,
    Image,
    Output,
    Process,
    RuntimeFailure,
    RuntimeStatus,
    Sandbox,
    SandboxConfig,
    SandboxStats,
    Version,
)
from transom.runtime.native import cgroups, commands, containers, pause, sandboxes, snapshots, stats
from transom.runtime.native import core as cores
from transom.runtime.native import runc as programs
from transom.runtime.native.client import Monitor
from transom.runtime.native.containers import Handle
from transom.runtime.native.core import Core, Wiring
from transom.runtime.native.platform import Platform
from transom.runtime.native.records import ContainerRecord, SandboxRecord
from transom.runtime.native.store import Images

log = logging.getLogger("transom.runtime")

_LAST_SECONDS = 5.0  # for processes that nobody waits for any more


class NativeRuntime:
    """`folder` is the cluster's, in which the monitor has its socket; the node's own is FOLDER/NODE. `cgroup` is the
    cluster's: `/transom/CLUSTER`. Raises RuntimeFailure where no containers can be run."""

    def __init__(
        self,
        host: RealHost,
        clock: Clock,
        monitor: Monitor,
        platform: Platform,
        images: Images,
        wiring: Wiring,
        cgroup: str,
    ) -> None:
        program, problem = programs.find()
        problem = platform.unusable() or problem
        if problem:
            raise RuntimeFailure("Unavailable", problem)
        folder = monitor.folder
        self._core = Core(
            host=host, clock=clock, monitor=monitor, folder=folder / host.name, group=f"{cgroup}/{host.name}",
            platform=platform, images=images, wiring=wiring, runc=programs.Runc(program, folder / "runc", cores.rootless()),
            limited=cgroups.writable(), rootless=cores.rootless(), lowest_oom_score=cores.lowest_oom_score(),
        )  # fmt: skip
        self._overlay: Sequence[str] | None = ()
        self._open = False
        host.use = self._use
        host.on_reboot(self._rebooted)

    # ---- its own life --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Finds what is there: sandboxes and containers of before, running or not, and what is left of others."""
        core = self._core
        try:
            await core.monitor.open()
        except OSError as problem:
            raise RuntimeFailure("Unavailable", f"containers cannot run here: {problem.strerror or problem}") from problem
        for name in ("sandboxes", "containers"):
            (core.folder / name).mkdir(mode=0o711, parents=True, exist_ok=True)
        pause.install(core.folder.parent / "pause")
        self._confine()
        options = ["userxattr"] if core.rootless else []
        self._overlay = options if await snapshots.works(core.monitor, core.folder, options) else None
        await self._adopt()
        core.monitor.lost.append(self._lost)
        self._open = True

    def _confine(self) -> None:
        """The node's own control group, of the size of its machine. What was adopted without any goes on without."""
        core = self._core
        if not core.limited:
            return
        try:
            cgroups.claim(core.group)
        except OSError as problem:
            core.limited = False
            log.warning("no control groups for node %s: %s", core.host.name, problem)
        else:
            cgroups.confine(core.group, core.host.hardware.cpus, core.host.hardware.memory)

    async def _adopt(self) -> None:
        core = self._core
        found = [SandboxRecord.load(path) for path in (core.folder / "sandboxes").iterdir()]
        for sandbox in sorted((s for s in found if s is not None), key=lambda s: s.created):
            await sandboxes.adopt(core, sandbox)
        loaded = [ContainerRecord.load(path, core.sandboxes) for path in (core.folder / "containers").iterdir()]
        mounted = {entry.point for entry in mounting.mounts(str(core.folder.resolve()))}
        for c in sorted((c for c in loaded if c is not None), key=lambda c: c.created):
            containers.adopt(core, c, mounted=str(c.rootfs.resolve()) in mounted)
        await self._clear_leftovers()

    async def _clear_leftovers(self) -> None:
        """Of those that were just being made, or removed, when their process ended."""
        core = self._core
        for kind, known in (("sandboxes", core.sandboxes), ("containers", core.containers)):
            for folder in (core.folder / kind).iterdir():
                if folder.name not in known:
                    await core.monitor.run(*core.runc.delete(folder.name))
                    await asyncio.to_thread(_remove, folder)
        if core.limited:
            alive = {c.group for c in core.containers.values()} | {f"{s.group}/{s.id}" for s in core.sandboxes.values()}
            for group in cgroups.leaves(core.group):
                if group not in alive:
                    cgroups.remove(group)

    def close(self) -> None:
        """Everything goes on, without this process."""
        self._open = False
        core = self._core
        if self._lost in core.monitor.lost:
            core.monitor.lost.remove(self._lost)
        for task in tuple(core.tasks):
            task.cancel()
        for identity in (*core.sandboxes, *core.containers):
            core.monitor.ignore(identity)

    async def destroy(self) -> None:
        """Every sandbox, and all that the node has on this machine. The monitor stays for the others."""
        core = self._core
        for sandbox in tuple(core.sandboxes.values()):
            await sandboxes.remove(core, sandbox)
        self.close()
        await asyncio.to_thread(_remove, core.folder)
        if core.limited:
            await asyncio.to_thread(cgroups.remove_surely, core.group)
            cgroups.remove_empty([os.path.dirname(core.group), os.path.dirname(os.path.dirname(core.group))])

    def _lost(self) -> None:
        """Somebody has killed the monitor: nobody knows any more how containers end, so they have."""
        self._core.background(self._recover())

    async def _recover(self) -> None:
        core = self._core
        try:
            await core.monitor.open()
        except OSError:
            return
        for c in tuple(core.containers.values()):
            if c.state == "running":
                containers.lost(core, c)
        for sandbox in tuple(core.sandboxes.values()):
            sandboxes.lost(core, sandbox)

    def _rebooted(self) -> None:
        """Nobody is to find a sandbox ready whose containers have just ended."""
        core = self._core
        for sandbox in core.sandboxes.values():
            if sandbox.state == "ready":
                sandbox.state = "notready"
                sandbox.save()
            core.monitor.tell("kill", id=sandbox.id, number=signal.SIGKILL)
        for c in core.containers.values():
            if c.state == "running":
                c.rebooted = True
                core.monitor.tell("kill", id=c.id, number=signal.SIGKILL, everybody=True)
                core.monitor.tell("kill", id=c.id, number=signal.SIGKILL)

    def _use(self) -> Use:
        return stats.of_node(self._core)

    def capabilities(self) -> list[str]:
        """What does not work here, in sentences for people."""
        core, found = self._core, []
        if not core.limited:
            found.append("control groups cannot be used: resource limits are not enforced, and nothing is measured")
        if self._overlay is None:
            found.append("overlayfs does not work in this folder: every container gets a copy of its image")
        if core.lowest_oom_score > -1000:
            found.append("without CAP_SYS_RESOURCE guaranteed pods are killed for want of memory as others are")
        return [*found, *core.platform.missing()]

    def namespace(self, sandbox_id: str) -> str:
        """The path of a sandbox's network namespace, while it is there."""
        sandbox = self._core.sandboxes.get(sandbox_id)
        return f"/proc/{sandbox.pid}/ns/net" if sandbox is not None and sandbox.pid else ""

    @property
    def version(self) -> Version:
        return self._core.platform.version

    def status(self) -> RuntimeStatus:
        core = self._core
        if not self._open:
            return RuntimeStatus("RuntimeNotReady", "the monitor of the containers is gone")
        problem = core.wiring.pods.ready()
        if not problem:
            return RuntimeStatus()
        return RuntimeStatus(network_reason="NetworkPluginNotReady", network_message=core.texts.network_not_ready(problem))

    # ---- sandboxes -----------------------------------------------------------------------------------------------

    async def run_sandbox(self, config: SandboxConfig, handler: str = "") -> str:
        return (await sandboxes.run(self._core, config, handler)).id

    async def stop_sandbox(self, sandbox_id: str) -> None:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is not None:
            await sandboxes.stop(self._core, sandbox)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is not None:
            await sandboxes.remove(self._core, sandbox)

    def sandboxes(self, uid: str = "") -> Sequence[Sandbox]:
        return [sandbox.view() for sandbox in reversed(self._records(uid))]

    def _records(self, uid: str) -> list[SandboxRecord]:
        return self._core.by_uid.get(uid, []) if uid else list(self._core.sandboxes.values())

    # ---- containers ----------------------------------------------------------------------------------------------

    async def create_container(self, sandbox_id: str, config: ContainerConfig) -> str:
        core = self._core
        sandbox = self._sandbox(sandbox_id)
        made = await containers.create(core, sandbox, config, self._overlay)
        sandboxes.weigh(core, sandbox)
        return made.id

    async def start_container(self, container_id: str) -> None:
        await containers.start(self._core, self._container(container_id))

    async def stop_container(self, container_id: str, grace: float) -> None:
        container = self._core.containers.get(container_id)
        if container is not None:
            await containers.stop(self._core, container, grace)

    async def remove_container(self, container_id: str) -> None:
        container = self._core.containers.get(container_id)
        if container is not None:
            await containers.remove(self._core, container)
            sandboxes.weigh(self._core, container.sandbox)

    def containers(self, uid: str = "") -> Sequence[Container]:
        if not uid:
            return [container.view() for container in reversed(self._core.containers.values())]
        found = [container.view() for sandbox in self._records(uid) for container in sandbox.containers]
        return sorted(found, key=lambda container: -container.created_at)

    def container(self, container_id: str) -> Container | None:
        container = self._core.containers.get(container_id)
        return container.view() if container is not None else None

    def reopen_log(self, container_id: str) -> None:
        container = self._container(container_id)
        commands.demand_running(self._core, container)
        self._core.monitor.tell("reopen", id=container_id)

    def watch_log(self, container_id: str, listener: Callable[[], None]) -> Callable[[], None]:
        container = self._container(container_id)
        container.watchers += (listener,)
        self._watch(container)

        def end() -> None:
            container.watchers = tuple(other for other in container.watchers if other is not listener)
            self._watch(container)

        return end

    def _watch(self, container: ContainerRecord) -> None:
        if container.state == "running":
            self._core.monitor.tell("watch", id=container.id, on=bool(container.watchers))

    def _sandbox(self, sandbox_id: str) -> SandboxRecord:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is None:
            raise self._core.texts.no_sandbox(sandbox_id)
        return sandbox

    def _container(self, container_id: str) -> ContainerRecord:
        container = self._core.containers.get(container_id)
        if container is None:
            raise self._core.texts.no_container(container_id)
        return container

    # ---- commands ------------------------------------------------------------------------------------------------

    async def exec_sync(self, container_id: str, command: Sequence[str], seconds: float = 0) -> ExecResult:
        container = self._container(container_id)
        return await commands.execute_now(self._core, container, Handle(self._core, container), command, seconds)

    async def exec(
        self, container_id: str, command: Sequence[str], output: Output, *, stdin: bool = False, tty: bool = False
    ) -> Process:
        container = self._container(container_id)
        handle = Handle(self._core, container)
        return await commands.execute(self._core, container, handle, command, output, stdin=stdin, tty=tty)

    async def attach(self, container_id: str, output: Output, *, stdin: bool = False, tty: bool = False) -> Process:
        return await commands.attach(self._core, self._container(container_id), output, stdin=stdin)

    async def port_forward(self, sandbox_id: str, port: int) -> socket.socket:
        return await commands.port_forward(self._core, self._sandbox(sandbox_id), port)

    # ---- images --------------------------------------------------------------------------------------------------

    async def pull_image(self, image: str, auth: Auth | None = None, sandbox: SandboxConfig | None = None) -> str:
        return await self._core.images.pull(image, auth)

    def image(self, image: str) -> Image | None:
        return self._core.images.view(image)

    def images(self) -> Sequence[Image]:
        return self._core.images.views()

    async def remove_image(self, image: str) -> None:
        await self._core.images.remove(image)

    def image_filesystem(self) -> Filesystem:
        return self._core.images.filesystem()

    # ---- statistics and news -------------------------------------------------------------------------------------

    def container_stats(self, uid: str = "") -> Sequence[ContainerStats]:
        records = self._core.containers.values() if not uid else [c for s in self._records(uid) for c in s.containers]
        found = [stats.of_container(self._core, container) for container in records]
        return [row for row in found if row is not None]

    def sandbox_stats(self, uid: str = "") -> Sequence[SandboxStats]:
        found = [stats.of_sandbox(self._core, sandbox) for sandbox in self._records(uid)]
        return [row for row in found if row is not None]

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        core = self._core
        core.subscribers += (listener,)

        def end() -> None:
            core.subscribers = tuple(other for other in core.subscribers if other is not listener)

        return end


def _remove(folder: Path) -> None:
    """Also while a runc that the monitor has started, which ended before it, makes a last file there. Blocking."""
    end = time.monotonic() + _LAST_SECONDS
    while folder.exists():
        mounting.unmount_all(str(folder))
        try:
            snapshots.remove_tree(folder)
        except OSError as problem:
            if problem.errno != errno.ENOTEMPTY or time.monotonic() > end:
                raise
            time.sleep(0.01)


async def destroy_cluster(folder: Path, cgroup: str) -> None:
    """All that a cluster has left on this machine, whether anybody still knows of it or not: containers are killed, mounts,
    control groups and files are gone."""
    await Monitor(folder).shutdown()
    for pid in cgroups.members(cgroup):
        containers.kill_process(pid)
    await asyncio.to_thread(cgroups.remove_surely, cgroup)
    await asyncio.to_thread(_remove, folder)
    cgroups.remove_empty([os.path.dirname(cgroup)])

