"""The commands that doctor prints, pasted into a shell without a change, repair the cluster; and objects
that are unusual but valid are no findings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import kubectl_binaries

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
Bash = Callable[[str], "subprocess.CompletedProcess[str]"]

LINUX = {"kubernetes.io/os": "linux"}
WINDOWS = {"kubernetes.io/os": "windows"}
IIS = "mcr.microsoft.com/windows/servercore/iis:windowsservercore"


@pytest.fixture
def bash(tmp_path: Path, isolated_environment: dict[str, str]) -> Iterator[Bash]:
    binaries = kubectl_binaries()
    if not binaries:
        pytest.skip("no kubectl on this machine")
    path = f"{Path(sys.executable).parent}:{Path(binaries[0]).parent}:{os.environ['PATH']}"
    env = {
        **isolated_environment,
        "PATH": path,
        "TRANSOM_NAME": "ward",
        "KUBECONFIG": str(tmp_path / "config"),
    }

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120
        )

    yield run
    run("transom delete --all")


def namespaced(kind: str, namespace: str, group: str = "v1", **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": "a", "namespace": namespace},
        **fields,
    }


def deployment(namespace: str, container: dict[str, Any] | None = None, **pod: Any) -> Any:
    labels = {"app": "a"}
    container = {"name": "c", "image": "nginx:1.25", **(container or {})}
    spec = {"nodeSelector": LINUX, "containers": [container], **pod}
    template = {"metadata": {"labels": labels}, "spec": spec}
    fields = {"selector": {"matchLabels": labels}, "template": template}
    return namespaced("Deployment", namespace, "apps/v1", spec=fields)


def with_replicas(workload: Any, replicas: int) -> Any:
    return {**workload, "spec": {**workload["spec"], "replicas": replicas}}


FAULTS = (
    deployment("label", nodeSelector={"disk": "ssd", **LINUX}),
    deployment("command", {"image": "busybox:1.36", "command": ["sleep 100000"]}),
    deployment(
        "probe",
        {
            "ports": [{"containerPort": 80}],
            "readinessProbe": {"httpGet": {"path": "/", "port": 8081}, "periodSeconds": 2},
        },
    ),
    deployment("account", serviceAccountName="robot"),
    deployment("class", priorityClassName="urgent"),
    deployment("requests", {"resources": {"requests": {"cpu": "30"}}}),
    deployment("root", securityContext={"runAsNonRoot": True}),
    deployment("config", {"envFrom": [{"configMapRef": {"name": "settings"}}]}),
    deployment("build", {"image": f"{IIS}-ltsc2019"}, nodeSelector=WINDOWS),
    deployment("foreign", {"image": f"{IIS}-ltsc2022"}),
    deployment(
        "user",
        {"image": f"{IIS}-ltsc2022"},
        nodeSelector=WINDOWS,
        securityContext={"windowsOptions": {"runAsUserName": "bob"}},
    ),
    namespaced("ResourceQuota", "quota", spec={"hard": {"pods": "1"}}),
    with_replicas(deployment("quota"), 3),
    namespaced(
        "LimitRange", "range", spec={"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
    ),
    deployment("range", {"resources": {"limits": {"cpu": "2"}}}),
    deployment("selector"),
    namespaced("Service", "selector", spec={"selector": {"app": "aa"}, "ports": [{"port": 80}]}),
    deployment("target"),
    namespaced(
        "Ingress",
        "target",
        "networking.k8s.io/v1",
        spec={
            "ingressClassName": "nope",
            "defaultBackend": {"service": {"name": "a", "port": {"number": 8080}}},
        },
    ),
    namespaced("Service", "target", spec={"selector": {"app": "a"}, "ports": [{"port": 80}]}),
    deployment("policy"),
    namespaced("Service", "policy", spec={"selector": {"app": "a"}, "ports": [{"port": 80}]}),
    namespaced(
        "NetworkPolicy",
        "policy",
        "networking.k8s.io/v1",
        spec={"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    ),
    namespaced(
        "RoleBinding",
        "role",
        "rbac.authorization.k8s.io/v1",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        subjects=[{"kind": "ServiceAccount", "name": "default", "namespace": "role"}],
    ),
)

VALID = (
    namespaced("Service", "odd", spec={"clusterIP": "None", "ports": [{"port": 5432}]}),
    {
        **namespaced("Service", "odd", spec={"ports": [{"port": 80}]}),
        "metadata": {"name": "written", "namespace": "odd"},
    },
    {
        **namespaced("EndpointSlice", "odd", "discovery.k8s.io/v1", addressType="IPv4"),
        "metadata": {
            "name": "written",
            "namespace": "odd",
            "labels": {"kubernetes.io/service-name": "written"},
        },
        "endpoints": [{"addresses": ["192.0.2.10"]}],
        "ports": [{"port": 80, "name": ""}],
    },
    namespaced(
        "Job",
        "odd",
        "batch/v1",
        spec={
            "suspend": True,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": LINUX,
                    "containers": [{"name": "c", "image": "busybox:1.36"}],
                }
            },
        },
    ),
    namespaced(
        "Pod",
        "odd",
        spec={
            "schedulingGates": [{"name": "example.com/gate"}],
            "nodeSelector": LINUX,
            "containers": [{"name": "c", "image": "nginx:1.25"}],
        },
    ),
    with_replicas(deployment("odd"), 0),
)


def apply(bash: Bash, folder: Path, objects: tuple[Any, ...]) -> None:
    namespaces = {one["metadata"]["namespace"]: None for one in objects}
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces
    ]
    (folder / "objects.yaml").write_text(yaml.safe_dump_all([*made, *objects]))
    applied = bash("kubectl apply --filename objects.yaml")
    assert applied.returncode == 0, applied.stderr


def findings(bash: Bash) -> list[dict[str, Any]]:
    done = bash("transom doctor --output json")
    assert done.returncode in (0, 1), done
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return found


def test_printed_commands_repair_the_cluster(bash: Bash, tmp_path: Path) -> None:
    up = bash("transom up --release 1.36")
    assert up.returncode == 0, up.stderr
    apply(bash, tmp_path, FAULTS)
    assert bash("transom node exec windows-1 -- Stop-Service kube-proxy").returncode == 0
    wanted = {one["metadata"]["namespace"] for one in FAULTS}
    repaired: set[str] = set()
    until = time.monotonic() + 200
    while time.monotonic() < until:
        found = findings(bash)
        for one in found:
            for command in one["commands"]:
                done = bash(command)
                again = "already exists" in done.stderr  # or its pod has not been tried again
                # The object of a finding may have been replaced by the command before.
                gone = "NotFound" in done.stderr
                assert done.returncode == 0 or again or gone, (one, command, done.stderr)
                repaired.add(one["where"][0].split("/")[1])
        if wanted <= repaired and not any(one["severity"] != "info" for one in found):
            break
    assert wanted <= repaired, wanted - repaired
    left = [one for one in findings(bash) if one["severity"] != "info"]
    assert not left, left


def test_commands_are_printed_in_lines_of_their_own(bash: Bash, tmp_path: Path) -> None:
    """However narrow the terminal is."""
    up = bash("transom up --release 1.36 --windows 0")
    assert up.returncode == 0, up.stderr
    apply(bash, tmp_path, (*VALID, *FAULTS[:1]))
    until = time.monotonic() + 60
    while not (found := findings(bash)) and time.monotonic() < until:
        pass
    (one,) = found  # the other objects are valid
    assert one["commands"] == ["kubectl label node linux-1 disk=ssd --overwrite"]
    text = bash("COLUMNS=40 transom doctor").stdout
    assert "        run: kubectl label node linux-1 disk=ssd --overwrite\n" in text
