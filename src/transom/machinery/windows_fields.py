"""The fields that a pod with `spec.os.name: windows` must not set."""

from __future__ import annotations

from typing import Final

_CONTEXT: Final = "securityContext."
# In the order of the API server's errors.
WINDOWS_POD_FORBIDS: Final = (
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    "hostUsers",
    "hostPID",
    "hostIPC",
    "securityContext.seccompProfile",
    "securityContext.fsGroup",
    "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls",
    "shareProcessNamespace",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.supplementalGroups",
    "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
)
WINDOWS_POD_CONTEXT_FORBIDS: Final = tuple(
    path.removeprefix(_CONTEXT) for path in WINDOWS_POD_FORBIDS if path.startswith(_CONTEXT)
)
WINDOWS_CONTAINER_CONTEXT_FORBIDS: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)
