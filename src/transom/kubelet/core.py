"""Pods on a node from their sources to their end: puts the pod list, workers, status and termination together.

Knows the other parts of a kubelet only as `parts.py` describes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from transom.client.events import WARNING
from transom.kubelet.base import Env
from transom.kubelet.labels import POD_UID, is_static
from transom.kubelet.parts import Admission, ContainerBuilder, Hooks, Images, Mirrors, OnProbe, PodSource, Prober, Volumes
from transom.kubelet.pods import Pods
from transom.kubelet.podstate import TERMINAL, uid_of
from transom.kubelet.refs import pod_ref
from transom.kubelet.starter import Starter
from transom.kubelet.status import ready_condition
from transom.kubelet.status_manager import StatusManager
from transom.kubelet.sync import Parts, PodSync
from transom.kubelet.termination import Terminator
from transom.kubelet.workers import KillRequest, Workers
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.runtime.api import Event

log = logging.getLogger("transom.kubelet")

_SHORTEST_KILL_WAIT = 10


class Core:
    """A new one on the same runtime goes on with what runs there."""

    def __init__(
        self, env: Env, *, images: Images, builder: ContainerBuilder, hooks: Hooks, volumes: Volumes,
        admission: Admission, mirrors: Mirrors, prober: Callable[[OnProbe], Prober],
        sources: Mapping[str, PodSource] | None = None,
    ) -> None:
        self._env = env
        self._admission = admission
        self._volumes = volumes
        self._mirrors = mirrors
        self._sources = sources or {}
        self._ready = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self.statuses = StatusManager(env.client, env.clock, lambda uid: self.pods.api_pod(uid))
        self.pods = Pods(env, self, self.statuses.get)
        self.prober = prober(self._probed)
        self._terminator = Terminator(env, hooks)
        starter = Starter(env, images, builder, hooks, self._terminator)
        self._sync = PodSync(
            env, Parts(volumes, admission, self.prober, mirrors), self.pods, self.statuses, starter, self._terminator
        )
        self.workers = Workers(env.clock, env.rng, env.config.sync_frequency, self._sync)
        self._sync.workers = self.workers

    # ---- life ----------------------------------------------------------------------------------------------------

    async def run(self, node: Awaitable[None] | None = None) -> None:
        """Until cancelled. The runtime keeps what it has then. Pods of the API are taken when `node` is known."""
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
                    await self.pods.source_told(name)
                self._clean_up()
                self._ready.set()
        finally:
            unsubscribe()
            await self._stop()

    async def ready(self) -> None:
        """All sources are known, and pods are worked on."""
        await self._ready.wait()

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def _stop(self) -> None:
        await self.workers.stop()
        self.statuses.stop()
        self._terminator.stop()
        for task in [*self._background]:
            task.cancel()

    def _clean_up(self) -> None:
        """What is on the node and belongs to nobody: pods that went away while the kubelet was down, and mirrors whose
        static pods did."""
        runtime = self._env.runtime
        uids = {sandbox.config.uid for sandbox in runtime.sandboxes()}
        uids |= {c.labels.get(POD_UID, "") for c in runtime.containers()}
        uids |= set(self._volumes.pods())
        for uid in uids:
            if uid and uid not in self.pods and self.workers.get(uid) is None:
                self.workers.wake(self.workers.add(uid, None))
        for pod in self.pods:
            if is_static(pod):
                self.workers.wake_uid(uid_of(pod))  # it can have its mirror now
        for mirror in self.pods.mirrors():
            if self.pods.pod(mirror["metadata"]["namespace"], mirror["metadata"]["name"]) is None:
                self._delete_mirror(mirror)

    # ---- pods come and go ----------------------------------------------------------------------------------------

    def pod_added(self, pod: Object) -> None:
        uid = uid_of(pod)
        if not self.pods.terminated(pod):
            active = [p for p in self.pods if uid_of(p) != uid and not self.pods.terminated(p)]
            rejection = self._admission.admit(pod, active)
            if rejection is not None:
                self._env.events.event(pod_ref(pod), WARNING, rejection.reason, rejection.message)
                self.statuses.set(pod, {
                    "phase": "Failed", "reason": rejection.reason, "message": "Pod " + rejection.message,
                })
        worker = self.workers.get(uid)
        if worker is None:
            worker = self.workers.add(uid, pod)
        else:
            # Its remains were about to be cleared away.
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
            if not _gates_moved(pod) and not self._ended_by_others(pod):
                return
        else:
            worker.resync = True  # volumes may show labels and annotations
        self.workers.wake(worker)

    def _ended_by_others(self, pod: Object) -> bool:
        """Somebody says that it has ended, and here it has not: so be it."""
        return (pod.get("status") or {}).get("phase") in TERMINAL and self.pods.told(pod).get("phase") not in TERMINAL

    def pod_removed(self, pod: Object) -> None:
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
                log.warning("the mirror %s/%s, which shows nothing, stays: %s", meta["namespace"], meta["name"], problem)

        task = asyncio.get_running_loop().create_task(delete())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _happened(self, event: Event) -> None:
        worker = self.workers.get(event.pod_uid)
        # While a worker is busy, what starts is its own doing.
        if worker is not None and (event.kind == "died" or (event.kind != "removed" and worker.task is None)):
            self.workers.wake(worker)

    def _probed(self, uid: str) -> None:
        worker = self.workers.get(uid)
        if worker is not None:
            if worker.task is not None:
                self._sync.refresh(worker)
            self.workers.wake(worker)

    # ---- what others ask -----------------------------------------------------------------------------------------

    async def kill_pod(self, pod: Object, reason: str, message: str, grace: int | None = None) -> None:
        """The pod becomes Failed with these; returns when it has stopped, or when that takes much longer than it may."""
        worker = self.workers.get(uid_of(pod))
        if worker is None or worker.gone:
            return
        if worker.kill is None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            status = {"phase": "Failed", "reason": reason, "message": message}
            worker.kill = KillRequest(status, grace, done)
        request = worker.kill
        self.workers.wake(worker)
        allowed = grace if grace is not None else pod["spec"].get("terminationGracePeriodSeconds") or 0
        timer = self._env.clock.call_later(max(allowed + allowed // 2, _SHORTEST_KILL_WAIT), _expire, request.done)
        try:
            await asyncio.shield(request.done)
        except TimeoutError:
            self._env.events.event(
                pod_ref(pod), WARNING, "ExceededGracePeriod",
                "Container runtime did not kill the pod within specified grace period.",
            )
        finally:
            timer.cancel()


def _expire(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_exception(TimeoutError("timeout waiting to kill pod"))


def _only_status(old: Object, pod: Object) -> bool:
    """Nothing in the pod was changed that would be of interest to its containers."""
    a, b = old["metadata"], pod["metadata"]
    return bool(
        old["spec"] == pod["spec"]
        and all(a.get(k) == b.get(k) for k in ("labels", "annotations", "deletionTimestamp", "deletionGracePeriodSeconds"))
    )


def _gates_moved(pod: Object) -> bool:
    """A readiness gate was opened or closed, and Ready does not say so yet."""
    spec, status = pod["spec"], pod.get("status") or {}
    if not spec.get("readinessGates"):
        return False
    conditions = status.get("conditions") or ()
    wanted = ready_condition(spec, conditions, status.get("containerStatuses") or (), status.get("phase", ""))
    current = next((c for c in conditions if c["type"] == "Ready"), None)
    return current is not None and (
        current["status"] != wanted["status"] or current.get("message") != wanted.get("message")
    )
