"""The Pod Security Standards: the violations of pods, in Kubernetes' wording."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.pod_security import (
    BASELINE,
    LATEST,
    PRIVILEGED,
    RESTRICTED,
    evaluate_pod,
    violations_text,
)

GOOD = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(security: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c"}
    if security:
        container["securityContext"] = security
    return {"containers": [container], **spec}


def text(level: str, spec: dict[str, Any], version: tuple[int, int] = LATEST) -> str:
    return violations_text(evaluate_pod(level, version, {}, spec))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (pod(), ""),
        (pod(hostPID=True, hostIPC=True), "host namespaces (hostPID=true, hostIPC=true)"),
        (
            pod({"privileged": True}),
            'privileged (container "c" must not set securityContext.privileged=true)',
        ),
        (
            pod({"capabilities": {"add": ["SYS_TIME", "CHOWN", "NET_ADMIN"]}}),
            'non-default capabilities (container "c" must not include "NET_ADMIN", "SYS_TIME" in '
            "securityContext.capabilities.add)",
        ),
        (
            pod(volumes=[{"name": "a", "hostPath": {"path": "/"}}, {"name": "b", "emptyDir": {}}]),
            'hostPath volumes (volume "a")',
        ),
        (
            {"containers": [{"name": "c", "ports": [{"hostPort": 81}, {"hostPort": 80}]}]},
            'hostPort (container "c" uses hostPorts 80, 81)',
        ),
        (
            pod(securityContext={"seLinuxOptions": {"type": "spc_t", "user": "u"}}),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: "
            'type "spc_t"; user may not be set)',
        ),
        (
            pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            pod(securityContext={"windowsOptions": {"hostProcess": True}}),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
    ],
)
def test_baseline(spec: dict[str, Any], expected: str) -> None:
    assert text(BASELINE, spec) == expected
    assert text(PRIVILEGED, spec) == ""


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (pod(GOOD), ""),
        (
            pod(),
            'allowPrivilegeEscalation != false (container "c" must set '
            "securityContext.allowPrivilegeEscalation=false), "
            'unrestricted capabilities (container "c" must set '
            'securityContext.capabilities.drop=["ALL"]), '
            'runAsNonRoot != true (pod or container "c" must set '
            "securityContext.runAsNonRoot=true), "
            'seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to '
            '"RuntimeDefault" or "Localhost")',
        ),
        (
            pod({**GOOD, "runAsUser": 0}),
            'runAsUser=0 (container "c" must not set runAsUser=0)',
        ),
        (
            pod(GOOD, volumes=[{"name": "n", "nfs": {}}, {"name": "f", "flexVolume": {}}]),
            'restricted volume types (volumes "n", "f" use restricted volume types '
            '"flexVolume", "nfs")',
        ),
        (
            pod(os={"name": "windows"}),
            'runAsNonRoot != true (pod or container "c" must set '
            "securityContext.runAsNonRoot=true)",
        ),
    ],
)
def test_restricted(spec: dict[str, Any], expected: str) -> None:
    assert text(RESTRICTED, spec) == expected


def test_older_versions_of_the_standards_lack_newer_checks() -> None:
    probe = {"httpGet": {"host": "10.0.0.1", "port": 80}}
    spec = {"containers": [{"name": "c", "livenessProbe": probe}]}
    assert text(BASELINE, spec, (1, 33)) == ""
    assert text(BASELINE, spec).startswith("probe or lifecycle host")
