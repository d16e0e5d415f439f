"""Prometheus' text format, as Go's client library prints it."""

from __future__ import annotations

import pytest

from transom.kit.prometheus import (
    Family,
    Histogram,
    Sample,
    Summary,
    format_number,
    render_metrics,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0, "0"),
        (7, "7"),
        (-7, "-7"),
        (True, "1"),
        (0.25, "0.25"),
        (999999, "999999"),
        (1000000, "1e+06"),
        (1234567, "1.234567e+06"),
        (1577934245.0, "1.577934245e+09"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-0.000012, "-1.2e-05"),
        (1e100, "1e+100"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert format_number(value) == text


def test_families_are_sorted_and_empty_ones_left_out() -> None:
    families = [
        Family("z_total", "counter", "Last.", [Sample((("a", "1"), ("b", 'x"\\\n')), 2)]),
        Family("empty", "gauge", "No samples.", []),
        Family("a", "gauge", "", [Sample((), 1.5, 12.25)]),
        Family("h", "histogram", "H.", [Histogram((("x", "y"),), (0.1, 5), (1, 0, 2), 20.5)]),
        Family("h2", "histogram", "H.", [Histogram((), (1,), (1, 0), 0.5)]),
        Family("s", "summary", "S.", [Summary((), 3, 0.25)]),
    ]
    assert render_metrics(families) == (
        "# TYPE a gauge\n"
        "a 1.5 12250\n"
        "# HELP h H.\n"
        "# TYPE h histogram\n"
        'h_bucket{x="y",le="0.1"} 1\n'
        'h_bucket{x="y",le="5"} 1\n'
        'h_bucket{x="y",le="+Inf"} 3\n'
        'h_sum{x="y"} 20.5\n'
        'h_count{x="y"} 3\n'
        "# HELP h2 H.\n"
        "# TYPE h2 histogram\n"
        'h2_bucket{le="1"} 1\n'
        'h2_bucket{le="+Inf"} 1\n'
        "h2_sum 0.5\n"
        "h2_count 1\n"
        "# HELP s S.\n"
        "# TYPE s summary\n"
        "s_sum 0.25\n"
        "s_count 3\n"
        "# HELP z_total Last.\n"
        "# TYPE z_total counter\n"
        'z_total{a="1",b="x\\"\\\\\\n"} 2\n'
    )
