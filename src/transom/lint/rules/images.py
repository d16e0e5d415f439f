"""Images of the wrong system: in a pod for Windows, in a pod for Linux, or of both in one pod."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene, Workload
from transom.lint.tree import Steps
from transom.windows.images import os_of
from transom.windows.records import Limit


def _images(workload: Workload, os: str) -> list[tuple[Steps, str]]:
    return [
        ((*steps, "image"), container["image"]) for steps, container in workload.containers()
        if isinstance(container.get("image"), str) and os_of(container["image"]) == os
    ]


def mixed(scene: Scene) -> Iterator[Found]:
    for workload in scene.workloads:
        linux, windows = _images(workload, "linux"), _images(workload, "windows")
        if linux and windows:
            steps, image = linux[0] if workload.windows else windows[0]
            other = windows[0][1] if workload.windows else linux[0][1]
            yield Found(workload.obj, steps, f"{image} and {other} are for different systems and cannot share a pod")


def linux_on_windows(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        if workload.verdict.weight in ("pinned", "said") and not _images(workload, "windows"):
            for steps, image in _images(workload, "linux"):
                yield Found(workload.obj, steps, f"{image} is for Linux, but its pod goes to Windows nodes",
                            remedy="Use an image for Windows, or send the pod to Linux nodes.")


def windows_on_linux(scene: Scene) -> Iterator[Found]:
    for workload in scene.workloads:
        if workload.verdict.os == "linux" and workload.verdict.pinned and not _images(workload, "linux"):
            for steps, image in _images(workload, "windows"):
                yield Found(workload.obj, steps, f"{image} is for Windows, but its pod goes to Linux nodes")


MIXED = Rule("mixed-images", mixed)
LINUX_ON_WINDOWS = Rule("image-os", linux_on_windows)
WINDOWS_ON_LINUX = Rule("windows-image-on-linux", windows_on_linux, Limit(
    id="WIN-LINT-003",
    title="Windows containers do not run on Linux nodes",
    statement="A Linux node has no use for a Windows image: it finds no matching platform and cannot pull it.",
    effect="fails",
    remedy="Select `kubernetes.io/os: windows`.",
    checklist=("OS-11",),
    severity="error",
    reason="ErrImagePull",
    message="no matching manifest for linux/amd64 in the manifest list entries",
))
