"""A driver at real Unix sockets in a node's folder: it registers, its volumes are mounted, and it
is removed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kubelet.machines import Machine, mount, pod
from tests.kubelet.plugins.driver import NAME, Driver

from transom.client.resources import GroupVersionResource
from transom.kit.rpc import RpcError
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.plugins.csi_handler import CSI, CsiPluginHandler
from transom.kubelet.plugins.drivers import CsiDriverRegistry
from transom.kubelet.plugins.endpoint import PluginEndpoint
from transom.kubelet.plugins.manager import PluginManager
from transom.kubelet.stats.volumes import pod_volumes
from transom.kubelet.volumes.manager import VolumeManager
from transom.machinery.objects import Object
from transom.machines.realfiles import RealFiles

UNIQUE = f"kubernetes.io/csi/{NAME}^disk-1"


class Writable:
    """What a kubelet writes to the API, into the objects of a `FakeApi`."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self.get = api.get

    async def update(self, resource: GroupVersionResource, obj: Object, **_: Any) -> Object:
        made: Object = self._api.put(resource.plural, obj["metadata"]["name"], obj, namespace="")
        return made

    async def patch(
        self,
        resource: GroupVersionResource,
        namespace: str,
        name: str,
        body: Object,
        kind: str,
        **_: Any,
    ) -> Object:
        old = self._api.objects[resource.plural, namespace, name]
        new = {
            **old,
            **{
                part: {**old.get(part, {}), **value}
                for part, value in body.items()
                if part != "metadata"
            },
        }
        new["metadata"] = {**old["metadata"]}
        for part, value in body.get("metadata", {}).items():
            if isinstance(value, dict):
                value = {
                    k: v
                    for k, v in {**new["metadata"].get(part, {}), **value}.items()
                    if v is not None
                }
            new["metadata"][part] = value
        made: Object = self._api.put(resource.plural, name, new, namespace=namespace)
        return made


class PluginHarness:
    def __init__(self, folder: Path, **driver: Any) -> None:
        self.machine = Machine()
        self.folder = folder
        self.files = RealFiles(folder)
        api = self.machine.api
        api.put("nodes", "node-1", {"metadata": {"labels": {}}}, namespace="")
        api.put("csinodes", "node-1", {"spec": {"drivers": []}}, namespace="")
        self.machine.env = replace(
            self.machine.env,
            host=SimpleNamespace(files=self.files),
            client=Writable(api),  # type: ignore[arg-type]
        )
        self.drivers = CsiDriverRegistry()
        self.driver = Driver(folder, **driver)
        self.manager = PluginManager(
            self.machine.env, {CSI: CsiPluginHandler(self.machine.env, self.drivers)}
        )
        self.volumes = VolumeManager(self.machine.env, self.machine.objects, self.drivers)

    def object(self, plural: str, name: str, namespace: str = "") -> Object:
        found: Object = self.machine.api.objects[plural, namespace, name]
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(500):
            if condition():
                return
            await self.machine.clock.run_for(0.5)
            await asyncio.sleep(0.002)
        raise AssertionError("it never came to be")

    def claim(self, size: str = "1Gi", has: str = "1Gi") -> Object:
        """A pod whose claim is bound to a volume of the driver that is attached."""
        api = self.machine.api
        api.put(
            "persistentvolumeclaims",
            "data",
            {
                "metadata": {"uid": "u1"},
                "spec": {"volumeName": "pv1"},
                "status": {"phase": "Bound", "capacity": {"storage": has}},
            },
        )
        api.put(
            "persistentvolumes",
            "pv1",
            {
                "spec": {
                    "claimRef": {"uid": "u1", "namespace": "ns", "name": "data"},
                    "capacity": {"storage": size},
                    "accessModes": ["ReadWriteOnce"],
                    "csi": {"driver": NAME, "volumeHandle": "disk-1", "fsType": "ext4"},
                }
            },
            namespace="",
        )
        api.put(
            "csidrivers",
            NAME,
            {"spec": {"attachRequired": True, "podInfoOnMount": True}},
            namespace="",
        )
        assert self.machine.node is not None
        self.machine.node["status"]["volumesAttached"] = [{"name": UNIQUE, "devicePath": ""}]
        self.machine.node["status"]["volumesInUse"] = [UNIQUE]
        name = "csi-" + hashlib.sha256(f"disk-1{NAME}node-1".encode()).hexdigest()
        api.put(
            "volumeattachments",
            name,
            {"status": {"attached": True, "attachmentMetadata": {"lun": "3"}}},
            namespace="",
        )
        return pod(
            {"volumeMounts": [mount("v")]},
            volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        )


