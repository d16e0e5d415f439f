"""What pods use of memory and disk, measured only for those that are asked about. One `Usage` is one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from transom.kubelet import paths
from transom.kubelet.base import Env
from transom.kubelet.podstate import uid_of
from transom.machinery.objects import Object
from transom.runtime.api import ContainerStats


class Disk(NamedTuple):
    used: int = 0
    inodes: int = 0

    def __add__(self, other: object) -> Disk:
        assert isinstance(other, Disk)
        return Disk(self.used + other.used, self.inodes + other.inodes)


class ContainerUse(NamedTuple):
    name: str
    memory: int
    root: Disk
    logs: Disk


class PodUse(NamedTuple):
    containers: tuple[ContainerUse, ...]

    @property
    def memory(self) -> int:
        return sum(container.memory for container in self.containers)

    @property
    def disk(self) -> Disk:
        """Of writable layers and logs."""
        return sum((container.root + container.logs for container in self.containers), Disk())


class Usage:
    """Measures on demand and remembers."""

    __slots__ = ("_env", "_pods", "_volumes")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._pods: dict[str, PodUse | None] = {}
        self._volumes: dict[str, dict[str, Disk]] = {}

    def pod(self, pod: Object) -> PodUse | None:
        """None for a pod of which nothing is measured: it has no sandbox yet."""
        uid = uid_of(pod)
        if uid not in self._pods:
            runtime = self._env.runtime
            self._pods[uid] = (
                PodUse(tuple(self._container(stats) for stats in runtime.container_stats(uid)))
                if runtime.sandboxes(uid) else None
            )
        return self._pods[uid]

    def _container(self, stats: ContainerStats) -> ContainerUse:
        layer = stats.writable_layer
        container = self._env.runtime.container(stats.id)
        path = container.log_path if container is not None else ""
        logs = self._directory(path[: max(path.rfind("/"), path.rfind("\\"))]) if path else Disk()
        root = Disk(layer.used, layer.inodes_used) if layer is not None else Disk()
        return ContainerUse(stats.name, stats.working_set or 0, root, logs)

    def volumes(self, pod: Object) -> dict[str, Disk]:
        """By name, those that a kubelet can measure by looking at them."""
        from transom.kubelet.stats.volumes import pod_volumes

        uid = uid_of(pod)
        found = self._volumes.get(uid)
        if found is None:
            rows = [row for part in pod_volumes(self._env, pod, uid, self._env.clock.time()) for row in part]
            found = self._volumes[uid] = {row["name"]: Disk(row["usedBytes"], row["inodesUsed"]) for row in rows}
        return found

    def local_volumes(self, pod: Object, counts: Callable[[Object], bool]) -> Disk:
        """The sum of some volumes of a pod."""
        names = [volume["name"] for volume in pod["spec"].get("volumes") or () if counts(volume)]
        if not names:
            return Disk()
        found = self.volumes(pod)
        return sum((found[name] for name in names if name in found), Disk())

    def hosts_file(self, pod: Object) -> Disk:
        try:
            stat = self._env.host.files.stat(self._env.os.join(paths.pod_dir(self._env, uid_of(pod)), "etc-hosts"))
        except OSError:
            return Disk()  # this pod has none
        return Disk(stat.size, 1)

    def _directory(self, path: str) -> Disk:
        try:
            return Disk(*self._env.host.files.usage(path))
        except OSError:
            return Disk()  # nothing was written yet


def _is_disk_empty_dir(volume: Object) -> bool:
    return "emptyDir" in volume and (volume["emptyDir"] or {}).get("medium") != "Memory"


def is_local(volume: Object) -> bool:
    """Counts when pods are ranked by their disk usage."""
    return _is_disk_empty_dir(volume) or any(kind in volume for kind in ("hostPath", "configMap", "gitRepo"))


def is_local_ephemeral(volume: Object) -> bool:
    """Counts against a pod's limit of ephemeral storage."""
    return _is_disk_empty_dir(volume) or any(kind in volume for kind in ("configMap", "downwardAPI", "gitRepo"))


def working_set(stats: Iterable[ContainerStats]) -> int:
    return sum(each.working_set or 0 for each in stats)
