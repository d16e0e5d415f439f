"""The lifecycle of a sandbox: its network, the pause process that holds its namespaces, and what
its containers share.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from typing import Any

from transom.machines.smallfiles import read_small_file
from transom.network.api import NetworkFailure, SandboxNetwork
from transom.runtime import saved
from transom.runtime.api import LinuxResources, RuntimeFailure, SandboxConfig
from transom.runtime.native import cgroups, containers, pause, snapshots
from transom.runtime.native.client import MonitorFailure
from transom.runtime.native.core import NativeCore
from transom.runtime.native.platform import SandboxPlan, Spec, cgroup_limits
from transom.runtime.native.records import NativeSandbox, wait_until_woken, wake
from transom.runtime.native.runc import LOG, PID_FILE, reword_runc_error

_HANDLERS = ("", "runc")
_NO_ID_MAPPED_MOUNTS = (
    'snapshotter "overlayfs" doesn\'t support idmap mounts on this host, configure `slow_chown` to '
    "allow a slower and expensive fallback"
)
_OOM_SCORE = -998
_SPECIFICATION = "config.json"
_SHARED_MEMORY = "size=67108864,mode=1777"
_LAST_SECONDS = 10.0  # for a process that was killed


async def run_native_sandbox(
    core: NativeCore, config: SandboxConfig, handler: str
) -> NativeSandbox:
    """Raises RuntimeFailure, and then leaves nothing behind."""
    if handler not in _HANDLERS and core.platform.os == "linux":
        raise core.texts.no_handler(handler)
    identity = core.new_id()
    parent = config.linux.cgroup_parent or f"/pods/pod{config.uid}"
    sandbox = NativeSandbox(
        identity,
        config,
        handler,
        core.time(),
        core.folder / "sandboxes" / identity,
        f"{core.group}{parent}",
    )
    plan = core.platform.sandbox(config, core.host.name)
    own_users = plan.own_users and not core.no_users and core.wiring.accepts_namespaces
    if config.linux.user_namespace is not None and not own_users:
        raise core.texts.sandbox_start(identity, config.name, _NO_ID_MAPPED_MOUNTS)
    sandbox.plan = replace(plan, own_users=own_users, first_id=core.free_ids() if own_users else 0)
    sandbox.folder.mkdir(mode=0o711, parents=True)
    core.enter(sandbox)
    try:
        await _start(core, sandbox)
    except BaseException as problem:
        await _undo(core, sandbox)
        if isinstance(problem, MonitorFailure):
            raise core.texts.sandbox_start(
                identity, config.name, reword_runc_error(problem.text)
            ) from problem
        if isinstance(problem, OSError):
            raise core.texts.sandbox_start(identity, config.name, str(problem)) from problem
        raise
    sandbox.state = "ready"
    sandbox.save()
    core.emit("sandbox", sandbox, identity)
    return sandbox


async def _start(core: NativeCore, sandbox: NativeSandbox) -> None:
    if sandbox.plan.own_users:
        await _start_with_users(core, sandbox)
        return
    network = await _connect(core, sandbox)
    sandbox.save()
    _write_files(core, sandbox)
    await _mount_shared_memory(core, sandbox)
    core.monitor.listen(sandbox.id, lambda event: _on_monitor_event(core, sandbox, event))
    answer = await (
        _hold(core, sandbox, network)
        if _held(core, sandbox.plan)
        else _run_pause(core, sandbox, network)
    )
    sandbox.pid = answer["pid"]
    set_sandbox_limits(core, sandbox)


async def _start_with_users(core: NativeCore, sandbox: NativeSandbox) -> None:
    """A user namespace owns only namespaces that are created with it, so the network is connected
    to the existing namespace afterwards.
    """
    sandbox.save()
    _write_files(core, sandbox)
    await _mount_shared_memory(core, sandbox)
    core.monitor.listen(sandbox.id, lambda event: _on_monitor_event(core, sandbox, event))
    sandbox.pid = (await _run_pause(core, sandbox, ""))["pid"]
    if core.wiring.give is not None:
        core.wiring.give(sandbox.id, f"/proc/{sandbox.pid}/ns/net")
    await _connect(core, sandbox)
    sandbox.save()
    set_sandbox_limits(core, sandbox)


async def _connect(core: NativeCore, sandbox: NativeSandbox) -> str:
    """The path of its network namespace, if it exists already."""
    if sandbox.plan.network:
        try:
            sandbox.ips = tuple(await core.wiring.pods.add(sandbox_network_of(sandbox)))
        except NetworkFailure as failure:
            config = sandbox.config
            raise core.texts.sandbox_network(
                sandbox.id, config.namespace, config.name, str(failure)
            ) from failure
        sandbox.networked = True
        found = core.wiring.sandbox(sandbox.id)
    else:
        found = core.wiring.node()
    return found if isinstance(found, str) else await found


def _held(core: NativeCore, plan: SandboxPlan) -> bool:
    """Whether a network is all there is to hold, which does not need runc."""
    return not (plan.ipc or plan.pid or plan.sysctls or core.rootless)


async def _hold(core: NativeCore, sandbox: NativeSandbox, network: str) -> dict[str, Any]:
    plan, processes = sandbox.plan, ""
    if core.limited:
        cgroups.make_cgroup(sandbox.group, sandbox.id)
        processes = cgroups.processes_file(f"{sandbox.group}/{sandbox.id}")
    order = {
        "program": "/pause",
        "root": str(core.folder.parent / "pause"),
        "user": plan.user,
        "group": plan.group,
        "oom_score_adj": core.oom_score(_OOM_SCORE),
        "network": network or ("" if plan.network else None),
        "processes": processes,
    }
    return await core.monitor.ask(
        "launch", id=sandbox.id, hold=order, folder=str(sandbox.folder), processes=processes
    )


async def _run_pause(core: NativeCore, sandbox: NativeSandbox, network: str) -> dict[str, Any]:
    spec = pause.pause_specification(
        sandbox.plan,
        core.folder.parent / "pause",
        _namespaces(sandbox.plan, network),
        core.oom_score(_OOM_SCORE),
    )
    if core.limited:
        spec["linux"]["cgroupsPath"] = f"{sandbox.group}/{sandbox.id}"
    else:
        spec["linux"].pop("resources")
    saved.save_record(sandbox.folder / _SPECIFICATION, spec)
    return await core.monitor.work(
        "launch",
        id=sandbox.id,
        argv=core.runc.run(sandbox.id, sandbox.folder, tty=False),
        folder=str(sandbox.folder),
        pid_file=str(sandbox.folder / PID_FILE),
        runc_log=str(sandbox.folder / LOG),
        root=spec["root"]["path"] if sandbox.plan.own_users else "",
        user_namespace="",
        stage=str(core.stage(sandbox.id)),
        processes=cgroups.processes_file(f"{sandbox.group}/{sandbox.id}") if core.limited else "",
    )


def sandbox_network_of(sandbox: NativeSandbox) -> SandboxNetwork:
    config = sandbox.config
    return SandboxNetwork(
        sandbox.id,
        config.namespace,
        config.name,
        config.uid,
        config.dns,
        config.ports,
        config.annotations,
    )


def _namespaces(plan: SandboxPlan, network: str) -> list[Spec]:
    """The machine's own name is never shown: a node has its own, even to pods on its network."""
    wanted: list[Spec] = [{"type": "mount"}, {"type": "uts"}]
    if plan.own_users:
        wanted.append({"type": "user"})
    if network:
        wanted.append({"type": "network", "path": network})
    elif plan.network:
        wanted.append({"type": "network"})
    if plan.ipc:
        wanted.append({"type": "ipc"})
    if plan.pid:
        wanted.append({"type": "pid"})
    return wanted


