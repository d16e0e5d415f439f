"""The lifecycle of a container: created, started, ended, removed. Whatever ends it, the monitor's
event arrives at `_ended`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transom.runtime import saved
from transom.runtime.api import (
    ContainerConfig,
    ExecResult,
    LinuxContainerUser,
    LinuxResources,
    RuntimeFailure,
    WindowsResources,
)
from transom.runtime.cdi import CdiFailure, inject_cdi_devices
from transom.runtime.native import cgroups, commands, hostusers, image_volumes, snapshots
from transom.runtime.native.client import MonitorFailure, MonitorGone
from transom.runtime.native.core import NativeCore
from transom.runtime.native.hostmounts import CannotMount, resolve_host_mounts
from transom.runtime.native.monitor.tasks import CONFIG, EXIT, STARTED, process_start_time
from transom.runtime.native.platform import CannotStart, Spec
from transom.runtime.native.records import (
    KeptImage,
    NativeContainer,
    NativeSandbox,
    wait_until_woken,
    wake,
)
from transom.runtime.native.requests import request_of
from transom.runtime.native.runc import LOG, PID_FILE
from transom.runtime.records import resized_config

log = logging.getLogger("transom.runtime")

_LAST_SECONDS = 10.0  # for a process that was killed
_LOOKS = 5  # for what changes during the check
_REPLACED = (errno.ELOOP, errno.ENOENT, errno.ENOTDIR)
_LOST = 255
_LOST_REASON = "Unknown"


class ContainerHandle:
    """`platform.Running`."""

    __slots__ = ("_core", "_record", "request")

    def __init__(self, core: NativeCore, record: NativeContainer) -> None:
        self._core = core
        self._record = record
        self.request = request_of(core, record)

    @property
    def pid(self) -> int:
        return self._record.pid

    def signal(self, number: int, *, all_processes: bool = False) -> None:
        self._core.monitor.notify(
            "kill", id=self._record.id, number=int(number), all_processes=all_processes
        )

    async def run(self, process: Spec, seconds: float = 0) -> ExecResult:
        return await commands.run_extra_process(self._core, self._record, process, seconds)


# ---- create ----


async def create_native_container(
    core: NativeCore, sandbox: NativeSandbox, config: ContainerConfig, overlay: Sequence[str] | None
) -> NativeContainer:
    """Raises RuntimeFailure, and then leaves nothing behind. `overlay`: mount options; None where
    layers are copied.
    """
    if sandbox.state != "ready":
        raise core.texts.sandbox_stopped(sandbox.id)
    image = core.images.find(config.image_ref) or core.images.find(config.image)
    if image is None:
        raise core.texts.no_image(config.image_ref or config.image)
    identity = core.new_id()
    try:
        config = inject_cdi_devices(core.host.files, config)
    except CdiFailure as failure:
        raise core.texts.create_failed(identity, str(failure)) from failure
    folder = core.folder / "containers" / identity
    c = NativeContainer(identity, sandbox, config, core.time(), folder)
    c.image = KeptImage(image.id, dict(image.config), tuple(image.layers))
    _name_image(core, c)
    c.log_path = _log_path(core, c)
    folder.mkdir(mode=0o711, parents=True)
    (folder / "platform").mkdir(mode=0o711)
    core.images.lease(image.id, identity, folder)
    try:
        image_volumes.lease_volume_images(core, c)
        await _prepare(core, c, overlay)
    except BaseException as problem:
        await _discard(core, c)
        if isinstance(problem, CannotMount):
            raise core.texts.create_failed(identity, str(problem)) from problem
        if isinstance(problem, MonitorFailure):
            raise RuntimeFailure(
                "Unknown", f"failed to create containerd container: {problem.text}"
            ) from problem
        if isinstance(problem, OSError) and not isinstance(problem, MonitorGone):
            raise RuntimeFailure(
                "Unknown", f"failed to create containerd container: {problem}"
            ) from problem
        raise
    core.containers[identity] = c
    sandbox.containers.append(c)
    c.save()
    return c


def _name_image(core: NativeCore, c: NativeContainer) -> None:
    """The name and the id that containerd shows: the first of each that the image has."""
    known = core.images.view(c.image.id)
    c.image_ref = c.image.id
    if known is not None:
        c.image_name = known.tags[0] if known.tags else c.config.image
        c.image_ref = known.digests[0] if known.digests else known.id


def _log_path(core: NativeCore, c: NativeContainer) -> str:
    separator = core.platform.separator
    directory, name = c.sandbox.config.log_directory, c.config.log_path.replace("/", separator)
    return f"{directory.rstrip(separator)}{separator}{name}" if name else ""


async def _prepare(core: NativeCore, c: NativeContainer, overlay: Sequence[str] | None) -> None:
    demanded = c.sandbox.config.linux.user_namespace is not None  # by `hostUsers: false`
    if c.own_users and not demanded:  # copied layers keep their owners on disk
        c.own_users = overlay is not None and not await asyncio.to_thread(
            hostusers.container_needs_host_users, core, c
        )
    try:
        spec = await _specify(core, c, overlay)
        # resolved by the image's password file
        if c.own_users and not demanded and hostusers.has_unmapped_ids(spec):
            await _unmount(core, c)
            await asyncio.to_thread(_empty, c)
            c.own_users = False
            spec = await _specify(core, c, overlay)
    except CannotStart as problem:
        c.broken = problem
        return
    spec["ociVersion"] = "1.0.2"
    spec["process"]["terminal"] = c.config.tty
    linux: Spec = spec.setdefault("linux", {})
    if core.limited:
        linux["cgroupsPath"] = c.group
        wanted = cgroups.cgroup_resources(core.limits(c.config))
        linux["resources"] = {**wanted, **(linux.get("resources") or {})}
    else:
        linux.pop("resources", None)
        linux.pop("cgroupsPath", None)
    if "oomScoreAdj" in spec["process"]:
        spec["process"]["oomScoreAdj"] = core.oom_score(spec["process"]["oomScoreAdj"])
    if core.platform.os == "linux":
        c.user = _user_of(spec)
    saved.save_record(c.folder / "spec.json", spec)


def _user_of(spec: Spec) -> LinuxContainerUser:
    user = spec["process"]["user"]
    groups = (user["gid"], *(user.get("additionalGids") or ()))
    return LinuxContainerUser(user["uid"], user["gid"], tuple(dict.fromkeys(groups)))


async def _specify(core: NativeCore, c: NativeContainer, overlay: Sequence[str] | None) -> Spec:
    """Mounts the root file system, and gets the specification from the platform."""
    request = request_of(core, c)
    layers: Sequence[Path] = await core.platform.layers(request)
    await snapshots.mount_snapshot(
        core.monitor,
        layers,
        c.folder,
        overlay=overlay is not None,
        options=overlay or (),
        user_namespace=c.user_namespace,
        owner=c.first_id,
    )
    c.mounted = overlay is not None
    await image_volumes.mount_image_volumes(core, c, overlay)
    return await core.platform.create(request)


def _empty(c: NativeContainer) -> None:
    for name in ("upper", "work", image_volumes.FOLDER):
        snapshots.remove_snapshot_tree(c.folder / name)


# ---- start ----


async def start_native_container(core: NativeCore, c: NativeContainer) -> None:
    """Raises RuntimeFailure; the container has then ended, or can still be started."""
    async with c.lock:
        if c.state != "created":
            raise core.texts.not_running(c.id, c.state)
        if c.sandbox.state != "ready":
            raise core.texts.sandbox_stopped(c.sandbox.id)
        c.starting, c.early = True, None
        core.monitor.listen(c.id, lambda event: _on_monitor_event(core, c, event))
        try:
            if c.broken is not None:
                raise c.broken
            async with core.monitor.turn():
                await _launch(core, c)
        except CannotStart as problem:
            await _never_ran(core, c, problem)
            raise problem.failure from problem
        finally:
            c.starting = False
        c.state = "running"
        _save(c)
        if c.watchers:
            core.monitor.notify("watch", id=c.id, on=True)
        core.emit("started", c.sandbox, c.id)
        if c.early is not None:
            _ended(core, c, c.early)


async def _launch(core: NativeCore, c: NativeContainer) -> None:
    try:
        answer = await _start_process(core, c)
    except MonitorFailure as problem:
        raise core.platform.failure(request_of(core, c), problem.text) from problem
    except MonitorGone as problem:
        raise RuntimeFailure("Unavailable", str(problem.strerror)) from problem
    except OSError as problem:
        raise core.platform.failure(
            request_of(core, c), f"{problem.filename}: {problem.strerror}"
        ) from problem
    c.pid, c.started = answer["pid"], answer["started"]
    await core.platform.started(ContainerHandle(core, c))


async def _start_process(core: NativeCore, c: NativeContainer) -> dict[str, Any]:
    """Raises MonitorFailure, MonitorGone and OSError. A source that is replaced between our check
    and the monitor's is checked again: it may be a config map that has just changed.
    """
    spec = c.specification()
    for left in reversed(range(_LOOKS)):
        saved.save_record(c.folder / CONFIG, resolve_host_mounts(core.host.files, spec))
        try:
            return await core.monitor.ask(
                "launch",
                id=c.id,
                argv=core.runc.run(c.id, c.folder, tty=c.config.tty),
                folder=str(c.folder),
                root=spec["root"]["path"],
                user_namespace=c.user_namespace,
                owner=c.first_id,
                stage=str(core.stage(c.id)),
                log=_log_file(core, c),
                pid_file=str(c.folder / PID_FILE),
                runc_log=str(c.folder / LOG),
                tty=c.config.tty,
                stdin=c.config.stdin,
                stdin_once=c.config.stdin_once,
                raw=core.platform.raw_terminal,
                oom=cgroups.oom_counter(c.group) if core.limited else "",
                processes=cgroups.processes_file(c.group) if core.limited else "",
            )
        except MonitorFailure as problem:
            if problem.errno not in _REPLACED or not left:
                raise
    raise AssertionError("the last look has an answer")


def _log_file(core: NativeCore, c: NativeContainer) -> str:
    """On this machine. Links may point to the directory of all logs, but not beyond: pods may mount
    it as a volume.
    """
    if not c.log_path:
        return ""
    separator = core.platform.separator
    root, _, own = c.sandbox.config.log_directory.rstrip(separator).rpartition(separator)
    below = c.config.log_path.replace("/", separator).split(separator)
    return os.path.join(core.host.files.real(root or separator), own, *below)


async def _never_ran(core: NativeCore, c: NativeContainer, problem: CannotStart) -> None:
    if c.pid and c.early is None:
        core.monitor.notify("kill", id=c.id, number=signal.SIGKILL, all_processes=True)
        core.monitor.notify("kill", id=c.id, number=signal.SIGKILL)
        await wait_until_woken(c.waiters, _LAST_SECONDS)
    c.pid = 0
    c.state = "exited"
    c.exit_code = problem.exit_code
    c.reason = core.texts.reason_cannot_start
    c.message = problem.message
    c.started = 0.0
    c.finished = core.time()
    _save(c)
    core.emit("died", c.sandbox, c.id)
    c.cleanup_task = core.background(_cleanup_container(core, c))


# ---- end ----


def _on_monitor_event(core: NativeCore, c: NativeContainer, event: dict[str, Any]) -> None:
    if event["news"] == "grown":
        for watcher in c.watchers:
            watcher()
    elif c.starting:
        c.early = event
        wake(c.waiters)
    else:
        _ended(core, c, event)


def _ended(core: NativeCore, c: NativeContainer, record: dict[str, Any]) -> None:
    """`record` has what the monitor recorded about the end."""
    if c.state not in ("running", "created"):
        return
    c.pid = 0
    c.finished = record["finished"]
    code = core.platform.exit_code(request_of(core, c), record["status"])
    if c.rebooted:
        _set_end(c, _LOST, "Error")
    else:
        _set_end(c, code, "OOMKilled" if record.get("oom") else "Error" if code else "Completed")
    _save(c)
    c.cleanup_task = core.background(_cleanup_container(core, c))
    wake(c.waiters)
    core.emit("died", c.sandbox, c.id)
    for watcher in c.watchers:
        watcher()


def _save(c: NativeContainer) -> None:
    """A full disk does not prevent a container from starting or ending. A later process finds the
    data in the monitor's records.
    """
    try:
        c.save()
    except OSError as problem:
        log.warning("the record of container %s is out of date: %s", c.id, problem)


def _set_end(c: NativeContainer, code: int, reason: str) -> None:
    c.state = "exited"
    c.exit_code = code
    c.reason = reason


def mark_container_lost(core: NativeCore, c: NativeContainer) -> None:
    """Its exit status is unknown: the monitor was killed, or the machine crashed."""
    c.pid = 0
    c.finished = core.time()
    _set_end(c, _LOST, "Error" if c.rebooted else _LOST_REASON)
    end_leftovers(core, c.folder, c.group)
    _save(c)
    c.cleanup_task = core.background(_cleanup_container(core, c))
    wake(c.waiters)
    core.emit("died", c.sandbox, c.id)


def end_leftovers(core: NativeCore, folder: Path, group: str) -> None:
    """Processes of a container that is not monitored."""
    start_record = saved.load_record(folder / STARTED) or {}
    if (
        start_record.get("ticks")
        and process_start_time(start_record["pid"]) == start_record["ticks"]
    ):
        kill_process(start_record["pid"])
    if core.limited:
        for pid in cgroups.cgroup_members(group):
            kill_process(pid)


def kill_process(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


async def _cleanup_container(core: NativeCore, c: NativeContainer) -> None:
    """Removes its state in runc and the kernel; its files stay until it is removed."""
    try:
        await core.monitor.run(*core.runc.delete(c.id))
        core.platform.finished(request_of(core, c))
        await _unmount(core, c)
    except (MonitorFailure, MonitorGone):
        return  # retried when it is removed
    if core.limited:
        cgroups.remove_cgroup(c.group)
    c.cleaned_up = True


async def _unmount(core: NativeCore, c: NativeContainer) -> None:
    if c.mounted:
        await core.monitor.ask("unmount", target=str(c.rootfs))
        await image_volumes.unmount_image_volumes(core, c)
        c.mounted = False


async def stop_native_container(core: NativeCore, c: NativeContainer, grace: float) -> None:
    """Raises RuntimeFailure when it cannot be killed."""
    if c.state == "running" and grace > 0:
        handle = ContainerHandle(core, c)
        ended = core.background(wait_until_woken(c.waiters))
        await core.platform.stop(handle)
        await asyncio.wait([ended], timeout=core.platform.stop_grace_seconds(handle, grace))
    await kill_native_container(core, c)


async def kill_native_container(core: NativeCore, c: NativeContainer) -> None:
    async with c.lock:  # one that is just being started is killed once it runs
        if c.state != "running":
            return
        core.monitor.notify("kill", id=c.id, number=signal.SIGKILL)
        core.monitor.notify("kill", id=c.id, number=signal.SIGKILL, all_processes=True)
        if not await wait_until_woken(c.waiters, _LAST_SECONDS) and c.state == "running":
            raise RuntimeFailure(
                "DeadlineExceeded",
                f'failed to kill container "{c.id}": context deadline exceeded: unknown',
            )


async def remove_native_container(core: NativeCore, c: NativeContainer) -> None:
    await kill_native_container(core, c)
    if c.id not in core.containers:
        return
    if c.cleanup_task is not None:
        await c.cleanup_task
    await _discard(core, c)
    core.containers.pop(c.id, None)
    if c in c.sandbox.containers:
        c.sandbox.containers.remove(c)
    core.emit("removed", c.sandbox, c.id)


async def _discard(core: NativeCore, c: NativeContainer) -> None:
    core.monitor.ignore(c.id)
    if not c.cleaned_up and (c.mounted or c.state != "created"):
        await _cleanup_container(core, c)
    await asyncio.to_thread(snapshots.remove_snapshot_tree, c.folder)
    if c.sandbox.plan.own_users:
        await asyncio.to_thread(core.forget_stage, c.id)
    core.images.release(c.id)
    image_volumes.release_volume_images(core, c)


# ---- recovery ----


def adopt_native_container(core: NativeCore, c: NativeContainer, *, mounted: bool) -> None:
    """Recovers a container of a previous process: it runs, has ended in the meantime, or can be
    started.
    """
    core.containers[c.id] = c
    c.sandbox.containers.append(c)
    c.mounted = mounted
    pid = core.monitor.tasks.get(c.id, 0)
    end = saved.load_record(c.folder / EXIT)
    if c.state == "exited":
        if mounted:
            c.cleanup_task = core.background(_cleanup_container(core, c))
        return
    if pid:
        start_record = saved.load_record(c.folder / STARTED) or {}
        c.pid, c.started, c.state = (
            pid,
            start_record.get("started", c.started or c.created),
            "running",
        )
        core.monitor.listen(c.id, lambda event: _on_monitor_event(core, c, event))
        c.save()
    elif end is not None:
        start_record = saved.load_record(c.folder / STARTED) or {}
        c.started = c.started or start_record.get("started", 0.0)
        c.state = "running"
        _ended(core, c, end)
    elif c.state == "running":
        mark_container_lost(core, c)


def resize_native_container(
    core: NativeCore, c: NativeContainer, resources: LinuxResources | WindowsResources
) -> None:
    """Changes the limits of its cgroup."""
    c.config = resized_config(c.config, resources)
    if core.limited:
        cgroups.set_cgroup_limits(c.group, core.limits(c.config))
