"""The control loop: syncs every autoscaler every 15 seconds."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from transom.client.api import is_not_found
from transom.client.events import NORMAL, WARNING
from transom.client.resources import HORIZONTAL_POD_AUTOSCALERS, PODS, GroupVersionResource
from transom.client.store import object_key
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.horizontalpodautoscaler.calculator import TOLERANCE, Tolerance
from transom.controllers.horizontalpodautoscaler.conditions import (
    ABLE_TO_SCALE,
    SCALING_ACTIVE,
    Conditions,
)
from transom.controllers.horizontalpodautoscaler.limits import ScalingHistory
from transom.controllers.horizontalpodautoscaler.metrics import HpaMetricsClient
from transom.controllers.horizontalpodautoscaler.sources import (
    MetricSources,
    NoProposal,
    ScaleTarget,
)
from transom.controllers.scales import InvalidApiVersion, NoMatch, Scales, group_of
from transom.kit.clock import rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.quantity import parse_quantity
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.selectors import LabelSelector, SelectorError, parse_labels

log = logging.getLogger("transom.controllers")

_SECONDS = 15.0
_ABOVE = "Current number of replicas above Spec.MaxReplicas"
_BELOW = "Current number of replicas below Spec.MinReplicas"


class Uncomputable(Exception):
    """No metric gives a number of replicas; `metrics` is the status of all metrics."""

    def __init__(self, text: str, metrics: Sequence[Object] = ()) -> None:
        super().__init__(text)
        self.metrics = list(metrics)


class Autoscaler:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._events = env.recorder("horizontal-pod-autoscaler")
        self._scales = Scales(env.client, env.clock)
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, name="horizontalpodautoscaler", metrics=env.queues
        )
        self._memories: dict[str, ScalingHistory] = {}
        self._autoscalers = env.informers(HORIZONTAL_POD_AUTOSCALERS)
        self._pods = env.informers(PODS)
        features = env.settings.features
        newer = has_behaviour(features.release, "AutoscalerEventsAreV2")
        # The version that events name.
        self._shown = HORIZONTAL_POD_AUTOSCALERS.at("v2" if newer else "v2beta2")
        self._keeps_failed = has_behaviour(features.release, "AutoscalerFailedMetrics")
        self._guards_down = has_behaviour(features.release, "AutoscalerPartialMetrics")
        self._tolerances = features.enabled("HPAConfigurableTolerance")
        self._sources = MetricSources(
            HpaMetricsClient(env.client, self._scales),
            self._pods,
            names_metric=has_behaviour(features.release, "AutoscalerMetricTexts"),
        )
        self._autoscalers.add_handler(add=self._enqueue, update=lambda _, new: self._enqueue(new))

    def _enqueue(self, autoscaler: Object) -> None:
        self._queue.add_after(object_key(autoscaler), _SECONDS)

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._autoscalers, self._pods))

    async def _sync(self, key: str) -> None:
        autoscaler = self._autoscalers.by_key(key)
        if autoscaler is None:
            self._memories.pop(key, None)
            return
        self._queue.add_after(key, _SECONDS)
        try:
            await self._reconcile(key, autoscaler)
        except ApiError as problem:
            # The next sync is in 15 seconds anyway.
            log.info("the autoscaler %s could not be brought up to date: %s", key, problem)

    # ---- one autoscaler ----

    def _record_event(self, autoscaler: Object, kind: str, reason: str, message: str) -> None:
        shown = {**autoscaler, "apiVersion": self._shown.api_version}
        self._events.event(shown, kind, reason, message)

    async def _reconcile(self, key: str, autoscaler: Object) -> None:
        now = self._clock.time()
        spec = autoscaler["spec"]
        conditions = Conditions((autoscaler.get("status") or {}).get("conditions"), now)
        try:
            resource, scale = await self._scale(autoscaler)
        except (ApiError, OSError, NoMatch, InvalidApiVersion) as problem:
            self._record_event(autoscaler, WARNING, "FailedGetScale", str(problem))
            conditions.set(
                ABLE_TO_SCALE,
                False,
                "FailedGetScale",
                f"the HPA controller was unable to get the target's current scale: {problem}",
            )
            await self._write(autoscaler, {"conditions": conditions.as_list()})
            return
        conditions.set(
            ABLE_TO_SCALE,
            True,
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        )
        current = (scale.get("spec") or {}).get("replicas", 0)
        memory = self._memories.setdefault(key, ScalingHistory(current, now))
        least = spec.get("minReplicas", 1)
        metrics: list[Object] = []
        if current == 0 and least != 0:
            conditions.set(
                SCALING_ACTIVE,
                False,
                "ScalingDisabled",
                "scaling is disabled since the replica count of the target is zero",
            )
            desired, reason = 0, ""
        elif current > spec["maxReplicas"]:
            desired, reason = spec["maxReplicas"], _ABOVE
        elif current < least:
            desired, reason = least, _BELOW
        else:
            try:
                wanted, name, metrics = await self._wanted(autoscaler, scale, conditions, now)
            except Uncomputable as problem:
                failed: Object = {"currentReplicas": current, "conditions": conditions.as_list()}
                if self._keeps_failed and problem.metrics:
                    failed["currentMetrics"] = problem.metrics
                await self._write(autoscaler, failed)
                self._record_event(
                    autoscaler, WARNING, "FailedComputeMetricsReplicas", str(problem)
                )
                return
            reason = (
                f"{name} above target"
                if wanted > current
                else "All metrics below target"
                if wanted < current
                else ""
            )
            desired = memory.limited(spec, current, wanted, least, now, conditions)
        status: Object = {
            "currentReplicas": current,
            "desiredReplicas": desired,
            "currentMetrics": metrics,
        }
        if desired != current:
            try:
                await self._scales.set(resource, scale, desired)
            except (ApiError, OSError) as problem:
                self._record_event(
                    autoscaler,
                    WARNING,
                    "FailedRescale",
                    f"New size: {desired}; reason: {reason}; error: {problem}",
                )
                conditions.set(
                    ABLE_TO_SCALE,
                    False,
                    "FailedUpdateScale",
                    f"the HPA controller was unable to update the target scale: {problem}",
                )
                await self._write(
                    autoscaler, {"currentReplicas": current, "conditions": conditions.as_list()}
                )
                return
            conditions.set(
                ABLE_TO_SCALE,
                True,
                "SucceededRescale",
                f"the HPA controller was able to update the target scale to {desired}",
            )
            self._record_event(
                autoscaler, NORMAL, "SuccessfulRescale", f"New size: {desired}; reason: {reason}"
            )
            memory.scaled(spec.get("behavior"), current, desired, now)
            status["lastScaleTime"] = rfc3339(now)
        await self._write(autoscaler, {**status, "conditions": conditions.as_list()})

    async def _scale(self, autoscaler: Object) -> tuple[GroupVersionResource, Object]:
        """The scale of the target; if its kind has several resources, that of the first with a
        scale.
        """
        ref = autoscaler["spec"]["scaleTargetRef"]
        group, _ = group_of(ref.get("apiVersion", ""))
        first: ApiError | None = None
        for resource in await self._scales.resources(group, ref["kind"]):
            try:
                return resource, await self._scales.get(
                    resource, autoscaler["metadata"]["namespace"], ref["name"]
                )
            except ApiError as problem:
                first = first or problem
        assert first is not None  # there is at least one resource
        raise first

    async def _wanted(
        self, autoscaler: Object, scale: Object, conditions: Conditions, now: float
    ) -> tuple[int, str, list[Object]]:
        """The largest proposal of all metrics, the name of that metric, and the status of all
        metrics.
        """
        target = self._target(autoscaler, scale, conditions)
        specs = autoscaler["spec"].get("metrics") or []
        statuses: list[Object] = []
        replicas, name, failures = 0, "", []
        for metric in specs:
            try:
                proposal = await self._sources.propose(metric, target, now)
            except NoProposal as failure:
                self._record_event(autoscaler, WARNING, failure.reason, failure.condition)
                failures.append(failure)
                statuses.append({"type": ""})
                continue
            statuses.append(proposal.status)
            if replicas == 0 or proposal.replicas > replicas:
                replicas, name = proposal.replicas, proposal.name
        falls = bool(failures) and self._guards_down and replicas < target.wanted
        if len(failures) >= len(specs) or falls:
            first = failures[0] if failures else NoProposal("", "", "")
            conditions.set(
                SCALING_ACTIVE,
                False,
                first.reason,
                f"the HPA was unable to compute the replica count: {first.condition}",
            )
            raise Uncomputable(
                f"invalid metrics ({len(failures)} invalid out of {len(specs)}), first error "
                f"is: {first}",
                statuses,
            )
        conditions.set(
            SCALING_ACTIVE,
            True,
            "ValidMetricFound",
            f"the HPA was able to successfully calculate a replica count from {name}",
        )
        return replicas, name, statuses

    def _target(self, autoscaler: Object, scale: Object, conditions: Conditions) -> ScaleTarget:
        status = scale.get("status") or {}
        text = status.get("selector") or ""
        selector: LabelSelector | None = None
        reason, message, condition = (
            "SelectorRequired",
            "selector is required",
            ("the HPA target's scale is missing a selector"),
        )
        if text:
            try:
                selector = parse_labels(text)
            except SelectorError as problem:
                reason = "InvalidSelector"
                message = condition = (
                    "couldn't convert selector into a corresponding internal selector "
                    f"object: {problem}"
                )
        if selector is None:
            self._record_event(autoscaler, WARNING, reason, message)
            conditions.set(SCALING_ACTIVE, False, "InvalidSelector", condition)
            raise Uncomputable(message)
        wanted = (scale.get("spec") or {}).get("replicas", 0)
        return ScaleTarget(
            autoscaler["metadata"]["namespace"],
            selector,
            wanted,
            status.get("replicas", 0),
            self._tolerance(autoscaler["spec"].get("behavior") or {}),
        )

    def _tolerance(self, behavior: Object) -> Tolerance:
        if not self._tolerances:
            return Tolerance()
        up, down = (
            (behavior.get(direction) or {}).get("tolerance")
            for direction in ("scaleUp", "scaleDown")
        )
        return Tolerance(
            TOLERANCE if down is None else parse_quantity(down).to_float(),
            TOLERANCE if up is None else parse_quantity(up).to_float(),
        )

    async def _write(self, autoscaler: Object, fresh: Object) -> None:
        old = autoscaler.get("status") or {}
        status = {**old, **fresh}
        if _plain(status) == _plain(old):
            return
        try:
            await self._client.update_status(
                HORIZONTAL_POD_AUTOSCALERS, {**autoscaler, "status": status}
            )
        except ApiError as problem:
            if is_not_found(problem):
                return
            self._record_event(autoscaler, WARNING, "FailedUpdateStatus", str(problem))
            raise


def _plain(status: Object) -> Object:
    """Without unset fields."""
    return {name: value for name, value in status.items() if value}
