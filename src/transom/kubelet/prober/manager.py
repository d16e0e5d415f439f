"""Probes of all pods of a node and their results, by container.

The owner of the pods reports when a pod is added or removed and when its containers have changed;
results are looked up by the container's id in the runtime. Readiness starts as a failure, liveness
as a success, and both wait for the startup probe if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from transom.kit.named_tuple import NamedTuple
from transom.kubelet.base import KubeletContext
from transom.kubelet.podstate import (
    container_specs,
    format_pod,
    is_deleted,
    is_host_network,
    uid_of,
)
from transom.kubelet.prober.worker import FIELDS, INITIAL, Kind, ProbedContainer, ProbeWorker
from transom.kubelet.refs import pod_ref
from transom.machinery.objects import Object
from transom.machinery.podutil import is_restartable_init_container
from transom.machinery.releases.kubelet import kubelet_has
from transom.runtime.api import Container


class ProbeCounts(NamedTuple):
    """How often a probe had this result: a row of the metric prober_probe_total."""

    kind: Kind
    pod: Object  # a reference
    container: str
    result: str
    times: int


class ProbeManager:
    def __init__(self, env: KubeletContext, changed: Callable[[str], None]) -> None:
        """`changed` is called with a pod's uid whenever the result of one of its containers
        changes.
        """
        self._env = env
        self._changed = changed
        self._workers: dict[str, list[ProbeWorker]] = {}  # by pod
        self._results: dict[Kind, dict[str, bool | None]] = {kind: {} for kind in FIELDS}
        self._started = env.clock.monotonic()
        self._sidecars = env.config.pod_features.sidecars

    # Results

    def readiness(self, container_id: str) -> bool | None:
        return self._results["readiness"].get(container_id)

    def liveness(self, container_id: str) -> bool | None:
        return self._results["liveness"].get(container_id)

    def startup(self, container_id: str) -> bool | None:
        return self._results["startup"].get(container_id)

    def counts(self) -> Iterator[ProbeCounts]:
        for workers in self._workers.values():
            for worker in workers:
                for good, result in enumerate(("failed", "successful")):
                    if worker.counts[good]:
                        yield ProbeCounts(
                            worker.kind,
                            worker.pod.ref,
                            worker.container,
                            result,
                            worker.counts[good],
                        )

    # Pods

    def add_pod(self, pod: Object) -> None:
        uid = uid_of(pod)
        if uid in self._workers:
            return
        workers: list[ProbeWorker] = []
        probed: ProbedContainer | None = None
        for container, path in container_specs(pod):
            if not path.startswith("spec.containers") and not (
                self._sidecars
                and path.startswith("spec.initContainers")
                and is_restartable_init_container(container)
            ):
                continue
            for kind, field in FIELDS.items():
                if container.get(field) is not None:
                    probed = probed or _probed(pod)
                    period = container[field].get("periodSeconds") or 10
                    workers.append(
                        ProbeWorker(
                            self._env,
                            kind,
                            probed,
                            path,
                            container,
                            self._jitter(period),
                            self._report,
                        )
                    )
        if workers:
            self._workers[uid] = workers
            self.sync(uid)

    def remove_pod(self, uid: str) -> None:
        for worker in self._workers.pop(uid, ()):
            worker.pause()
            self._results[worker.kind].pop(worker.container_id, None)

    def close(self) -> None:
        for uid in list(self._workers):
            self.remove_pod(uid)

    def sync(self, uid: str) -> None:
        """Called when the pod's containers have changed."""
        workers = self._workers.get(uid)
        if not workers:
            return
        newest: dict[str, Container] = {}
        for container in self._env.runtime.containers(uid):
            newest.setdefault(container.name, container)
        for worker in workers:
            current = newest.get(worker.container)
            if current is None:
                worker.pause()
                continue
            if current.id != worker.container_id:
                results = self._results[worker.kind]
                results.pop(worker.container_id, None)
                worker.follow(current.id)
                results[current.id] = INITIAL[worker.kind]
            if current.state != "running":
                worker.pause()
            elif worker.pod.deleting and worker.kind != "readiness":
                self._set(worker, True)
            elif self._wanted(worker, workers):
                worker.arm(current)

    def _wanted(self, worker: ProbeWorker, workers: list[ProbeWorker]) -> bool:
        """A startup probe until it has succeeded, then the others; none while the container is
        being stopped.
        """
        if worker.hold:
            return False
        has_started = self.startup(worker.container_id)
        if worker.kind == "startup":
            return has_started is not True
        return has_started is True or not any(
            w.kind == "startup" and w.container == worker.container for w in workers
        )

    def _report(self, worker: ProbeWorker, good: bool) -> None:
        self._set(worker, good)
        if worker.kind == "startup" and good:
            self.sync(worker.pod.uid)

    def _set(self, worker: ProbeWorker, good: bool) -> None:
        results = self._results[worker.kind]
        if results.get(worker.container_id) is not good:
            results[worker.container_id] = good
            if worker.kind == "startup" and good:
                worker.hold = True  # until there is a new container
            self._changed(worker.pod.uid)

    def _jitter(self, period: float) -> float:
        """The fraction of the period to wait before the first probe, so that probes do not run all
        at once.
        """
        since = self._env.clock.monotonic() - self._started
        only_at_start = kubelet_has(self._env.config.release, "ProbeJitterAtStartOnly")
        if only_at_start and period <= since:
            return 0.0
        return self._env.rng.random()


def _probed(pod: Object) -> ProbedContainer:
    return ProbedContainer(
        uid_of(pod), pod_ref(pod), format_pod(pod), is_host_network(pod), is_deleted(pod)
    )
