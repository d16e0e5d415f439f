"""CVE-2021-30465, CVE-2024-45310: a mount point inside a volume is exchanged for a link while runc
makes and mounts it. CVE-2023-27561, CVE-2019-19921: /proc of an image is a link.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.oci.escapes.attack import ROUNDS, exchange, masked, running, tried

from transom.machines import mounting
from transom.runtime.api import Mount, RuntimeFailure
from transom.runtime.native.monitor.staging import MountStage

Play = Callable[[Any], None]


@pytest.mark.parametrize("kind", ["directory", "file"])
async def test_a_race_for_a_mount_point_in_a_volume(oci: Play, tmp_path: Path, kind: str) -> None:
    async with oci() as b:
        outside = tmp_path / "outside"
        outside.mkdir()
        path, _ = b.volume("data")
        inner, _ = b.volume("inner")
        if kind == "file":
            b.host.files.write("/volumes/file", b"")
            inner = "/volumes/file"
        sandbox = await b.sandbox()
        volumes = (Mount("/v", path), Mount("/v/d/made/here", inner))
        async with running(b, exchange("/data/d", str(outside)), sandbox, Mount("/data", path)):
            for _ in range(ROUNDS):
                await tried(b, "ls /v /v/d/made", sandbox, *volumes)
                assert os.listdir(outside) == [], "something was made on the machine"
        assert [
            entry for entry in mounting.mount_points(str(tmp_path)) if "outside" in entry.point
        ] == []


@pytest.mark.parametrize("through", ["/v", "/alias", "/dev/shm"])
async def test_mounts_in_mounts_work(oci: Play, tmp_path: Path, through: str) -> None:
    """Also by a link of the image, and in the shared memory of the pod, which other containers can
    change too.
    """

    async with oci() as b:
        extra = tmp_path / "extra"
        extra.mkdir()
        (extra / "alias").symlink_to("v")
        assert b.add_image is not None
        b.add_image("linked", [extra])
        outer, _ = b.volume("outer")
        inner, _ = b.volume("inner")
        deep, _ = b.volume("deep")
        for path in (outer, inner, deep):
            b.host.files.write(f"{path}/name", f"{path}\n".encode())
        mounts = [
            Mount(f"{through}/a/b", inner, propagation="hostToContainer"),
            Mount(f"{through}/a/b/c", deep, read_only=True),
        ]
        if through != "/dev/shm":
            mounts.insert(0, Mount("/v", outer))
        command = (
            f"cat {through}/a/b/name {through}/a/b/c/name; echo x > {through}/a/b/new; echo x > "
            f"{through}/a/b/c/new"
        )
        made = await b.run(("sh", "-c", command), image="linked", mounts=tuple(mounts))
        await b.ended(made)
        assert b.printed(made) == ["/volumes/inner", "/volumes/deep"]
        assert b.printed(made, "stderr") == [
            f"sh: can't create {through}/a/b/c/new: Read-only file system"
        ]
        assert b.host.files.listdir(inner) == ["c", "name", "new"]
        assert [
            entry for entry in mounting.mount_points(str(b.folder)) if "/mounts" in entry.point
        ] == []


async def test_a_mount_in_a_mount_is_passed_on(oci: Play) -> None:
    async with oci() as b:
        outer, _ = b.volume("outer")
        inner, _ = b.volume("inner")
        b.host.files.mkdir(f"{inner}/late")
        watch = "echo ready; while ! test -e /v/in/late/x; do sleep 0.02; done; echo seen"
        mounts = (Mount("/v", outer), Mount("/v/in", inner, propagation="hostToContainer"))
        made = await b.run(("sh", "-c", watch), mounts=mounts)
        await b.ready(made)
        b.host.files.mount_tmpfs(f"{inner}/late", 1 << 20)
        b.host.files.write(f"{inner}/late/x", b"")
        assert (await b.ended(made)).exit_code == 0
        b.host.files.unmount(f"{inner}/late")
        assert b.host.files.listdir(f"{outer}/in") == [], (
            "the outer volume has only the mount point"
        )


@pytest.mark.parametrize(
    ("link", "target"), [("v/d", "/"), ("v/d", "../../../../.."), ("v/d", "/etc")]
)
async def test_a_mount_point_that_leads_out_of_its_volume(
    oci: Play, link: str, target: str
) -> None:
    async with oci() as b:
        b.volume("v")
        inner, _ = b.volume("inner")
        real = Path(b.host.files.folder) / "volumes" / link
        real.symlink_to(target)
        with pytest.raises(RuntimeFailure, match="leads out of its volume"):
            await b.run(("ls", "/v"), mounts=(Mount("/v", "/volumes/v"), Mount("/v/d/x", inner)))


def test_links_of_the_image_stay_in_the_image(tmp_path: Path) -> None:
    """Destinations are resolved as the container will see them."""
    root = tmp_path / "root"
    (root / "var/lib").mkdir(parents=True)
    (root / "a").symlink_to("/var/lib")
    (root / "b").symlink_to("../../../../var")
    (root / "loop").symlink_to("loop")
    stage = MountStage(str(tmp_path / "stage"), str(root))
    assert stage._destination("/a/x")[2] == "/var/lib/x"
    assert stage._destination("/b/lib/x")[2] == "/var/lib/x"
    assert stage._destination("../../etc/x")[2] == "/etc/x"
    with pytest.raises(OSError, match="symbolic links"):
        stage._destination("/loop/x")


@pytest.mark.parametrize("target", ["/etc", "etc", "/tmp/../etc"])
async def test_an_image_whose_proc_is_a_link(oci: Play, tmp_path: Path, target: str) -> None:
    async with oci() as b:
        extra = tmp_path / "extra"
        extra.mkdir()
        (extra / "proc").symlink_to(target)
        assert b.add_image is not None
        b.add_image("evil", [extra])
        with pytest.raises(RuntimeFailure):
            await b.run(("sh", "-c", "cat /proc/sys/kernel/core_pattern"), image="evil", **masked())


@pytest.mark.parametrize(
    "destination", ["/proc", "/proc/self/attr", "/proc/sys/kernel", "/proc/1/../self"]
)
async def test_a_volume_in_proc(oci: Play, destination: str) -> None:
    """CVE-2025-52881: what runc writes to /proc must not end up in files of the container's
    choice.
    """

    async with oci() as b:
        path, _ = b.volume("data")
        with pytest.raises(RuntimeFailure, match="proc"):
            await b.run(("true",), mounts=(Mount(destination, path),), **masked())
