"""Base images of Windows without the tag of a build: there is no `latest` to be had."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene
from transom.windows.images import split
from transom.windows.records import Limit

_BASES = frozenset((
    "mcr.microsoft.com/windows", "mcr.microsoft.com/windows/servercore", "mcr.microsoft.com/windows/nanoserver",
    "mcr.microsoft.com/windows/server",
))


def find(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        for steps, container in workload.containers():
            image = container.get("image")
            if not isinstance(image, str) or "@" in image:
                continue
            repository, tag = split(image)
            if repository in _BASES and tag in ("", "latest"):
                yield Found(workload.obj, (*steps, "image"), f"{repository} has no tag latest")


RULE = Rule("base-tags", find, Limit(
    id="WIN-LINT-005",
    title="Base images of Windows have no tag latest",
    statement="Each tag of a base image is for one build, and the registry has none named latest.",
    effect="fails",
    remedy="Name the build of your nodes: ltsc2019, ltsc2022.",
    checklist=("OS-25",),
    severity="error",
    reason="ErrImagePull",
    message="manifest unknown",
))
