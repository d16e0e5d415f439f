"""The tests of `transom bench api`: create, get, patch, list, delete for ConfigMaps and Pods, and
watches.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

from transom.bench.client import BenchConnection, BenchError, BenchTarget
from transom.bench.measure import BenchResult, BenchServer, run_load
from transom.kit.lazy_dataclass import dataclass

TESTS = ("create", "get", "patch", "list", "watch", "delete")
_POD_BYTES = 2048
_LIST_REPEATS = 10
_PAGE = 500
_WATCH_WRITERS = 16
_WATCH_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class BenchPlan:
    tests: Sequence[str] = TESTS
    objects: int = 3000  # of each kind, divided among the client counts
    clients: Sequence[int] = (1, 16, 64)
    watchers: int = 100
    watched: int = 500


def bench_config_map(name: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"app": "bench"}}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"key": "v" * 100},
    }


def bench_pod(name: str) -> dict[str, Any]:
    """A 2 KB pod that no scheduler handles."""
    container = {
        "name": "main",
        "image": "pause:3.9",
        "env": [{"name": "MODE", "value": "bench"}],
        "ports": [{"containerPort": 80}],
        "resources": {
            "requests": {"cpu": "10m", "memory": "16Mi"},
            "limits": {"cpu": "1", "memory": "128Mi"},
        },
    }
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {"app": "bench"},
        "annotations": {"padding": ""},
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "nobody", "containers": [container]},
    }
    metadata["annotations"]["padding"] = "x" * max(0, _POD_BYTES - len(json.dumps(body)))
    return body


KINDS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "ConfigMap": ("configmaps", bench_config_map),
    "Pod": ("pods", bench_pod),
}


async def run_benchmark(
    target: BenchTarget, server: BenchServer, plan: BenchPlan
) -> AsyncIterator[BenchResult]:
    """Yields each result as soon as it is available. Uses its own namespace and deletes it at the
    end.
    """
    namespace = f"bench-{secrets.token_hex(4)}"
    control = await BenchConnection.open(target)
    await _make_namespace(target, control, namespace)
    try:
        for test in plan.tests:
            async for result in _TESTS[test](target, server, plan, namespace):
                yield result
    finally:
        if "delete" not in plan.tests or "watch" in plan.tests:
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
            for resource, _ in KINDS.values():
                await control.request(target.encode("DELETE", _path(namespace, resource), options))
        await control.request(target.encode("DELETE", f"/api/v1/namespaces/{namespace}"))
        control.close()


async def _make_namespace(target: BenchTarget, control: BenchConnection, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    status, answer = await control.request(target.encode("POST", "/api/v1/namespaces", body))
    if status != 201:
        raise BenchError(
            f"cannot make namespace {namespace}: {status} {answer[:200].decode(errors='replace')}"
        )
    # Pods are rejected until the namespace has its service account, which a controller creates.
    # Without a controller, create it here.
    account = _path(namespace, "serviceaccounts")
    for _ in range(10):
        if (await control.request(target.encode("GET", f"{account}/default")))[0] == 200:
            return
        await asyncio.sleep(0.1)
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await control.request(target.encode("POST", account, body))


def _path(namespace: str, resource: str) -> str:
    return f"/api/v1/namespaces/{namespace}/{resource}"


def _shares(plan: BenchPlan) -> Iterator[tuple[int, range]]:
    """(clients, number of objects): more clients get more objects."""
    weights = [min(16, clients) + 4 for clients in plan.clients]
    at = 0
    for clients, weight in zip(plan.clients, weights, strict=True):
        last = clients == plan.clients[-1]
        count = plan.objects - at if last else max(1, plan.objects * weight // sum(weights))
        yield clients, range(at, at + count)
        at += count


async def _create(
    target: BenchTarget, server: BenchServer, plan: BenchPlan, namespace: str
) -> AsyncIterator[BenchResult]:
    for kind, (resource, make) in KINDS.items():
        path = _path(namespace, resource)
        for clients, numbers in _shares(plan):
            requests = [target.encode("POST", path, make(f"b-{i:06d}")) for i in numbers]
            yield await run_load(target, server, f"create {kind}", requests, clients)


async def _get(
    target: BenchTarget, server: BenchServer, plan: BenchPlan, namespace: str
) -> AsyncIterator[BenchResult]:
    for kind, (resource, _) in KINDS.items():
        for clients, numbers in _shares(plan):
            requests = [
                target.encode("GET", f"{_path(namespace, resource)}/b-{i:06d}") for i in numbers
            ]
            yield await run_load(target, server, f"get {kind}", requests * 2, clients)


async def _patch(
    target: BenchTarget, server: BenchServer, plan: BenchPlan, namespace: str
) -> AsyncIterator[BenchResult]:
    for kind, (resource, _) in KINDS.items():
        for clients, numbers in _shares(plan):
            requests = [
                target.encode(
                    "PATCH",
                    f"{_path(namespace, resource)}/b-{i:06d}",
                    {"metadata": {"labels": {"patched": f"v{i}"}}},
                    "application/merge-patch+json",
                )
                for i in numbers
            ]
            yield await run_load(target, server, f"patch {kind}", requests, clients)


async def _delete(
    target: BenchTarget, server: BenchServer, plan: BenchPlan, namespace: str
) -> AsyncIterator[BenchResult]:
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    for kind, (resource, _) in KINDS.items():
        for clients, numbers in _shares(plan):
            requests = [
                target.encode("DELETE", f"{_path(namespace, resource)}/b-{i:06d}", options)
                for i in numbers
            ]
            yield await run_load(target, server, f"delete {kind}", requests, clients)


async def _list(
    target: BenchTarget, server: BenchServer, plan: BenchPlan, namespace: str
) -> AsyncIterator[BenchResult]:
    queries = {
        "list": "",
        "list from cache": "?resourceVersion=0",
        "list none": "?labelSelector=app%3Dnothing",
    }
    for kind, (resource, _) in KINDS.items():
        path = _path(namespace, resource)
        for name, query in queries.items():
            requests = [target.encode("GET", path + query)] * _LIST_REPEATS
            yield await run_load(target, server, f"{name} {kind}", requests, 1)
        yield await _pages(target, server, kind, path)


async def _pages(target: BenchTarget, server: BenchServer, kind: str, path: str) -> BenchResult:
    """Complete lists, page by page; the latency is per page."""
    connection = await BenchConnection.open(target)
    latencies: list[float] = []
    cpu_before = server.cpu()
    items = 0
    for _ in range(_LIST_REPEATS):
        token, items = "", 0
        while True:
            request = target.encode(
                "GET", f"{path}?limit={_PAGE}" + (f"&continue={token}" if token else "")
            )
            began = perf_counter()
            status, body = await connection.request(request)
            latencies.append(perf_counter() - began)
            if status != 200:
                raise BenchError(f"a page of {path} was answered with {status}")
            page = json.loads(body)
            items += len(page["items"])
            token = page["metadata"].get("continue", "")
            if not token:
                break
    connection.close()
    cpu_after = server.cpu()
    used = cpu_after - cpu_before if cpu_after is not None and cpu_before is not None else None
    result = BenchResult(
        f"list pages of {_PAGE} {kind}", 1, sum(latencies), latencies, server_cpu=used
    )
    result.more["items"] = items
    return result


async def _watch(
    target: BenchTarget, server: BenchServer, plan: BenchPlan, namespace: str
) -> AsyncIterator[BenchResult]:
    """Many watchers and one burst of pods. A latency runs from sending the create until one watcher
    sees the pod.
    """
    path = _path(namespace, "pods")
    control = await BenchConnection.open(target)
    status, body = await control.request(target.encode("GET", f"{path}?limit=1"))
    if status != 200:
        raise BenchError(f"{path} was answered with {status}")
    version = json.loads(body)["metadata"]["resourceVersion"]
    sent: dict[int, float] = {}
    latencies: list[float] = []
    expected = plan.watchers * plan.watched
    everything = asyncio.Event()
    name = re.compile(rb'"name":\s*"w-(\d+)"')

    def seen(line: bytes) -> None:
        found = name.search(line)
        if found and b'"ADDED"' in line[:40]:
            latencies.append(perf_counter() - sent[int(found[1])])
            if len(latencies) == expected:
                everything.set()

    watchers = await asyncio.gather(*[BenchConnection.open(target) for _ in range(plan.watchers)])
    request = target.encode("GET", f"{path}?watch=1&resourceVersion={version}")
    await asyncio.gather(*[watcher.watch(request, seen) for watcher in watchers])
    writers = await asyncio.gather(*[BenchConnection.open(target) for _ in range(_WATCH_WRITERS)])
    requests = [target.encode("POST", path, bench_pod(f"w-{i}")) for i in range(plan.watched)]
    todo = iter(range(plan.watched))

    async def write(connection: BenchConnection) -> None:
        for number in todo:
            sent[number] = perf_counter()
            status, body = await connection.request(requests[number])
            if status != 201:
                raise BenchError(f"a create was answered with {status}: {body[:120]!r}")

    cpu_before, began = server.cpu(), perf_counter()
    await asyncio.gather(*[write(connection) for connection in writers])
    try:
        await asyncio.wait_for(everything.wait(), _WATCH_SECONDS)
    except TimeoutError as error:
        raise BenchError(f"the watchers saw {len(latencies)} of {expected} events") from error
    seconds = perf_counter() - began
    cpu_after = server.cpu()
    for connection in (*watchers, *writers, control):
        connection.close()
    used = cpu_after - cpu_before if cpu_after is not None and cpu_before is not None else None
    result = BenchResult("watch events", plan.watchers, seconds, latencies, server_cpu=used)
    result.more["pods"] = plan.watched
    yield result


_TESTS = {
    "create": _create,
    "get": _get,
    "patch": _patch,
    "list": _list,
    "watch": _watch,
    "delete": _delete,
}
