"""Disks and shares of the cloud provider as a kubelet mounts them, with the real attach/detach
controller.
"""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from tests.kubelet.conftest import NODE, Node

from transom.client.resources import NODES, PODS, SECRETS
from transom.cloud.disks import CloudDisk
from transom.machines.linux import LinuxHost
from transom.machines.styles import POSIX

IMAGE = {"linux": "busybox", "windows": "mcr.microsoft.com/windows/nanoserver:1809"}
WAIT = {"linux": ["sleep", "100000"], "windows": ["cmd", "/c", "ping -t localhost"]}
URI = "/subscriptions/s/disks/data"
UNIQUE = f"kubernetes.io/azure-disk/{URI}"


def azure(fs: str, **more: Any) -> dict[str, Any]:
    return {
        "azureDisk": {"diskName": "data", "diskURI": URI, "kind": "Managed", "fsType": fs, **more}
    }


async def create(node: Node, source: dict[str, Any], name: str = "p") -> None:
    system = "windows" if node.windows else "linux"
    container = {
        "name": "c",
        "image": IMAGE[system],
        "command": WAIT[system],
        "volumeMounts": [{"name": "v", "mountPath": "C:\\v" if node.windows else "/v"}],
    }
    await node.create(
        name,
        volumes=[{"name": "v", **source}],
        containers=[container],
        terminationGracePeriodSeconds=1,
    )


async def running(node: Node, name: str = "p") -> Any:
    for _ in range(60):
        pod = await node.pod(name)
        if pod["status"].get("phase") == "Running":
            return pod
        await node.settle(0.5)
    raise AssertionError(await node.events())


async def failures(node: Node, reason: str = "FailedMount") -> list[str]:
    return [text for _, why, text in await node.events() if why == reason]


def path(node: Node, pod: Any, plugin: str) -> str:
    separator = "\\" if node.windows else "/"
    parts = (
        node.config.root_dir,
        "pods",
        pod["metadata"]["uid"],
        "volumes",
        f"kubernetes.io~{plugin}",
        "v",
    )
    return separator.join(parts)


@pytest.mark.parametrize(("system", "fs"), [("linux", "ext4"), ("windows", "ntfs")])
async def test_a_disk_is_reported_attached_mounted_and_detached(
    node: Any, system: str, fs: str
) -> None:
    async with node(system, flavour="containerd") as node:
        await node.start_controllers("attachdetach")
        await create(node, azure(fs))
        pod = await running(node)
        status = (await node.client.get(NODES, "", NODE))["status"]
        assert status["volumesAttached"] == [{"name": UNIQUE, "devicePath": "0"}]
        assert status["volumesInUse"] == [UNIQUE]
        there = path(node, pod, "azure-disk")
        if node.windows:  # two links: to the mount point of the node, and from there to the volume
            device = node.host.files.readlink(there)
            assert device.startswith(
                "C:\\var\\lib\\kubelet\\plugins\\kubernetes.io\\azure-disk\\mounts\\m"
            )
            assert node.host.files.readlink(device.rstrip("\\")).startswith("\\\\?\\Volume{")
        node.host.files.write(there + ("\\f" if node.windows else "/f"), b"kept")
        # Two pods of the node have the same disk; it stays until both are gone.
        await create(node, azure(fs), "q")
        other = await running(node, "q")
        await node.client.delete(PODS, "default", "p")
        await node.settle(10)
        assert (
            node.host.files.read(
                path(node, other, "azure-disk") + ("\\f" if node.windows else "/f")
            )
            == b"kept"
        )
        assert (await node.client.get(NODES, "", NODE))["status"]["volumesInUse"] == [UNIQUE]
        await node.client.delete(PODS, "default", "q")
        await node.settle(10)
        status = (await node.client.get(NODES, "", NODE))["status"]
        assert "volumesInUse" not in status and "volumesAttached" not in status
        disk = node.cloud.disk(UNIQUE)
        assert disk is not None and not disk.attachments and disk.format.lower() == fs
        # Another pod finds what the first has written.
        await create(node, azure(fs), "r")
        third = await running(node, "r")
        assert (
            node.host.files.read(
                path(node, third, "azure-disk") + ("\\f" if node.windows else "/f")
            )
            == b"kept"
        )


