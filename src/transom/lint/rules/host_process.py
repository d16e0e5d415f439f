"""HostProcess pods that the API refuses."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Change, Fix, Found
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene
from transom.windows.podchecks import inner

_OPTION = ("securityContext", "windowsOptions", "hostProcess")


def find(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        if not workload.host_process or workload.partial:
            continue
        if workload.spec.get("hostNetwork") is not True:
            fix = Fix("use the host's network", (Change("set", workload.at("hostNetwork"), True),))
            yield Found(workload.obj, workload.at("hostNetwork"), "a HostProcess pod must have hostNetwork: true", fix=fix)
        of_pod = inner(workload.spec, *_OPTION)
        for steps, container in workload.containers():
            own = inner(container, *_OPTION)
            if (own if own is not None else of_pod) is not True:
                name = container.get("name", "")
                yield Found(workload.obj, steps, f"container {name} is no HostProcess container, but others of its pod are")


RULE = Rule("host-process", find)
