"""Failures of storage outside the nodes: every fault of `transom cloud`, CSI drivers, claims and volumes."""

from __future__ import annotations

from tests.doctor.failures import (
    A,
    Action,
    Failure,
    Object,
    both,
    claim,
    mounting,
    obj,
    patch_node,
    pod,
    remove,
    volume,
)
from tests.doctor.virtual_cluster import VirtualCluster

PLUGIN = "kubernetes.io/azure-disk"
URI = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/"


def azure_disk(disk: str = "d1") -> Object:
    return {"azureDisk": {"diskName": disk, "diskURI": URI + disk, "kind": "Managed"}}


def set_disk(**faults: object) -> Action:
    """`transom cloud set d1 ...`"""

    async def do(cluster: VirtualCluster) -> None:
        disk = cluster.cloud.create_disk(f"{PLUGIN}/{URI}d1", 1 << 30)
        for name, value in faults.items():
            setattr(disk, name, value)

    return do


def limit_disks(count: int | None) -> Action:
    """`transom cloud limit linux-1 azure-disk COUNT`"""

    async def do(cluster: VirtualCluster) -> None:
        cluster.cloud.set_limit("linux-1", PLUGIN, count)

    return do


def switch_share(*, offline: bool) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        cluster.cloud.share("acc.file.core.windows.net", "share").offline = offline

    return do


def zone(name: str | None) -> Action:
    return patch_node("linux-1", {"metadata": {"labels": {"topology.kubernetes.io/zone": name}}})


CREDENTIALS = obj(
    "Secret",
    "az",
    stringData={"azurestorageaccountname": "acc", "azurestorageaccountkey": "a2V5"},
)
SHARE = {"azureFile": {"secretName": "az", "shareName": "share"}}
BOUND = claim(volumeName="pv", storageClassName="")


def csi_volume(driver: str = "a.csi", **spec: object) -> Object:
    found = volume(csi={"driver": driver, "volumeHandle": "h"}, **spec)
    del found["spec"]["hostPath"]
    return found