@pytest.mark.parametrize(("system", "fs"), [("linux", "ext4"), ("windows", "ntfs")])
async def test_a_disk_is_mounted_again_after_a_reboot_and_by_a_new_kubelet(
    node: Any, system: str, fs: str
) -> None:
    async with node(system, flavour="containerd") as node:
        await node.start_controllers("attachdetach")
        await create(node, azure(fs))
        pod = await running(node)
        there = path(node, pod, "azure-disk") + ("\\f" if node.windows else "/f")
        node.host.files.write(there, b"kept")
        await node.stop_kubelet()
        node.host.reboot()
        assert not node.host.files.exists(there)
        await node.start_kubelet()
        await node.settle(30)
        await running(node)
        assert node.host.files.read(there) == b"kept"
        await node.stop_kubelet()
        await node.start_kubelet()
        await node.client.delete(PODS, "default", "p")
        await node.settle(40)
        assert "volumesInUse" not in (await node.client.get(NODES, "", NODE))["status"]


async def test_a_volume_that_is_never_attached(node: Any) -> None:
    async with node("linux") as node:
        await create(node, azure("ext4"))
        await node.settle(130)
        assert (await node.client.get(NODES, "", NODE))["status"]["volumesInUse"] == [UNIQUE]
        assert await failures(node) == [
            "Unable to attach or mount volumes: unmounted volumes=[v], unattached "
            "volumes=[v]: timed out waiting for the "
            "condition"
        ]
        await node.client.delete(PODS, "default", "p")
        await node.settle(10)
        assert "volumesInUse" not in (await node.client.get(NODES, "", NODE))["status"]


DEVICE = "/dev/disk/azure/scsi1/lun0"
TARGET = (
    f"/var/lib/kubelet/plugins/kubernetes.io/azure-disk/mounts/m{zlib.crc32(URI.lower().encode())}"
)


@pytest.mark.parametrize(
    ("system", "format_", "source", "text"),
    [
        (
            "linux",
            "NTFS",
            azure("ext4"),
            'MountVolume.MountDevice failed for volume "v" : azureDisk - '
            "mountDevice:FormatAndMount "
            "failed with mount failed: exit status 32\nMounting command: mount\nMounting "
            "arguments: -t ext4 -o defaults "
            f"{DEVICE} {TARGET}\nOutput: mount: {TARGET}: wrong fs type, bad option, bad "
            f"superblock on {DEVICE}, missing codepage or "
            "helper program, or other error.\n",
        ),
        (
            "linux",
            "",
            azure("ntfs"),
            'MountVolume.MountDevice failed for volume "v" : azureDisk - '
            "mountDevice:FormatAndMount "
            f'failed with format of disk "{DEVICE}" failed: type:("ntfs") '
            f'target:("{TARGET}") options:("defaults") '
            'errcode:(exec: "mkfs.ntfs": executable file not found in $PATH) output:() ',
        ),
        (
            "linux",
            "",
            azure("ext4", readOnly=True),
            'MountVolume.MountDevice failed for volume "v" : azureDisk - '
            f"mountDevice:FormatAndMount failed with cannot mount unformatted disk {DEVICE} "
            "as we are manipulating it in read-only "
            "mode",
        ),
        (
            "windows",
            "",
            azure("ext4"),
            'MountVolume.MountDevice failed for volume "v" : azureDisk - '
            "mountDevice:FormatAndMount "
            "failed with diskMount: format disk failed, error: exit status 1, output: ",
        ),
    ],
)
async def test_disks_that_cannot_be_used(
    node: Any, system: str, format_: str, source: Any, text: str
) -> None:
    async with node(system) as node:
        await node.start_controllers("attachdetach")
        node.cloud.create_disk(UNIQUE, 1 << 30).format = format_
        await create(node, source)
        await node.settle(5)
        assert (await failures(node))[0].startswith(text)


async def test_windows_formats_a_disk_that_linux_has_used(node: Any) -> None:
    """It has no partition table, so Windows takes it for a new one."""

    async with node("windows") as node:
        await node.start_controllers("attachdetach")
        disk = node.cloud.create_disk(UNIQUE, 1 << 30)
        _write_on_linux(node, disk)
        await create(node, azure("ntfs"))
        pod = await running(node)
        assert node.host.files.listdir(path(node, pod, "azure-disk")) == []
        assert disk.format == "NTFS"


