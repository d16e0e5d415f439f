"""The checker finds each kind of violation in histories made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.jepsen.history import (
    CREATE,
    DELETE,
    LIST,
    OK,
    PATCH,
    READ,
    REFUSED,
    UNKNOWN,
    UPDATE,
    Change,
    HistoryChecker,
    Operation,
    WatchLog,
)

ADDED = Change(11, "a", "ADDED", "1", "u")
MODIFIED = Change(12, "a", "MODIFIED", "2", "u")
DELETED = Change(14, "a", "DELETED", "2", "u")
OTHER = Change(13, "b", "ADDED", "3", "v")
CREATED = Operation(CREATE, "a", 1.0, 2.0, OK, "1", 11, uid="u")
UPDATED = Operation(UPDATE, "a", 3.0, 4.0, OK, "2", 12, base=11)
CREATED_B = Operation(CREATE, "b", 5.0, 6.0, OK, "3", 13, uid="v")
GONE = Operation(DELETE, "a", 7.0, 8.0, OK, None, 14, uid="u")
READ_2 = Operation(READ, "a", 4.5, 4.8, OK, "2", 12)
LISTED = Operation(LIST, "", 6.5, 6.6, OK, None, 13, items={"a": (12, "2"), "b": (13, "3")})
OPERATIONS = [CREATED, UPDATED, CREATED_B, GONE, READ_2, LISTED]
CHANGES = [ADDED, MODIFIED, OTHER, DELETED]


def check(operations: list[Operation], *logs: list[Change]) -> list[str]:
    watches = [
        WatchLog(str(n), 10, 14, changes=list(log)) for n, log in enumerate(logs or (CHANGES,))
    ]
    return HistoryChecker(operations, watches).check()


def test_a_correct_history_has_no_violations() -> None:
    absent = Operation(READ, "a", 0.1, 0.2, OK, None)
    again = Operation(READ, "a", 9.0, 9.1, OK, None)
    lost = Operation(UPDATE, "b", 7.0, 7.5, UNKNOWN, "9", base=13)
    refused = Operation(UPDATE, "a", 7.0, 7.5, REFUSED, "8", base=1)
    stale = Operation(READ, "a", 9.0, 9.1, OK, "1", 11, linearizable=False)
    assert check([*OPERATIONS, absent, again, lost, refused, stale], CHANGES, CHANGES) == []


@pytest.mark.parametrize(
    ("log", "text"),
    [
        ([ADDED, OTHER, DELETED], "no event of"),
        ([ADDED, MODIFIED, MODIFIED, OTHER, DELETED], "twice or out of order"),
        ([ADDED, OTHER, MODIFIED, DELETED], "twice or out of order"),
        ([ADDED, replace(MODIFIED, value="x"), OTHER, DELETED], "two watches differ"),
    ],
)
def test_a_watch_with_a_gap_a_duplicate_or_another_order(log: list[Change], text: str) -> None:
    assert any(text in found for found in check(OPERATIONS, CHANGES, log))


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (replace(CREATED, value="7", revision=15, start=9.0, end=9.1), "it is lost"),
        (Operation(UPDATE, "a", 3.0, 4.0, REFUSED, "2", base=11), "refused, and it happened"),
        (replace(UPDATED, base=5), "it overwrote another change"),
        (replace(UPDATED, start=7.0, end=8.0), "not of its time"),
        (Operation(PATCH, "a", 9.0, 9.1, OK, "5", 15), "it is lost"),
        (Operation(PATCH, "a", 3.0, 4.0, REFUSED, "2"), "refused, and it happened"),
        (replace(GONE, uid="x"), "there are 0 events"),
        (GONE, "acknowledged twice"),
        (replace(READ_2, value="1", revision=11), "not the state between"),
        (replace(READ_2, start=9.0, end=9.1), "not the state between"),
        (replace(READ_2, start=0.1, end=0.2), "not the state between"),
        (Operation(READ, "b", 6.1, 6.2, OK, None), "not the state between"),
        (replace(LISTED, revision=12), "is not the state at that revision"),
        (replace(LISTED, items={"a": (12, "2")}), "is not the state at that revision"),
        (replace(LISTED, revision=12, items={"a": (12, "2")}), "was known"),
    ],
)
def test_an_operation_that_no_order_explains(operation: Operation, text: str) -> None:
    assert any(text in found for found in check([*OPERATIONS, operation])), check(
        [*OPERATIONS, operation]
    )


def test_an_object_that_was_created_twice() -> None:
    again = Change(15, "a", "ADDED", "1", "u")
    found = check(OPERATIONS, [*CHANGES, again])
    assert any("happened 2 times" in text for text in found)


def test_a_value_that_no_client_wrote() -> None:
    assert any("no client wrote" in found for found in check([CREATED, CREATED_B, GONE]))


def test_an_address_that_two_services_have() -> None:
    first = Change(11, "a", "ADDED", "1", "u", ("10.0.0.1",))
    second = Change(12, "b", "ADDED", "3", "v", ("10.0.0.1",))
    ended = Change(13, "a", "DELETED", "1", "u", ("10.0.0.1",))
    third = Change(14, "c", "ADDED", "4", "w", ("10.0.0.1",))
    writes = [
        Operation(CREATE, "a", 1.0, 2.0, UNKNOWN, "1"),
        Operation(CREATE, "b", 1.0, 2.0, UNKNOWN, "3"),
        Operation(CREATE, "c", 1.0, 2.0, UNKNOWN, "4"),
    ]
    assert any("have 10.0.0.1 at 12" in found for found in check(writes, [first, second]))
    assert not check(writes, [first, ended, third])


def test_more_objects_than_a_quota_permits() -> None:
    writes = [Operation(CREATE, key, 1.0, 2.0, UNKNOWN, "1") for key in ("t/a", "t/b", "t/c")]
    first = Change(11, "t/a", "ADDED", "1", "u")
    second = Change(12, "t/b", "ADDED", "1", "v")
    ended = Change(13, "t/a", "DELETED", "1", "u")
    third = Change(14, "t/c", "ADDED", "1", "w")

    def violations(*changes: Change) -> list[str]:
        log = WatchLog("w", 10, 20, changes=list(changes))
        return HistoryChecker(writes, [log], {"t/": 2}).check()

    assert not violations(first, second, ended, third)
    assert violations(first, second, third) == ["3 of t/ at 14, more than 2"]
