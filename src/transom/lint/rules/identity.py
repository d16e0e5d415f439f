"""Users that a pod forbids itself."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule, inner
from transom.lint.scene import Scene

_ROOT = "containeradministrator"


def find(scene: Scene) -> Iterator[Found]:
    for workload in scene.windows:
        of_pod = inner(workload.spec, "securityContext", "runAsNonRoot")
        user_of_pod = inner(workload.spec, "securityContext", "windowsOptions", "runAsUserName")
        for steps, container in workload.containers():
            own = inner(container, "securityContext", "runAsNonRoot")
            own_user = inner(container, "securityContext", "windowsOptions", "runAsUserName")
            user = own_user if own_user is not None else user_of_pod
            if (own if own is not None else of_pod) is not True or not isinstance(user, str) or user.lower() != _ROOT:
                continue
            options = ("securityContext", "windowsOptions", "runAsUserName")
            at = (*steps, *options) if own_user is not None else workload.at(*options)
            yield Found(workload.obj, at, f"runAsNonRoot forbids {user}: the container is not made")
            if own_user is None:
                break  # once for what the whole pod has


RULE = Rule("run-as-non-root", find)