def _write_files(core: NativeCore, sandbox: NativeSandbox) -> None:
    dns, folder = sandbox.config.dns, sandbox.folder
    lines = []
    if dns.searches:
        lines.append(f"search {' '.join(dns.searches)}\n")
    lines += [f"nameserver {server}\n" for server in dns.servers]
    if dns.options:
        lines.append(f"options {' '.join(dns.options)}\n")
    resolv = "".join(lines).encode()
    if not resolv and core.platform.os == "linux":
        try:
            resolv = read_small_file(core.host.files, "/etc/resolv.conf")
        except OSError:
            resolv = b""
    hosts = b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
    if core.platform.os == "linux" and core.host.files.exists("/etc/hosts"):
        hosts = read_small_file(core.host.files, "/etc/hosts")
    for name, content in (
        ("resolv.conf", resolv),
        ("hostname", f"{sandbox.plan.hostname}\n".encode()),
        ("hosts", hosts),
    ):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o644)


async def _mount_shared_memory(core: NativeCore, sandbox: NativeSandbox) -> None:
    target = sandbox.folder / "shm"
    target.mkdir(mode=0o1777, exist_ok=True)
    if sandbox.plan.ipc:
        await core.monitor.ask(
            "mount",
            source="shm",
            target=str(target),
            kind="tmpfs",
            flags=0b1110,
            data=_SHARED_MEMORY,
        )