def run_with_driver(harness: PluginHarness, scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), harness.driver.serving():
            task = asyncio.create_task(harness.manager.run())
            await harness.until(lambda: bool(harness.driver.statuses))
            await scenario()
            task.cancel()

    try:
        asyncio.run(main())
    finally:
        harness.files.close()


def test_a_driver_registers_and_goes(tmp_path: Path) -> None:
    harness = PluginHarness(tmp_path)

    async def scenario() -> None:
        assert harness.driver.statuses == [{"plugin_registered": True}]
        node = harness.object("nodes", "node-1")["metadata"]
        assert json.loads(node["annotations"]["csi.volume.kubernetes.io/nodeid"]) == {NAME: "id-1"}
        assert node["labels"] == {"example.com/zone": "a"}
        row = {
            "name": NAME,
            "nodeID": "id-1",
            "topologyKeys": ["example.com/zone"],
            "allocatable": {"count": 7},
        }
        assert harness.object("csinodes", "node-1")["spec"]["drivers"] == [row]
        (tmp_path / "var/lib/kubelet/plugins_registry/d-reg.sock").rename(tmp_path / "away")
        await harness.until(lambda: not harness.object("csinodes", "node-1")["spec"]["drivers"])
        assert (
            "csi.volume.kubernetes.io/nodeid"
            not in harness.object("nodes", "node-1")["metadata"]["annotations"]
        )
        assert harness.drivers.find(NAME) is None
        (tmp_path / "away").rename(tmp_path / "var/lib/kubelet/plugins_registry/d-reg.sock")

    run_with_driver(harness, scenario)


@pytest.mark.parametrize(
    ("info", "failures", "text"),
    [
        (
            {"type": "Other"},
            {},
            "RegisterPlugin error -- no handler registered for plugin type: Other at socket ",
        ),
        (
            {"supported_versions": ["2.0.0"]},
            {},
            'None of the versions specified ["2.0.0"] are supported.',
        ),
        (
            {},
            {"NodeGetInfo": ("Internal", "no node")},
            "plugin registration failed with err: rpc error: code = Internal desc = ",
        ),
    ],
)
def test_a_driver_that_is_refused_hears_why(
    tmp_path: Path, info: Any, failures: Any, text: str
) -> None:
    harness = PluginHarness(tmp_path)
    harness.driver.info |= info
    harness.driver.failures = failures

    async def scenario() -> None:
        first = harness.driver.statuses[0]
        assert text in first["error"] and not first.get("plugin_registered")
        assert (
            harness.object("csinodes", "node-1")["spec"]["drivers"] == []
            and harness.drivers.find(NAME) is None
        )
        # it is asked again, later and later
        await harness.until(lambda: len(harness.driver.statuses) > 1)

    run_with_driver(harness, scenario)


