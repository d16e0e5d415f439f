"""From a kubelet's summary to more pods: the whole path of a metric in one process."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.inline_workers import InlineWorkers

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ApiClient
from transom.client.resources import (
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
)
from transom.controllers.base import ControllerSettings
from transom.controllers.manager import USER, ControllerManager
from transom.kit.clock import VirtualClock, rfc3339
from transom.machinery.objects import Object
from transom.machinery.serviceaccounts import group_names, user_name
from transom.metrics.scraper import MetricsScraper
from transom.store.memory import MemoryStore

NS = "default"
MILLI = 1_000_000


class Node:
    """Runs all pods; each uses `milli` thousandths of a core."""

    def __init__(self, client: ApiClient, clock: VirtualClock) -> None:
        self.client, self.clock, self.milli = client, clock, 0

    async def summary(self, _node: str) -> Any:
        now = rfc3339(self.clock.time())
        used = {
            "cpu": {"time": now, "usageNanoCores": self.milli * MILLI},
            "memory": {"time": now, "workingSetBytes": 4096},
        }
        pods = [
            {"podRef": pod["metadata"], "containers": [{"name": "c", **used}]}
            for pod in (await self.client.list(PODS, NS)).items
            if pod["status"]["phase"] == "Running"
        ]
        return {"node": used, "pods": pods}

    async def start_pods(self) -> None:
        for pod in (await self.client.list(PODS, NS)).items:
            if pod["status"]["phase"] == "Pending":
                name, since = pod["metadata"]["name"], rfc3339(self.clock.time())
                await self.client.create_subresource(
                    PODS,
                    NS,
                    name,
                    "binding",
                    {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}},
                )
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
                await self.client.patch(
                    PODS,
                    NS,
                    name,
                    {"status": {"phase": "Running", "startTime": since, "conditions": [ready]}},
                    subresource="status",
                )


async def test_an_autoscaler_follows_what_kubelets_say() -> None:
    clock, rng = VirtualClock(), random.Random(7)
    samples: list[MetricsScraper] = []

    class Provider:
        def node(self, name: str) -> Any:
            return samples[0].node(name)

        def pod(self, node: str, namespace: str, name: str) -> Any:
            return samples[0].pod(node, namespace, name)

    api = build_api_server(
        ServerOptions(
            store=MemoryStore(clock),
            workers=InlineWorkers(),
            clock=clock,
            rng=rng,
            metrics=Provider(),
        )
    )

    def client(identity: str) -> ApiClient:
        name = user_name("kube-system", identity) if identity else USER
        groups = group_names("kube-system") if identity else ()
        return InProcessClient(
            api,
            UserInfo(name, (*groups, "system:authenticated")),
            user_agent="kube-controller-manager",
        )

    admin = InProcessClient(api, UserInfo("admin", ("system:masters", "system:authenticated")))
    node = Node(admin, clock)
    samples.append(MetricsScraper(lambda: ["n1"], node.summary, clock))
    await api.start()
    await admin.create(
        SERVICE_ACCOUNTS,
        NS,
        {"metadata": {"name": "default"}, "automountServiceAccountToken": False},
    )
    await admin.create(NODES, "", {"metadata": {"name": "n1"}})
    selected = ("deployment", "replicaset", "horizontalpodautoscaling")
    manager = ControllerManager(client, clock, rng, ControllerSettings(), controllers=selected)
    running = [asyncio.create_task(manager.run()), asyncio.create_task(samples[0].run())]

    async def run(seconds: int) -> int:
        for _ in range(seconds // 5):
            await node.start_pods()
            await clock.run_for(5, turns=200)
        return int((await admin.get(DEPLOYMENTS, NS, "w"))["spec"]["replicas"])

    try:
        container: Object = {
            "name": "c",
            "image": "i",
            "resources": {"requests": {"cpu": "100m"}},
        }
        await admin.create(
            DEPLOYMENTS,
            NS,
            {
                "metadata": {"name": "w"},
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": {"app": "w"}},
                    "template": {
                        "metadata": {"labels": {"app": "w"}},
                        "spec": {"containers": [container]},
                    },
                },
            },
        )
        target = {"type": "Utilization", "averageUtilization": 50}
        await admin.create(
            HORIZONTAL_POD_AUTOSCALERS,
            NS,
            {
                "metadata": {"name": "w"},
                "spec": {
                    "scaleTargetRef": {
                        "apiVersion": "apps/v1",
                        "kind": "Deployment",
                        "name": "w",
                    },
                    "maxReplicas": 4,
                    "metrics": [
                        {"type": "Resource", "resource": {"name": "cpu", "target": target}}
                    ],
                },
            },
        )
        node.milli = 50
        assert await run(60) == 1
        node.milli = 100
        assert await run(60) > 1
        assert await run(120) == 4  # each pod goes on as before, so it grows to the limit
        status = (await admin.get(HORIZONTAL_POD_AUTOSCALERS, NS, "w"))["status"]
        assert status["currentMetrics"][0]["resource"]["current"] == {
            "averageUtilization": 100,
            "averageValue": "100m",
        }
        node.milli = 1
        assert await run(600) == 1
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        await api.stop()
