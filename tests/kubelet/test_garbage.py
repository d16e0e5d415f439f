"""Garbage collection of containers, sandboxes, logs and images; and log rotation."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import Any

import pytest
from tests.kubelet.small import Node, make_pod, running_node

from transom.kubelet.container_gc import ContainerGC
from transom.kubelet.image_gc import ImageGC, ImageGCFailure
from transom.kubelet.logrotate import LogRotator
from transom.machinery.objects import Object
from transom.runtime.api import Image, RuntimeFailure, RuntimeVersion


def gc(node: Node, *pods: Object, ready: bool = True) -> ContainerGC:
    known = {pod["metadata"]["uid"]: pod for pod in pods}
    return ContainerGC(node.env, known.get, lambda: ready)


async def dead(node: Node, pod: Object, times: int) -> list[str]:
    """A pod whose container ended so many times and whose sandbox is down."""
    sandbox = (await node.start(pod)) and node.runtime.sandboxes(pod["metadata"]["uid"])[0].id
    for attempt in range(1, times):
        node.clock.advance(1)
        await node.start_container(pod, pod["spec"]["containers"][0], sandbox, attempt)
    ids = []
    for container in node.runtime.containers(pod["metadata"]["uid"]):
        node.runtime.exit(container.id, 1)
        log = f"/var/log/pods/default_{pod['metadata']['name']}_{pod['metadata']['uid']}/app/{container.attempt}.log"
        node.host.files.mkdir(log.rpartition("/")[0])
        node.host.files.write(log, b"x")
        node.runtime._containers[container.id] = replace(
            node.runtime._containers[container.id], log_path=log
        )
        ids.append(container.id)
    await node.runtime.stop_sandbox(sandbox)
    return ids


def status(pod: Object, **fields: Any) -> Object:
    return {**pod, "status": {**pod["status"], **fields}}


@pytest.mark.parametrize(
    ("fields", "deleted", "terminated_too", "left"),
    [
        ({}, False, False, 1),
        ({"phase": "Succeeded"}, False, False, 1),
        ({"phase": "Succeeded"}, False, True, 0),
        ({"phase": "Failed", "reason": "Evicted"}, False, False, 0),
        ({"containerStatuses": [{"state": {"terminated": {}}}]}, True, False, 0),
        ({"containerStatuses": [{"state": {"running": {}}}]}, True, False, 1),
    ],
)
async def test_the_newest_exited_container_of_a_pod_is_kept(
    fields: Any, deleted: bool, terminated_too: bool, left: int
) -> None:
    async with running_node() as node:
        pod = status(make_pod("web"), **fields)
        if deleted:
            pod["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"
        newest, *_ = await dead(node, pod, 3)
        await gc(node, pod).collect(terminated_too=terminated_too)
        assert [c.id for c in node.runtime.containers()] == [newest][:left]
        assert len(node.runtime.sandboxes()) == left


async def test_nothing_is_left_of_a_pod_that_is_gone_once_all_pods_are_known() -> None:
    async with running_node() as node:
        await dead(node, make_pod("web"), 2)
        node.host.files.symlink(
            "/var/log/pods/gone", "/var/log/containers/web_default_app-container2.log"
        )
        await gc(node, ready=False).collect()
        assert len(node.runtime.containers()) == 1 and node.host.files.listdir("/var/log/pods")
        await gc(node).collect()
        assert not node.runtime.containers() and not node.runtime.sandboxes()
        assert node.host.files.listdir("/var/log/pods") == []
        assert node.host.files.listdir("/var/log/containers") == []


def image(name: str, size: int) -> Image:
    return Image(f"sha256:{name}", (f"{name}:1",), (), size)


GIB = 1 << 30


async def test_images_go_when_the_disk_is_full_the_longest_unused_first() -> None:
    async with running_node() as node:
        for name in ("old", "used", "older", "fresh"):
            node.runtime.store[f"{name}:1"] = image(name, 4 * GIB)
        del node.runtime.store["fresh:1"]
        images = ImageGC(node.env)
        await node.start(make_pod("a", {"name": "app"}), image_ref="sha256:used")
        (old_id,) = await node.start(make_pod("b", {"name": "app"}), image_ref="sha256:old")
        images.detect()
        await node.runtime.remove_container(old_id)
        node.clock.advance(300)
        images.detect()
        node.runtime.store["fresh:1"] = image("fresh", 4 * GIB)
        await images.free_by_policy()
        assert not node.recorded.all and len(node.runtime.store) == 4  # 12 % used
        node.host.fill_disk(73 * GIB)  # 85 %: five of a hundred have to go
        await images.free_by_policy()
        assert list(node.runtime.store) == ["used:1", "fresh:1"]
        assert [c[1] for c in node.runtime.calls if c[0] == "remove_image"] == [
            "sha256:older",
            "sha256:old",
        ]


async def test_images_that_do_not_free_enough() -> None:
    async with running_node() as node:
        images = ImageGC(node.env)
        node.host.fill_disk()
        wanted = 100 * GIB * 20 // 100
        text = (
            f"failed to garbage collect required amount of images. Wanted to free {wanted} "
            "bytes, but freed 0 bytes"
        )
        await images.collect()
        assert node.recorded.take() == [("FreeDiskSpaceFailed", text)]
        await images.collect()
        assert node.recorded.take() == [("FreeDiskSpaceFailed", text), ("ImageGCFailed", text)]
        node.runtime.store["a:1"] = image("a", 5)
        images.detect()
        node.clock.advance(1000)
        node.runtime.fail["remove_image"] = [RuntimeFailure("Unknown", "in use")]
        with pytest.raises(
            ImageGCFailure,
            match="with errors in image deletion: rpc error: code = Unknown desc = in use",
        ):
            await images.delete_unused()


async def test_logs_are_rotated_and_compressed() -> None:
    async with running_node(container_log_max_size=100, container_log_max_files=3) as node:
        node.runtime.version = RuntimeVersion("containerd", "1.4.3-sim")
        (container,) = await node.start(make_pod("web"))
        path = "/var/log/pods/p/app/0.log"
        node.host.files.mkdir("/var/log/pods/p/app")
        node.runtime._containers[container] = replace(
            node.runtime._containers[container], log_path=path
        )
        rotator = LogRotator(node.env)
        for number in range(4):
            node.host.files.write(path, b"%d" % number * 100)
            await rotator.rotate(rotator.due())
            node.clock.advance(10)
        # The newest as it is, an older one compressed, none older than three files in all allow.
        names = node.host.files.listdir("/var/log/pods/p/app")
        assert sorted(names) == ["0.log.20200102-030425.gz", "0.log.20200102-030435"]
        assert (
            gzip.decompress(node.host.files.read(f"/var/log/pods/p/app/{min(names)}")) == b"2" * 100
        )
        assert sum(call[0] == "reopen_log" for call in node.runtime.calls) == 4
        node.host.files.write(path, b"short")
        assert not rotator.due()
    async with running_node() as node:
        assert not LogRotator(node.env).enabled


async def test_images_that_are_unused_for_long_are_removed() -> None:
    for version, left in (("v1.20.15", 1), ("v1.36.4", 0)):
        async with running_node(version=version, image_maximum_gc_age=3600.0) as node:
            node.runtime.store["a"] = Image("a", ("a",), (), 5)
            images = ImageGC(node.env)
            images.detect()
            node.clock.advance(1800)
            await images.free_by_policy()
            assert len(node.runtime.images()) == 1
            node.clock.advance(3600)
            await images.free_by_policy()
            assert len(node.runtime.images()) == left
