"""A cluster of `transom.testing`, used as a test would use it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from transom.machinery.errors import ApiError
from transom.testing import AsyncCluster, Cluster, ClusterNotStarted, WaitTimeout
from transom.testing.async_cluster import read_manifest
from transom.testing.resource_names import UnknownResource

pytestmark = pytest.mark.e2e

DEPLOYMENT = """
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web}
  spec:
    selector: {matchLabels: {app: web}}
    template:
      metadata: {labels: {app: web}}
      spec:
        nodeSelector: {kubernetes.io/os: windows}
        containers:
        - name: iis
          image: mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue}
"""
CRASHING = """
apiVersion: v1
kind: Pod
metadata: {name: crashing}
spec:
  nodeSelector: {kubernetes.io/os: linux}
  restartPolicy: Never
  containers:
  - {name: c, image: busybox, command: [sh, -c, "echo the disk is full; exit 3"]}
"""
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.example.com}
spec:
  group: example.com
  names: {kind: Lamp, plural: lamps, singular: lamp, shortNames: [lm]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(linux=1, windows=1) as cluster:
        yield cluster


def test_apply_wait_and_get(running: Cluster) -> None:
    namespace = running.create_namespace()
    running.apply(DEPLOYMENT, namespace)
    available = running.wait("deployment/web", "condition=Available", namespace)
    assert available is not None and available["status"]["availableReplicas"] == 1
    [pod] = running.list("po", namespace, label_selector="app=web")
    assert pod["spec"]["nodeName"] == "windows-1"
    assert running.get("cm/settings", namespace)["data"] == {"colour": "blue"}
    running.delete("deploy/web", namespace)
    assert running.wait(f"pod/{pod['metadata']['name']}", "delete", namespace) is None


def test_what_explains_a_failure(running: Cluster) -> None:
    namespace = running.create_namespace("why-")
    assert namespace.startswith("why-")
    running.apply(CRASHING, namespace)
    running.wait("pod/crashing", "jsonpath={.status.phase}=Failed", namespace)
    assert running.logs("crashing", namespace) == "the disk is full\n"
    text = running.describe_namespace(namespace)
    assert "pod/crashing: Failed on linux-1" in text
    assert "event Normal Started pod/crashing: Started container c" in text
    assert "  the disk is full" in text
    running.delete_namespace(namespace)
    running.wait(f"namespace/{namespace}", "delete")
    running.delete_namespace(namespace)  # twice is not an error


def test_waiting_in_vain_shows_the_last_state(running: Cluster) -> None:
    namespace = running.create_namespace()
    running.apply(CRASHING.replace("linux", "plan9"), namespace)
    with pytest.raises(WaitTimeout, match="phase: Pending"):
        running.wait("pod/crashing", "condition=Ready", namespace, timeout=0.2)
    with pytest.raises(WaitTimeout, match="it does not exist"):
        running.wait("pod/none", lambda pod: pod is not None, namespace, timeout=0.05)


def test_custom_resources_are_found_when_they_are_defined(running: Cluster) -> None:
    with pytest.raises(UnknownResource, match='have a resource type "lm"'):
        running.list("lm")
    running.apply(DEFINITION)
    running.wait("crd/lamps.example.com", "condition=Established")
    running.apply({"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": "a"}})
    assert [lamp["metadata"]["name"] for lamp in running.list("lm")] == ["a"]


def test_nodes_lose_power_and_come_back(running: Cluster) -> None:
    node = running.node("linux-1")
    boot = running.get("node/linux-1")["status"]["nodeInfo"]["bootID"]
    node.stop()
    node.start()
    running.wait(
        "node/linux-1",
        lambda found: found is not None and found["status"]["nodeInfo"]["bootID"] != boot,
    )


def test_apply_keeps_every_character(running: Cluster) -> None:
    """The server reads an apply as YAML, in which some characters of JSON are line ends or errors."""
    text = "".join(map(chr, range(1, 0x200))) + "\u2028\u2029\ufeff\ufffe\uffff\U0001f600é"
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "text"}}
    running.apply({**applied, "data": {"text": text}})
    assert running.get("configmap/text")["data"] == {"text": text}


def test_errors_of_the_api_server(running: Cluster) -> None:
    with pytest.raises(ApiError, match='pods "none" not found'):
        running.get("pod/none")
    assert running.client().get("/version")["gitVersion"].startswith("v1.")
    with pytest.raises(ValueError, match='use a form like "pod/web"'):
        running.get("web")


def test_kubectl_works(running: Cluster) -> None:
    done = subprocess.run(
        ["kubectl", "--kubeconfig", str(running.kubeconfig), "get", "nodes", "-o", "name"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["node/control-plane", "node/linux-1", "node/windows-1"]


async def test_async_cluster_of_another_release() -> None:
    async with AsyncCluster(release="1.36", nodes=False) as cluster:
        folder = cluster.kubeconfig.parent
        version = await cluster.client().get_json("/version")
        assert version["minor"] == "36"
        assert await cluster.list("nodes") == []
    assert not folder.exists()
    with pytest.raises(RuntimeError, match="not running"):
        cluster.client()


def test_a_wrong_option_says_what_is_wrong() -> None:
    with pytest.raises(ClusterNotStarted, match=r"unknown release .9\.9.; choose one of"):
        Cluster(release="9.9").start()


def test_a_killed_test_run_leaves_no_cluster(tmp_path: Path) -> None:
    script = (
        "from transom.cluster.temporary import ClusterOptions\n"
        "from transom.testing.process import start_cluster_process\n"
        "found = start_cluster_process(ClusterOptions(nodes=False))\n"
        "print(found._process.pid, flush=True)\n"
        "input()\n"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    run = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert run.stdout is not None
    server = int(run.stdout.readline())
    descriptor = os.pidfd_open(server)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert select.select([descriptor], [], [], 30)[0], "the cluster is still running"
    os.close(descriptor)
    assert not list(tmp_path.iterdir()), "its folder is removed as well"


def test_manifests(tmp_path: Path) -> None:
    (tmp_path / "b.yml").write_text("kind: B\n---\n")
    (tmp_path / "a.yaml").write_text("kind: List\nitems: [{kind: A}]\n")
    assert [obj["kind"] for obj in read_manifest(tmp_path)] == ["A", "B"]
    assert read_manifest({"kind": "C"}) == read_manifest([{"kind": "C"}]) == [{"kind": "C"}]


def test_clusters_in_this_process_leave_nothing_behind() -> None:
    def resources() -> tuple[list[str], int]:
        return sorted(t.name for t in threading.enumerate()), len(os.listdir("/proc/self/fd"))

    with Cluster(nodes=False, in_process=True):
        pass  # what is made once for all clusters exists now
    before = resources()
    with Cluster(linux=1, windows=0, in_process=True) as cluster:
        folder = cluster.kubeconfig.parent
        namespace = cluster.create_namespace()
        cluster.apply(CRASHING, namespace)
        cluster.wait("pod/crashing", "jsonpath={.status.phase}=Failed", namespace)
        assert cluster.logs("crashing", namespace) == "the disk is full\n"
        with Cluster(nodes=False, in_process=True, virtual_time=True) as other:
            other.advance(hours=1)
            assert other.list("nodes") == []
    assert not folder.exists()
    assert resources() == before


def test_a_wrong_option_of_a_cluster_in_this_process_says_what_is_wrong() -> None:
    with pytest.raises(ClusterNotStarted, match=r"unknown release .9\.9.; choose one of"):
        Cluster(release="9.9", in_process=True).start()
