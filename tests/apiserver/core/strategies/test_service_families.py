"""Services of both families, where the gate IPv6DualStack is open."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.harness import Api, start

from transom.kit.clock import VirtualClock
from transom.store.memory import MemoryStore

SERVICES = "/api/v1/namespaces/default/services"
MERGE = "application/merge-patch+json"
RANGES = "10.96.0.0/16,fd00:10:96::/112"
GATE = {"IPv6DualStack": True}
NONE = {"clusterIP": "None"}
SELECTED = {"selector": {"a": "b"}}


def _service(spec: dict[str, Any], name: str = "s") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def _dual(ranges: str = RANGES) -> Api:
    return await start(service_cidr=ranges, feature_gates=GATE)


def _families(ips: list[str]) -> list[str]:
    return ["IPv6" if ":" in ip else "IPv4" for ip in ips]


@pytest.mark.parametrize(
    ("spec", "policy", "families"),
    [
        ({}, "SingleStack", ["IPv4"]),
        ({"ipFamilies": ["IPv6"]}, "SingleStack", ["IPv6"]),
        ({"ipFamilyPolicy": "PreferDualStack"}, "PreferDualStack", ["IPv4", "IPv6"]),
        (
            {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]},
            "RequireDualStack",
            ["IPv6", "IPv4"],
        ),
        (
            {
                "ipFamilyPolicy": "PreferDualStack",
                "clusterIP": "fd00:10:96::5",
                "clusterIPs": ["fd00:10:96::5"],
            },
            "PreferDualStack",
            ["IPv6", "IPv4"],
        ),
        # Two families, and no policy allows two: the policy becomes the usual one all
        # the same.
        ({"ipFamilies": ["IPv6", "IPv4"]}, "SingleStack", ["IPv6", "IPv4"]),
    ],
)
async def test_addresses_of_the_families(
    spec: dict[str, Any], policy: str, families: list[str]
) -> None:
    api = await _dual()
    made = (await api.ok("POST", SERVICES, _service(spec)))["spec"]
    assert (made["ipFamilyPolicy"], made["ipFamilies"]) == (policy, families)
    assert _families(made["clusterIPs"]) == families
    assert made["clusterIP"] == made["clusterIPs"][0]
    shown = (
        await api.ok("POST", SERVICES + "?dryRun=All", _service(spec, "t"))
        if "clusterIP" not in spec
        else None
    )
    if shown is not None:
        assert shown["spec"]["ipFamilies"] == families
        assert "clusterIPs" not in shown["spec"]


@pytest.mark.parametrize(
    ("ranges", "spec", "policy", "families"),
    [
        (RANGES, {**NONE, **SELECTED}, "SingleStack", ["IPv4"]),
        (
            RANGES,
            {**NONE, **SELECTED, "ipFamilyPolicy": "PreferDualStack"},
            "PreferDualStack",
            ["IPv4", "IPv6"],
        ),
        (RANGES, NONE, "RequireDualStack", ["IPv4", "IPv6"]),
        ("10.96.0.0/16", NONE, "RequireDualStack", ["IPv4", "IPv6"]),
        (
            "10.96.0.0/16",
            {**NONE, "ipFamilyPolicy": "PreferDualStack"},
            "PreferDualStack",
            ["IPv4"],
        ),
        ("fd00:10:96::/112", {}, "SingleStack", ["IPv6"]),
    ],
)
async def test_headless_services_and_clusters_of_one_family(
    ranges: str, spec: dict[str, Any], policy: str, families: list[str]
) -> None:
    api = await _dual(ranges)
    made = (await api.ok("POST", SERVICES, _service(spec)))["spec"]
    assert (made["ipFamilyPolicy"], made["ipFamilies"]) == (policy, families)


@pytest.mark.parametrize(
    ("ranges", "spec", "field", "says"),
    [
        (
            "10.96.0.0/16",
            {"ipFamilyPolicy": "RequireDualStack"},
            "spec.ipFamilyPolicy",
            'Invalid value: "RequireDualStack": Cluster is not configured for dual stack services',
        ),
        (
            "10.96.0.0/16",
            {"ipFamilies": ["IPv6"]},
            "spec.ipFamilies[0]",
            "Invalid value: []string(nil): ipfamily IPv6 is not configured on cluster",
        ),
        (
            "10.96.0.0/16",
            {"clusterIP": "fd00:10:96::5"},
            "spec.clusterIPs[0]",
            (
                'Invalid value: []string{"fd00:10:96::5"}: may not use IPv6 on a cluster which '
                "is not configured for it"
            ),
        ),
        (
            RANGES,
            {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"]},
            "spec.ipFamilyPolicy",
            'Invalid value: "SingleStack": must be RequireDualStack or PreferDualStack when '
            "multiple "
            "'ipFamilies' are specified",
        ),
        (
            RANGES,
            {"clusterIP": "fd00:1::1"},
            "spec.clusterIPs",
            'Invalid value: []string{"fd00:1::1"}: failed to allocated ip:fd00:1::1 with '
            "error:provided IP is not in the valid "
            "range. The range of valid IPs is fd00:10:96::/112",
        ),
    ],
)
async def test_refusals(ranges: str, spec: dict[str, Any], field: str, says: str) -> None:
    api = await _dual(ranges)
    status, answer = await api.call("POST", SERVICES, _service(spec))
    assert status == 422, answer
    [cause] = answer["details"]["causes"]
    assert (cause["field"], cause["message"]) == (field, says)


async def test_a_second_family_comes_and_goes() -> None:
    api = await _dual()
    one = (await api.ok("POST", SERVICES, _service({})))["spec"]["clusterIPs"]
    both = (
        await api.ok(
            "PATCH",
            SERVICES + "/s",
            {"spec": {"ipFamilyPolicy": "PreferDualStack"}},
            media=MERGE,
        )
    )["spec"]
    assert both["ipFamilies"] == ["IPv4", "IPv6"]
    assert both["clusterIPs"][0] == one[0]
    again = _service({"clusterIP": both["clusterIPs"][1]}, "t")
    assert (await api.call("POST", SERVICES, again))[0] == 422, "the second address is taken"
    single = (
        await api.ok(
            "PATCH", SERVICES + "/s", {"spec": {"ipFamilyPolicy": "SingleStack"}}, media=MERGE
        )
    )["spec"]
    assert (single["clusterIPs"], single["ipFamilies"]) == (one, ["IPv4"])
    await api.ok("POST", SERVICES, again)  # it was given back


async def test_changes_of_type_give_all_addresses_back() -> None:
    api = await _dual()
    spec = (await api.ok("POST", SERVICES, _service({"ipFamilyPolicy": "RequireDualStack"})))[
        "spec"
    ]
    named = {"spec": {"type": "ExternalName", "externalName": "example.com", "ports": None}}
    after = (await api.ok("PATCH", SERVICES + "/s", named, media=MERGE))["spec"]
    assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} & after.keys()
    for index, address in enumerate(spec["clusterIPs"]):
        await api.ok("POST", SERVICES, _service({"clusterIP": address}, f"t{index}"))
    back = {
        "spec": {
            "type": "ClusterIP",
            "externalName": None,
            "ipFamilyPolicy": "PreferDualStack",
            "ports": [{"port": 80}],
        }
    }
    again = (await api.ok("PATCH", SERVICES + "/s", back, media=MERGE))["spec"]
    assert _families(again["clusterIPs"]) == ["IPv4", "IPv6"]


async def test_services_from_before_the_gate_show_their_families() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    before = await start(store, clock)
    await before.ok("POST", SERVICES, _service({}))
    await before.ok("POST", SERVICES, _service({**NONE, **SELECTED}, "h"))
    await before.ok("POST", SERVICES, _service({"ipFamilyPolicy": "PreferDualStack"}, "d"))
    api = await start(store, clock, service_cidr=RANGES, feature_gates=GATE)
    for name, policy, families in (
        ("s", "SingleStack", ["IPv4"]),
        ("h", "PreferDualStack", ["IPv4", "IPv6"]),
        ("d", "SingleStack", ["IPv4"]),
        ("kubernetes", "SingleStack", ["IPv4"]),
    ):
        spec = (await api.ok("GET", f"{SERVICES}/{name}"))["spec"]
        assert (spec["ipFamilyPolicy"], spec["ipFamilies"]) == (policy, families), name


async def test_large_ranges() -> None:
    """All of an IPv4 range can be had; of an IPv6 range, the first part."""

    api = await _dual("10.96.0.0/12,fd00:10:96::/108")
    await api.ok("POST", SERVICES, _service({"clusterIP": "10.111.255.254"}))
    await api.ok("POST", SERVICES, _service({"clusterIP": "fd00:10:96::ffff"}, "t"))
    status, answer = await api.call(
        "POST", SERVICES, _service({"clusterIP": "fd00:10:96::1:0"}, "u")
    )
    assert (status, "not in the valid range" in answer["message"]) == (422, True)
