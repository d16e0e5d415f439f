"""The condition DisruptionTarget: why a pod is about to be deleted by the control plane."""

from __future__ import annotations

from transom.client.api import STRATEGIC_PATCH, is_not_found
from transom.client.resources import PODS
from transom.controllers.base import ControllerContext
from transom.kit.clock import rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object


class DisruptionMarker:
    """Sets the condition, in releases that have it."""

    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._on = env.settings.features.enabled("PodDisruptionConditions")
        self._observes = env.settings.features.enabled("PodObservedGenerationTracking")

    async def mark(self, pod: Object, reason: str, message: str, *, phase: str = "") -> None:
        """`phase` replaces that of the pod, if it is given."""
        meta, status = pod["metadata"], pod.get("status") or {}
        patch: Object = {}
        if self._on and reason:
            patch = self._condition(meta, status, reason, message)
        if phase and self._on:
            patch["phase"] = phase
        if not patch:
            return
        try:
            await self._client.patch(
                PODS,
                meta["namespace"],
                meta["name"],
                {"status": patch},
                STRATEGIC_PATCH,
                subresource="status",
            )
        except ApiError as problem:
            if not is_not_found(problem):
                raise

    def _condition(self, meta: Object, status: Object, reason: str, message: str) -> Object:
        condition: Object = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": rfc3339(self._clock.time()),
        }
        if self._observes and meta.get("generation"):
            condition["observedGeneration"] = meta["generation"]
        known = [entry["type"] for entry in status.get("conditions") or ()]
        order = [{"type": kind} for kind in dict.fromkeys((*known, "DisruptionTarget"))]
        return {"conditions": [condition], "$setElementOrder/conditions": order}
