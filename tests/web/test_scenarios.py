"""Scenarios as switches: the console starts and ends them as `transom scenario` does."""

from __future__ import annotations

import asyncio
import html
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
from tests.conftest import ContextFactory
from tests.web.conftest import Browser

from transom.http.messages import Answer, HttpRequest, HttpResponse
from transom.machinery.errors import ApiError
from transom.scenarios.catalogue import SCENARIOS
from transom.web.child_jobs import Job

FORM = "application/x-www-form-urlencoded"
EVIL = "<img src=x onerror=alert(1)>"
NODES = [
    {"name": "linux-1", "os": "linux", "ready": True, "build": 0},
    {"name": "windows-1", "os": "windows", "ready": True, "build": 17763},
]
FINDING = {
    "severity": "error",
    "what": f"frames have a wrong MAC address {EVIL}",
    "where": ["node/windows-1"],
    "count": 1,
    "remedy": "allow MAC spoofing",
}


class ScriptedCluster:
    """Keeps the namespace of scenarios and records all changes."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] | None = None
        self.changes: list[tuple[str, str]] = []
        self.refuse = ""
        self.created = asyncio.Event()

    def __call__(self, request: HttpRequest) -> Answer:
        if request.method != "GET":
            self.changes.append((request.method, request.path))
        if request.path == "/version":
            return _json({"major": "1", "minor": "36"})
        if request.path == "/transom/nodes":
            return _json({"items": NODES})
        if self.refuse and request.method != "GET":
            return _json({"kind": "Status", "code": 403, "message": self.refuse}, 403)
        if request.path == "/api/v1/namespaces/scenario":
            if request.method == "PATCH":
                self.namespace = orjson.loads(request.body)
                self.created.set()
            if self.namespace is None:
                return _json({"kind": "Status", "code": 404, "message": "not found"}, 404)
            found = self.namespace
            if request.method == "DELETE":
                self.namespace = None
            return _json(found)
        return _json({})


def _json(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status, [(b"Content-Type", b"application/json")], orjson.dumps(value))


async def _switch(console: Browser, name: str, on: bool, **more: str) -> int:
    values = {"csrf": console.csrf, "scenario": name, "on": "true" if on else "false", **more}
    body = urlencode(values).encode()
    answer = await console.post(
        "/why/scenarios", body, content_type=FORM, x_csrf_token=None, accept="application/json"
    )
    return answer.status


async def _reach_phase(console: Browser, phase: str) -> None:
    async with asyncio.timeout(10):
        while (await console.services.scenarios.read_state()).phase.value != phase:
            await console.clock.run_for(0.05)


async def test_every_scenario_has_a_switch_with_its_facts(browser: ContextFactory) -> None:
    async with browser(ScriptedCluster()) as console:
        page = html.unescape((await console.get("/why/scenarios")).text)
        assert page.count('role="switch"') == len(SCENARIOS)
        assert 'aria-checked="true"' not in page
        plain = page.replace("<code>", "").replace("</code>", "")
        for one in SCENARIOS.values():
            for text in (one.title, one.symptom, one.evidence, one.remedy, one.issue):
                assert text.replace("`", "") in plain
        assert 'href="https://github.com/kubernetes/kubernetes/issues/135802"' in page


async def test_a_scenario_of_other_releases_is_refused(browser: ContextFactory) -> None:
    cluster = ScriptedCluster()
    async with browser(cluster) as console:
        assert await _switch(console, "linux-security-context", True) == 409
        assert cluster.changes == []


async def test_a_scenario_is_started_reported_and_ended(browser: ContextFactory) -> None:
    cluster = ScriptedCluster()
    async with browser(cluster) as console:
        console.jobs.results[Job.DOCTOR] = [FINDING]
        assert await _switch(console, "mac-spoofing", True) == 303
        await _reach_phase(console, "on")
        assert ("POST", "/transom/nodes/windows-1/set") in cluster.changes
        page = (await console.get("/why/scenarios")).text
        assert page.count('aria-checked="true"') == 1 and 'data-name="mac-spoofing"' in page
        assert page.count("disabled") == len(SCENARIOS) - 1, "one at a time"
        assert "frames have a wrong MAC address &lt;img" in page and EVIL not in page
        assert await _switch(console, "dns-suffix", True) == 409
        assert await _switch(console, "mac-spoofing", False) == 303
        await _reach_phase(console, "off")
        assert cluster.changes[-1] == ("DELETE", "/api/v1/namespaces/scenario")


async def test_a_scenario_of_another_client_can_be_ended(browser: ContextFactory) -> None:
    cluster = ScriptedCluster()
    labels = {
        "scenario.transom.dev/name": "mac-spoofing",
        "scenario.transom.dev/node": "windows-1",
    }
    cluster.namespace = {"metadata": {"name": "scenario", "labels": labels}}
    async with browser(cluster) as console:
        state = await console.get("/why/scenarios/state")
        assert orjson.loads(state.text) == {
            "phase": "on",
            "name": "mac-spoofing",
            "node": "windows-1",
        }
        assert await _switch(console, "mac-spoofing", False) == 303
        await _reach_phase(console, "off")


async def test_the_page_asks_again_after_doctor_failed(browser: ContextFactory) -> None:
    cluster = ScriptedCluster()
    async with browser(cluster) as console:
        assert await _switch(console, "mac-spoofing", True) == 303
        await _reach_phase(console, "on")
        console.jobs.results[Job.DOCTOR] = ApiError(503, "", f"busy {EVIL}")
        failed = await console.get("/why/scenarios")
        assert failed.status == 200 and "busy &lt;img" in failed.text
        assert 'id="not-reported"' in failed.text and "scenarios.js" in failed.text
        console.jobs.results[Job.DOCTOR] = [FINDING]
        assert 'id="not-reported"' not in (await console.get("/why/scenarios")).text


async def test_the_page_does_not_wait_for_doctor(
    browser: ContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transom.web.scenario_doctor._WAIT_SECONDS", 0.0)
    cluster, finished = ScriptedCluster(), asyncio.Event()
    runs = 0

    async def run(job: Job, *arguments: str) -> Any:
        nonlocal runs
        runs += 1
        await finished.wait()
        return [FINDING]

    async with browser(cluster) as console:
        assert await _switch(console, "mac-spoofing", True) == 303
        await _reach_phase(console, "on")
        monkeypatch.setattr(console.jobs, "run", run)
        for _ in range(2):
            page = (await console.get("/why/scenarios")).text
            assert "Doctor examines the cluster" in page and 'data-seconds="2"' in page
        finished.set()
        async with asyncio.timeout(10):
            while 'id="not-reported"' in page:
                page = (await console.get("/why/scenarios")).text
        assert "frames have a wrong MAC address" in page
        assert runs == 1, "all requests get the result of one examination"
        await console.get("/why/scenarios")
        console.clock.advance(60)
        await console.get("/why/scenarios")
        assert runs == 3, "an old result is not shown"


async def test_a_scenario_can_be_ended_while_it_starts(browser: ContextFactory) -> None:
    cluster = ScriptedCluster()
    async with browser(cluster) as console:
        assert await _switch(console, "slow-image-pull", True, node="windows-1") == 303
        async with asyncio.timeout(10):
            await cluster.created.wait()
        state = await console.services.scenarios.read_state()
        assert (state.phase.value, state.node) == ("starting", "windows-1")
        assert await _switch(console, "slow-image-pull", False) == 303
        await _reach_phase(console, "off")


async def test_a_refused_scenario_says_why(browser: ContextFactory) -> None:
    cluster = ScriptedCluster()
    cluster.refuse = f"jane may not do this {EVIL}"
    async with browser(cluster) as console:
        assert await _switch(console, "mac-spoofing", True) == 303
        await _reach_phase(console, "off")
        page = (await console.get("/why/scenarios")).text
        assert "jane may not do this &lt;img" in page and EVIL not in page


@pytest.mark.parametrize(
    ("name", "node", "csrf", "status"),
    [
        ("meteor", "", None, 400),
        ("mac-spoofing", "linux-1", None, 409),
        ("mac-spoofing", "", "wrong", 403),
    ],
)
async def test_wrong_requests_change_nothing(
    browser: ContextFactory, name: str, node: str, csrf: str | None, status: int
) -> None:
    cluster = ScriptedCluster()
    async with browser(cluster) as console:
        more = {"csrf": csrf} if csrf else {}
        assert await _switch(console, name, True, node=node, **more) == status
        assert await _switch(console, "mac-spoofing", False, **more) in (403, 409)
        assert cluster.changes == []


async def test_another_cluster_has_no_scenarios(browser: ContextFactory) -> None:
    def api(_: HttpRequest) -> Answer:
        return _json({"kind": "Status", "code": 404, "message": "not found"}, 404)

    async with browser(api) as console:
        page = await console.get("/why/scenarios")
        assert page.status == 200 and "Only clusters of `transom up`" in page.text
