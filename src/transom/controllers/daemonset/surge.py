"""Rolling updates with maxSurge: the new pod of a node starts beside the old one, which is deleted
when the new one is available. Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transom.controllers import pods
from transom.controllers.daemonset.template import is_updated
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object


class SurgePlan(NamedTuple):
    delete: list[str]  # names of old pods
    create: list[str]  # names of nodes


def surplus_pods(
    running: Sequence[Object], revision_hash: str, min_ready: int, now: float
) -> list[Object]:
    """Pods to delete from one node. `running` are its pods, oldest first: the oldest new and the
    oldest old one may stay, the old one only while it is ready and the new one is not available.
    """
    if len(running) <= 1:
        return []
    new: Object | None = None
    old: Object | None = None
    out = []
    for pod in running:
        if is_updated(pod, revision_hash):
            if new is None:
                new = pod
                continue
        elif old is None:
            old = pod
            continue
        out.append(pod)
    if (
        new is not None
        and old is not None
        and (not pods.is_pod_ready(old) or pods.is_pod_available(new, min_ready, now))
    ):
        out.append(old)
    return out


def plan_surge(
    by_node: Mapping[str, Sequence[Object]],
    revision_hash: str,
    min_ready: int,
    now: float,
    most: int,
) -> SurgePlan:
    """The next step of an update that may have `most` nodes with a second pod."""
    plan = SurgePlan([], [])
    candidates: list[str] = []
    surging = 0
    for node, there in by_node.items():
        live = [pod for pod in there if not pods.is_pod_terminating(pod)]
        new = [pod for pod in live if is_updated(pod, revision_hash)]
        old = [pod for pod in live if not is_updated(pod, revision_hash)]
        if len(new) > 1 or len(old) > 1:
            surging += 1  # the surplus is deleted first
        elif old and not new:
            available = pods.is_pod_available(old[0], min_ready, now)
            (candidates if available else plan.create).append(node)
        elif old and new:
            if pods.is_pod_available(new[0], min_ready, now):
                plan.delete.append(old[0]["metadata"]["name"])
            else:
                surging += 1
    plan.create.extend(candidates[: max(most - surging, 0)])
    return plan
