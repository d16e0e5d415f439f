"""Records of current releases that are rows of a table: `limits/current.txt` and
`support/current.txt`. They have no fields; `limits/current.py` adds those of limits.
"""

from __future__ import annotations

import os  # not pathlib, which takes longer to import than the tables to read
from collections.abc import Iterator
from typing import Any, Final

from transom.windows.records import Release, WindowsLimit, WindowsSupport

# The pages of the Kubernetes documentation, by the group of a statement.
CURRENT_PAGES: Final = {
    "OS": "concepts/windows/intro/",
    "POD": "concepts/windows/user-guide/",
    "HP": "tasks/configure-pod-container/create-hostprocess-pod/",
    "NET": "concepts/services-networking/windows-networking/",
    "SVC": "concepts/services-networking/windows-networking/",
    "DNS": "concepts/services-networking/dns-pod-service/",
    "STO": "concepts/storage/windows-storage/",
    "SEC": "concepts/security/windows-security/",
    "RES": "concepts/configuration/windows-resource-management/",
    "API": "concepts/windows/intro/",
    "NODE": "tasks/administer-cluster/kubeadm/adding-windows-nodes/",
    "DBG": "tasks/debug/debug-cluster/windows/",
    "GATE": "reference/command-line-tools-reference/feature-gates/",
}
_SECTIONS: Final = {
    "OS": "Windows OS version support",
    "POD": "Running Windows containers",
    "HP": "HostProcess containers",
    "NET": "Windows networking",
    "SVC": "Windows networking",
    "DNS": "DNS for Services and Pods",
    "STO": "Windows storage",
    "SEC": "Windows security",
    "RES": "Windows resource management",
    "API": "Compatibility and limitations",
    "NODE": "Adding Windows nodes",
    "DBG": "Windows debugging tips",
    "GATE": "Feature gates",
}


def current_limits() -> tuple[WindowsLimit, ...]:
    return tuple(
        WindowsLimit(
            title=title, statement=statement, effect=kind, remedy=remedy, **_common(columns)
        )
        for kind, title, statement, remedy, columns in _rows("limits")
    )


def current_support() -> tuple[WindowsSupport, ...]:
    return tuple(
        WindowsSupport(
            title=title,
            statement=statement,
            kind=kind,
            enable=remedy,
            stage=columns[4],  # type: ignore[arg-type]
            **_common(columns),
        )
        for kind, title, statement, remedy, columns in _rows("support")
    )


def _rows(folder: str) -> Iterator[tuple[Any, str, str, str, list[str]]]:
    with open(
        os.path.join(os.path.dirname(__file__), folder, "current.txt"), encoding="utf-8"
    ) as f:
        lines = f.read().splitlines()
    for line in lines:
        if not line.startswith("#"):
            columns = line.split("|")
            yield columns[1], columns[6], columns[7], columns[8], columns


def _common(columns: list[str]) -> dict[str, Any]:
    return {
        "id": columns[0],
        "since": _release(columns[2]),
        "until": _release(columns[3]) if columns[3] else None,
        "checklist": (columns[5],),
        "section": _SECTIONS[columns[5].split("-")[1]],
    }


def _release(text: str) -> Release:
    return 1, int(text.removeprefix("1."))
