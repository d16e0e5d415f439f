"""The pod resources API, on simulated nodes and at a real socket."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.test_kubelet import phase, shell
from tests.runtime.behaviour import until

from transom.client.resources import PODS
from transom.http.grpc import GrpcConnection
from transom.kit.rpc import RpcError
from transom.kubelet.config import MemoryReservation
from transom.kubelet.plugins.endpoint import PluginEndpoint
from transom.kubelet.plugins.listening import answer_calls
from transom.machinery.releases import Release
from transom.machines.api import Hardware
from transom.machines.realfiles import RealFiles

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
V1 = "/v1.PodResourcesLister/"
CURRENT = Release(1, 36)
STATIC = {
    "cpu_manager_policy": "static",
    "kube_reserved": {"cpu": "500m", "memory": "512Mi"},
    "memory_manager_policy": "Static",
    "reserved_memory": (MemoryReservation(0, {"memory": "612Mi"}),),
}


def settings(release: Release = CURRENT, **more: Any) -> Any:
    machine = {"hardware": Hardware(cpus=4)}
    return {"flavour": "containerd", "release": release, "machine": machine, **more}


async def ask(node: Any, method: str, request: Any = None, path: str = SOCKET) -> Any:
    if "/" not in method:
        method = f"{V1}{method}"
    return await PluginEndpoint(node.host.files, path).call(method, request)


def guaranteed(**more: Any) -> Any:
    return shell("sleep 1000", resources={"limits": {"cpu": "2", "memory": "64Mi"}}, **more)


async def test_what_containers_have_for_themselves(node: Any) -> None:
    async with node("linux", **settings(**STATIC)) as node:
        sidecar = shell("sleep 1000", name="side", restartPolicy="Always")
        await node.create("p", containers=[guaranteed()])
        await node.create("q", initContainers=[sidecar], containers=[shell("sleep 1000")])
        await phase(node, "p", "Running")
        await phase(node, "q", "Running")
        memory = {
            "memory_type": "memory",
            "size": 64 << 20,
            "topology": {"nodes": [{"ID": 0}]},
        }
        own = {"name": "c", "cpu_ids": [1, 2], "memory": [memory], "dynamic_resources": []}
        of_p = {"name": "p", "namespace": "default", "containers": [own]}
        listed = (await ask(node, "List"))["pod_resources"]
        assert listed[0] == of_p
        assert [c["name"] for c in listed[1]["containers"]] == ["side", "c"]
        assert listed[1]["containers"][1]["cpu_ids"] == []
        names = {"pod_name": "p", "pod_namespace": "default"}
        assert await ask(node, "Get", names) == {"pod_resources": of_p}
        every = await ask(node, "GetAllocatableResources")
        assert every["cpu_ids"] == [1, 2, 3]
        [found] = every["memory"]
        assert found["size"] == Hardware().memory - (612 << 20)
        with pytest.raises(RpcError, match="pod x in namespace default not found"):
            await ask(node, "Get", {**names, "pod_name": "x"})
        old = await ask(node, "/v1alpha1.PodResourcesLister/List")
        assert old["pod_resources"][0]["containers"] == [{"name": "c"}]


@pytest.mark.parametrize(
    ("release", "listed"), [(Release(1, 33), ["p", "q"]), (Release(1, 34), ["q"])]
)
async def test_pods_that_have_ended(node: Any, release: Release, listed: list[str]) -> None:
    async with node("linux", **settings(release)) as node:
        await node.create("p", containers=[shell("exit 0")], restartPolicy="Never")
        await node.create("q", containers=[shell("sleep 1000")])
        await phase(node, "p", "Succeeded")
        await phase(node, "q", "Running")
        found = (await ask(node, "List"))["pod_resources"]
        assert [pod["name"] for pod in found] == listed


@pytest.mark.parametrize(
    ("release", "gates", "method", "problem"),
    [
        (Release(1, 20), {}, "GetAllocatableResources", "unknown method"),
        (Release(1, 21), {}, "GetAllocatableResources", "GetAllocatableResources disabled"),
        (Release(1, 23), {}, "GetAllocatableResources", ""),
        (Release(1, 26), {}, "Get", "unknown method Get for service v1.PodResourcesLister"),
        (Release(1, 33), {}, "Get", "PodResources API Get method disabled"),
        (Release(1, 33), {"KubeletPodResourcesGet": True}, "Get", ""),
        (Release(1, 34), {}, "Get", ""),
        (Release(1, 20), {"KubeletPodResources": False}, "List", "connect"),
        (Release(1, 20), {}, "List", ""),
    ],
)
async def test_methods_of_a_release(
    node: Any, release: Release, gates: dict[str, bool], method: str, problem: str
) -> None:
    async with node("linux", **settings(release, feature_gates=gates)) as node:
        await node.create("p", containers=[shell("sleep 1000")])
        await phase(node, "p", "Running")
        request = {"pod_name": "p", "pod_namespace": "default"} if method == "Get" else {}
        if problem:
            with pytest.raises(RpcError, match=problem):
                await ask(node, method, request)
        else:
            await ask(node, method, request)


async def test_a_restarted_kubelet_answers_again(node: Any) -> None:
    async with node("linux", **settings()) as node:
        await node.stop_kubelet()
        with pytest.raises(RpcError):
            await ask(node, "List")
        await node.start_kubelet()
        await node.settle(5)
        assert await ask(node, "List") == {"pod_resources": []}
        await node.client.list(PODS)


async def test_it_answers_at_a_real_socket(tmp_path: Path) -> None:
    """In messages larger than what the client accepts at once, and after bad requests."""
    files = RealFiles(tmp_path)
    containers = [{"name": f"container-{number}", "cpu_ids": [number]} for number in range(5000)]
    pod = {"name": "p", "namespace": "n", "containers": containers}

    async def answer(method: str, request: Any) -> Any:
        if request.get("pod_name") == "x":
            raise RpcError("Unknown", "pod x in namespace n not found")
        return {"pod_resources": pod if method.endswith("/Get") else [pod]}

    task = asyncio.create_task(
        answer_calls(files, "/var/lib/kubelet/pod-resources", "kubelet.sock", answer)
    )
    place = tmp_path / "var/lib/kubelet/pod-resources/kubelet.sock"
    folder = -1
    try:
        async with asyncio.timeout(30):
            await until(place.exists)
            folder = os.open(place.parent, os.O_PATH)
            short = f"/proc/self/fd/{folder}/{place.name}"  # however long its path is
            endpoint = PluginEndpoint(files, SOCKET)
            found = await endpoint.call(f"{V1}List")
            assert found["pod_resources"] == [pod]
            with pytest.raises(RpcError, match="pod x in namespace n not found"):
                await endpoint.call(f"{V1}Get", {"pod_name": "x"})
            _, wild = await asyncio.get_running_loop().create_unix_connection(GrpcConnection, short)
            with pytest.raises(RpcError, match="unknown method Wish for service"):
                await wild.call("/v1.Pods/Wish", b"", 10)
            with pytest.raises(RpcError):
                await wild.call(f"{V1}Get", b"\xff" * 100, 10)
            with pytest.raises(RpcError):
                await wild.call(f"{V1}Get", b"x" * (1 << 20), 10)
            wild.close()
            reader, writer = await asyncio.open_unix_connection(short)
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 10)
            await writer.drain()
            await reader.read()  # until it is disconnected
            writer.close()
            assert (await endpoint.call(f"{V1}Get", {"pod_name": "p"}))["pod_resources"] == pod
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        files.close()
        if folder >= 0:
            os.close(folder)
