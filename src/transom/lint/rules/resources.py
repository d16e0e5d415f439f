"""Memory limits: on Windows nothing else bounds what a container takes."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene, Workload
from transom.machinery import quantity
from transom.windows.podchecks import inner, listed


def missing(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        if workload.partial or _limited_by_namespace(scene, workload):
            continue
        bare = [
            (steps, str(container.get("name", ""))) for steps, container in workload.containers()
            if steps[-2] == "containers" and inner(container, "resources", "limits", "memory") is None
        ]
        if bare and inner(workload.spec, "resources", "limits", "memory") is None:
            names = ", ".join(name for _, name in bare)
            what = f"container {names} has no memory limit" if len(bare) == 1 else f"containers {names} have no memory limit"
            yield Found(workload.obj, bare[0][0], what, severity="info" if workload.host_process else None)


def _limited_by_namespace(scene: Scene, workload: Workload) -> bool:
    return any(
        limit.namespace == workload.obj.namespace and any(
            isinstance(one, dict) and one.get("type") == "Container" and inner(one, "default", "memory")
            for one in listed(limit.spec.get("limits"))
        )
        for limit in scene.of("LimitRange")
    )


def differ(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        for steps, container in workload.containers():
            limit = inner(container, "resources", "limits", "memory")
            request = inner(container, "resources", "requests", "memory")
            if limit is not None and request is not None and not _equal(limit, request):
                message = f"it requests {request} of memory, but may take {limit}"
                yield Found(workload.obj, (*steps, "resources", "requests", "memory"), message)


def _equal(one: object, other: object) -> bool:
    try:
        return quantity.parse(str(one)) == quantity.parse(str(other))
    except ValueError:
        return True  # the API will say what is wrong with it


MISSING = Rule("memory-limits", missing)
DIFFER = Rule("requests-differ", differ)
