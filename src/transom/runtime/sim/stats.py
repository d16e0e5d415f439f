"""CRI statistics of simulated containers and sandboxes."""

from __future__ import annotations

from transom.runtime.api import (
    ContainerStats,
    FilesystemUsage,
    InterfaceStats,
    SandboxStats,
    SwapUsage,
)
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.records import SimContainer, SimSandbox

ROOTS = {
    ("linux", True): "/var/lib/docker",
    ("windows", True): r"C:\ProgramData\docker",
    ("linux", False): "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs",
    ("windows", False): r"C:\ProgramData\containerd\root\io.containerd.snapshotter.v1.windows",
}
_ENDPOINT_NETWORK = "cbr0"
_GREETINGS = 1200  # bytes of ARP and similar traffic that every endpoint sees


def sim_container_stats(core: SimCore, c: SimContainer) -> ContainerStats | None:
    """None: it is not running."""
    meter = c.meter
    if meter is None or c.state != "running":
        return None
    used, inodes = c.files.layer_usage()
    memory = meter.memory
    table = c.table
    return ContainerStats(
        id=c.id,
        name=c.config.name,
        attempt=c.config.attempt,
        labels=c.config.labels,
        time=core.host.time(),
        cpu=meter.cpu(core.clock.monotonic()),
        working_set=meter.working_set,
        usage=memory,
        rss=memory,
        page_faults=memory >> 12,
        paged=meter.paged,
        processes=max(1, len(table.list())) if table is not None else 1,
        writable_layer=FilesystemUsage(
            ROOTS[core.os, core.docker],
            0 if core.windows and core.docker else used,
            0 if core.windows else inodes,
        ),
        swap=_swap(c),
    )


def _swap(container: SimContainer) -> SwapUsage | None:
    """Simulated containers do not swap."""
    linux = container.config.linux
    if linux is None:
        return None
    limit = linux.resources.unified.get("memory.swap.max", "")
    return SwapUsage(0, int(limit) if limit.isdigit() else None)


def sim_sandbox_stats(core: SimCore, sandbox: SimSandbox) -> SandboxStats | None:
    """None: it has no network of its own."""
    namespace = sandbox.namespace
    if namespace is None or sandbox.state != "ready" or namespace is core.node_namespace:
        return None
    name = f"{sandbox.id}_{_ENDPOINT_NETWORK}" if core.windows else "eth0"
    errors = None if core.windows else 0
    interface = InterfaceStats(
        name, _GREETINGS + namespace.received, _GREETINGS + namespace.sent, errors, errors
    )
    return SandboxStats(sandbox.id, core.host.time(), (interface,))