def test_a_volume_is_staged_once_and_published_to_each_pod(tmp_path: Path) -> None:
    harness = PluginHarness(tmp_path)

    async def scenario() -> None:
        wanted = harness.claim()
        other = {**wanted, "metadata": {**wanted["metadata"], "uid": "other", "name": "other"}}
        for one in (wanted, other):
            await harness.volumes.mount(one)
        path = harness.volumes.of("other")["v"].path
        assert path == "/var/lib/kubelet/pods/other/volumes/kubernetes.io~csi/pv1/mount"
        harness.files.write(path + "/f", b"x")
        assert (tmp_path / "disks/disk-1/f").read_bytes() == b"x"
        steps = "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"
        assert harness.driver.requested(*steps) == [
            "NodeStageVolume",
            "NodePublishVolume",
            "NodePublishVolume",
        ]
        request = next(
            request for method, request in harness.driver.calls if method == "NodePublishVolume"
        )
        assert (
            request["publish_context"] == {"lun": "3"}
            and request["volume_context"]["csi.storage.k8s.io/pod.name"] == "web"
        )
        assert (
            request["staging_target_path"]
            == "/var/lib/kubelet/plugins/kubernetes.io/csi/pv/pv1/globalmount"
        )
        assert request["volume_capability"] == {
            "mount": {"fs_type": "ext4"},
            "access_mode": {"mode": 1},
        }
        assert list(harness.volumes.in_use()) == [UNIQUE]
        harness.driver.calls.clear()
        await harness.volumes.unmount(wanted["metadata"]["uid"])
        assert harness.driver.requested(*steps) == ["NodeUnpublishVolume"]
        await harness.volumes.unmount("other")
        assert harness.driver.requested(*steps) == [
            "NodeUnpublishVolume",
            "NodeUnpublishVolume",
            "NodeUnstageVolume",
        ]
        assert (
            list(harness.volumes.in_use()) == []
            and (tmp_path / "disks/disk-1/f").read_bytes() == b"x"
        )
        assert harness.files.listdir("/var/lib/kubelet/pods") == []

    run_with_driver(harness, scenario)


def test_what_a_driver_does_not_let_go_of_is_not_removed(tmp_path: Path) -> None:
    harness = PluginHarness(tmp_path)

    async def scenario() -> None:
        wanted = harness.claim()
        uid = wanted["metadata"]["uid"]
        await harness.volumes.mount(wanted)
        harness.files.write(harness.volumes.of(uid)["v"].path + "/f", b"x")
        harness.drivers.remove(NAME)
        with pytest.raises(
            VolumeFailure,
            match=f"driver name {NAME} not found in the list of registered CSI drivers",
        ):
            await harness.volumes.unmount(uid)
        assert (tmp_path / "disks/disk-1/f").exists() and harness.volumes.mounted(uid)
        # A kubelet that knows nothing of it finds its notes.
        restarted = CsiDriverRegistry()
        harness.volumes = VolumeManager(harness.machine.env, harness.machine.objects, restarted)
        assert list(harness.volumes.in_use()) == [UNIQUE]

    run_with_driver(harness, scenario)


@pytest.mark.parametrize(
    ("failure", "kept"), [(("Internal", "no"), False), (("Aborted", "busy"), True)]
)
def test_a_driver_that_cannot_publish(tmp_path: Path, failure: tuple[str, str], kept: bool) -> None:
    """Notes stay where the driver may still be at it."""
    harness = PluginHarness(tmp_path)
    harness.driver.failures = {"NodePublishVolume": failure}

    async def scenario() -> None:
        wanted = harness.claim()
        task = asyncio.create_task(harness.volumes.mount(wanted))
        await harness.until(lambda: bool(harness.machine.events.recorded))
        task.cancel()
        assert harness.machine.events.recorded[0] == (
            "FailedMount",
            (
                f'MountVolume.SetUp failed for volume "pv1" : rpc error: code = {failure[0]} '
                f"desc = {failure[1]}"
            ),
        )
        uid = wanted["metadata"]["uid"]
        assert (
            harness.files.exists(
                f"/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/pv1/vol_data.json"
            )
            is kept
        )

    run_with_driver(harness, scenario)


