"""What the words of events and conditions of Windows nodes mean: from a text to what is known of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from transom.doctor.findings import Finding, Severity, known
from transom.windows.limits import LIMITS

_PULLS: Final = ("ErrImagePull", "ImagePullBackOff", "Failed", "FailedCreatePodSandBox")


class Row(NamedTuple):
    pattern: str
    record: str
    statements: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()  # with which it is meant; none: with any
    why: str = ""  # where the record's words are about more than this
    remedy: str = ""


_PAUSE: Final = (
    ("FailedCreatePodSandBox",),
    "The pause image of the node is for another Windows build than the node's, so that no pod starts there.",
    "Give the kubelet (--pod-infra-container-image) or containerd (sandbox_image) a pause image of the node's build.",
)


_ROWS: Final = (
    Row("container operating system does not match the host operating system", "WIN-OS-004", ("TRB-107", "TRB-109"), *_PAUSE),
    Row("no match for platform in manifest|no matching manifest for windows", "WIN-OS-004", ("TRB-107", "TRB-109"), *_PAUSE),
    Row("container operating system does not match the host operating system", "WIN-OS-004", ("TRB-107", "TRB-109")),
    Row(r"Windows version \S+ image is incompatible|no matching manifest for windows", "WIN-OS-005", ("OS-25",)),
    Row("no match for platform in manifest", "WIN-OS-006", ("OS-25",)),
    Row('image operating system "linux" cannot be used|hcsshim::ImportLayer', "WIN-OS-007"),
    Row(r"subnet\.env", "SUP-TRB-014"),
    Row("failed to get management IP|Waiting for the Network to be created", "SUP-TRB-013"),
    Row(r"Client\.Timeout exceeded|i/o timeout|did not properly respond|proxyconnect tcp", "SUP-TRB-018", (), _PULLS),
    Row(r"network \S+ not found|failed to create HNSNetwork|failed to create HostComputeNetwork", "SUP-TRB-015",
        ("TRB-101", "TRB-104")),
)  # fmt: skip


def recognised(reason: str, text: str, what: str, *where: str, severity: Severity = "error") -> Finding | None:
    """What a text of a Windows node, told with this reason, shows."""
    for row in _ROWS:
        if re.search(row.pattern, text) and (not row.reasons or reason in row.reasons):
            return known(row.record, what, *where, severity=severity, why=row.why, remedy=row.remedy, statements=row.statements)
    record = next((id for id, told, pattern in _told() if told == reason and pattern.search(text)), "")
    return known(record, what, *where, severity=severity) if record else None


@cache
def _told() -> tuple[tuple[str, str, re.Pattern[str]], ...]:
    """Limits that a node tells of in words of their own, with their reasons."""
    return tuple(_patterns())


def _patterns() -> Iterator[tuple[str, str, re.Pattern[str]]]:
    for limit in LIMITS.values():
        if limit.reason and limit.message:
            parts = re.split(r"\{\w*\}", limit.message)
            yield limit.id, limit.reason, re.compile(".+".join(map(re.escape, parts)))
