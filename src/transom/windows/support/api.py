"""The API, users, paths, signals and exit codes on Windows."""

from __future__ import annotations

from typing import Final

from transom.windows.records import WindowsSupport

_S: Final = "API"

SUPPORT: Final = (
    WindowsSupport(
        "SUP-API-001",
        "The API is the same",
        "Differences come from the operating system and the runtime.",
        "rule",
        checklist=("API-01",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-API-002",
        "Identities",
        "Linux identifies users by number; Windows uses security identifiers (SID) of an account "
        "database, and each container has its own.",
        "rule",
        checklist=("API-03", "API-04"),
        section=_S,
        topics=("SID", "SAM"),
    ),
    WindowsSupport(
        "SUP-API-003",
        "File permissions are ACLs",
        "Lists of who may do what, by SID.",
        "rule",
        checklist=("API-06",),
        section=_S,
        topics=("ACL",),
    ),
    WindowsSupport(
        "SUP-API-004",
        "Paths with either slash",
        "Kubernetes accepts / and \\; a program in the container may require \\.",
        "rule",
        checklist=("API-07",),
        section=_S,
        topics=("path",),
    ),
    WindowsSupport(
        "SUP-API-005",
        "Exit codes",
        "0 means success. Kubernetes programs use the same exit codes as on Linux.",
        "rule",
        checklist=("API-12", "API-14"),
        section=_S,
        topics=("exit code",),
    ),
    WindowsSupport(
        "SUP-API-006",
        "Longer shutdown by registry",
        "WaitToKillServiceTimeout in the container's registry makes Windows "
        "wait longer than five seconds.",
        "procedure",
        checklist=("API-39",),
        enable="In the image: RUN reg add HKLM\\SYSTEM\\CurrentControlSet\\Control /v "
        "WaitToKillServiceTimeout /d 30000 "
        "/f; or the same command when the container starts.",
        section="V1.Pod",
        note="Set it when you build the image or when the container starts: the value at the time "
        "the container stops is used.",
        topics=("grace period",),
    ),
    WindowsSupport(
        "SUP-API-007",
        "runAsUserName",
        "A pod or container runs as a user of the image.",
        checklist=("SEC-04", "SEC-05"),
        since=(1, 17),
        enable="securityContext.windowsOptions.runAsUserName",
        section="Security",
        topics=("user",),
    ),
    WindowsSupport(
        "SUP-API-008",
        "Accounts made in the image",
        "In 1.14, the way to run as another user.",
        "procedure",
        checklist=("SEC-07",),
        until=(1, 16),
        section="Security",
        topics=("user",),
    ),
    WindowsSupport(
        "SUP-API-009",
        "ACLs for Secrets",
        "Restrict the pod directory of the kubelet with file ACLs.",
        "procedure",
        checklist=("SEC-02",),
        section="Security",
        topics=("secret", "ACL"),
    ),
    WindowsSupport(
        "SUP-API-010",
        "BitLocker for Secrets",
        "Encrypt the volume of the kubelet directory.",
        "procedure",
        checklist=("SEC-03",),
        section="Security",
        topics=("secret", "bitlocker"),
    ),
)
