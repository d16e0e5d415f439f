"""Storage drivers that are deployed on a cluster: CSI with node plugins on Linux and on Windows,
FlexVolume by its files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.windows.conftest import MANIFESTS, Place

pytestmark = pytest.mark.e2e

NANO = "mcr.microsoft.com/windows/nanoserver:1809"
PIPE = r"\\.\pipe\csi-proxy-filesystem-v1beta1"


def apply(place: Place, *objects: dict[str, Any]) -> None:
    place(
        "apply",
        "--filename",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}),
    )


def claim(name: str, storage_class: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
    }


def windows_pod(name: str, *claims: str, node: str = "", **volumes: Any) -> dict[str, Any]:
    """With its volumes at C:\\NAME."""
    named = {one: {"persistentVolumeClaim": {"claimName": one}} for one in claims} | volumes
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {
                "kubernetes.io/os": "windows",
                **({"kubernetes.io/hostname": node} if node else {}),
            },
            "containers": [
                {
                    "name": "c",
                    "image": NANO,
                    "command": ["cmd", "/c", "ping -t localhost > nul"],
                    "volumeMounts": [{"name": one, "mountPath": f"C:\\{one}"} for one in named],
                }
            ],
            "volumes": [{"name": one, **source} for one, source in named.items()],
        },
    }


def linux_pod(name: str, claim: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": "linux-1"},
            "containers": [
                {
                    "name": "c",
                    "image": "busybox:1.30",
                    "command": ["sleep", "10000"],
                    "volumeMounts": [{"name": "v", "mountPath": "/data"}],
                }
            ],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
        },
    }


def node_set(place: Place, setting: str) -> None:
    cluster = place.kubectl.cluster
    cluster.transom("node", "set", "--name", cluster.name, "windows-1", "windows-2", setting)


def proxy(place: Place, state: str) -> None:
    node_set(place, f"csi-proxy={state}")


@pytest.fixture
def driver(place: Place) -> Iterator[str]:
    """The name of a driver whose manifests have been applied; its pods may still be on their
    way.
    """
    name = f"disk.{place.namespace}.example"
    text = (
        (MANIFESTS / "csi-driver.yaml")
        .read_text()
        .replace("NAMESPACE", place.namespace)
        .replace("NAME", name)
    )
    place("apply", "--filename", "-", stdin=text)
    yield name
    # while the driver is there to let go of their volumes
    place("delete", "pod", "--selector=!app")
    place("delete", "--wait=false", "--filename", "-", stdin=text)
    proxy(place, "off")


@pytest.mark.windows(
    "STO-02",
    "STO-17",
    "STO-18",
    "STO-19",
    "STO-20",
    "STO-22",
    "STO-23",
    "STO-24",
    "STO-25",
    "STO-26",
    "SUP-STO-001",
    "SUP-STO-012",
    "SUP-STO-013",
    "WIN-STO-014",
)
def test_a_csi_driver_on_both_systems(place: Place, driver: str) -> None:
    apply(place, claim("data", driver), claim("linux", driver))
    place.ready("daemonset/csi-linux", "statefulset/csi-controller")
    apply(place, linux_pod("on-linux", "linux"))
    place.ready("pod/on-linux")
    # A Windows node has no privileged containers, and this one has no csi-proxy either.
    apply(place, windows_pod("p", "data", node="windows-1"))
    assert f'no NodeID for driver "{driver}"' in place.event("p", "FailedAttachVolume")
    name = place.pods("app=csi-windows")[0]["metadata"]["name"]
    assert "csi-proxy-filesystem-v1beta1" in place.event(name, "Failed")
    assert not place.object("csinode", "windows-1")["spec"].get("drivers")

    proxy(place, "on")
    place("delete", "pod", "--selector=app=csi-windows")
    place.ready("daemonset/csi-windows", "pod/p")
    rows = place.object("csinode", "windows-1")["spec"]["drivers"]
    assert [(row["name"], row["nodeID"]) for row in rows] == [(driver, "windows-1")]
    assert json.loads(
        place.object("node", "windows-1")["metadata"]["annotations"][
            "csi.volume.kubernetes.io/nodeid"
        ]
    ) == {driver: "windows-1"}
    assert "AttachVolume.Attach succeeded" in place.event("p", "SuccessfulAttachVolume")
    assert (
        f"Successfully provisioned volume pvc-{place.object('pvc', 'data')['metadata']['uid']}"
        == place.event("data", "ProvisioningSucceeded")
    )
    place.exec("p", "cmd", "/c", r"echo kept> C:\data\f")

    # The data follow the volume, and the volume the pod.
    place("delete", "pod", "p")
    apply(place, windows_pod("q", "data", node="windows-2"))
    place.ready("pod/q")
    assert place.exec("q", "cmd", "/c", r"type C:\data\f") == "kept\n"
    attached = [
        one
        for one in place.object("volumeattachments")["items"]
        if one["spec"]["attacher"] == driver
    ]
    assert {one["spec"]["nodeName"] for one in attached} == {"linux-1", "windows-2"}

    # A driver that goes through csi-proxy can let a mounted volume grow on Windows, too.
    place(
        "patch",
        "pvc",
        "data",
        "--patch",
        '{"spec": {"resources": {"requests": {"storage": "2Gi"}}}}',
    )
    place.event("data", "FileSystemResizeRequired")
    place("annotate", "pod", "q", "look=now")
    place.until("pvc/data", "{.status.capacity.storage}", "2Gi")

    volume = place.object("pvc", "data")["spec"]["volumeName"]
    place("delete", "pod", "q")
    place("delete", "pvc", "data")
    # it may be gone already
    place("wait", "--for=delete", f"pv/{volume}", "--timeout=60s", check=False)
    assert "not found" in place.refused("get", "pv", volume)


@pytest.mark.windows("STO-21", "SUP-STO-012")
def test_snapshots_and_clones(place: Place, driver: str) -> None:
    proxy(place, "on")
    place.apply("snapshot-types")
    snapshots = {"apiVersion": "snapshot.storage.k8s.io/v1"}
    apply(place, claim("data", driver), windows_pod("p", "data"))
    place.ready("statefulset/csi-controller", "daemonset/csi-windows", "pod/p")
    place.exec("p", "cmd", "/c", r"echo first> C:\data\f")

    def snapshot(name: str, class_name: str, source: str) -> dict[str, Any]:
        spec = {
            "volumeSnapshotClassName": class_name,
            "source": {"persistentVolumeClaimName": source},
        }
        return {**snapshots, "kind": "VolumeSnapshot", "metadata": {"name": name}, "spec": spec}

    # Snapshots and claims that cannot be made do not keep others waiting.
    apply(
        place,
        snapshot("a", "absent", "data"),
        snapshot("b", driver, "absent"),
        claim("a", driver, dataSource={"kind": "PersistentVolumeClaim", "name": "absent"}),
        {
            **snapshots,
            "kind": "VolumeSnapshotClass",
            "metadata": {"name": driver},
            "driver": driver,
            "deletionPolicy": "Delete",
        },
        snapshot("s", driver, "data"),
    )
    place.until("volumesnapshot/s", "{.status.readyToUse}", "true")
    assert "is ready to use" in place.event("s", "SnapshotReady")
    assert '"absent" not found' in place.event("a", "GetSnapshotClassFailed")
    assert "failed to retrieve PVC absent" in place.event("b", "SnapshotContentCreationFailed")
    assert "error getting PVC absent" in place.event("a", "ProvisioningFailed")
    place.exec("p", "cmd", "/c", r"echo second> C:\data\f")
    group = {"apiGroup": "snapshot.storage.k8s.io"}
    apply(
        place,
        claim("restored", driver, dataSource={**group, "kind": "VolumeSnapshot", "name": "s"}),
        claim("cloned", driver, dataSource={"kind": "PersistentVolumeClaim", "name": "data"}),
        windows_pod("q", "restored", "cloned"),
    )
    place.ready("pod/q")
    assert (
        place.exec("q", "cmd", "/c", r"type C:\restored\f & type C:\cloned\f") == "first\nsecond\n"
    )
    content = place.object("volumesnapshot", "s")["status"]["boundVolumeSnapshotContentName"]
    place("delete", "volumesnapshot", "s")
    place("wait", "--for=delete", f"volumesnapshotcontent/{content}", "--timeout=60s", check=False)
    assert "not found" in place.refused("get", "volumesnapshotcontent", content)
    place("delete", "--filename", str(MANIFESTS / "snapshot-types.yaml"))


@pytest.mark.windows("STO-23", "STO-24", "SUP-STO-013")
@pytest.mark.parametrize(
    ("container", "text"),
    [
        (
            {"securityContext": {"privileged": False}, "volumeMounts/1/mountPropagation": "None"},
            "mount: permission denied",
        ),
        ({"volumeMounts/1/mountPropagation": "None"}, ""),
    ],
)
def test_what_a_node_plugin_on_linux_needs(
    place: Place, driver: str, container: dict[str, Any], text: str
) -> None:
    """Without privileges it cannot mount; without propagation the node does not see what it has
    mounted.
    """
    top = "/spec/template/spec/containers/0"
    patch = [
        {"op": "replace", "path": f"{top}/{path}", "value": value}
        for path, value in container.items()
    ]
    place("patch", "daemonset", "csi-linux", "--type=json", "--patch", json.dumps(patch))
    apply(place, claim("data", driver))
    place.ready("daemonset/csi-linux")
    apply(place, linux_pod("p", "data"))
    if text:
        assert text in place.event("p", "FailedMount")
        return
    place.ready("pod/p")
    place.exec("p", "sh", "-c", "echo lost > /data/f")
    place("delete", "pod", "p")
    apply(place, linux_pod("q", "data"))
    place.ready("pod/q")
    assert place.exec("q", "ls", "/data") == ""


@pytest.mark.windows("STO-05", "LSTO-19", "SUP-STO-003", "WIN-STO-012")
def test_an_in_tree_disk_grows_but_not_its_file_system(place: Place) -> None:
    name = f"gce-{place.namespace}"  # Azure does not enlarge a disk that a node has
    apply(
        place,
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "allowVolumeExpansion": True,
            "provisioner": "kubernetes.io/gce-pd",
            "parameters": {"fsType": "ntfs"},
        },
        claim("data", name),
        windows_pod("p", "data"),
    )
    place.ready("pod/p")
    place(
        "patch",
        "pvc",
        "data",
        "--patch",
        '{"spec": {"resources": {"requests": {"storage": "2Gi"}}}}',
    )
    place.until(
        "pvc/data", '{.status.conditions[?(@.type=="FileSystemResizePending")].status}', "True"
    )
    place("annotate", "pod", "p", "look=now")
    volume = place.object("pvc", "data")["spec"]["volumeName"]
    assert place.event("p", "VolumeResizeFailed") == (
        f'NodeExpandVolume.NodeExpandVolume failed for volume "{volume}" : Resize is not '
        "supported for this build"
    )
    assert place.object("pv", volume)["spec"]["capacity"]["storage"] == "2Gi"
    assert place.object("pvc", "data")["status"]["capacity"]["storage"] == "1Gi"
    place("delete", "storageclass", name)


@pytest.mark.windows(
    "STO-11",
    "STO-12",
    "STO-13",
    "STO-14",
    "STO-15",
    "STO-16",
    "SUP-STO-009",
    "SUP-STO-010",
    "SUP-STO-011",
)
def test_flexvolume_drivers_on_a_windows_node(place: Place) -> None:
    kind = "microsoft.com/smb.cmd"
    share = {"driver": kind, "secretRef": {"name": "smb"}, "options": {"source": r"\\server\share"}}
    lun = {
        "flexVolume": {
            "driver": "microsoft.com/iscsi.cmd",
            "fsType": "ntfs",
            "options": {
                "targetPortal": "10.0.0.9:3260",
                "iqn": "iqn.2020-01.example:d",
                "lun": "0",
            },
        }
    }
    owned = {**share, "secretRef": {"name": "smb", "namespace": place.namespace}}
    persistent = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"flex-{place.namespace}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": place.namespace,
            "flexVolume": owned,
        },
    }
    apply(
        place,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "smb"},
            "type": kind,
            "stringData": {"username": "u", "password": "p"},
        },
        persistent,
        claim("made", place.namespace),
        windows_pod("p", "made", node="windows-1", lun=lun),
    )
    assert 'failed to get Plugin from volumeSpec for volume "' in (
        text := place.event("p", "FailedMount")
    )
    assert "err=no volume plugin matched" in text
    node_set(place, "flex-drivers=on")
    place.ready("pod/p")
    place.exec("p", "cmd", "/c", r"echo kept> C:\made\f & echo block> C:\lun\f")
    apply(place, windows_pod("q", node="windows-1", share={"flexVolume": share}))
    place.ready("pod/q")
    assert place.exec("q", "cmd", "/c", r"type C:\share\f") == "kept\n"
    place("delete", "pod", "p", "q")
    node_set(place, "flex-drivers=off")
    place("delete", "pvc", "made")
    place("delete", "pv", f"flex-{place.namespace}")


@pytest.mark.windows("STO-03", "SUP-STO-002")
def test_three_classes_of_plugins_in_one_pod(place: Place, driver: str) -> None:
    proxy(place, "on")
    node_set(place, "flex-drivers=on")
    kind = "microsoft.com/smb.cmd"
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "smb"},
        "type": kind,
        "stringData": {"username": "u", "password": "p"},
    }
    apply(place, secret, claim("csi", driver))
    place.ready("statefulset/csi-controller", "daemonset/csi-windows")
    flex = {
        "driver": kind,
        "secretRef": {"name": "smb"},
        "options": {"source": r"\\server\classes"},
    }
    apply(
        place,
        windows_pod(
            "p",
            "csi",
            node="windows-2",
            tree={"gcePersistentDisk": {"pdName": place.namespace, "fsType": "ntfs"}},
            flex={"flexVolume": flex},
        ),
    )
    place.ready("pod/p")
    for where in ("csi", "tree", "flex"):
        assert (
            place.exec("p", "cmd", "/c", rf"echo {where}> C:\{where}\f & type C:\{where}\f")
            == f"{where}\n"
        )
    place("delete", "pod", "p")
    node_set(place, "flex-drivers=off")
