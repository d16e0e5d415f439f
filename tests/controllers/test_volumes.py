"""Claims and volumes on virtual time: binding, making, giving back, protection, attaching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.client.api import MERGE_PATCH
from transom.client.resources import (
    EVENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
)
from transom.controllers.base import ControllerSettings, ProvisionedVolume, ProvisioningFailure
from transom.controllers.persistentvolume.matching import best_match
from transom.controllers.volume_protection import ATTRIBUTES_CLASSES
from transom.machinery.objects import Object

from .conftest import Plane

Play = Callable[..., None]
NS = "default"
BINDER = "persistentvolume-binder"


async def volume(
    plane: Plane, name: str, size: str = "1Gi", *, policy: str = "Retain", **spec: Any
) -> None:
    full = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": policy,
        "storageClassName": "sc",
        **spec,
    }
    if not any(source in spec for source in ("csi", "nfs", "local")):
        full.setdefault("hostPath", {"path": "/tmp/x"})
    await plane.client.create(PERSISTENT_VOLUMES, "", {"metadata": {"name": name}, "spec": full})


async def claim(plane: Plane, name: str = "c", size: str = "1Gi", **spec: Any) -> None:
    full = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        "storageClassName": "sc",
    }
    await plane.client.create(
        PERSISTENT_VOLUME_CLAIMS, NS, {"metadata": {"name": name}, "spec": {**full, **spec}}
    )


async def storage_class(plane: Plane, provisioner: str, **fields: Any) -> None:
    body = {"metadata": {"name": "sc"}, "provisioner": provisioner, **fields}
    await plane.client.create(STORAGE_CLASSES, "", body)


async def held(plane: Plane, name: str = "c") -> tuple[str, str]:
    """The phase of a claim and its volume."""
    found = await plane.get(PERSISTENT_VOLUME_CLAIMS, NS, name)
    return found["status"]["phase"], found["spec"].get("volumeName", "")


async def phase(plane: Plane, name: str) -> str:
    return str((await plane.get(PERSISTENT_VOLUMES, "", name))["status"]["phase"])


async def recorded(plane: Plane, about: str) -> list[tuple[str, str, str]]:
    listed = (await plane.client.list(EVENTS)).items
    return [
        (e["type"], e["reason"], e["message"])
        for e in listed
        if e["involvedObject"]["name"] == about
    ]


async def free(plane: Plane, name: str = "c") -> None:
    await plane.client.delete(PERSISTENT_VOLUME_CLAIMS, NS, name)
    await plane.settle(1)


async def test_the_smallest_that_fits_is_bound_and_released(control_plane: ContextFactory) -> None:
    async with control_plane(BINDER, "pvc-protection") as plane:
        for name, size in (("big", "5Gi"), ("small", "2Gi"), ("tiny", "1Gi")):
            await volume(plane, name, size)
        await plane.settle(1)
        await claim(plane, size="1500Mi")
        await plane.settle(1)
        assert await held(plane) == ("Bound", "small")
        found = await plane.get(PERSISTENT_VOLUME_CLAIMS, NS, "c")
        assert found["status"]["capacity"] == {"storage": "2Gi"}
        assert set(found["metadata"]["annotations"].values()) == {"yes"}
        assert [await phase(plane, name) for name in ("big", "small", "tiny")] == [
            "Available",
            "Bound",
            "Available",
        ]
        await free(plane)
        assert await phase(plane, "small") == "Released"
        await claim(plane, size="1500Mi")
        await plane.settle(1)
        assert await held(plane) == ("Bound", "big")


async def test_a_volume_that_comes_later(control_plane: ContextFactory) -> None:
    async with control_plane(BINDER) as plane:
        await claim(plane, storageClassName="")
        await plane.settle(1)
        assert await held(plane) == ("Pending", "")
        text = "no persistent volumes available for this claim and no storage class is set"
        assert await recorded(plane, "c") == [("Normal", "FailedBinding", text)]
        await volume(plane, "v", storageClassName="")
        await plane.settle(16)
        assert await held(plane) == ("Bound", "v")


async def test_a_claim_that_names_its_volume(control_plane: ContextFactory) -> None:
    async with control_plane(BINDER) as plane:
        await claim(plane, volumeName="v", size="2Gi")
        await plane.settle(1)
        assert await held(plane) == ("Pending", "v")
        await volume(plane, "v")
        await plane.settle(16)
        assert (
            "Warning",
            "VolumeMismatch",
            'Cannot bind to requested volume "v": requested PV is too small',
        ) in (await recorded(plane, "c"))
        await claim(plane, "d", volumeName="v")
        await plane.settle(1)
        assert await held(plane, "d") == ("Bound", "v")
        notes = (await plane.get(PERSISTENT_VOLUME_CLAIMS, NS, "d"))["metadata"]["annotations"]
        assert notes == {"pv.kubernetes.io/bind-completed": "yes"}
        await plane.settle(16)
        assert (
            "Warning",
            "FailedBinding",
            'volume "v" already bound to a different claim.',
        ) in await recorded(plane, "c")


async def test_a_volume_that_names_its_claim(control_plane: ContextFactory) -> None:
    async with control_plane(BINDER) as plane:
        await volume(plane, "v", "9Gi", claimRef={"namespace": NS, "name": "c"})
        await volume(plane, "w")
        await plane.settle(1)
        assert await phase(plane, "v") == "Available"
        await claim(plane, "other")
        await claim(plane)
        await plane.settle(1)
        assert await held(plane) == ("Bound", "v") and await held(plane, "other") == ("Bound", "w")


async def test_a_bound_claim_that_loses_its_volume(control_plane: ContextFactory) -> None:
    async with control_plane(BINDER) as plane:
        await volume(plane, "v")
        await plane.settle(1)
        await claim(plane)
        await plane.settle(1)
        await plane.client.patch(
            PERSISTENT_VOLUMES, "", "v", {"metadata": {"finalizers": None}}, MERGE_PATCH
        )
        await plane.client.delete(PERSISTENT_VOLUMES, "", "v")
        await plane.settle(1)
        assert (await held(plane))[0] == "Lost"
        text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        assert ("Warning", "ClaimLost", text) in await recorded(plane, "c")


async def test_the_first_consumer_decides(control_plane: ContextFactory) -> None:
    async with control_plane(BINDER) as plane:
        await storage_class(
            plane, "kubernetes.io/no-provisioner", volumeBindingMode="WaitForFirstConsumer"
        )
        await volume(plane, "v")
        await claim(plane)
        await plane.settle(1)
        assert await held(plane) == ("Pending", "")
        text = "waiting for first consumer to be created before binding"
        assert await recorded(plane, "c") == [("Normal", "WaitForFirstConsumer", text)]
        # What a scheduler does: the volume is the claim's, which this controller finishes.
        found = await plane.get(PERSISTENT_VOLUME_CLAIMS, NS, "c")
        ref = {"namespace": NS, "name": "c", "uid": found["metadata"]["uid"]}
        await plane.client.patch(
            PERSISTENT_VOLUMES, "", "v", {"spec": {"claimRef": ref}}, MERGE_PATCH
        )
        await plane.settle(1)
        assert await held(plane) == ("Bound", "v")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            {"hostPath": {"path": "/data"}},
            "host_path deleter only supports /tmp/.+ but received provided /data",
        ),
        (
            {"csi": {"driver": "d", "volumeHandle": "h"}},
            (
                'Error getting deleter volume plugin for volume "v": no deletable volume plugin '
                "matched"
            ),
        ),
    ],
)
async def test_a_volume_that_cannot_be_deleted_fails(
    control_plane: ContextFactory, source: Object, text: str
) -> None:
    async with control_plane(BINDER, "pvc-protection") as plane:
        await volume(plane, "v", policy="Delete", **source)
        await plane.settle(1)
        await claim(plane)
        await plane.settle(1)
        await free(plane)
        await plane.settle(30)
        found = await plane.get(PERSISTENT_VOLUMES, "", "v")
        assert found["status"] == {"phase": "Failed", "message": text}
        assert await recorded(plane, "v") == [("Warning", "VolumeFailedDelete", text)]


async def test_deleted_with_its_claim(control_plane: ContextFactory) -> None:
    async with control_plane(BINDER, "pvc-protection", "pv-protection") as plane:
        await volume(plane, "v", policy="Delete")
        await plane.settle(1)
        await claim(plane)
        await plane.settle(1)
        await free(plane)
        assert await plane.missing(PERSISTENT_VOLUMES, "", "v")


async def test_recycled_by_a_pod(control_plane: ContextFactory) -> None:
    async with control_plane(
        BINDER, "pvc-protection", "serviceaccount", "serviceaccount-token"
    ) as plane:
        await volume(plane, "v", policy="Recycle")
        await plane.settle(1)
        await claim(plane)
        await plane.settle(1)
        await free(plane)
        await plane.settle(100)
        pod = await plane.get(PODS, NS, "recycler-for-v")
        assert pod["spec"]["volumes"][0]["hostPath"]["path"] == "/tmp/x"
        body = {"status": {"phase": "Succeeded"}}
        await plane.client.patch(
            PODS, NS, "recycler-for-v", body, MERGE_PATCH, subresource="status"
        )
        await plane.settle(1)
        found = await plane.get(PERSISTENT_VOLUMES, "", "v")
        assert found["status"]["phase"] == "Available" and "claimRef" not in found["spec"]
        assert "annotations" not in found["metadata"]
        assert ("Normal", "VolumeRecycled", "Volume recycled") in await recorded(plane, "v")


class Maker:
    """A provisioner that fails the first time."""

    def __init__(self) -> None:
        self.requested = 0
        self.deleted: list[str] = []

    async def provision(
        self, claim: Object, storage_class: Object, name: str, node: str
    ) -> ProvisionedVolume:
        self.requested += 1
        if self.requested == 1:
            raise ProvisioningFailure("no space")
        return ProvisionedVolume({"csi": {"driver": "maker", "volumeHandle": name}})

    async def delete(self, volume: Object) -> None:
        self.deleted.append(volume["metadata"]["name"])


async def test_volumes_made_on_demand(control_plane: ContextFactory) -> None:
    maker = Maker()

    settings = ControllerSettings(provisioners={"example.org/maker": maker})
    async with control_plane(BINDER, "pvc-protection", "pv-protection", settings=settings) as plane:
        await storage_class(plane, "example.org/maker")
        await claim(plane, size="3Gi")
        await plane.settle(5)
        state, name = await held(plane)
        uid = (await plane.get(PERSISTENT_VOLUME_CLAIMS, NS, "c"))["metadata"]["uid"]
        assert (state, name) == ("Bound", f"pvc-{uid}")
        found = await plane.get(PERSISTENT_VOLUMES, "", name)
        assert (
            found["spec"]["capacity"] == {"storage": "3Gi"} and found["status"]["phase"] == "Bound"
        )
        assert found["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        assert await recorded(plane, "c") == [
            (
                "Warning",
                "ProvisioningFailed",
                'Failed to provision volume with StorageClass "sc": no space',
            ),
            (
                "Normal",
                "ProvisioningSucceeded",
                f"Successfully provisioned volume {name} using example.org/maker",
            ),
        ]
        await free(plane)
        await plane.settle(1)
        assert await plane.missing(PERSISTENT_VOLUMES, "", name) and maker.deleted == [name]


@pytest.mark.parametrize(
    ("provisioner", "event"),
    [
        (
            "example.org/maker",
            (
                "Normal",
                "ExternalProvisioning",
                "waiting for a volume to be created, either by external provisioner "
                '"example.org/maker"'
                " or manually created by system administrator",
            ),
        ),
        (
            "kubernetes.io/magic",
            ("Warning", "ProvisioningFailed", "no volume plugin matched name: kubernetes.io/magic"),
        ),
        ("", ("Warning", "ProvisioningFailed", 'storageclass.storage.k8s.io "sc" not found')),
    ],
)
async def test_which_provisioner_creates_the_volume(
    control_plane: ContextFactory, provisioner: str, event: tuple[str, str, str]
) -> None:
    async with control_plane(BINDER) as plane:
        if provisioner:
            await storage_class(plane, provisioner)
        await claim(plane)
        await plane.settle(1)
        assert await recorded(plane, "c") == [event]
        notes = (await plane.get(PERSISTENT_VOLUME_CLAIMS, NS, "c"))["metadata"].get(
            "annotations"
        ) or {}
        assert list(notes.values()) == ([provisioner] if "example" in provisioner else [])


async def test_a_crash_in_the_middle_of_a_binding_is_finished(
    control_plane: ContextFactory,
) -> None:
    async with control_plane(BINDER) as plane:
        await volume(plane, "v")
        await plane.settle(1)
        await plane.stop_controllers()
        await claim(plane)
        found = await plane.get(PERSISTENT_VOLUME_CLAIMS, NS, "c")
        ref = {
            "kind": "PersistentVolumeClaim",
            "namespace": NS,
            "name": "c",
            "uid": found["metadata"]["uid"],
        }
        body = {
            "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
            "spec": {"claimRef": ref},
        }
        await plane.client.patch(PERSISTENT_VOLUMES, "", "v", body, MERGE_PATCH)
        plane.start_controllers()
        await plane.settle(1)
        assert await held(plane) == ("Bound", "v") and await phase(plane, "v") == "Bound"


async def pod_with_claim(plane: Plane, name: str, node: str = "") -> None:
    spec: Object = {
        "containers": [{"name": "c", "image": "i"}],
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}],
    }
    if node:
        spec["nodeName"] = node
    await plane.client.create(PODS, NS, {"metadata": {"name": name}, "spec": spec})


async def test_nothing_in_use_is_deleted(control_plane: ContextFactory) -> None:
    async with control_plane(BINDER, "pvc-protection", "pv-protection", "serviceaccount") as plane:
        await volume(plane, "v")
        await plane.settle(1)
        await claim(plane)
        await pod_with_claim(plane, "waiting")
        await pod_with_claim(plane, "p", "n")
        await plane.settle(1)
        await plane.client.delete(PERSISTENT_VOLUME_CLAIMS, NS, "c")
        await plane.client.delete(PERSISTENT_VOLUMES, "", "v")
        await plane.settle(20)
        assert await held(plane) == ("Bound", "v")
        await plane.client.delete(PODS, NS, "p")
        await plane.settle(1)
        assert await plane.missing(PERSISTENT_VOLUME_CLAIMS, NS, "c")
        assert await plane.missing(PERSISTENT_VOLUMES, "", "v")


async def test_volumes_of_drivers_are_attached_and_detached(control_plane: ContextFactory) -> None:
    async with control_plane(BINDER, "attachdetach", "serviceaccount") as plane:
        await plane.client.create(NODES, "", {"metadata": {"name": "n"}})
        await volume(plane, "v", csi={"driver": "d.example.org", "volumeHandle": "h"})
        await plane.settle(1)
        await claim(plane)
        await pod_with_claim(plane, "p", "n")
        await plane.settle(1)
        [made] = (await plane.client.list(VOLUME_ATTACHMENTS)).items
        assert made["spec"] == {
            "attacher": "d.example.org",
            "nodeName": "n",
            "source": {"persistentVolumeName": "v"},
        }
        name = made["metadata"]["name"]
        assert name.startswith("csi-") and len(name) == 68
        body: Object = {"status": {"attached": True}}
        await plane.client.patch(
            VOLUME_ATTACHMENTS, "", name, body, MERGE_PATCH, subresource="status"
        )
        await plane.settle(1)
        unique = "kubernetes.io/csi/d.example.org^h"
        status = (await plane.get(NODES, "", "n"))["status"]
        assert status["volumesAttached"] == [{"name": unique, "devicePath": ""}]
        assert (
            "Normal",
            "SuccessfulAttachVolume",
            'AttachVolume.Attach succeeded for volume "v" ',
        ) in (await recorded(plane, "p"))
        # The node still uses it when the pod is gone.
        body = {"status": {"volumesInUse": [unique]}}
        await plane.client.patch(NODES, "", "n", body, MERGE_PATCH, subresource="status")
        await plane.client.delete(PODS, NS, "p")
        await plane.settle(10)
        assert not await plane.missing(VOLUME_ATTACHMENTS, "", name)
        body = {"status": {"volumesInUse": None}}
        await plane.client.patch(NODES, "", "n", body, MERGE_PATCH, subresource="status")
        await plane.settle(1)
        assert await plane.missing(VOLUME_ATTACHMENTS, "", name)
        assert "volumesAttached" not in (await plane.get(NODES, "", "n"))["status"]


async def test_a_growing_claim_waits_for_the_resizer(control_plane: ContextFactory) -> None:
    async with control_plane(BINDER, "persistentvolume-expander") as plane:
        await storage_class(plane, "example.org/maker", allowVolumeExpansion=True)
        await volume(plane, "v")
        await plane.settle(1)
        await claim(plane)
        await plane.settle(1)
        body = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        await plane.client.patch(PERSISTENT_VOLUME_CLAIMS, NS, "c", body, MERGE_PATCH)
        await plane.settle(1)
        assert (
            "Warning",
            "ExternalExpanding",
            (
                "Ignoring the PVC: didn't find a plugin capable of expanding the volume;"
                " waiting for an external controller to process this PVC."
            ),
        ) in await recorded(plane, "c")


@pytest.mark.windows("STO-02", "STO-05", "SUP-STO-001", "SUP-STO-003")
@pytest.mark.parametrize(
    ("provisioner", "source", "on_node"),
    [
        ("kubernetes.io/azure-disk", "azureDisk", True),
        ("kubernetes.io/aws-ebs", "awsElasticBlockStore", True),
        ("kubernetes.io/gce-pd", "gcePersistentDisk", True),
        ("kubernetes.io/azure-file", "azureFile", False),
    ],
)
async def test_disks_of_clouds_are_made_and_grow(
    control_plane: ContextFactory, provisioner: str, source: str, on_node: bool
) -> None:
    async with control_plane(BINDER, "persistentvolume-expander") as plane:
        await storage_class(plane, provisioner, allowVolumeExpansion=True)
        await claim(plane)
        await plane.settle(2)
        name = (await plane.get(PERSISTENT_VOLUME_CLAIMS, NS, "c"))["spec"]["volumeName"]
        assert (await plane.get(PERSISTENT_VOLUMES, "", name))["spec"][source]
        body = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        await plane.client.patch(PERSISTENT_VOLUME_CLAIMS, NS, "c", body, MERGE_PATCH)
        await plane.settle(2)
        grown = await plane.get(PERSISTENT_VOLUME_CLAIMS, NS, "c")
        assert (
            grown["metadata"]["annotations"]["volume.kubernetes.io/storage-resizer"] == provisioner
        )
        assert (await plane.get(PERSISTENT_VOLUMES, "", name))["spec"]["capacity"][
            "storage"
        ] == "2Gi"
        conditions = [row["type"] for row in grown["status"].get("conditions") or ()]
        assert conditions == (["FileSystemResizePending"] if on_node else [])
        assert grown["status"]["capacity"]["storage"] == ("1Gi" if on_node else "2Gi")


def _volume(name: str, size: str, modes: str, **spec: Any) -> Object:
    full = {"capacity": {"storage": size}, "accessModes": modes.split(), **spec}
    return {
        "metadata": {"name": name, "labels": {"name": name}},
        "spec": full,
        "status": {"phase": "Available"},
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"accessModes": ["A"]}, "one"),
        ({"accessModes": ["A", "B"]}, "both"),
        ({"accessModes": ["C"]}, None),
        ({"accessModes": ["A"], "selector": {"matchLabels": {"name": "large"}}}, "large"),
        ({"accessModes": ["A"], "volumeMode": "Block"}, "block"),
        ({"accessModes": ["A"], "resources": {"requests": {"storage": "6Gi"}}}, None),
    ],
)
def test_what_fits(spec: Object, expected: str | None) -> None:
    volumes = [
        _volume("large", "5Gi", "A"),
        _volume("one", "4Gi", "A"),
        _volume("both", "1Gi", "A B"),
        _volume("block", "1Gi", "A", volumeMode="Block"),
        _volume("taken", "1Gi", "A", claimRef={"name": "x"}),
    ]
    wanted = {
        "metadata": {"name": "c", "namespace": NS, "uid": "u"},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}, **spec},
    }
    found = best_match(wanted, volumes, delayed=False)
    assert (found["metadata"]["name"] if found else None) == expected
    assert best_match(wanted, volumes, delayed=True) is None


async def test_an_attributes_class_stays_while_a_claim_uses_it(
    control_plane: ContextFactory,
) -> None:
    where = (ATTRIBUTES_CLASSES, "", "gold")
    async with control_plane(
        "volumeattributesclass-protection-controller", release="1.36"
    ) as plane:
        body = {
            "metadata": {"name": "gold"},
            "driverName": "d.example.com",
            "parameters": {"a": "b"},
        }
        made = await plane.client.create(ATTRIBUTES_CLASSES, "", body)
        assert made["metadata"]["finalizers"] == ["kubernetes.io/vac-protection"]
        await claim(plane, volumeAttributesClassName="gold")
        await plane.settle()
        await plane.client.delete(*where)
        await plane.settle()
        assert "deletionTimestamp" in (await plane.get(*where))["metadata"]
        await plane.client.patch(
            PERSISTENT_VOLUME_CLAIMS, NS, "c", {"metadata": {"finalizers": None}}, MERGE_PATCH
        )
        await plane.client.delete(PERSISTENT_VOLUME_CLAIMS, NS, "c")
        await plane.settle()
        assert await plane.missing(*where)
