"""The move of workloads to nodes of another Windows build, on a cluster in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.doctor.virtual_cluster import VirtualCluster, virtual_cluster

from transom.client.api import MERGE_PATCH
from transom.client.resources import NODES, PODS
from transom.http.messages import HttpRequest, HttpResponse
from transom.kit.user_errors import UserError
from transom.node.spec import NodeSpec
from transom.scenarios.rehearsal import OLD_NODE_LABEL, end_rehearsal, rehearse_move

OLD, NEW = "windows-1", "windows-1-20348"
WAIT = ["cmd", "/c", "ping -t localhost"]
ANY_BUILD = "registry.k8s.io/pause:3.10"
ONE_BUILD = "mcr.microsoft.com/windows/nanoserver:1809"


def deployment(
    name: str, image: str, replicas: int = 1, command: list[str] | None = None, **pod: Any
) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "c", "image": image} | ({"command": command} if command else {})
    spec = {"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [container], **pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "guarded", "namespace": "default"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
}


def daemon_set(name: str, image: str, **pod: Any) -> dict[str, Any]:
    made = deployment(name, image, command=WAIT if image == ONE_BUILD else None, **pod)
    spec = {key: made["spec"][key] for key in ("selector", "template")}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": made["metadata"],
        "spec": spec,
    }


BARE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "bare", "namespace": "default"},
    "spec": {"nodeName": OLD, "containers": [{"name": "c", "image": ANY_BUILD}]},
}


class HttpTarget:
    """`RehearsalCluster` of a virtual cluster: its control path and its API server."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster

    async def call(self, method: str, path: str, body: Any = None, media: str = "") -> Any:
        client, parts = self._cluster.client, path.split("/")
        if not path.startswith("/transom"):
            match method:
                case "GET":
                    return await client.get_json(path)
                case "PATCH":
                    return await client.patch(NODES, "", parts[-1], body, MERGE_PATCH)
                case _:
                    return await client.create_subresource(
                        PODS, parts[4], parts[6], "eviction", body
                    )
        data = orjson.dumps(body) if body is not None else b""
        answer = await self._cluster.control(HttpRequest(method, path.encode(), path, {}, data))
        assert isinstance(answer, HttpResponse) and isinstance(answer.body, bytes)
        assert answer.status < 300, answer.body
        return orjson.loads(answer.body) if answer.body else None

    async def sleep(self, seconds: float) -> None:
        await self._cluster.clock.sleep(seconds)


def test_workloads_move_to_the_new_build(tmp_path: Path) -> None:
    nodes = [NodeSpec("control-plane"), NodeSpec(OLD, os="windows", build=17763)]
    with virtual_cluster(tmp_path, nodes, release="1.34") as (cluster, run):

        async def scenario() -> None:
            target = HttpTarget(cluster)
            selector = {"node.kubernetes.io/windows-build": "10.0.17763"}
            await cluster.apply(
                deployment("web", ANY_BUILD, 2),
                deployment("image", ONE_BUILD, command=WAIT),
                deployment("selector", ANY_BUILD, nodeSelector=selector),
                deployment("guarded", ANY_BUILD),
                daemon_set("agent", ANY_BUILD),
                daemon_set("old-agent", ONE_BUILD),
                daemon_set("pinned-agent", ANY_BUILD, nodeSelector=selector),
                BUDGET,
                BARE,
            )
            await cluster.clock.sleep(20)
            found = await rehearse_move(target, 20348, 60)
            assert found.old == (OLD,) and found.new == (NEW,)
            moves = {move.workload: move for move in found.moves}
            assert moves["Deployment default/web"][1:] == (2, "moved", "")
            image = moves["Deployment default/image"]
            assert image.result == "failed" and "no match for platform" in image.reason
            selected = moves["Deployment default/selector"]
            assert selected.result == "failed"
            assert "didn't match Pod's node affinity" in selected.reason
            guarded = moves["Deployment default/guarded"]
            assert guarded.result == "blocked" and "disruption budget" in guarded.reason
            assert moves["Pod default/bare"].result == "not moved"
            assert moves["DaemonSet default/agent"][1:] == (1, "moved", "")
            agent = moves["DaemonSet default/old-agent"]
            assert agent.result == "failed" and "no match for platform" in agent.reason
            pinned = moves["DaemonSet default/pinned-agent"]
            assert (pinned.result, pinned.reason) == ("failed", "it has no pods on the new nodes")
            old = await cluster.client.get(NODES, "", OLD)
            assert old["spec"]["unschedulable"] is True

            assert await end_rehearsal(target) == [NEW]
            old = await cluster.client.get(NODES, "", OLD)
            assert "unschedulable" not in old["spec"]
            await cluster.clock.sleep(90)
            pods = (await cluster.client.list(PODS, "default")).items
            assert {pod["spec"].get("nodeName") for pod in pods} == {OLD}
            assert OLD_NODE_LABEL not in old["metadata"]["labels"]

        run(scenario())


def test_a_cluster_of_that_build_has_nothing_to_move(tmp_path: Path) -> None:
    nodes = [NodeSpec("control-plane"), NodeSpec(OLD, os="windows", build=17763)]
    with (
        virtual_cluster(tmp_path, nodes, release="1.34") as (cluster, run),
        pytest.raises(UserError, match="no Windows node has a build other than 17763"),
    ):
        run(rehearse_move(HttpTarget(cluster), 17763, 10))
