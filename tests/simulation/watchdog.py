"""Invariants that are checked after every commit of the store and every start of a container.

The watchdog sees what no component sees: the true state at once, and what runs on machines
that are cut off.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

from transom.apiserver.server import ApiServer
from transom.client.store import object_key
from transom.kit.clock import Clock, parse_rfc3339
from transom.machinery.objects import Object
from transom.machinery.selectors import from_object
from transom.store.api import StoreEvent

from .faults import Faults
from .kubelets import Container, Machine, cpu_of, milli

PODS, BUDGETS, QUOTAS = "pods/", "poddisruptionbudgets.policy/", "resourcequotas/"
NODES = "nodes/"
# Heartbeats and stories about what happened say nothing of unrest.
_QUIET = ("leases.coordination.k8s.io/", "events/", NODES)
# What a disruption controller may not know yet when its status is taken for granted: delays, cut
# watches, back-offs.
_BLIND_SECONDS = 120.0
_ENDED = ("Succeeded", "Failed")


def is_ready(pod: Object) -> bool:
    return any(
        row["type"] == "Ready" and row["status"] == "True"
        for row in (pod.get("status") or {}).get("conditions") or ()
    )


def is_healthy(pod: Object) -> bool:
    """As a disruption budget counts."""
    return is_ready(pod) and "deletionTimestamp" not in pod["metadata"]


def usage(pods: Iterable[Object], now: float) -> dict[str, int]:
    """What pods cost, as a quota counts: those that have ended cost nothing, nor those that should
    long be gone.
    """
    count = cpu = 0
    for pod in pods:
        meta = pod["metadata"]
        if (pod.get("status") or {}).get("phase") in _ENDED:
            continue
        if "deletionTimestamp" in meta and parse_rfc3339(meta["deletionTimestamp"]) < now:
            continue
        count += 1
        cpu += cpu_of(pod)
    return {"pods": count * 1000, "requests.cpu": cpu}


class Watchdog:
    def __init__(
        self,
        api: ApiServer,
        clock: Clock,
        machines: Sequence[Machine],
        faults: Faults,
        report: Callable[[str], None],
    ) -> None:
        self._api = api
        self._faults = faults
        self._clock = clock
        self._machines = machines
        self._report = report
        self.violations: list[str] = []
        self.digest = hashlib.sha256()
        self.commits = 0
        self.last_unrest = 0.0
        self.unrest = ""
        self.pods: dict[str, Object] = {}
        self._budgets: dict[str, Object] = {}
        self._quotas: dict[str, Object] = {}
        self._granted: dict[str, float] = {}  # budget -> when its controller last wrote its status
        # healthy pods lost, also by their labels; not to an eviction
        self._losses: list[tuple[float, Object]] = []
        self._resources = {
            PODS: api.resource("", "v1", "pods"),
            BUDGETS: api.resource("policy", "v1", "poddisruptionbudgets"),
            QUOTAS: api.resource("", "v1", "resourcequotas"),
            NODES: api.resource("", "v1", "nodes"),
        }
        store = api.storage.store
        store.watch("", store.revision, self._committed)

    def violated(self, text: str) -> None:
        text = f"{self._clock.monotonic():.3f}s: {text}"
        if text not in self.violations:
            self.violations.append(text)
            self._report(f"VIOLATION {text}")

    # ---- containers ----

    def started(self, machine: Machine, container: Container) -> None:
        """No name is carried by two at once, wherever they are."""
        for other in self._machines:
            for running in other.running.values():
                if running.key == container.key and running is not container:
                    self.violated(
                        f"pod {container.key} of a {container.owner or 'no owner'} starts on "
                        f"{machine.name} "
                        f"while {running.uid} of the same name runs on {other.name}"
                    )

    # ---- commits ----

    def _committed(self, events: Sequence[StoreEvent]) -> None:
        now = self._clock.monotonic()
        for event in events:
            self.commits += 1
            self.digest.update(f"{now:.6f} {event.revision} {event.key} ".encode())
            if event.record is not None:
                self.digest.update(event.record.value)
            if not event.key.startswith(_QUIET):
                self.last_unrest, self.unrest = now, event.key
            bucket = event.key[: event.key.index("/") + 1]
            if bucket in self._resources:
                resource = self._resources[bucket]
                new, old = (
                    self._api.storage.decode(resource, r) if r is not None else None
                    for r in (event.record, event.previous)
                )
                if bucket == PODS:
                    self._pod(event.key, old, new)
                elif bucket == BUDGETS:
                    self._budget(event.key, old, new)
                elif bucket == QUOTAS:
                    _keep(self._quotas, event.key, new)

    def _pod(self, key: str, old: Object | None, new: Object | None) -> None:
        _keep(self.pods, key, new)
        if (
            old is not None
            and is_healthy(old)
            and not self._is_disrupted(old)
            and (
                new is None
                or not is_healthy(new)
                or new["metadata"].get("labels") != old["metadata"].get("labels")
            )
        ):
            self._losses.append((self._clock.monotonic(), old))
        if new is None:
            return
        if old is None:
            self._check_quota(new)
        node, before = (
            new["spec"].get("nodeName"),
            old["spec"].get("nodeName") if old is not None else None,
        )
        if before and node != before:
            self.violated(f"{key} moved from {before} to {node}")
        if node and not before:
            self._check_room(node)

    def _is_disrupted(self, pod: Object) -> bool:
        meta = pod["metadata"]
        return any(
            meta["name"] in ((b.get("status") or {}).get("disruptedPods") or ())
            for b in self._budgets.values()
            if b["metadata"]["namespace"] == meta["namespace"]
        )

    def _check_room(self, node: str) -> None:
        """Bindings that a scheduler did not hear of are beyond it: there the kubelet has to
        refuse.
        """
        machine = next(m for m in self._machines if m.name == node)
        there = [
            p
            for p in self.pods.values()
            if p["spec"].get("nodeName") == node
            and (p.get("status") or {}).get("phase") not in _ENDED
            and object_key(p) not in self._faults.unheard
        ]
        taken = sum(map(cpu_of, there))
        if taken > machine.cpu * 1000:
            self.violated(
                f"node {node} has {machine.cpu} CPUs, its pods were promised {taken / 1000}"
            )

    def _check_quota(self, pod: Object) -> None:
        namespace = pod["metadata"]["namespace"]
        for quota in self._quotas.values():
            if quota["metadata"]["namespace"] != namespace:
                continue
            hard = (quota.get("status") or {}).get("hard") or {}
            used = usage(
                (p for p in self.pods.values() if p["metadata"]["namespace"] == namespace),
                self._clock.time(),
            )
            for name, text in hard.items():
                if name in used and used[name] > milli(text):
                    self.violated(
                        f"pod {namespace}/{pod['metadata']['name']} was let in over the "
                        f"quota: {used[name] / 1000} of "
                        f"{text} {name}"
                    )

    def _budget(self, key: str, old: Object | None, new: Object | None) -> None:
        _keep(self._budgets, key, new)
        if new is None:
            return
        status, before = new.get("status") or {}, (old or {}).get("status") or {}
        evicted = set(status.get("disruptedPods") or ()) - set(before.get("disruptedPods") or ())
        if not evicted:
            self._granted[key] = self._clock.monotonic()
            return
        meta = new["metadata"]
        selector = from_object(new["spec"].get("selector"))
        since = self._granted.get(key, 0.0) - _BLIND_SECONDS

        def mine(pod: Object) -> bool:
            return pod["metadata"]["namespace"] == meta["namespace"] and selector.matches(
                pod["metadata"].get("labels")
            )

        healthy = sum(
            mine(p) and is_healthy(p) and p["metadata"]["name"] not in status["disruptedPods"]
            for p in self.pods.values()
        )
        excused = sum(mine(pod) for when, pod in self._losses if when >= since)
        if healthy + excused < status.get("desiredHealthy", 0):
            self.violated(
                f"the eviction of {', '.join(sorted(evicted))} leaves {healthy} healthy "
                f"pods, and {excused} lost otherwise;"
                f" budget {meta['namespace']}/{meta['name']} wants "
                f"{status.get('desiredHealthy', 0)}"
            )


def _keep(table: dict[str, Object], key: str, obj: Object | None) -> None:
    if obj is None:
        table.pop(key, None)
    else:
        table[key] = obj
