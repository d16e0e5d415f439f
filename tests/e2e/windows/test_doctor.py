"""Nodes with faults: what `transom doctor` reports, what corrects them, and what a report contains."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster, Kubectl, kubectl_binaries, running_cluster
from tests.e2e.windows.conftest import Place

pytestmark = pytest.mark.e2e
PROXY = "http://proxy.example.com:80/"
FILE = f"""\
apiVersion: transom.dev/v1
kind: Cluster
nodes:
- {{name: control-plane, role: control-plane}}
- {{name: linux-1}}
- {{name: windows-1, os: windows, macSpoofing: false, systemReserved: {{memory: 2Gi}}}}
- {{name: windows-2, os: windows, proxy: "{PROXY}", systemReserved: {{memory: 2Gi}}}}
"""
PODS = {
    "web": ("linux-1", "nginx:1.19"),
    "caller": ("windows-1", "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019"),
    "waiting": ("windows-2", "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019"),
}
WORD = "hunter2hunter2"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    binaries = kubectl_binaries()
    if not binaries:
        pytest.skip("no kubectl on this machine")
    folder = tmp_path_factory.mktemp("faulty")
    (folder / "cluster.yaml").write_text(FILE)
    with running_cluster(folder, "--config", str(folder / "cluster.yaml")) as cluster:
        yield Kubectl(binaries[-1], cluster)


def doctor(cluster: Cluster, *names: str) -> dict[str, dict[str, Any]]:
    """Findings by their records, or what they say."""
    done = cluster.transom("doctor", *names, "--output", "json", check=False)
    found = json.loads(done.stdout)
    assert found["inside"] is True and done.stderr == ""
    assert done.returncode == any(one["severity"] == "error" for one in found["findings"])
    return {one["record"] or one["what"]: one for one in reversed(found["findings"])}


def on_node(cluster: Cluster, node: str, line: str) -> str:
    return cluster.transom("node", "--name", cluster.name, "exec", node, line, check=False).stdout


def run(faulty: Kubectl, *names: str) -> None:
    for name in names:
        node, image = PODS[name]
        spec = {
            "nodeName": node,
            "nodeSelector": {"kubernetes.io/os": node.split("-")[0]},
            "containers": [
                {"name": name, "image": image, "env": [{"name": "DB_PASSWORD", "value": WORD}]}
            ],
        }
        faulty(
            "apply",
            "--filename=-",
            stdin=json.dumps(
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            ),
        )


@pytest.mark.windows("TRB-72")
def test_pods_of_a_machine_whose_adapter_may_not_spoof_have_no_connectivity(
    faulty: Kubectl,
) -> None:
    cluster = faulty.cluster
    run(faulty, "web", "caller")
    faulty("wait", "--for=condition=Ready", "pod/web", "pod/caller", "--timeout=30s")
    address = faulty("get", "pod", "web", "--output=jsonpath={.status.podIP}").stdout
    ask = ("exec", "caller", "--", "curl.exe", "--silent", "--max-time", "2", f"http://{address}/")
    assert faulty(*ask, check=False).returncode != 0
    trace = cluster.transom("trace", "caller", "web", "--name", cluster.name, check=False)
    assert (
        trace.returncode == 1
        and "MAC spoofing is off" in trace.stdout
        and "limit:   SUP-TRB-009" in trace.stdout
    )
    found = doctor(cluster)["SUP-TRB-009"]
    assert (found["severity"], found["where"], found["statements"]) == (
        "error",
        ["node/windows-1"],
        ["TRB-72"],
    )
    cluster.transom("node", "--name", cluster.name, "set", "windows-1", "mac-spoofing=on")
    assert "nginx" in faulty(*ask).stdout
    assert "SUP-TRB-009" not in doctor(cluster)


@pytest.mark.windows("TRB-116", "TRB-117", "TRB-118")
def test_a_node_behind_a_proxy_pulls_once_its_variables_name_the_proxy(faulty: Kubectl) -> None:
    cluster = faulty.cluster
    run(faulty, "waiting")
    place = Place(faulty, "default")
    text = place.event("waiting", "FailedCreatePodSandBox")
    assert (
        "Get https://mcr.microsoft.com/v2/: net/http: request canceled while waiting for connection"
        in text
    )
    assert doctor(cluster, "windows-2")["SUP-TRB-018"]["severity"] == "error"
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        line = (
            f'[Environment]::SetEnvironmentVariable("{name}", "{PROXY}", '
            "[EnvironmentVariableTarget]::Machine)"
        )
        on_node(cluster, "windows-2", line)
    faulty("wait", "--for=condition=Ready", "pod/waiting", "--timeout=50s")
    assert doctor(cluster, "windows-2") == {}


@pytest.mark.windows("TRB-56", "TRB-93", "TRB-104")
def test_other_faults_are_named(faulty: Kubectl) -> None:
    cluster = faulty.cluster
    as_printed = (
        r"--v=4 --proxy-mode=kernelspace "
        r"--hostname-override=windows-1--kubeconfig=c:\k\config --enable-dsr=false "
        r"--log-dir=c:\k --logtostderr=false"
    )
    for line in (
        "Stop-Service kube-proxy",
        "nssm remove kube-proxy confirm",
        r"nssm install kube-proxy C:\k\kube-proxy.exe",
        f"nssm set kube-proxy AppParameters {as_printed}",
        "nssm set kube-proxy AppEnvironmentExtra KUBE_NETWORK=cbr0",
        "nssm start kube-proxy",
        r"Remove-Item C:\run\flannel\subnet.env",
    ):
        on_node(cluster, "windows-1", line)
    for words in (("fault", "lose-networks-on-restart"), ("restart",)):
        cluster.transom("hns", "--name", cluster.name, "windows-2", *words)
    found = doctor(cluster)
    assert r"windows-1--kubeconfig=c:\k\config" in found["SUP-TRB-007"]["what"]
    assert found["SUP-TRB-007"]["remedy"] == "Write --hostname-override=windows-1 --kubeconfig=..."
    assert found["SUP-TRB-002"]["where"] == found["SUP-TRB-014"]["where"] == ["node/windows-1"]
    assert (
        found["SUP-TRB-015"]["where"] == ["node/windows-2"]
        and "has no network cbr0" in found["SUP-TRB-015"]["what"]
    )


@pytest.mark.windows("TRB-01", "TRB-02", "REP-04", "REP-05", "REP-07", "REP-08")
def test_a_report_has_all_and_no_secrets(faulty: Kubectl, tmp_path: Path) -> None:
    cluster = faulty.cluster
    run(faulty, "web")
    faulty("create", "secret", "generic", "hidden", f"--from-literal=word={WORD}")
    faulty("create", "service", "clusterip", "lonely", "--tcp=80")
    page = cluster.transom("doctor", check=False).stdout
    assert page.index("General") < page.index("Windows")
    done = cluster.transom("report", "--output", str(tmp_path / "bug.tar.gz"))
    assert done.stdout.startswith(f"{tmp_path / 'bug.tar.gz'}: ")
    with tarfile.open(tmp_path / "bug.tar.gz") as archive:
        found = {entry.name: archive.extractfile(entry).read().decode() for entry in archive}  # type: ignore[union-attr]
    for node in ("windows-1", "windows-2"):
        for file in ("kubelet.log", "kube-proxy.log", "flanneld.log", "hns.json", "events.txt"):
            assert found[f"bug/nodes/{node}/{file}"].strip(), (node, file)
    assert "- API server: v1.20.15" in found["bug/report.md"] and found["bug/report.md"].endswith(
        "\n/sig windows\n"
    )
    assert "| windows-1 | Windows Server 2019 Datacenter | 10.0.17763" in found["bug/report.md"]
    token = faulty("get", "secrets", "--output=jsonpath={.items[0].data.token}").stdout
    lines = cluster.kubeconfig.read_text().splitlines()
    credentials = [line.split()[-1] for line in lines if "-data:" in line or "token:" in line]
    for name, text in found.items():
        assert not [word for word in (WORD, token, *credentials) if word and word in text], name
