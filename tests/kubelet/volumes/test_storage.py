"""Persistent volumes, and storage systems that are not behind a simulated node."""

from typing import Any

import pytest
from tests.kubelet.machines import UID, Machine, mount, pod

from transom.kubelet.failures import VolumeFailure

CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}


def claim(
    machine: Machine,
    source: dict[str, Any],
    *,
    phase: str = "Bound",
    meta: dict[str, Any] | None = None,
    **spec: Any,
) -> None:
    machine.api.put(
        "persistentvolumeclaims",
        "data",
        {
            "metadata": {"uid": "u1", **(meta or {})},
            "spec": {"volumeName": "pv1"},
            "status": {"phase": phase},
        },
    )
    machine.api.put(
        "persistentvolumes",
        "pv1",
        {
            "metadata": {"annotations": {"pv.beta.kubernetes.io/gid": "77"}},
            "spec": {
                "claimRef": {"uid": "u1"},
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                **source,
                **spec,
            },
        },
        namespace="",
    )


def using(volume: dict[str, Any] = CLAIM) -> dict[str, Any]:
    return pod({"volumeMounts": [mount("v")]}, volumes=[volume])


def failure(machine: Machine, wanted: dict[str, Any]) -> str:
    with pytest.raises(VolumeFailure) as caught:
        machine.run(machine.volumes.mount(wanted))
    return str(caught.value)


def recorded(machine: Machine, wanted: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(TimeoutError):
        machine.run(machine.volumes.mount(wanted))
    return machine.events.recorded


@pytest.mark.parametrize(
    ("phase", "meta", "why"),
    [
        ("Pending", {}, "PVC is not bound"),
        ("Bound", {"deletionTimestamp": "2020-01-01T00:00:00Z"}, "PVC is being deleted"),
        (
            "Bound",
            {"uid": "u2"},
            "found PV object pv1 but its pv.Spec.ClaimRef.UID u1 does not point to claim.UID u2",
        ),
    ],
)
def test_claims_that_cannot_be_used(phase: str, meta: dict[str, Any], why: str) -> None:
    machine = Machine()
    claim(machine, {"local": {"path": "/srv"}}, phase=phase, meta=meta)
    assert failure(machine, using()) == (
        f"unmounted volumes=[v], unattached volumes=[v]: error processing PVC ns/data: {why}"
    )


def test_a_claim_that_is_not_there() -> None:
    assert failure(Machine(), using()) == (
        "unmounted volumes=[v], unattached volumes=[v]: error processing PVC ns/data: failed "
        "to fetch PVC from API server: "
        'persistentvolumeclaims "data" not found'
    )


def test_drivers_that_are_not_installed() -> None:
    assert failure(Machine(), using({"name": "v", "flexVolume": {"driver": "x/y"}})) == (
        "unmounted volumes=[v], unattached volumes=[v]: failed to get Plugin from volumeSpec "
        'for volume "v" err=no volume '
        "plugin matched"
    )


@pytest.mark.parametrize("system", ["linux", "windows"])
def test_a_local_volume(system: str) -> None:
    machine = Machine(system)
    path = "/srv/none" if system == "linux" else "C:\\srv"
    claim(machine, {"local": {"path": path}})
    assert recorded(machine, using())[0][1] == (
        (
            f'MountVolume.NewMounter initialization failed for volume "pv1" : path "{path}" does '
            "not exist"
        ).replace("\\", "\\\\")
    )
    machine.files.mkdir(path)
    machine.run(machine.volumes.mount(using()), seconds=2)
    found = machine.volumes.of(UID)["v"]
    machine.files.write(machine.env.os.join(found.path, "file"), b"x")
    assert machine.files.read(machine.env.os.join(path, "file")) == b"x"
    assert machine.volumes.groups(using()) == (77,)
    machine.run(machine.volumes.unmount(UID))
    assert machine.files.read(machine.env.os.join(path, "file")) == b"x"


def test_a_volume_of_another_node() -> None:
    machine = Machine()
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]
    claim(
        machine,
        {"local": {"path": "/etc"}},
        nodeAffinity={"required": {"nodeSelectorTerms": terms}},
    )
    assert recorded(machine, using()) == [
        (
            "FailedMount",
            (
                'MountVolume.NodeAffinity check failed for volume "pv1" : no matching '
                "NodeSelectorTerms"
            ),
        )
    ]


def test_devices() -> None:
    machine = Machine()
    machine.files.make("/dev/sdx", "block")
    claim(machine, {"local": {"path": "/dev/sdx"}}, volumeMode="Block")
    assert failure(machine, using()).endswith(
        ": volume v has volumeMode Block, but is specified in volumeMounts"
    )
    wanted = pod({"volumeDevices": [{"name": "v", "devicePath": "/dev/xvda"}]}, volumes=[CLAIM])
    link = f"/var/lib/kubelet/pods/{UID}/volumeDevices/kubernetes.io~local-volume/pv1"
    assert machine.config(wanted).devices == (f"{link}:/dev/xvda:mrw",)
    assert machine.files.stat(link).kind == "block"


def test_devices_cannot_be_given_to_windows_containers() -> None:
    machine = Machine("windows")
    claim(machine, {"local": {"path": "C:\\disk"}}, volumeMode="Block")
    wanted = pod({"volumeDevices": [{"name": "v", "devicePath": "/dev/xvda"}]}, volumes=[CLAIM])
    ((reason, text),) = recorded(machine, wanted)
    assert reason == "FailedMapVolume"
    assert text == (
        'MapVolume.MapBlockVolume failed for volume "pv1" : blkUtil.AttachFileDevice failed. '
        "globalMapPath:"
        "c:\\var\\lib\\kubelet\\plugins\\kubernetes.io\\local-volume\\volumeDevices\\pv1, "
        f"podUID: {UID}: AttachFileDevice not "
        "supported for this build."
    )


