"""Drivers of dynamic resource allocation: the example driver in a simulated cluster, and one at real
Unix sockets for real containers.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster, Kubectl, kubectl_binaries, running_cluster
from tests.e2e.nodes.conftest import Space
from tests.http.fakegrpc import Server
from tests.kubelet.plugins.driver import _short

from transom.kubelet.plugins.endpoint import TABLE
from transom.machines.realfiles import RealFiles
from transom.node.runtimes import missing_requirements
from transom.runtime.images.builtin import BUSYBOX

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

HERE = Path(__file__).parent
NAME = "gpu.example.com"
Object = dict[str, Any]
NODES = """
apiVersion: transom.dev/v1
kind: Cluster
release: "1.36"
engine: ENGINE
nodes:
- {name: linux-1, role: control-plane, taints: []}
"""


def _space(cluster: Cluster) -> Iterator[Space]:
    kubectl = Kubectl(kubectl_binaries()[0], cluster)
    name = f"t-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    yield Space(kubectl, name)
    kubectl("delete", "namespace", name, "--wait=false")


def _cluster(folder: Path, engine: str) -> Iterator[Cluster]:
    if not kubectl_binaries():
        pytest.skip("no kubectl on this machine")
    (folder / "cluster.yaml").write_text(NODES.replace("ENGINE", engine))
    with running_cluster(folder, "--config", str(folder / "cluster.yaml")) as running:
        yield running


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    for cluster in _cluster(tmp_path_factory.mktemp("sim"), "sim"):
        driver = (HERE / "driver.yaml").read_text()
        Kubectl(kubectl_binaries()[0], cluster)("apply", "-f", "-", stdin=driver)
        yield cluster


@pytest.fixture
def ns(simulated: Cluster) -> Iterator[Space]:
    yield from _space(simulated)


def template(*requests: str) -> Object:
    devices = {
        "requests": [{"name": name, "exactly": {"deviceClassName": NAME}} for name in requests]
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus"},
        "spec": {"spec": {"devices": devices}},
    }


def pod(
    name: str, *requests: str, image: str = "ubuntu:22.04", script: str = "sleep 3600"
) -> Object:
    """A container for each request; "" gets all devices of the claim."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": f"c{number}",
                    "image": image,
                    "command": ["sh", "-c", script],
                    "resources": {
                        "claims": [{"name": "g", **({"request": request} if request else {})}]
                    },
                }
                for number, request in enumerate(requests)
            ],
            "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "gpus"}],
        },
    }


def running(ns: Space, name: str) -> None:
    ns.until(lambda found: found["status"]["phase"] == "Running", "pod", name)


def test_containers_get_the_devices_of_their_requests(ns: Space) -> None:
    ns.apply(json.dumps(template("a", "b")))
    ns.apply(json.dumps(pod("web", "", "a", "b")))
    running(ns, "web")
    given = [
        {
            line.partition("=")[2]
            for line in ns("exec", "web", "-c", f"c{number}", "--", "env").splitlines()
            if line.startswith("GPU_DEVICE_") and line.count("_") == 2
        }
        for number in range(3)
    ]
    assert given[0] == given[1] | given[2] and len(given[1]) == len(given[2]) == 1
    status = json.loads(ns("get", "pod", "web", "-o", "json"))["status"]
    assert status["resourceClaimStatuses"][0]["name"] == "g"  # the kubelet keeps it
    ns("delete", "pod", "web")
    ns.until(lambda found: not found["items"], "resourceclaims")


def test_a_completed_pod_releases_its_devices(ns: Space) -> None:
    ns.apply(json.dumps(template("a")))
    ns.apply(json.dumps(pod("job", "a", script="true")))
    ns.until(lambda found: found["status"]["phase"] == "Succeeded", "pod", "job")
    log = ns.kubectl("-n", "dra-example-driver", "logs", "ds/dra-example-driver-kubeletplugin")
    assert log.stdout.splitlines()[-1] == "NodeUnprepareResources is called: number of claims: 1"


def test_a_pod_whose_driver_is_away_waits(ns: Space) -> None:
    """Its class has devices, which a client without a driver has published."""
    slice_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{ns.name}-slice"},
        "spec": {
            "driver": "nic.example.com",
            "nodeName": "linux-1",
            "pool": {"name": ns.name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "nic-0"}],
        },
    }
    ns.apply(json.dumps(slice_))
    expression = "device.driver == 'nic.example.com'"
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "nic.example.com"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
    ns.apply(json.dumps(device_class))
    claims = json.dumps(template("a")).replace(NAME, "nic.example.com")
    ns.apply(claims)
    ns.apply(json.dumps(pod("web", "a")))

    def reported(found: Any) -> bool:
        return any(
            event["reason"] == "FailedPrepareDynamicResources"
            and event["message"]
            == "Failed to prepare dynamic resources: prepare dynamic "
            "resources: DRA driver nic.example.com is not registered"
            for event in found["items"]
        )

    ns.until(reported, "events")
    ns.kubectl("delete", "resourceslice", f"{ns.name}-slice")


# ---- real containers ----


