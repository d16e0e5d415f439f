"""Fake nodes: a machine holds what runs, its kubelet follows the API and reports.

They are separate because a machine that is cut off keeps its containers, one
that is switched off loses them, and a kubelet that comes back finds what is still there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transom.client.api import STRATEGIC_PATCH, ApiClient, is_already_exists, is_not_found
from transom.client.informer import InformerFactory
from transom.client.resources import LEASES, NODES, PODS
from transom.client.store import object_key
from transom.client.workqueue import RetryLater, WorkQueue
from transom.kit.clock import Clock, rfc3339, rfc3339_micro
from transom.machinery import quantity
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, controller_of

LEASE_NAMESPACE = "kube-node-lease"
WINDOWS_TAINT = {"key": "os", "value": "windows", "effect": "NoSchedule"}
ZONE = "topology.kubernetes.io/zone"
# What a pod does: seconds that it runs, and how likely it fails then.
RUNS, FAILS = "simulation/runs", "simulation/fails"
_RENEW = 10.0
_ENDED = ("Succeeded", "Failed")


def milli(text: str) -> int:
    return quantity.parse_quantity(text).milli_value()


def cpu_of(pod: Object) -> int:
    """Requested thousandths."""
    total = 0
    for container in pod["spec"]["containers"]:
        text = ((container.get("resources") or {}).get("requests") or {}).get("cpu")
        total += milli(text) if text else 0
    return total


@dataclass(frozen=True)
class Container:
    """A pod's containers as one."""

    key: str
    uid: str
    owner: str  # the kind of the pod's controller
    ends: float | None  # when it is done, if it ever is
    fails: bool


class Machine:
    """`on_start(machine, container)` is called for what begins to run."""

    def __init__(
        self,
        name: str,
        *,
        windows: bool,
        zone: str,
        cpu: int,
        on_start: Callable[[Machine, Container], None],
    ):
        self.name = name
        self.windows = windows
        self.zone = zone
        self.cpu = cpu
        self.running: dict[str, Container] = {}  # by uid
        # uid -> phase; they never run again, whatever the API still says
        self.ended: dict[str, str] = {}
        self.unready: set[str] = set()
        self._on_start = on_start

    def begin(self, container: Container) -> None:
        self.running[container.uid] = container
        self._on_start(self, container)

    def end(self, uid: str, phase: str) -> None:
        self.ended[uid] = phase
        self.running.pop(uid, None)

    def power_off(self) -> None:
        self.running.clear()
        self.ended.clear()

    def as_node(self) -> Object:
        os = "windows" if self.windows else "linux"
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": os,
            "kubernetes.io/arch": "amd64",
            ZONE: self.zone,
        }
        node: Object = {"metadata": {"name": self.name, "labels": labels}, "spec": {}}
        if self.windows:
            node["spec"]["taints"] = [WINDOWS_TAINT]
        return node


