"""An API server with 1,000 nodes and 10,000 pods that exist only in lists, for tests of the console.

Pages are made when they are read. `LargeCluster.change_pod` sends a watch event.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from transom.client.kubeconfig import RestConfig
from transom.http.messages import (
    Answer,
    HttpRequest,
    HttpResponse,
    ResponseStream,
    StreamResponse,
)
from transom.http.server import HttpServer
from transom.kit.clock import RealClock
from transom.web.server import Console, ConsoleAddress, start_console

NODES, PODS, SERVICES = 1000, 10_000, 50
_JSON = [(b"Content-Type", b"application/json")]


def large_node(n: int) -> dict[str, Any]:
    windows = n % 4 == 3
    info = {
        "operatingSystem": "windows" if windows else "linux",
        "kernelVersion": f"10.0.{(17763, 20348)[n % 2]}.1" if windows else "5.10.0",
        "osImage": ("Windows Server 2019", "Windows Server 2022")[n % 2] if windows else "Debian",
        "kubeletVersion": "v1.20.15",
    }
    return {
        "metadata": {"name": f"node-{n}", "resourceVersion": "1"},
        "status": {"nodeInfo": info, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def large_pod(n: int, phase: str = "Running") -> dict[str, Any]:
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    if n % 97 == 0:
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
    statuses = [{"name": "main", "ready": n % 97 != 0, "restartCount": 0, "state": state}]
    container = {"name": "main", "image": "registry.example.com/team/app:1.0"}
    return {
        "metadata": {"name": f"pod-{n}", "namespace": f"team-{n % 20}", "resourceVersion": "1"},
        "spec": {"nodeName": f"node-{n % NODES}", "containers": [container]},
        "status": {"phase": phase, "containerStatuses": statuses if phase == "Running" else []},
    }


def _service(n: int) -> dict[str, Any]:
    meta = {"name": f"service-{n}", "namespace": f"team-{n % 20}", "resourceVersion": "1"}
    return {"metadata": meta, "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}}


def _endpoints(n: int) -> dict[str, Any]:
    namespace = f"team-{n % 20}"
    pods = [f"pod-{n % 20 + 20 * at}" for at in range(20)]
    addresses = [{"targetRef": {"kind": "Pod", "namespace": namespace, "name": p}} for p in pods]
    return {**_service(n), "subsets": [{"addresses": addresses}]}


_KINDS = {
    "/api/v1/nodes": (NODES, large_node),
    "/api/v1/pods": (PODS, large_pod),
    "/api/v1/services": (SERVICES, _service),
    "/api/v1/endpoints": (SERVICES, _endpoints),
}


class LargeCluster:
    def __init__(self) -> None:
        self._watches: list[ResponseStream] = []

    def __call__(self, request: HttpRequest) -> Answer:
        count, make = _KINDS.get(request.path, (0, large_node))
        if "watch" in request.query:
            watches = self._watches if request.path == "/api/v1/pods" else []
            return StreamResponse(200, _JSON, watches.append)
        if not count:
            return HttpResponse(404, _JSON, b'{"kind":"Status","code":404,"message":"none"}')
        start = int((request.query.get("continue") or ["0"])[0])
        end = min(count, start + int((request.query.get("limit") or ["500"])[0]))
        meta = {"resourceVersion": "1", "continue": str(end) if end < count else ""}
        items = [make(n) for n in range(start, end)]
        return HttpResponse(200, _JSON, orjson.dumps({"metadata": meta, "items": items}))

    def change_pod(self, n: int, phase: str) -> None:
        event = {"type": "MODIFIED", "object": large_pod(n, phase)}
        for stream in self._watches:
            stream.write(orjson.dumps(event) + b"\n")


class RunningLargeCluster:
    """The console in front of it, on an event loop in another thread."""

    def __init__(
        self, cluster: LargeCluster, console: Console, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._cluster = cluster
        self._loop = loop
        self.console = console

    def change_pod(self, n: int, phase: str) -> None:
        self._loop.call_soon_threadsafe(self._cluster.change_pod, n, phase)


@contextmanager
def running_large_cluster() -> Iterator[RunningLargeCluster]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    cluster = LargeCluster()
    server = HttpServer(cluster, None)

    async def start() -> Console:
        port = await server.start("127.0.0.1", 0)
        target = RestConfig("127.0.0.1", port, context="large", user="admin")
        return await start_console(target, RealClock(), ConsoleAddress())

    try:
        console = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
        yield RunningLargeCluster(cluster, console, loop)
        asyncio.run_coroutine_threadsafe(console.stop(), loop).result(20)
        asyncio.run_coroutine_threadsafe(server.stop(0.2), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