def set_sandbox_limits(core: NativeCore, sandbox: NativeSandbox) -> None:
    """The limits of the pod as a whole."""
    if core.limited:
        limits = cgroup_limits(sandbox.config.linux.resources)
        cgroups.set_cgroup_limits(sandbox.group, replace(limits, cpu_shares=_shares(core, sandbox)))
        set_sandbox_weight(core, sandbox)


def set_sandbox_weight(core: NativeCore, sandbox: NativeSandbox) -> None:
    """A pod's share of busy processors is what it requests, and that of burstable pods together
    is what they request together.
    """
    if not core.limited:
        return
    cgroups.set_cgroup_shares(sandbox.group, _shares(core, sandbox))
    above = os.path.dirname(sandbox.group)
    if above.endswith("/besteffort"):
        cgroups.set_cgroup_shares(above, 0)
    elif above.endswith("/burstable"):
        cgroups.set_cgroup_shares(
            above,
            sum(
                _shares(core, s) for s in core.sandboxes.values() if s.group.startswith(f"{above}/")
            ),
        )


def _shares(core: NativeCore, sandbox: NativeSandbox) -> int:
    """Where the pod has none of its own, as on Windows, the sum of its containers' shares."""
    own = sandbox.config.linux.resources.cpu_shares
    if own:
        return own
    alive = (c for c in sandbox.containers if c.state in ("created", "running"))
    return sum(core.limits(c.config).cpu_shares for c in alive)


def resize_native_sandbox(
    core: NativeCore, sandbox: NativeSandbox, resources: LinuxResources
) -> None:
    linux = replace(sandbox.config.linux, resources=resources)
    sandbox.config = replace(sandbox.config, linux=linux)
    sandbox.save()
    set_sandbox_limits(core, sandbox)


def _on_monitor_event(core: NativeCore, sandbox: NativeSandbox, event: dict[str, Any]) -> None:
    """The pause process has ended: containers that share its namespaces may continue, but no new
    one can start.
    """
    if event["news"] != "exit":
        return
    sandbox.pid = 0
    wake(sandbox.waiters)
    if sandbox.state == "ready":
        sandbox.state = "notready"
        sandbox.save()
        core.emit("sandbox", sandbox, sandbox.id)


