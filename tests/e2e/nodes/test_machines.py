"""What people do with the machines of a cluster, and what outlives the cluster's process."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster, Kubectl, kubectl_binaries, running_cluster

from .conftest import Space

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

FILE = """
apiVersion: transom.dev/v1
kind: Cluster
release: "1.20"
nodes:
- name: master
  role: control-plane
  taints: ["node-role.kubernetes.io/master:NoSchedule"]
- name: worker
  cpus: 2
  memory: 4Gi
  kubeletVersion: "1.19"
  labels: {disk: fast}
  kubeReserved: {cpu: 500m, memory: 512Mi}
  systemReserved: {memory: 488Mi}
  evictionHard: {memory.available: 100Mi}
  staticPods: manifests
- name: core
  os: windows
  build: 20348
  runtime: containerd
  taints: ["os=windows:NoSchedule"]
"""
STATIC = """
apiVersion: v1
kind: Pod
metadata: {name: fixed}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: 'busybox:1.32', command: [sleep, '1000']}]
"""
WORK = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: nginx, image: 'nginx:1.19'}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: done}
spec:
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: 'busybox:1.32', command: [echo, done]}]
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Space]:
    """A cluster from a file, which no other test uses."""
    binaries = kubectl_binaries()
    if not binaries:
        pytest.skip("no kubectl on this machine")
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/fixed.yaml").write_text(STATIC)
    (tmp_path / "cluster.yaml").write_text(FILE)
    with running_cluster(tmp_path, "--config", str(tmp_path / "cluster.yaml")) as running:
        yield Space(Kubectl(binaries[0], running), "default")


def transom(space: Space, *args: str, **more: Any) -> Any:
    cluster: Cluster = space.kubectl.cluster
    return cluster.transom(*args, "--name", cluster.name, **more)


def ready(node: Any) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])


def restarted(times: int) -> Any:
    def seen(pod: Any) -> bool:
        entry = pod["status"]["containerStatuses"][0]
        return bool(entry["ready"]) and entry["restartCount"] == times

    return seen


def containers(space: Space) -> list[Any]:
    return list(json.loads(transom(space, "ps", "--output", "json").stdout))


def test_nodes_from_a_file(own: Space, tmp_path: Path) -> None:
    worker, core = own.object("node/worker"), own.object("node/core")
    assert worker["metadata"]["labels"]["disk"] == "fast"
    assert worker["status"]["nodeInfo"]["kubeletVersion"] == "v1.19.16"
    assert worker["status"]["allocatable"]["cpu"] == "1500m"
    # 4 Gi less what is reserved for Kubernetes, the system and the threshold of evictions.
    assert worker["status"]["allocatable"]["memory"] == f"{4096 - 512 - 488 - 100}Mi"
    assert core["status"]["nodeInfo"]["kernelVersion"].startswith("10.0.20348")
    assert core["metadata"]["labels"]["node.kubernetes.io/windows-build"] == "10.0.20348"
    assert core["spec"]["taints"] == [{"key": "os", "value": "windows", "effect": "NoSchedule"}]
    fixed = own.until(lambda pod: pod["status"].get("phase") == "Running", "pod/fixed-worker")
    assert fixed["metadata"]["annotations"]["kubernetes.io/config.source"] == "file"
    own("delete", "pod", "fixed-worker", "--now")
    own.until(
        lambda list_: any(
            p["metadata"]["uid"] != fixed["metadata"]["uid"]
            and p["status"].get("phase") == "Running"
            for p in list_["items"]
        ),
        "pods",
    )
    (tmp_path / "manifests/fixed.yaml").unlink()
    own.until(lambda list_: not list_["items"], "pods")
    bad = own.kubectl.cluster.transom(
        "up", "--name", "other", "--config", str(tmp_path / "none.yaml"), check=False
    )
    assert bad.returncode != 0 and "cannot read" in bad.stderr
    (tmp_path / "new.yaml").write_text(FILE.replace('"1.19"', '"1.21"'))
    bad = own.kubectl.cluster.transom(
        "up", "--name", "other", "--config", str(tmp_path / "new.yaml"), check=False
    )
    assert bad.returncode != 0 and "a kubelet 1.21 cannot join an API server of 1.20" in bad.stderr


def test_machines_come_and_go(own: Space) -> None:
    assert (
        transom(own, "node", "add", "extra", "--cpus", "8", "--label", "zone=b").stdout
        == "node/extra added\n"
    )
    extra = own.object("node/extra")
    assert (
        ready(extra)
        and extra["status"]["capacity"]["cpu"] == "8"
        and extra["metadata"]["labels"]["zone"] == "b"
    )
    own(
        "run",
        "p",
        "--image=busybox:1.32",
        '--overrides={"spec":{"nodeName":"extra"}}',
        "--",
        "sleep",
        "1000",
    )
    own.ready("pod/p")
    listed = transom(own, "node", "list").stdout.splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [
        ["master", "ready"],
        ["worker", "ready"],
        ["core", "ready"],
        ["extra", "ready"],
    ]
    assert [c["pod"] for c in containers(own) if c["node"] == "extra"] == ["p"]
    transom(own, "node", "stop", "extra")
    assert not [c for c in containers(own) if c["node"] == "extra"]
    refused = own.done("exec", "p", "--", "true")
    assert refused.returncode == 1 and "dial" in refused.stderr
    transom(own, "node", "start", "extra")
    own.until(restarted(1), "pod/p")
    boot = own.object("node/extra")["status"]["nodeInfo"]["bootID"]
    transom(own, "node", "reboot", "extra")
    own.until(restarted(2), "pod/p")
    assert own.object("node/extra")["status"]["nodeInfo"]["bootID"] != boot
    transom(own, "node", "cordon", "extra")
    assert own.object("node/extra")["spec"]["unschedulable"] is True
    transom(own, "node", "uncordon", "extra")
    assert "unschedulable" not in own.object("node/extra")["spec"]
    kept = Path(json.loads(transom(own, "status", "--output", "json").stdout)["stateDir"]) / "nodes"
    assert (kept / "extra").is_dir()
    transom(own, "node", "delete", "extra")
    assert not (kept / "extra").exists(), "the key of a machine that is gone"
    assert own.done("get", "node", "extra").returncode == 1
    missing = transom(own, "node", "stop", "extra", check=False)
    assert missing.returncode != 0 and "there is no node 'extra'" in missing.stderr


@pytest.mark.parametrize("how", ["down", "kill"])
def test_a_cluster_comes_back(own: Space, how: str) -> None:
    own.apply(WORK)
    own("rollout", "status", "deployment/web", "--timeout=60s")
    own("wait", "--for=condition=Complete", "job/done", "--timeout=60s")
    before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in own.object("pods")["items"]}
    nodes = {n["metadata"]["name"]: n["metadata"]["uid"] for n in own.object("nodes")["items"]}
    if how == "down":
        transom(own, "down")
    else:
        os.kill(
            json.loads(transom(own, "status", "--output", "json").stdout)["pid"], signal.SIGKILL
        )
    transom(own, "up")
    assert {
        n["metadata"]["name"]: n["metadata"]["uid"] for n in own.object("nodes")["items"]
    } == nodes

    def settled(pods: Any) -> bool:
        states = {p["metadata"]["name"]: p["status"].get("phase") for p in pods["items"]}
        return sorted(states.values()) == ["Running"] * 4 + ["Succeeded"] * 2 and {
            c["pod"] for c in containers(own)
        } == {name for name, phase in states.items() if phase == "Running"}

    after = own.until(settled, "pods")
    kept = {p["metadata"]["name"]: p["metadata"]["uid"] for p in after["items"]}
    assert {k: v for k, v in kept.items() if k != "fixed-worker"} == {
        k: v for k, v in before.items() if k != "fixed-worker"
    }
    ran = containers(own)
    assert len(ran) == 4  # nothing is there twice
    own("rollout", "status", "deployment/web", "--timeout=30s")
    assert "Welcome to nginx" in own(
        "exec", "deployment/web", "--", "curl", "-s", "http://localhost"
    )
