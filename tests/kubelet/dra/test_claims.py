"""DRA drivers at real Unix sockets: they register, prepare the devices of claims, and release them."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.http.fakegrpc import Server
from tests.kubelet.plugins.driver import _short
from tests.kubelet.plugins.test_real_sockets import PluginHarness

from transom.kubelet.dra.claims import ClaimCache
from transom.kubelet.dra.drivers import DRA
from transom.kubelet.dra.manager import DynamicResourceManager
from transom.kubelet.failures import ClaimFailure
from transom.kubelet.plugins.endpoint import TABLE
from transom.kubelet.plugins.manager import PluginManager
from transom.machinery.objects import Object

NAME = "gpu.example.com"
SOCKET = "/var/lib/kubelet/plugins/gpu/dra.sock"
STATE = "/var/lib/kubelet/dra_manager_state"


class DraDriverProgram:
    def __init__(self, services: list[str]) -> None:
        self.info: dict[str, Any] = {
            "type": DRA,
            "name": NAME,
            "endpoint": SOCKET,
            "supported_versions": services,
        }
        self.statuses: list[dict[str, Any]] = []
        self.calls: list[tuple[str, list[str]]] = []
        self.error = ""
        self.skip = False

    async def answer(self, path: str, raw: bytes) -> bytes:
        method = path.rpartition("/")[2]
        request = TABLE.decode(f"{method}Request", raw)
        return TABLE.encode(f"{method}Response", self.handle(path, method, request))

    def handle(self, path: str, method: str, request: dict[str, Any]) -> dict[str, Any]:
        if method == "GetInfo":
            return self.info
        if method == "NotifyRegistrationStatus":
            self.statuses.append(request)
            return {}
        claims = request["claims"]
        self.calls.append((path, [f"{c['namespace']}/{c['name']}/{c['uid']}" for c in claims]))
        if self.skip:
            return {}
        result: dict[str, Any] = {"error": self.error} if self.error else {}
        if method == "NodePrepareResources" and not self.error:
            result = {
                "devices": [
                    {
                        "request_names": [request],
                        "pool_name": "node-1",
                        "device_name": device,
                        "cdi_device_ids": [f"{NAME}/gpu={device}"],
                    }
                    for request, device in (("big", "gpu-0"), ("small", "gpu-1"))
                ]
            }
        return {"claims": [{"key": claim["uid"], "value": result} for claim in claims]}


class DraHarness(PluginHarness):
    """A node with one pod that uses one claim of the driver."""

    def __init__(self, folder: Path, services: list[str]) -> None:
        super().__init__(folder)
        self.program = DraDriverProgram(services)
        self.active: list[Object] = []
        self.observed: list[tuple[Any, ...]] = []
        self.deleted: list[str] = []

        async def delete_collection(_resource: Any, *, field_selector: str, **_: Any) -> None:
            self.deleted.append(field_selector)

        self.machine.env.client.delete_collection = delete_collection  # type: ignore[method-assign]
        self.claims = self.new_claims()
        self.manager = PluginManager(self.machine.env, {DRA: self.claims.drivers})
        self.put_claim()

    def new_claims(self) -> DynamicResourceManager:
        return DynamicResourceManager(
            self.machine.env,
            lambda: self.active,
            lambda: True,
            lambda *row: self.observed.append(row[:2]),
            lambda *row: self.observed.append(row[:3]),
        )

    def put_claim(self, uid: str = "c1", **status: Any) -> None:
        allocated = {
            "allocation": {
                "devices": {
                    "results": [
                        {"request": "big", "driver": NAME, "pool": "node-1", "device": "gpu-0"},
                        {"request": "small", "driver": NAME, "pool": "node-1", "device": "gpu-1"},
                    ]
                }
            },
            "reservedFor": [{"resource": "pods", "name": "web", "uid": "u1"}],
        }
        self.machine.api.put(
            "resourceclaims",
            "web-gpu",
            {
                "metadata": {
                    "uid": uid,
                    "ownerReferences": [{"uid": "u1", "controller": True}],
                },
                "spec": {},
                "status": {**allocated, **status},
            },
        )

    def pod(self, uid: str = "u1") -> Object:
        return {
            "metadata": {"name": "web", "namespace": "ns", "uid": uid},
            "spec": {
                "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "t"}],
                "containers": [
                    {"name": "all", "resources": {"claims": [{"name": "gpus"}]}},
                    {
                        "name": "one",
                        "resources": {"claims": [{"name": "gpus", "request": "small"}]},
                    },
                    {"name": "none"},
                ],
            },
            "status": {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": "web-gpu"}]},
        }

    def methods(self) -> list[str]:
        return [path.rpartition("/")[2] for path, _ in self.program.calls]


def run_with_driver(harness: DraHarness, scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        kubelet = harness.driver.real("/var/lib/kubelet")
        (kubelet / "plugins/gpu").mkdir(parents=True)
        (kubelet / "plugins_registry").mkdir(parents=True)
        server = Server(harness.program.answer)
        registration = _short(kubelet / "plugins_registry/gpu-reg.sock")
        async with (
            asyncio.timeout(60),
            server.listening(_short(kubelet / "plugins/gpu/dra.sock")),
            server.listening(registration),
        ):
            tasks = [
                asyncio.create_task(harness.manager.run()),
                asyncio.create_task(harness.claims.run()),
            ]
            await harness.until(lambda: bool(harness.program.statuses))
            await scenario()
            for task in tasks:
                task.cancel()

    try:
        asyncio.run(main())
    finally:
        harness.files.close()


@pytest.mark.parametrize(
    ("services", "called"),
    [
        (["v1.DRAPlugin", "v1beta1.DRAPlugin"], "v1"),
        (["v1beta1.DRAPlugin"], "v1beta1"),
        (["v1alpha4.Node", "v1beta1.DRAPlugin", "v1.DRAPlugin"], "v1beta1"),
    ],
)
def test_devices_are_prepared_once_and_released_at_the_end(
    tmp_path: Path, services: list[str], called: str
) -> None:
    harness = DraHarness(tmp_path, services)

    async def scenario() -> None:
        assert harness.program.statuses == [{"plugin_registered": True}]
        pod = harness.pod()
        await harness.claims.prepare(pod)
        path = f"/k8s.io.kubelet.pkg.apis.dra.{called}.DRAPlugin"
        assert harness.program.calls == [(f"{path}/NodePrepareResources", ["ns/web-gpu/c1"])]
        both = (f"{NAME}/gpu=gpu-0", f"{NAME}/gpu=gpu-1")
        devices = [harness.claims.cdi_devices(pod, c) for c in pod["spec"]["containers"]]
        assert devices == [both, both[1:], ()]
        listed = [harness.claims.claimed_devices(pod, c) for c in pod["spec"]["containers"]]
        assert [len(found) for found in listed] == [1, 1, 0]
        assert (listed[1][0]["claim_namespace"], listed[1][0]["claim_name"]) == ("ns", "web-gpu")
        [device] = listed[1][0]["claim_resources"]
        assert (device["driver_name"], device["cdi_devices"]) == (NAME, [{"name": both[1]}])
        health = [harness.claims.resource_health(pod, c) for c in pod["spec"]["containers"][:2]]
        unknown = [{"resourceID": one, "health": "Unknown"} for one in both]
        assert health == [
            [{"name": "claim:gpus", "resources": unknown}],
            [{"name": "claim:gpus/small", "resources": unknown[1:]}],
        ]
        await harness.claims.prepare(pod)  # a new sandbox of the same pod
        assert len(harness.program.calls) == 1
        await harness.claims.unprepare("u1")
        assert harness.program.calls[1:] == [(f"{path}/NodeUnprepareResources", ["ns/web-gpu/c1"])]
        await harness.claims.unprepare("u1")
        assert len(harness.program.calls) == 2
        assert ("PrepareResources", False) in harness.observed
        assert (NAME, f"{path}/NodeUnprepareResources", "OK") in harness.observed

    run_with_driver(harness, scenario)


def test_a_claim_of_two_pods_is_released_after_the_second(tmp_path: Path) -> None:
    harness = DraHarness(tmp_path, ["v1.DRAPlugin"])
    harness.put_claim(
        reservedFor=[{"resource": "pods", "name": "web", "uid": uid} for uid in ("u1", "u2")]
    )

    async def scenario() -> None:
        for uid in ("u1", "u2"):
            pod = harness.pod(uid)
            pod["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": "web-gpu"}]
            await harness.claims.prepare(pod)
        assert harness.methods() == ["NodePrepareResources"]
        await harness.claims.unprepare("u1")
        assert harness.methods() == ["NodePrepareResources"]
        await harness.claims.unprepare("u2")
        assert harness.methods() == ["NodePrepareResources", "NodeUnprepareResources"]

    run_with_driver(harness, scenario)


def test_a_pod_that_ended_without_the_kubelet_is_released(tmp_path: Path) -> None:
    """The file of an earlier kubelet names its claims and their devices."""
    harness = DraHarness(tmp_path, ["v1.DRAPlugin"])

    async def scenario() -> None:
        pod = harness.pod()
        await harness.claims.prepare(pod)
        saved = json.loads(harness.files.read(STATE))
        assert saved["Checksum"] == zlib.crc32(saved["Data"].encode())
        (row,) = json.loads(saved["Data"])["ClaimInfoStateList"]
        assert row["PodUIDs"] == {"u1": {}} and row["ClaimUID"] == "c1"
        assert [d["CDIDeviceIDs"] for d in row["DriverState"][NAME]["Devices"]] == [
            [f"{NAME}/gpu=gpu-0"],
            [f"{NAME}/gpu=gpu-1"],
        ]
        fresh = harness.new_claims()
        assert fresh.cdi_devices(pod, pod["spec"]["containers"][1]) == (f"{NAME}/gpu=gpu-1",)
        await fresh.drivers.register(NAME, SOCKET, ["v1.DRAPlugin"])
        task = asyncio.create_task(fresh.run())
        await harness.until(lambda: "NodeUnprepareResources" in harness.methods())
        await harness.until(lambda: json.loads(harness.files.read(STATE))["Data"].endswith("[]}"))
        task.cancel()

    run_with_driver(harness, scenario)


def test_a_damaged_state_file_is_refused(tmp_path: Path) -> None:
    harness = DraHarness(tmp_path, ["v1.DRAPlugin"])
    harness.files.mkdir("/var/lib/kubelet")
    for text in (b"", b"{", b"[]", b'{"Data":"{}","Checksum":1}', b'{"Data":"5","Checksum":0}'):
        harness.files.write(STATE, text)
        with pytest.raises(ValueError, match="checkpoint is corrupted"):
            ClaimCache(harness.files, STATE)
    harness.files.close()


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        ({"reservedFor": []}, "", "pod web (u1) is not allowed to use ResourceClaim web-gpu (c1)"),
        ({"allocation": None}, "", "ResourceClaim web-gpu: not allocated"),
        (
            {"allocation": {"devices": {"results": [{"driver": "other.example.com"}]}}},
            "",
            "DRA driver other.example.com is not registered",
        ),
        ({}, "no power", "NodePrepareResources failed for ResourceClaim web-gpu: no power"),
        ({}, "skip", "NodePrepareResources skipped 1 ResourceClaims"),
    ],
)
def test_why_devices_cannot_be_prepared(tmp_path: Path, status: Any, error: str, text: str) -> None:
    harness = DraHarness(tmp_path, ["v1.DRAPlugin"])
    harness.put_claim(**status)
    harness.program.skip, harness.program.error = error == "skip", error

    async def scenario() -> None:
        with pytest.raises(ClaimFailure) as caught:
            await harness.claims.prepare(harness.pod())
        assert str(caught.value) == f"prepare dynamic resources: {text}"
        assert ("PrepareResources", True) in harness.observed

    run_with_driver(harness, scenario)


def test_a_claim_must_be_that_of_the_pod(tmp_path: Path) -> None:
    harness = DraHarness(tmp_path, ["v1.DRAPlugin"])
    harness.put_claim(reservedFor=[{"resource": "pods", "name": "web", "uid": "u2"}])

    async def scenario() -> None:
        with pytest.raises(ClaimFailure, match=r"was not created for Pod ns/web \(Pod is not own"):
            await harness.claims.prepare(harness.pod("u2"))
        pod = harness.pod()
        pod["status"] = {}
        with pytest.raises(ClaimFailure, match='pod "ns/web": ResourceClaim not created yet'):
            await harness.claims.prepare(pod)

    run_with_driver(harness, scenario)


def test_an_old_claim_with_the_same_name_is_in_the_way(tmp_path: Path) -> None:
    harness = DraHarness(tmp_path, ["v1.DRAPlugin"])

    async def scenario() -> None:
        await harness.claims.prepare(harness.pod())
        harness.put_claim(uid="c2")
        with pytest.raises(ClaimFailure, match="old ResourceClaim with same name web-gpu and diff"):
            await harness.claims.prepare(harness.pod())

    run_with_driver(harness, scenario)


@pytest.mark.parametrize(
    ("services", "text"),
    [
        ([], "empty list of supported gRPC services (aka supported versions)"),
        (
            ["v1alpha4.Node"],
            'none of services supported by the plugin (["v1alpha4.Node"]) are supported by the '
            'kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])',
        ),
    ],
)
def test_a_driver_without_a_known_service_is_refused(
    tmp_path: Path, services: list[str], text: str
) -> None:
    harness = DraHarness(tmp_path, services)

    async def scenario() -> None:
        assert harness.program.statuses[0] == {
            "error": "RegisterPlugin error -- plugin validation failed with err: invalid supported "
            f"gRPC versions of DRA driver plugin {NAME} at endpoint {SOCKET}: {text}"
        }
        with pytest.raises(ClaimFailure, match=f"DRA driver {NAME} is not registered"):
            await harness.claims.prepare(harness.pod())

    run_with_driver(harness, scenario)


def test_slices_are_deleted_at_the_start_and_when_a_driver_stays_away(tmp_path: Path) -> None:
    harness = DraHarness(tmp_path, ["v1.DRAPlugin"])
    every = "spec.nodeName=node-1"

    async def scenario() -> None:
        await harness.until(lambda: harness.deleted == [every])
        drivers = harness.claims.drivers
        await drivers.deregister(NAME, SOCKET)
        await harness.machine.clock.run_for(29)
        await drivers.register(NAME, SOCKET, ["v1.DRAPlugin"])  # an update
        await harness.machine.clock.run_for(60)
        assert harness.deleted == [every]
        await drivers.deregister(NAME, SOCKET)
        await harness.machine.clock.run_for(30)
        await harness.until(lambda: harness.deleted == [every, f"{every},spec.driver={NAME}"])

    run_with_driver(harness, scenario)