async def stop_native_sandbox(core: NativeCore, sandbox: NativeSandbox) -> None:
    """Raises RuntimeFailure."""
    async with sandbox.lock:
        await asyncio.gather(
            *(containers.kill_native_container(core, c) for c in tuple(sandbox.containers))
        )
        was_ready = sandbox.state == "ready"
        sandbox.state = "notready"
        await _end_pause(core, sandbox)
        if sandbox.networked:
            try:
                await core.wiring.pods.remove(sandbox.id)
            except NetworkFailure as failure:
                sandbox.save()
                text = f'failed to destroy network for sandbox "{sandbox.id}": {failure}'
                raise RuntimeFailure("Unknown", text) from failure
            sandbox.networked = False
            sandbox.ips = ()
        if sandbox.folder.exists():
            sandbox.save()
        if was_ready:
            core.emit("sandbox", sandbox, sandbox.id)


async def _end_pause(core: NativeCore, sandbox: NativeSandbox) -> None:
    if sandbox.pid:
        core.monitor.notify("kill", id=sandbox.id, number=signal.SIGKILL)
        await wait_until_woken(sandbox.waiters, _LAST_SECONDS)
    core.monitor.ignore(sandbox.id)
    await _clear(core, sandbox)


async def _clear(core: NativeCore, sandbox: NativeSandbox) -> None:
    """Removes its state in runc and the kernel."""
    try:
        if (sandbox.folder / _SPECIFICATION).exists():  # otherwise runc does not know it
            await core.monitor.run(*core.runc.delete(sandbox.id))
        await core.monitor.ask("unmount", target=str(sandbox.folder / "shm"))
    except MonitorFailure as problem:
        raise RuntimeFailure(
            "Unknown", f'failed to stop sandbox "{sandbox.id}": {problem.text}'
        ) from problem
    if core.limited:
        cgroups.remove_cgroup(f"{sandbox.group}/{sandbox.id}")


async def _undo(core: NativeCore, sandbox: NativeSandbox) -> None:
    """What cannot be undone stays, not ready, and is retried on removal."""
    try:
        await _end_pause(core, sandbox)
        if sandbox.networked:
            await core.wiring.pods.remove(sandbox.id)
            sandbox.networked = False
        _forget(core, sandbox)
    except (RuntimeFailure, NetworkFailure, OSError):
        if sandbox.folder.exists():
            sandbox.save()


def _forget(core: NativeCore, sandbox: NativeSandbox) -> None:
    core.leave(sandbox)
    if not any(other.group == sandbox.group for other in core.sandboxes.values()) and core.limited:
        cgroups.remove_cgroup(sandbox.group)
    snapshots.remove_snapshot_tree(sandbox.folder)
    if sandbox.plan.own_users:
        core.forget_stage(sandbox.id)


async def remove_native_sandbox(core: NativeCore, sandbox: NativeSandbox) -> None:
    await stop_native_sandbox(core, sandbox)
    for container in tuple(sandbox.containers):
        await containers.remove_native_container(core, container)
    _forget(core, sandbox)
    core.emit("removed", sandbox, sandbox.id)


async def adopt_native_sandbox(core: NativeCore, sandbox: NativeSandbox) -> None:
    """Recovers a sandbox of a previous process. Raises RuntimeFailure."""
    core.enter(sandbox)
    alive = core.monitor.tasks.get(sandbox.id, 0)
    sandbox.pid = alive
    if alive:
        core.monitor.listen(sandbox.id, lambda event: _on_monitor_event(core, sandbox, event))
    if sandbox.state == "ready" and not alive:
        mark_sandbox_lost(core, sandbox)
    elif sandbox.state == "notready" and alive:  # it was just being created or stopped
        await _end_pause(core, sandbox)
    if sandbox.state == "ready" and sandbox.networked:
        await core.wiring.adopt(sandbox_network_of(sandbox), sandbox.ips, f"/proc/{alive}/ns/net")


def mark_sandbox_lost(core: NativeCore, sandbox: NativeSandbox) -> None:
    """Its pause process is no longer monitored."""
    sandbox.pid = 0
    containers.end_leftovers(core, sandbox.folder, f"{sandbox.group}/{sandbox.id}")
    if sandbox.state == "ready":
        sandbox.state = "notready"
        sandbox.save()
        core.emit("sandbox", sandbox, sandbox.id)
