"""The live state of the Cluster page, against a scripted API server."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from tests.conftest import ContextFactory

from transom.http.messages import (
    Answer,
    HttpRequest,
    HttpResponse,
    ResponseStream,
    StreamResponse,
)
from transom.machinery.errors import ApiError
from transom.web.child_jobs import Job

JSON = [(b"Content-Type", b"application/json")]


def _pod(name: str, phase: str = "Pending") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": "9"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
        "status": {"phase": phase},
    }


class ScriptedApi:
    """Lists in pages of two, watches that a test writes to, and kinds that are forbidden."""

    def __init__(self) -> None:
        self.objects: dict[str, list[dict[str, Any]]] = {
            "/api/v1/nodes": [{"metadata": {"name": "n1"}}],
            "/api/v1/pods": [_pod(f"p{n}") for n in range(5)],
        }
        self.forbidden: set[str] = set()
        self.watches: dict[str, list[ResponseStream]] = {}
        self.lists: list[str] = []
        self.page_size = 2

    def __call__(self, request: HttpRequest) -> Answer:
        path = request.path
        if path in self.forbidden:
            status = {"kind": "Status", "code": 403, "message": f"cannot list {path}"}
            return HttpResponse(403, JSON, orjson.dumps(status))
        if "watch" in request.query:
            return StreamResponse(200, JSON, self.watches.setdefault(path, []).append)
        self.lists.append(path)
        items = self.objects.get(path, [])
        start = int((request.query.get("continue") or ["0"])[0])
        end = start + self.page_size
        more = str(end) if end < len(items) else ""
        meta = {"resourceVersion": "7", "continue": more}
        body = {"kind": "List", "metadata": meta, "items": items[start:end]}
        return HttpResponse(200, JSON, orjson.dumps(body))

    def send(self, path: str, kind: str, obj: dict[str, Any]) -> None:
        for stream in self.watches[path]:
            stream.write(orjson.dumps({"type": kind, "object": obj}) + b"\n")


class Sink:
    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.rows: dict[str, dict[str, Any]] = {}
        self.states: dict[str, Any] = {}
        self.problems: list[Any] | None = None

    async def send(self, event: str, data: Any) -> None:
        self.events.append((event, data))
        if event == "reset":
            self.rows[data["kind"]] = {}
        elif event == "rows":
            self.rows[data["kind"]] |= {row[0]: row for row in data["rows"]}
        elif event == "problems":
            self.problems = list(data)
        elif event == "states":
            self.states = dict(data)
        elif event == "changes":
            for kind, found in data.items():
                self.rows[kind] |= {row[0]: row for row in found["rows"]}
                for key in found["gone"]:
                    self.rows[kind].pop(key, None)


async def _until(clock: Any, reached: Any) -> None:
    """Turns the loop, and virtual time in small steps, until the scripted server was heard."""
    async with asyncio.timeout(20):
        while not reached():
            await clock.run_for(0.05)
            await asyncio.sleep(0.001)


async def test_rows_then_changes(browser: ContextFactory) -> None:
    api, sink = ScriptedApi(), Sink()
    async with browser(api) as page:
        task = asyncio.ensure_future(page.services.feed.follow(sink))
        await _until(page.clock, lambda: "/api/v1/pods" in api.watches)
        await _until(page.clock, lambda: len(sink.rows.get("pods", ())) == 5)
        assert api.lists.count("/api/v1/pods") == 3
        api.send("/api/v1/pods", "MODIFIED", _pod("p0", "Failed"))
        api.send("/api/v1/pods", "DELETED", _pod("p1"))
        api.send("/api/v1/pods", "ADDED", _pod("p9"))
        await _until(page.clock, lambda: "shop/p9" in sink.rows["pods"])
        assert sink.rows["pods"]["shop/p0"][2] == "problem"
        assert "shop/p1" not in sink.rows["pods"]
        seen = len(sink.events)
        api.send("/api/v1/pods", "MODIFIED", _pod("p9"))  # nothing that the page shows
        api.send("/api/v1/pods", "MODIFIED", _pod("p2", "Failed"))
        await _until(page.clock, lambda: sink.rows["pods"]["shop/p2"][2] == "problem")
        changes = [data for event, data in sink.events[seen:] if event == "changes"]
        assert [row[0] for row in changes[0]["pods"]["rows"]] == ["shop/p2"]
        task.cancel()
        await asyncio.wait([task])


async def test_an_expired_watch_lists_again(browser: ContextFactory) -> None:
    api, sink = ScriptedApi(), Sink()
    async with browser(api) as page:
        task = asyncio.ensure_future(page.services.feed.follow(sink))
        await _until(page.clock, lambda: len(sink.rows.get("pods", ())) == 5)
        await _until(page.clock, lambda: "/api/v1/pods" in api.watches)
        api.objects["/api/v1/pods"] = [_pod("new")]
        api.send("/api/v1/pods", "ERROR", {"kind": "Status", "code": 410, "message": "too old"})
        await _until(page.clock, lambda: list(sink.rows["pods"]) == ["shop/new"])
        task.cancel()
        await asyncio.wait([task])


async def test_a_user_with_few_rights_sees_a_namespace(browser: ContextFactory) -> None:
    api, sink = ScriptedApi(), Sink()
    api.forbidden = {"/api/v1/nodes", "/api/v1/pods"}
    api.objects["/api/v1/namespaces/default/pods"] = [_pod("mine")]
    async with browser(api) as page:
        task = asyncio.ensure_future(page.services.feed.follow(sink))
        await _until(page.clock, lambda: list(sink.rows.get("pods", ())) == ["shop/mine"])
        await _until(page.clock, lambda: {"nodes", "pods"} <= set(sink.states))
        assert sink.states["nodes"] == {"message": "cannot list /api/v1/nodes", "code": 403}
        assert sink.states["pods"]["message"].startswith("only the namespace default")
        task.cancel()
        await asyncio.wait([task])


async def test_nothing_is_kept_without_pages(browser: ContextFactory) -> None:
    api = ScriptedApi()
    async with browser(api) as page:
        sinks = [Sink(), Sink()]
        tasks = [asyncio.ensure_future(page.services.feed.follow(one)) for one in sinks]
        await _until(page.clock, lambda: all(len(s.rows.get("pods", ())) == 5 for s in sinks))
        assert api.lists.count("/api/v1/nodes") == 1  # one list for all pages
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        again = Sink()
        task = asyncio.ensure_future(page.services.feed.follow(again))
        await _until(page.clock, lambda: len(again.rows.get("pods", ())) == 5)
        assert api.lists.count("/api/v1/nodes") == 2
        task.cancel()
        await asyncio.wait([task])


async def test_findings_appear_without_a_change_of_rows(browser: ContextFactory) -> None:
    """Events and the state of nodes are not in the rows: doctor looks again within 30 s."""
    api, sink = ScriptedApi(), Sink()
    async with browser(api) as page:
        task = asyncio.ensure_future(page.services.feed.follow(sink))
        await _until(page.clock, lambda: sink.problems == [])
        await _until(page.clock, lambda: len(api.watches) == 4)
        page.jobs.results[Job.DOCTOR] = [{"what": "frames have a wrong MAC address"}]
        begin = page.clock.monotonic()
        await _until(page.clock, lambda: sink.problems)
        assert page.clock.monotonic() - begin <= 30
        page.jobs.results[Job.DOCTOR] = ApiError(502, "", "no answer")
        await _until(page.clock, lambda: "doctor" in sink.states)
        assert sink.states["doctor"]["message"] == "doctor cannot examine the cluster: no answer"
        page.jobs.results[Job.DOCTOR] = []
        await _until(page.clock, lambda: not sink.problems and "doctor" not in sink.states)
        task.cancel()
        await asyncio.wait([task])


async def test_doctor_examines_a_large_cluster(browser: ContextFactory) -> None:
    api, sink = ScriptedApi(), Sink()
    api.objects["/api/v1/pods"] = [_pod(f"p{n}") for n in range(2100)]
    api.page_size = 500
    async with browser(api) as page:
        task = asyncio.ensure_future(page.services.feed.follow(sink))
        page.jobs.results[Job.DOCTOR] = [{"what": "cannot be scheduled"}]
        page.jobs.finish = asyncio.Event()
        await _until(page.clock, lambda: "doctor" in sink.states)
        assert sink.states["doctor"]["message"] == "doctor examines the cluster", "not: 0 pods"
        page.jobs.finish.set()
        await _until(page.clock, lambda: sink.problems)
        assert len(sink.rows["pods"]) == 2100 and page.jobs.ran == [Job.DOCTOR]
        task.cancel()
        await asyncio.wait([task])
