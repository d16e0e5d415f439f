"""Kubelets that are older than the API server do what their own release does."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubelet.test_kubelet import phase, shell

from transom.kubelet.decoding import pod_decoder
from transom.machinery.releases import Release

SERVER = Release(1, 36)
LIMITS = {"limits": {"cpu": "300m", "memory": "100Mi"}}


def older(version: str, **more: Any) -> Any:
    return {"flavour": "containerd", "release": SERVER, "version": version, **more}


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        (older("v1.36.0"), 100 << 20),
        (older("v1.34.0"), 100 << 20),
        (older("v1.34.0", feature_gates={"PodLevelResources": False}), 0),
        (older("v1.33.0"), 0),
        (older("v1.33.0", feature_gates={"PodLevelResources": True}), 100 << 20),
    ],
)
async def test_resources_of_a_pod_as_a_whole(node: Any, settings: Any, limit: int) -> None:
    async with node("linux", **settings) as node:
        await node.create("p", containers=[shell("sleep 1000")], resources=LIMITS)
        pod = await phase(node, "p", "Running")
        [sandbox] = node.runtime.sandboxes()
        [container] = node.runtime.core.containers.values()
        found = sandbox.config.linux.resources.memory_limit
        assert (found, container.config.linux.resources.memory_limit) == (limit, limit)
        assert ("resources" in pod["status"]) == (settings["version"] == "v1.36.0")


@pytest.mark.parametrize(("version", "restarts"), [("v1.36.0", 1), ("v1.33.0", 0)])
async def test_restart_rules_of_a_container(node: Any, version: str, restarts: int) -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    script = "test -e /d/x && sleep 1000; touch /d/x; exit 42"
    container = shell(
        script,
        restartPolicy="Never",
        restartPolicyRules=rules,
        volumeMounts=[{"name": "d", "mountPath": "/d"}],
    )
    volumes = [{"name": "d", "emptyDir": {}}]
    async with node("linux", **older(version)) as node:
        await node.create("p", containers=[container], volumes=volumes, restartPolicy="Never")
        await node.settle(30)
        status = (await node.pod("p"))["status"]
        assert status["phase"] == ("Running" if restarts else "Failed")
        assert status["containerStatuses"][0]["restartCount"] == restarts
        assert ("observedGeneration" in status) == (version == "v1.36.0")


async def test_a_kubelet_without_sidecars_waits_for_them_to_end(node: Any) -> None:
    sidecar = shell("sleep 1000", name="side", restartPolicy="Always")
    settings = {**older("v1.28.0"), "release": Release(1, 31)}
    async with node("linux", **settings) as node:
        await node.create("p", initContainers=[sidecar], containers=[shell("sleep 1000")])
        await node.settle(20)
        status = (await node.pod("p"))["status"]
        assert status["phase"] == "Pending"
        assert "running" in status["initContainerStatuses"][0]["state"]
        assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"


@pytest.mark.parametrize(
    ("release", "gates", "server_gates", "decodes"),
    [
        ((1, 36), {}, (), False),
        ((1, 36), {"PodLevelResources": True}, (), False),
        ((1, 36), {"PodLevelResources": False}, (), True),
        ((1, 36), {"PodLevelResources": False}, ("PodLevelResources=false",), False),
        ((1, 35), {}, (), True),
    ],
)
def test_only_kubelets_with_other_types_read_pods_anew(
    release: Any, gates: Any, server_gates: Any, decodes: bool
) -> None:
    assert (pod_decoder(release, gates, SERVER, server_gates) is not None) == decodes
