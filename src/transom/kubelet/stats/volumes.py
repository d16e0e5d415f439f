"""Disk usage of a pod's volumes, measured by scanning their directories below the kubelet's
root.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from transom.kubelet.base import KubeletContext
from transom.kubelet.stats import shapes
from transom.machinery.objects import Object
from transom.machines.api import DiskSpace

# The plugins that can measure their volumes, by the field of a volume; True for those in memory.
_PLUGINS: Final[dict[str, tuple[str, bool]]] = {
    "emptyDir": ("kubernetes.io~empty-dir", False),
    "configMap": ("kubernetes.io~configmap", False),
    "secret": ("kubernetes.io~secret", True),
    "projected": ("kubernetes.io~projected", True),
    "downwardAPI": ("kubernetes.io~downward-api", True),
    "gitRepo": ("kubernetes.io~git-repo", False),
}


class Placed(Protocol):
    """A mounted volume; implemented by `volumes.plugin.Mounted`."""

    path: str
    driver: str

    @property
    def usage(self) -> shapes.VolumeFill | None: ...


Mounted = Callable[[str], Mapping[str, Placed]]
"""A pod's volumes by their names in the pod, for its uid."""


def pod_volumes(
    env: KubeletContext, pod: Object, uid: str, now: float, mounted: Mounted | None = None
) -> tuple[list[Object], list[Object]]:
    """The volumes that count as ephemeral storage, and the others; claims only when their paths are
    known.
    """
    ephemeral: list[Object] = []
    others: list[Object] = []
    root = env.os.join(env.config.root_dir, "pods", uid, "volumes")
    disks: dict[bool, DiskSpace] = {}
    for volume in pod["spec"].get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim is not None or "csi" in volume:
            placed = mounted(uid).get(volume["name"]) if mounted is not None else None
            if placed is not None and placed.path.startswith(root):
                others += _persistent(env, placed, volume, pod["metadata"]["namespace"], now)
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
            continue  # does not exist yet, or no longer
        disk = _less(disks[in_memory], used if in_memory else 0)
        row = shapes.volume_stats(now, disk, used, inodes, volume["name"], None)
        (ephemeral if _is_ephemeral(volume) else others).append(row)
    return ephemeral, others


def _persistent(
    env: KubeletContext, placed: Placed, volume: Any, namespace: str, now: float
) -> list[Object]:
    """For persistent volumes this is the whole file system, measured by the driver where there is
    one.
    """
    claim = volume.get("persistentVolumeClaim")
    reference = {"name": claim["claimName"], "namespace": namespace} if claim is not None else None
    if placed.driver:
        usage = placed.usage
        return (
            []
            if usage is None
            else [shapes.driver_volume_stats(now, usage, volume["name"], reference)]
        )
    try:
        disk = env.host.files.statfs(placed.path)
    except OSError:
        return []
    return [shapes.volume_stats(now, disk, disk.used, disk.inodes_used, volume["name"], reference)]


def _directory(env: KubeletContext, root: str, volume: Any) -> tuple[str, bool] | None:
    for field, (plugin, in_memory) in _PLUGINS.items():
        if field in volume:
            medium = (volume[field] or {}).get("medium") if field == "emptyDir" else None
            return env.os.join(root, plugin, volume["name"]), in_memory or medium == "Memory"
    return None


def _less(disk: DiskSpace, used: int) -> DiskSpace:
    return disk._replace(used=disk.used + used) if used else disk


def _is_ephemeral(volume: Any) -> bool:
    if "emptyDir" in volume:
        return not (volume["emptyDir"] or {}).get("medium")
    return "configMap" in volume or "gitRepo" in volume
