"""Every limit that a field shows has an example, and the limit matches it."""

from __future__ import annotations

import pytest

from transom.windows.examples import example_object
from transom.windows.limits import LIMITS
from transom.windows.match import LimitMatcher

_SHOWN = [limit for limit in LIMITS.values() if limit.fields]


@pytest.mark.parametrize("limit", _SHOWN, ids=lambda limit: limit.id)
def test_a_limit_matches_its_example(limit) -> None:  # type: ignore[no-untyped-def]
    example = example_object(limit)
    assert example is not None
    assert LimitMatcher([limit]).find(example["kind"], example), example


def test_a_limit_without_fields_has_no_example() -> None:
    assert example_object(LIMITS["WIN-NET-002"]) is None
