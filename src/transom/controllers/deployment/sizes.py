"""The sizes of a Deployment's ReplicaSets: surge, unavailability and proportional shares. Pure
functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from transom.controllers.deployment.sets import (
    MAX_REPLICAS,
    annotated_number,
    spec_replicas,
    total_replicas,
)
from transom.controllers.percent import scaled_value
from transom.machinery.objects import Object

ROLLING, RECREATE = "RollingUpdate", "Recreate"


def is_rolling(deployment: Object) -> bool:
    return bool(deployment["spec"]["strategy"].get("type") == ROLLING)


def fenceposts(deployment: Object) -> tuple[int, int]:
    """Surge and unavailability in pods; at least one is not zero, because the rollout would not
    progress otherwise.
    """
    limits = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    wanted = spec_replicas(deployment)
    surge = scaled_value(limits.get("maxSurge", 0), wanted, up=True)
    unavailable = scaled_value(limits.get("maxUnavailable", 0), wanted, up=False)
    return surge, unavailable or (0 if surge else 1)


def max_surge(deployment: Object) -> int:
    return fenceposts(deployment)[0] if is_rolling(deployment) else 0


def max_unavailable(deployment: Object) -> int:
    wanted = spec_replicas(deployment)
    if not is_rolling(deployment) or not wanted:
        return 0
    return min(fenceposts(deployment)[1], wanted)


def new_set_replicas(deployment: Object, all_sets: Iterable[Object], new_set: Object) -> int:
    """The allowed size of the new ReplicaSet, given the others."""
    wanted, current = spec_replicas(deployment), spec_replicas(new_set)
    if not is_rolling(deployment):
        return wanted
    limits = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    room = (
        wanted + scaled_value(limits.get("maxSurge", 0), wanted, up=True) - total_replicas(all_sets)
    )
    return current if room <= 0 else current + min(room, wanted - current)


def proportion(replica_set: Object, deployment: Object, to_add: int, added: int) -> int:
    """The share of one ReplicaSet in `to_add` pods, of which `added` are already distributed."""
    if not spec_replicas(replica_set) or not to_add or to_add == added:
        return 0
    share, left = _fraction(replica_set, deployment), to_add - added
    return min(share, left) if to_add > 0 else max(share, left)


def _fraction(replica_set: Object, deployment: Object) -> int:
    wanted, size = spec_replicas(deployment), spec_replicas(replica_set)
    if not wanted:
        return -size
    before = annotated_number(replica_set, MAX_REPLICAS)
    if before is None:
        before = (deployment.get("status") or {}).get("replicas", 0)
    if not before:
        return 0  # a share of zero; the largest set gets the remainder
    return _round(size * (wanted + max_surge(deployment)) / before) - size


def _round(value: float) -> int:
    """Rounds half away from zero."""
    return math.ceil(value - 0.5) if value < 0 else math.floor(value + 0.5)
