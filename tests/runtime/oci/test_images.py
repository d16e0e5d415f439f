"""Containers from the machine's own image store."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime import behaviour
from tests.runtime.behaviour import Posix, RuntimeHarness

from transom.kit.clock import RealClock
from transom.machines.realhost import RealLinuxHost
from transom.runtime.images.service import ImageService
from transom.runtime.native.store import NodeImages
from transom.runtime.oci.platform import LinuxPlatform

pytestmark = pytest.mark.skipif(
    bool(behaviour.unavailable("oci")), reason=behaviour.unavailable("oci")
)


async def test_a_container_keeps_its_image(tmp_path: Path) -> None:
    service = ImageService(tmp_path / "images")
    images = NodeImages(service, "cluster/node1", "linux")

    host = RealLinuxHost("node1", RealClock(), tmp_path / "node1")
    async with behaviour.native(tmp_path, host, LinuxPlatform(), images) as (
        runtime,
        network,
        cgroup,
    ):
        b = RuntimeHarness(
            "oci",
            runtime,
            host,
            Posix(),
            "busybox",
            "/var/log/pods/x",
            network,
            None,
            tmp_path,
            cgroup,
        )
        made = await b.run(("sh", "-c", "echo ready; sleep 1000"))
        await b.ready(made)
        view = runtime.image("busybox")
        assert view is not None
        name = "docker.io/library/busybox:latest"
        assert (b.state(made).image, view.tags) == (name, (name,))
        assert b.state(made).image_ref == view.digests[0]
        await runtime.remove_image("busybox")
        assert runtime.image("busybox") is not None, "a container needs it"
        await runtime.remove_sandbox(b.state(made).sandbox_id)
        await runtime.remove_image("busybox")
        assert runtime.image("busybox") is None
        assert runtime.images() == []
