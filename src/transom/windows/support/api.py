"""The API, users, paths, signals and exit codes: how they are on Windows."""

from __future__ import annotations

from typing import Final

from transom.windows.records import Support

_S: Final = "API"

SUPPORT: Final = (
    Support("SUP-API-001", "The API is the same", "Differences come from the operating system and the runtime.",
            "rule", checklist=("API-01",), section=_S),
    Support("SUP-API-002", "Identities", "Linux knows users by number; Windows by security identifiers (SID) of an account "
            "database, which each container has for itself.", "rule", checklist=("API-03", "API-04"), section=_S,
            topics=("SID", "SAM")),
    Support("SUP-API-003", "File permissions are ACLs", "Lists of who may do what, by SID.", "rule", checklist=("API-06",),
            section=_S, topics=("ACL",)),
    Support("SUP-API-004", "Paths with either slash", "Kubernetes takes / and \\; a program in the container may insist on \\.",
            "rule", checklist=("API-07",), section=_S, topics=("path",)),
    Support("SUP-API-005", "Exit codes", "0 is success. Kubernetes' own programs end with the same codes as on Linux.",
            "rule", checklist=("API-12", "API-14"), section=_S, topics=("exit code",)),
    Support("SUP-API-006", "Longer shutdown by registry", "WaitToKillServiceTimeout in the image's registry makes Windows wait "
            "longer than five seconds.", "procedure", checklist=("API-39",), section="V1.Pod", topics=("grace period",)),
    Support("SUP-API-007", "runAsUserName", "A pod or container runs as a user of the image.", checklist=("SEC-04", "SEC-05"),
            since=(1, 17), enable="securityContext.windowsOptions.runAsUserName", section="Security", topics=("user",)),
    Support("SUP-API-008", "Accounts made in the image", "At 1.14 the way to run as another user.", "procedure",
            checklist=("SEC-07",), until=(1, 16), section="Security", topics=("user",)),
    Support("SUP-API-009", "ACLs for Secrets", "Restrict the directory of the kubelet's pods by file ACLs.", "procedure",
            checklist=("SEC-02",), section="Security", topics=("secret", "ACL")),
    Support("SUP-API-010", "BitLocker for Secrets", "Encrypt the volume that the kubelet's directory is on.", "procedure",
            checklist=("SEC-03",), section="Security", topics=("secret", "bitlocker")),
)
