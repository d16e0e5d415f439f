"""Whole kubelets on simulated machines: pods as people write them, from their creation to their
end.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from transom.client.informer import Informer
from transom.client.resources import CONFIG_MAPS, PODS

from .conftest import Node

BUSYBOX, SERVERCORE = "busybox:1.32", "mcr.microsoft.com/windows/servercore:ltsc2019"
SLEEP = {
    "linux": (BUSYBOX, ["sleep", "1000"]),
    "windows": (SERVERCORE, ["ping", "-t", "localhost"]),
}


def state(pod: Any, name: str = "c", kind: str = "containerStatuses") -> Any:
    return next(s for s in pod["status"][kind] if s["name"] == name)


def shell(script: str, name: str = "c", **more: Any) -> Any:
    return {"name": name, "image": BUSYBOX, "command": ["sh", "-c", script], **more}


async def phase(node: Node, name: str, wanted: str, seconds: int = 60) -> Any:
    for _ in range(seconds):
        pod = await node.pod(name)
        if pod["status"]["phase"] == wanted:
            return pod
        await node.settle(1)
    raise AssertionError(f"{name} is {pod['status']}")


def log(node: Node, pod: Any, container: str = "c", attempt: int = 0) -> str:
    meta = pod["metadata"]
    path = (
        f"/var/log/pods/{meta['namespace']}_{meta['name']}_{meta['uid']}/{container}/{attempt}.log"
    )
    lines = node.host.files.read(path).decode().splitlines()
    return "\n".join(line.split(" ", 3)[3] for line in lines)


@pytest.mark.parametrize("os", ["linux", "windows"])
@pytest.mark.parametrize("flavour", ["docker", "containerd"])
async def test_a_pod_comes_and_goes(node: Any, os: str, flavour: str) -> None:
    async with node(os, flavour=flavour) as node:
        image, command = SLEEP[os]
        await node.create(
            "p",
            terminationGracePeriodSeconds=3,
            containers=[{"name": "c", "image": image, "command": command}],
        )
        pod = await phase(node, "p", "Running")
        entry = state(pod)
        assert entry["ready"] and entry["started"] and "running" in entry["state"]
        assert entry["containerID"].startswith(flavour + "://") and entry["image"].endswith(image)
        assert pod["status"]["podIP"].startswith("10.244.1.")
        await node.client.delete(PODS, "default", "p")
        await node.settle(10)
        assert await node.missing("p")
        assert not node.runtime.sandboxes() and not node.runtime.containers()
        assert not [*node.kubelet.core.workers]
        recorded = [
            (reason, text)
            for _, reason, text in await node.events()
            if not reason.startswith("Node")
        ]
        assert recorded[-5][0] == "Pulling" and recorded[-4][0] == "Pulled"
        assert recorded[-3:] == [
            ("Created", "Created container c"),
            ("Started", "Started container c"),
            ("Killing", "Stopping container c"),
        ]


async def test_init_containers_prepare_a_volume(node: Any) -> None:
    async with node("linux") as node:
        mount = [{"name": "v", "mountPath": "/prep"}]
        await node.create(
            "p",
            restartPolicy="Never",
            volumes=[{"name": "v", "emptyDir": {}}],
            initContainers=[
                shell("echo hello > /prep/x", "one", volumeMounts=mount),
                shell("echo world >> /prep/x", "two", volumeMounts=mount),
            ],
            containers=[
                shell(
                    "cat /prep/x; echo $HOSTNAME; echo bye > /dev/termination-log",
                    volumeMounts=mount,
                )
            ],
        )
        pod = await phase(node, "p", "Succeeded")
        assert log(node, pod) == "hello\nworld\np"
        ended = state(pod)["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", "bye\n")
        assert [
            s["state"]["terminated"]["reason"] for s in pod["status"]["initContainerStatuses"]
        ] == ["Completed"] * 2


async def test_a_container_that_ends_at_once_is_never_ready(node: Any) -> None:
    """A StatefulSet must not create its next pod because of it."""
    async with node("linux") as node:
        seen: list[Any] = []
        follow = Informer(node.client, PODS, node.clock, random.Random(1))
        follow.add_handler(
            add=seen.append, update=lambda _, pod: seen.append(pod), delete=seen.append
        )
        task = asyncio.get_running_loop().create_task(follow.run())
        await node.create("p", containers=[shell("exit 1")])
        await node.settle(30)
        task.cancel()
        states = [state(pod) for pod in seen if pod["status"].get("containerStatuses")]
        assert states[-1]["restartCount"] and not any(one["ready"] for one in states)
        assert not any("running" in one["state"] for one in states)


async def test_a_container_crashes_again_and_again(node: Any) -> None:
    async with node("linux") as node:
        await node.create(
            "p",
            containers=[
                shell("echo oops; exit 3", terminationMessagePolicy="FallbackToLogsOnError")
            ],
        )
        await node.settle(40)
        pod = await node.pod("p")
        entry = state(pod)
        assert entry["restartCount"] >= 2
        assert entry["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        last = entry["lastState"]["terminated"]
        assert (last["exitCode"], last["reason"], last["message"]) == (3, "Error", "oops\n")
        assert ("Warning", "BackOff", "Back-off restarting failed container") in await node.events()


async def test_a_container_that_fails_its_liveness_probe(node: Any) -> None:
    async with node("linux") as node:
        probe = {
            "exec": {"command": ["cat", "/tmp/healthy"]},
            "initialDelaySeconds": 5,
            "periodSeconds": 5,
        }
        script = "touch /tmp/healthy; sleep 30; rm -f /tmp/healthy; sleep 600"
        await node.create(
            "p", terminationGracePeriodSeconds=5, containers=[shell(script, livenessProbe=probe)]
        )
        await node.settle(25)
        assert state(await node.pod("p"))["restartCount"] == 0
        await node.settle(50)
        pod = await node.pod("p")
        assert state(pod)["restartCount"] == 1 and "running" in state(pod)["state"]
        events = await node.events()
        assert (
            "Normal",
            "Killing",
            "Container c failed liveness probe, will be restarted",
        ) in events
        assert any(
            reason == "Unhealthy" and text.startswith("Liveness probe failed: ")
            for _, reason, text in events
        )


async def test_readiness_of_a_server(node: Any) -> None:
    async with node("linux") as node:
        probe = {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1}
        await node.create(
            "p",
            containers=[
                {
                    "name": "c",
                    "image": "nginx:1.19",
                    "ports": [{"containerPort": 80}],
                    "readinessProbe": probe,
                }
            ],
        )
        pod = await phase(node, "p", "Running")
        await node.settle(3)
        pod = await node.pod("p")
        assert state(pod)["ready"]
        assert {c["type"]: c["status"] for c in pod["status"]["conditions"]}["Ready"] == "True"


async def test_an_image_that_is_not_there(node: Any) -> None:
    async with node("linux") as node:
        await node.create("p", containers=[{"name": "c", "image": "no-such-image:v1"}])
        await node.settle(3)
        assert state(await node.pod("p"))["state"]["waiting"]["reason"] == "ErrImagePull"
        await node.settle(16)
        waiting = state(await node.pod("p"))["state"]["waiting"]
        assert waiting == {
            "reason": "ImagePullBackOff",
            "message": 'Back-off pulling image "no-such-image:v1"',
        }


async def test_a_volume_that_cannot_be_mounted_yet(node: Any) -> None:
    async with node("linux") as node:
        await node.create(
            "p",
            volumes=[{"name": "v", "configMap": {"name": "m"}}],
            containers=[
                shell(
                    "cat /m/key; echo; sleep 1000", volumeMounts=[{"name": "v", "mountPath": "/m"}]
                )
            ],
        )
        await node.settle(10)
        pod = await node.pod("p")
        assert state(pod)["state"]["waiting"]["reason"] == "ContainerCreating"
        text = 'MountVolume.SetUp failed for volume "v" : configmap "m" not found'
        assert ("Warning", "FailedMount", text) in await node.events()
        await node.client.create(
            CONFIG_MAPS, "default", {"metadata": {"name": "m"}, "data": {"key": "value"}}
        )
        pod = await phase(node, "p", "Running")
        await node.settle(1)
        assert log(node, pod) == "value"


async def test_a_machine_reboots(node: Any) -> None:
    async with node("linux") as node:
        await node.create("p", containers=[shell("sleep 1000")])
        await node.create("done", restartPolicy="Never", containers=[shell("echo ok")])
        await phase(node, "p", "Running")
        await phase(node, "done", "Succeeded")
        await node.stop_kubelet()
        node.host.reboot()
        await node.settle(5)
        await node.start_kubelet()
        await node.settle(20)
        pod = await node.pod("p")
        assert pod["status"]["phase"] == "Running" and state(pod)["restartCount"] == 1
        assert (
            "Normal",
            "SandboxChanged",
            "Pod sandbox changed, it will be killed and re-created.",
        ) in await node.events()
        assert (await node.pod("done"))["status"]["phase"] == "Succeeded"


async def test_a_debugger_joins_a_pod(node: Any) -> None:
    async with node("linux") as node:
        await node.create("p", containers=[shell("sleep 1000")])
        await phase(node, "p", "Running")
        body = {
            "spec": {
                "ephemeralContainers": [
                    {
                        "name": "d",
                        "image": BUSYBOX,
                        "command": ["sh", "-c", "echo hi; exit 2"],
                        "targetContainerName": "c",
                    }
                ]
            }
        }
        await node.client.patch(
            PODS,
            "default",
            "p",
            body,
            "application/strategic-merge-patch+json",
            subresource="ephemeralcontainers",
        )
        await node.settle(5)
        pod = await node.pod("p")
        entry = state(pod, "d", "ephemeralContainerStatuses")
        assert entry["state"]["terminated"]["exitCode"] == 2 and entry["restartCount"] == 0
        assert pod["status"]["phase"] == "Running" and log(node, pod, "d") == "hi"


async def test_a_static_pod_and_its_mirror(node: Any) -> None:
    async with node("linux", static_pod_path="/etc/kubernetes/manifests") as node:
        files = node.host.files
        files.mkdir("/etc/kubernetes/manifests")
        manifest = (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: s}\nspec:\n  containers: [{name: c, "
            "image: 'busybox:1.32', "
            "command: [sleep, '1000']}]\n"
        )
        files.write("/etc/kubernetes/manifests/s.yaml", manifest.encode())
        await node.settle(10)
        mirror = await node.pod("s-node1")
        assert mirror["status"]["phase"] == "Running"
        assert mirror["metadata"]["ownerReferences"][0]["kind"] == "Node"
        running = node.runtime.containers()
        await node.client.delete(PODS, "default", "s-node1")
        await node.settle(10)
        again = await node.pod("s-node1")
        assert (
            again["metadata"]["uid"] != mirror["metadata"]["uid"]
            and again["status"]["phase"] == "Running"
        )
        assert node.runtime.containers() == running
        files.write("/etc/kubernetes/manifests/s.yaml", manifest.replace("1000", "2000").encode())
        await node.settle(60)
        changed = await node.pod("s-node1")
        assert changed["spec"]["containers"][0]["command"] == ["sleep", "2000"]
        assert changed["status"]["phase"] == "Running"
        files.remove("/etc/kubernetes/manifests/s.yaml")
        await node.settle(60)
        assert await node.missing("s-node1") and not node.runtime.sandboxes()


async def test_a_node_that_is_full_refuses(node: Any) -> None:
    async with node("linux", max_pods=1) as node:
        await node.create("one", containers=[shell("sleep 1000")])
        await node.create("two", containers=[shell("sleep 1000")])
        await phase(node, "one", "Running")
        status = (await phase(node, "two", "Failed"))["status"]
        assert (status["reason"], status["message"]) == (
            "OutOfpods",
            ("Pod Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1"),
        )


async def test_an_annotation_does_not_make_a_pod_of_the_api_static(node: Any) -> None:
    """Its status would be written to a mirror pod, which it does not have."""
    async with node("linux") as node:
        claimed = {"kubernetes.io/config.source": "file"}
        await node.create("p", metadata={"annotations": claimed}, containers=[shell("sleep 1000")])
        assert (await phase(node, "p", "Running"))["metadata"]["annotations"] == claimed
