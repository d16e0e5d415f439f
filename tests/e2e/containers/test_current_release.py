"""Real containers on a cluster of a current release."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster, Kubectl, kubectl_binaries, running_cluster
from tests.e2e.nodes.conftest import Space

from transom.runtime.native import cgroups

from .conftest import apply, ended, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
NODES = """
apiVersion: transom.dev/v1
kind: Cluster
engine: oci
nodes:
- name: linux-1
  role: control-plane
  taints: []
  featureGates: {ContainerStopSignals: true}
"""


@pytest.fixture(scope="module")
def current_cluster(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = tmp_path_factory.mktemp("current")
    (made / "cluster.yaml").write_text(NODES)
    gates = "--feature-gates=ContainerStopSignals=true"
    settings = ("--release", "1.36", gates, "--config", str(made / "cluster.yaml"))
    with running_cluster(made, *settings) as running:
        yield running


@pytest.fixture
def space(current_cluster: Cluster) -> Iterator[Space]:
    kubectl = Kubectl(kubectl_binaries()[0], current_cluster)
    name = f"t-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    yield Space(kubectl, name)
    kubectl("delete", "namespace", name, "--wait=false")


def test_image_volumes(space: Space) -> None:
    """The files of another image, read-only, also for a container with its own users."""
    script = "ls /image/bin/busybox /part/busybox; touch /image/new; touch /part/new; sleep 600"
    mounts = [
        {"name": "v", "mountPath": "/image"},
        {"name": "v", "mountPath": "/part", "subPath": "bin"},
    ]
    volumes = [{"name": "v", "image": {"reference": "busybox"}}]
    good = pod(
        "p", "linux", "sh", "-c", script, container={"volumeMounts": mounts}, volumes=volumes
    )
    wrong = [{**mounts[1], "subPath": "nowhere"}]
    bad = pod("q", "linux", "true", container={"volumeMounts": wrong}, volumes=volumes)
    apply(space, good, bad)
    space.ready("pod/p")
    space.until(lambda _: "/part/new" in space("logs", "p"), "pod", "p")
    lines = space("logs", "p").splitlines()
    assert lines[:2] == ["/image/bin/busybox", "/part/busybox"]
    assert sum("Read-only file system" in line for line in lines) == 2
    space.until(lambda q: "openat nowhere" in str(q["status"].get("containerStatuses")), "pod", "q")


def test_a_running_container_is_resized(space: Space) -> None:
    """The limits of its cgroup change, the process stays."""
    if cgroups.cgroup_hierarchies().version == 0:
        pytest.skip("no cgroups on this machine")
    resources = {"limits": {"cpu": "200m", "memory": "64Mi"}}
    script = (
        "cat /sys/fs/cgroup/memory.max 2>/dev/null || "
        "cat /sys/fs/cgroup/memory/memory.limit_in_bytes"
    )
    apply(space, pod("p", "linux", "sleep", "600", container={"resources": resources}))
    space.ready("pod/p")
    assert space("exec", "p", "--", "sh", "-c", script).strip() == str(64 << 20)
    before = space.object("pod", "p")["status"]["containerStatuses"][0]["containerID"]
    wanted = {"limits": {"cpu": "300m", "memory": "96Mi"}}
    wanted["requests"] = wanted["limits"]
    patch = json.dumps({"spec": {"containers": [{"name": "c", "resources": wanted}]}})
    space("patch", "pod", "p", "--subresource", "resize", "--patch", patch)
    space.until(lambda p: _limits(p) == wanted["limits"], "pod", "p")
    assert space("exec", "p", "--", "sh", "-c", script).strip() == str(96 << 20)
    after = space.object("pod", "p")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before, 0)


def _limits(found: Any) -> Any:
    return found["status"]["containerStatuses"][0].get("resources", {}).get("limits")


def test_a_container_gets_its_own_stop_signal(space: Space) -> None:
    script = "trap 'exit 3' USR1; trap 'exit 4' TERM; while true; do sleep 0.1; done"
    requested = pod(
        "p",
        "linux",
        "sh",
        "-c",
        script,
        container={"lifecycle": {"stopSignal": "SIGUSR1"}},
        os={"name": "linux"},
        terminationGracePeriodSeconds=30,
    )
    requested["metadata"]["finalizers"] = ["example.com/keep"]
    # The OpenAPI document lacks fields of alpha gates.
    space("create", "--validate=false", "--filename", "-", stdin=json.dumps(requested))
    space.ready("pod/p")
    assert space.object("pod", "p")["status"]["containerStatuses"][0]["stopSignal"] == "SIGUSR1"
    space("delete", "pod", "p", "--wait=false")
    assert ended(space.until(ended, "pod", "p"))["exitCode"] == 3
    space("patch", "pod", "p", "--type=merge", "--patch", '{"metadata": {"finalizers": null}}')


def test_a_pod_without_the_users_of_the_node(space: Space) -> None:
    """Root in the container is another user of the machine; its volumes belong to root inside."""
    script = "cat /proc/self/uid_map; stat -c %u /data; touch /data/new && stat -c %u /data/new"
    volumes = [{"name": "data", "emptyDir": {}}]
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    command = ("sh", "-c", f"{script}; sleep 600")
    apply(space, pod("p", "linux", *command, container=mounts, volumes=volumes, hostUsers=False))
    space.ready("pod/p")
    space.until(lambda _: space("logs", "p").count("\n") >= 3, "pod", "p")
    inside, outside, *_ = map(int, space("logs", "p").splitlines()[0].split())
    if outside == 0:
        pytest.skip("this kernel cannot map the users of containers")
    assert inside == 0 and outside >= 65536
    assert space("logs", "p").splitlines()[1:] == ["0", "0"]