def test_a_driver_says_how_full_its_volume_is(tmp_path: Path) -> None:
    harness = PluginHarness(tmp_path, capabilities=(1, 2, 3))
    harness.driver.usage = [
        {"available": 70, "total": 100, "used": 30, "unit": 1},
        {"available": 8, "total": 10, "used": 2, "unit": 2},
    ]

    async def scenario() -> None:
        wanted = harness.claim()
        uid = wanted["metadata"]["uid"]
        await harness.volumes.mount(wanted)
        await harness.volumes.measure()
        _, (row,) = pod_volumes(harness.machine.env, wanted, uid, 0.0, harness.volumes.of)
        assert {key: value for key, value in row.items() if key != "time"} == {
            "availableBytes": 70,
            "capacityBytes": 100,
            "usedBytes": 30,
            "inodesFree": 8,
            "inodes": 10,
            "inodesUsed": 2,
            "name": "v",
            "pvcRef": {"name": "data", "namespace": "ns"},
        }
        request = next(
            request for method, request in harness.driver.calls if method == "NodeGetVolumeStats"
        )
        assert request == {"volume_id": "disk-1", "volume_path": harness.volumes.of(uid)["v"].path}
        await harness.volumes.measure()
        assert len(harness.driver.requested("NodeGetVolumeStats")) == 1  # not at every question
        await harness.machine.clock.run_for(60)
        harness.driver.failures = {"NodeGetVolumeStats": ("Internal", "no")}
        await harness.volumes.measure()
        assert pod_volumes(harness.machine.env, wanted, uid, 0.0, harness.volumes.of)[1] == []

    run_with_driver(harness, scenario)


def test_a_driver_that_cannot_say_how_full_a_volume_is_is_not_asked(tmp_path: Path) -> None:
    harness = PluginHarness(tmp_path)

    async def scenario() -> None:
        wanted = harness.claim()
        await harness.volumes.mount(wanted)
        await harness.volumes.measure()
        assert pod_volumes(
            harness.machine.env, wanted, wanted["metadata"]["uid"], 0.0, harness.volumes.of
        ) == ([], [])
        assert harness.driver.requested("NodeGetVolumeStats") == []

    run_with_driver(harness, scenario)


def test_a_driver_gets_tokens_of_the_pods_account(tmp_path: Path) -> None:
    harness = PluginHarness(tmp_path)

    async def scenario() -> None:
        wanted = harness.claim()
        requested: list[Object] = []

        async def create_subresource(
            _resource: Any, namespace: str, name: str, _sub: str, body: Object
        ) -> Object:
            requested.append({"account": f"{namespace}/{name}", **body["spec"]})
            audience = "".join(body["spec"]["audiences"])
            status = {
                "token": f"token for {audience}",
                "expirationTimestamp": "2030-01-01T00:00:00Z",
            }
            return {"spec": {"expirationSeconds": 3600}, "status": status}

        harness.machine.env.client.create_subresource = create_subresource  # type: ignore[method-assign, assignment]
        harness.object("csidrivers", NAME)["spec"].update(
            tokenRequests=[{"audience": "vault", "expirationSeconds": 3600}, {"audience": ""}],
            requiresRepublish=True,
        )
        await harness.volumes.mount(wanted)
        request = next(
            request for method, request in harness.driver.calls if method == "NodePublishVolume"
        )
        end = "2030-01-01T00:00:00Z"
        assert json.loads(
            request["volume_context"]["csi.storage.k8s.io/serviceAccount.tokens"]
        ) == {
            "": {"token": "token for ", "expirationTimestamp": end},
            "vault": {"token": "token for vault", "expirationTimestamp": end},
        }
        assert [(one["audiences"], one["boundObjectRef"]["kind"]) for one in requested] == [
            (["vault"], "Pod"),
            ([], "Pod"),
        ]
        await harness.volumes.mount(wanted)
        assert len(harness.driver.requested("NodePublishVolume")) == 2  # it wants to be asked again

    run_with_driver(harness, scenario)


