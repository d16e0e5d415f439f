"""Addresses in fields that are older than strict validation, and in newer ones."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transom.machinery.validation import addresses


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ("10.0.0.1", ""),
        ("010.0.0.1", "must not have leading 0s"),
        ("::ffff:10.0.0.1", "must not be an IPv4-mapped IPv6 address"),
        ("x", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
    ],
)
def test_strict_addresses(value: str, detail: str) -> None:
    assert [e.detail for e in addresses.legacy_ip(value, "f", strict=True)] == [detail] * bool(
        detail
    )
    assert addresses.legacy_ip(value, "f", strict=True, old=[value]) == []


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ("10.0.0.0/8", ""),
        ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
        ("10.0.0.0/08", "must not have leading 0s in IP or prefix length"),
        ("::ffff:10.0.0.0/104", "must not have an IPv4-mapped IPv6 address"),
    ],
)
def test_strict_networks(value: str, detail: str) -> None:
    errors = addresses.legacy_cidr(value, "f", strict=True)
    assert [e.detail for e in errors] == [detail] * bool(detail)
    assert addresses.legacy_cidr(value, "f", strict=False) == []


def test_canonical_forms() -> None:
    [error] = addresses.canonical_ip("2001:DB8::1", "f")
    assert error.detail == 'must be in canonical form ("2001:db8::1")'
    [error] = addresses.canonical_cidr("2001:DB8::/64", "f")
    assert error.detail == 'must be in canonical form ("2001:db8::/64")'
    assert addresses.interface_address("10.9.8.7/24", "f") == []
    [error] = addresses.interface_address("2001:DB8::1/64", "f")
    assert error.detail == 'must be in canonical form ("2001:db8::1/64")'


def test_warnings() -> None:
    assert addresses.ip_warnings("010.0.0.1", "f") == [
        'f: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1"'
    ]
    assert addresses.cidr_warnings("10.0.0.1/8", "f") == [
        'f: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or '
        '"10.0.0.1/32"?)'
    ]


OCTETS = st.sampled_from(["0", "00", "07", "7", "10", "199", "249", "255", "256", "", "٣", "7\n"])


@given(st.lists(OCTETS, min_size=3, max_size=5).map(".".join))
@example("10.0.0.1")
def test_plain_addresses_pass_every_check(value: str) -> None:
    """They are accepted before the checks; the checks would accept them as well."""

    def problems() -> list[object]:
        return [
            addresses.legacy_ip(value, "f", strict=True),
            addresses.legacy_ip(value, "f", strict=False),
            addresses.canonical_ip(value, "f"),
            addresses.ip_warnings(value, "f"),
        ]

    found = problems()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(addresses, "_PLAIN_IPV4", re.compile("(?!)"))
        assert problems() == found
