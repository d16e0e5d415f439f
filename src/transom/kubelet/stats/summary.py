"""/stats/summary: CPU, memory, network and disk of a node and of its pods, from the counters of
host and runtime.

`StatsProvider` also keeps the samples for computing rates, for runtimes that report none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from transom.kit.clock import rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.base import KubeletContext
from transom.kubelet.interfaces import PodView
from transom.kubelet.stats import shapes
from transom.kubelet.stats.volumes import Mounted, pod_volumes
from transom.machinery.objects import Object
from transom.machinery.quantity import parse_quantity
from transom.machinery.releases import Release
from transom.machinery.releases.metrics import metric_rules
from transom.machines.api import DiskSpace
from transom.runtime.api import Container, ContainerStats, Sandbox

_PERIOD: Final = 10.0  # seconds between two samples of CPU time
_KEEP: Final = 60.0


class _Rates:
    """Converts CPU time to cores in use. A rate is kept for a period, then computed again."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, int, int | None]] = {}

    def rate(self, key: str, now: float, used: int) -> int | None:
        known = self._known.get(key)
        if known is None or used < known[1]:
            self._known[key] = (now, used, None)
            return None
        since, before, rate = known
        if rate is None or now - since >= _PERIOD:
            if now <= since:
                return rate
            rate = int((used - before) / (now - since))
            self._known[key] = (now, used, rate)
        return rate

    def forget(self, now: float) -> None:
        for key in [key for key, known in self._known.items() if now - known[0] > _KEEP]:
            del self._known[key]


class Measured(NamedTuple):
    """A pod that can be measured."""

    sandbox: Sandbox
    pod: Object | None
    containers: list[tuple[Container, ContainerStats]]


