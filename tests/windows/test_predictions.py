"""Every limit that a manifest can meet is tried on a cluster; of the others the reason is here."""

from __future__ import annotations

from tests.windows import marks

from transom.windows.limits import LIMITS
from transom.windows.tables import current_limits

_NODE = "it is about a node or its programs, which no object of a cluster describes"
_NETWORK = "it is about how the network was set up, or who asks for an address"
_RUNNING = "it is about what a program does or meets when it runs; its manifest does not show it"
_SUMMARY = "it sums up other limits, which are tried"
# Limits of later releases are tried on the rules of the API server.
TRIED_IN = ("tests/windows/test_predictions_of_", "tests/windows/test_current_statements.py")
UNTRIED = {
    _NODE: (
        "WIN-OS-001",
        "WIN-OS-002",
        "WIN-OS-003",
        "WIN-OS-011",
        "WIN-RES-007",
        "WIN-NODE-001",
        "WIN-NODE-002",
        "WIN-NODE-003",
        "WIN-NODE-004",
        "WIN-NODE-005",
        "WIN-NODE-006",
        "WIN-NODE-007",
        "WIN-NODE-008",
        "WIN-NODE-009",
        "WIN-RUN-001",
        "WIN-RUN-002",
        "WIN-RUN-004",
        "WIN-SVC-007",
        "WIN-SVC-008",
    ),
    _NETWORK: (
        "WIN-NET-002",
        "WIN-NET-003",
        "WIN-NET-004",
        "WIN-NET-005",
        "WIN-NET-006",
        "WIN-NET-007",
        "WIN-NET-010",
        "WIN-NET-011",
        "WIN-NET-012",
        "WIN-NET-016",
        "WIN-NET-017",
        "WIN-NET-018",
        "WIN-NET-019",
        "WIN-SVC-012",
    ),
    _RUNNING: (
        "WIN-CTR-006",
        "WIN-CTR-007",
        "WIN-SEC-017",
        "WIN-SEC-018",
        "WIN-RES-001",
        "WIN-RES-002",
        "WIN-RES-006",
        "WIN-RES-008",
        "WIN-STO-004",
        "WIN-STO-012",
        "WIN-STO-020",
        "WIN-STO-021",
    ),
    _SUMMARY: ("WIN-SEC-020", "WIN-API-001"),
}


def test_every_limit_is_tried_or_cannot_be() -> None:
    found = marks.marks()
    tried = {id for id in LIMITS if any(test.startswith(TRIED_IN) for test in found.get(id, ()))}
    untried = [id for ids in UNTRIED.values() for id in ids]
    assert len(untried) == len(set(untried)) and not tried & set(untried)
    tables = {limit.id for limit in current_limits() if LIMITS[limit.id].severity == "none"}
    assert tried | set(untried) | tables == set(LIMITS)


def test_nothing_that_lint_finds_goes_untried() -> None:
    assert [id for ids in UNTRIED.values() for id in ids if LIMITS[id].severity != "none"] == []
