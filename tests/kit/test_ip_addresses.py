import pytest

from transom.kit.ip_addresses import is_ip_address, is_ip_network


@pytest.mark.parametrize(
    ("text", "address", "network"),
    [
        ("10.0.0.1", True, True),
        ("fd00::1", True, True),
        ("10.0.0.1/24", False, True),
        ("fd00::/64", False, True),
        ("10.0.0", False, False),
        ("10.0.0.1:80", False, False),
        ("[fd00::1]", False, False),
        ("localhost", False, False),
        ("", False, False),
    ],
)
def test_texts_that_are_addresses(text: str, address: bool, network: bool) -> None:
    assert (is_ip_address(text), is_ip_network(text)) == (address, network)
