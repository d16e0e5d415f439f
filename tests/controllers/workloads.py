"""Shared by tests of the workload controllers: objects, a scripted kubelet, and faults."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from transom.client.api import (
    STRATEGIC_PATCH,
    ApiClient,
    ApiUnreachable,
    ApiWatch,
    BatchedWatch,
    WatchEvent,
)
from transom.client.resources import EVENTS, NODES, PODS, REPLICA_SETS
from transom.controllers.manager import CONTROLLERS
from transom.kit.clock import VirtualClock, rfc3339
from transom.machinery import errors
from transom.machinery.objects import Object, controller_of

from .conftest import Plane

ACCOUNTS = ("serviceaccount", "serviceaccount-token")
WINDOWS_TAINT = {"key": "os", "value": "windows", "effect": "NoSchedule"}
WINDOWS_TOLERATION = {"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}


def template(image: str = "app:1", label: str = "web", **spec: Any) -> Object:
    spec.setdefault("terminationGracePeriodSeconds", 0)
    return {
        "metadata": {"labels": {"app": label}},
        "spec": {"containers": [{"name": "app", "image": image}], **spec},
    }


def workload(name: str = "web", pod: Object | None = None, **spec: Any) -> Object:
    """A ReplicaSet, Deployment, StatefulSet or DaemonSet: they differ in `spec` only."""
    return {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": pod or template(label=name),
            **spec,
        },
    }


def windows_template(name: str, **spec: Any) -> Object:
    return template(
        "app:1",
        name,
        nodeSelector={"kubernetes.io/os": "windows"},
        tolerations=[WINDOWS_TOLERATION],
        **spec,
    )


def node(name: str, *, windows: bool = False, **labels: str) -> Object:
    os = "windows" if windows else "linux"
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/os": os, **labels}},
        "spec": {"taints": [WINDOWS_TAINT]} if windows else {},
    }


async def add_nodes(plane: Plane, *nodes: Object) -> None:
    for each in nodes:
        await plane.client.create(NODES, "", each)
        name = each["metadata"]["name"]
        # Admission holds a new node back until it is ready.
        await plane.client.patch(NODES, "", name, {"spec": {"taints": each["spec"].get("taints")}})


async def pods(plane: Plane, selector: str = "") -> list[Object]:
    return (await plane.client.list(PODS, "default", label_selector=selector)).items


async def names(plane: Plane) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in await pods(plane))


async def report(
    plane: Plane, pod: Object, phase: str = "Running", ready: bool | None = None, **status: Any
) -> None:
    """Say what a kubelet would say."""
    value = "True" if (phase == "Running" if ready is None else ready) else "False"
    meta = pod["metadata"]
    condition = {
        "type": "Ready",
        "status": value,
        "lastTransitionTime": rfc3339(plane.clock.time()),
    }
    body = {"status": {"phase": phase, "conditions": [condition], **status}}
    await plane.client.patch(
        PODS, meta["namespace"], meta["name"], body, STRATEGIC_PATCH, subresource="status"
    )


async def all_ready(plane: Plane) -> int:
    """Every pod runs and is ready; how many were not before."""
    waiting = [p for p in await pods(plane) if (p.get("status") or {}).get("phase") == "Pending"]
    for pod in waiting:
        await report(plane, pod)
    await plane.settle()
    return len(waiting)


async def events(plane: Plane, kind: str) -> list[tuple[str, str]]:
    found = (await plane.client.list(EVENTS, "default")).items
    return sorted((e["reason"], e["message"]) for e in found if e["involvedObject"]["kind"] == kind)


async def owned_sets(plane: Plane) -> list[Object]:
    """ReplicaSets by revision."""
    found = (await plane.client.list(REPLICA_SETS, "default")).items
    return sorted(
        found, key=lambda s: int(s["metadata"]["annotations"]["deployment.kubernetes.io/revision"])
    )


def owners(found: list[Object]) -> set[str]:
    return {(controller_of(obj) or {"name": ""})["name"] for obj in found}


# ---- faults ----


class _CutWatch(BatchedWatch):
    """Ends now and then, in good order or not."""

    def __init__(self, watch: ApiWatch, faults: Faults) -> None:
        self._watch = watch
        self._faults = faults

    async def next(self) -> list[WatchEvent]:
        batch = await self._watch.next()
        if self._faults.happens():
            # What was on its way is lost with the connection.
            self._watch.close()
            raise ApiUnreachable("the watch is cut")
        return batch

    def close(self) -> None:
        self._watch.close()


class Faults:
    """Makes calls of controllers fail, before they have an effect or after it. Off when `rate` is
    0.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rate = 0.0

    def happens(self) -> bool:
        return self.rng.random() < self.rate

    def client(self, inner: ApiClient) -> ApiClient:
        return FaultyClient(inner, self)


class FaultyClient:
    def __init__(self, inner: ApiClient, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    async def watch(self, *args: Any, **options: Any) -> ApiWatch:
        return _CutWatch(await self._inner.watch(*args, **options), self._faults)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name not in ("create", "update", "update_status", "patch", "delete"):
            return call

        async def faulty(resource: Any, *args: Any, **options: Any) -> Any:
            if self._faults.happens():
                if name.startswith("update"):
                    raise errors.conflict(
                        resource.group_resource, "x", "the object has been modified"
                    )
                raise ApiUnreachable("no connection")
            result = await call(resource, *args, **options)
            if self._faults.happens():
                raise ApiUnreachable("the answer is lost")
            return result

        return faulty


class FaultyPlane(Plane):
    """Its controllers speak through clients that fail."""

    def __init__(self, seed: int, controllers: tuple[str, ...]) -> None:
        super().__init__(VirtualClock(), (*ACCOUNTS, *controllers), CONTROLLERS)
        self.faults = Faults(seed)

    def _client(self, identity: str) -> ApiClient:
        return self.faults.client(super()._client(identity))


@asynccontextmanager
async def faulty_plane(seed: int, *controllers: str) -> AsyncIterator[FaultyPlane]:
    plane = FaultyPlane(seed, controllers)
    await plane.api.start()
    plane.start_controllers()
    try:
        await plane.settle()
        yield plane
    finally:
        await plane.stop_controllers()
        await plane.api.stop()


@asynccontextmanager
async def run() -> AsyncIterator[None]:
    async with asyncio.timeout(60):
        yield
