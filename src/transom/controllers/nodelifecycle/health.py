"""The health of a node, from the heartbeats in its status and the renewals of its lease, timed by
our own clock.
"""

from __future__ import annotations

from transom.kit.clock import parse_rfc3339, rfc3339
from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object

STARTUP_GRACE = 60.0  # for a node whose kubelet has not reported yet
# NetworkUnavailable is not in the list: the kubelet does not report it.
_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def find_node_condition(status: Object | None, kind: str = "Ready") -> Object | None:
    rows: list[Object] = (status or {}).get("conditions") or []
    for row in rows:
        if row["type"] == kind:
            return row
    return None


@dataclass(slots=True)
class NodeHealthData:
    """The last observation of a node, and its time by our clock."""

    status: Object
    probed: float
    lease_renewed: float = float("-inf")


class NodeHealthResult(NamedTuple):
    health: NodeHealthData
    observed: Object  # the node's Ready condition, or an Unknown one
    conditions: list[Object] | None  # to be written when the node has not reported for too long


def evaluate_node_health(
    node: Object, lease: Object | None, health: NodeHealthData | None, grace: float, now: float
) -> NodeHealthResult:
    meta, status = node["metadata"], node.get("status") or {}
    current = find_node_condition(status)
    if current is None:
        created = meta["creationTimestamp"]
        observed: Object = {
            "type": "Ready",
            "status": "Unknown",
            "lastHeartbeatTime": created,
            "lastTransitionTime": created,
        }
        grace = STARTUP_GRACE
        if health is None:
            health = NodeHealthData(status, parse_rfc3339(created))
    else:
        observed = current
    health = _seen(health, status, current, now)
    renewed = _renew_time(lease)
    if renewed > health.lease_renewed:
        # Also for a kubelet that never posted a status.
        health = NodeHealthData(health.status, now, renewed)
    if now <= health.probed + grace:
        return NodeHealthResult(health, observed, None)
    conditions = silent_conditions(node, now)
    changed = find_node_condition({"conditions": conditions}) != observed
    return NodeHealthResult(health, observed, conditions if changed else None)


def _seen(
    health: NodeHealthData | None, status: Object, current: Object | None, now: float
) -> NodeHealthData:
    """A first observation, an added or removed Ready condition, and a new heartbeat all show that
    the node is alive.
    """
    if health is None:
        return NodeHealthData(status, now)
    saved = find_node_condition(health.status)
    if saved is None and current is None:
        return NodeHealthData(status, health.probed, health.lease_renewed)
    appeared = (saved is None) != (current is None)
    beat = (
        saved is not None
        and current is not None
        and (saved.get("lastHeartbeatTime") != current.get("lastHeartbeatTime"))
    )
    return NodeHealthData(status, now, health.lease_renewed) if appeared or beat else health


def _renew_time(lease: Object | None) -> float:
    text = ((lease or {}).get("spec") or {}).get("renewTime")
    return parse_rfc3339(text) if text else float("-inf")


def silent_conditions(node: Object, now: float) -> list[Object]:
    """The conditions of a node that has stopped reporting."""
    rows = [*((node.get("status") or {}).get("conditions") or ())]
    stamp = rfc3339(now)
    for kind in _CONDITIONS:
        at = next((i for i, row in enumerate(rows) if row["type"] == kind), None)
        if at is None:
            rows.append(
                {
                    "type": kind,
                    "status": "Unknown",
                    "reason": "NodeStatusNeverUpdated",
                    "message": "Kubelet never posted node status.",
                    "lastHeartbeatTime": node["metadata"]["creationTimestamp"],
                    "lastTransitionTime": stamp,
                }
            )
        elif rows[at].get("status") != "Unknown":
            rows[at] = {
                **rows[at],
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": stamp,
            }
    return rows
