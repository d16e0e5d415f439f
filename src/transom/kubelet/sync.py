"""One sync of one pod: report its status, terminate it if necessary, otherwise bring it closer to
its spec.

The order is the kubelet's: status first, then volumes, sandbox, init containers and containers.
What is still missing after a sync is done by the next one, which runtime events trigger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from transom.client.events import NORMAL, WARNING
from transom.kit.clock import parse_rfc3339
from transom.kit.lazy_dataclass import replace
from transom.kit.named_tuple import NamedTuple
from transom.kubelet import actions, podstate, status
from transom.kubelet.allocation import AllocationManager, ResizeFailure
from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import ClaimFailure, VolumeFailure
from transom.kubelet.features import runtime_reports_features
from transom.kubelet.interfaces import ClaimDevices, Mirrors, PodAdmitHandler, Prober, Volumes
from transom.kubelet.labels import is_static
from transom.kubelet.mirrors import keep_mirror
from transom.kubelet.node.status import network_problem
from transom.kubelet.pods import Pods
from transom.kubelet.podstate import TERMINAL, PodState, format_pod, is_deleted, is_host_network
from transom.kubelet.refs import pod_ref
from transom.kubelet.restart_all import all_containers_removed, should_all_containers_restart
from transom.kubelet.starter import ContainerStarter
from transom.kubelet.status_manager import StatusManager
from transom.kubelet.termination import KillFailure, Terminator
from transom.kubelet.workers import PodWorker, PodWorkers, SyncOutcome
from transom.machinery.objects import Object
from transom.machinery.podutil import all_containers_could_restart
from transom.runtime.api import RuntimeFailure, RuntimeStatus

log = logging.getLogger("transom.kubelet")

_NETWORK = "network is not ready"
# A kubelet notices a start when it next lists its containers. One that ends at once is then
# reported as terminated and was never running or ready.
_RELIST_SECONDS = 0.05
_DEADLINE = "Pod was active on the node longer than the specified deadline"


class PodSyncDependencies(NamedTuple):
    """What a pod sync needs from the rest of the kubelet."""

    volumes: Volumes
    admission: PodAdmitHandler
    prober: Prober
    mirrors: Mirrors
    allocation: AllocationManager
    claims: ClaimDevices


class PodSync:
    def __init__(
        self,
        env: KubeletContext,
        dependencies: PodSyncDependencies,
        pods: Pods,
        statuses: StatusManager,
        starter: ContainerStarter,
        terminator: Terminator,
        workers: Callable[[], PodWorkers],
    ) -> None:
        """`workers` is a function because the workers call this object in turn."""
        self._env = env
        self._workers = workers
        self._dependencies = dependencies
        self._pods = pods
        self._statuses = statuses
        self._starter = starter
        self._end = terminator
        features = env.config.pod_features
        if not runtime_reports_features(env.runtime.version):
            features = replace(features, container_user=False)
        self._around = status.StatusInputs(
            env.config.node_ips,
            env.runtime.version.name,
            dependencies.prober,
            terminator.last_words,
            features,
            dependencies.allocation.actual,
            dependencies.allocation.conditions,
            env.os.recursive_read_only_mounts(env.host, env.runtime.version),
            dependencies.allocation.actual_spec,
            dependencies.claims.resource_health,
        )

    async def __call__(self, worker: PodWorker) -> SyncOutcome:
        if worker.gone:
            return await self._cleanup(worker)
        pod = worker.pod
        assert pod is not None  # set unless the worker is gone
        if worker.kill is not None:
            return await self._fail(worker, pod)
        if is_deleted(pod):
            return await self._delete(worker, pod)
        if self._pods.reported_status(pod).get("phase") in TERMINAL:
            return await self._sync_terminated(worker, pod)
        runtime = self._env.runtime.status()
        if runtime.runtime_reason:
            return SyncOutcome.SOON
        return await self._live(worker, pod, runtime)

    def refresh(self, worker: PodWorker) -> None:
        """Reports what has changed while a sync is in progress: a probe result."""
        pod = worker.pod
        reported = self._pods.reported_status(pod) if pod is not None else {}
        if (
            pod is not None
            and not worker.gone
            and reported.get("conditions")
            and reported.get("phase") not in TERMINAL
        ):
            self._statuses.set(pod, status.probed(pod, reported, self._around))

    def _read(self, worker: PodWorker) -> PodState:
        return podstate.read_pod_state(self._env.runtime, worker.uid)

    def _generate(
        self, worker: PodWorker, pod: Object, state: PodState, *, terminal: bool = False
    ) -> Object:
        return status.generate_pod_status(
            pod,
            state,
            self._pods.reported_status(pod),
            worker.reasons,
            self._around,
            terminal=terminal,
        )

    def _record_event(self, pod: Object, kind: str, reason: str, message: str) -> None:
        self._env.events.event(pod_ref(pod), kind, reason, message)

    # ---- running pods ----

    async def _live(self, worker: PodWorker, pod: Object, runtime: RuntimeStatus) -> SyncOutcome:
        state = self._read(worker)
        if self._past_deadline(worker, pod):
            return await self._exceeded(worker, pod, state)
        if self._around.features.resize:
            pod = self._resized(pod, state)
        now = self._generate(worker, pod, state)
        refused = self._dependencies.admission.can_run(pod)
        if refused is not None:
            now["reason"], now["message"] = refused.reason, refused.message
            for entry in (*now["containerStatuses"], *now.get("initContainerStatuses", ())):
                if "waiting" in entry["state"]:
                    entry["state"] = {"waiting": {**entry["state"]["waiting"], "reason": "Blocked"}}
        if now["phase"] in TERMINAL and not await self._release_claims(worker):
            return SyncOutcome.FAILED
        self._statuses.set(pod, now)
        if "activeDeadlineSeconds" in pod["spec"]:
            self._watch_deadline(worker, pod)
        if refused is not None:
            await self._kill(pod, state)
            return SyncOutcome.FAILED
        if now["phase"] == "Failed":
            return await self._sync_terminated(worker, pod)
        if not is_host_network(pod) and not self._network_ready(pod, runtime):
            return SyncOutcome.SOON
        if is_static(pod):
            await keep_mirror(
                self._env.node(),
                pod,
                self._pods.mirror_of(pod),
                self._dependencies.mirrors,
                self._env.clock,
            )
        todo = actions.compute_pod_actions(
            pod,
            state,
            self._dependencies.prober.liveness,
            self._dependencies.prober.startup,
            self._around.features,
            self._dependencies.allocation.action
            if self._around.features.resize
            else actions.no_resize,
            restart_all=self._restarts_all(pod, state),
        )
        if not todo.kill_pod and self._dependencies.allocation.resizes_pod(pod):
            todo = todo._replace(resize_pod=True)
        if (todo or worker.resync) and not await self._mount(worker, pod):
            return SyncOutcome.FAILED
        if not todo:
            self._dependencies.prober.sync(worker.uid)
            return SyncOutcome.OK
        return await self._act(worker, pod, state, todo)

    async def _act(
        self, worker: PodWorker, pod: Object, state: PodState, todo: actions.PodActions
    ) -> SyncOutcome:
        good = await self._starter.run(worker, pod, state, todo)
        if todo.update or todo.resize_pod:
            updated = await self._update(pod, todo)
            self._statuses.set(pod, self._generate(worker, pod, self._read(worker)))
            good, worker.again = good and updated, worker.again or updated
        self._dependencies.prober.sync(worker.uid)
        if todo.start:
            await worker.interruptible(self._env.clock.sleep(_RELIST_SECONDS))
        # The next sync reports the result and everything that happened in the meantime. After a
        # failure, it runs when a kubelet would have noticed the change in its runtime.
        changed = self._read(worker) != state
        if not good:
            return SyncOutcome.SOON if changed else SyncOutcome.FAILED
        worker.again = worker.again or changed
        return SyncOutcome.OK

    def _restarts_all(self, pod: Object, state: PodState) -> bool:
        return (
            self._around.features.restart_all
            and all_containers_could_restart(pod["spec"])
            and should_all_containers_restart(pod, state, self._pods.reported_status(pod))
            and not all_containers_removed(pod, state)
        )

    def _resized(self, pod: Object, state: PodState) -> Object:
        """The pod with the resources that it may use."""
        allocation = self._dependencies.allocation
        pod = allocation.resize(pod, self._pods.active_pods, state)
        allocation.finish(pod, state)
        return pod

    async def _update(self, pod: Object, todo: actions.PodActions) -> bool:
        try:
            await self._dependencies.allocation.actuate(pod, todo.update)
        except ResizeFailure as failure:
            self._dependencies.allocation.fail(pod, str(failure))
            return False
        return True

    def _network_ready(self, pod: Object, runtime: RuntimeStatus) -> bool:
        problem = network_problem(runtime, self._env.config.release)
        if problem:
            self._record_event(pod, WARNING, "NetworkNotReady", f"{_NETWORK}: {problem}")
        return not problem

    async def _mount(self, worker: PodWorker, pod: Object) -> bool:
        try:
            await worker.interruptible(self._dependencies.volumes.mount(pod))
        except VolumeFailure as failure:
            self._record_event(
                pod, WARNING, "FailedMount", f"Unable to attach or mount volumes: {failure}"
            )
            return False
        except OSError as problem:
            self._record_event(
                pod, WARNING, "Failed", f"error making pod data directories: {problem.strerror}"
            )
            return False
        worker.resync = False
        return True

    # ---- the deadline ----

    def _remaining(self, pod: Object) -> float:
        start = self._pods.reported_status(pod).get("startTime")
        if start is None:
            return float("inf")
        return float(
            parse_rfc3339(start) + pod["spec"]["activeDeadlineSeconds"] - self._env.clock.time()
        )

    def _past_deadline(self, worker: PodWorker, pod: Object) -> bool:
        return "activeDeadlineSeconds" in pod["spec"] and self._remaining(pod) <= 0

    def _watch_deadline(self, worker: PodWorker, pod: Object) -> None:
        if worker.deadline is not None:
            worker.deadline.cancel()
        worker.deadline = self._env.clock.call_later(
            self._remaining(pod), self._workers().wake, worker
        )

    async def _exceeded(self, worker: PodWorker, pod: Object, state: PodState) -> SyncOutcome:
        self._record_event(pod, NORMAL, "DeadlineExceeded", _DEADLINE)
        self._fail_by_deadline(worker, pod, state)
        if not await self._stop(worker, pod, state):
            return SyncOutcome.FAILED
        self._fail_by_deadline(worker, pod, self._read(worker))
        return await self._sync_terminated(worker, pod)

    def _fail_by_deadline(self, worker: PodWorker, pod: Object, state: PodState) -> None:
        now = status.containers_only(pod, state, self._pods.reported_status(pod), {}, self._around)
        self._statuses.set(
            pod, {**now, "phase": "Failed", "reason": "DeadlineExceeded", "message": _DEADLINE}
        )

    # ---- terminating pods ----

    async def _kill(self, pod: Object, state: PodState, grace: int | None = None) -> bool:
        try:
            await self._end.kill_pod(pod, state, grace)
        except KillFailure as failure:
            self._record_event(pod, WARNING, "FailedKillPod", f"error killing pod: {failure}")
            return False
        return True

    async def _stop(
        self, worker: PodWorker, pod: Object, state: PodState, grace: int | None = None
    ) -> bool:
        """Ends a pod for good. Its claims are released before its status says that it has ended:
        then another pod may get their devices.
        """
        return await self._kill(pod, state, grace) and await self._release_claims(worker)

    async def _release_claims(self, worker: PodWorker) -> bool:
        try:
            await self._dependencies.claims.unprepare(worker.uid)
        except ClaimFailure as failure:
            log.warning("pod %s: %s", worker.uid, failure)
            return False
        return True

    async def _fail(self, worker: PodWorker, pod: Object) -> SyncOutcome:
        """The pod's deletion was requested."""
        request = worker.kill
        assert request is not None
        features = self._around.features
        if not features.evicted_status:
            self._statuses.set(pod, request.status)
        killed = await self._stop(worker, pod, self._read(worker), request.grace)
        if killed and features.evicted_status:
            # No pod is reported as ended while its containers run.
            now = self._generate(worker, pod, self._read(worker))
            self._statuses.set(pod, status.evicted_status(pod, now, request.status, features))
            self._statuses.set(pod, self._generate(worker, pod, self._read(worker), terminal=True))
        worker.kill = None
        if not request.done.done():
            request.done.set_result(None)
        if not killed:
            return SyncOutcome.FAILED
        try:
            await self._end.remove(worker.uid)
        except RuntimeFailure as failure:
            log.warning("pod %s: %s", format_pod(pod), failure)
        return await self._sync_terminated(worker, pod)

    async def _sync_terminated(self, worker: PodWorker, pod: Object) -> SyncOutcome:
        """The pod has ended: nothing of it runs, its volumes are unmounted; its records stay."""
        state = self._read(worker)
        if (
            state.running() or any(s.state == "ready" for s in state.sandboxes)
        ) and not await self._kill(pod, state):
            return SyncOutcome.FAILED
        if not await self._release_claims(worker):
            return SyncOutcome.FAILED
        return SyncOutcome.DONE if await self._release(worker) else SyncOutcome.FAILED

    async def _release(self, worker: PodWorker) -> bool:
        self._dependencies.prober.remove_pod(worker.uid)
        if worker.deadline is not None:
            worker.deadline.cancel()
            worker.deadline = None
        try:
            await self._dependencies.volumes.unmount(worker.uid)
        except VolumeFailure as failure:
            log.warning("the volumes of pod %s could not be given back: %s", worker.uid, failure)
            return False
        return True

    async def _delete(self, worker: PodWorker, pod: Object) -> SyncOutcome:
        if worker.finished:
            return SyncOutcome.DONE  # only a finalizer blocks its deletion
        ended = self._pods.reported_status(pod).get("phase") in TERMINAL
        state = self._read(worker)
        if not ended:
            self._statuses.set(pod, self._generate(worker, pod, state))
        if not await self._stop(worker, pod, state):
            return SyncOutcome.FAILED
        if not ended:
            self._statuses.set(pod, self._generate(worker, pod, self._read(worker), terminal=True))
        if not await self._clear(worker):
            return SyncOutcome.FAILED
        worker.finished = True
        self._statuses.finish(pod)
        return SyncOutcome.DONE

    async def _clear(self, worker: PodWorker) -> bool:
        """Whether nothing is left on the node."""
        try:
            await self._end.remove(worker.uid)
        except RuntimeFailure as failure:
            log.warning("pod %s could not be removed: %s", worker.uid, failure)
            return False
        return await self._release(worker)

    async def _cleanup(self, worker: PodWorker) -> SyncOutcome:
        """Cleans up after a pod that its source no longer has."""
        try:
            await self._end.kill_pod(worker.pod, self._read(worker))
        except KillFailure as failure:
            log.warning("pod %s, which is gone, could not be stopped: %s", worker.uid, failure)
            return SyncOutcome.FAILED
        if not await self._release_claims(worker) or not await self._clear(worker):
            return SyncOutcome.FAILED
        if not worker.gone:
            return SyncOutcome.SOON  # a source has it again
        if worker.kill is not None and not worker.kill.done.done():
            worker.kill.done.set_result(None)
        self._statuses.forget(worker.uid)
        self._workers().drop(worker)
        if worker.pod is not None and is_static(worker.pod):
            mirror = self._pods.mirror_of(worker.pod)
            if mirror is not None and self._pods.pod(*self._name(worker.pod)) is None:
                meta = mirror["metadata"]
                await self._dependencies.mirrors.delete(
                    meta["namespace"], meta["name"], meta["uid"]
                )
        return SyncOutcome.DONE

    @staticmethod
    def _name(pod: Object) -> tuple[str, str]:
        return pod["metadata"]["namespace"], pod["metadata"]["name"]
