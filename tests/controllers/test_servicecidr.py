"""When a ServiceCIDR can be deleted."""

from __future__ import annotations

from typing import Any

import pytest

from transom.controllers.servicecidr import is_range_in_use


def service_cidr(*cidrs: str) -> dict[str, Any]:
    return {"metadata": {"name": "-".join(cidrs)}, "spec": {"cidrs": list(cidrs)}}


@pytest.mark.parametrize(
    ("cidrs", "others", "addresses", "expected"),
    [
        (["10.97.0.0/24"], [], [], False),
        (["10.97.0.0/24"], [], ["10.97.0.9"], True),
        (["10.97.0.0/24"], [], ["10.96.0.9", "fd00::9"], False),
        (["10.97.0.0/24"], [["10.96.0.0/12"]], ["10.97.0.9"], False),
        (["10.97.0.0/24"], [["10.97.0.0/28"]], ["10.97.0.9"], False),
        (["10.97.0.0/24"], [["10.97.0.0/28"]], ["10.97.0.9", "10.97.0.99"], True),
        (["10.97.0.0/24", "fd00::/112"], [["10.96.0.0/12"]], ["fd00::9"], True),
        (["10.97.0.0/24", "fd00::/112"], [["10.96.0.0/12", "fd00::/64"]], ["fd00::9"], False),
    ],
)
def test_ranges_in_use(
    cidrs: list[str], others: list[list[str]], addresses: list[str], expected: bool
) -> None:
    found = is_range_in_use(
        service_cidr(*cidrs), [service_cidr(*other) for other in others], addresses
    )
    assert found is expected
