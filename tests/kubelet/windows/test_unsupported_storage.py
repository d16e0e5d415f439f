"""Storage of Linux and of clouds on Windows nodes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubelet.conftest import Node

from transom.client.resources import (
    CSI_DRIVERS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SECRETS,
)

from .windows_pods import (
    at,
    container,
    flavours,
    printed,
    recorded,
    run,
    running,
    state,
    volume,
    waiting,
)


@pytest.mark.windows("LSTO-18", "WIN-STO-010", "WIN-STO-011")
@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            {"nfs": {"server": "srv", "path": "/x"}},
            (
                'mount options("") should have at least 2 options, current number:0, '
                'source:"srv:/x", target:"{target}"'
            ),
        ),
        (
            {"nfs": {"server": "srv", "path": "/x", "readOnly": True}},
            (
                'mount options("ro") should have at least 2 options, current number:1, '
                'source:"srv:/x", target:"{target}"'
            ),
        ),
        (
            {"glusterfs": {"endpoints": "e", "path": "x"}},
            'MountVolume.NewMounter initialization failed for volume "v" : endpoints "e" not found',
        ),
        (
            {"cephfs": {"monitors": ["m"]}},
            'CephFS: mount failed: only cifs mount is supported now, fstype: "ceph", '
            'mounting source ("m:6789:/"), target '
            '("{target}"), with options ("<masked>")',
        ),
        (
            {"quobyte": {"registry": "r:7861", "volume": "q"}},
            'quobyte: mount failed: mount options("allow-usermapping-in-volumename") should '
            "have at least 2 options, current "
            'number:1, source:"r:7861/"',
        ),
        (
            {"rbd": {"monitors": ["m"], "image": "i"}},
            'MountVolume.WaitForAttach failed for volume "v" : fail to check rbd image '
            "status with: (executable file not found in "
            "%PATH%), rbd output: ()",
        ),
        (
            {"iscsi": {"targetPortal": "t", "iqn": "iqn.2001-04.com.example:x", "lun": 0}},
            'MountVolume.WaitForAttach failed for volume "v" : executable file not found in %PATH%',
        ),
        (
            {"fc": {"targetWWNs": ["50060e801049cfd1"], "lun": 0}},
            'MountVolume.WaitForAttach failed for volume "v" : no fc disk found',
        ),
        (
            {"cinder": {"volumeID": "c"}},
            'MountVolume.WaitForAttach failed for volume "v" : could not find attached '
            'Cinder disk "c" (path: ""). Timeout '
            "waiting for mount paths to be created",
        ),
        (
            {"gitRepo": {"repository": "https://example.com/x.git"}},
            (
                "failed to exec 'git clone -- https://example.com/x.git': : executable file not "
                "found in %PATH%"
            ),
        ),
        ({"portworxVolume": {"volumeID": "p"}}, 'services "portworx-service" not found'),
        (
            {"flocker": {"datasetName": "d"}},
            "open /etc/flocker/apiuser.crt: The system cannot find the path specified.",
        ),
        (
            {"storageos": {"volumeName": "s", "volumeNamespace": "default"}},
            "dial tcp 127.0.0.1:5705: connectex: No connection",
        ),
        (
            {
                "scaleIO": {
                    "gateway": "https://g",
                    "system": "s",
                    "volumeName": "v",
                    "secretRef": {"name": "s"},
                }
            },
            "executable file not found in %PATH%",
        ),
    ],
)
async def test_nfs_and_other_storage_of_linux_cannot_be_mounted(
    node: Any, source: Any, text: str
) -> None:
    async with node("windows") as node:
        await node.start_controllers("attachdetach")
        await node.create(
            "p", volumes=[{"name": "v", **source}], containers=[container(volumeMounts=at("C:\\v"))]
        )
        await node.settle(130)
        [kind] = source
        pod = await node.pod("p")
        quoted = volume(pod, kind, "v").replace("\\", "\\\\")
        assert any(
            text.format(target=quoted) in line for line in await recorded(node, "FailedMount")
        )
        assert state(pod) == {"waiting": {"reason": "ContainerCreating"}}
        assert any(
            line.startswith(
                "Unable to attach or mount volumes: unmounted volumes=[v], unattached "
                "volumes=[v]: timed "
                "out waiting for the condition"
            )
            for line in await recorded(node, "FailedMount")
        )


@pytest.mark.windows("LSTO-18", "WIN-STO-010", "WIN-STO-011")
async def test_options_do_not_help_nfs(node: Any) -> None:
    async with node("windows") as node:
        more = {"nfs": {"server": "srv", "path": "/x"}, "mountOptions": ["nolock", "hard"]}
        await claim(node, more)
        await node.create(
            "p",
            volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            containers=[container(volumeMounts=at("C:\\v"))],
        )
        await node.settle(3)
        [line, *_] = await recorded(node, "FailedMount")
        assert (
            'only cifs mount is supported now, fstype: "nfs", mounting source ("srv:/x"), target ('
            in line
        )
        assert line.endswith('with options ("hard,nolock")')


async def claim(node: Node, spec: Any) -> None:
    """Claim c, bound to the volume pv."""
    base = {"accessModes": ["ReadWriteOnce"], "volumeMode": spec.pop("volumeMode", "Filesystem")}
    requested = {
        **base,
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": "pv",
        "storageClassName": "",
    }
    made = await node.client.create(
        PERSISTENT_VOLUME_CLAIMS, "default", {"metadata": {"name": "c"}, "spec": requested}
    )
    await node.client.update_status(
        PERSISTENT_VOLUME_CLAIMS, {**made, "status": {"phase": "Bound"}}
    )
    ref = {"name": "c", "namespace": "default", "uid": made["metadata"]["uid"]}
    await node.client.create(
        PERSISTENT_VOLUMES,
        "",
        {
            "metadata": {"name": "pv"},
            "spec": {**base, "capacity": {"storage": "1Gi"}, "claimRef": ref, **spec},
        },
    )


@pytest.mark.windows("LSTO-15", "API-40", "WIN-STO-008")
@flavours
async def test_raw_block_devices_cannot_be_attached(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.start_controllers("attachdetach")
        await claim(node, {"volumeMode": "Block", "awsElasticBlockStore": {"volumeID": "vol-1"}})
        await node.create(
            "p",
            volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            containers=[container(volumeDevices=[{"name": "v", "devicePath": "C:\\dev"}])],
        )
        await node.settle(5)
        [line, *_] = await recorded(node, "FailedMapVolume")
        assert line.startswith('MapVolume.MapBlockVolume failed for volume "pv" : ')
        assert line.endswith("not supported for this build.")
        assert state(await node.pod("p")) == {"waiting": {"reason": "ContainerCreating"}}


async def storage_account(node: Node, name: str = "s") -> None:
    data = {"azurestorageaccountname": "account", "azurestorageaccountkey": "key"}
    await node.client.create(SECRETS, "default", {"metadata": {"name": name}, "stringData": data})


@pytest.mark.windows("STO-04", "STO-06", "STO-07", "STO-08", "STO-09", "STO-10")
@pytest.mark.parametrize(
    "source",
    [
        {"awsElasticBlockStore": {"volumeID": "vol-1", "fsType": "ntfs"}},
        {
            "azureDisk": {
                "diskName": "d",
                "diskURI": "https://a.blob.core.windows.net/c/d.vhd",
                "fsType": "ntfs",
            }
        },
        {"azureFile": {"secretName": "s", "shareName": "x"}},
        {"gcePersistentDisk": {"pdName": "d", "fsType": "ntfs"}},
        {"vsphereVolume": {"volumePath": "[ds] x", "fsType": "ntfs"}},
    ],
)
async def test_disks_and_shares_of_clouds_are_mounted(node: Any, source: Any) -> None:
    async with node("windows") as node:
        mounts = at("C:\\v")
        await node.start_controllers("attachdetach")
        await storage_account(node)
        for name in ("p", "q"):
            await node.create(
                name, volumes=[{"name": "v", **source}], containers=[container(volumeMounts=mounts)]
            )
        pod, other = await running(node), await running(node, "q")
        await run(node, pod, "cmd", "/c", "echo kept> C:\\v\\x")
        assert await printed(node, other, "type C:\\v\\x") == "kept"


@pytest.mark.windows("WIN-STO-013", "WIN-STO-014")
@pytest.mark.parametrize("version", ["v1.17.17", "v1.20.15"])
async def test_csi_volumes_wait_for_a_driver_that_cannot_be_there(node: Any, version: str) -> None:
    """Nothing registers with the kubelet: drivers came with 1.18, and need csi-proxy on the node
    from then on.
    """

    async with node("windows", version=version) as node:
        await node.client.create(
            CSI_DRIVERS,
            "",
            {
                "metadata": {"name": "disk.example.com"},
                "spec": {"volumeLifecycleModes": ["Ephemeral"]},
            },
        )
        await node.create(
            "p",
            containers=[container(volumeMounts=at("C:\\data"))],
            volumes=[{"name": "v", "csi": {"driver": "disk.example.com"}}],
        )
        await waiting(node, "ContainerCreating")
        message, *_ = await recorded(node, "FailedMount")
        assert message == (
            'MountVolume.SetUp failed for volume "v" : kubernetes.io/csi: mounter.SetUpAt '
            "failed to get CSI client: "
            "driver name disk.example.com not found in the list of registered CSI drivers"
        )
