"""Exponential back-off."""

from __future__ import annotations

import pytest

from transom.kit.backoff import exponential_backoff


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0.5), (1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (5000, 30.0)]
)
def test_each_failure_doubles_the_wait_up_to_the_longest(failures: int, seconds: float) -> None:
    assert exponential_backoff(0.5, 30.0, failures) == seconds
