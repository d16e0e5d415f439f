"""The status of a pod that its kubelet evicts."""

from __future__ import annotations

from typing import Any

from tests.kubelet.test_core import conditions, state

from transom.machinery.releases import Release


async def test_an_evicted_pod_keeps_its_container_statuses_and_reports_the_reason(
    core: Any,
) -> None:
    async with core(release=Release(1, 36)) as node:
        await node.create("p")
        await node.settle()
        await node.core.kill_pod(await node.pod("p"), "Evicted", "The node was low on memory.", 0)
        await node.settle()
        pod = await node.pod("p")
        status = pod["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
        assert status["message"] == "The node was low on memory."
        assert "terminated" in state(pod)["state"]
        assert conditions(pod)["Ready"] == "False"
        target = next(c for c in status["conditions"] if c["type"] == "DisruptionTarget")
        assert (target["status"], target["reason"]) == ("True", "TerminationByKubelet")
        assert target["message"] == "The node was low on memory."
        assert target["observedGeneration"] == 1 and target["lastTransitionTime"]
        ready = next(c for c in status["conditions"] if c["type"] == "Ready")
        assert ready["reason"] == "PodFailed"
