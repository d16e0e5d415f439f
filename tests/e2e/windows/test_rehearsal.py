"""`transom rehearse` with the real kubectl: the workloads of a cluster move to another build and
back.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from tests.conftest import Cluster, running_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
KUBECTL = shutil.which("kubectl")
WORKLOADS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: any-build}
spec:
  replicas: 2
  selector: {matchLabels: {app: any-build}}
  template:
    metadata: {labels: {app: any-build}}
    spec:
      nodeSelector: {kubernetes.io/os: windows}
      containers: [{name: c, image: "registry.k8s.io/pause:3.10"}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: one-build}
spec:
  selector: {matchLabels: {app: one-build}}
  template:
    metadata: {labels: {app: one-build}}
    spec:
      nodeSelector: {kubernetes.io/os: windows}
      containers:
      - name: c
        image: mcr.microsoft.com/windows/nanoserver:1809
        command: [cmd, /c, ping -t localhost]
"""


@pytest.fixture(scope="module")
def old_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("rehearsal")
    options = ("--linux", "1", "--windows", "1", "--release", "1.34", "--build", "17763")
    with running_cluster(folder, *options) as found:
        yield found


def kubectl(cluster: Cluster, *args: str, text: str = "") -> str:
    command = [str(KUBECTL), "--kubeconfig", str(cluster.kubeconfig), *args]
    done = subprocess.run(
        command, env=cluster.env, input=text, capture_output=True, text=True, timeout=90, check=True
    )
    return done.stdout


@pytest.mark.skipif(KUBECTL is None, reason="needs kubectl")
def test_workloads_move_and_return(old_nodes: Cluster) -> None:
    def rehearse(*args: str) -> subprocess.CompletedProcess[str]:
        return old_nodes.transom(
            "rehearse", *args, "--name", old_nodes.name, check=False, timeout=120
        )

    none = rehearse("end")
    assert (none.returncode, none.stdout) == (0, "") and "no rehearsal to end" in none.stderr
    kubectl(old_nodes, "apply", "--filename", "-", text=WORKLOADS)
    wait = "--for=condition=Available", "--timeout=60s"
    kubectl(old_nodes, "wait", "deployment/any-build", *wait)
    kubectl(old_nodes, "rollout", "status", "daemonset/one-build", "--timeout=60s")

    done = rehearse("run", "--build", "ltsc2022", "--timeout", "15", "--output", "json")
    assert done.returncode == 1, done.stderr  # of the DaemonSet
    found = json.loads(done.stdout)
    assert (found["old"], found["new"]) == (["windows-1"], ["windows-1-20348"])
    moves = {move["workload"]: move for move in found["moves"]}
    assert moves["Deployment default/any-build"]["result"] == "moved"
    assert moves["DaemonSet default/one-build"]["result"] == "failed"
    assert "no match for platform" in moves["DaemonSet default/one-build"]["reason"]
    where = "--output=jsonpath={.items[*].spec.nodeName}"
    pods = kubectl(old_nodes, "get", "pods", "--selector=app=any-build", where).split()
    assert set(pods) == {"windows-1-20348"}
    assert "SchedulingDisabled" in kubectl(old_nodes, "get", "node", "windows-1")

    text = rehearse("run", "--build", "20348", "--timeout", "1")
    assert text.stdout.splitlines()[0].split() == ["WORKLOAD", "PODS", "RESULT", "REASON"]
    assert f"transom rehearse end --name {old_nodes.name}" in text.stderr
    assert "added" not in text.stderr  # the nodes of the first run

    ended = rehearse("end")
    assert (ended.returncode, ended.stdout) == (0, "node/windows-1-20348 deleted\n")
    kubectl(old_nodes, "wait", "deployment/any-build", *wait)
    assert "windows-1-20348" not in kubectl(old_nodes, "get", "nodes")
    assert "SchedulingDisabled" not in kubectl(old_nodes, "get", "node", "windows-1")


@pytest.mark.windows("W-NODE-16", "SUP-NODE-116")
@pytest.mark.skipif(KUBECTL is None, reason="needs kubectl")
def test_a_windows_node_is_drained_and_uncordoned(old_nodes: Cluster) -> None:
    kubectl(old_nodes, "apply", "--filename", "-", text=WORKLOADS)
    kubectl(old_nodes, "wait", "deployment/any-build", "--for=condition=Available")
    drained = kubectl(old_nodes, "drain", "windows-1", "--ignore-daemonsets")
    assert "node/windows-1 cordoned" in drained and "node/windows-1 drained" in drained
    assert "SchedulingDisabled" in kubectl(old_nodes, "get", "node", "windows-1")
    assert kubectl(old_nodes, "uncordon", "windows-1") == "node/windows-1 uncordoned\n"
    kubectl(old_nodes, "wait", "deployment/any-build", "--for=condition=Available")


def test_there_must_be_something_to_move(old_nodes: Cluster) -> None:
    for build, message, code in (
        ("17763", "no Windows node has a build other than 17763", 1),
        ("9999", "unknown Windows build '9999'", 2),
    ):
        done = old_nodes.transom(
            "rehearse", "run", "--build", build, "--name", old_nodes.name, check=False
        )
        assert done.returncode == code and message in done.stderr
