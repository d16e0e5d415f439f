"""`NativeRuntime`: the containers of one node as real processes, implementing
`runtime.api.Runtime`.

This is the entry point; sandboxes, containers, commands and statistics each have their module. It
outlives the process that uses it: `start` recovers what exists, `close` leaves it running,
`destroy` removes everything.
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

from transom.kit.clock import Clock
from transom.machines import mounting, pinning
from transom.machines.realhost import ContainersUsage, RealHost
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
from transom.runtime.native import cgroups, commands, containers, pause, sandboxes, snapshots, stats
from transom.runtime.native import core as cores
from transom.runtime.native import runc as programs
from transom.runtime.native.client import Monitor
from transom.runtime.native.containers import ContainerHandle
from transom.runtime.native.core import NativeCore, SandboxNetworking
from transom.runtime.native.platform import RuntimePlatform
from transom.runtime.native.records import NativeContainer, NativeSandbox
from transom.runtime.native.store import ImageProvider

log = logging.getLogger("transom.runtime")

_LAST_SECONDS = 5.0  # for processes that nothing waits for any more


class NativeRuntime:
    """`folder` is the cluster's, which contains the monitor's socket; the node's own is
    FOLDER/NODE. `cgroup` is the cluster's: `/transom/CLUSTER`. Raises RuntimeFailure where
    containers cannot run.
    """

    def __init__(
        self,
        host: RealHost,
        clock: Clock,
        monitor: Monitor,
        platform: RuntimePlatform,
        images: ImageProvider,
        wiring: SandboxNetworking,
        cgroup: str,
    ) -> None:
        program, problem = programs.find_runc()
        problem = platform.unusable() or problem
        if problem:
            raise RuntimeFailure("Unavailable", problem)
        folder = monitor.folder
        self._core = NativeCore(
            host=host,
            clock=clock,
            monitor=monitor,
            folder=folder / host.name,
            group=f"{cgroup}/{host.name}",
            platform=platform,
            images=images,
            wiring=wiring,
            runc=programs.Runc(program, folder / "runc", cores.is_rootless()),
            limited=cgroups.is_writable_cgroup(),
            rootless=cores.is_rootless(),
            lowest_oom_score=cores.lowest_oom_score(),
        )
        self._overlay: Sequence[str] | None = ()
        self._open = False
        host.count_containers(self._usage)
        host.on_reboot(self._rebooted)

    # ---- lifecycle ----

    async def start(self) -> None:
        """Recovers existing sandboxes and containers, running or not, and cleans up the remains of
        others.
        """
        core = self._core
        try:
            await core.monitor.open()
        except OSError as problem:
            raise RuntimeFailure(
                "Unavailable", f"containers cannot run here: {problem.strerror or problem}"
            ) from problem
        for name in ("sandboxes", "containers"):
            (core.folder / name).mkdir(mode=0o711, parents=True, exist_ok=True)
        pause.install_pause_program(core.folder.parent / "pause")
        self._confine()
        options = ["userxattr"] if core.rootless else []
        self._overlay = (
            options if await snapshots.overlay_works(core.monitor, core.folder, options) else None
        )
        if core.platform.os == "linux" and not core.rootless:
            stage = core.stage(f"probe-{core.new_id()[:8]}")
            core.no_users = await snapshots.maps_users(
                core.monitor, core.folder, stage, core.free_ids()
            )
            if self._overlay is None:
                core.no_users = "overlayfs does not work in this folder"
            if core.no_users and core.platform.user_namespaces:
                level = logging.WARNING if core.platform.demands_user_namespaces else logging.INFO
                log.log(
                    level,
                    "node %s: containers have no user namespaces: %s",
                    core.host.name,
                    core.no_users,
                )
        await self._adopt()
        core.monitor.lost.append(self._lost)
        self._open = True

    def _confine(self) -> None:
        """Creates the node's own cgroup, with the size of its machine. Containers that were
        recovered without one continue without.
        """
        core = self._core
        if not core.limited:
            return
        try:
            cgroups.claim_cgroup(core.group)
        except OSError as problem:
            core.limited = False
            log.warning("no control groups for node %s: %s", core.host.name, problem)
        else:
            cgroups.confine_cgroup(core.group, core.host.hardware.cpus, core.host.hardware.memory)

    async def _adopt(self) -> None:
        core = self._core
        found = [NativeSandbox.load(path) for path in (core.folder / "sandboxes").iterdir()]
        for sandbox in sorted((s for s in found if s is not None), key=lambda s: s.created):
            await sandboxes.adopt_native_sandbox(core, sandbox)
        loaded = [
            NativeContainer.load(path, core.sandboxes)
            for path in (core.folder / "containers").iterdir()
        ]
        mounted = {entry.point for entry in mounting.mount_points(str(core.folder.resolve()))}
        for c in sorted((c for c in loaded if c is not None), key=lambda c: c.created):
            containers.adopt_native_container(core, c, mounted=str(c.rootfs.resolve()) in mounted)
        await self._clear_leftovers()

    async def _clear_leftovers(self) -> None:
        """Cleans up after sandboxes and containers that were being created or removed when their
        process ended.
        """
        core = self._core
        for kind, known in (("sandboxes", core.sandboxes), ("containers", core.containers)):
            for folder in (core.folder / kind).iterdir():
                if folder.name not in known:
                    await core.monitor.run(*core.runc.delete(folder.name))
                    await asyncio.to_thread(_remove, folder)
                    core.forget_stage(folder.name)
        if core.limited:
            alive = {c.group for c in core.containers.values()} | {
                f"{s.group}/{s.id}" for s in core.sandboxes.values()
            }
            for group in cgroups.cgroup_leaves(core.group):
                if group not in alive:
                    cgroups.remove_cgroup(group)

    def close(self) -> None:
        """Everything keeps running without this process."""
        self._open = False
        core = self._core
        if self._lost in core.monitor.lost:
            core.monitor.lost.remove(self._lost)
        for task in tuple(core.tasks):
            task.cancel()
        for identity in (*core.sandboxes, *core.containers):
            core.monitor.ignore(identity)

    async def destroy(self) -> None:
        """Removes every sandbox, and everything the node has on this machine. The monitor stays for
        the other nodes.
        """
        core = self._core
        for sandbox in tuple(core.sandboxes.values()):
            await sandboxes.remove_native_sandbox(core, sandbox)
        self.close()
        await asyncio.to_thread(_remove, core.folder)
        if core.limited:
            await asyncio.to_thread(cgroups.kill_and_remove_cgroup, core.group)
            cgroups.remove_empty_cgroup(
                [os.path.dirname(core.group), os.path.dirname(os.path.dirname(core.group))]
            )

    def _lost(self) -> None:
        """The monitor was killed: the exit codes of containers are lost, so they count as ended."""
        self._core.background(self._recover())

    async def _recover(self) -> None:
        core = self._core
        try:
            await core.monitor.open()
        except OSError:
            return
        for c in tuple(core.containers.values()):
            if c.state == "running":
                containers.mark_container_lost(core, c)
        for sandbox in tuple(core.sandboxes.values()):
            sandboxes.mark_sandbox_lost(core, sandbox)

    def _rebooted(self) -> None:
        """A sandbox must not appear ready right after its containers have ended."""
        core = self._core
        for sandbox in core.sandboxes.values():
            if sandbox.state == "ready":
                sandbox.state = "notready"
                sandbox.save()
            core.monitor.notify("kill", id=sandbox.id, number=signal.SIGKILL)
        for c in core.containers.values():
            if c.state == "running":
                c.rebooted = True
                core.monitor.notify("kill", id=c.id, number=signal.SIGKILL, all_processes=True)
                core.monitor.notify("kill", id=c.id, number=signal.SIGKILL)

    def _usage(self) -> ContainersUsage:
        return stats.native_node_usage(self._core)

    def capabilities(self) -> list[str]:
        """What does not work here, in sentences for users."""
        core, found = self._core, []
        if not core.limited:
            found.append(
                "control groups cannot be used: resource limits are not enforced, and "
                "nothing is measured"
            )
        if self._overlay is None:
            found.append(
                "overlayfs does not work in this folder: every container gets a copy of its image"
            )
        if core.platform.user_namespaces and core.no_users:
            found.append(
                f"no user namespaces, root in a container is this machine's: {core.no_users}"
            )
        if core.lowest_oom_score > -1000:
            found.append(
                "without CAP_SYS_RESOURCE guaranteed pods are killed for want of memory as "
                "others are"
            )
        if not programs.verifies_directory(core.runc.program):
            found.append(
                "runc is older than 1.1.12 (CVE-2024-21626): commands in containers start in "
                "/; please update it"
            )
        return [*found, *core.platform.missing()]

    def namespace(self, sandbox_id: str) -> str:
        """The path of a sandbox's network namespace, while it exists."""
        sandbox = self._core.sandboxes.get(sandbox_id)
        return f"/proc/{sandbox.pid}/ns/net" if sandbox is not None and sandbox.pid else ""

    @property
    def version(self) -> RuntimeVersion:
        return self._core.platform.version

    def status(self) -> RuntimeStatus:
        core = self._core
        if not self._open:
            return RuntimeStatus("RuntimeNotReady", "the monitor of the containers is gone")
        problem = core.wiring.pods.ready()
        if not problem:
            return RuntimeStatus()
        return RuntimeStatus(
            network_reason="NetworkPluginNotReady",
            network_message=core.texts.network_not_ready(problem),
        )

    # ---- sandboxes ----

    async def run_sandbox(self, config: SandboxConfig, handler: str = "") -> str:
        return (await sandboxes.run_native_sandbox(self._core, config, handler)).id

    async def stop_sandbox(self, sandbox_id: str) -> None:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is not None:
            await sandboxes.stop_native_sandbox(self._core, sandbox)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is not None:
            await sandboxes.remove_native_sandbox(self._core, sandbox)

    def sandboxes(self, uid: str = "") -> Sequence[Sandbox]:
        return [sandbox.view() for sandbox in reversed(self._records(uid))]

    def _records(self, uid: str) -> list[NativeSandbox]:
        return self._core.by_uid.get(uid, []) if uid else list(self._core.sandboxes.values())

    # ---- containers ----

    async def create_container(self, sandbox_id: str, config: ContainerConfig) -> str:
        core = self._core
        sandbox = self._sandbox(sandbox_id)
        made = await containers.create_native_container(core, sandbox, config, self._overlay)
        sandboxes.set_sandbox_weight(core, sandbox)
        return made.id

    async def start_container(self, container_id: str) -> None:
        await containers.start_native_container(self._core, self._container(container_id))

    async def stop_container(self, container_id: str, grace: float) -> None:
        container = self._core.containers.get(container_id)
        if container is not None:
            await containers.stop_native_container(self._core, container, grace)

    async def remove_container(self, container_id: str) -> None:
        container = self._core.containers.get(container_id)
        if container is not None:
            await containers.remove_native_container(self._core, container)
            sandboxes.set_sandbox_weight(self._core, container.sandbox)

    async def update_container_resources(
        self, container_id: str, resources: LinuxResources | WindowsResources
    ) -> None:
        container = self._container(container_id)
        commands.require_running(self._core, container)
        containers.resize_native_container(self._core, container, resources)
        sandboxes.set_sandbox_weight(self._core, container.sandbox)

    async def update_sandbox_resources(self, sandbox_id: str, resources: LinuxResources) -> None:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is not None:
            sandboxes.resize_native_sandbox(self._core, sandbox, resources)

    def containers(self, uid: str = "") -> Sequence[Container]:
        if not uid:
            return [container.view() for container in reversed(self._core.containers.values())]
        found = [
            container.view() for sandbox in self._records(uid) for container in sandbox.containers
        ]
        return sorted(found, key=lambda container: -container.created_at)

    def container(self, container_id: str) -> Container | None:
        container = self._core.containers.get(container_id)
        return container.view() if container is not None else None

    def reopen_log(self, container_id: str) -> None:
        container = self._container(container_id)
        commands.require_running(self._core, container)
        self._core.monitor.notify("reopen", id=container_id)

    def watch_log(self, container_id: str, listener: Callable[[], None]) -> Callable[[], None]:
        container = self._container(container_id)
        container.watchers += (listener,)
        self._watch(container)

        def end() -> None:
            container.watchers = tuple(
                other for other in container.watchers if other is not listener
            )
            self._watch(container)

        return end

    def _watch(self, container: NativeContainer) -> None:
        if container.state == "running":
            self._core.monitor.notify("watch", id=container.id, on=bool(container.watchers))

    def _sandbox(self, sandbox_id: str) -> NativeSandbox:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is None:
            raise self._core.texts.no_sandbox(sandbox_id)
        return sandbox

    def _container(self, container_id: str) -> NativeContainer:
        container = self._core.containers.get(container_id)
        if container is None:
            raise self._core.texts.no_container(container_id)
        return container

    # ---- commands ----

    async def exec_sync(
        self, container_id: str, command: Sequence[str], seconds: float = 0
    ) -> ExecResult:
        container = self._container(container_id)
        return await commands.exec_sync_native(
            self._core, container, ContainerHandle(self._core, container), command, seconds
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
        container = self._container(container_id)
        handle = ContainerHandle(self._core, container)
        return await commands.exec_native(
            self._core, container, handle, command, output, stdin=stdin, tty=tty
        )

    async def attach(
        self, container_id: str, output: Output, *, stdin: bool = False, tty: bool = False
    ) -> ContainerProcess:
        return await commands.attach_native(
            self._core, self._container(container_id), output, stdin=stdin
        )

    async def port_forward(self, sandbox_id: str, port: int) -> socket.socket:
        return await commands.port_forward_native(self._core, self._sandbox(sandbox_id), port)

    # ---- images ----

    async def pull_image(
        self, image: str, auth: AuthConfig | None = None, sandbox: SandboxConfig | None = None
    ) -> str:
        host_process = sandbox is not None and any(
            record.plan.host_process for record in self._core.by_uid.get(sandbox.uid, ())
        )
        return await self._core.images.pull(image, auth, any_build=host_process)

    def image(self, image: str) -> Image | None:
        return self._core.images.view(image)

    def images(self) -> Sequence[Image]:
        return self._core.images.views()

    async def remove_image(self, image: str) -> None:
        await self._core.images.remove(image)

    def image_filesystem(self) -> FilesystemUsage:
        return self._core.images.filesystem()

    # ---- statistics and events ----

    def container_stats(self, uid: str = "") -> Sequence[ContainerStats]:
        records = (
            self._core.containers.values()
            if not uid
            else [c for s in self._records(uid) for c in s.containers]
        )
        found = [stats.native_container_stats(self._core, container) for container in records]
        return [row for row in found if row is not None]

    def sandbox_stats(self, uid: str = "") -> Sequence[SandboxStats]:
        found = [stats.native_sandbox_stats(self._core, sandbox) for sandbox in self._records(uid)]
        return [row for row in found if row is not None]

    def subscribe(self, listener: Callable[[RuntimeEvent], None]) -> Callable[[], None]:
        core = self._core
        core.subscribers += (listener,)

        def end() -> None:
            core.subscribers = tuple(other for other in core.subscribers if other is not listener)

        return end


def _remove(folder: Path) -> None:
    """Also while a runc that the monitor started writes a last file there. Blocking."""
    end = time.monotonic() + _LAST_SECONDS
    while folder.exists():
        mounting.unmount_below(str(folder))
        try:
            snapshots.remove_snapshot_tree(folder)
        except OSError as problem:
            if problem.errno != errno.ENOTEMPTY or time.monotonic() > end:
                raise
            time.sleep(0.01)


async def destroy_cluster(folder: Path, cgroup: str) -> None:
    """Removes everything that a cluster has left on this machine, recorded or not: kills
    containers, removes mounts, cgroups and files.
    """
    await Monitor(folder).shutdown()
    for pid in cgroups.cgroup_members(cgroup):
        containers.kill_process(pid)
    await asyncio.to_thread(cgroups.kill_and_remove_cgroup, cgroup)
    await asyncio.to_thread(_remove, folder)
    await asyncio.to_thread(pinning.remove_folder, str(cores.stages_mounts(folder)))
    cgroups.remove_empty_cgroup([os.path.dirname(cgroup)])
