"""Jobs end by success, too many failures or a deadline, and create no more pods than requested."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.resources import EVENTS, JOBS, PODS, SERVICE_ACCOUNTS
from transom.controllers.job import indexes
from transom.machinery.errors import ApiError, conflict
from transom.machinery.objects import Object
from transom.machinery.releases import Release

from .conftest import Plane

Play = Callable[..., None]
NS = "default"


def job(name: str = "j", restart: str = "Never", **spec: Any) -> Object:
    template = {"spec": {"restartPolicy": restart, "containers": [{"name": "c", "image": "i"}]}}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


async def start(plane: Plane, manifest: Object) -> None:
    await plane.client.create(
        SERVICE_ACCOUNTS,
        NS,
        {"metadata": {"name": "default"}, "automountServiceAccountToken": False},
    )
    await plane.client.create(JOBS, NS, manifest)
    await plane.settle()


async def pods(plane: Plane, phase: str = "Pending") -> list[Object]:
    found = (await plane.client.list(PODS, NS)).items
    return [
        p
        for p in found
        if p["status"]["phase"] == phase and "deletionTimestamp" not in p["metadata"]
    ]


async def end(plane: Plane, phase: str, count: int = 1) -> None:
    for pod in (await pods(plane))[:count]:
        await plane.client.patch(
            PODS, NS, pod["metadata"]["name"], {"status": {"phase": phase}}, subresource="status"
        )
    await plane.settle()


async def status(plane: Plane, name: str = "j") -> Object:
    found = (await plane.get(JOBS, NS, name))["status"]
    return {
        k: v for k, v in found.items() if k not in ("startTime", "completionTime", "conditions")
    }


async def conditions(plane: Plane, name: str = "j") -> list[tuple[str, str, str]]:
    found = (await plane.get(JOBS, NS, name))["status"].get("conditions") or []
    return [(c["type"], c["status"], c.get("reason", "")) for c in found]


async def reasons(plane: Plane) -> list[str]:
    events = (await plane.client.list(EVENTS, NS)).items
    return sorted(e["reason"] for e in events if e["source"].get("component") == "job-controller")


async def test_completions_are_counted_and_no_pod_too_many_is_made(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("job") as plane:
        await start(plane, job(completions=3, parallelism=2))
        assert await status(plane) == {"active": 2}
        await end(plane, "Succeeded")
        assert await status(plane) == {"active": 2, "succeeded": 1}
        await end(plane, "Succeeded", 2)
        found = await plane.get(JOBS, NS, "j")
        assert await status(plane) == {"succeeded": 3}
        assert await conditions(plane) == [("Complete", "True", "")]
        assert found["status"]["completionTime"] >= found["status"]["startTime"]
        assert await reasons(plane) == ["Completed"] + ["SuccessfulCreate"] * 3
        before = found["metadata"]["resourceVersion"]
        await plane.settle(3600)
        assert (await plane.get(JOBS, NS, "j"))["metadata"]["resourceVersion"] == before


async def test_a_work_queue_is_done_when_one_succeeds_and_the_others_have_ended(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("job") as plane:
        await start(plane, job(parallelism=3))
        await end(plane, "Succeeded")
        assert await status(plane) == {"active": 2, "succeeded": 1}
        await end(plane, "Failed", 2)
        await plane.settle(60)
        assert await status(plane) == {"failed": 2, "succeeded": 1}
        assert await conditions(plane) == [("Complete", "True", "")]


async def test_failed_pods_are_replaced_later_and_later_until_the_limit(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("job") as plane:
        await start(plane, job(backoffLimit=3))
        waits = []
        for _ in range(3):
            await end(plane, "Failed")
            waited = 0
            while not await pods(plane):
                await plane.settle(1)
                waited += 1
            waits.append(waited)
        assert waits[0] == 0 and 8 <= waits[1] <= 11 and 18 <= waits[2] <= 21
        await end(plane, "Failed")
        await plane.settle(60)
        assert await status(plane) == {"failed": 4}
        assert await conditions(plane) == [("Failed", "True", "BackoffLimitExceeded")]
        assert (await reasons(plane)).count("SuccessfulCreate") == 4


async def test_restarts_within_pods_count_against_the_limit(control_plane: ContextFactory) -> None:
    async with control_plane("job") as plane:
        await start(plane, job(restart="OnFailure", backoffLimit=2, parallelism=2))
        names = [p["metadata"]["name"] for p in await pods(plane)]
        for name in names:
            container = {
                "name": "c",
                "restartCount": 1,
                "image": "i",
                "imageID": "",
                "ready": False,
            }
            body = {"status": {"phase": "Running", "containerStatuses": [container]}}
            await plane.client.patch(PODS, NS, name, body, subresource="status")
        await plane.settle()
        assert await conditions(plane) == [("Failed", "True", "BackoffLimitExceeded")]
        assert await status(plane) == {"failed": 2}
        assert (await reasons(plane)).count("SuccessfulDelete") == 2


async def test_the_deadline_ends_a_job_also_after_a_restart_of_the_controller(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("job") as plane:
        await start(plane, job(activeDeadlineSeconds=600, parallelism=2))
        await plane.stop_controllers()
        await plane.settle(300)
        plane.start_controllers()
        await plane.settle(290)
        assert await conditions(plane) == []
        await plane.settle(15)
        assert await conditions(plane) == [("Failed", "True", "DeadlineExceeded")]
        assert not await pods(plane)


async def test_parallelism_can_be_changed_and_spares_those_that_run(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("job") as plane:
        await start(plane, job(parallelism=3, completions=5))
        runs = (await pods(plane))[1]["metadata"]["name"]
        await plane.client.patch(
            PODS, NS, runs, {"status": {"phase": "Running"}}, subresource="status"
        )
        await plane.client.patch(JOBS, NS, "j", {"spec": {"parallelism": 1}})
        await plane.settle()
        assert not await pods(plane) and [
            p["metadata"]["name"] for p in await pods(plane, "Running")
        ] == [runs]
        assert await status(plane) == {"active": 1}


async def test_a_suspended_job_has_no_pods_and_starts_anew(control_plane: ContextFactory) -> None:
    async with control_plane("job") as plane:
        await start(plane, job(suspend=True, activeDeadlineSeconds=100))
        found = await plane.get(JOBS, NS, "j")
        assert not await pods(plane) and "startTime" not in found["status"]
        assert await conditions(plane) == [("Suspended", "True", "JobSuspended")]
        await plane.settle(200)
        await plane.client.patch(JOBS, NS, "j", {"spec": {"suspend": False}})
        await plane.settle()
        assert await conditions(plane) == [("Suspended", "False", "JobResumed")]
        assert (
            len(await pods(plane)) == 1 and (await plane.get(JOBS, NS, "j"))["status"]["startTime"]
        )
        await plane.client.patch(JOBS, NS, "j", {"spec": {"suspend": True}})
        await plane.settle(200)
        assert not await pods(plane) and await status(plane) == {}
        assert await reasons(plane) == [
            "Resumed",
            "SuccessfulCreate",
            "SuccessfulDelete",
            "Suspended",
        ]


async def test_every_index_succeeds_once(control_plane: ContextFactory) -> None:
    async with control_plane("job") as plane:
        await start(
            plane, job(completionMode="Indexed", completions=4, parallelism=3, backoffLimit=9)
        )
        first = {indexes.index_of(p): p for p in await pods(plane)}
        assert sorted(i for i in first if i is not None) == [0, 1, 2]
        pod = first[1]
        assert pod["metadata"]["name"].startswith("j-1-") and pod["spec"]["hostname"] == "j-1"
        assert pod["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
        for index, phase in ((1, "Succeeded"), (2, "Failed")):
            name = first[index]["metadata"]["name"]
            await plane.client.patch(
                PODS, NS, name, {"status": {"phase": phase}}, subresource="status"
            )
        await plane.settle(30)
        assert sorted(filter(None, map(indexes.index_of, await pods(plane)))) == [2, 3]
        assert await status(plane) == {
            "active": 3,
            "succeeded": 1,
            "failed": 1,
            "completedIndexes": "1",
        }
        await end(plane, "Succeeded", 3)
        assert await status(plane) == {"succeeded": 4, "failed": 1, "completedIndexes": "0-3"}
        assert await conditions(plane) == [("Complete", "True", "")]


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0,1"),
        ([0, 1, 2, 5, 7, 8, 9], "0-2,5,7-9"),
    ],
)
def test_indexes_are_written_in_short(numbers: list[int], shown: str) -> None:
    assert indexes.format_indexes(numbers) == shown


async def test_conflicts_and_a_crash_after_any_call_make_no_pod_too_many(
    control_plane: ContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    original = InProcessClient.update_status

    async def contested(self: InProcessClient, resource: Any, obj: Object) -> Object:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise conflict(
                resource.group_resource, obj["metadata"]["name"], "the object has been modified"
            )
        return await original(self, resource, obj)

    monkeypatch.setattr(InProcessClient, "update_status", contested)

    async with control_plane("job") as plane:
        await start(plane, job(completions=6, parallelism=3))
        for turn in range(30):
            await end(plane, "Succeeded")
            await plane.stop_controllers()
            plane.start_controllers()
            for _ in range(turn):
                await asyncio.sleep(0)
        await plane.settle(60)
        assert await conditions(plane) == [("Complete", "True", "")]
        assert len((await plane.client.list(PODS, NS)).items) == 6


async def test_a_full_quota_is_reported_and_retried(
    control_plane: ContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = InProcessClient.create
    full = True

    async def create(self: InProcessClient, resource: Any, namespace: str, obj: Object) -> Object:
        if resource == PODS and full:
            raise ApiError(403, "Forbidden", "exceeded quota")
        return await original(self, resource, namespace, obj)

    monkeypatch.setattr(InProcessClient, "create", create)

    async with control_plane("job") as plane:
        await start(plane, job(parallelism=2))
        assert "FailedCreate" in await reasons(plane)
        full = False
        await plane.settle(30)
        assert len(await pods(plane)) == 2


async def test_finished_jobs_go_after_their_time(control_plane: ContextFactory) -> None:
    async with control_plane("job", "ttl-after-finished", "garbagecollector") as plane:
        plane.api.storage.release = Release(1, 21)
        await start(plane, job(ttlSecondsAfterFinished=100))
        await end(plane, "Succeeded")
        await plane.settle(50)
        await plane.client.patch(JOBS, NS, "j", {"spec": {"ttlSecondsAfterFinished": 200}})
        await plane.settle(100)
        assert await conditions(plane) == [("Complete", "True", "")]
        await plane.settle(60)
        assert await plane.missing(JOBS, NS, "j") and await plane.missing(PODS, NS, "j")
