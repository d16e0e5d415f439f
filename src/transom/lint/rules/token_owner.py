"""A user's number that all containers name by themselves: their pod's token would belong to it, and cannot on Windows.

Fields show what a pod's own securityContext says; here are the pods where only the containers say it.
"""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Change, Fix, Found
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene, Workload
from transom.lint.tree import Steps
from transom.windows.podchecks import inner, listed

_GIVEN, _ALWAYS = "WIN-SEC-023", "WIN-SEC-025"  # a volume of the pod's own, and the one that later releases add
_USER = ("securityContext", "runAsUser")


def find(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        places = _places(workload)
        limit = _GIVEN if _has_token(workload) else _ALWAYS
        if not places or (limit == _ALWAYS and workload.spec.get("automountServiceAccountToken") is False):
            continue
        fix = Fix("drop runAsUser", tuple(Change("drop", steps) for steps in places)) if workload.runs_nowhere_else else None
        message = "all containers run as this user, who cannot be given the pod's token: the pod does not start"
        yield Found(workload.obj, places[0], message, fix=fix, limit=limit)


def _places(workload: Workload) -> list[Steps]:
    """Where all containers say the same number; nowhere if they do not."""
    found = [
        ((*steps, *_USER), inner(container, *_USER)) for steps, container in workload.containers()
        if steps[-2] != "ephemeralContainers"
    ]
    same = bool(found) and isinstance(found[0][1], int) and all(user == found[0][1] for _, user in found)
    return [steps for steps, _ in found] if same and inner(workload.spec, *_USER) is None else []


def _has_token(workload: Workload) -> bool:
    return any(
        inner(source, "serviceAccountToken") is not None
        for volume in listed(workload.spec.get("volumes")) for source in listed(inner(volume, "projected", "sources"))
    )


RULE = Rule("token-owner", find, ids=(_GIVEN, _ALWAYS))
