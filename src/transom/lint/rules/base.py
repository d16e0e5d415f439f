"""What a rule is: a function over a scene that finds what no single field shows, and the limits that it finds.

The limits stand in `transom.windows.limits` with the name of the rule in `check`. What is good practice rather than a limit of
Windows has its record beside the rule, in the same form, with an id WIN-LINT-....
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from transom.lint.findings import Found
from transom.lint.scene import Scene
from transom.windows.podchecks import Check, Subject
from transom.windows.records import Limit


class Rule(NamedTuple):
    check: str
    find: Callable[[Scene], Iterator[Found]]
    limit: Limit | None = None  # if the registry has none for it
    ids: tuple[str, ...] = ()  # further limits of the registry, which fields show in pods and this rule elsewhere


def of_pods(check: Check, *, windows: bool = True) -> Callable[[Scene], Iterator[Found]]:
    """A check that looks at one pod, as a rule: asked of every pod for Windows, or of all."""

    def find(scene: Scene) -> Iterator[Found]:
        for workload in scene.windows if windows else scene.workloads:
            subject = Subject(workload.spec, workload.verdict, workload.groups, scene.runtime_classes)
            for shown in check(subject):
                yield Found(
                    workload.obj, workload.steps + shown.steps, shown.message, remedy=shown.remedy, nodes=shown.nodes,
                    limit=shown.limit,
                )

    return find
