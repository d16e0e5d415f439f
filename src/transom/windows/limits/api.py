"""Limits that the API itself enforces in later releases, and those of fields that a release does not know yet."""

from __future__ import annotations

from typing import Final

from transom.windows.records import Field, Limit

_OS: Final = "spec.os.name"
_POD_FIELDS: Final = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser",
    "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy",
)
_CONTAINER_FIELDS: Final = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)
_HOST_FIELDS: Final = ("hostPID", "hostIPC")

LIMITS: Final = (
    Limit(
        id="WIN-API-001",
        title="Fields designed for Linux",
        statement="Most of the API works alike. Some fields of pods and containers were designed for Linux: Kubernetes 1.20 "
        "accepts them for every pod, and on a Windows node they have no effect or fail.",
        effect="ignored",
        remedy="See the records of the fields; `transom lint` finds them.",
        checklist=("API-02",),
        section="API",
    ),
    Limit(
        id="WIN-API-002",
        title="Pods that say they are for Windows may not use Linux' fields",
        statement="With spec.os.name: windows, security fields of Linux and shared namespaces are forbidden, even when "
        "false.",
        effect="rejected",
        remedy="Drop them.",
        since=(1, 24),
        fields=(
            *(Field(f"spec.securityContext.{name}") for name in _POD_FIELDS),
            *(Field(f"spec.containers[*].securityContext.{name}") for name in _CONTAINER_FIELDS),
            *(Field(f"spec.{name}", "is", True) for name in _HOST_FIELDS),
            Field("spec.shareProcessNamespace"),
            Field("spec.hostUsers"),
        ),
        given=(Field(_OS, "is", "windows"),),
        severity="error",
        fix="drop",
        message="cannot be set for a windows pod",
        section="API",
        topics=("spec.os", "os.name"),
    ),
    Limit(
        id="WIN-API-003",
        title="Pods that say they are for Linux may not use Windows' options",
        statement="With spec.os.name: linux, windowsOptions are forbidden.",
        effect="rejected",
        remedy="Drop them, or set spec.os.name: windows.",
        since=(1, 24),
        fields=(
            Field("spec.securityContext.windowsOptions"),
            Field("spec.containers[*].securityContext.windowsOptions"),
        ),
        given=(Field(_OS, "is", "linux"),),
        severity="error",
        message="windows options cannot be set for a linux pod",
        section="API",
        topics=("spec.os", "windowsOptions"),
    ),
    Limit(
        id="WIN-API-004",
        title="spec.os is not known yet",
        statement="spec.os came with 1.23 (on by default from 1.24); older servers drop it.",
        effect="ignored",
        remedy="Use a node selector.",
        until=(1, 22),
        fields=(Field(_OS),),
        severity="info",
        section="API",
        topics=("spec.os", "os.name"),
    ),
    Limit(
        id="WIN-API-005",
        title="HostProcess containers are not known yet",
        statement="windowsOptions.hostProcess came as alpha with 1.22 and is on by default from 1.23 on, with containerd.",
        effect="ignored",
        remedy="Upgrade, or do the work on the node by other means.",
        until=(1, 22),
        lifted_by=("WindowsHostProcessContainers",),
        fields=(
            Field("spec.securityContext.windowsOptions.hostProcess", "is", True),
            Field("spec.containers[*].securityContext.windowsOptions.hostProcess", "is", True),
        ),
        severity="error",
        section="API",
        topics=("hostProcess", "privileged"),
    ),
    Limit(
        id="WIN-API-006",
        title="HostProcess pods are on the host's network",
        statement="A pod with HostProcess containers must have hostNetwork: true, and all its containers must be of that "
        "kind.",
        effect="rejected",
        remedy="Set hostNetwork: true, and hostProcess for the whole pod.",
        since=(1, 22),
        check="host-process",
        severity="error",
        message="hostNetwork must be true if pod contains any hostProcess containers",
        section="API",
        topics=("hostProcess", "hostNetwork"),
    ),
)
