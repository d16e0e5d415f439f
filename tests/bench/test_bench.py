"""The load generator against a small server that keeps objects in a dict."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

from transom.bench import api
from transom.bench.client import BenchTarget
from transom.bench.measure import BenchServer, percentile
from transom.http import HttpRequest, HttpResponse, HttpServer, Stream, StreamResponse

JSON = [(b"Content-Type", b"application/json")]


class Toy:
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.watchers: list[Stream] = []
        self.seen: set[tuple[str, str]] = set()

    def __call__(self, request: HttpRequest) -> Any:
        self.seen.add(
            (request.method, request.path.split("/")[-1] if request.method == "POST" else "")
        )
        body = json.loads(request.body) if request.body else {}
        path = request.path
        if "watch" in request.query:
            return StreamResponse(200, JSON, self.watchers.append)
        if request.method == "POST":
            path += "/" + body["metadata"]["name"]
            status = 409 if path in self.objects else 201
            self.objects[path] = body
            for watcher in self.watchers:
                watcher.write(b'{"type":"ADDED","object":%b}\n' % json.dumps(body).encode())
            return self.answer(status, body)
        if request.method == "DELETE":
            gone = [p for p in self.objects if p == path or p.startswith(path + "/")]
            for p in gone:
                del self.objects[p]
            return self.answer(200 if gone else 404, {})
        if path in self.objects:
            return self.answer(200, self.objects[path])
        items = [o for p, o in self.objects.items() if p.startswith(path + "/")]
        at, limit = (
            int(request.query.get("continue", ["0"])[0]),
            int(request.query.get("limit", ["100000"])[0]),
        )
        metadata = {
            "resourceVersion": "1",
            "continue": str(at + limit) if at + limit < len(items) else "",
        }
        return self.answer(200, {"metadata": metadata, "items": items[at : at + limit]})

    def answer(self, status: int, body: Any) -> HttpResponse:
        return HttpResponse(status, JSON, json.dumps(body).encode())


async def measure(handler: Any, plan: api.BenchPlan) -> list[dict[str, Any]]:
    server = HttpServer(handler, None)
    port = await server.start("127.0.0.1")
    target = BenchTarget("127.0.0.1", port, None, "", (("Host", "h"),))
    try:
        return [
            result.report() async for result in api.run_benchmark(target, BenchServer(()), plan)
        ]
    finally:
        await server.stop(1)


def test_every_test_does_its_work_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_PAGE", 5)
    toy = Toy()
    plan = api.BenchPlan(objects=30, clients=(1, 4), watchers=3, watched=5)
    results = asyncio.run(measure(toy, plan))
    assert [r for r in results if r["errors"]] == []
    counts = {(r["test"], r["clients"]): r["count"] for r in results}
    for kind in ("ConfigMap", "Pod"):
        for verb, factor in (("create", 1), ("get", 2), ("patch", 1), ("delete", 1)):
            assert counts[f"{verb} {kind}", 1] + counts[f"{verb} {kind}", 4] == 30 * factor
        pages = next(r for r in results if r["test"] == f"list pages of 5 {kind}")
        assert (pages["items"], pages["count"]) == (30, 60)
    assert counts["watch events", 3] == 15
    assert toy.objects == {}
    assert len(json.dumps(api.bench_pod("b-000000"))) == 2048


def test_errors_are_counted_not_hidden() -> None:
    toy = Toy()

    def refusing(request: HttpRequest) -> Any:
        refused = request.method == "PATCH"
        return toy.answer(422, {"reason": "Invalid"}) if refused else toy(request)

    results = asyncio.run(
        measure(refusing, api.BenchPlan(tests=["create", "patch"], objects=4, clients=(2,)))
    )
    assert [sum(r["errors"].values()) for r in results if r["test"].startswith("patch")] == [4, 4]


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([], 50, 0.0),
        ([3, 1, 2], 50, 2),
        ([1, 2, 3, 4], 50, 2),
        (list(range(1, 101)), 99, 99),
        ([5], 99, 5),
    ],
)
def test_percentile(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


def test_the_processes_of_several_servers_are_measured_together() -> None:
    own = os.getpid()
    one, two = BenchServer([own]), BenchServer([own, own])
    before, both, after = one.cpu(), two.cpu(), one.cpu()
    assert before is not None and both is not None and after is not None
    assert 2 * before <= both <= 2 * after
    assert (two.resident_mib() or 0) > 1.5 * (one.resident_mib() or 0) > 0
    assert BenchServer([]).cpu() is None and BenchServer([]).resident_mib() is None
    assert BenchServer([own, 2**22 + 1]).cpu() is None
