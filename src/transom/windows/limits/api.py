"""Limits that the API enforces in later releases, and fields that a release does not support yet."""

from __future__ import annotations

from typing import Final

from transom.machinery.windows_fields import (
    WINDOWS_CONTAINER_CONTEXT_FORBIDS,
    WINDOWS_POD_CONTEXT_FORBIDS,
)
from transom.windows.records import RecordField, WindowsLimit

_OS: Final = "spec.os.name"
_HOST_FIELDS: Final = ("hostPID", "hostIPC")

LIMITS: Final = (
    WindowsLimit(
        id="WIN-API-001",
        title="Fields designed for Linux",
        statement="Most of the API works the same. Some pod and container fields are designed for "
        "Linux: Kubernetes 1.20 accepts them for every pod, and on a Windows node they have no "
        "effect or fail.",
        effect="ignored",
        remedy="Run `transom lint` to find such fields.",
        checklist=("API-02",),
        section="API",
    ),
    WindowsLimit(
        id="WIN-API-002",
        title="Pods with spec.os.name windows cannot use Linux fields",
        statement="With spec.os.name: windows, Linux security fields and shared namespaces are "
        "forbidden, even when false.",
        effect="rejected",
        remedy="Drop them.",
        since=(1, 24),
        fields=(
            *(RecordField(f"spec.securityContext.{name}") for name in WINDOWS_POD_CONTEXT_FORBIDS),
            *(
                RecordField(f"spec.containers[*].securityContext.{name}")
                for name in WINDOWS_CONTAINER_CONTEXT_FORBIDS
            ),
            *(RecordField(f"spec.{name}", "is", True) for name in _HOST_FIELDS),
            RecordField("spec.shareProcessNamespace"),
            RecordField("spec.hostUsers"),
        ),
        given=(RecordField(_OS, "is", "windows"),),
        severity="error",
        fix="drop",
        message="cannot be set for a windows pod",
        section="API",
        topics=("spec.os", "os.name"),
    ),
    WindowsLimit(
        id="WIN-API-003",
        title="Pods with spec.os.name linux cannot use windowsOptions",
        statement="With spec.os.name: linux, windowsOptions are forbidden.",
        effect="rejected",
        remedy="Remove them, or set spec.os.name: windows.",
        since=(1, 24),
        fields=(
            RecordField("spec.securityContext.windowsOptions"),
            RecordField("spec.containers[*].securityContext.windowsOptions"),
        ),
        given=(RecordField(_OS, "is", "linux"),),
        severity="error",
        message="windows options cannot be set for a linux pod",
        section="API",
        topics=("spec.os", "windowsOptions"),
    ),
    WindowsLimit(
        id="WIN-API-004",
        title="spec.os is not known yet",
        statement="spec.os is available from 1.23 (on by default from 1.24); older servers drop it.",
        effect="ignored",
        remedy="Use a node selector.",
        until=(1, 22),
        fields=(RecordField(_OS),),
        severity="info",
        section="API",
        topics=("spec.os", "os.name"),
    ),
    WindowsLimit(
        id="WIN-API-005",
        title="HostProcess containers are not available",
        statement=(
            "windowsOptions.hostProcess is alpha in 1.22 and on by default from 1.23, with "
            "containerd."
        ),
        effect="ignored",
        remedy="Upgrade, or run the work on the node in another way.",
        until=(1, 22),
        lifted_by=("WindowsHostProcessContainers",),
        fields=(
            RecordField("spec.securityContext.windowsOptions.hostProcess", "is", True),
            RecordField(
                "spec.containers[*].securityContext.windowsOptions.hostProcess", "is", True
            ),
        ),
        severity="error",
        section="API",
        topics=("hostProcess", "privileged"),
    ),
    WindowsLimit(
        id="WIN-API-006",
        title="HostProcess pods use the host network",
        statement="A pod with HostProcess containers must have hostNetwork: true, and all its "
        "containers must be HostProcess containers.",
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
