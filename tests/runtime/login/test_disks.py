"""Get-Disk, Get-Partition and Get-Volume show the disks that the cloud has attached to the node."""

from __future__ import annotations

import json

from transom.cloud.provider import CloudProvider
from transom.runtime.sim.node_storage import NodeStorage

from .harness import Login


async def test_disks_of_the_cloud_are_disks_of_the_machine() -> None:
    login = Login()
    cloud = CloudProvider(login.clock)
    login.harness.runtime._core.storage = NodeStorage(login.host, cloud)
    assert (await login("(Get-Disk).Number")).out == "0\r\n"
    for name in ("a", "b"):
        await cloud.attach(f"kubernetes.io/azure-disk/{name}", login.host.name, size=2 << 30)
    first = cloud.disk("kubernetes.io/azure-disk/a")
    assert first is not None
    first.format = "NTFS"
    found = json.loads(
        (await login("Get-Disk | select Number, Location, PartitionStyle | ConvertTo-Json")).out
    )
    assert [
        (row["Number"], row["Location"].rpartition(" : ")[2], row["PartitionStyle"])
        for row in found
    ] == [
        (0, "LUN 0", "MBR"),
        (1, "LUN 0", "MBR"),
        (2, "LUN 1", "RAW"),
    ]
    volume = (await login("(Get-Disk -Number 1 | Get-Partition | Get-Volume).UniqueId")).out
    assert volume.startswith("\\\\?\\Volume{")
    assert (await login("Get-Disk -Number 2 | Get-Partition | Get-Volume")).out.strip() == ""
    assert "No MSFT_Disk objects found" in (await login("Get-Disk -Number 7")).err
    await cloud.detach(first.name, login.host.name)
    assert (await login("(Get-Disk).Number")).out == "0\r\n1\r\n"
