"""The three conditions of an autoscaler, with Kubernetes' reasons and messages."""

from __future__ import annotations

from transom.kit.clock import rfc3339
from transom.machinery.objects import Object

ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED = "AbleToScale", "ScalingActive", "ScalingLimited"


class Conditions:
    """The conditions of one autoscaler during one sync."""

    def __init__(self, old: list[Object] | None, now: float) -> None:
        self._all = list(old or ())
        self._now = now

    def set(self, kind: str, status: bool, reason: str, message: str) -> None:
        text = "True" if status else "False"
        at = next((i for i, condition in enumerate(self._all) if condition["type"] == kind), None)
        old = self._all[at] if at is not None else {}
        since = old.get("lastTransitionTime") if old.get("status") == text else rfc3339(self._now)
        fresh = {
            "type": kind,
            "status": text,
            "lastTransitionTime": since,
            "reason": reason,
            "message": message,
        }
        if at is None:
            self._all.append(fresh)
        else:
            self._all[at] = fresh

    def as_list(self) -> list[Object]:
        return self._all
