from __future__ import annotations

import pytest

from transom.machinery.validation.cron import check_schedule, parse_cron, parse_zoned_cron


@pytest.mark.parametrize(
    "schedule",
    [
        "* * * * *",
        "*/5 0-23/2 1,15 JAN-dec mon",
        "0 0 31 12 ?",
        "5/10 * * * *",
        ", * * * *",
        "@hourly",
        "@annually",
        "@every 1h30m",
        "@every 1.5s",
        "@every -2us",
        "  0   0 * * 6 ",
        "+5 * * * *",
    ],
)
def test_accepted(schedule: str) -> None:
    assert check_schedule(schedule) == ""


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("* * * *", "Expected exactly 5 fields, found 4: * * * *"),
        ("TZ=UTC * * * * *", "Expected exactly 5 fields, found 6: TZ=UTC * * * * *"),
        ("60 * * * *", "End of range (60) above maximum (59): 60"),
        ("* * 0 * *", "Beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "End of range (7) above maximum (6): 7"),
        ("5-1 * * * *", "Beginning of range (5) beyond end of range (1): 5-1"),
        ("1-2-3 * * * *", "Too many hyphens: 1-2-3"),
        ("*/2/3 * * * *", "Too many slashes: */2/3"),
        ("*/0 * * * *", "Step of range should be a positive number: */0"),
        ("x * * * *", 'Failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("-5 * * * *", 'Failed to parse int from : strconv.Atoi: parsing "": invalid syntax'),
        ("*/-5 * * * *", "Negative number (-5) not allowed: -5"),
        (
            "99999999999999999999 * * * *",
            "Failed to parse int from 99999999999999999999: strconv.Atoi: parsing "
            '"99999999999999999999": '
            "value out of range",
        ),
        ("@reboot", "Unrecognized descriptor: @reboot"),
        ("@every 5", 'Failed to parse duration @every 5: time: missing unit in duration "5"'),
        (
            "@every 5x",
            'Failed to parse duration @every 5x: time: unknown unit "x" in duration "5x"',
        ),
    ],
)
def test_refused(schedule: str, message: str) -> None:
    assert check_schedule(schedule) == message


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("TZ=UTC 0 3 * * *", ""),
        ("CRON_TZ=Europe/Berlin @daily", ""),
        ("TZ=Nowhere * * * * *", "provided bad location Nowhere: unknown time zone Nowhere"),
        (
            "TZ=UTC",
            "invalid schedule format: runtime error: slice bounds out of range [:-1]",
        ),
        ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("@never", "unrecognized descriptor: @never"),
    ],
)
def test_newer_releases_know_time_zones(schedule: str, message: str) -> None:
    assert check_schedule(schedule, zoned=True) == message


def test_a_step_is_not_a_star_in_newer_releases() -> None:
    fields, _ = parse_zoned_cron("0 0 */2 * 1")
    older = parse_cron("0 0 */2 * 1")
    assert isinstance(fields, tuple) and isinstance(older, tuple)
    assert (fields[2].star, older[2].star) == (False, True)
