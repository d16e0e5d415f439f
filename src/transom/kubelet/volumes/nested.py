"""Mount points for volumes nested in another volume: they must exist before, because the outer
volume is read-only.
"""

from __future__ import annotations

import posixpath

from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import VolumeFailure
from transom.machinery import podutil
from transom.machinery.objects import Object


def make_nested_mount_points(env: KubeletContext, pod: Object, volume: str, directory: str) -> None:
    for container in podutil.visit_containers(pod["spec"]):
        mounts = container.get("volumeMounts") or ()
        if len(mounts) < 2:
            continue
        every = sorted(posixpath.normpath(m["mountPath"]) for m in mounts)
        for mount in mounts:
            if mount["name"] == volume:
                _make(env, posixpath.normpath(mount["mountPath"]), every, directory)


def _make(env: KubeletContext, point: str, every: list[str], directory: str) -> None:
    if point.startswith("../"):
        raise VolumeFailure(f"invalid container mount point {point}")
    last = ""
    for other in every:
        if not other.startswith(point + "/") or (last and other.startswith(last + "/")):
            continue
        last = other
        env.host.files.mkdir(env.os.join(directory, other[len(point) + 1 :]), 0o755)
