"""Jobs, CronJobs, budgets and endpoints under lost calls, conflicts, cut watches and restarts: all
end well.
"""

from __future__ import annotations

import pytest

from transom.client.resources import (
    CRON_JOBS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    JOBS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
)
from transom.machinery.objects import Object

from .workloads import FaultyPlane, faulty_plane, run

NS = "default"
KINDS = ("job", "cronjob", "disruption", "endpoint", "endpointslice", "replicaset")


def job_spec(**more: object) -> Object:
    return {
        "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        },
        **more,
    }


async def restart_sometimes(plane: FaultyPlane) -> None:
    if plane.faults.rng.random() < 0.4:
        await plane.clock.run_for(0.001, turns=plane.faults.rng.randrange(60))
        await plane.stop_controllers()
        plane.start_controllers()


async def end_jobs(plane: FaultyPlane) -> None:
    for pod in (await plane.client.list(PODS, NS)).items:
        if (
            "job-name" in (pod["metadata"].get("labels") or {})
            and pod["status"]["phase"] == "Pending"
        ):
            await plane.client.patch(
                PODS,
                NS,
                pod["metadata"]["name"],
                {"status": {"phase": "Succeeded"}},
                subresource="status",
            )


@pytest.mark.parametrize("seed", range(4))
async def test_everything_ends_well(seed: int) -> None:
    async with run(), faulty_plane(seed, *KINDS) as plane:
        await plane.client.create(NODES, "", {"metadata": {"name": "n"}})
        plane.faults.rate = 0.15
        await plane.client.create(
            JOBS,
            NS,
            {"metadata": {"name": "j"}, "spec": job_spec(completions=7, parallelism=3)},
        )
        await plane.client.create(
            CRON_JOBS,
            NS,
            {
                "metadata": {"name": "c"},
                "spec": {
                    "schedule": "* * * * *",
                    "jobTemplate": {"spec": job_spec()},
                    "successfulJobsHistoryLimit": 100,
                },
            },
        )
        await plane.client.create(
            SERVICES,
            NS,
            {
                "metadata": {"name": "s"},
                "spec": {"selector": {"app": "s"}, "ports": [{"port": 80}]},
            },
        )
        await plane.client.create(
            POD_DISRUPTION_BUDGETS,
            NS,
            {
                "metadata": {"name": "b"},
                "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "s"}}},
            },
        )
        for step in range(12):
            await restart_sometimes(plane)
            spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
            await plane.client.create(
                PODS,
                NS,
                {"metadata": {"name": f"p{step}", "labels": {"app": "s"}}, "spec": spec},
            )
            status = {
                "phase": "Running",
                "podIP": f"10.0.0.{step}",
                "podIPs": [{"ip": f"10.0.0.{step}"}],
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            await plane.client.patch(PODS, NS, f"p{step}", {"status": status}, subresource="status")
            await plane.settle(20)
            await end_jobs(plane)
            if step % 3 == 2:
                await plane.client.delete(PODS, NS, f"p{step - 1}", grace=0)
        plane.faults.rate = 0.0
        await plane.client.patch(CRON_JOBS, NS, "c", {"spec": {"suspend": True}})
        for _ in range(8):
            await plane.settle(120)
            await end_jobs(plane)
        found = await plane.get(JOBS, NS, "j")
        assert (
            found["status"]["succeeded"] == 7
            and found["status"]["conditions"][0]["type"] == "Complete"
        )
        made = (await plane.client.list(PODS, NS, label_selector="job-name=j")).items
        assert len(made) == 7
        jobs = [
            j
            for j in (await plane.client.list(JOBS, NS)).items
            if j["metadata"]["name"].startswith("c-")
        ]
        assert len(jobs) >= 3 and all(j["status"].get("succeeded") == 1 for j in jobs)
        assert not (await plane.get(CRON_JOBS, NS, "c"))["status"].get("active")
        alive = {f"10.0.0.{step}" for step in range(12) if step % 3 != 1}
        (subset,) = (await plane.get(ENDPOINTS, NS, "s"))["subsets"]
        assert {a["ip"] for a in subset["addresses"]} == alive
        pieces = (await plane.client.list(ENDPOINT_SLICES, NS)).items
        listed = [e["addresses"][0] for piece in pieces for e in piece["endpoints"]]
        assert sorted(listed) == sorted(alive)
        budget = (await plane.get(POD_DISRUPTION_BUDGETS, NS, "b"))["status"]
        assert (
            budget["expectedPods"],
            budget["currentHealthy"],
            budget["disruptionsAllowed"],
        ) == (8, 8, 6)
