"""Images of the wrong system: in a pod for Windows, in a pod for Linux, or of both in one pod."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule, of_pods
from transom.lint.scene import Scene
from transom.windows.podchecks import images, linux_images, mixed_images
from transom.windows.records import Limit


def windows_on_linux(scene: Scene) -> Iterator[Found]:
    for workload in scene.workloads:
        if workload.verdict.os == "linux" and workload.verdict.pinned and not images(workload.spec, "linux"):
            for steps, image in images(workload.spec, "windows"):
                yield Found(workload.obj, workload.steps + steps, f"{image} is for Windows, but its pod goes to Linux nodes")


MIXED = Rule("mixed-images", of_pods(mixed_images, windows=False))
LINUX_ON_WINDOWS = Rule("image-os", of_pods(linux_images))
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
