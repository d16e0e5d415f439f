"""Is a node alive? By the heartbeats in its status and the renewals of its lease, as seen on our own clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from transom.kit.clock import parse_rfc3339, rfc3339
from transom.machinery.objects import Object

STARTUP_GRACE = 60.0  # for a node whose kubelet has said nothing yet
# NetworkUnavailable is not here: it is not the kubelet who says it.
_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def condition(status: Object | None, kind: str = "Ready") -> Object | None:
    rows: list[Object] = (status or {}).get("conditions") or []
    for row in rows:
        if row["type"] == kind:
            return row
    return None


@dataclass(slots=True)
class Health:
    """What was last seen of a node, and when, by our clock."""

    status: Object
    probed: float
    lease_renewed: float = float("-inf")


class Verdict(NamedTuple):
    health: Health
    observed: Object  # the Ready condition as the node had it, or one that says that nothing is known
    conditions: list[Object] | None  # to be written, when the node is silent for too long


def judge(node: Object, lease: Object | None, health: Health | None, grace: float, now: float) -> Verdict:
    meta, status = node["metadata"], node.get("status") or {}
    current = condition(status)
    if current is None:
        created = meta["creationTimestamp"]
        observed: Object = {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": created,
                            "lastTransitionTime": created}
        grace = STARTUP_GRACE
        if health is None:
            health = Health(status, parse_rfc3339(created))
    else:
        observed = current
    health = _seen(health, status, current, now)
    renewed = _renew_time(lease)
    if renewed > health.lease_renewed:
        # Also of a kubelet that never posted a status.
        health = Health(health.status, now, renewed)
    if now <= health.probed + grace:
        return Verdict(health, observed, None)
    conditions = silent_conditions(node, now)
    changed = condition({"conditions": conditions}) != observed
    return Verdict(health, observed, conditions if changed else None)


def _seen(health: Health | None, status: Object, current: Object | None, now: float) -> Health:
    """A first look, a Ready condition that came or went, or another heartbeat: all are signs of life."""
    if health is None:
        return Health(status, now)
    saved = condition(health.status)
    if saved is None and current is None:
        return Health(status, health.probed, health.lease_renewed)
    appeared = (saved is None) != (current is None)
    beat = saved is not None and current is not None and (
        saved.get("lastHeartbeatTime") != current.get("lastHeartbeatTime")
    )
    return Health(status, now, health.lease_renewed) if appeared or beat else health


def _renew_time(lease: Object | None) -> float:
    text = ((lease or {}).get("spec") or {}).get("renewTime")
    return parse_rfc3339(text) if text else float("-inf")


def silent_conditions(node: Object, now: float) -> list[Object]:
    """The conditions of a node that nothing is heard of any more."""
    rows = [*((node.get("status") or {}).get("conditions") or ())]
    stamp = rfc3339(now)
    for kind in _CONDITIONS:
        at = next((i for i, row in enumerate(rows) if row["type"] == kind), None)
        if at is None:
            rows.append({
                "type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": node["metadata"]["creationTimestamp"], "lastTransitionTime": stamp,
            })
        elif rows[at].get("status") != "Unknown":
            rows[at] = {**rows[at], "status": "Unknown", "reason": "NodeStatusUnknown",
                        "message": "Kubelet stopped posting node status.", "lastTransitionTime": stamp}
    return rows
