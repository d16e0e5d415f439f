"""Statements of current releases that are advice, or about things outside a cluster: `explain` says
them, for the releases that they are about, and the page of the document lists them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from transom.cli.main import main
from transom.windows.match import record_holds
from transom.windows.records import NodeTarget, Record
from transom.windows.registry import RECORDS

PAGE: Final = Path(__file__).parents[2] / "docs" / "windows" / "document.md"
# Statement -> a phrase that the explanation must contain, and the first and the last release.
ADVICE: Final = {
    "W-OS-17": ("Cluster API project can automate deploying Windows nodes", 22, 37),
    "W-OS-21": ("Mirantis Container Runtime", 23, 37),
    "W-OS-25": ("npipe:////./pipe/cri-dockerd", 24, 37),
    "W-OS-27": ("containerd.exe --register-service", 18, 37),
    "W-OS-28": ("Windows Defender", 18, 37),
    "W-OS-31": ("Authenticode signed", 22, 37),
    "W-OS-37": ("preliminary Windows support", 24, 37),
    "W-POD-22": ("before the entrypoint", 14, 37),
    "W-NET-06": ("without NAT does not apply", 31, 37),
    "W-NET-11": ("externalTrafficPolicy: Local", 23, 23),
    "W-NET-12": ("KB5005619", 23, 23),
    "W-NET-13": ("more than applying one manifest", 31, 37),
    "W-NET-14": ("Calico", 31, 37),
    "W-NET-16": ("EnableCompartmentNamespace", 21, 37),
    "W-SVC-05": ("replies bypass the load balancer", 33, 37),
    "W-SVC-09": ("no minimum Kubernetes release", 24, 37),
    "W-SEC-01": ("BitLocker", 24, 37),
    "W-SEC-05": ("when it is built", 14, 37),
    "W-SEC-31": ("allowed in AD", 18, 37),
    "W-SEC-32": ("holds no secret data", 18, 37),
    "W-SEC-33": ("New-CredentialSpec", 18, 37),
    "W-SEC-40": ("nslookup", 18, 37),
    "W-SEC-43": ("postStart hook", 18, 37),
    "W-RES-16": ("no such check", 34, 37),
    "W-NODE-01": ("is beta", 18, 37),
    "W-NODE-02": ("Windows Server 2022 or later", 31, 37),
    "W-NODE-03": ("sig-windows-tools", 18, 37),
    "W-NODE-04": ("Install-Containerd.ps1", 18, 37),
    "W-NODE-05": ("no leading `v`", 31, 37),
    "W-NODE-06": ("netAdapterName", 18, 37),
    "W-NODE-07": ("skipHypervisorSupportCheck", 18, 37),
    "W-NODE-08": ("CNIBinPath", 18, 37),
    "W-NODE-09": ("PrepareNode.ps1", 18, 37),
    "W-NODE-10": ("--discovery-token-ca-cert-hash", 18, 37),
    "W-NODE-11": ("expire after 24 hours", 18, 37),
    "W-NODE-12": ("--ignore-preflight-errors", 18, 37),
    "W-NODE-13": ("no longer documented", 24, 37),
    "W-NODE-15": ("kubeadm.exe", 18, 37),
    "W-NODE-17": ("kubeadm upgrade node", 18, 37),
    "W-NODE-18": ("stop-service kubelet", 18, 37),
    "W-NODE-19": ("applying newer manifests", 24, 37),
    "W-NODE-40": ("kube-log-runner", 23, 37),
    "W-DBG-14": ("JSONPath templates", 14, 37),
}


def record_of(statement: str) -> Record:
    [found] = [record for record in RECORDS.values() if statement in record.checklist]
    return found


@pytest.mark.windows(
    "W-OS-17",
    "W-OS-21",
    "W-OS-25",
    "W-OS-27",
    "W-OS-28",
    "W-OS-31",
    "W-OS-37",
    "W-POD-22",
    "W-NET-06",
    "W-NET-11",
    "W-NET-12",
    "W-NET-13",
    "W-NET-14",
    "W-NET-16",
    "W-SVC-05",
    "W-SVC-09",
    "W-SEC-01",
    "W-SEC-05",
    "W-SEC-31",
    "W-SEC-32",
    "W-SEC-33",
    "W-SEC-40",
    "W-SEC-43",
    "W-RES-16",
    "W-NODE-01",
    "W-NODE-02",
    "W-NODE-03",
    "W-NODE-04",
    "W-NODE-05",
    "W-NODE-06",
    "W-NODE-07",
    "W-NODE-08",
    "W-NODE-09",
    "W-NODE-10",
    "W-NODE-11",
    "W-NODE-12",
    "W-NODE-13",
    "W-NODE-15",
    "W-NODE-17",
    "W-NODE-18",
    "W-NODE-19",
    "W-NODE-40",
    "W-DBG-14",
)
@pytest.mark.parametrize("statement", ADVICE)
def test_explain_gives_the_advice(statement: str, capsys: pytest.CaptureFixture[str]) -> None:
    phrase, first, last = ADVICE[statement]
    record = record_of(statement)
    assert main(["explain", record.id]) == 0
    shown = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert record.id in shown and phrase in shown
    holds = [
        minor for minor in range(14, 38) if record_holds(record, NodeTarget(release=(1, minor)))
    ]
    assert holds == list(range(first, last + 1))
    [line] = [
        line
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if re.match(rf"\| {statement} ", line)
    ]
    assert record.id in line
