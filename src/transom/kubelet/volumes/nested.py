"""Mount points for volumes nested in another volume: they must exist before, because the outer
volume is read-only.

The mounts of a pod are sorted once for all of its volumes: a pod can have thousands of both.
"""

from __future__ import annotations

import asyncio
import posixpath
from bisect import bisect_left
from collections import defaultdict

from transom.kit.named_tuple import NamedTuple
from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import VolumeFailure
from transom.machinery import podutil
from transom.machinery.objects import Object

_PODS = 4  # whose mounts are remembered
_IN_A_ROW = 500  # directories before other tasks may run
_AFTER_SLASH = chr(ord("/") + 1)


class ContainerMounts(NamedTuple):
    paths: list[str]  # of all mounts, sorted
    of_volume: dict[str, set[str]]  # the paths of each volume


class NestedMountPoints:
    """Creates them, and remembers the mounts of the last pods."""

    def __init__(self, env: KubeletContext) -> None:
        self._env = env
        self._known: dict[int, tuple[Object, list[ContainerMounts]]] = {}

    async def make(self, pod: Object, volume: str, directory: str) -> None:
        """Creates the mount points in a volume that is set up in the directory. Raises
        VolumeFailure and OSError.
        """
        made = 0
        for mounts in self._mounts(pod["spec"]):
            for point in sorted(mounts.of_volume.get(volume, ())):
                if point.startswith("../"):
                    raise VolumeFailure(f"invalid container mount point {point}")
                for nested in nested_paths(point, mounts.paths):
                    self._env.host.files.mkdir(self._env.os.join(directory, nested), 0o755)
                    made += 1
                    if made % _IN_A_ROW == 0:
                        await asyncio.sleep(0)

    def _mounts(self, spec: Object) -> list[ContainerMounts]:
        known = self._known.pop(id(spec), None)
        if known is None or known[0] is not spec:
            known = spec, container_mounts(spec)
        self._known[id(spec)] = known  # now the last one
        if len(self._known) > _PODS:
            del self._known[next(iter(self._known))]
        return known[1]


def container_mounts(spec: Object) -> list[ContainerMounts]:
    """The mounts of all containers that have more than one."""
    found = []
    for container in podutil.visit_containers(spec):
        mounts = container.get("volumeMounts") or ()
        if len(mounts) < 2:
            continue
        of_volume: defaultdict[str, set[str]] = defaultdict(set)
        for mount in mounts:
            of_volume[mount["name"]].add(posixpath.normpath(mount["mountPath"]))
        found.append(ContainerMounts(sorted(set().union(*of_volume.values())), dict(of_volume)))
    return found


def nested_paths(point: str, paths: list[str]) -> list[str]:
    """The paths below the point, relative to it, without those below another one of them."""
    found = []
    start = point + "/"
    at, end = bisect_left(paths, start), bisect_left(paths, point + _AFTER_SLASH)
    while at < end:
        path = paths[at]
        found.append(path[len(start) :])
        at += 1
        if at < end and paths[at].startswith(path + "/"):
            at = bisect_left(paths, path + _AFTER_SLASH, at, end)
    return found
