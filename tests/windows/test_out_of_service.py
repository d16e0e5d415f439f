"""The pods of a Windows node without power, and the taint that releases them, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.doctor.virtual_cluster import VirtualCluster, virtual_cluster

from transom.client.api import MERGE_PATCH
from transom.client.resources import NODES, PODS
from transom.http.messages import HttpRequest, HttpResponse
from transom.node.spec import NodeSpec

STATEFUL_SET: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "db", "namespace": "default"},
    "spec": {
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}},
        "template": {
            "metadata": {"labels": {"app": "db"}},
            "spec": {
                "nodeSelector": {"kubernetes.io/os": "windows"},
                "terminationGracePeriodSeconds": 5,
                "containers": [
                    {
                        "name": "c",
                        "image": "mcr.microsoft.com/windows/nanoserver:ltsc2022",
                        "command": ["cmd", "/c", "ping -t localhost"],
                    }
                ],
            },
        },
    },
}


async def stop_node(cluster: VirtualCluster, name: str) -> None:
    path = f"/transom/nodes/{name}/stop"
    answer = await cluster.control(HttpRequest("POST", path.encode(), path, {}, b""))
    assert isinstance(answer, HttpResponse) and answer.status == 200


@pytest.mark.windows("W-NODE-32", "SUP-NODE-132", "W-NODE-23", "WIN-NODE-123")
@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
def test_the_taint_out_of_service_moves_a_stateful_pod(tmp_path: Path, effect: str) -> None:
    windows = [NodeSpec(name, os="windows", build=20348) for name in ("windows-1", "windows-2")]
    nodes = [NodeSpec("control-plane"), *windows]
    with virtual_cluster(tmp_path, nodes, release="1.36") as (cluster, run):

        async def scenario() -> None:
            async def node_of_pod() -> tuple[str, bool]:
                pod = await cluster.client.get(PODS, "default", "db-0")
                return pod["spec"].get("nodeName", ""), "deletionTimestamp" in pod["metadata"]

            await cluster.apply(STATEFUL_SET)
            await cluster.clock.sleep(20)
            first, _ = await node_of_pod()
            await stop_node(cluster, first)
            await cluster.client.delete(PODS, "default", "db-0")
            await cluster.clock.sleep(600)
            assert await node_of_pod() == (first, True)  # for as long as the node is off
            taint = {"key": "node.kubernetes.io/out-of-service", "value": "off", "effect": effect}
            node = await cluster.client.get(NODES, "", first)
            taints = [*(node["spec"].get("taints") or ()), taint]
            await cluster.client.patch(NODES, "", first, {"spec": {"taints": taints}}, MERGE_PATCH)
            await cluster.clock.sleep(60)
            now, ending = await node_of_pod()
            assert {first, now} == {"windows-1", "windows-2"} and not ending

        run(scenario())
