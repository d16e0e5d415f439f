"""Images of another build of Windows than the node's."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene, Workload
from transom.lint.tree import Steps
from transom.windows.builds import BUILDS, Build, process_isolation
from transom.windows.images import build_of
from transom.windows.records import Target


def find(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        if workload.host_process or _hyperv(workload):
            continue  # they run on the node's own kernel, or on one of their own
        tagged = [
            ((*steps, "image"), container["image"], build) for steps, container in workload.containers()
            if isinstance(container.get("image"), str) and (build := build_of(container["image"])) is not None
        ]
        known = [group for group in workload.groups if group.target.build is not None]
        told = False
        for steps, image, build in tagged:
            wrong = [group for group in known if not _runs(group.target, build)]
            if known and len(wrong) == len(workload.groups):
                told = True
                nodes = tuple(name for group in wrong for name in group.nodes)
                yield Found(workload.obj, steps, _message(image, build, [group.target for group in wrong]), nodes=nodes)
        if not told and not known:
            yield from _apart(workload, tagged)


def _apart(workload: Workload, tagged: list[tuple[Steps, str, Build]]) -> Iterator[Found]:
    """Whatever the node's build: no node runs images of two builds."""
    for steps, image, build in tagged[1:]:
        first = tagged[0]
        if build.number != first[2].number and not _related(build.number, first[2].number):
            message = f"{image} is of build {build.number} and {first[1]} of build {first[2].number}: no node runs both"
            yield Found(workload.obj, steps, message)
            return


def _runs(target: Target, build: Build) -> bool:
    return process_isolation(target.build or 0, build.number, stable_abi=target.runtime != "docker")


def _related(one: int, other: int) -> bool:
    return process_isolation(max(one, other), min(one, other), stable_abi=True)


def _hyperv(workload: Workload) -> bool:
    name = workload.spec.get("runtimeClassName")
    return isinstance(name, str) and any(word in name.lower() for word in ("hyperv", "hypervisor"))


def _message(image: str, build: Build, targets: list[Target]) -> str:
    numbers = sorted({target.build for target in targets if target.build is not None})
    names = ", ".join(f"{number} ({BUILDS[number].tags[0]})" if number in BUILDS else str(number) for number in numbers)
    return f"{image} is of build {build.number} and does not start on nodes of build {names}"


RULE = Rule("image-build", find)
