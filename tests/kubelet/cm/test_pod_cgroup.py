"""The limits of the cgroup of a pod as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubelet.test_kubelet import phase, shell

from transom.client.api import STRATEGIC_PATCH
from transom.client.resources import PODS
from transom.kubelet.cm.pod_cgroup import pod_cgroup_resources
from transom.kubelet.config import KubeletConfig
from transom.machinery.releases import Release

CURRENT = {"flavour": "containerd", "release": Release(1, 36)}
MIB = 1 << 20
OLD, NEW = "v1.22.0", "v1.36.0"


def amounts(cpu: str = "", memory: str = "") -> dict[str, str]:
    return {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}


def container(requests: Any = None, limits: Any = None, **more: Any) -> Any:
    resources = {k: v for k, v in (("requests", requests), ("limits", limits)) if v}
    return {"name": "c", "resources": resources, **more}


SMALL = amounts("100m", "10Mi")
LARGE = amounts("300m", "30Mi")
BOTH = container(SMALL, LARGE)
FIXED = container(LARGE, LARGE)


@pytest.mark.parametrize(
    ("spec", "qos", "version", "expected"),
    [
        ({"containers": [container()]}, "BestEffort", NEW, (2, 0, 0)),
        ({"containers": [FIXED, FIXED]}, "Guaranteed", NEW, (614, 60_000, 60)),
        ({"containers": [BOTH, BOTH]}, "Burstable", NEW, (204, 60_000, 60)),
        ({"containers": [BOTH, container(SMALL)]}, "Burstable", NEW, (204, 0, 0)),
        (
            {"containers": [BOTH, container(SMALL, amounts(memory="5Mi"))]},
            "Burstable",
            NEW,
            (204, 0, 35),
        ),
        # a container that runs before the others may need more than they do together
        (
            {"containers": [BOTH], "initContainers": [container(LARGE, amounts("1", "50Mi"))]},
            "Burstable",
            NEW,
            (307, 100_000, 50),
        ),
        # one without a limit
        (
            {"containers": [BOTH], "initContainers": [container()]},
            "Burstable",
            NEW,
            (102, 0, 0),
        ),
        (
            {"containers": [BOTH], "initContainers": [container()]},
            "Burstable",
            OLD,
            (102, 30_000, 30),
        ),
        (
            {
                "containers": [container()],
                "resources": {"requests": SMALL, "limits": amounts("1", "64Mi")},
            },
            "Burstable",
            NEW,
            (102, 100_000, 64),
        ),
        (
            {"containers": [BOTH], "overhead": amounts("100m", "1Mi")},
            "Burstable",
            NEW,
            (204, 40_000, 31),
        ),
        ({"containers": [container(amounts("1m"))]}, "Burstable", NEW, (2, 0, 0)),
        (
            {"containers": [container(amounts("5m"), amounts("5m"))]},
            "Burstable",
            NEW,
            (5, 1_000, 0),
        ),
    ],
)
def test_limits(spec: Any, qos: str, version: str, expected: Any) -> None:
    pod = {"metadata": {}, "spec": spec, "status": {"qosClass": qos}}
    found = pod_cgroup_resources(pod, KubeletConfig("n", "10.0.0.1", version))
    assert (found.cpu_shares, found.cpu_quota, found.memory_limit // MIB) == expected


def test_cpus_of_its_own_without_a_quota() -> None:
    pod = {"metadata": {}, "spec": {"containers": [FIXED]}, "status": {"qosClass": "Guaranteed"}}
    config = KubeletConfig("n", "10.0.0.1", NEW)
    found = pod_cgroup_resources(pod, config, limit_cpu=False)
    assert (found.cpu_quota, found.memory_limit) == (0, 30 * MIB)


@pytest.mark.parametrize(("enforced", "quota"), [(True, 15_000), (False, 0)])
def test_the_quota_follows_the_configuration(enforced: bool, quota: int) -> None:
    config = KubeletConfig("n", "10.0.0.1", NEW, cpu_cfs_quota=enforced, cpu_cfs_quota_period=0.05)
    spec = {"containers": [container(amounts("300m"), amounts("300m"))]}
    pod = {"metadata": {}, "spec": spec, "status": {"qosClass": "Burstable"}}
    found = pod_cgroup_resources(pod, config)
    assert (found.cpu_quota, found.cpu_period) == (quota, 50_000)


def limits(node: Any, pod: Any) -> tuple[int, int, int]:
    [sandbox] = node.runtime.sandboxes(pod["metadata"]["uid"])
    found = sandbox.config.linux.resources
    return found.cpu_shares, found.cpu_quota, found.memory_limit // MIB


async def resize(node: Any, spec: Any, seconds: float = 5) -> Any:
    await node.client.patch(
        PODS, "default", "p", {"spec": spec}, STRATEGIC_PATCH, subresource="resize"
    )
    await node.settle(seconds)
    return await node.pod("p")


async def test_a_resize_of_a_container_changes_the_limits_of_its_pod(node: Any) -> None:
    async with node("linux", **CURRENT) as node:
        resources = {"requests": SMALL, "limits": LARGE}
        await node.create("p", containers=[shell("sleep 1000", resources=resources)])
        pod = await phase(node, "p", "Running")
        assert limits(node, pod) == (102, 30_000, 30)
        changed = {"name": "c", "resources": {"limits": amounts("500m", "50Mi")}}
        pod = await resize(node, {"containers": [changed]})
        assert limits(node, pod) == (102, 50_000, 50)


async def test_a_restart_for_a_resize_changes_the_limits_of_its_pod(node: Any) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    async with node("linux", **CURRENT) as node:
        resources = {"requests": SMALL, "limits": LARGE}
        script = shell("sleep 1000", resources=resources, resizePolicy=policy)
        await node.create("p", containers=[script])
        await phase(node, "p", "Running")
        changed = {"name": "c", "resources": {"limits": amounts(memory="50Mi")}}
        pod = await resize(node, {"containers": [changed]}, 40)
        assert limits(node, pod) == (102, 30_000, 50)
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 1
        assert not [c for c in pod["status"]["conditions"] if "Resize" in c["type"]]


async def test_a_pod_as_a_whole_is_resized(node: Any) -> None:
    """Its container has no limit of its own: that of the pod applies."""
    read = "cat /sys/fs/cgroup/memory.max; sleep 1"
    async with node("linux", **CURRENT) as node:
        before, after = (
            {"requests": SMALL, "limits": LARGE},
            {"requests": amounts("200m", "10Mi"), "limits": amounts("400m", "40Mi")},
        )
        await node.create("p", containers=[shell(f"while true; do {read}; done")], resources=before)
        pod = await phase(node, "p", "Running")
        assert limits(node, pod) == (102, 30_000, 30)
        assert pod["status"]["resources"] == before
        pod = await resize(node, {"resources": after})
        assert limits(node, pod) == (204, 40_000, 40)
        status = pod["status"]
        assert (status["resources"], status["allocatedResources"]) == (after, after["requests"])
        assert not [c for c in status["conditions"] if "Resize" in c["type"]]
        [running] = node.runtime.containers(pod["metadata"]["uid"])
        config = node.runtime._core.containers[running.id].config
        assert config.linux.resources.memory_limit == 40 * MIB


async def test_a_pod_is_not_limited_below_what_it_uses(node: Any) -> None:
    async with node("linux", **CURRENT) as node:
        before = {"requests": SMALL, "limits": LARGE}
        await node.create("p", containers=[shell("sleep 1000")], resources=before)
        await phase(node, "p", "Running")
        tiny = {"requests": amounts("100m", "1Ki"), "limits": amounts("300m", "1Ki")}
        pod = await resize(node, {"resources": tiny})
        found = next(c for c in pod["status"]["conditions"] if c["type"] == "PodResizeInProgress")
        assert found["reason"] == "Error"
        assert "attempting to set pod memory limit (1024) below current usage" in found["message"]
        assert limits(node, pod) == (102, 30_000, 30)
        assert pod["status"]["resources"] == before
