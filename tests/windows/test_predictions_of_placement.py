"""Limits of where pods go, and of containers that are added to them: what lint predicts, and where
the scheduler puts them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.doctor.virtual_cluster import virtual_cluster
from tests.kubelet.windows.windows_pods import printed, state_reason
from tests.windows.predicting import USUAL, WINDOWS, TryNode, linted, on_node

from transom.client.resources import PODS
from transom.cluster.config import ClusterConfig
from transom.node.spec import NodeSpec, complete_specs
from transom.windows.targeting import BUILD_LABEL

LINUX = {"kubernetes.io/os": "linux"}
EVERYTHING = [{"operator": "Exists"}]
PULL = "Failed to pull image"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """With an image for Linux, whose name does not say so."""
    containers = [
        {
            "name": "c",
            "image": "example.com/app:1-alpine",
            "resources": {"limits": {"memory": "16Mi"}},
        }
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"automountServiceAccountToken": False, "containers": containers, **spec},
    }


def daemon_set(name: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod(name, **spec)["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


async def lands(node: TryNode, name: str) -> str:
    """The reason for which a pod fails on the Windows node; "" if it never came there."""
    found = await node.pod(name)
    return state_reason(found) if found["spec"].get("nodeName") else ""


@pytest.mark.windows("WIN-POD-010", "OS-11")
async def test_a_pod_that_names_no_system_may_land_on_windows() -> None:
    loose, pinned = pod("loose"), pod("pinned", nodeSelector=LINUX)
    assert (linted(USUAL, loose), linted(USUAL, pinned)) == (["WIN-POD-010"], [])

    async with on_node(USUAL) as node:
        for one in (loose, pinned):
            assert (await node.put(one))[2] == []  # nothing says that it is for Windows
        await node.settle(10)
        assert (
            await lands(node, "loose") in ("ErrImagePull", "ImagePullBackOff")
            and await lands(node, "pinned") == ""
        )
        assert any(text.startswith(PULL) for _, _, text in await node.about("loose"))
        assert [why for _, why, _ in await node.about("pinned")] == ["FailedScheduling"]


@pytest.mark.windows("WIN-OS-013", "OS-25", "OS-29")
def test_a_pod_that_selects_no_build_may_land_on_another_build(tmp_path: Path) -> None:
    image = "mcr.microsoft.com/windows/nanoserver:1809"
    containers = [{"name": "c", "image": image, "command": ["cmd", "/c", "ping -t localhost"]}]
    specs = [
        NodeSpec("l"),
        NodeSpec("w-2019", os="windows", build=17763),
        NodeSpec("w-2004", os="windows", build=19041),
    ]
    with virtual_cluster(tmp_path, complete_specs(ClusterConfig("doctor", 6443), specs)) as (
        cluster,
        run,
    ):

        async def scenario() -> None:
            # The pods without a build first: they are spread by requests, so each build gets some.
            # After a pinned pod, the other node would always be the less used one.
            for name, selector in (
                ("loose", WINDOWS),
                ("pinned", {**WINDOWS, BUILD_LABEL: "10.0.17763"}),
            ):
                for i in range(4):
                    made = pod(f"{name}-{i}", nodeSelector=selector, containers=containers)
                    await cluster.client.create(PODS, "default", made)
            await cluster.clock.sleep(20)
            pods = (await cluster.client.list(PODS, "default")).items
            placed = {
                (
                    one["metadata"]["name"].split("-")[0],
                    one["spec"]["nodeName"],
                    one["status"]["containerStatuses"][0]["ready"],
                )
                for one in pods
            }
            assert placed == {
                ("loose", "w-2019", True),
                ("loose", "w-2004", False),
                ("pinned", "w-2019", True),
            }

        run(scenario())


@pytest.mark.windows("WIN-POD-011", "OS-11")
async def test_a_toleration_of_everything_lets_a_pod_onto_windows() -> None:
    loose, kept = pod("loose", tolerations=EVERYTHING), pod("kept")
    pinned = pod("pinned", tolerations=EVERYTHING, nodeSelector=LINUX)
    assert (linted(USUAL, loose), linted(USUAL, pinned)) == (["WIN-POD-011"], [])

    async with on_node(USUAL) as node:
        await node.taint("os", "windows")
        for one in (loose, kept, pinned):
            await node.put(one)
        await node.settle(10)
        assert await lands(node, "loose") in ("ErrImagePull", "ImagePullBackOff")
        assert [await lands(node, name) for name in ("kept", "pinned")] == ["", ""]


@pytest.mark.windows("WIN-POD-012", "OS-11")
async def test_a_daemon_set_that_names_no_system_goes_to_windows_too() -> None:
    loose, pinned = daemon_set("loose"), daemon_set("pinned", nodeSelector=LINUX)
    assert (linted(USUAL, loose), linted(USUAL, pinned)) == (["WIN-POD-012"], [])

    async with on_node(USUAL, controllers=("daemonset",)) as node:
        for one in (loose, pinned):
            await node.put(one)
        await node.settle(10)
        made = (await node.client.list(PODS, "default")).items
        assert [one["metadata"]["labels"]["app"] for one in made] == ["loose"]
        assert await lands(node, made[0]["metadata"]["name"]) in (
            "ErrImagePull",
            "ImagePullBackOff",
        )


@pytest.mark.windows("WIN-POD-013", "API-36")
async def test_an_ephemeral_container_sees_its_own_processes_alone() -> None:
    image = "mcr.microsoft.com/windows/servercore:ltsc2019"
    limits = {"limits": {"memory": "16Mi"}}
    waiting = {"image": image, "command": ["ping", "-t", "localhost"]}
    made = pod(
        "p", nodeSelector=WINDOWS, containers=[{"name": "c", "resources": limits, **waiting}]
    )
    debugger = {"name": "debug", "image": image, "command": ["cmd"], "stdin": True}
    aimed = {**debugger, "name": "aimed", "targetContainerName": "c"}
    live = {**made, "spec": {**made["spec"], "ephemeralContainers": [debugger, aimed]}}
    plain = {**made, "spec": {**made["spec"], "ephemeralContainers": [debugger]}}
    assert (linted(USUAL, live), linted(USUAL, plain)) == (["WIN-POD-013"], [])

    async with on_node(USUAL) as node:
        await node.put(made)
        await node.settle(10)
        warned = []
        for containers in ([debugger], [debugger, aimed]):
            body = {"spec": {"ephemeralContainers": containers}}
            answer = await node.http.send(
                "PATCH",
                "/api/v1/namespaces/default/pods/p/ephemeralcontainers",
                body,
                media="application/strategic-merge-patch+json",
            )
            assert answer.status == 200, answer.body
            warned.append(
                [value.decode()[7:18] for name, value in answer.headers if name == b"Warning"]
            )
        assert warned == [[], ["WIN-POD-013"]]
        await node.settle(10)
        shown = await node.pod("p")
        seen = [await printed(node, shown, "tasklist", name) for name in ("debug", "aimed")]
        assert all("PING.EXE" not in text.upper() and "cmd.exe" in text for text in seen)
