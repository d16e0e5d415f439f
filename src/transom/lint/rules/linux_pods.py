"""Pods that say they are for Linux, with options of Windows: later releases of the API refuse them.

Fields show it, but nobody asks for limits of Windows about pods that are not for Windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene
from transom.windows.podchecks import inner

_LIMIT: Final = "WIN-API-003"
_OPTIONS: Final = ("securityContext", "windowsOptions")


def find(scene: Scene) -> Iterator[Found]:
    for workload in scene.workloads:
        if inner(workload.spec, "os", "name") != "linux":
            continue
        places = [workload.at(*_OPTIONS)] if inner(workload.spec, *_OPTIONS) is not None else []
        places += [(*at, *_OPTIONS) for at, container in workload.containers() if inner(container, *_OPTIONS) is not None]
        for steps in places:
            yield Found(workload.obj, steps, "a pod for Linux may not have windowsOptions", limit=_LIMIT)


RULE = Rule("linux-pods", find, ids=(_LIMIT,))
