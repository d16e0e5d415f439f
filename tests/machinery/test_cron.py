"""Schedules are due at the expected times, also on unusual days of the calendar."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from transom.machinery.cron import CronSchedule

BERLIN = ZoneInfo("Europe/Berlin")


def after(schedule: str, moment: str, zone: ZoneInfo | None = None, count: int = 1) -> list[str]:
    plan = CronSchedule(schedule, zone or UTC)
    at: float | None = datetime.fromisoformat(moment).timestamp()
    out = []
    for _ in range(count):
        assert at is not None
        at = plan.next(at)
        out.append(
            "never" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        )
        if at is None:
            break
    return out


@pytest.mark.parametrize(
    ("schedule", "moment", "due"),
    [
        ("* * * * *", "2020-01-02T03:04:05+00:00", "2020-01-02T03:05:00"),
        ("* * * * *", "2020-01-02T03:04:00+00:00", "2020-01-02T03:05:00"),
        ("* * * * *", "2020-01-02T03:03:59.9+00:00", "2020-01-02T03:04:00"),
        ("*/15 * * * *", "2020-01-02T03:59:00+00:00", "2020-01-02T04:00:00"),
        ("0 0 1 1 *", "2020-01-01T00:00:00+00:00", "2021-01-01T00:00:00"),
        ("30 4 29 2 *", "2021-03-01T00:00:00+00:00", "2024-02-29T04:30:00"),
        ("0 0 30 2 *", "2020-01-01T00:00:00+00:00", "never"),
        ("0 0 13 * fri", "2020-01-02T00:00:00+00:00", "2020-01-03T00:00:00"),  # a Friday or a 13th
        (
            "0 0 */2 * mon",
            "2020-01-02T00:00:00+00:00",
            "2020-01-13T00:00:00",
        ),  # a Monday that is an odd day
        ("0 0 * * sun", "2020-01-02T00:00:00+00:00", "2020-01-05T00:00:00"),
        ("@monthly", "2020-01-31T23:59:59+00:00", "2020-02-01T00:00:00"),
        ("@weekly", "2020-01-05T00:00:00+00:00", "2020-01-12T00:00:00"),
        ("@every 90m", "2020-01-02T03:04:05+00:00", "2020-01-02T04:34:05"),
        ("@every 1ms", "2020-01-02T03:04:05+00:00", "2020-01-02T03:04:06"),
        ("@every 1.5h", "2020-01-02T03:04:05.7+00:00", "2020-01-02T04:34:05"),
    ],
)
def test_next(schedule: str, moment: str, due: str) -> None:
    assert after(schedule, moment) == [due]


def test_zones() -> None:
    assert after("0 9 * * *", "2020-07-01T00:00:00+00:00", BERLIN) == ["2020-07-01T07:00:00"]
    assert after("0 9 * * *", "2020-12-01T00:00:00+00:00", BERLIN) == ["2020-12-01T08:00:00"]
    # 02:30 does not exist on 2020-03-29 and exists twice on 2020-10-25.
    assert after("30 2 * * *", "2020-03-28T12:00:00+00:00", BERLIN) == ["2020-03-30T00:30:00"]
    assert after("30 2 * * *", "2020-10-24T12:00:00+00:00", BERLIN, 3) == [
        "2020-10-25T00:30:00",
        "2020-10-25T01:30:00",
        "2020-10-26T01:30:00",
    ]
    assert after("0 0 * * *", "2020-03-28T12:00:00+00:00", BERLIN, 2) == [
        "2020-03-28T23:00:00",
        "2020-03-29T22:00:00",
    ]


def test_a_year_of_hours() -> None:
    assert (
        after("0 * * * *", "2020-01-01T00:00:00+00:00", BERLIN, 366 * 24)[-1]
        == "2021-01-01T00:00:00"
    )