CLOUD_FAILURES: tuple[Failure, ...] = (
    Failure(
        "a disk that cannot be attached",
        A,
        "the provider refuses to attach a disk to node linux-1",
        "transom cloud set d1 attach-error=",
        (mounting(azure_disk()),),
        (mounting(azure_disk()),),
        do=set_disk(attach_error="quota exceeded"),
        undo=set_disk(attach_error=""),
        covers=("FailedAttachVolume", "cloud:attach_error"),
    ),
    Failure(
        "a disk that does not exist",
        A,
        "the disk of a volume does not exist at the provider",
        "transom cloud set d1 missing=off",
        (mounting(azure_disk()),),
        (mounting(azure_disk()),),
        do=set_disk(missing=True),
        undo=set_disk(missing=False),
        covers=("cloud:missing",),
    ),
    Failure(
        "a disk that is attached slowly",
        "node/linux-1",
        "attaching disk d1 has taken",
        "transom cloud set d1 latency=0",
        (mounting(azure_disk()),),
        (mounting(azure_disk()),),
        do=set_disk(latency=120.0),
        undo=set_disk(latency=None),
        covers=("cloud:latency",),
    ),
    Failure(
        "a disk that cannot be detached",
        "node/linux-1",
        "the cloud cannot detach disk d1: permission denied",
        "transom cloud set d1 detach-error=",
        first=(mounting(azure_disk()),),
        do=both(set_disk(detach_error="permission denied"), remove(pod())),
        undo=set_disk(detach_error=""),
        covers=("cloud:detach_error",),
        seconds=300,
    ),
    Failure(
        "a disk in another zone",
        A,
        "disk d1 is in zone west, and node linux-1 in east",
        "topology.kubernetes.io/zone",
        (mounting(azure_disk()),),
        (mounting(azure_disk()),),
        do=both(set_disk(zone="west"), zone("east")),
        undo=both(zone(None), set_disk(zone="")),
        covers=("cloud:zone",),
    ),
    Failure(
        "a node that takes no more disks",
        A,
        "node linux-1 has as many disks attached as it can",
        "transom cloud limit linux-1 azure-disk default",
        (mounting(azure_disk()),),
        (mounting(azure_disk()),),
        do=limit_disks(0),
        undo=limit_disks(None),
        covers=("cloud:limit",),
    ),
    Failure(
        "a disk that another node has",
        "pod/default/b",
        "a ReadWriteOnce volume is in use on another node",
        "kubectl delete pod a --namespace default",
        (
            {
                **mounting(azure_disk(), os="windows", path="C:\\v"),
                "metadata": {"name": "b", "namespace": "default", "labels": {"app": "b"}},
            },
        ),
        None,
        first=(mounting(azure_disk()),),
    ),
    Failure(
        "a share that does not answer",
        A,
        "the server of a share does not answer",
        "transom cloud set //acc.file.core.windows.net/share offline=off",
        (CREDENTIALS, mounting(SHARE)),
        (CREDENTIALS, mounting(SHARE)),
        do=switch_share(offline=True),
        undo=switch_share(offline=False),
        covers=("cloud:offline",),
    ),
    Failure(
        "a share without its Secret",
        A,
        "the Secret default/az of a volume does not exist",
        "Create the Secret",
        (mounting(SHARE),),
        (CREDENTIALS, mounting(SHARE)),
    ),
    Failure(
        "a CSI driver without an attacher",
        A,
        "the attacher of the volume's CSI driver did not attach it",
        "csi-attacher",
        (csi_volume(), BOUND, mounting({"persistentVolumeClaim": {"claimName": "v"}})),
        None,
        seconds=300,
    ),
    Failure(
        "a claim for a volume that does not exist",
        "persistentvolumeclaim/default/v",
        "the volume pv that it names does not exist",
        "Create the PersistentVolume pv",
        (BOUND,),
        (volume(), BOUND),
        seconds=200,
    ),
    Failure(
        "a claim that is larger than every volume",
        "persistentvolumeclaim/default/v",
        "pv has only 1Gi",
        "Create a PersistentVolume of this size",
        (volume(), claim(resources={"requests": {"storage": "2Gi"}})),
        (volume(capacity={"storage": "2Gi"}), claim(resources={"requests": {"storage": "2Gi"}})),
    ),
    Failure(
        "a claim of another access mode",
        "persistentvolumeclaim/default/v",
        "pv has only the modes ReadWriteOnce",
        "access mode",
        (volume(), claim(accessModes=["ReadWriteMany"])),
        None,
    ),
    Failure(
        "a volume that another claim has",
        "persistentvolumeclaim/default/v",
        "the volume pv is bound to another claim",
        "Correct spec.volumeName",
        (volume(claimRef={"name": "other", "namespace": "default"}), BOUND),
        None,
    ),
    Failure(
        "a volume that cannot be reclaimed",
        "persistentvolume/pv",
        "has failed: host_path deleter only supports",
        "kubectl delete persistentvolume pv",
        (),
        None,
        first=(
            volume(persistentVolumeReclaimPolicy="Delete", hostPath={"path": "/etc"}),
            claim(),
        ),
        do=remove(claim()),
        undo=remove(volume()),
        covers=("VolumeFailedDelete",),
    ),
    Failure(
        "an emptyDir that is full",
        A,
        'Usage of EmptyDir volume "v" exceeds the limit',
        "Raise the limit (sizeLimit of the emptyDir",
        (
            mounting(
                {"emptyDir": {"sizeLimit": "1Mi"}},
                image="busybox",
                command=["sh", "-c", "dd if=/dev/zero of=/v/f bs=1M count=10; sleep 9999"],
            ),
        ),
        (mounting({"emptyDir": {"sizeLimit": "20Mi"}}),),
        seconds=200,
        covers=("Evicted",),
    ),
)
