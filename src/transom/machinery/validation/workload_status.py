"""Validation of the status of workloads: replica counts and collision counts."""

from __future__ import annotations

from typing import Any

from transom.machinery.field import (
    invalid,
)
from transom.machinery.validation.common import check_nonnegative_fields
from transom.machinery.validation.meta import validate_object_meta_update
from transom.machinery.validation.rules import Errors, Object

_OVER_REPLICAS = "cannot be greater than status.replicas"
_REPLICA_COUNTS = (
    "replicas",
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "observedGeneration",
    "terminatingReplicas",
)


def _check_counts(
    status: dict[str, Any], names: tuple[str, ...], within: tuple[str, ...], errs: Errors
) -> None:
    """Counts that must not be negative, and those that must not exceed the replicas."""
    check_nonnegative_fields(status, names, "status", errs)
    total = status.get("replicas", 0)
    for name in within:
        if status.get(name, 0) > total:
            errs.append(invalid(f"status.{name}", status.get(name, 0), _OVER_REPLICAS))


def _check_available(status: dict[str, Any], errs: Errors, limit: str = "readyReplicas") -> None:
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        errs.append(
            invalid("status.availableReplicas", available, f"cannot be greater than {limit}")
        )


def _check_collisions(new: dict[str, Any], old: dict[str, Any], errs: Errors) -> None:
    before, now = old.get("collisionCount"), new.get("collisionCount")
    if before is not None and (now is None or now < before):
        errs.append(invalid("status.collisionCount", now or 0, "cannot be decremented"))


def _status(obj: Object) -> dict[str, Any]:
    return obj.get("status") or {}


def validate_replica_status_update(new: Object, old: Object) -> Errors:
    """The status of a ReplicationController or ReplicaSet."""
    errs = validate_object_meta_update(new["metadata"], old["metadata"])
    _check_counts(_status(new), _REPLICA_COUNTS, _REPLICA_COUNTS[1:4], errs)
    _check_available(_status(new), errs)
    return errs


def validate_deployment_status_update(new: Object, old: Object) -> Errors:
    errs = validate_object_meta_update(new["metadata"], old["metadata"])
    within = ("updatedReplicas", "readyReplicas", "availableReplicas")
    names = (
        "observedGeneration",
        "replicas",
        *within,
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    )
    _check_counts(_status(new), names, within, errs)
    _check_available(_status(new), errs)
    _check_collisions(_status(new), _status(old), errs)
    return errs


def validate_daemon_set_status_update(new: Object, old: Object) -> Errors:
    errs = validate_object_meta_update(new["metadata"], old["metadata"])
    check_nonnegative_fields(
        _status(new),
        (
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ),
        "status",
        errs,
    )
    _check_collisions(_status(new), _status(old), errs)
    return errs


def validate_stateful_set_status_update(
    new: Object, old: Object, *, available: bool = False, ready_text: str = ""
) -> Errors:
    """`available`: the release counts the available replicas; `ready_text` is how it names those
    that are ready.
    """
    errs: Errors = []
    within: tuple[str, ...] = ("readyReplicas", "currentReplicas", "updatedReplicas")
    if available:
        within = (*within, "availableReplicas")
    names = ("replicas", *within, "observedGeneration", "collisionCount")
    _check_counts(_status(new), names, within, errs)
    if available:
        _check_available(_status(new), errs, ready_text)
    errs += validate_object_meta_update(new["metadata"], old["metadata"])
    _check_collisions(_status(new), _status(old), errs)
    return errs
