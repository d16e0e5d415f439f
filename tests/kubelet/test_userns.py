"""User namespaces of pods: the range of ids that each pod has, and where they are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transom.client.resources import PODS
from transom.machinery.releases import Release

from .test_kubelet import log, phase, shell

SETTINGS = {"flavour": "containerd", "release": Release(1, 36), "runtime": {"version": "2.1.5"}}
MAPS = "cat /proc/self/uid_map /proc/self/gid_map; sleep 1000"


def pod(script: str = MAPS, **spec: Any) -> Any:
    return {"restartPolicy": "Never", "containers": [shell(script)], **spec}


def numbers(text: str) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in text.splitlines()]


async def test_each_pod_has_ids_of_its_own(node: Any) -> None:
    async with node("linux", **SETTINGS) as node:
        await node.create("a", **pod(hostUsers=False))
        await node.create("b", **pod(hostUsers=False))
        found = [await phase(node, name, "Running") for name in ("a", "b")]
        first, second = (numbers(log(node, one)) for one in found)
        assert first == [[0, 65536, 65536]] * 2 and second == [[0, 131072, 65536]] * 2
        path = f"/var/lib/kubelet/pods/{found[0]['metadata']['uid']}/userns"
        mapping = [{"hostId": 65536, "containerId": 0, "length": 65536}]
        saved = json.loads(node.host.files.read(path))
        assert saved == {"uidMappings": mapping, "gidMappings": mapping}


async def test_other_pods_have_the_users_of_the_node(node: Any) -> None:
    async with node("linux", **SETTINGS) as node:
        await node.create("p", **pod())
        assert numbers(log(node, await phase(node, "p", "Running"))) == [[0, 0, 4294967295]] * 2


async def test_the_ids_are_free_when_the_pod_is_gone(node: Any) -> None:
    async with node("linux", **SETTINGS) as node:
        for _ in range(2):
            await node.create("p", **pod(hostUsers=False))
            found = await phase(node, "p", "Running")
            assert numbers(log(node, found))[0][1] == 65536
            await node.client.delete(PODS, "default", "p", grace=0)
            await node.settle(5)


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"[]",
        b'{"uidMappings": [{"hostId": 0, "length": 65536}]}',
        b'{"uidMappings": [{"hostId": 70000, "length": 65536}]}',
        b'{"uidMappings": [{"hostId": 65536, "length": 4294967295}]}',
        b"[" * 100_000,
    ],
)
async def test_a_changed_file_gives_no_other_range(node: Any, contents: bytes) -> None:
    """A pod with a hostPath volume can change it."""
    async with node("linux", **SETTINGS) as node:
        node.host.files.mkdir("/var/lib/kubelet/pods/other", parents=True)
        node.host.files.write("/var/lib/kubelet/pods/other/userns", contents)
        await node.create("p", **pod(hostUsers=False))
        found = await phase(node, "p", "Running")
        assert numbers(log(node, found)) == [[0, 65536, 65536]] * 2


async def test_older_runtimes_refuse_them(node: Any) -> None:
    async with node("linux", **{**SETTINGS, "runtime": {"version": "1.7.29"}}) as node:
        await node.create("p", **pod(hostUsers=False))
        await node.settle(3)
        events = await node.events()
        found = [text for _, reason, text in events if reason == "FailedCreatePodSandBox"]
        assert found[0] == (
            "Failed to create pod sandbox: can't set `spec.hostUsers: false`, "
            "runtime does not support user namespaces"
        )
