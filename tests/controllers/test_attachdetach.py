"""The attach/detach controller on virtual time, with disks of the cloud provider and with volumes
of CSI drivers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.api import MERGE_PATCH
from transom.client.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    EVENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
)
from transom.cloud.calls import local_cloud
from transom.cloud.provider import CloudProvider
from transom.controllers.base import ControllerSettings
from transom.kit.clock import VirtualClock
from transom.machinery.objects import Object

from .conftest import Plane

NS = "default"
DISK = {"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/s/disks/d", "kind": "Managed"}}
NAME = "kubernetes.io/azure-disk//subscriptions/s/disks/d"
CSI = {"csi": {"driver": "d.example.org", "volumeHandle": "h"}}
CSI_NAME = "kubernetes.io/csi/d.example.org^h"
CONTROLLERS = (
    "attachdetach",
    "persistentvolume-binder",
    "persistentvolume-expander",
    "pvc-protection",
    "pv-protection",
    "serviceaccount",
)


class AttachDetachCluster:
    def __init__(self, plane: Plane, cloud: CloudProvider) -> None:
        self.plane, self.client, self.cloud = plane, plane.client, cloud

    async def node(self, name: str, **labels: str) -> None:
        await self.client.create(NODES, "", {"metadata": {"name": name, "labels": labels}})

    async def volume(
        self, source: Object, modes: tuple[str, ...] = ("ReadWriteOnce",), name: str = "v"
    ) -> None:
        """A PersistentVolume with a claim of the same name that is bound to it."""
        spec = {"accessModes": list(modes), "storageClassName": "", "capacity": {"storage": "1Gi"}}
        await self.client.create(
            PERSISTENT_VOLUMES, "", {"metadata": {"name": name}, "spec": {**spec, **source}}
        )
        requested = {"accessModes": list(modes), "storageClassName": "", "volumeName": name}
        await self.client.create(
            PERSISTENT_VOLUME_CLAIMS,
            NS,
            {
                "metadata": {"name": name},
                "spec": {**requested, "resources": {"requests": {"storage": "1Gi"}}},
            },
        )
        await self.plane.settle(1)

    async def pod(self, name: str, node: str, source: Object | None = None) -> None:
        await self.client.create(
            PODS,
            NS,
            {
                "metadata": {"name": name},
                "spec": {
                    "nodeName": node,
                    "automountServiceAccountToken": False,
                    "containers": [{"name": "c", "image": "i"}],
                    "volumes": [
                        {
                            "name": "data",
                            **(source or {"persistentVolumeClaim": {"claimName": "v"}}),
                        }
                    ],
                },
            },
        )
        await self.plane.settle(1)

    async def kill(self, name: str) -> None:
        await self.client.delete(PODS, NS, name, grace=0)
        await self.plane.settle(1)

    async def in_use(self, node: str, *names: str) -> None:
        body = {"status": {"volumesInUse": list(names) or None}}
        await self.client.patch(NODES, "", node, body, MERGE_PATCH, subresource="status")
        await self.plane.settle(1)

    async def attached(self, node: str) -> list[str]:
        status = (await self.plane.get(NODES, "", node)).get("status") or {}
        return [row["name"] for row in status.get("volumesAttached") or ()]

    async def events(self, about: str) -> list[tuple[str, str]]:
        listed = (await self.client.list(EVENTS)).items
        return [(e["reason"], e["message"]) for e in listed if e["involvedObject"]["name"] == about]

    async def set_attached(self, node: str, status: Object) -> None:
        """As the driver of the volume does it."""
        for found in (await self.client.list(VOLUME_ATTACHMENTS)).items:
            if found["spec"]["nodeName"] == node:
                name = found["metadata"]["name"]
                await self.client.patch(
                    VOLUME_ATTACHMENTS,
                    "",
                    name,
                    {"status": status},
                    MERGE_PATCH,
                    subresource="status",
                )
        await self.plane.settle(1)


@pytest.fixture
def cluster(control_plane: ContextFactory) -> ContextFactory:
    @asynccontextmanager
    async def run() -> AsyncIterator[AttachDetachCluster]:
        cloud = CloudProvider(VirtualClock())
        async with control_plane(
            *CONTROLLERS, settings=ControllerSettings(cloud=local_cloud(cloud))
        ) as plane:
            for name in ("a", "b"):
                await plane.client.create(NODES, "", {"metadata": {"name": name}})
            yield AttachDetachCluster(plane, cloud)

    return run


SUCCEEDED = ("SuccessfulAttachVolume", 'AttachVolume.Attach succeeded for volume "v" ')
BUSY = (
    "FailedAttachVolume",
    'Multi-Attach error for volume "v" Volume is already used by pod(s) p',
)
TAKEN = (
    "FailedAttachVolume",
    'Multi-Attach error for volume "v" Volume is already exclusively attached to one node and '
    "can't be attached to another",
)


async def test_a_disk_follows_its_pod(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await w.volume(DISK)
        await w.pod("p", "a")
        assert await w.attached("a") == [NAME] and await w.events("p") == [SUCCEEDED]
        await w.in_use("a", NAME)
        await w.pod("q", "b")
        assert await w.events("q") == [BUSY]
        await w.plane.settle(60)
        assert await w.events("q") == [BUSY]  # reported once
        await w.kill("p")
        # the node has not unmounted it yet
        assert await w.attached("a") == [NAME] and await w.attached("b") == []
        await w.in_use("a")
        assert await w.attached("a") == [] and await w.attached("b") == [NAME]
        assert (await w.events("q"))[-1] == SUCCEEDED
        disk = w.cloud.disk(NAME)
        assert disk is not None and list(disk.attachments) == ["b"]


async def test_a_disk_of_a_pod_that_is_gone(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await w.volume(DISK)
        await w.pod("p", "a")
        await w.in_use("a", NAME)
        await w.kill("p")
        await w.pod("q", "b")
        assert await w.events("q") == [TAKEN]


async def test_a_node_that_is_lost_has_six_minutes(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await w.volume(DISK)
        await w.pod("p", "a")
        await w.in_use("a", NAME)
        await w.kill("p")
        await w.pod("q", "b")
        await w.plane.settle(350)
        assert await w.attached("b") == []
        await w.plane.settle(15)
        assert await w.attached("a") == [] and await w.attached("b") == [NAME]


async def test_a_node_that_is_deleted_keeps_nothing(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await w.volume(DISK)
        await w.pod("p", "a")
        await w.in_use("a", NAME)
        await w.client.delete(NODES, "", "a")
        await w.kill("p")
        await w.pod("q", "b")
        assert await w.attached("b") == [NAME]


async def test_a_pod_that_comes_back_in_time_keeps_its_disk(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await w.volume(DISK)
        await w.pod("p", "a")
        await w.in_use("a", NAME)
        await w.kill("p")
        await w.plane.settle(300)
        await w.pod("p", "a")
        await w.plane.settle(300)
        assert await w.attached("a") == [NAME]


async def test_csi_volumes_are_attached_to_one_node_at_a_time(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await w.volume(CSI)
        await w.pod("p", "a")
        await w.set_attached("a", {"attached": True})
        assert await w.attached("a") == [CSI_NAME] and await w.events("p") == [SUCCEEDED]
        await w.in_use("a", CSI_NAME)
        await w.pod("q", "b")
        assert await w.events("q") == [BUSY]
        assert len((await w.client.list(VOLUME_ATTACHMENTS)).items) == 1
        await w.kill("p")
        await w.in_use("a")
        assert await w.attached("a") == []
        await w.set_attached("b", {"attached": True})
        assert await w.attached("b") == [CSI_NAME] and (await w.events("q"))[-1] == SUCCEEDED


async def test_csi_drivers_that_fail_or_are_slow(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await w.volume(CSI)
        await w.pod("p", "a")
        await w.plane.settle(125)
        assert await w.events("p") == [
            (
                "FailedAttachVolume",
                'AttachVolume.Attach failed for volume "v" : attachdetachment timeout for volume h',
            ),
        ]
        problem = {
            "attached": False,
            "attachError": {"message": "rpc error: no", "time": "2020-01-01T00:00:00Z"},
        }
        await w.set_attached("a", problem)
        assert (await w.events("p"))[-1] == (
            "FailedAttachVolume",
            'AttachVolume.Attach failed for volume "v" : rpc error: no',
        )


async def test_volumes_for_many_nodes(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await w.volume(CSI, ("ReadWriteMany",))
        await w.pod("p", "a")
        await w.pod("q", "b")
        assert len((await w.client.list(VOLUME_ATTACHMENTS)).items) == 2


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (DISK, 'Multi-Attach error for volume "data" Volume is already used by pod(s) p'),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            'AttachVolume.Attach failed for volume "data" : googleapi: Error 400: '
            "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE - The disk "
            "resource 'projects/transom/zones/local/disks/d' is already being used by "
            "'projects/transom/zones/local/instances/a'",
        ),
        (
            {"awsElasticBlockStore": {"volumeID": "vol-1"}},
            'AttachVolume.Attach failed for volume "data" : error attaching EBS volume '
            '"vol-1" to instance "b": "VolumeInUse: vol-1 '
            "is already attached to an instance\\n\\tstatus code: 400, request id: "
            '00000000-0000-0000-0000-000000000000". The volume '
            'is currently attached to instance "a"',
        ),
    ],
)
async def test_disks_that_pods_name_themselves(
    cluster: ContextFactory, source: Object, text: str
) -> None:
    async with cluster() as w:
        await w.pod("p", "a", source)
        assert len(await w.attached("a")) == 1
        await w.pod("q", "b", source)
        assert ("FailedAttachVolume", text) in await w.events("q")
        assert await w.attached("b") == []


async def test_faults_of_the_provider(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await w.volume(DISK)
        disk = w.cloud.create_disk(NAME, 1 << 30)
        disk.attach_error = "no capacity"
        await w.pod("p", "a")
        assert await w.events("p") == [
            ("FailedAttachVolume", 'AttachVolume.Attach failed for volume "v" : no capacity')
        ]
        disk.attach_error = ""
        await w.plane.settle(5)
        assert await w.attached("a") == [NAME]
        disk.detach_error = "stuck"
        await w.kill("p")
        await w.plane.settle(5)
        assert await w.attached("a") == [NAME]  # it is put back, because it is still attached
        disk.detach_error = ""
        await w.plane.settle(130)
        assert await w.attached("a") == []


async def test_other_changes_do_not_shorten_the_back_off(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await w.volume(DISK)
        disk = w.cloud.create_disk(NAME, 1 << 30)
        disk.attach_error = "no capacity"
        await w.pod("p", "a")
        for number in range(20):
            await w.in_use("a", f"other-{number}")
        # attempts after 0, 0.5, 1.5, 3.5, 7.5 and 15.5 s
        counts = [event["count"] for event in (await w.client.list(EVENTS)).items]
        assert counts == [6]


async def test_a_disk_detached_by_others_is_attached_again(
    cluster: ContextFactory,
) -> None:
    async with cluster() as w:
        await w.volume(DISK)
        await w.pod("p", "a")
        disk = w.cloud.disk(NAME)
        assert disk is not None
        disk.attachments.clear()
        await w.plane.settle(70)
        assert list(disk.attachments) == ["a"]


async def test_a_controller_that_starts_again(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await w.volume(DISK)
        await w.volume(CSI, name="c")
        await w.pod("p", "a")
        await w.pod("q", "a", {"persistentVolumeClaim": {"claimName": "c"}})
        await w.set_attached("a", {"attached": True})
        before = len(await w.events("p")), len(await w.events("q"))
        await w.plane.stop_controllers()
        await w.client.delete(PODS, NS, "p", grace=0)
        w.plane.start_controllers()
        await w.plane.settle(5)
        # what no pod needs any more was detached, the other is still there
        assert await w.attached("a") == [CSI_NAME]
        assert len((await w.client.list(VOLUME_ATTACHMENTS)).items) == 1
        assert len(await w.events("q")) == before[1]
        disk = w.cloud.disk(NAME)
        assert disk is not None and not disk.attachments


# ---- provisioning ----


async def provisioned(
    w: AttachDetachCluster,
    claim: str = "c",
    node: str = "",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
) -> Object:
    notes = {"volume.kubernetes.io/selected-node": node} if node else {}
    await w.client.create(
        PERSISTENT_VOLUME_CLAIMS,
        NS,
        {
            "metadata": {"name": claim, "annotations": notes},
            "spec": {
                "accessModes": list(modes),
                "storageClassName": "sc",
                "resources": {"requests": {"storage": "1500Mi"}},
            },
        },
    )
    await w.plane.settle(2)
    name = (await w.plane.get(PERSISTENT_VOLUME_CLAIMS, NS, claim))["spec"].get("volumeName")
    return await w.plane.get(PERSISTENT_VOLUMES, "", name) if name else {}


async def storage_class(
    w: AttachDetachCluster, provisioner: str = "kubernetes.io/azure-disk", **fields: Any
) -> None:
    await w.client.create(
        STORAGE_CLASSES, "", {"metadata": {"name": "sc"}, "provisioner": provisioner, **fields}
    )


async def test_a_disk_is_created_in_the_zone_of_its_pod(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await w.node(
            "z1",
            **{"topology.kubernetes.io/zone": "east-1", "topology.kubernetes.io/region": "east"},
        )
        await w.node(
            "z2",
            **{"topology.kubernetes.io/zone": "east-2", "topology.kubernetes.io/region": "east"},
        )
        await storage_class(w, volumeBindingMode="WaitForFirstConsumer")
        volume = await provisioned(w, node="z2")
        zone = {"topology.kubernetes.io/zone": "east-2", "topology.kubernetes.io/region": "east"}
        assert volume["metadata"]["labels"] == zone
        [term] = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert {row["key"]: row["values"] for row in term["matchExpressions"]} == {
            k: [v] for k, v in zone.items()
        }
        assert volume["spec"]["capacity"] == {"storage": "2Gi"}  # whole gibibytes
        [disk] = w.cloud.disks()
        assert (disk.zone, disk.size) == ("east-2", 2 << 30)
        await w.pod("p", "z1", {"azureDisk": volume["spec"]["azureDisk"]})
        assert "it is not in the same zone as the VM" in (await w.events("p"))[0][1]


async def test_claims_of_a_stateful_set_go_from_zone_to_zone(cluster: ContextFactory) -> None:
    async with cluster() as w:
        for zone in ("1", "2", "3"):
            await w.node(f"z{zone}", **{"failure-domain.beta.kubernetes.io/zone": zone})
        await storage_class(w)
        found = [await provisioned(w, f"data-web-{i}") for i in range(3)]
        assert {
            volume["metadata"]["labels"]["failure-domain.beta.kubernetes.io/zone"]
            for volume in found
        } == {"1", "2", "3"}


async def test_a_disk_is_deleted_with_its_claim_but_not_while_a_node_has_it(
    cluster: ContextFactory,
) -> None:
    async with cluster() as w:
        await storage_class(w)
        volume = await provisioned(w)
        assert "labels" not in volume["metadata"]  # nodes without zones
        await w.pod("p", "a", {"azureDisk": volume["spec"]["azureDisk"]})
        await w.client.delete(PERSISTENT_VOLUME_CLAIMS, NS, "c")
        await w.plane.settle(3)
        name = volume["metadata"]["name"]
        reasons = [text for reason, text in await w.events(name) if reason == "VolumeFailedDelete"]
        assert reasons and reasons[0].endswith("already attached to node(a), could not be deleted")
        await w.kill("p")
        await w.plane.settle(60)
        assert await w.plane.missing(PERSISTENT_VOLUMES, "", name) and not list(w.cloud.disks())


async def test_access_modes_that_a_disk_cannot_have(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await storage_class(w)
        assert not await provisioned(w, modes=("ReadWriteMany",))
        assert (
            "ProvisioningFailed",
            'Failed to provision volume with StorageClass "sc": invalid AccessModes '
            "[ReadWriteMany]: "
            "only AccessModes [ReadWriteOnce] are supported",
        ) in await w.events("c")


async def test_shares_need_the_right_to_write_their_secret(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await storage_class(w, "kubernetes.io/azure-file", parameters={"storageAccount": "acc"})
        assert not await provisioned(w, modes=("ReadWriteMany",))
        problem = next(
            text for reason, text in await w.events("c") if reason == "ProvisioningFailed"
        )
        assert (
            "Couldn't create secret secrets is forbidden: User "
            '"system:serviceaccount:kube-system:persistent-vol'
        ) in problem
        role = {
            "metadata": {"name": "azure"},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}],
        }
        subject = {
            "kind": "ServiceAccount",
            "name": "persistent-volume-binder",
            "namespace": "kube-system",
        }
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "azure"}
        await w.client.create(CLUSTER_ROLES, "", role)
        await w.client.create(
            CLUSTER_ROLE_BINDINGS,
            "",
            {"metadata": {"name": "azure"}, "subjects": [subject], "roleRef": ref},
        )
        await w.plane.settle(30)
        assert (await w.plane.get(SECRETS, NS, "azure-storage-account-acc-secret"))[
            "data"
        ].keys() == {
            "azurestorageaccountname",
            "azurestorageaccountkey",
        }
        [share] = w.cloud.shares()
        assert share.path.startswith("\\\\acc.file.core.windows.net\\kubernetes-dynamic-pvc-")


async def test_azure_enlarges_disks_that_no_node_has(cluster: ContextFactory) -> None:
    async with cluster() as w:
        await storage_class(w, allowVolumeExpansion=True)
        await provisioned(w)
        await w.pod("p", "a", {"persistentVolumeClaim": {"claimName": "c"}})
        body = {"spec": {"resources": {"requests": {"storage": "5Gi"}}}}
        await w.client.patch(PERSISTENT_VOLUME_CLAIMS, NS, "c", body, MERGE_PATCH)
        await w.plane.settle(2)
        assert (
            "VolumeResizeFailed",
            'error expanding volume "default/c" of plugin "kubernetes.io/azure-disk": '
            "azureDisk - disk resize is only "
            "supported on Unattached disk, current disk state: Attached, already attached to a",
        ) in await w.events("c")
        await w.kill("p")
        await w.plane.settle(30)
        [disk] = w.cloud.disks()
        assert disk.size == 5 << 30


async def test_attachments_of_other_clients_stay(cluster: ContextFactory) -> None:
    """The end-to-end suite creates one for a volume that does not exist."""
    async with cluster() as w:
        await w.volume(CSI)
        for name, volume in (("va-other", "missing"), ("va-same", "v")):
            spec = {
                "attacher": "d.example.org",
                "nodeName": "a",
                "source": {"persistentVolumeName": volume},
            }
            body = {"metadata": {"name": name}, "spec": spec}
            await w.client.create(VOLUME_ATTACHMENTS, "", body)
        await w.plane.settle(400)
        listed = (await w.client.list(VOLUME_ATTACHMENTS)).items
        assert {a["metadata"]["name"] for a in listed} == {"va-other", "va-same"}
