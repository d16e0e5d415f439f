"""What the volumes of a pod take up, by looking at their directories below the kubelet's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from transom.hosts.api import Disk
from transom.kubelet.base import Env
from transom.kubelet.stats import shapes
from transom.machinery.objects import Object

# The plugins that can measure their volumes, by the field of a volume; those with True keep them in memory.
_PLUGINS: Final[dict[str, tuple[str, bool]]] = {
    "emptyDir": ("kubernetes.io~empty-dir", False),
    "configMap": ("kubernetes.io~configmap", False),
    "secret": ("kubernetes.io~secret", True),
    "projected": ("kubernetes.io~projected", True),
    "downwardAPI": ("kubernetes.io~downward-api", True),
    "gitRepo": ("kubernetes.io~git-repo", False),
}


class Placed(Protocol):
    """A volume that is there; `volumes.plugin.Mounted` is one."""

    path: str


Mounted = Callable[[str], Mapping[str, Placed]]
"""Volumes of a pod by their names in the pod, for its uid."""


def pod_volumes(
    env: Env, pod: Object, uid: str, now: float, mounted: Mounted | None = None
) -> tuple[list[Object], list[Object]]:
    """Those that count as ephemeral storage, and the others; claims only when somebody knows where they are."""
    ephemeral: list[Object] = []
    others: list[Object] = []
    root = env.os.join(env.config.root_dir, "pods", uid, "volumes")
    disks: dict[bool, Disk] = {}
    for volume in pod["spec"].get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim is not None:
            placed = mounted(uid).get(volume["name"]) if mounted is not None else None
            if placed is not None and placed.path.startswith(root):
                disk = env.host.disk()  # of persistent volumes the whole file system is measured
                reference = {"name": claim["claimName"], "namespace": pod["metadata"]["namespace"]}
                others.append(shapes.volume(now, disk, disk.used, disk.inodes_used, volume["name"], reference))
            continue
        found = _directory(env, root, volume)
        if found is None:
            continue
        path, in_memory = found
        if in_memory not in disks:
            disks[in_memory] = env.os.volume_disk(env.host, in_memory)
        try:
            used, inodes = env.host.files.usage(path)
        except OSError:
            continue  # not there yet, or not any more
        disk = _less(disks[in_memory], used if in_memory else 0)
        row = shapes.volume(now, disk, used, inodes, volume["name"], None)
        (ephemeral if _is_ephemeral(volume) else others).append(row)
    return ephemeral, others


def _directory(env: Env, root: str, volume: Any) -> tuple[str, bool] | None:
    for field, (plugin, in_memory) in _PLUGINS.items():
        if field in volume:
            medium = (volume[field] or {}).get("medium") if field == "emptyDir" else None
            return env.os.join(root, plugin, volume["name"]), in_memory or medium == "Memory"
    return None


def _less(disk: Disk, used: int) -> Disk:
    return disk._replace(used=disk.used + used) if used else disk


def _is_ephemeral(volume: Any) -> bool:
    if "emptyDir" in volume:
        return not (volume["emptyDir"] or {}).get("medium")
    return "configMap" in volume or "gitRepo" in volume
