from __future__ import annotations

import pytest

from transom.kit.versions import version_numbers


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("1.6.20", (1, 6, 20)),
        ("v0.12.0-rc1", (0, 12, 0)),
        ("1.6.20~ds1", (1, 6, 20)),
        ("19.03", (19, 3)),
        ("2", (2,)),
        ("Unknown", ()),
        ("", ()),
    ],
)
def test_version_numbers(version: str, numbers: tuple[int, ...]) -> None:
    assert version_numbers(version) == numbers
