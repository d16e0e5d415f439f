from __future__ import annotations

import pytest

from transom.machinery import gotime


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("2020-02-29T01:02:03Z", "2020-02-29T01:02:03Z"),
        ("2020-01-01T01:02:03.999999999Z", "2020-01-01T01:02:03Z"),
        ("2020-01-01T00:30:00+01:00", "2019-12-31T23:30:00Z"),
        ("2020-01-01T5:00:00Z", "2020-01-01T05:00:00Z"),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_time(text: str, printed: str | None) -> None:
    assert gotime.canonical_time(text) == printed


def test_micro_time() -> None:
    assert (
        gotime.canonical_micro_time("2020-01-01T00:00:00.000001Z") == "2020-01-01T00:00:00.000001Z"
    )
    assert (
        gotime.canonical_micro_time("2020-01-01T01:00:00.500000+01:00")
        == "2020-01-01T00:00:00.500000Z"
    )
    assert gotime.canonical_micro_time("0001-01-01T00:00:00.000000Z") is None
    with pytest.raises(gotime.TimeError) as caught:
        gotime.canonical_micro_time("2020-01-01T00:00:00Z")
    assert str(caught.value).endswith('.000000Z07:00": cannot parse "Z" as ".000000"')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", ' as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"'),
        ("2020", ' as "2006-01-02T15:04:05Z07:00": cannot parse "" as "-"'),
        ("2020-1-01", ' as "2006-01-02T15:04:05Z07:00": cannot parse "1-01" as "01"'),
        (
            "2020-01-01 00:00:00Z",
            ' as "2006-01-02T15:04:05Z07:00": cannot parse " 00:00:00Z" as "T"',
        ),
        ("2020-01-01T00:00:00", ' as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"'),
        ("2020-13-01Tx", ": month out of range"),
        ("2020-02-30T00:00:00Z", ": day out of range"),
        ("2020-01-01T24:00:00Z", ": hour out of range"),
        ("2020-01-01T00:00:00Zx", ": extra text: x"),
    ],
)
def test_refusals(text: str, why: str) -> None:
    with pytest.raises(gotime.TimeError) as caught:
        gotime.canonical_time(text)
    assert str(caught.value) == f'parsing time "{text}"{why}'
