"""Results in the formats of all versions have the same content, as far as a version can express it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.network.cni.plugin import CniError
from transom.network.cni.results import as_version, to_current

CURRENT = {
    "cniVersion": "0.4.0",
    "interfaces": [{"name": "eth0", "sandbox": "/x"}],
    "ips": [
        {"version": "4", "interface": 0, "address": "10.1.2.2/24", "gateway": "10.1.2.1"},
        {"version": "6", "interface": 0, "address": "fd00::2/64"},
        {"version": "4", "interface": 0, "address": "10.9.9.9/24"},
    ],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0", "gw": "fd00::1"}],
    "dns": {"nameservers": ["10.96.0.10"]},
}


def test_up_to_0_2_0_there_is_one_address_of_each_family() -> None:
    assert as_version(CURRENT, "0.2.0") == {
        "cniVersion": "0.2.0",
        "ip4": {"ip": "10.1.2.2/24", "gateway": "10.1.2.1", "routes": [{"dst": "0.0.0.0/0"}]},
        "ip6": {"ip": "fd00::2/64", "routes": [{"dst": "::/0", "gw": "fd00::1"}]},
        "dns": {"nameservers": ["10.96.0.10"]},
    }
    assert as_version(CURRENT, "")["cniVersion"] == "0.1.0"


def test_1_0_0_leaves_the_family_out() -> None:
    newest = as_version(CURRENT, "1.0.0")
    assert newest["ips"][1] == {"interface": 0, "address": "fd00::2/64"}
    assert to_current(newest) == CURRENT


@pytest.mark.parametrize(
    ("result", "version", "text"),
    [
        ({"ips": []}, "0.2.0", "cannot convert: no valid IP addresses"),
        (CURRENT, "0.9.9", 'cannot convert version 0.3.x to "0.9.9"'),
    ],
)
def test_results_without_a_representation(result: dict[str, Any], version: str, text: str) -> None:
    with pytest.raises(CniError) as caught:
        as_version(result, version)
    assert str(caught.value) == text
    with pytest.raises(CniError, match=r'unsupported CNI result version "7.0.0"'):
        to_current({"cniVersion": "7.0.0"})


FOUR = st.ip_addresses(v=4).map(lambda a: {"version": "4", "address": f"{a}/24"})
SIX = st.ip_addresses(v=6).map(lambda a: {"version": "6", "address": f"{a}/64"})
ROUTES = st.lists(
    st.sampled_from(
        [{"dst": "0.0.0.0/0"}, {"dst": "10.0.0.0/8", "gw": "10.0.0.1"}, {"dst": "::/0"}]
    ),
    max_size=4,
)


def results(ips: st.SearchStrategy[list[dict[str, Any]]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda ips, routes, servers: {
            "cniVersion": "0.4.0",
            "ips": ips,
            **({"routes": routes} if routes else {}),
            "dns": {"nameservers": servers} if servers else {},
        },
        ips,
        ROUTES,
        st.lists(st.just("1.1.1.1"), max_size=1),
    )


@given(
    results(st.lists(st.one_of(FOUR, SIX), min_size=1, max_size=4)),
    st.sampled_from(["0.3.0", "0.3.1", "0.4.0", "1.0.0"]),
)
def test_lists_come_back_as_they_went(result: dict[str, Any], version: str) -> None:
    there = as_version(result, version)
    assert there["cniVersion"] == version
    assert to_current(there) == result


@given(results(st.tuples(FOUR, SIX).map(list)), st.sampled_from(["0.1.0", "0.2.0"]))
def test_one_of_each_family_survives_the_oldest_form(result: dict[str, Any], version: str) -> None:
    back = to_current(as_version(result, version))
    assert back["ips"] == result["ips"]
    assert sorted(map(str, back.get("routes", []))) == sorted(map(str, result.get("routes", [])))
    assert back["dns"] == result["dns"]
