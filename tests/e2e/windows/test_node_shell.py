"""The lines of the documents' troubleshooting section, typed on a Windows node, and what kubectl
sees of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.conftest import Kubectl
from tests.e2e.nodes.terminal import session

pytestmark = pytest.mark.e2e
TRANSOM = (sys.executable, "-m", "transom.cli.main")
NODE = "document"
KUBELET = (
    f"--hostname-override={NODE} --v=6 "
    "--pod-infra-container-image=mcr.microsoft.com/oss/kubernetes/pause:1.4.1 "
    '--resolv-conf="" --allow-privileged=true --enable-debugging-handlers --cluster-dns=10.96.0.10 '
    "--cluster-domain=cluster.local --kubeconfig=c:\\k\\config --hairpin-mode=promiscuous-bridge "
    "--image-pull-progress-deadline=20m --cgroups-per-qos=false  --log-dir=C:\\k "
    "--logtostderr=false "
    '--enforce-node-allocatable="" --network-plugin=cni --cni-bin-dir=c:\\k\\cni '
    "--cni-conf-dir=c:\\k\\cni\\config"
)


@dataclass(frozen=True)
class Node:
    """The machine of one test, which no other test uses."""

    kubectl: Kubectl

    def argv(self, verb: str, *words: str) -> list[str]:
        return [*TRANSOM, "node", verb, "--name", self.kubectl.cluster.name, NODE, *words]

    def run(self, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        argv = self.argv("exec", "--", *command)
        return subprocess.run(
            argv,
            env=self.kubectl.cluster.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def __call__(self, *command: str) -> str:
        done = self.run(*command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.replace("\r\n", "\n")

    def wait(self, status: str) -> None:
        self.kubectl(
            "wait", f"--for=condition=Ready={status}", f"node/{NODE}", "--timeout=90s", timeout=120
        )

    @property
    def address(self) -> str:
        found = json.loads(self.kubectl("get", "node", NODE, "--output", "json").stdout)["status"][
            "addresses"
        ]
        return str(next(one["address"] for one in found if one["type"] == "InternalIP"))


@pytest.fixture
def node(mixed_kubectl: Kubectl) -> Iterator[Node]:
    cluster = mixed_kubectl.cluster
    cluster.transom(
        "node",
        "add",
        NODE,
        "--name",
        cluster.name,
        "--os",
        "windows",
        "--taint",
        "for=tests:NoSchedule",
    )
    yield Node(mixed_kubectl)
    cluster.transom("node", "delete", NODE, "--name", cluster.name)


@pytest.mark.windows(
    "TRB-12",
    "TRB-13",
    "TRB-14",
    "TRB-22",
    "TRB-32",
    "TRB-33",
    "TRB-52",
    "TRB-53",
    "TRB-70",
    "TRB-71",
    "SUP-TRB-006",
)
def test_the_kubelet_becomes_a_service_of_nssm(node: Node) -> None:
    assert node("Get-Service kubelet").split()[6:] == ["Running", "kubelet", "kubelet"]
    node("Stop-Service kubelet")
    assert node("Get-Service", "kubelet").split()[6:] == ["Stopped", "kubelet", "kubelet"]
    node("sc.exe", "delete", "kubelet")
    for line in (
        "nssm install kubelet C:\\k\\kubelet.exe",
        f"nssm set kubelet AppParameters {KUBELET}",
        "nssm set kubelet AppDirectory C:\\k",
        "nssm set kubelet AppStdout C:\\k\\mysvc.log",
        "nssm set kubelet AppStderr C:\\k\\mysvc.log",
    ):
        node(line)
    node.wait("Unknown")
    assert node("nssm start kubelet") == "kubelet: START: The operation completed successfully.\n"
    node.wait("True")
    assert "Flag --allow-privileged has been deprecated" in node("type C:\\k\\mysvc.log")
    assert f"--hostname-override={NODE}" in node("nssm get kubelet AppParameters")


@pytest.mark.windows(
    "TRB-03",
    "TRB-04",
    "TRB-05",
    "TRB-06",
    "TRB-18",
    "TRB-102",
    "TRB-103",
    "SUP-TRB-002",
    "SUP-TRB-015",
)
def test_start_ps1_makes_a_node_of_a_machine(node: Node) -> None:
    address = node.address
    assert f": {address}\n" in node("ipconfig")
    node(".\\stop.ps1 -RemoveNetwork")
    assert node('Get-HnsNetwork | ? Name -ieq "cbr0"') == ""
    assert node('Get-NetAdapter | ? Name -Like "vEthernet (Ethernet*"') == ""
    shown = node(f".\\start.ps1 -ManagementIP {address}")
    assert {"kubelet", "kube-proxy", "flanneld"} <= set(shown.split())
    node.wait("True")
    assert "cbr0" in node('Get-HnsNetwork | ? Name -ieq "cbr0"')
    assert "vEthernet (Ethernet)" in node('Get-NetAdapter | ? Name -Like "vEthernet (Ethernet*"')
    for name in ("kubelet", "kube-proxy", "flanneld"):
        assert node(f"Get-Content -Tail 1 C:\\k\\{name}.log").strip(), name


def test_exit_codes_streams_and_input(node: Node) -> None:
    done = node.run("cmd", "/c", "echo out& echo err 1>&2& exit 7")
    assert (done.stdout.split(), done.stderr.split(), done.returncode) == (["out"], ["err"], 7)
    assert node.run("powershell", "-Command", "-", stdin="1 + 2\nexit 5\n").returncode == 5
    # 1060 is more than a shell here can see
    assert node.run("sc.exe", "query", "nothing").returncode == 1
    cluster = node.kubectl.cluster
    unknown = cluster.transom(
        "node", "exec", "--name", cluster.name, "x", "--", "hostname", check=False
    )
    assert (unknown.returncode, unknown.stderr.splitlines()[0]) == (
        1,
        "error: there is no node 'x'",
    )


def test_a_shell_at_a_terminal(node: Node) -> None:
    shown, code = session(
        node.argv("shell"),
        node.kubectl.cluster.env,
        [
            ("PS C:\\k> ", "hostname\r"),
            (NODE, "Get-Content -Wait C:\\k\\stop.ps1\r"),
            ("Remove-HnsNetwork", "\x03"),
            ("^C\r\nPS C:\\k> ", "$env:COMPUTERNAME; exit 4\r"),
        ],
    )
    assert (NODE.upper() in shown, code) == (True, 4)
