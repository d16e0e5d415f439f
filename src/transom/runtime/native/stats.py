"""CRI statistics of native containers and sandboxes: cgroups, the writable layer, network
interfaces.
"""

from __future__ import annotations

import asyncio

from transom.machines.realhost import ContainersUsage
from transom.runtime.api import (
    ContainerStats,
    CpuUsage,
    FilesystemUsage,
    InterfaceStats,
    SandboxStats,
)
from transom.runtime.native import cgroups, snapshots
from transom.runtime.native.core import NativeCore
from transom.runtime.native.platform import CgroupUsage
from transom.runtime.native.records import NativeContainer, NativeSandbox
from transom.runtime.native.requests import request_of

_LAYER_AGE = 10.0  # seconds after which the writable layer is scanned again
_LEAST_INTERVAL = 1.0  # the minimum interval for a meaningful rate
_LOOPBACK = "lo"


def native_container_stats(core: NativeCore, c: NativeContainer) -> ContainerStats | None:
    """None: it is not running."""
    if c.state != "running":
        return None
    counted = cgroups.cgroup_usage(c.group) if core.limited else CgroupUsage(0, 0, 0, 0, 0, 0, 1)
    if counted is None:
        return None
    request = request_of(core, c)
    used = core.platform.usage(request, counted)
    now = core.time()
    size, inodes = core.platform.layer_usage(request, _layer(core, c))
    return ContainerStats(
        id=c.id,
        name=c.config.name,
        attempt=c.config.attempt,
        labels=c.config.labels,
        time=now,
        cpu=CpuUsage(used.cpu_nanoseconds, _rate(core, c, used.cpu_nanoseconds)),
        working_set=used.working_set,
        usage=used.usage,
        rss=used.rss,
        page_faults=used.page_faults,
        major_page_faults=used.major_page_faults,
        paged=used.paged,
        processes=max(1, used.processes),
        writable_layer=FilesystemUsage(str(core.folder), size, inodes),
    )


def _rate(core: NativeCore, c: NativeContainer, total: int) -> int | None:
    """Since the last call, unless that was just now."""
    at, before, rate = c.cpu
    now = core.clock.monotonic()
    if not before:
        c.cpu = (now, total, None)
    elif now - at >= _LEAST_INTERVAL:
        rate = max(0, round((total - before) / (now - at)))
        c.cpu = (now, total, rate)
    return rate


def _layer(core: NativeCore, c: NativeContainer) -> tuple[int, int]:
    """From the last scan, which runs in the background."""
    now = core.clock.monotonic()
    if not c.layer_at or now - c.layer_at > _LAYER_AGE:
        c.layer_at = now
        core.background(_look_through(c))
    return c.layer


async def _look_through(c: NativeContainer) -> None:
    c.layer = await asyncio.to_thread(snapshots.snapshot_usage, c.folder)


def native_sandbox_stats(core: NativeCore, sandbox: NativeSandbox) -> SandboxStats | None:
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
            interfaces.append(
                InterfaceStats(
                    name.strip(), int(fields[0]), int(fields[8]), int(fields[2]), int(fields[10])
                )
            )
    return SandboxStats(sandbox.id, core.time(), tuple(sorted(interfaces)))


def native_node_usage(core: NativeCore) -> ContainersUsage:
    counted = cgroups.cgroup_usage(core.group) if core.limited else None
    if counted is None:
        return ContainersUsage()
    return ContainersUsage(
        counted.cpu_nanoseconds / 1e9,
        counted.usage,
        counted.working_set,
        counted.rss,
        counted.paged,
    )
