"""The scheduler: takes pods from the queue, runs the scheduling cycle and the binding cycle, and
records the outcome.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from typing import Any

from transom.client.api import STRATEGIC_PATCH, ApiClient
from transom.client.informer import InformerFactory
from transom.client.resources import PODS
from transom.kit.clock import Clock, rfc3339
from transom.kit.prometheus import Family
from transom.machinery import podutil
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.scheduling import scheduling_rules
from transom.scheduler.cache import SchedulerCache
from transom.scheduler.config import KubeSchedulerConfiguration, default_scheduler_config
from transom.scheduler.cycle import NoNodesAvailable, ScheduleAlgorithm
from transom.scheduler.errors import SchedulingError
from transom.scheduler.event_handlers import EventHandlers
from transom.scheduler.event_recorder import SchedulerEventRecorder, truncate_message
from transom.scheduler.framework import Code, CycleState, FitError, QueuedPodInfo, Registry, Status
from transom.scheduler.metrics import ERROR, SCHEDULED, UNSCHEDULABLE, SchedulerMetrics
from transom.scheduler.multi_point import expand_multi_point
from transom.scheduler.nominator import PodNominator
from transom.scheduler.owners import OwnerSelectors
from transom.scheduler.plugins.registry import in_tree_registry
from transom.scheduler.pods import PodInfo
from transom.scheduler.queue import SchedulingQueue
from transom.scheduler.resource_claims import ResourceClaimCache
from transom.scheduler.runtime import Framework, FrameworkOptions
from transom.scheduler.snapshot import Snapshot
from transom.scheduler.volumes import VolumeCache
from transom.scheduler.waiting_pods import WaitingPods

log = logging.getLogger("transom.scheduler")

USER = "system:kube-scheduler"
USER_AGENT = "kube-scheduler"
POD_REASON_UNSCHEDULABLE, POD_REASON_SCHEDULER_ERROR = "Unschedulable", "SchedulerError"
_NON_TERMINATED = "status.phase!=Succeeded,status.phase!=Failed"
_TURN_SECONDS = 0.003  # how long pods are scheduled before other tasks get the event loop
_CONCURRENT_WRITES = 32  # the number of connections that clients keep
_CLEANUP_SECONDS = 1.0
_BUSY_SECONDS = 0.25


_DEFAULT_FEATURES = FeatureSet(DEFAULT)


class Scheduler:
    """`out_of_tree_registry` adds plugins to those of this package; `features` are those of the
    scheduler's release.
    """

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        rng: random.Random,
        config: KubeSchedulerConfiguration | None = None,
        out_of_tree_registry: Registry | None = None,
        features: FeatureSet = _DEFAULT_FEATURES,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        self._metrics = metrics or SchedulerMetrics(features.release)
        config = config or default_scheduler_config(features)
        self._features = features
        registry = in_tree_registry(out_of_tree_registry or {})
        self._client = client
        self._clock = clock
        self.informers = InformerFactory(client, clock, rng)
        self.pods = self.informers(PODS, field_selector=_NON_TERMINATED)
        self.snapshot = Snapshot()
        self.cache = SchedulerCache(self.snapshot, clock)
        self.nominator = PodNominator(lambda key: self.pods.by_key(key) is not None)
        self._claims = (
            ResourceClaimCache(self.informers, taint_rules=features.enabled("DRADeviceTaintRules"))
            if features.enabled("DynamicResourceAllocation")
            and scheduling_rules(features.release).resource_claims
            else None
        )
        options = FrameworkOptions(
            snapshot=self.snapshot,
            client=client,
            informers=self.informers,
            pods=self.pods,
            clock=clock,
            rng=rng,
            nominator=self.nominator,
            waiting_pods=WaitingPods(clock),
            volumes=VolumeCache(self.informers),
            owners=OwnerSelectors(self.informers),
            features=features,
            claims=self._claims,
        )
        self._event_recorders = [
            SchedulerEventRecorder(client, p.scheduler_name, clock, rng, self._busy)
            for p in config.profiles
        ]
        self.profiles: dict[str, Framework] = {
            profile.scheduler_name: Framework(
                profile.scheduler_name,
                registry,
                expand_multi_point(profile.plugins, profile.multi_point, registry),
                profile.args,
                options,
                recorder,
            )
            for profile, recorder in zip(config.profiles, self._event_recorders, strict=True)
        }
        self.queue = SchedulingQueue(
            clock,
            self.nominator,
            next(iter(self.profiles.values())).queue_sort_func,
            self._may_enqueue,
            initial_backoff=config.initial_backoff,
            max_backoff=config.max_backoff,
            hints=features.enabled("SchedulerQueueingHints"),
            metrics=self._metrics,
        )
        self.algorithm = ScheduleAlgorithm(self.snapshot, rng, config.percentage_of_nodes_to_score)
        self._scheduled_at = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()
        self._writes = asyncio.Semaphore(_CONCURRENT_WRITES)
        EventHandlers(self.snapshot, self.cache, self.queue, self.profiles, self._claims).register(
            self.pods, self.informers
        )

    async def run(self) -> None:
        """Schedule pods until cancelled."""
        self.informers.start()
        try:
            await self.informers.synced()
            log.info("scheduling for %s", ", ".join(self.profiles))
            self.queue.start()
            async with asyncio.TaskGroup() as group:
                for recorder in self._event_recorders:
                    group.create_task(recorder.run())
                group.create_task(self._cleanup_assumed_pods())
                group.create_task(self._schedule())
        finally:
            self.queue.stop()
            for task in [*self._tasks]:
                task.cancel()
            await self.informers.stop()

    def _busy(self) -> bool:
        """Whether pods are being scheduled or were a moment ago, so more are likely to follow."""
        if self.queue.active > 0:
            return True
        return self._clock.monotonic() - self._scheduled_at < _BUSY_SECONDS

    async def _cleanup_assumed_pods(self) -> None:
        while True:
            await self._clock.sleep(_CLEANUP_SECONDS)
            self.cache.cleanup_assumed_pods()

    def _may_enqueue(self, pod: PodInfo) -> bool:
        """Whether the PreEnqueue plugins of the pod's profile accept it."""
        framework = self.profiles.get(pod.scheduler_name)
        if framework is None or not framework.pre_enqueue_plugins:
            return True
        try:
            status = framework.run_pre_enqueue_plugins(pod)
        except Exception:
            log.exception("PreEnqueue plugins failed for pod %s", pod.key)
            return False
        if status is not None:
            log.debug("pod %s is not queued: %s", pod.key, status.message)
        return status is None

    # ---- scheduling cycle ----

    async def _schedule(self) -> None:
        while True:
            item: QueuedPodInfo | None = await self.queue.pop()
            turn_ends = self._clock.monotonic() + _TURN_SECONDS
            while item is not None:
                # Do not schedule faster than bindings can be written.
                async with self._writes:
                    pass
                await self._schedule_one(item)
                if self._clock.monotonic() >= turn_ends:
                    break
                item = self.queue.try_pop()
            await asyncio.sleep(0)

    async def _schedule_one(self, item: QueuedPodInfo) -> None:
        pod = item.pod_info
        framework = self.profiles.get(pod.scheduler_name)
        if framework is None or self._skip_pod_schedule(framework, pod):
            return
        state = CycleState()
        try:
            await framework.run_prepare_plugins(state, pod)
            node_name = self.algorithm.schedule(framework, state, pod)
        except FitError as error:
            self._attempt_ended(item, framework, UNSCHEDULABLE)
            nominated, message = await self._run_post_filter(framework, state, pod, error)
            text = f"{error} {message}" if message else str(error)
            self._record_failure(item, framework, text, POD_REASON_UNSCHEDULABLE, nominated)
        except NoNodesAvailable as error:
            self._attempt_ended(item, framework, UNSCHEDULABLE)
            self._record_failure(item, framework, str(error), POD_REASON_UNSCHEDULABLE)
        except SchedulingError as error:
            self._attempt_ended(item, framework, ERROR)
            self._record_failure(item, framework, str(error), framework.rules.error_reason)
        except Exception as error:
            # A bug in a plugin fails one attempt for one pod, not the whole scheduler.
            log.exception("scheduling %s failed", pod.key)
            self._attempt_ended(item, framework, ERROR)
            text = f"{type(error).__name__}: {error}"
            self._record_failure(item, framework, text, POD_REASON_SCHEDULER_ERROR)
        else:
            self._metrics.algorithm_ended(self._clock.monotonic() - item.attempt_started)
            self._assume_and_bind(item, framework, state, node_name)

    def _attempt_ended(self, item: QueuedPodInfo, framework: Framework, result: str) -> None:
        seconds = self._clock.monotonic() - item.attempt_started
        self._metrics.attempt_ended(result, framework.profile_name, seconds)
        if result == SCHEDULED and item.first_queued is not None:
            self._metrics.pod_scheduled(item.attempts, self._clock.monotonic() - item.first_queued)

    def collect_metrics(self) -> list[Family]:
        queue = self.queue
        waiting = queue.unschedulable - queue.gated
        self._metrics.set_pending(queue.active, queue.backing_off, waiting, queue.gated)
        self._metrics.set_cache(
            len(self.snapshot.nodes), self.cache.pod_count, self.cache.assumed_count
        )
        return self._metrics.collect()

    def _skip_pod_schedule(self, framework: Framework, pod: PodInfo) -> bool:
        if pod.terminating:
            note = f"skip schedule deleting pod: {pod.key}"
            framework.event_recorder.event(
                pod.pod, "Warning", "FailedScheduling", "Scheduling", note
            )
            return True
        return self.cache.is_assumed_pod(pod.uid)

    async def _run_post_filter(
        self, framework: Framework, state: CycleState, pod: PodInfo, error: FitError
    ) -> tuple[str, str]:
        """The node that the pod is nominated for, or "", and why it still cannot be scheduled."""
        rules = framework.rules
        try:
            result, status = await framework.run_post_filter_plugins(
                state, pod, error.filtered_nodes_statuses
            )
        except Exception:
            log.exception("PostFilter plugins failed for pod %s", pod.key)
            return "", ""
        if status is not None and status.code is Code.ERROR:
            log.warning("PostFilter plugins failed for pod %s: %s", pod.key, status.message)
        message = status.message if status is not None else ""
        if message:
            message = message + rules.post_filter_end if rules.post_filter_message else ""
        if result is None or (status is not None and not status.is_success):
            return "", message
        return result.nominated_node_name, message

    def _assume_and_bind(
        self, item: QueuedPodInfo, framework: Framework, state: CycleState, node_name: str
    ) -> None:
        """Assume the pod on its node, run the Reserve and Permit plugins, and bind it in the
        background.
        """
        pod = item.pod_info
        try:
            self.cache.assume_pod(pod, node_name)
        except SchedulingError as error:
            self._attempt_ended(item, framework, ERROR)
            self._record_failure(item, framework, str(error), POD_REASON_SCHEDULER_ERROR)
            return
        self.nominator.delete_nominated_pod(pod.uid)
        status = framework.run_reserve_plugins_reserve(state, pod, node_name)
        if status is None:
            status = framework.run_permit_plugins(state, pod, node_name)
        if status is not None and status.code is not Code.WAIT:
            self._reject(item, framework, state, node_name, status)
            return
        self._scheduled_at = self._clock.monotonic()
        waits = status is not None or framework.will_pre_bind(state, pod, node_name)
        expects = waits and self._features.enabled("NominatedNodeNameForExpectation")
        self._start(self._binding_cycle(item, framework, state, node_name, expects))

    # ---- binding cycle ----

    async def _binding_cycle(
        self,
        item: QueuedPodInfo,
        framework: Framework,
        state: CycleState,
        node_name: str,
        expects: bool,
    ) -> None:
        """`expects`: the pod is nominated for the node, because its binding takes a while."""
        pod = item.pod_info
        if expects:
            await self._patch_pod_status(pod, {"status": {"nominatedNodeName": node_name}})
        status = await framework.wait_on_permit(pod)
        if status is None:
            async with self._writes:
                began = self._clock.monotonic()
                status = await self._bind(framework, state, pod, node_name)
                self._metrics.binding_ended(self._clock.monotonic() - began)
        if status is not None:
            if expects:
                await self._patch_pod_status(pod, {"status": {"nominatedNodeName": None}})
            self._reject(item, framework, state, node_name, status)
            return
        self.cache.finish_binding(pod)
        self._attempt_ended(item, framework, SCHEDULED)
        note = f"Successfully assigned {pod.key} to {node_name}"
        framework.event_recorder.event(pod.pod, "Normal", "Scheduled", "Binding", note)
        await framework.run_post_bind_plugins(state, pod, node_name)

    async def _bind(
        self, framework: Framework, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | None:
        status = await framework.run_pre_bind_plugins(state, pod, node_name)
        if status is not None:
            return status
        status = await framework.run_bind_plugins(state, pod, node_name)
        if status is None:
            return None
        text = status.message
        if status.code is not Code.ERROR:
            text = f"bind status: {status.code.value}, {text}"
        return Status(Code.ERROR, (f"binding rejected: {text}",))

    def _reject(
        self,
        item: QueuedPodInfo,
        framework: Framework,
        state: CycleState,
        node_name: str,
        status: Status,
    ) -> None:
        """Undo the reservation of an assumed pod that is not bound."""
        framework.run_reserve_plugins_unreserve(state, item.pod_info, node_name)
        self.cache.forget_pod(item.pod_info)
        unschedulable = status.is_unschedulable
        self._attempt_ended(item, framework, UNSCHEDULABLE if unschedulable else ERROR)
        reason = POD_REASON_UNSCHEDULABLE if unschedulable else POD_REASON_SCHEDULER_ERROR
        self._record_failure(item, framework, status.message, reason)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("binding cycle failed", exc_info=task.exception())

    # ---- failure ----

    def _record_failure(
        self,
        item: QueuedPodInfo,
        framework: Framework,
        message: str,
        reason: str,
        nominated: str = "",
    ) -> None:
        tried = item.pod_info
        log.debug("cannot schedule %s: %s", tried.key, message)
        current = self.pods.by_key(tried.key)
        if current is not None and not current["spec"].get("nodeName"):
            item.pod_info = PodInfo(current)
            self.queue.add_unschedulable_if_not_present(item, self.queue.scheduling_cycle)
        self.nominator.add_nominated_pod(tried, nominated)
        framework.event_recorder.event(
            tried.pod, "Warning", "FailedScheduling", "Scheduling", truncate_message(message)
        )
        patch = pod_status_patch(tried.pod, message, reason, nominated, rfc3339(self._clock.time()))
        generation = tried.pod["metadata"].get("generation")
        if (
            patch is not None
            and generation
            and self._features.enabled("PodObservedGenerationTracking")
        ):
            for condition in patch["status"].get("conditions") or ():
                condition["observedGeneration"] = generation
        if patch is not None:
            self._start(self._patch_pod_status(tried, patch))

    async def _patch_pod_status(self, pod: PodInfo, patch: Object) -> None:
        async with self._writes:
            try:
                await self._client.patch(
                    PODS, pod.namespace, pod.name, patch, STRATEGIC_PATCH, subresource="status"
                )
            except (ApiError, OSError) as error:
                log.info("cannot update the status of pod %s: %s", pod.key, error)


def pod_status_patch(
    pod: Object, message: str, reason: str, nominated: str, now: str
) -> Object | None:
    """The change of a pod's status after a failure; None when the status is up to date."""
    condition: dict[str, Any] = {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
    before = podutil.find_condition(pod, "PodScheduled")
    changed = before is None
    if before is not None:
        if before.get("status") == "False":
            condition["lastTransitionTime"] = before.get("lastTransitionTime")
        changed = any(before.get(k) != condition[k] for k in ("status", "reason", "message"))
    renominated = nominated and (pod.get("status") or {}).get("nominatedNodeName", "") != nominated
    if not changed and not renominated:
        return None
    status: dict[str, Any] = {}
    if changed:
        status["conditions"] = [condition]
    if nominated:
        status["nominatedNodeName"] = nominated
    return {"status": status}
