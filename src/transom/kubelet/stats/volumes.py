"""What the volumes of a pod take up, by looking at their directories below the kubelet's own."""

from __future__ import annotations

from typing import Any, Final

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
_CLAIMED: Final = ("kubernetes.io~local-volume", "kubernetes.io~csi", "kubernetes.io~nfs", "kubernetes.io~host-path")


def pod_volumes(env: Env, pod: Object, uid: str, now: float) -> tuple[list[Object], list[Object]]:
    """Those that count as ephemeral storage, and the others."""
    ephemeral: list[Object] = []
    others: list[Object] = []
    root = env.os.join(env.config.root_dir, "pods", uid, "volumes")
    disks: dict[bool, Disk] = {}
    for volume in pod["spec"].get("volumes") or ():
        found = _directory(env, root, volume)
        if found is None:
            continue
        path, in_memory = found
        disk = disks.get(in_memory)
        if disk is None:
            disk = disks[in_memory] = env.os.volume_disk(env.host, in_memory)
        try:
            used, inodes = env.host.files.usage(path)
        except OSError:
            continue  # not there yet, or not any more
        claim = volume.get("persistentVolumeClaim")
        reference = {"name": claim["claimName"], "namespace": pod["metadata"]["namespace"]} if claim else None
        row = shapes.volume(now, _less(disk, used if in_memory else 0), used, inodes, volume["name"], reference)
        (ephemeral if _is_ephemeral(volume) else others).append(row)
    return ephemeral, others


def _directory(env: Env, root: str, volume: Any) -> tuple[str, bool] | None:
    name = volume["name"]
    for field, (plugin, in_memory) in _PLUGINS.items():
        if field in volume:
            medium = (volume[field] or {}).get("medium") if field == "emptyDir" else None
            return env.os.join(root, plugin, name), in_memory or medium == "Memory"
    if "persistentVolumeClaim" in volume:
        for plugin in _CLAIMED[:-1]:
            folder = env.os.join(root, plugin)
            if env.host.files.exists(folder) and (names := env.host.files.listdir(folder)):
                return env.os.join(folder, name if name in names else names[0]), False
    return None


def _less(disk: Disk, used: int) -> Disk:
    return disk._replace(used=disk.used + used) if used else disk


def _is_ephemeral(volume: Any) -> bool:
    if "emptyDir" in volume:
        return not (volume["emptyDir"] or {}).get("medium")
    return "configMap" in volume or "gitRepo" in volume
