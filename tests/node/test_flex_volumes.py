"""FlexVolume drivers on simulated nodes: the files in the plugin directory are executed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.node.programs.simulated_node import NodeTestCluster, simulated_cluster
from tests.simulation.loop import VIRTUAL_LOOP

from transom.client.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
    builtin_resource,
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_LOOP


STORAGE_CLASSES = builtin_resource("storage.k8s.io/StorageClass")
LINUX = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"
WINDOWS = "C:" + LINUX.replace("/", "\\")
SMB = WINDOWS + r"\microsoft.com~smb.cmd"


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


async def make_pod(
    cluster: NodeTestCluster, name: str, node: str, command: list[str], volume: dict[str, Any]
) -> None:
    top = "C:\\" if node == "w" else "/"
    image = cluster.image if node == "w" else "busybox"
    mounts = [{"name": "v", "mountPath": f"{top}v"}]
    await cluster.client.create(
        PODS,
        "default",
        {
            "metadata": {"name": name},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 1,
                "volumes": [{"name": "v", "flexVolume": volume}],
                "containers": [
                    {"name": "c", "image": image, "command": command, "volumeMounts": mounts}
                ],
            },
        },
    )


async def gone(cluster: NodeTestCluster, name: str) -> bool:
    return all(
        pod["metadata"]["name"] != name
        for pod in (await cluster.client.list(PODS, "default")).items
    )


def recorded(cluster: NodeTestCluster, name: str, text: str) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return any(line.startswith(name) and text in line for line in await cluster.story())

    return check


async def secret(cluster: NodeTestCluster, **values: str) -> None:
    await cluster.client.create(
        SECRETS,
        "default",
        {
            "metadata": {"name": "smb"},
            "type": "microsoft.com/smb.cmd",
            "stringData": values,
        },
    )


BROKEN = rb"""param($command)
if ($command -eq "init") { '{"status":"Success","capabilities":{"attach":false}}' }
else { '{"status":"Failure","message":"broken by hand"}'; exit 1 }
"""
WRITE = ["cmd", "/c", r"echo hello> C:\v\f & ping -t localhost"]


@pytest.mark.windows("STO-11", "STO-14", "STO-15", "SUP-STO-010")
async def test_the_smb_driver_of_a_windows_node() -> None:
    async with simulated_cluster() as cluster:
        files = cluster.pool.node("w").machine.files
        volume = {
            "driver": "microsoft.com/smb.cmd",
            "secretRef": {"name": "smb"},
            "options": {"source": "smb://Files/Data"},
        }
        await secret(cluster, username="user", password="p w&x")
        await make_pod(cluster, "a", "w", WRITE, volume)
        await cluster.until(recorded(cluster, "a", "no volume plugin matched"))
        cluster.pool.set("w", {"flexDrivers": True})
        assert "smb.ps1" in files.listdir(SMB)
        await cluster.until(lambda: cluster._phase("a", "Running"), 200)
        await cluster.until(lambda: files.exists(r"\\files\data\f"))
        share = cluster.pool.cluster.cloud.share("files", "data")
        assert share.accounts == {"user": "p w&x"}
        # The content is the share's, not the node's.
        await cluster.client.delete(PODS, "default", "a")
        await cluster.until(lambda: gone(cluster, "a"))
        assert files.read(r"\\files\data\f").split() == [b"hello"]
        # A share that does not answer, and a script that was changed.
        cluster.pool.cluster.cloud.smb_mappings("w").clear()
        files.remove_root(r"\\files\data")
        share.offline = True
        await make_pod(cluster, "b", "w", WRITE, volume)
        await cluster.until(
            recorded(
                cluster, "b", "status: Failure, reason: Caught exception New-SmbGlobalMapping of"
            )
        )
        await cluster.until(recorded(cluster, "b", "The network path was not found."))
        share.offline = False
        await cluster.until(lambda: cluster._phase("b", "Running"), 300)
        files.write(SMB + r"\smb.ps1", BROKEN)
        files.write(SMB + r"\smb.cmd", files.read(SMB + r"\smb.cmd") + b"\r\n")
        await make_pod(cluster, "c", "w", WRITE, volume)
        failed = (
            'MountVolume.SetUp failed for volume "v" : mount command failed, status: Failure, '
            "reason: broken by hand"
        )
        await cluster.until(recorded(cluster, "c", failed))
        files.remove(SMB, recursive=True)
        await make_pod(cluster, "d", "w", WRITE, volume)
        await cluster.until(recorded(cluster, "d", "no volume plugin matched"))


@pytest.mark.windows("STO-16", "SUP-STO-011")
async def test_the_iscsi_driver_of_a_windows_node() -> None:
    async with simulated_cluster(flex_drivers=True) as cluster:
        files = cluster.pool.node("w").machine.files
        await make_pod(
            cluster,
            "a",
            "w",
            WRITE,
            {"driver": "microsoft.com/iscsi.cmd", "options": {"targetPortal": "10.0.0.9"}},
        )
        await cluster.until(
            recorded(cluster, "a", "reason: Caught exception the option iqn is missing")
        )
        options = {"targetPortal": "10.0.0.9", "iqn": "iqn.2020-01.com.example:disk", "lun": "3"}
        await make_pod(
            cluster, "b", "w", WRITE, {"driver": "microsoft.com/iscsi.cmd", "options": options}
        )
        await cluster.until(lambda: cluster._phase("b", "Running"))
        (disk,) = cluster.pool.cluster.cloud.disks()
        assert disk.format == "NTFS"
        assert disk.identity == "10.0.0.9:iqn.2020-01.com.example:disk-lun-3"
        files.remove(WINDOWS + r"\microsoft.com~iscsi.cmd\iscsiHelper.exe")
        await make_pod(
            cluster, "c", "w", WRITE, {"driver": "microsoft.com/iscsi.cmd", "options": options}
        )
        await cluster.until(recorded(cluster, "c", "status: Failure"))


SCRIPT = """\
#!/bin/bash
echo "$1" >> /var/log/calls
case $1 in
init) echo '{"status": "Success"}';;
attach) echo '{"status": "Success", "device": "//files/data"}';;
mountdevice) mount -t cifs "$3" "$2" -o username=u,password=p && echo '{"status": "Success"}';;
unmountdevice) umount "$2" && echo '{"status": "Success"}';;
*) echo '{"status": "Not supported"}';;
esac
"""


@pytest.mark.windows("STO-12")
async def test_a_script_on_a_linux_node_mounts_a_share() -> None:
    async def clock_sleep(cluster: NodeTestCluster, seconds: float) -> None:
        await cluster.clock.sleep(seconds)

    async with simulated_cluster() as cluster:
        files = cluster.pool.node("l").machine.files
        folder = f"{LINUX}/example.com~share"
        files.mkdir(folder)
        files.write(f"{folder}/share", SCRIPT.encode(), 0o644)
        volume = {"driver": "example.com/share"}
        await make_pod(cluster, "a", "l", ["sh", "-c", "echo hello > /v/f; sleep 100000"], volume)
        await cluster.until(
            recorded(cluster, "a", "no volume plugin matched")
        )  # it is not executable
        files.chmod(f"{folder}/share", 0o755)
        await cluster.until(lambda: cluster._phase("a", "Running"), 200)
        await cluster.until(recorded(cluster, "a", 'AttachVolume.Attach succeeded for volume "v"'))
        await clock_sleep(cluster, 2)
        await cluster.client.delete(PODS, "default", "a")
        await cluster.until(lambda: gone(cluster, "a"))
        assert files.read("/var/log/calls").split() == [
            b"init",
            b"getvolumename",
            b"attach",
            b"waitforattach",
            b"mountdevice",
            b"mount",
            b"unmount",
            b"unmountdevice",
            b"detach",
        ]
        content = cluster.pool.cluster.cloud.share("files", "data").content.file_system(
            None, 0, 0.0
        )  # type: ignore[arg-type]
        assert list(content.root.data) == ["f"]  # type: ignore[arg-type]


GROWING = """#!/bin/sh
echo "$*" >> /var/log/calls
case $1 in
init) echo '{"status":"Success","capabilities":{"attach":false}}' ;;
mount|unmount|expandvolume) echo '{"status":"Success"}' ;;
*) echo '{"status":"Not supported"}' ;;
esac
"""


async def test_a_driver_is_called_when_a_claim_grows() -> None:
    async with simulated_cluster() as cluster:
        files = cluster.pool.node("l").machine.files
        folder = f"{LINUX}/example.com~disk"
        files.mkdir(folder)
        files.write(f"{folder}/disk", GROWING.encode(), 0o755)
        storage_class = {
            "metadata": {"name": "sc"},
            "provisioner": "kubernetes.io/no-provisioner",
            "allowVolumeExpansion": True,
        }
        await cluster.client.create(STORAGE_CLASSES, "", storage_class)
        common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "sc"}
        volume = {
            **common,
            "capacity": {"storage": "1Gi"},
            "flexVolume": {"driver": "example.com/disk"},
        }
        claim = {**common, "resources": {"requests": {"storage": "1Gi"}}}
        await cluster.client.create(
            PERSISTENT_VOLUMES, "", {"metadata": {"name": "pv"}, "spec": volume}
        )
        await cluster.client.create(
            PERSISTENT_VOLUME_CLAIMS, "default", {"metadata": {"name": "c"}, "spec": claim}
        )
        pod = {
            "metadata": {"name": "a"},
            "spec": {
                "nodeName": "l",
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
                "containers": [
                    {
                        "name": "c",
                        "image": "busybox",
                        "command": ["sleep", "100000"],
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    }
                ],
            },
        }
        await cluster.client.create(PODS, "default", pod)
        await cluster.until(lambda: cluster._phase("a", "Running"), 200)
        body = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, "default", "c", body)

        async def grown() -> bool:
            found = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, "default", "c")
            return bool(found["status"]["capacity"]["storage"] == "2Gi")

        await cluster.until(grown, 200)
        lines = files.read("/var/log/calls").decode().splitlines()
        (call,) = [line for line in lines if line.startswith("expandvolume ")]
        assert call.endswith(f"/mounts/pv {2 << 30} {1 << 30}")
        assert any(line.startswith("expandfs ") for line in lines)
