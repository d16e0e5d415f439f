"""Manages pods on a node from their sources to their termination: combines the pod list, workers,
status and termination.

Knows the other parts of a kubelet only through the interfaces in `parts.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from transom.client.events import WARNING
from transom.kit.task_set import TaskSet
from transom.kubelet.allocation import AllocationManager
from transom.kubelet.base import KubeletContext
from transom.kubelet.conditions import make_ready_condition
from transom.kubelet.event_texts import event_texts
from transom.kubelet.features import PodFeatures
from transom.kubelet.interfaces import (
    ClaimDevices,
    ContainerConfigSource,
    Hooks,
    ImagePuller,
    Mirrors,
    NoDynamicResources,
    NoStartCounter,
    OnProbe,
    PodAdmitHandler,
    PodSource,
    Prober,
    ResourceManagers,
    StartCounter,
    Volumes,
)
from transom.kubelet.labels import POD_UID, is_static
from transom.kubelet.pods import Pods
from transom.kubelet.podstate import TERMINAL, uid_of
from transom.kubelet.refs import pod_ref
from transom.kubelet.starter import ContainerStarter
from transom.kubelet.status_manager import StatusManager
from transom.kubelet.sync import PodSync, PodSyncDependencies
from transom.kubelet.termination import Terminator
from transom.kubelet.workers import KillRequest, PodWorkers
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.podutil import persisted_qos_class
from transom.runtime.api import RuntimeEvent

log = logging.getLogger("transom.kubelet")

_SHORTEST_KILL_WAIT = 10


class KubeletCore:
    """A new instance on the same runtime adopts what runs there."""

    def __init__(
        self,
        env: KubeletContext,
        *,
        images: ImagePuller,
        builder: ContainerConfigSource,
        hooks: Hooks,
        volumes: Volumes,
        admission: PodAdmitHandler,
        mirrors: Mirrors,
        prober: Callable[[OnProbe], Prober],
        sources: Mapping[str, PodSource] | None = None,
        managers: ResourceManagers | None = None,
        claims: ClaimDevices | None = None,
        counter: StartCounter | None = None,
        on_synced: Callable[[str, float], None] = lambda _operation, _seconds: None,
    ) -> None:
        self._env = env
        self._admission = admission
        self._volumes = volumes
        self._mirrors = mirrors
        self._sources = sources or {}
        self._ready = asyncio.Event()
        self._background = TaskSet()
        self.statuses = StatusManager(
            env.client, env.clock, lambda uid: self.pods.api_pod(uid), env.config.pod_features
        )
        self.pods = Pods(env, self, self.statuses.get)
        self.prober = prober(self._probed)
        self._terminator = Terminator(env, hooks)
        self._allocation = AllocationManager(env, admission, managers)
        claims = claims or NoDynamicResources()
        starter = ContainerStarter(
            env, images, builder, hooks, self._terminator, claims, counter or NoStartCounter()
        )
        self._sync = PodSync(
            env,
            PodSyncDependencies(volumes, admission, self.prober, mirrors, self._allocation, claims),
            self.pods,
            self.statuses,
            starter,
            self._terminator,
            lambda: self.workers,
        )
        self.workers = PodWorkers(
            env.clock, env.rng, env.config.sync_frequency, self._sync, on_synced
        )

    # ---- lifecycle ----

    async def run(self, node: Awaitable[None] | None = None) -> None:
        """Runs until cancelled; the runtime keeps running its containers then. Accepts pods of the
        API once `node` is known.
        """
        unsubscribe = self._env.runtime.subscribe(self._happened)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.pods.informer.run())
                for name, source in self._sources.items():
                    group.create_task(self.pods.follow(name, source))
                if node is not None:
                    await node
                await self.pods.synced()
                for name in self._sources:
                    await self.pods.source_changed(name)
                self._clean_up()
                self._ready.set()
        finally:
            unsubscribe()
            await self._stop()

    async def ready(self) -> None:
        """Whether all sources are known and pods are being synced."""
        await self._ready.wait()

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def _stop(self) -> None:
        await self.workers.stop()
        self.statuses.stop()
        self._terminator.stop()
        self._background.cancel()

    def _clean_up(self) -> None:
        """Cleans up what belongs to no pod: pods that were deleted while the kubelet was down, and
        mirrors of removed static pods.
        """
        runtime = self._env.runtime
        uids = {sandbox.config.uid for sandbox in runtime.sandboxes()}
        uids |= {c.labels.get(POD_UID, "") for c in runtime.containers()}
        uids |= set(self._volumes.pods())
        for uid in uids:
            if uid and uid not in self.pods and self.workers.get(uid) is None:
                self.workers.wake(self.workers.add(uid, None))
        for pod in self.pods:
            if is_static(pod):
                self.workers.wake_uid(uid_of(pod))  # its mirror can be created now
        for mirror in self.pods.mirrors():
            if self.pods.pod(mirror["metadata"]["namespace"], mirror["metadata"]["name"]) is None:
                self._delete_mirror(mirror)

    def allocated_pods(self) -> list[Object]:
        """The pods that have not ended, with the resources that are allocated to them."""
        pods = self.pods.active_pods()
        if not self._env.config.pod_features.resize:
            return [*pods]
        return [self._allocation.allocated_pod(pod) for pod in pods]

    # ---- pod updates ----

    def pod_added(self, pod: Object) -> None:
        uid = uid_of(pod)
        if not self.pods.terminated(pod):
            active = [p for p in self.pods if uid_of(p) != uid and not self.pods.terminated(p)]
            if self._env.config.pod_features.resize:
                self._allocation.add_pod(pod)
                active = [self._allocation.allocated_pod(p) for p in active]
            rejection = self._admission.admit(pod, active)
            if rejection is not None:
                self._env.events.event(pod_ref(pod), WARNING, rejection.reason, rejection.message)
                status = {
                    "phase": "Failed",
                    "reason": rejection.reason,
                    "message": event_texts(self._env.config.release).rejected + rejection.message,
                }
                if self._env.config.pod_features.rejected_qos:
                    status["qosClass"] = persisted_qos_class(pod)
                self.statuses.set(pod, status)
        worker = self.workers.get(uid)
        if worker is None:
            worker = self.workers.add(uid, pod)
        else:
            # Its cleanup was about to start.
            worker.pod, worker.gone, worker.finished = pod, False, False
        if not self.pods.terminated(pod):
            self.prober.add_pod(pod)
        self.workers.wake(worker)

    def pod_updated(self, old: Object, pod: Object) -> None:
        worker = self.workers.get(uid_of(pod))
        if worker is None:
            return
        worker.pod = pod
        if _only_status(old, pod):
            self.statuses.check(pod)
            if not _gates_moved(pod, self._env.config.pod_features) and not self._ended_by_others(
                pod
            ):
                return
        else:
            worker.resync = True  # downward API volumes may show labels and annotations
        self.workers.wake(worker)

    def _ended_by_others(self, pod: Object) -> bool:
        """A client set a terminal phase while the pod still runs here: accept it."""
        return (pod.get("status") or {}).get("phase") in TERMINAL and self.pods.reported_status(
            pod
        ).get("phase") not in TERMINAL

    def pod_removed(self, pod: Object) -> None:
        self._allocation.remove_pod(uid_of(pod))
        for uid in [*self._allocation.pending()]:
            self.workers.wake_uid(uid)  # there may be room now
        worker = self.workers.get(uid_of(pod))
        if worker is None:
            self.statuses.forget(uid_of(pod))
            return
        worker.gone = True
        self.workers.wake(worker)

    def mirror_changed(self, pod: Object) -> None:
        self.statuses.touch(uid_of(pod))
        self.workers.wake_uid(uid_of(pod))

    def mirror_orphaned(self, mirror: Object) -> None:
        if self._ready.is_set():
            self._delete_mirror(mirror)

    def _delete_mirror(self, mirror: Object) -> None:
        meta = mirror["metadata"]

        async def delete() -> None:
            try:
                await self._mirrors.delete(meta["namespace"], meta["name"], meta["uid"])
            except (ApiError, OSError) as problem:
                log.warning(
                    "the mirror %s/%s, which shows nothing, stays: %s",
                    meta["namespace"],
                    meta["name"],
                    problem,
                )

        self._background.start(delete())

    def _happened(self, event: RuntimeEvent) -> None:
        worker = self.workers.get(event.pod_uid)
        # While a worker is busy, it caused the start itself.
        if worker is not None and (
            event.kind == "died" or (event.kind != "removed" and worker.task is None)
        ):
            self.workers.wake(worker)

    def _probed(self, uid: str) -> None:
        worker = self.workers.get(uid)
        if worker is not None:
            if worker.task is not None:
                self._sync.refresh(worker)
            self.workers.wake(worker)

    # ---- queries ----

    async def kill_pod(
        self, pod: Object, reason: str, message: str, grace: int | None = None
    ) -> None:
        """The pod becomes Failed with this reason and message; returns when it has stopped, or when
        stopping takes much longer than its grace period.
        """
        worker = self.workers.get(uid_of(pod))
        if worker is None or worker.gone:
            return
        if worker.kill is None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            status = {"phase": "Failed", "reason": reason, "message": message}
            worker.kill = KillRequest(status, grace, done)
        request = worker.kill
        self.workers.wake(worker)
        allowed = (
            grace if grace is not None else pod["spec"].get("terminationGracePeriodSeconds") or 0
        )
        timer = self._env.clock.call_later(
            max(allowed + allowed // 2, _SHORTEST_KILL_WAIT), _expire, request.done
        )
        try:
            await asyncio.shield(request.done)
        except TimeoutError:
            self._env.events.event(
                pod_ref(pod),
                WARNING,
                "ExceededGracePeriod",
                "Container runtime did not kill the pod within specified grace period.",
            )
        finally:
            timer.cancel()


def _expire(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_exception(TimeoutError("timeout waiting to kill pod"))


def _only_status(old: Object, pod: Object) -> bool:
    """Whether the update changed nothing that its containers can see."""
    a, b = old["metadata"], pod["metadata"]
    return bool(
        old["spec"] == pod["spec"]
        and all(
            a.get(k) == b.get(k)
            for k in ("labels", "annotations", "deletionTimestamp", "deletionGracePeriodSeconds")
        )
    )


def _gates_moved(pod: Object, features: PodFeatures) -> bool:
    """Whether a readiness gate changed and the Ready condition does not reflect that yet."""
    spec, status = pod["spec"], pod.get("status") or {}
    if not spec.get("readinessGates"):
        return False
    conditions = status.get("conditions") or ()
    every = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    wanted = make_ready_condition(spec, conditions, every, status.get("phase", ""), features)
    current = next((c for c in conditions if c["type"] == "Ready"), None)
    return current is not None and (
        current["status"] != wanted["status"] or current.get("message") != wanted.get("message")
    )