class RealDriver:
    """Serves both sockets in a node's directory, and writes CDI specifications there."""

    def __init__(self, node: Path, edits: Object) -> None:
        self.node = node
        self.edits = edits
        self.calls: list[str] = []

    async def answer(self, path: str, raw: bytes) -> bytes:
        method = path.rpartition("/")[2]
        request = TABLE.decode(f"{method}Request", raw)
        return TABLE.encode(f"{method}Response", self.handle(method, request))

    def handle(self, method: str, request: Object) -> Object:
        self.calls.append(method)
        if method == "GetInfo":
            return {
                "type": "DRAPlugin",
                "name": NAME,
                "endpoint": f"/var/lib/kubelet/plugins/{NAME}/dra.sock",
                "supported_versions": ["v1.DRAPlugin"],
            }
        if method == "NotifyRegistrationStatus":
            return {}
        if method == "NodeUnprepareResources":
            return {"claims": [{"key": claim["uid"], "value": {}} for claim in request["claims"]]}
        spec = {
            "cdiVersion": "0.6.0",
            "kind": "example.com/gpu",
            "devices": [{"name": "one", "containerEdits": self.edits}],
        }
        files = RealFiles(self.node)  # /var/run is a link, which is followed in the node
        files.mkdir("/var/run/cdi")
        files.write("/var/run/cdi/gpu.json", json.dumps(spec).encode())
        files.close()
        device = {
            "pool_name": "p",
            "device_name": "gpu-0",
            "cdi_device_ids": ["example.com/gpu=one"],
        }
        return {
            "claims": [
                {"key": claim["uid"], "value": {"devices": [device]}} for claim in request["claims"]
            ]
        }


@contextmanager
def serving(driver: RealDriver) -> Iterator[None]:
    """In a thread, as a process of the node would."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        kubelet = driver.node / "var/lib/kubelet"
        own = kubelet / f"plugins/{NAME}/dra.sock"
        own.parent.mkdir(parents=True, exist_ok=True)
        server = Server(driver.answer)
        registration = _short(kubelet / "plugins_registry" / f"{NAME}-reg.sock")
        async with server.listening(_short(own)), server.listening(registration):
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    assert ready.wait(30)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Cluster]]:
    why = missing_requirements()["linux"]
    if why or not BUSYBOX.exists():
        pytest.skip(why or "the package busybox-static is not installed")
    folder = tmp_path_factory.mktemp("real")
    for cluster in _cluster(folder, "oci"):
        yield folder / "data/transom" / cluster.name / "machines/linux-1", cluster


@pytest.fixture
def real_ns(real: tuple[Path, Cluster]) -> Iterator[Space]:
    yield from _space(real[1])


def publish(ns: Space) -> None:
    documents = (HERE / "driver.yaml").read_text().split("---\n")
    ns.apply(next(text for text in documents if "kind: DeviceClass" in text))
    ns.apply(
        json.dumps(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": "gpus"},
                "spec": {
                    "driver": NAME,
                    "nodeName": "linux-1",
                    "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "gpu-0"}],
                },
            }
        )
    )
    ns.apply(json.dumps(template("a")))


def test_real_containers_get_what_a_driver_describes(
    real: tuple[Path, Cluster], real_ns: Space
) -> None:
    node, _ = real
    (node / "opt/gpu").mkdir(parents=True)
    (node / "opt/gpu/lib.txt").write_text("library of the GPU\n")
    driver = RealDriver(
        node,
        {
            "env": ["GPU=gpu-0"],
            "mounts": [
                {"hostPath": "/opt/gpu", "containerPath": "/usr/lib/gpu", "options": ["ro"]}
            ],
        },
    )
    with serving(driver):
        publish(real_ns)
        real_ns.apply(json.dumps(pod("web", "a", image="busybox")))
        running(real_ns, "web")
        script = "echo $GPU; cat /usr/lib/gpu/lib.txt; touch /usr/lib/gpu/x || echo read-only"
        shown = real_ns("exec", "web", "--", "sh", "-c", script)
        assert shown.split("\n")[:2] == ["gpu-0", "library of the GPU"] and "read-only" in shown
        real_ns("delete", "pod", "web", "--grace-period=1")
        assert driver.calls[-1] == "NodeUnprepareResources"


def test_a_specification_does_not_open_devices_of_this_machine(
    real: tuple[Path, Cluster], real_ns: Space
) -> None:
    """A pod with a hostPath can write specifications, too."""
    node, _ = real
    disk = {"path": "/dev/disk", "hostPath": "/dev/vda", "type": "b", "major": 254, "minor": 0}
    for edits, text in (
        ({"deviceNodes": [disk]}, "/dev/vda"),
        (
            {"hooks": [{"hookName": "createRuntime", "path": "/bin/sh"}]},
            "hooks of CDI devices are not supported on this node",
        ),
    ):
        driver = RealDriver(node, edits)
        with serving(driver):
            publish(real_ns)
            real_ns.apply(json.dumps(pod("web", "a", image="busybox")))

            def refused(found: Any, text: str = text) -> bool:
                waiting = [
                    (entry["state"].get("waiting") or {}).get("message") or ""
                    for entry in found["status"].get("containerStatuses") or ()
                ]
                return any(text in message for message in waiting)

            real_ns.until(refused, "pod", "web")
            real_ns("delete", "pod", "web")