def test_shares_are_directories_of_the_node_on_linux() -> None:
    machine = Machine()
    nfs = {"name": "v", "nfs": {"server": "srv", "path": "/x"}}
    first, second = using(nfs), using(nfs)
    second["metadata"] = {**second["metadata"], "uid": "other"}
    machine.run(machine.volumes.mount(first), machine.volumes.mount(second))
    machine.files.write(machine.volumes.of(UID)["v"].path + "/f", b"shared")
    assert machine.files.read(machine.volumes.of("other")["v"].path + "/f") == b"shared"


TARGET = f"c:\\\\var\\\\lib\\\\kubelet\\\\pods\\\\{UID}\\\\volumes\\\\kubernetes.io~nfs\\\\"


def test_nfs_fails_on_windows() -> None:
    machine = Machine("windows")
    assert recorded(machine, using({"name": "v", "nfs": {"server": "srv", "path": "/x"}})) == [
        (
            "FailedMount",
            'MountVolume.SetUp failed for volume "v" : mount options("") should have at '
            "least 2 options, current number:0, "
            f'source:"srv:/x", target:"{TARGET}v"',
        )
    ]
    machine = Machine("windows")
    claim(machine, {"nfs": {"server": "srv", "path": "/x"}}, mountOptions=["nfsvers=4.1", "hard"])
    assert recorded(machine, using()) == [
        (
            "FailedMount",
            'MountVolume.SetUp failed for volume "pv1" : only cifs mount is supported now, '
            'fstype: "nfs", mounting source '
            f'("srv:/x"), target ("{TARGET}pv1"), with options ("hard,nfsvers=4.1")',
        )
    ]


def test_huge_pages_fail_on_windows() -> None:
    machine = Machine("windows")
    requests = {"resources": {"requests": {"hugepages-2Mi": "2Mi"}}, "volumeMounts": [mount("v")]}
    ((_, text),) = recorded(
        machine, pod(requests, volumes=[{"name": "v", "emptyDir": {"medium": "HugePages"}}])
    )
    assert (
        'mount options("pagesize=2Mi") should have at least 2 options, current number:1, '
        'source:"nodev"'
    ) in text


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        (None, []),  # the attach controller never gets that far; the pod only times out
        ({"spec": {"attachRequired": True}}, []),
        (
            {"spec": {"attachRequired": False}},
            [
                (
                    "FailedMount",
                    'MountVolume.MountDevice failed for volume "pv1" : kubernetes.io/csi: '
                    "attacher.MountDevice failed to create "
                    "newCsiDriverClient: driver name d not found in the list of registered "
                    "CSI drivers",
                )
            ],
        ),
    ],
)
def test_csi_without_a_driver(
    driver: dict[str, Any] | None, expected: list[tuple[str, str]]
) -> None:
    machine = Machine()
    claim(machine, {"csi": {"driver": "d", "volumeHandle": "h"}})
    if driver:
        machine.api.put("csidrivers", "d", driver, namespace="")
    assert recorded(machine, using()) == expected
    inline = Machine()
    inline.api.put(
        "csidrivers", "d", {"spec": {"volumeLifecycleModes": ["Ephemeral"]}}, namespace=""
    )
    assert recorded(inline, using({"name": "v", "csi": {"driver": "d"}})) == [
        (
            "FailedMount",
            'MountVolume.SetUp failed for volume "v" : kubernetes.io/csi: mounter.SetUpAt '
            "failed to get CSI client: driver name d "
            "not found in the list of registered CSI drivers",
        )
    ]


def test_ownership_is_set_once_when_the_pod_says_so() -> None:
    machine = Machine()
    claim(machine, {"local": {"path": "/data"}})
    machine.files.mkdir("/data")
    wanted = using()
    wanted["spec"]["securityContext"] = {"fsGroup": 2000, "fsGroupChangePolicy": "OnRootMismatch"}
    machine.run(machine.volumes.mount(wanted))
    assert machine.files.stat("/data").gid == 2000
    machine.files.write("/data/file", b"", 0o600)
    machine.files.chown("/data/file", 0, 0)
    for policy, group in (("OnRootMismatch", 0), ("Always", 2000)):
        machine.run(machine.volumes.unmount(UID))
        wanted["spec"]["securityContext"]["fsGroupChangePolicy"] = policy
        machine.run(machine.volumes.mount(wanted))
        assert machine.files.stat("/data/file").gid == group


def test_two_pods_with_different_groups_on_one_volume() -> None:
    machine = Machine()
    claim(machine, {"local": {"path": "/data"}})
    machine.files.mkdir("/data")
    first, second = using(), using()
    second["metadata"] = {**second["metadata"], "uid": "other"}
    first["spec"]["securityContext"], second["spec"]["securityContext"] = (
        {"fsGroup": 1},
        {"fsGroup": 2},
    )
    machine.run(machine.volumes.mount(first), machine.volumes.mount(second))
    assert machine.events.recorded == [
        (
            "AlreadyMountedVolume",
            (
                "The requested fsGroup is 2, but the volume pv1 has GID 1. The volume may not be "
                "shareable."
            ),
        )
    ]
    assert machine.builder.sandbox_config(first, 0).linux.supplemental_groups == (1, 77)
