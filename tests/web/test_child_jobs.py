"""Jobs in child processes: the same identity, results and errors as in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from tests.conftest import ContextFactory

from transom.http.messages import Answer, HttpRequest, HttpResponse
from transom.machinery.errors import ApiError
from transom.web import child_jobs
from transom.web.child_jobs import ChildJobs, Job
from transom.web.job_process import JOBS, MOST_FINDINGS

JSON = [(b"Content-Type", b"application/json")]
BIG = {"requests": {"memory": "2Ti"}}


def _json(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status, JSON, orjson.dumps(value))


class SmallCluster:
    """A cluster with one pod that cannot be scheduled; counts the requests of each user agent."""

    def __init__(self) -> None:
        self.agents: set[str] = set()

    def __call__(self, request: HttpRequest) -> Answer:
        self.agents.add(request.header(b"user-agent"))
        if request.path == "/version":
            return _json({"major": "1", "minor": "20", "gitVersion": "v1.20.15"})
        if request.path == "/readyz":
            return HttpResponse(200, [], b"ok")
        if request.path.startswith("/transom"):
            return _json({"kind": "Status", "code": 404, "message": "not found"}, 404)
        items = []
        if request.path == "/api/v1/pods":
            message = "0/1 nodes are available: 1 Insufficient memory."
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
            }
            items = [
                {
                    "metadata": {"name": "big", "namespace": "shop"},
                    "spec": {"containers": [{"name": "c", "resources": BIG}]},
                    "status": {"phase": "Pending", "conditions": [condition]},
                }
            ]
        kind = "PodList" if items else "List"
        return _json({"kind": kind, "apiVersion": "v1", "metadata": {}, "items": items})


async def test_doctor_runs_in_a_child_process(browser: ContextFactory) -> None:
    cluster = SmallCluster()
    async with browser(cluster) as console:
        jobs = ChildJobs(console.services.api.target)
        found = await jobs.run(Job.DOCTOR)
    assert any("cannot be scheduled" in one["what"] for one in found)
    assert all(one["count"] >= len(one["where"]) for one in found) and len(found) <= MOST_FINDINGS
    assert "transom-doctor" in cluster.agents


async def test_an_unreachable_cluster_is_an_error(browser: ContextFactory) -> None:
    async with browser(SmallCluster()) as console:
        target = console.services.api.target
    with pytest.raises(ApiError) as problem:
        await ChildJobs(target).run(Job.DOCTOR)
    assert problem.value.code == 502


async def test_a_cancelled_job_ends_its_process(browser: ContextFactory) -> None:
    async with browser(SmallCluster()) as console:
        begun = asyncio.Event()
        started: list[asyncio.subprocess.Process] = []
        create = asyncio.create_subprocess_exec

        async def record(*command: str, **options: Any) -> asyncio.subprocess.Process:
            started.append(await create(*command, **options))
            begun.set()
            return started[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "create_subprocess_exec", record)
            task = asyncio.ensure_future(ChildJobs(console.services.api.target).run(Job.DOCTOR))
            await begun.wait()
            task.cancel()
            await asyncio.wait([task])
        assert task.cancelled() and started[0].returncode is not None


async def test_a_process_that_fails_is_reported(
    browser: ContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_jobs.sys, "executable", "/bin/false")
    async with browser(SmallCluster()) as console:
        with pytest.raises(ApiError, match="ended early"):
            await ChildJobs(console.services.api.target).run(Job.DOCTOR)


def test_every_job_has_a_function() -> None:
    assert set(JOBS) == set(Job)


async def test_a_user_who_may_not_list_pods_gets_the_reason(browser: ContextFactory) -> None:
    class Limited(SmallCluster):
        def __call__(self, request: HttpRequest) -> Answer:
            if request.path.startswith(("/api/", "/apis/")):
                message = f"jane may not list {request.path.rpartition('/')[2]}"
                return _json({"kind": "Status", "code": 403, "message": message}, 403)
            return super().__call__(request)

    async with browser(Limited()) as console:
        jobs = ChildJobs(console.services.api.target)
        found = await jobs.run(Job.EXPLAIN_POD, "shop", "big")
    assert found["problem"] == "jane may not list pods" and found["decision"] is None