class StatsProvider:
    """`mounted` returns the paths of claimed volumes."""

    __slots__ = ("_env", "_rates", "_started", "_view", "mounted")

    def __init__(self, env: KubeletContext, view: PodView, mounted: Mounted | None = None) -> None:
        self._env = env
        self._view = view
        self.mounted = mounted
        self._started = env.clock.time()
        self._rates = _Rates()

    # ---- for all operating systems ----

    def measured(self) -> list[Measured]:
        """Pods by their newest sandbox, with their running containers."""
        runtime = self._env.runtime
        numbers = {stats.id: stats for stats in runtime.container_stats()}
        found: dict[str, Measured] = {}
        by_name: dict[tuple[str, str], Sandbox] = {}
        for sandbox in runtime.sandboxes():
            name = (sandbox.config.namespace, sandbox.config.name)
            other = by_name.get(name)
            if other is None or (other.state != "ready" and sandbox.state == "ready"):
                if other is not None:
                    del found[other.id]
                by_name[name] = sandbox
                found[sandbox.id] = Measured(sandbox, self._view.pod_by_uid(sandbox.config.uid), [])
        for container in reversed(runtime.containers()):
            stats = numbers.get(container.id)
            if container.state == "running" and stats is not None and container.sandbox_id in found:
                found[container.sandbox_id].containers.append((container, stats))
        if self._by_cadvisor:
            return [m for m in found.values() if m.containers or m.sandbox.state == "ready"]
        return [m for m in found.values() if m.containers]

    def summary(self) -> Object:
        env, now = self._env, self._env.clock.time()
        measured = self.measured()
        disk = env.host.disk()
        networks = {stats.id: stats for stats in env.runtime.sandbox_stats()}
        pods: list[Object] = []
        for each in measured:
            row = self._pod(each, now, disk, networks)
            if row is not None:
                pods.append(row)
        node = self._node(measured, pods, now, env.host.boot_time)
        self._add_system_containers(node, pods, now)
        network = env.os.node_stats(
            env.host, [s for m in measured for _, s in m.containers], list(networks.values()), now
        )
        images = env.runtime.image_filesystem()
        node["network"] = network["network"]
        node["fs"] = shapes.filesystem_stats(
            now, disk, disk.used, disk.inodes_used if disk.inodes else None
        )
        inodes = images.inodes_used if disk.inodes else None
        node["runtime"] = {"imageFs": shapes.filesystem_stats(now, disk, images.used, inodes)}
        if "rlimit" in network:
            node["rlimit"] = network["rlimit"]
        self._rates.forget(now)
        return {"node": node, "pods": pods}

    def cpu_and_memory(self) -> Object:
        """The short form, which reads no disk."""
        now = self._env.clock.time()
        found = self._usage(now)
        self._add_system_containers(found["node"], found["pods"], now)
        return found

    def usage(self) -> Object:
        """The part of the short form that a collector of metrics reads."""
        return self._usage(self._env.clock.time())

    # ---- parts ----

    def _usage(self, now: float) -> Object:
        measured = self.measured()
        pods = [self._short_pod(each, now) for each in measured]
        return {"node": self._node(measured, pods, now, self._env.host.boot_time), "pods": pods}

    @property
    def _by_cadvisor(self) -> bool:
        return self._env.os.cadvisor_stats(self._env.runtime.version)

    @property
    def _shows_swap(self) -> bool:
        release = Release(*self._env.config.release)
        return self._env.os.reports_swap() and metric_rules(release).swap_usage

    def _node(
        self, measured: Sequence[Measured], pods: Sequence[Object], now: float, boot: float
    ) -> Object:
        env = self._env
        containers = [stats for each in measured for _, stats in each.containers]
        used = int(env.host.cpu_seconds() * 1e9)
        rate = self._rates.rate("", now, used)
        if rate is None:
            rate = shapes.total_stats(
                (pod["cpu"] for pod in pods if "cpu" in pod), "usageNanoCores"
            )
        node: Object = {
            "nodeName": env.config.node_name,
            "systemContainers": [],
            "startTime": rfc3339(boot),
        }
        node["cpu"] = shapes.cpu_stats(now, used, rate)
        node["memory"] = env.os.node_stats(env.host, containers, (), now)["memory"]
        if self._shows_swap:
            used = sum(stats.swap.usage for stats in containers if stats.swap is not None)
            node["swap"] = {
                "time": rfc3339(now),
                "swapAvailableBytes": max(0, env.host.hardware.swap - used),
                "swapUsageBytes": used,
            }
        return node

    def _add_system_containers(self, node: Object, pods: Sequence[Object], now: float) -> None:
        node["systemContainers"] = self._env.os.system_containers(node, pods, now, self._started)

    def _short_pod(self, each: Measured, now: float) -> Object:
        rows = [self._container(container, stats, each.pod) for container, stats in each.containers]
        return self._sums(each, rows, now)

    def _pod(
        self, each: Measured, now: float, disk: DiskSpace, networks: Mapping[str, Any]
    ) -> Object | None:
        env = self._env
        config = each.sandbox.config
        rows = []
        for container, stats in each.containers:
            row = self._container(container, stats, each.pod)
            layer = stats.writable_layer
            counted = layer.inodes_used if layer is not None and disk.inodes else None
            row["rootfs"] = shapes.filesystem_stats(
                stats.time, disk, layer.used if layer is not None else 0, counted
            )
            row["logs"] = self._logs(container, stats.time, disk)
            rows.append(row)
        out = self._sums(each, rows, now)
        if self._by_cadvisor:
            start = ((each.pod or {}).get("status") or {}).get("startTime")
            if not start:
                return None
            out["startTime"] = start
        network = env.os.pod_network_stats(networks.get(each.sandbox.id))
        if network is not None:
            out["network"] = network
        ephemeral: list[Object] = []
        if each.pod is not None:
            ephemeral, persistent = pod_volumes(env, each.pod, config.uid, now, self.mounted)
            if ephemeral or persistent:
                out["volume"] = ephemeral + persistent
        out["ephemeral-storage"] = shapes.ephemeral_storage_stats(
            now, disk, rows, ephemeral, not self._by_cadvisor
        )
        if env.os.cadvisor_containers():
            # plus the sandbox's own
            count = sum(stats.processes for _, stats in each.containers) + 1
            out["process_stats"] = {"process_count": count}
        return out

    def _sums(self, each: Measured, rows: list[Object], now: float) -> Object:
        config = each.sandbox.config
        out: Object = {
            "podRef": {"name": config.name, "namespace": config.namespace, "uid": config.uid},
            "startTime": rfc3339(each.sandbox.created_at),
            "containers": rows or None,
        }
        if rows:
            used = shapes.total_stats((row["cpu"] for row in rows), "usageCoreNanoSeconds")
            cores = shapes.total_stats((row["cpu"] for row in rows), "usageNanoCores")
            out["cpu"] = {
                "time": rows[-1]["cpu"]["time"],
                "usageNanoCores": cores,
                "usageCoreNanoSeconds": used,
            }
            swap = [row["swap"] for row in rows if "swap" in row]
            if swap:
                out["swap"] = {
                    "time": swap[-1]["time"],
                    "swapUsageBytes": shapes.total_stats(swap, "swapUsageBytes"),
                }
            out["memory"] = self._env.os.pod_memory_stats(
                [row["memory"] for row in rows], pod_limit(each.pod)
            )
        return out

    def _container(self, container: Container, stats: ContainerStats, pod: Object | None) -> Object:
        out: Object = {"name": container.name, "startTime": rfc3339(container.created_at)}
        used, cores = (
            (stats.cpu.core_nanoseconds, stats.cpu.nano_cores) if stats.cpu is not None else (0, 0)
        )
        if cores is None:
            cores = self._rates.rate(container.id, stats.time, used)
        out["cpu"] = shapes.cpu_stats(stats.time, used, cores)
        out["memory"] = self._env.os.memory_stats(
            stats, container_memory_limit(pod, container.name)
        )
        if self._shows_swap and stats.swap is not None:
            usage, limit = stats.swap
            left = {} if limit is None else {"swapAvailableBytes": limit - usage}
            out["swap"] = {"time": rfc3339(stats.time), **left, "swapUsageBytes": usage}
        return out

    def _logs(self, container: Container, time: float, disk: DiskSpace) -> Object:
        """The directory of a container's logs, of all its attempts."""
        files = self._env.host.files
        folder = container.log_path[
            : max(container.log_path.rfind("/"), container.log_path.rfind("\\"))
        ]
        used, inodes = files.usage(folder) if folder and files.exists(folder) else (0, 0)
        if self._by_cadvisor or not disk.inodes:
            inodes = disk.inodes_used if disk.inodes else 0
        return shapes.filesystem_stats(time, disk, used, inodes)


def _limit(container: Object) -> int:
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return parse_quantity(limit).value() if limit else 0


def container_memory_limit(pod: Object | None, name: str) -> int:
    """The limit of a container; 0 where there is none."""
    if pod is None:
        return 0
    spec = pod["spec"]
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            if container["name"] == name:
                return _limit(container)
    return 0


def pod_limit(pod: Object | None) -> int:
    """The limit of the whole pod: set when each of its containers has one."""
    limits = [
        _limit(container) for container in (pod or {"spec": {}})["spec"].get("containers") or ()
    ]
    return sum(limits) if limits and all(limits) else 0