def test_a_raw_block_volume_is_published_as_a_device(tmp_path: Path) -> None:
    harness = PluginHarness(tmp_path)

    async def scenario() -> None:
        wanted = harness.claim()
        harness.object("persistentvolumes", "pv1")["spec"]["volumeMode"] = "Block"
        harness.object("persistentvolumeclaims", "data", "ns")["spec"]["volumeMode"] = "Block"
        container = wanted["spec"]["containers"][0]
        del container["volumeMounts"]
        container["volumeDevices"] = [{"name": "v", "devicePath": "/dev/xvda"}]
        uid = wanted["metadata"]["uid"]
        await harness.volumes.mount(wanted)
        top = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices"
        by_method = dict(harness.driver.calls)
        assert by_method["NodeStageVolume"]["staging_target_path"] == f"{top}/staging/pv1"
        assert by_method["NodeStageVolume"]["volume_capability"] == {
            "block": {},
            "access_mode": {"mode": 1},
        }
        assert by_method["NodePublishVolume"]["target_path"] == f"{top}/publish/pv1/{uid}"
        assert by_method["NodePublishVolume"]["staging_target_path"] == f"{top}/staging/pv1"
        link = f"/var/lib/kubelet/pods/{uid}/volumeDevices/kubernetes.io~csi/pv1"
        assert harness.volumes.of(uid)["v"].path == link
        assert harness.files.readlink(link) == f"{top}/publish/pv1/{uid}"
        harness.driver.calls.clear()
        await harness.volumes.unmount(uid)
        assert harness.driver.requested("NodeUnpublishVolume", "NodeUnstageVolume") == [
            "NodeUnpublishVolume",
            "NodeUnstageVolume",
        ]
        assert (
            harness.files.listdir(f"{top}/staging") == harness.files.listdir(f"{top}/publish") == []
        )

    run_with_driver(harness, scenario)


def test_a_volume_that_has_grown(tmp_path: Path) -> None:
    harness = PluginHarness(tmp_path)

    async def scenario() -> None:
        wanted = harness.claim()
        await harness.volumes.mount(wanted)
        assert "NodeExpandVolume" not in harness.driver.requested()
        harness.claim(size="2Gi")
        await harness.volumes.mount(wanted)
        request = next(
            request for method, request in harness.driver.calls if method == "NodeExpandVolume"
        )
        assert request["capacity_range"] == {"required_bytes": 2 << 30}
        assert harness.object("persistentvolumeclaims", "data", "ns")["status"]["capacity"] == {
            "storage": "2Gi"
        }
        assert [reason for reason, _ in harness.machine.events.recorded] == [
            "FileSystemResizeSuccessful"
        ] * 2
        await harness.volumes.mount(wanted)
        assert len(harness.driver.requested("NodeExpandVolume")) == 1

    run_with_driver(harness, scenario)


def test_what_pods_put_into_the_registry_is_looked_at_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod with a hostPath there can make any number of files, directories of any depth, and links
    to anywhere.
    """
    harness = PluginHarness(tmp_path / "node")
    registry = tmp_path / "node/var/lib/kubelet/plugins_registry"
    registry.mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    with socket.socket(socket.AF_UNIX) as outside, socket.socket(socket.AF_UNIX) as inside:
        monkeypatch.chdir(tmp_path / "outside")  # a whole path is too long for an address
        outside.bind("reg.sock")
        monkeypatch.chdir(registry)
        inside.bind("own.sock")
        (registry / "folder").symlink_to(tmp_path / "outside")
        (registry / "link.sock").symlink_to(tmp_path / "outside/reg.sock")
        (registry / "round").symlink_to(".")
        assert [path for path, _ in harness.manager._sockets()] == [
            "/var/lib/kubelet/plugins_registry/own.sock"
        ]
    here = os.open(registry, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    for number in range(3000):
        (registry / f"f{number}").touch()
    begin = time.process_time()
    harness.manager._sockets()
    assert time.process_time() - begin < 2
    harness.files.remove("/var", recursive=True)
    harness.files.close()


def test_an_endpoint_is_one_of_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin may name any path as its endpoint; it is looked up in the node's folder."""
    harness = PluginHarness(tmp_path / "node")
    with socket.socket(socket.AF_UNIX) as outside:
        monkeypatch.chdir(tmp_path)
        outside.bind("outside.sock")
        outside.listen()
        outside.setblocking(False)
        harness.files.symlink(str(tmp_path / "outside.sock"), "/link.sock")
        for path in (
            str(tmp_path / "outside.sock"),
            "/link.sock",
            "/../../../../" + str(tmp_path / "outside.sock"),
        ):
            with pytest.raises(RpcError, match="no such file or directory"):
                asyncio.run(PluginEndpoint(harness.files, path).call("/csi.v1.Node/NodeGetInfo"))
        with pytest.raises(BlockingIOError):
            outside.accept()
    harness.files.close()
