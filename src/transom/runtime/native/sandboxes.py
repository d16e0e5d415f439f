"""The life of a sandbox: its network, the pause process that holds its namespaces, and what its containers share."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from transom.network.api import NetworkFailure, SandboxNetwork
from transom.runtime.api import RuntimeFailure, SandboxConfig
from transom.runtime.native import cgroups, containers, pause, saved, snapshots
from transom.runtime.native.client import MonitorFailure
from transom.runtime.native.core import Core
from transom.runtime.native.platform import SandboxPlan, Spec
from transom.runtime.native.records import SandboxRecord, wake, woken
from transom.runtime.native.runc import LOG, PID_FILE, reworded

_HANDLERS = ("", "runc")
_OOM_SCORE = -998
_SPECIFICATION = "config.json"
_SHARED_MEMORY = "size=67108864,mode=1777"
_LAST_SECONDS = 10.0  # for a process that was killed


async def run(core: Core, config: SandboxConfig, handler: str) -> SandboxRecord:
    """Raises RuntimeFailure, and then leaves nothing."""
    if handler not in _HANDLERS and core.platform.os == "linux":
        raise core.texts.no_handler(handler)
    identity = core.new_id()
    parent = config.linux.cgroup_parent or f"/pods/pod{config.uid}"
    sandbox = SandboxRecord(
        identity, config, handler, core.time(), core.folder / "sandboxes" / identity, f"{core.group}{parent}"
    )
    sandbox.plan = core.platform.sandbox(config, core.host.name)
    sandbox.folder.mkdir(mode=0o711, parents=True)
    core.enter(sandbox)
    try:
        await _start(core, sandbox)
    except BaseException as problem:
        await _undo(core, sandbox)
        if isinstance(problem, MonitorFailure):
            raise core.texts.sandbox_start(identity, config.name, reworded(problem.text)) from problem
        if isinstance(problem, OSError):
            raise core.texts.sandbox_start(identity, config.name, str(problem)) from problem
        raise
    sandbox.state = "ready"
    sandbox.save()
    core.emit("sandbox", sandbox, identity)
    return sandbox


async def _start(core: Core, sandbox: SandboxRecord) -> None:
    if sandbox.plan.network:
        try:
            sandbox.ips = tuple(await core.wiring.pods.add(network_of(sandbox)))
        except NetworkFailure as failure:
            config = sandbox.config
            raise core.texts.sandbox_network(sandbox.id, config.namespace, config.name, str(failure)) from failure
        sandbox.networked = True
        found = core.wiring.sandbox(sandbox.id)
    else:
        found = core.wiring.node()
    network = found if isinstance(found, str) else await found
    sandbox.save()
    _write_files(core, sandbox)
    await _mount_shared_memory(core, sandbox)
    core.monitor.listen(sandbox.id, lambda news: _news(core, sandbox, news))
    answer = await (_hold(core, sandbox, network) if _held(core, sandbox.plan) else _run_pause(core, sandbox, network))
    sandbox.pid = answer["pid"]
    weigh(core, sandbox)


def _held(core: Core, plan: SandboxPlan) -> bool:
    """Whether there is nothing to hold but a network, which takes no runc."""
    return not (plan.ipc or plan.pid or plan.sysctls or core.rootless)


async def _hold(core: Core, sandbox: SandboxRecord, network: str) -> dict[str, Any]:
    plan, processes = sandbox.plan, ""
    if core.limited:
        cgroups.make(sandbox.group, sandbox.id)
        processes = cgroups.processes(f"{sandbox.group}/{sandbox.id}")
    order = {
        "program": "/pause", "root": str(core.folder.parent / "pause"), "user": plan.user, "group": plan.group,
        "oom_score_adj": core.oom_score(_OOM_SCORE), "network": network or ("" if plan.network else None),
        "processes": processes,
    }  # fmt: skip
    return await core.monitor.ask("launch", id=sandbox.id, hold=order, folder=str(sandbox.folder), processes=processes)


async def _run_pause(core: Core, sandbox: SandboxRecord, network: str) -> dict[str, Any]:
    spec = pause.specification(
        sandbox.plan, core.folder.parent / "pause", _namespaces(sandbox.plan, network), core.oom_score(_OOM_SCORE)
    )
    if core.limited:
        spec["linux"]["cgroupsPath"] = f"{sandbox.group}/{sandbox.id}"
    else:
        spec["linux"].pop("resources")
    saved.save(sandbox.folder / _SPECIFICATION, spec)
    return await core.monitor.work(
        "launch", id=sandbox.id, argv=core.runc.run(sandbox.id, sandbox.folder, tty=False), folder=str(sandbox.folder),
        pid_file=str(sandbox.folder / PID_FILE), runc_log=str(sandbox.folder / LOG),
        processes=cgroups.processes(f"{sandbox.group}/{sandbox.id}") if core.limited else "",
    )  # fmt: skip


def network_of(sandbox: SandboxRecord) -> SandboxNetwork:
    config = sandbox.config
    return SandboxNetwork(sandbox.id, config.namespace, config.name, config.uid, config.dns, config.ports, config.annotations)


def _namespaces(plan: SandboxPlan, network: str) -> list[Spec]:
    """The machine's own name is never shown: a node has its own, even to pods on its network."""
    wanted: list[Spec] = [{"type": "mount"}, {"type": "uts"}]
    if network:
        wanted.append({"type": "network", "path": network})
    elif plan.network:
        wanted.append({"type": "network"})
    if plan.ipc:
        wanted.append({"type": "ipc"})
    if plan.pid:
        wanted.append({"type": "pid"})
    return wanted


