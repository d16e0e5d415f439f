"""CronJobs start what is due, once, and keep the house clean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.informer import InformerFactory
from transom.client.resources import CRON_JOBS, EVENTS, JOBS, PODS, SERVICE_ACCOUNTS
from transom.client.workqueue import WorkQueue
from transom.kit.clock import parse_rfc3339
from transom.machinery.objects import Object

from .conftest import Plane

Play = Callable[..., None]
NS = "default"
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def cron_job(schedule: str, name: str = "c", **spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    meta = {"labels": {"from": "cron"}}
    return {
        "metadata": {"name": name},
        "spec": {
            "schedule": schedule,
            "jobTemplate": {"metadata": meta, "spec": {"template": template}},
            **spec,
        },
    }


async def start(plane: Plane, manifest: Object) -> None:
    await plane.client.create(CRON_JOBS, NS, manifest)
    await plane.settle()


async def jobs(plane: Plane) -> list[str]:
    """When the Jobs that are there were due."""
    found = (await plane.client.list(JOBS, NS)).items
    times = sorted(int(job["metadata"]["name"].rpartition("-")[2]) for job in found)
    return [datetime.fromtimestamp(t, UTC).strftime("%m-%d %H:%M") for t in times]


async def finish(plane: Plane, kind: str = "Complete") -> None:
    for job in (await plane.client.list(JOBS, NS)).items:
        if not job["status"].get("conditions"):
            condition = {"type": kind, "status": "True"}
            body = {
                "status": {
                    "conditions": [condition],
                    "startTime": job["metadata"]["creationTimestamp"],
                }
            }
            await plane.client.patch(JOBS, NS, job["metadata"]["name"], body, subresource="status")
    await plane.settle()


async def events(plane: Plane) -> dict[str, str]:
    found = (await plane.client.list(EVENTS, NS)).items
    return {
        e["reason"]: e["message"]
        for e in found
        if e["source"].get("component") == "cronjob-controller"
    }


async def leap(plane: Plane, seconds: float) -> None:
    """A long time in which nothing is due, without a turn of the loop for each thing that ticks;
    then what is late.
    """
    plane.clock.advance(seconds)
    await plane.settle()


async def status(plane: Plane) -> Object:
    found: Object = (await plane.get(CRON_JOBS, NS, "c")).get("status") or {}
    return found


async def test_a_job_is_made_at_its_minute_and_noted_until_it_ends(
    control_plane: ContextFactory,
) -> None:
    async with control_plane("cronjob") as plane:
        await start(plane, cron_job("*/10 * * * *"))
        await plane.settle(5 * MINUTE)
        assert await jobs(plane) == []
        await plane.settle(MINUTE)
        assert await jobs(plane) == ["01-02 03:10"]
        job = (await plane.client.list(JOBS, NS)).items[0]
        assert job["metadata"]["labels"]["from"] == "cron"
        assert job["metadata"]["ownerReferences"][0]["apiVersion"] == "batch/v1beta1"
        found = await status(plane)
        assert found["lastScheduleTime"] == "2020-01-02T03:10:00Z"
        assert [ref["name"] for ref in found["active"]] == [job["metadata"]["name"]]
        await finish(plane)
        assert "active" not in await status(plane)
        assert await events(plane) == {
            "SuccessfulCreate": f"Created job {job['metadata']['name']}",
            "SawCompletedJob": f"Saw completed job: {job['metadata']['name']}, status: Complete",
        }


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("Allow", ["01-02 03:05", "01-02 03:06", "01-02 03:07"]),
        ("Forbid", ["01-02 03:05"]),
        ("Replace", ["01-02 03:07"]),
    ],
)
async def test_concurrency(control_plane: ContextFactory, policy: str, left: list[str]) -> None:
    async with control_plane("cronjob") as plane:
        await start(plane, cron_job("* * * * *", concurrencyPolicy=policy))
        await plane.settle(3 * MINUTE + 1)
        assert await jobs(plane) == left
        assert len((await status(plane))["active"]) == len(left)
        if policy == "Forbid":
            # the one that had to wait comes at once, for the last minute that was missed
            await finish(plane)
            assert await jobs(plane) == ["01-02 03:05", "01-02 03:07"]


async def test_history_keeps_the_latest_of_each_kind(control_plane: ContextFactory) -> None:
    async with control_plane("cronjob") as plane:
        await start(
            plane, cron_job("0 * * * *", successfulJobsHistoryLimit=2, failedJobsHistoryLimit=1)
        )
        for kind in ("Complete", "Failed", "Complete", "Failed", "Complete"):
            await plane.settle(HOUR)
            await finish(plane, kind)
        assert await jobs(plane) == ["01-02 06:00", "01-02 07:00", "01-02 08:00"]
        assert "SuccessfulDelete" in await events(plane)


async def test_missed_times(control_plane: ContextFactory) -> None:
    async with control_plane("cronjob") as plane:
        await start(plane, cron_job("*/10 * * * *"))
        await plane.stop_controllers()
        await plane.settle(HOUR)
        plane.start_controllers()
        await plane.settle(1)
        assert await jobs(plane) == ["01-02 04:00"]  # the last of six
        await plane.stop_controllers()
        await leap(plane, DAY)
        plane.start_controllers()
        await plane.settle(1)
        assert await jobs(plane) == ["01-02 04:00"]
        assert (await events(plane))["FailedNeedsStart"] == (
            "Cannot determine if job needs to be started: too many missed start time (> 100). "
            "Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        )
        await plane.client.patch(CRON_JOBS, NS, "c", {"spec": {"startingDeadlineSeconds": 900}})
        await plane.settle(1)
        assert await jobs(plane) == ["01-02 04:00", "01-03 04:00"]


async def test_a_deadline_forgives_what_is_too_long_ago(control_plane: ContextFactory) -> None:
    async with control_plane("cronjob") as plane:
        await start(plane, cron_job("0 * * * *", startingDeadlineSeconds=120))
        await plane.stop_controllers()
        await plane.settle(HOUR)  # 04:04
        plane.start_controllers()
        await plane.settle(1)
        assert await jobs(plane) == []
        await plane.settle(HOUR)
        assert await jobs(plane) == ["01-02 05:00"]


async def test_suspended_and_in_a_zone(control_plane: ContextFactory) -> None:
    async with control_plane("cronjob") as plane:
        await start(plane, cron_job("0 9 * * *", timeZone="Asia/Kolkata", suspend=True))
        await leap(plane, 12 * HOUR)
        assert await jobs(plane) == []
        await plane.client.patch(CRON_JOBS, NS, "c", {"spec": {"suspend": False}})
        await plane.settle()
        await leap(plane, 12 * HOUR)
        await plane.settle(HOUR)
        assert await jobs(plane) == ["01-02 03:30", "01-03 03:30"]


async def test_a_schedule_that_never_comes_is_reported(control_plane: ContextFactory) -> None:
    async with control_plane("cronjob", release="1.36") as plane:
        await start(plane, cron_job("0 0 31 2 *"))
        await plane.settle(5)
        assert await events(plane) == {
            "InvalidSchedule": "invalid schedule: 0 0 31 2 * : time difference between two "
            "schedules is less than 1 second"
        }


async def test_others_jobs_are_seen_and_lost_ones_forgotten(control_plane: ContextFactory) -> None:
    async with control_plane("cronjob") as plane:
        await start(plane, cron_job("0 0 1 1 *"))
        owner = await plane.get(CRON_JOBS, NS, "c")
        ref = {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "name": "c",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        spec = owner["spec"]["jobTemplate"]["spec"]
        await plane.client.create(
            JOBS, NS, {"metadata": {"name": "own-1", "ownerReferences": [ref]}, "spec": spec}
        )
        lost = {"kind": "Job", "namespace": NS, "name": "lost", "uid": "u"}
        await plane.client.patch(
            CRON_JOBS, NS, "c", {"status": {"active": [lost]}}, subresource="status"
        )
        await plane.settle()
        assert await status(plane) == {}
        assert await events(plane) == {
            "UnexpectedJob": "Saw a job that the controller did not create or forgot: own-1",
            "MissingJob": "Active job went missing: lost",
        }


async def test_a_crash_between_making_a_job_and_noting_it_makes_no_second_one(
    control_plane: ContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with control_plane("cronjob") as plane:
        await start(plane, cron_job("*/10 * * * *"))
        crashed = asyncio.Event()
        client = type(plane.client)
        original = client.update_status

        async def update_status(self: Any, resource: Any, obj: Object) -> Object:
            if resource == CRON_JOBS and not crashed.is_set():
                await crashed.wait()  # and never comes back
            return await original(self, resource, obj)

        monkeypatch.setattr(client, "update_status", update_status)
        await plane.settle(6 * MINUTE)
        await plane.stop_controllers()
        crashed.set()
        assert await status(plane) == {} and await jobs(plane) == ["01-02 03:10"]
        plane.start_controllers()
        await plane.settle(1)
        assert await jobs(plane) == ["01-02 03:10"]
        assert len((await status(plane))["active"]) == 1


async def test_a_month(control_plane: ContextFactory) -> None:
    """Three CronJobs with their Jobs and pods, which end after a while, all through January."""

    async with control_plane("cronjob", "job") as plane:
        await plane.client.create(
            SERVICE_ACCOUNTS,
            NS,
            {"metadata": {"name": "default"}, "automountServiceAccountToken": False},
        )
        started: list[str] = []
        informers = InformerFactory(plane.client, plane.clock, plane.rng)
        pods: WorkQueue[str] = WorkQueue(plane.clock)
        informers(PODS).add_handler(add=lambda pod: pods.add(pod["metadata"]["name"]))
        informers(JOBS).add_handler(add=lambda job: started.append(job["metadata"]["name"]))
        informers.start()

        async def succeed(pod: str) -> None:
            await plane.client.patch(
                PODS, NS, pod, {"status": {"phase": "Succeeded"}}, subresource="status"
            )

        kubelet = asyncio.create_task(pods.run(succeed))
        await start(plane, cron_job("0 */6 * * *", "often", successfulJobsHistoryLimit=1))
        await start(plane, cron_job("30 2 * * mon-fri", "nightly", concurrencyPolicy="Forbid"))
        await start(plane, cron_job("@monthly", "rarely", concurrencyPolicy="Replace"))
        for day in range(32):
            for hour in (0, 2.5, 6, 12, 18):
                due = parse_rfc3339("2020-01-02T00:00:00Z") + day * DAY + hour * HOUR
                if plane.clock.time() < due <= parse_rfc3339("2020-02-02T03:04:05Z"):
                    await leap(plane, due - plane.clock.time() - 30)
                    await plane.clock.run_for(MINUTE, turns=40)
        kubelet.cancel()
        await informers.stop()
        made = {
            name: [s for s in started if s.startswith(name)]
            for name in ("often", "nightly", "rarely")
        }
        assert {name: len(found) for name, found in made.items()} == {
            "often": 31 * 4,
            "nightly": 21,
            "rarely": 1,
        }
        assert len(set(started)) == len(started)
        assert made["rarely"] == [f"rarely-{int(parse_rfc3339('2020-02-01T00:00:00Z'))}"]
        left = (await plane.client.list(JOBS, NS)).items
        assert sorted(job["metadata"]["name"].partition("-")[0] for job in left) == [
            "nightly",
            "nightly",
            "nightly",
            "often",
            "rarely",
        ]
        assert all(job["status"]["conditions"][0]["type"] == "Complete" for job in left)


@pytest.mark.parametrize("length", [1, 20_000])
async def test_long_schedules_are_parsed_too(control_plane: ContextFactory, length: int) -> None:
    """Those of more than 16 KiB in a thread."""
    async with control_plane("cronjob") as plane:
        await start(plane, cron_job(f"{','.join(['*/5'] * length)} * * * *"))
        await leap(plane, 5 * MINUTE)
        for _ in range(100):
            if (await plane.client.list(JOBS, NS)).items:
                break
            await asyncio.to_thread(int)
            await plane.clock.run_for(1, turns=40)
        assert (await plane.client.list(JOBS, NS)).items
