"""The status of a Deployment and its conditions: availability, progress, failures. Pure functions;
`now` is a parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transom.controllers.deployment.sets import spec_replicas, total_replicas, total_status
from transom.controllers.deployment.sizes import max_unavailable
from transom.kit.clock import parse_rfc3339, rfc3339
from transom.machinery.objects import Object

AVAILABLE, PROGRESSING, REPLICA_FAILURE = "Available", "Progressing", "ReplicaFailure"
NEW_SET_CREATED, FOUND_NEW_SET, SET_CREATE_ERROR = (
    "NewReplicaSetCreated",
    "FoundNewReplicaSet",
    "ReplicaSetCreateError",
)
SET_UPDATED, NEW_SET_AVAILABLE, TIMED_OUT = (
    "ReplicaSetUpdated",
    "NewReplicaSetAvailable",
    "ProgressDeadlineExceeded",
)
PAUSED, RESUMED = "DeploymentPaused", "DeploymentResumed"
FOREVER = (1 << 31) - 1  # the value that means no deadline or limit


# ---- conditions ----


def make_deployment_condition(
    kind: str, status: str, reason: str, message: str, now: float
) -> Object:
    time = rfc3339(now)
    return {
        "type": kind,
        "status": status,
        "lastUpdateTime": time,
        "lastTransitionTime": time,
        "reason": reason,
        "message": message,
    }


def get_deployment_condition(status: Object, kind: str) -> Object | None:
    return next((c for c in status.get("conditions") or () if c["type"] == kind), None)


def set_deployment_condition(status: Object, new: Object) -> None:
    """Adds or replaces a condition; no change if status and reason are the same."""
    old = get_deployment_condition(status, new["type"])
    if old is not None and old["status"] == new["status"]:
        if old.get("reason") == new["reason"]:
            return
        new = {**new, "lastTransitionTime": old["lastTransitionTime"]}
    remove_deployment_condition(status, new["type"])
    status["conditions"] = [*status.get("conditions", ()), new]


def remove_deployment_condition(status: Object, kind: str) -> None:
    left = [c for c in status.get("conditions") or () if c["type"] != kind]
    if left:
        status["conditions"] = left
    else:
        status.pop("conditions", None)


# ---- the settings of a rollout ----


def has_deadline(deployment: Object) -> bool:
    return deployment["spec"].get("progressDeadlineSeconds") not in (None, FOREVER)


def is_complete(deployment: Object, status: Object) -> bool:
    """All pods have the new template and are available, and no old ones are left."""
    wanted = spec_replicas(deployment)
    return status.get("updatedReplicas", 0) == status.get("replicas", 0) == status.get(
        "availableReplicas", 0
    ) == wanted and status.get("observedGeneration", 0) >= deployment["metadata"].get(
        "generation", 0
    )


def _has_progressed(old: Object, new: Object) -> bool:
    def outdated(status: Object) -> int:
        return status.get("replicas", 0) - status.get("updatedReplicas", 0)

    return outdated(new) < outdated(old) or any(
        new.get(field, 0) > old.get(field, 0)
        for field in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )


def _has_timed_out(deployment: Object, status: Object, now: float) -> bool:
    progressing = get_deployment_condition(status, PROGRESSING)
    if progressing is None or progressing.get("reason") == NEW_SET_AVAILABLE:
        return False  # nothing to measure from: no progress yet, or a completed rollout
    if progressing.get("reason") == TIMED_OUT:
        return True
    since = parse_rfc3339(progressing["lastUpdateTime"])
    return since + int(deployment["spec"]["progressDeadlineSeconds"]) < now


def next_check(deployment: Object, status: Object, now: float) -> float | None:
    """Seconds until the deadline of a stalled rollout; None if there is none."""
    progressing = get_deployment_condition(deployment.get("status") or {}, PROGRESSING)
    if not has_deadline(deployment) or progressing is None:
        return None
    if is_complete(deployment, status) or progressing.get("reason") == TIMED_OUT:
        return None
    since = parse_rfc3339(progressing["lastUpdateTime"])
    return since + int(deployment["spec"]["progressDeadlineSeconds"]) - now


# ---- the status ----


def calculate_deployment_status(
    deployment: Object,
    all_sets: Sequence[Object],
    new_set: Object | None,
    now: float,
    *,
    terminating: bool = False,
) -> Object:
    """Computes the status from the ReplicaSets, with the Available condition. `terminating`: with
    the number of terminating pods.
    """
    old = deployment.get("status") or {}
    available = total_status(all_sets, "availableReplicas")
    counts = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": total_status(all_sets, "replicas"),
        "updatedReplicas": total_status((new_set,), "replicas") if new_set is not None else 0,
        "readyReplicas": total_status(all_sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(total_replicas(all_sets) - available, 0),
    }
    status: Object = {name: number for name, number in counts.items() if number}
    if terminating and all(
        (s.get("status") or {}).get("terminatingReplicas") is not None for s in all_sets
    ):
        status["terminatingReplicas"] = total_status(all_sets, "terminatingReplicas")
    for field in ("conditions", "collisionCount"):
        if old.get(field) is not None:
            status[field] = old[field]
    enough = available >= spec_replicas(deployment) - max_unavailable(deployment)
    set_deployment_condition(
        status,
        make_deployment_condition(
            AVAILABLE,
            "True" if enough else "False",
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            "Deployment has minimum availability."
            if enough
            else "Deployment does not have minimum availability.",
            now,
        ),
    )
    return status


def rollout_status(
    deployment: Object,
    all_sets: Sequence[Object],
    new_set: Object | None,
    now: float,
    *,
    terminating: bool = False,
) -> Object:
    """Like `calculate_deployment_status`, with the Progressing condition."""
    status = calculate_deployment_status(
        deployment, all_sets, new_set, now, terminating=terminating
    )
    if not has_deadline(deployment):
        remove_deployment_condition(status, PROGRESSING)
    else:
        _progress_condition(deployment, status, new_set, now)
    failures = _failures((new_set,) if new_set is not None else ()) or _failures(all_sets)
    if failures:
        set_deployment_condition(status, failures[0])
    else:
        remove_deployment_condition(status, REPLICA_FAILURE)
    return status


def _progress_condition(
    deployment: Object, status: Object, new_set: Object | None, now: float
) -> None:
    old = deployment.get("status") or {}
    before = get_deployment_condition(old, PROGRESSING)
    if (
        before is not None
        and before.get("reason") == NEW_SET_AVAILABLE
        and status.get("replicas", 0) == status.get("updatedReplicas", 0)
    ):
        return  # completed before: this is not a rollout
    if new_set is not None:
        who = f'ReplicaSet "{new_set["metadata"]["name"]}"'
    else:
        who = f'Deployment "{deployment["metadata"]["name"]}"'
    if is_complete(deployment, status):
        message = f"{who} has successfully progressed."
        set_deployment_condition(
            status, make_deployment_condition(PROGRESSING, "True", NEW_SET_AVAILABLE, message, now)
        )
    elif _has_progressed(old, status):
        new = make_deployment_condition(
            PROGRESSING, "True", SET_UPDATED, f"{who} is progressing.", now
        )
        if before is not None:
            # The update time changes with every step, so replace even an equal condition.
            if before["status"] == "True":
                new["lastTransitionTime"] = before["lastTransitionTime"]
            remove_deployment_condition(status, PROGRESSING)
        set_deployment_condition(status, new)
    elif _has_timed_out(deployment, status, now):
        message = f"{who} has timed out progressing."
        set_deployment_condition(
            status, make_deployment_condition(PROGRESSING, "False", TIMED_OUT, message, now)
        )


def _failures(sets: Iterable[Object]) -> list[Object]:
    return [
        {**found, "lastUpdateTime": found["lastTransitionTime"]}
        for replica_set in sets
        for found in (replica_set.get("status") or {}).get("conditions") or ()
        if found["type"] == REPLICA_FAILURE
    ]