def _write_on_linux(node: Node, disk: CloudDisk) -> None:
    other = LinuxHost("other", node.clock)
    other.files.mkdir("/d")
    other.files.mount(disk.content.file_system(POSIX, disk.size, 0.0), "/d")
    other.files.write("/d/f", b"of Linux")
    disk.format = "ext4"


# ---- azureFile ----

SHARE = {"azureFile": {"secretName": "s", "shareName": "x"}}


async def secret(node: Node, name: str = "s", **data: str) -> None:
    data = data or {"azurestorageaccountname": "account", "azurestorageaccountkey": "key"}
    await node.client.create(SECRETS, "default", {"metadata": {"name": name}, "stringData": data})


@pytest.mark.parametrize("system", ["linux", "windows"])
async def test_azure_files_need_their_secret(node: Any, system: str) -> None:
    async with node(system, flavour="containerd") as node:
        await create(node, SHARE)
        await node.settle(3)
        assert (await failures(node))[
            0
        ] == 'MountVolume.SetUp failed for volume "v" : Couldn\'t get secret default/s'
        await secret(node, azurestorageaccountname="account")
        await node.settle(10)
        assert (await failures(node))[-1] == (
            'MountVolume.SetUp failed for volume "v" : Invalid default/s, couldn\'t extract '
            "azurestorageaccountname or "
            "azurestorageaccountkey"
        )
        await node.client.delete(SECRETS, "default", "s")
        await secret(node)
        await node.settle(20)
        pod = await running(node)
        share = node.cloud.share("account.file.core.windows.net", "x")
        there = path(node, pod, "azure-file")
        node.host.files.write(there + ("\\f" if node.windows else "/f"), b"x")
        assert list(share.content.file_system(share.style, 0, 0.0).root.data) == ["f"]  # type: ignore[arg-type]
        if node.windows:
            assert node.host.files.readlink(there) == "\\\\account.file.core.windows.net\\x\\"
        await node.stop_kubelet()
        node.host.reboot()
        node.cloud.forget_mappings(NODE)
        await node.start_kubelet()
        await node.settle(30)
        await running(node)
        assert node.host.files.listdir(there) == ["f"]


async def test_a_wrong_key(node: Any) -> None:
    async def scenario(node: Node) -> None:
        node.cloud.share("account.file.core.windows.net", "x").accounts["account"] = "right"
        await secret(node)
        await create(node, SHARE)
        await node.settle(3)
        [text, *_] = await failures(node)
        if node.windows:
            assert text == (
                'MountVolume.SetUp failed for volume "v" : '
                "New-SmbGlobalMapping(\\\\account.file.core.windows.net\\x) failed: "
                'exit status 1, output: "New-SmbGlobalMapping : Access is denied.\\r\\n"'
            )
        else:
            assert (
                "Mounting arguments: -t cifs -o "
                "file_mode=0777,dir_mode=0777,vers=3.0,actimeo=30,mfsymlinks,<masked>"
            ) in text
            assert (
                "Output: mount error(13): Permission denied\nRefer to the mount.cifs(8) manual page"
                in text
            )

    for system in ("linux", "windows"):
        async with node(system) as made:
            await scenario(made)


async def test_on_windows_the_first_credentials_count_for_all_pods_of_the_node(node: Any) -> None:
    async with node("windows") as node:
        await secret(node)
        await create(node, SHARE)
        await running(node)
        await secret(
            node, "wrong", azurestorageaccountname="account", azurestorageaccountkey="other"
        )
        await create(node, {"azureFile": {"secretName": "wrong", "shareName": "x"}}, "q")
        await running(node, "q")


async def test_exports_are_the_same_on_all_linux_nodes(node: Any) -> None:
    async with node("linux") as node:
        await create(node, {"nfs": {"server": "srv", "path": "/x"}})
        pod = await running(node)
        node.host.files.write(path(node, pod, "nfs") + "/f", b"1")
        content = node.cloud.export("kubernetes.io/nfs", "srv:/x")
        assert list(content.file_system(POSIX, 0, 0.0).root.data) == ["f"]  # type: ignore[arg-type]
        await node.client.delete(PODS, "default", "p")
        await node.settle(10)
        await create(node, {"nfs": {"server": "srv", "path": "/x"}}, "q")
        again = await running(node, "q")
        assert node.host.files.read(path(node, again, "nfs") + "/f") == b"1"
