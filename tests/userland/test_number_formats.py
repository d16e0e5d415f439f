"""How .NET formats numbers."""

from __future__ import annotations

import pytest

from transom.userland.powershell.number_formats import format_dotnet_number


@pytest.mark.parametrize(
    ("value", "shape", "expected"),
    [
        (1234567.891, "#,##0.00", "1,234,567.89"),
        (12, "#,##0", "12"),
        (7, "000", "007"),
        (0.5, "0%", "50%"),
        (5, "#.##", "5"),
        (0, "#.##", ""),
        (0.5, ".00", ".50"),
        (-5.5, "0.0;(0.0)", "(5.5)"),
        (0, "0.0;(0.0);none", "none"),
        (-1.25, "0.0", "-1.3"),
        (1234567, "#,##0,K", "1,235K"),
        (12345, "0.00E+00", "1.23E+04"),
        (3, "0' GB'", "3 GB"),
        (5, "00-00", "00-05"),
        (123456, "00-00", "1234-56"),
        (2.5, "F0", "3"),
        (0.125, "F2", "0.13"),
        (-1, "X", "FFFFFFFF"),
        (255, "x4", "00ff"),
        (-42, "D5", "-00042"),
        (12345, "e2", "1.23e+004"),
        (-9.5, "C", "($9.50)"),
        (0.256, "P1", "25.6 %"),
        (float("nan"), "N2", None),
    ],
)
def test_numbers(value: float, shape: str, expected: str | None) -> None:
    assert format_dotnet_number(value, shape) == expected
