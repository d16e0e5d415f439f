"""Which addresses are a cluster's own."""

from __future__ import annotations

import pytest

from transom.node.address_ranges import AddressRanges

BOTH = AddressRanges(
    "172.20.0.0/16",
    "10.244.0.0/16",
    "10.96.0.0/12",
    "10.96.0.10",
    "fd20::/64",
    "fd10::/56",
    "fd96::/108",
)


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("10.244.3.7", True),
        ("172.20.0.2", True),
        ("10.96.0.10", True),
        ("fd10::3:7", True),
        ("fd20::2", True),
        ("fd96::a", True),
        ("127.0.0.1", False),
        ("192.168.1.5", False),
        ("::1", False),
        ("web.example", False),
        ("", False),
    ],
)
def test_own_addresses(host: str, own: bool) -> None:
    assert BOTH.contains(host) is own
    single = AddressRanges(*(getattr(BOTH, name) for name in ("nodes", "pods", "services", "dns")))
    assert single.contains(host) is (own and ":" not in host)
