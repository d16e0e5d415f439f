"""`transom explain-schedule` reports what the scheduler reports: it runs the same plugins with the same configuration."""

from __future__ import annotations

import random
from pathlib import Path

from tests.doctor.failures_scheduling import SCHEDULING_FAILURES
from tests.doctor.virtual_cluster import VirtualCluster, virtual_cluster

from transom.client.resources import PODS
from transom.doctor.snapshot import status_condition
from transom.scheduler.explain import explain_pod
from transom.scheduler.scheduler import Scheduler


def test_the_message_of_each_pod_that_cannot_be_scheduled(tmp_path: Path) -> None:
    rows = [
        row
        for row in SCHEDULING_FAILURES
        if row.objects and row.objects[-1]["kind"] == "Pod" and row.do is None
    ][:20]

    async def scenario(cluster: VirtualCluster) -> None:
        compared = 0
        for number, row in enumerate(rows):
            for obj in (*row.first, *row.objects):
                if obj["kind"] == "Pod":
                    obj = {
                        **obj,
                        "metadata": {
                            **obj["metadata"],
                            "name": f"{obj['metadata']['name']}-{number}",
                        },
                    }
                await cluster.apply(obj)
            await cluster.clock.sleep(3)
            name = f"{row.objects[-1]['metadata']['name']}-{number}"
            pod = await cluster.client.get(PODS, "default", name)
            reported = status_condition(pod, "PodScheduled")
            if reported.get("status") == "False":
                scheduler = Scheduler(cluster.client, cluster.clock, random.Random(1))
                found = await explain_pod(scheduler, cluster.client, "default", name)
                assert found.message == reported["message"], row.name
                assert found.best() == []
                compared += 1
        assert compared > 10

    with virtual_cluster(tmp_path) as (cluster, run):
        run(scenario(cluster))
