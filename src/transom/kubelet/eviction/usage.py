"""Memory and disk usage of pods, measured only on demand. One `PodUsageMeter` represents one
moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from transom.kit.named_tuple import NamedTuple
from transom.kubelet import paths
from transom.kubelet.base import KubeletContext
from transom.kubelet.podstate import uid_of
from transom.kubelet.stats.volumes import pod_volumes
from transom.machinery.objects import Object
from transom.runtime.api import ContainerStats


class DiskUsage(NamedTuple):
    used: int = 0
    inodes: int = 0

    def __add__(self, other: object) -> DiskUsage:
        assert isinstance(other, DiskUsage)
        return DiskUsage(self.used + other.used, self.inodes + other.inodes)


class ContainerUse(NamedTuple):
    name: str
    memory: int
    root: DiskUsage
    logs: DiskUsage


class PodUse(NamedTuple):
    containers: tuple[ContainerUse, ...]

    @property
    def memory(self) -> int:
        return sum(container.memory for container in self.containers)

    @property
    def disk(self) -> DiskUsage:
        """The usage of writable layers and logs."""
        return sum((container.root + container.logs for container in self.containers), DiskUsage())


class PodUsageMeter:
    """Measures on demand and caches the result."""

    __slots__ = ("_env", "_pods", "_volumes")

    def __init__(self, env: KubeletContext) -> None:
        self._env = env
        self._pods: dict[str, PodUse | None] = {}
        self._volumes: dict[str, dict[str, DiskUsage]] = {}

    def pod(self, pod: Object) -> PodUse | None:
        """None for a pod that cannot be measured because it has no sandbox yet."""
        uid = uid_of(pod)
        if uid not in self._pods:
            runtime = self._env.runtime
            self._pods[uid] = (
                PodUse(tuple(self._container(stats) for stats in runtime.container_stats(uid)))
                if runtime.sandboxes(uid)
                else None
            )
        return self._pods[uid]

    def _container(self, stats: ContainerStats) -> ContainerUse:
        layer = stats.writable_layer
        container = self._env.runtime.container(stats.id)
        path = container.log_path if container is not None else ""
        logs = (
            self._directory(path[: max(path.rfind("/"), path.rfind("\\"))]) if path else DiskUsage()
        )
        root = DiskUsage(layer.used, layer.inodes_used) if layer is not None else DiskUsage()
        return ContainerUse(stats.name, stats.working_set or 0, root, logs)

    def volumes(self, pod: Object) -> dict[str, DiskUsage]:
        """By name, the volumes that a kubelet can measure by scanning them."""
        uid = uid_of(pod)
        found = self._volumes.get(uid)
        if found is None:
            rows = [
                row
                for part in pod_volumes(self._env, pod, uid, self._env.clock.time())
                for row in part
            ]
            found = self._volumes[uid] = {
                row["name"]: DiskUsage(row["usedBytes"], row["inodesUsed"]) for row in rows
            }
        return found

    def local_volumes(self, pod: Object, counts: Callable[[Object], bool]) -> DiskUsage:
        """The total of some volumes of a pod."""
        names = [volume["name"] for volume in pod["spec"].get("volumes") or () if counts(volume)]
        if not names:
            return DiskUsage()
        found = self.volumes(pod)
        return sum((found[name] for name in names if name in found), DiskUsage())

    def hosts_file(self, pod: Object) -> DiskUsage:
        try:
            stat = self._env.host.files.stat(
                self._env.os.join(paths.pod_dir(self._env, uid_of(pod)), "etc-hosts")
            )
        except OSError:
            return DiskUsage()  # this pod has none
        return DiskUsage(stat.size, 1)

    def _directory(self, path: str) -> DiskUsage:
        try:
            return DiskUsage(*self._env.host.files.usage(path))
        except OSError:
            return DiskUsage()  # nothing written yet


def _is_disk_empty_dir(volume: Object) -> bool:
    return "emptyDir" in volume and (volume["emptyDir"] or {}).get("medium") != "Memory"


def is_local(volume: Object) -> bool:
    """Counts when pods are ranked by disk usage."""
    return _is_disk_empty_dir(volume) or any(
        kind in volume for kind in ("hostPath", "configMap", "gitRepo")
    )


def is_local_ephemeral(volume: Object) -> bool:
    """Counts against a pod's ephemeral-storage limit."""
    return _is_disk_empty_dir(volume) or any(
        kind in volume for kind in ("configMap", "downwardAPI", "gitRepo")
    )


def working_set(stats: Iterable[ContainerStats]) -> int:
    return sum(each.working_set or 0 for each in stats)
