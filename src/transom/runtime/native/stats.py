"""What CRI's statistics say of native containers and sandboxes: control groups, the writable layer, interfaces."""

from __future__ import annotations

import asyncio

from transom.hosts.realhost import Use
from transom.runtime.api import ContainerStats, CpuUsage, Filesystem, Interface, SandboxStats
from transom.runtime.native import cgroups, snapshots
from transom.runtime.native.core import Core
from transom.runtime.native.platform import Usage
from transom.runtime.native.records import ContainerRecord, SandboxRecord
from transom.runtime.native.requests import request_of

_LAYER_AGE = 10.0  # seconds after which the writable layer is looked through again
_LEAST_INTERVAL = 1.0  # over which a rate means something
_LOOPBACK = "lo"


def of_container(core: Core, c: ContainerRecord) -> ContainerStats | None:
    """None: it does not run."""
    if c.state != "running":
        return None
    counted = cgroups.usage(c.group) if core.limited else Usage(0, 0, 0, 0, 0, 0, 1)
    if counted is None:
        return None
    request = request_of(core, c)
    used = core.platform.usage(request, counted)
    now = core.time()
    size, inodes = core.platform.layer_usage(request, _layer(core, c))
    return ContainerStats(
        id=c.id, name=c.config.name, attempt=c.config.attempt, labels=c.config.labels, time=now,
        cpu=CpuUsage(used.cpu_nanoseconds, _rate(core, c, used.cpu_nanoseconds)), working_set=used.working_set,
        usage=used.usage, rss=used.rss, page_faults=used.page_faults, major_page_faults=used.major_page_faults,
        paged=used.paged, processes=max(1, used.processes),
        writable_layer=Filesystem(str(core.folder), size, inodes),
    )  # fmt: skip


def _rate(core: Core, c: ContainerRecord, total: int) -> int | None:
    """Since the last time that somebody asked, unless that was just now."""
    at, before, rate = c.cpu
    now = core.clock.monotonic()
    if not before:
        c.cpu = (now, total, None)
    elif now - at >= _LEAST_INTERVAL:
        rate = max(0, round((total - before) / (now - at)))
        c.cpu = (now, total, rate)
    return rate


def _layer(core: Core, c: ContainerRecord) -> tuple[int, int]:
    """As it was when it was last looked through, which happens beside everything else."""
    now = core.clock.monotonic()
    if not c.layer_at or now - c.layer_at > _LAYER_AGE:
        c.layer_at = now
        core.background(_look_through(c))
    return c.layer


async def _look_through(c: ContainerRecord) -> None:
    c.layer = await asyncio.to_thread(snapshots.usage, c.folder)


def of_sandbox(core: Core, sandbox: SandboxRecord) -> SandboxStats | None:
    """None: it has no network of its own."""
    if sandbox.state != "ready" or not sandbox.pid or not sandbox.plan.network:
        return None
    try:
        with open(f"/proc/{sandbox.pid}/net/dev") as file:
            lines = file.readlines()[2:]
    except OSError:
        return None
    interfaces = []
    for line in lines:
        name, _, numbers = line.partition(":")
        fields = numbers.split()
        if name.strip() != _LOOPBACK:
            interfaces.append(Interface(name.strip(), int(fields[0]), int(fields[8]), int(fields[2]), int(fields[10])))
    return SandboxStats(sandbox.id, core.time(), tuple(sorted(interfaces)))


def of_node(core: Core) -> Use:
    counted = cgroups.usage(core.group) if core.limited else None
    if counted is None:
        return Use()
    return Use(counted.cpu_nanoseconds / 1e9, counted.usage, counted.working_set, counted.rss, counted.paged)
