"""In-place resize of containers."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.kubelet.test_core import conditions, state

from transom.client.api import STRATEGIC_PATCH
from transom.client.resources import PODS
from transom.kubelet.admission.requests import requests_of_pod
from transom.kubelet.failures import PodRejection
from transom.machinery.releases import Release
from transom.runtime.api import RuntimeFailure

CURRENT = Release(1, 36)
SMALL = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m"}}


def with_resources(resources: Any, **more: Any) -> Any:
    return [{"name": "c", "image": "image", "resources": resources, **more}]


async def resize(node: Any, resources: Any) -> None:
    body = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    await node.client.patch(PODS, "default", "p", body, STRATEGIC_PATCH, subresource="resize")
    await node.settle()


async def test_a_running_container_gets_other_limits(core: Any) -> None:
    async with core(release=CURRENT) as node:
        await node.create("p", containers=with_resources(SMALL))
        await node.settle()
        before = state(await node.pod("p"))
        assert before["resources"] == SMALL
        assert before["allocatedResources"] == SMALL["requests"]
        await resize(node, {"requests": {"cpu": "150m"}, "limits": {"cpu": "400m"}})
        pod = await node.pod("p")
        after = state(pod)
        assert after["resources"]["limits"] == {"cpu": "400m"}
        assert after["allocatedResources"] == {"cpu": "150m", "memory": "64Mi"}
        assert after["restartCount"] == 0 and after["containerID"] == before["containerID"]
        called = next(c for c in node.runtime.calls if c[0] == "update_container_resources")
        assert (called[2].cpu_quota, called[2].cpu_shares) == (40_000, 153)
        assert not conditions(pod).keys() & {"PodResizePending", "PodResizeInProgress"}
        assert pod["status"]["observedGeneration"] == 2
        events = [e for e in await node.events() if e[1].startswith("Resize")]
        assert [e[1] for e in events] == ["ResizeStarted", "ResizeCompleted"]
        text, _, summary = events[0][2].partition(": ")
        assert text == "Pod resize started"
        assert orjson.loads(summary)["generation"] == 2


async def test_a_container_restarts_where_its_policy_says_so(core: Any) -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    async with core(release=CURRENT) as node:
        await node.create("p", containers=with_resources(SMALL, resizePolicy=policy))
        await node.settle()
        await resize(node, {"limits": {"cpu": "400m"}})
        await node.settle(20)
        after = state(await node.pod("p"))
        assert after["restartCount"] == 1
        assert after["resources"]["limits"] == {"cpu": "400m"}
        killed = [e[2] for e in await node.events() if e[1] == "Killing"]
        assert killed == ["Container c resize requires restart"]


@pytest.mark.parametrize(
    ("rejection", "reason", "event"),
    [
        (PodRejection("OutOfcpu", "too much"), "Deferred", "ResizeDeferred"),
        (PodRejection("Infeasible", "never"), "Infeasible", "ResizeInfeasible"),
    ],
)
async def test_a_resize_that_does_not_fit_waits(
    core: Any, rejection: Any, reason: str, event: str
) -> None:
    async with core(release=CURRENT) as node:
        await node.create("p", containers=with_resources(SMALL))
        await node.settle()
        node.parts.resize_rejections = [rejection] * 100
        await resize(node, {"limits": {"cpu": "400m"}})
        pod = await node.pod("p")
        found = next(c for c in pod["status"]["conditions"] if c["type"] == "PodResizePending")
        assert (found["reason"], found["message"]) == (reason, rejection.message)
        assert found["observedGeneration"] == 2
        assert state(pod)["resources"] == SMALL
        assert [e[1] for e in await node.events() if "esize" in e[1]] == [event]
        node.parts.resize_rejections = []
        await node.settle(120)
        assert state(await node.pod("p"))["resources"]["limits"] == {"cpu": "400m"}


async def test_a_resize_that_the_runtime_refuses_is_tried_again(core: Any) -> None:
    async with core(release=CURRENT) as node:
        await node.create("p", containers=with_resources(SMALL))
        await node.settle()
        node.runtime.fail["update_container_resources"] = [RuntimeFailure("Unknown", "no")] * 3
        await resize(node, {"limits": {"cpu": "400m"}})
        pod = await node.pod("p")
        found = next(c for c in pod["status"]["conditions"] if c["type"] == "PodResizeInProgress")
        assert found["reason"] == "Error"
        assert found["message"] == "rpc error: code = Unknown desc = no"
        await node.settle(60)
        pod = await node.pod("p")
        assert "PodResizeInProgress" not in conditions(pod)
        assert state(pod)["resources"]["limits"] == {"cpu": "400m"}


async def test_a_restarted_kubelet_continues_a_pending_resize(core: Any) -> None:
    async with core(release=CURRENT) as node:
        await node.create("p", containers=with_resources(SMALL))
        await node.settle()
        node.parts.resize_rejections = [PodRejection("OutOfcpu", "too much")] * 100
        await resize(node, {"limits": {"cpu": "400m"}})
        await node.stop_kubelet()
        await node.start_kubelet()
        await node.settle()
        assert state(await node.pod("p"))["resources"] == SMALL
        node.parts.resize_rejections = []
        await node.settle(120)
        assert state(await node.pod("p"))["resources"]["limits"] == {"cpu": "400m"}


async def test_windows_nodes_do_not_resize(node: Any) -> None:
    async with node("windows", flavour="containerd", release=CURRENT) as windows:
        image = "mcr.microsoft.com/windows/nanoserver:1809"
        spec = [
            {
                "name": "c",
                "image": image,
                "command": ["ping", "-t", "localhost"],
                "resources": {"limits": {"cpu": "1"}},
            }
        ]
        await windows.create("p", containers=spec)
        await windows.settle(30)
        await resize(windows, {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}})
        await windows.settle(5)
        pod = await windows.pod("p")
        found = next(c for c in pod["status"]["conditions"] if c["type"] == "PodResizePending")
        assert found["reason"] == "Infeasible"
        assert found["message"] == "In-place pod resize is not supported on Windows"


def test_requests_of_sidecars_and_of_the_pod_count() -> None:
    def cpu(amount: str, **more: Any) -> Any:
        return {"resources": {"requests": {"cpu": amount}}, **more}

    spec: Any = {
        "containers": [cpu("100m")],
        "initContainers": [
            cpu("50m", restartPolicy="Always"),
            cpu("120m"),
            cpu("10m", restartPolicy="Always"),
        ],
    }
    assert requests_of_pod({"spec": spec}).resources == {"cpu": 170}
    spec["containers"] = [cpu("200m")]
    assert requests_of_pod({"spec": spec}).resources == {"cpu": 260}
    spec["resources"] = {"requests": {"cpu": "1"}}
    assert requests_of_pod({"spec": spec}).resources == {"cpu": 1000}
