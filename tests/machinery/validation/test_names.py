"""Formats of names: the messages of the API, and invariants for all texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.machinery.validation import names

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
QNAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@pytest.mark.parametrize(
    ("rule", "value", "messages"),
    [
        (names.is_dns1123_label, "a-1", []),
        (names.is_dns1123_label, "a\n", [LABEL]),
        (names.is_dns1123_label, "A" * 64, ["must be no more than 63 characters", LABEL]),
        (names.is_dns1123_subdomain, "a." * 126 + "a", []),
        (names.is_dns1123_subdomain, "a." * 127 + "a", ["must be no more than 253 characters"]),
        (names.is_qualified_name, "example.com/My.Name", []),
        (names.is_qualified_name, "", ["name part must be non-empty", QNAME]),
        (names.is_qualified_name, "/a", ["prefix part must be non-empty"]),
        (names.is_label_value, "", []),
        (names.is_config_map_key, "..a", ["must not start with '..'"]),
        (names.is_config_map_key, ".", ["must not be '.'"]),
        (names.is_valid_port_name, "80", ["must contain at least one letter or number (a-z, 0-9)"]),
        (
            names.is_valid_port_name,
            "a--b-",
            ["must not contain consecutive hyphens", "must not begin or end with a hyphen"],
        ),
        (names.is_valid_percent, "50%", []),
        (names.is_path_segment_name, "..", ["may not be '..'"]),
        (names.is_path_segment_name, "a/%", ["may not contain '/'", "may not contain '%'"]),
        (
            names.is_fully_qualified_name,
            "a.b",
            ["should be a domain with at least three segments separated by dots"],
        ),
    ],
)
def test_messages(rule: object, value: str, messages: list[str]) -> None:
    assert rule(value) == messages  # type: ignore[operator]


def test_a_prefix_may_end_in_a_dash() -> None:
    assert names.name_is_dns_label("abc-", True) == []
    assert names.name_is_dns_label("abc-", False) == [LABEL]
    assert names.name_is_dns_label("-", True) == []


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("10.0.0.1", True),
        ("010.000.0.1", True),
        ("256.1.1.1", False),
        ("1.2.3", False),
        ("fd00::1", True),
        ("::ffff:1.2.3.4", True),
        ("fe80::1%eth0", False),
        ("", False),
        ("1.2.3.4 ", False),
        ("٣.1.1.1", False),
    ],
)
def test_addresses_as_go_reads_them(text: str, good: bool) -> None:
    assert (names.parse_ip(text) is not None) == good


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("10.0.0.1/8", True),
        ("10.0.0.0/33", False),
        ("10.0.0.0", False),
        ("fd00::/64", True),
        ("10.0.0.0/+8", False),
        ("10.0.0.0/08", True),
    ],
)
def test_networks_as_go_reads_them(text: str, good: bool) -> None:
    assert (names.parse_cidr(text) is not None) == good


@given(st.text(max_size=80))
def test_a_label_is_a_subdomain_and_a_qualified_name(text: str) -> None:
    if not names.is_dns1035_label(text):
        assert not names.is_dns1123_label(text)
    if not names.is_dns1123_label(text):
        assert not names.is_dns1123_subdomain(text)
        assert not names.is_qualified_name(text)
        assert not names.is_label_value(text)
