"""The status of a pod that its kubelet evicts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.kubelet.test_core import conditions, state
from tests.kubelet.test_kubelet import phase, shell

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


@pytest.mark.parametrize(("release", "early"), [((1, 21), "Failed"), ((1, 22), "Running")])
async def test_a_pod_has_not_failed_while_its_containers_run(
    node: Any, release: tuple[int, int], early: str
) -> None:
    async with node("linux", flavour="containerd", release=Release(*release)) as node:
        stubborn = shell("trap '' TERM; while true; do sleep 1; done")
        await node.create("p", containers=[stubborn])
        await phase(node, "p", "Running")
        core = node.kubelet.core
        killing = asyncio.create_task(core.kill_pod(await node.pod("p"), "Evicted", "Memory.", 20))
        await node.settle(10)
        found = (await node.pod("p"))["status"]
        assert found["phase"] == early
        if early == "Running":
            assert "reason" not in found
            assert all(c["type"] != "DisruptionTarget" for c in found["conditions"])
        await node.settle(20)
        await killing
        assert (await node.pod("p"))["status"]["phase"] == "Failed"