class Kubelet:
    def __init__(
        self, machine: Machine, client: ApiClient, clock: Clock, rng: random.Random
    ) -> None:
        self._machine = machine
        machine.unready.clear()  # this kubelet would not be notified of its end
        self._client = client
        self._clock = clock
        self._rng = rng
        self._informers = InformerFactory(client, clock, rng)
        self._admitted = set(machine.running)
        self._pods = self._informers(PODS, field_selector=f"spec.nodeName={machine.name}")
        self._queue: WorkQueue[str] = WorkQueue(clock, name=f"kubelet {machine.name}")
        self._pods.add_handler(
            add=self._changed, update=lambda _, new: self._changed(new), delete=self._changed
        )

    def _changed(self, pod: Object) -> None:
        self._queue.add(object_key(pod))

    async def run(self) -> None:
        await self._register()
        self._informers.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._heartbeat())
                group.create_task(self._work())
        finally:
            await self._informers.stop()

    # ---- the node ----

    async def _register(self) -> None:
        while True:
            try:
                await self._client.create(NODES, "", self._machine.as_node())
                return
            except (ApiError, OSError) as problem:
                if is_already_exists(problem):
                    return
            await self._clock.sleep(1 + self._rng.random())

    async def _heartbeat(self) -> None:
        while True:
            try:
                await self._report()
                await self._renew()
                wait = _RENEW
            except (ApiError, OSError):
                wait = 1.0
            await self._clock.sleep(wait * (1 + 0.04 * self._rng.random()))

    async def _report(self) -> None:
        """Say that the node is ready, if that is not what the API says."""
        node = await self._client.get(NODES, "", self._machine.name)
        rows = (node.get("status") or {}).get("conditions") or ()
        if any(row["type"] == "Ready" and row["status"] == "True" for row in rows):
            return
        now = rfc3339(self._clock.time())
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        pressures = [
            {"type": name, "status": "False", "lastHeartbeatTime": now, "lastTransitionTime": now}
            for name in ("MemoryPressure", "DiskPressure", "PIDPressure")
        ]
        room = {"cpu": str(self._machine.cpu), "memory": "32Gi", "pods": "110"}
        status = {"capacity": room, "allocatable": room, "conditions": [*pressures, ready]}
        body = {"status": status}
        await self._client.patch(
            NODES, "", self._machine.name, body, STRATEGIC_PATCH, subresource="status"
        )

    async def _renew(self) -> None:
        name, now = self._machine.name, rfc3339_micro(self._clock.time())
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
        try:
            await self._client.patch(LEASES, LEASE_NAMESPACE, name, {"spec": spec})
        except ApiError as problem:
            if not is_not_found(problem):
                raise
            await self._client.create(
                LEASES, LEASE_NAMESPACE, {"metadata": {"name": name}, "spec": spec}
            )

    # ---- pods ----

    async def _work(self) -> None:
        await self._pods.synced()
        for container in self._machine.running.values():
            self._queue.add(container.key)  # its pod may be gone
        await self._queue.run(self._sync, workers=20)

    async def _sync(self, key: str) -> None:
        pod = self._pods.by_key(key)
        uid = pod["metadata"]["uid"] if pod is not None else ""
        for other in [c for c in self._machine.running.values() if c.key == key and c.uid != uid]:
            await self._pause(2.0)
            self._machine.running.pop(other.uid, None)
        if pod is None:
            return
        phase = (pod.get("status") or {}).get("phase", "")
        if "deletionTimestamp" in pod["metadata"]:
            await self._terminate(pod)
        elif phase in _ENDED:
            self._machine.running.pop(uid, None)
        elif uid in self._machine.running:
            await self._look_after(pod, self._machine.running[uid])
        elif uid in self._machine.ended:
            await self._say(pod, self._machine.ended[uid], ready=False)
        else:
            await self._begin(pod)

    async def _pause(self, longest: float) -> None:
        await self._clock.sleep(self._rng.random() * longest)

    async def _terminate(self, pod: Object) -> None:
        meta = pod["metadata"]
        if meta["uid"] in self._machine.running:
            grace = meta.get("deletionGracePeriodSeconds") or 0
            await self._pause(min(grace, self._rng.choice((0, 2, 60))))
            self._machine.running.pop(meta["uid"], None)
        try:
            await self._client.delete(
                PODS, meta["namespace"], meta["name"], grace=0, uid=meta["uid"]
            )
        except ApiError as problem:
            if problem.reason not in ("NotFound", "Conflict"):  # gone, or another pod by now
                raise

    async def _begin(self, pod: Object) -> None:
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        if status.get("phase") == "Running" and spec.get("restartPolicy") == "Never":
            # It ran here before the machine lost it.
            await self._say(pod, "Failed", ready=False, reason="NodeLost")
            return
        if not self._admit(pod):
            self._machine.end(meta["uid"], "Failed")
            await self._say(pod, "Failed", ready=False, reason="OutOfcpu")
            return
        await self._pause(2.0)
        now = self._pods.by_key(object_key(pod))
        if (
            now is None
            or now["metadata"]["uid"] != meta["uid"]
            or "deletionTimestamp" in now["metadata"]
        ):
            self._queue.add(object_key(pod))
            return
        notes = meta.get("annotations") or {}
        ends = (
            self._clock.monotonic() + float(notes[RUNS]) * (0.5 + self._rng.random())
            if RUNS in notes
            else None
        )
        fails = self._rng.random() < float(notes.get(FAILS, 0))
        ref = controller_of(pod)
        self._machine.begin(
            Container(object_key(pod), meta["uid"], ref["kind"] if ref else "", ends, fails)
        )
        await self._look_after(now, self._machine.running[meta["uid"]])

    def _admit(self, pod: Object) -> bool:
        """Whether there is room beside those that were let in before. Those that do not run yet are
        let in once.
        """
        mine = pod["metadata"]["uid"]
        others = [
            p
            for p in self._pods.list()
            if p["metadata"]["uid"] in self._admitted - {mine}
            and (p.get("status") or {}).get("phase") not in _ENDED
        ]
        if sum(map(cpu_of, others)) + cpu_of(pod) > self._machine.cpu * 1000:
            return False
        self._admitted.add(mine)
        return True

    async def _look_after(self, pod: Object, container: Container) -> None:
        if container.ends is None:
            await self._say(pod, "Running", ready=container.uid not in self._machine.unready)
            return
        left = container.ends - self._clock.monotonic()
        if left > 0:
            self._queue.add_after(container.key, left + 0.001)
            await self._say(pod, "Running", ready=True)
            return
        if container.fails and pod["spec"].get("restartPolicy") != "Never":
            self._machine.running.pop(container.uid, None)  # and once more
            raise RetryLater("back-off restarting failed container")
        self._machine.end(container.uid, "Failed" if container.fails else "Succeeded")
        await self._say(pod, self._machine.ended[container.uid], ready=False)

    async def _say(self, pod: Object, phase: str, *, ready: bool, reason: str = "") -> None:
        meta, status = pod["metadata"], pod.get("status") or {}
        value = "True" if ready else "False"
        rows = {row["type"]: row["status"] for row in status.get("conditions") or ()}
        if status.get("phase") == phase and rows.get("Ready") == value:
            return
        now = rfc3339(self._clock.time())
        condition = {"type": "Ready", "status": value, "lastTransitionTime": now}
        new: dict[str, Any] = {
            "phase": phase,
            "conditions": [condition],
            "startTime": status.get("startTime") or now,
        }
        if reason:
            new["reason"] = reason
        if phase == "Running":
            number = int(meta["uid"][:6], 16)
            new["podIP"] = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
            new["podIPs"] = [{"ip": new["podIP"]}]
        body = {"metadata": {"uid": meta["uid"]}, "status": new}
        try:
            await self._client.patch(
                PODS, meta["namespace"], meta["name"], body, STRATEGIC_PATCH, subresource="status"
            )
        except ApiError as problem:
            if problem.reason not in ("NotFound", "Conflict", "Invalid"):
                raise

    # ---- what only happens to nodes ----

    def flake(self, rng: random.Random) -> None:
        """A pod is not ready for a while, or fails altogether, as when a node is short of
        memory.
        """
        if not self._machine.running:
            return
        container = rng.choice([*self._machine.running.values()])
        if rng.random() < 0.3:
            self._machine.end(container.uid, "Failed")
        else:
            self._machine.unready.add(container.uid)
            self._clock.call_later(10 * rng.random(), self._restart, container)
        self._queue.add(container.key)

    def _restart(self, container: Container) -> None:
        self._machine.unready.discard(container.uid)
        self._queue.add(container.key)