def _write_files(core: Core, sandbox: SandboxRecord) -> None:
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
            resolv = core.host.files.read("/etc/resolv.conf")
        except OSError:
            resolv = b""
    hosts = b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
    if core.platform.os == "linux" and core.host.files.exists("/etc/hosts"):
        hosts = core.host.files.read("/etc/hosts")
    for name, content in (("resolv.conf", resolv), ("hostname", f"{sandbox.plan.hostname}\n".encode()), ("hosts", hosts)):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o644)


async def _mount_shared_memory(core: Core, sandbox: SandboxRecord) -> None:
    target = sandbox.folder / "shm"
    target.mkdir(mode=0o1777, exist_ok=True)
    if sandbox.plan.ipc:
        await core.monitor.ask("mount", source="shm", target=str(target), kind="tmpfs", flags=0b1110, data=_SHARED_MEMORY)


def weigh(core: Core, sandbox: SandboxRecord) -> None:
    """What a pod gets of the processors when they are busy is the sum of what its containers get."""
    if not core.limited:
        return
    cgroups.set_shares(sandbox.group, _shares(core, sandbox))
    above = os.path.dirname(sandbox.group)
    if above.endswith("/besteffort"):
        cgroups.set_shares(above, 0)
    elif above.endswith("/burstable"):
        cgroups.set_shares(above, sum(_shares(core, s) for s in core.sandboxes.values() if s.group.startswith(f"{above}/")))


def _shares(core: Core, sandbox: SandboxRecord) -> int:
    alive = (c for c in sandbox.containers if c.state in ("created", "running"))
    return sum(core.limits(c.config).cpu_shares for c in alive)


def _news(core: Core, sandbox: SandboxRecord, news: dict[str, Any]) -> None:
    """The pause process has ended: who shared its namespaces may go on, but nobody new can come."""
    if news["news"] != "exit":
        return
    sandbox.pid = 0
    wake(sandbox.waiters)
    if sandbox.state == "ready":
        sandbox.state = "notready"
        sandbox.save()
        core.emit("sandbox", sandbox, sandbox.id)


async def stop(core: Core, sandbox: SandboxRecord) -> None:
    """Raises RuntimeFailure."""
    async with sandbox.lock:
        await asyncio.gather(*(containers.kill(core, c) for c in tuple(sandbox.containers)))
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


async def _end_pause(core: Core, sandbox: SandboxRecord) -> None:
    if sandbox.pid:
        core.monitor.tell("kill", id=sandbox.id, number=signal.SIGKILL)
        await woken(sandbox.waiters, _LAST_SECONDS)
    core.monitor.ignore(sandbox.id)
    await _clear(core, sandbox)


async def _clear(core: Core, sandbox: SandboxRecord) -> None:
    """What runc and the kernel still have of it."""
    try:
        if (sandbox.folder / _SPECIFICATION).exists():  # else runc has never heard of it
            await core.monitor.run(*core.runc.delete(sandbox.id))
        await core.monitor.ask("unmount", target=str(sandbox.folder / "shm"))
    except MonitorFailure as problem:
        raise RuntimeFailure("Unknown", f'failed to stop sandbox "{sandbox.id}": {problem.text}') from problem
    if core.limited:
        cgroups.remove(f"{sandbox.group}/{sandbox.id}")


async def _undo(core: Core, sandbox: SandboxRecord) -> None:
    """What cannot be undone stays, not ready, and is tried again when it is removed."""
    try:
        await _end_pause(core, sandbox)
        if sandbox.networked:
            await core.wiring.pods.remove(sandbox.id)
            sandbox.networked = False
        _forget(core, sandbox)
    except (RuntimeFailure, NetworkFailure, OSError):
        if sandbox.folder.exists():
            sandbox.save()


def _forget(core: Core, sandbox: SandboxRecord) -> None:
    core.leave(sandbox)
    if not any(other.group == sandbox.group for other in core.sandboxes.values()) and core.limited:
        cgroups.remove(sandbox.group)
    snapshots.remove_tree(sandbox.folder)


async def remove(core: Core, sandbox: SandboxRecord) -> None:
    await stop(core, sandbox)
    for container in tuple(sandbox.containers):
        await containers.remove(core, container)
    _forget(core, sandbox)
    core.emit("removed", sandbox, sandbox.id)


async def adopt(core: Core, sandbox: SandboxRecord) -> None:
    """One that was here before this process. Raises RuntimeFailure."""
    core.enter(sandbox)
    alive = core.monitor.tasks.get(sandbox.id, 0)
    sandbox.pid = alive
    if alive:
        core.monitor.listen(sandbox.id, lambda news: _news(core, sandbox, news))
    if sandbox.state == "ready" and not alive:
        lost(core, sandbox)
    elif sandbox.state == "notready" and alive:  # it was just being made, or stopped
        await _end_pause(core, sandbox)
    if sandbox.state == "ready" and sandbox.networked:
        await core.wiring.adopt(network_of(sandbox), sandbox.ips, f"/proc/{alive}/ns/net")


def lost(core: Core, sandbox: SandboxRecord) -> None:
    """Nobody watches its pause process any more."""
    sandbox.pid = 0
    containers.end_leftovers(core, sandbox.folder, f"{sandbox.group}/{sandbox.id}")
    if sandbox.state == "ready":
        sandbox.state = "notready"
        sandbox.save()
        core.emit("sandbox", sandbox, sandbox.id)
