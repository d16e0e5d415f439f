"""Device nodes that a container makes in a volume: root in a container may make one of any device of
the machine, and must not get the device by having the node handed back to it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.oci.escapes.attack import SHELL

from transom.machines import mounting
from transom.runtime.api import Mount, RuntimeFailure

Play = Callable[[Any], None]


@pytest.mark.parametrize("kind", ["b 7 0", "c 10 237", "c 1 1"])
async def test_a_container_cannot_make_itself_a_device_of_the_machine(oci: Play, kind: str) -> None:
    """The path of a block volume is in the node's folder, where a pod with a hostPath writes."""

    async with oci() as b:
        b.host.files.mkdir("/data")
        sandbox = await b.sandbox()
        make = f"mknod /data/disk {kind} && echo made"
        # With propagation it has no user namespace, in which root can make no such nodes.
        volume = Mount("/data", "/data", propagation="hostToContainer")
        assert await b.output((*SHELL, make), sandbox, mounts=(volume,)) == ["made"]
        with pytest.raises(RuntimeFailure, match="/data/disk: operation not permitted"):
            await b.create(("id",), sandbox, devices=("/data/disk:/dev/xvda:mrw",))


async def test_a_device_that_is_mounted_in_the_nodes_folder_is_one_of_the_node(
    oci: Play, tmp_path: Path
) -> None:
    """Only the owner of the machine and privileged containers can mount."""

    async with oci() as b:
        device = tmp_path / "loop"
        try:
            os.mknod(device, stat.S_IFBLK | 0o600, os.makedev(7, 0))
        except PermissionError:
            pytest.skip("this machine has no device nodes")
        b.host.files.write("/disk", b"")
        point = b.host.files.real("/disk")
        mounting.mount_filesystem(str(device), point, "", mounting.BIND)
        try:
            printed = await b.output(
                (*SHELL, "stat -c %t:%T /dev/xvda"),
                await b.sandbox(),
                devices=("/disk:/dev/xvda:mrw",),
            )
        finally:
            mounting.unmount_filesystem(point)
        assert printed == ["7:0"]
