"""Maps texts of events and conditions of Windows nodes to records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from transom.doctor.findings import DoctorFinding, Severity, known_finding
from transom.windows.limits import LIMITS

_PULLS: Final = ("ErrImagePull", "ImagePullBackOff", "Failed", "FailedCreatePodSandBox")


class KnownText(NamedTuple):
    pattern: str
    record: str
    statements: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()  # the reasons that the row applies to; none: any
    why: str = ""  # if the record's texts cover more than this case
    remedy: str = ""


_PAUSE: Final = (
    ("FailedCreatePodSandBox",),
    (
        "The pause image of the node is for another Windows build than the node's, so that no "
        "pod starts there."
    ),
    (
        "Give the kubelet (--pod-infra-container-image) or containerd (sandbox_image) a pause "
        "image of the node's build."
    ),
)


_ROWS: Final = (
    KnownText("network host not found", "WIN-POD-002", (), ("FailedCreatePodSandBox",)),
    KnownText(
        "container operating system does not match the host operating system",
        "WIN-OS-004",
        ("TRB-107", "TRB-109"),
        *_PAUSE,
    ),
    KnownText(
        "no match for platform in manifest|no matching manifest for windows",
        "WIN-OS-004",
        ("TRB-107", "TRB-109"),
        *_PAUSE,
    ),
    KnownText(
        "container operating system does not match the host operating system",
        "WIN-OS-004",
        ("TRB-107", "TRB-109"),
    ),
    KnownText(
        r"Windows version \S+ image is incompatible|no matching manifest for windows",
        "WIN-OS-005",
        ("OS-25",),
    ),
    KnownText("no match for platform in manifest", "WIN-OS-006", ("OS-25",)),
    KnownText('image operating system "linux" cannot be used|hcsshim::ImportLayer', "WIN-OS-007"),
    KnownText(r"subnet\.env", "SUP-TRB-014"),
    KnownText(
        (
            "failed to get management IP|Waiting for the Network to be created|no interface with "
            "given IP found"
        ),
        "SUP-TRB-013",
    ),
    KnownText(
        r"Client\.Timeout exceeded|i/o timeout|did not properly respond|proxyconnect tcp",
        "SUP-TRB-018",
        (),
        _PULLS,
    ),
    KnownText(
        (
            r"network (?!host )\S+ not found|failed to create HNSNetwork|failed to create "
            r"HostComputeNetwork"
        ),
        "SUP-TRB-015",
        ("TRB-101", "TRB-104"),
    ),
)


def recognised_texts(
    reason: str, text: str, what: str, *where: str, severity: Severity = "error"
) -> DoctorFinding | None:
    """The record for a text that a Windows node reports with this reason."""
    for row in _ROWS:
        if re.search(row.pattern, text) and (not row.reasons or reason in row.reasons):
            return known_finding(
                row.record,
                what,
                *where,
                severity=severity,
                why=row.why,
                remedy=row.remedy,
                statements=row.statements,
            )
    record = next(
        (
            id
            for id, recorded, pattern in _patterns_by_reason()
            if recorded == reason and pattern.search(text)
        ),
        "",
    )
    return known_finding(record, what, *where, severity=severity) if record else None


@cache
def _patterns_by_reason() -> tuple[tuple[str, str, re.Pattern[str]], ...]:
    """Limitations that a node reports with specific texts and reasons."""
    return tuple(_patterns())


def _patterns() -> Iterator[tuple[str, str, re.Pattern[str]]]:
    for limit in LIMITS.values():
        if limit.reason and limit.message:
            parts = re.split(r"\{\w*\}", limit.message)
            yield limit.id, limit.reason, re.compile(".+".join(map(re.escape, parts)))
