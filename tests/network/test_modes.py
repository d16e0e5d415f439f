"""Which network modes and solutions fit a cluster, and what is reported about those that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from transom.network.cni.plugins import PLUGINS
from transom.network.modes import (
    SOLUTIONS,
    NetworkPlan,
    NetworkProblem,
    NodePlan,
    check_network_plan,
    flannel_backend,
    network_solution,
)
from transom.node import network_settings as netconfig
from transom.windows.records import ALL_NETWORKS
from transom.windows.registry import RECORDS

LINUX = NodePlan("linux-1", "linux")
OLD, NEW = NodePlan("win-old", "windows", 17763, 1697), NodePlan("win-new", "windows", 19041, 746)
MIXED = NetworkPlan(
    nodes=(LINUX, OLD), pod_cidrs=("10.244.0.0/16",), service_cidrs=("10.96.0.0/12",)
)
BOTH = frozenset({"IPv6DualStack"})


def found(plan: NetworkPlan, *severities: str) -> list[str]:
    return [
        problem.id
        for problem in check_network_plan(plan)
        if not severities or problem.severity in severities
    ]


def the(plan: NetworkPlan, id: str) -> NetworkProblem:
    (problem,) = [problem for problem in check_network_plan(plan) if problem.id == id]
    return problem


@pytest.mark.windows("NET-09", "SUP-NET-006")
def test_five_modes_and_every_plugin_of_the_tables_exists() -> None:
    assert {s.mode for s in SOLUTIONS} == set(ALL_NETWORKS)
    for way in SOLUTIONS:
        assert way.record in RECORDS
        assert set(way.windows) <= set(PLUGINS)
    for mode, plugin in netconfig.USUAL_PLUGINS.items():
        usual = network_solution(mode)
        assert usual is not None and usual.plugin == plugin


@pytest.mark.windows("NET-13", "NET-22", "NET-40", "NET-41", "SUP-NET-017")
def test_flannel_delegates_by_backend() -> None:
    bridge, vxlan = network_solution("l2bridge", "flannel"), network_solution("overlay", "flannel")
    assert bridge is not None and vxlan is not None
    assert bridge.windows == ("flannel", "win-bridge") and vxlan.windows == (
        "flannel",
        "win-overlay",
    )
    assert flannel_backend("l2bridge", {}) == {"Type": "host-gw"}
    assert flannel_backend("overlay", {"Name": "vxlan0"}) == {
        "Type": "vxlan",
        "VNI": 4096,
        "Port": 4789,
        "Name": "vxlan0",
    }


@pytest.mark.parametrize(
    ("mode", "plugin"), [(s.mode, s.plugin) for s in SOLUTIONS if s.mode != "nat"]
)
def test_every_solution_fits_a_cluster_of_both_systems(mode: str, plugin: str) -> None:
    assert found(replace(MIXED, mode=mode, plugin=plugin), "error", "warning") == []


@pytest.mark.windows("WIN-NET-012", "NET-36")
def test_nat_is_refused() -> None:
    problem = the(replace(MIXED, mode="nat"), "WIN-NET-012")
    assert (
        problem.severity == "error"
        and problem.remedy == "Choose l2bridge, l2tunnel, overlay or transparent."
    )


@pytest.mark.parametrize(
    ("mode", "plugin", "id"),
    [
        ("l2tunnel", "flannel", "SUP-NET-010"),
        ("transparent", "win-bridge", "SUP-NET-014"),
        ("overlay", "azure", "SUP-NET-012"),
        ("l2bridge", "ovn", "SUP-NET-009"),
        ("carrier-pigeon", "", "SUP-NET-006"),
    ],
)
@pytest.mark.windows("NET-16", "SUP-NET-010")
def test_a_plugin_that_does_not_make_the_mode(mode: str, plugin: str, id: str) -> None:
    assert found(replace(MIXED, mode=mode, plugin=plugin), "error") == [id]


@pytest.mark.parametrize(
    ("ours", "linux", "texts"),
    [
        ({}, None, []),
        ({"VNI": 4097}, None, []),
        (
            {"VNI": 1},
            None,
            [
                (
                    "invalid VXLAN backend config. VNI [1] must be greater than or equal to 4096 "
                    "on Windows"
                )
            ],
        ),
        (
            {"vni": 4095, "port": 8472},
            None,
            [
                (
                    "invalid VXLAN backend config. VNI [4095] must be greater than or equal to "
                    "4096 on Windows"
                ),
                (
                    "invalid VXLAN backend config. Port [8472] is not supported on Windows. Omit "
                    "the setting to default to port 4789"
                ),
            ],
        ),
        (
            {"DirectRouting": True, "GBP": True},
            None,
            [
                "invalid VXLAN backend config. DirectRouting is not supported on Windows",
                "invalid VXLAN backend config. GBP is not supported on Windows",
            ],
        ),
        (
            {"MacPrefix": "0E2A"},
            None,
            [
                "invalid VXLAN backend config.MacPrefix [0E2A] is invalid, prefix must be of "
                "the format "
                "xx-xx e.g. 0E-2A"
            ],
        ),
        (
            {},
            {"Type": "vxlan"},  # flannel's own numbers for Linux
            [
                (
                    "invalid VXLAN backend config. VNI [1] must be greater than or equal to 4096 "
                    "on Windows"
                ),
                (
                    "invalid VXLAN backend config. Port [8472] is not supported on Windows. Omit "
                    "the setting to default to port 4789"
                ),
            ],
        ),
        ({}, {"Type": "vxlan", "VNI": 4096, "Port": 4789}, []),
        (
            {},
            {"Type": "vxlan", "VNI": 4100, "Port": 4789},
            ["Linux nodes have VNI 4100, Windows nodes VNI 4096"],
        ),
        (
            {},
            {"Type": "host-gw"},
            ["flannel's backend host-gw of Linux nodes does not fit overlay, which needs vxlan"],
        ),
    ],
)
@pytest.mark.windows("WIN-NET-008", "WIN-NET-009", "CNI-05", "CNI-06", "NET-10", "SUP-NET-007")
def test_numbers_of_vxlan(
    ours: dict[str, Any], linux: dict[str, Any] | None, texts: list[str]
) -> None:
    problems = check_network_plan(replace(MIXED, mode="overlay", backend=ours, linux_backend=linux))
    assert [problem.message for problem in problems if problem.severity == "error"] == texts


def test_clusters_without_windows_may_have_any_numbers() -> None:
    plan = NetworkPlan(
        mode="overlay", nodes=(LINUX,), backend={"VNI": 1}, cni_version="0.4.0", dual_stack=True
    )
    assert found(plan) == []


def test_host_gateway_beside_vxlan() -> None:
    assert found(replace(MIXED, linux_backend={"Type": "vxlan"}), "error") == ["SUP-NET-007"]
    assert found(replace(MIXED, backend={"Type": "vxlan"}), "error") == ["SUP-NET-007"]


@pytest.mark.parametrize(
    ("build", "revision", "ids"),
    [
        (17763, 300, ["WIN-NET-010", "WIN-NET-011"]),
        (17763, 348, ["WIN-NET-010"]),
        (17763, 379, []),
        (17763, None, []),
        (18362, 1, []),
        (19041, 1, []),
    ],
)
@pytest.mark.windows("WIN-NET-010", "WIN-NET-011", "NET-25", "LNET-10")
def test_updates_for_overlay(build: int, revision: int | None, ids: list[str]) -> None:
    plan = NetworkPlan(mode="overlay", nodes=(NodePlan("windows-1", "windows", build, revision),))
    assert found(plan, "error") == ids
    for problem in check_network_plan(plan):
        assert (problem.node == "windows-1") is (problem.id in ids)
    if ids:
        assert "KB4489899" in check_network_plan(plan)[0].text and check_network_plan(plan)[
            0
        ].text.startswith("windows-1: ")
    assert found(replace(plan, mode="l2bridge"), "error") == []


@pytest.mark.parametrize(
    ("release", "gates", "off", "severity"),
    [
        ((1, 19), frozenset(), frozenset(), "error"),
        ((1, 19), frozenset({"WinOverlay"}), frozenset(), "info"),
        ((1, 20), frozenset(), frozenset(), "info"),
        ((1, 20), frozenset(), frozenset({"WinOverlay"}), "error"),
        ((1, 34), frozenset(), frozenset(), None),
    ],
)
@pytest.mark.windows("WIN-NET-019", "NET-19", "LNET-09")
def test_the_gate_of_overlay(
    release: Any, gates: frozenset[str], off: frozenset[str], severity: str | None
) -> None:
    plan = replace(MIXED, mode="overlay", release=release, gates=gates, off=off)
    problems = [p for p in check_network_plan(plan) if p.id == "WIN-NET-019"]
    assert [p.severity for p in problems] == ([severity] if severity else [])
    if severity == "error":
        assert problems[0].message == "WinOverlay feature gate not enabled"


@pytest.mark.parametrize(
    ("version", "warned"),
    [("0.11.0", True), ("v0.11.0-windows", True), ("0.12.0", False), ("0.13.0", False)],
)
@pytest.mark.windows("WIN-NET-007", "CNI-04")
def test_flannels_version(version: str, warned: bool) -> None:
    plan = replace(MIXED, mode="overlay", flannel_version=version)
    assert ("WIN-NET-007" in found(plan, "warning")) is warned
    assert "WIN-NET-006" in found(plan, "info")
    assert found(replace(plan, mode="l2bridge"), "warning") == []


# ---- families ----


@pytest.mark.parametrize(
    ("change", "ids"),
    [
        ({"pod_cidrs": ("fd00::/48",), "service_cidrs": ("fd01::/112",)}, ["WIN-NET-016"]),
        (
            {"pod_cidrs": ("10.244.0.0/16", "fd00::/48"), "service_cidrs": ("fd01::/112",)},
            ["WIN-NET-016"],
        ),
        ({"dual_stack": True}, ["DS-01"]),  # the gate is off
        ({"dual_stack": True, "gates": BOTH}, ["WIN-NET-015"]),  # an old node
        ({"dual_stack": True, "gates": BOTH, "nodes": (LINUX, NEW)}, []),
        (
            {"dual_stack": True, "gates": BOTH, "nodes": (LINUX, NEW._replace(revision=609))},
            ["WIN-NET-015"],
        ),
        ({"dual_stack": True, "gates": BOTH, "nodes": (LINUX, NEW._replace(revision=610))}, []),
        (
            {"dual_stack": True, "gates": BOTH, "release": (1, 18), "nodes": (LINUX, NEW)},
            ["WIN-NET-014"],
        ),
        (
            {"dual_stack": True, "gates": BOTH, "mode": "overlay", "nodes": (LINUX, NEW)},
            ["WIN-NET-013"],
        ),
        ({"dual_stack": True, "gates": BOTH, "mode": "l2tunnel", "nodes": (LINUX, NEW)}, ["DS-01"]),
        (
            {"dual_stack": True, "gates": BOTH, "mode": "transparent", "nodes": (LINUX, NEW)},
            ["DS-01"],
        ),
        ({"pod_cidrs": ("fd00::/48",), "nodes": (LINUX,)}, []),
    ],
)
@pytest.mark.windows(
    "WIN-NET-013",
    "WIN-NET-014",
    "WIN-NET-015",
    "WIN-NET-016",
    "IP6-01",
    "IP6-02",
    "DS-01",
    "DS-02",
    "DS-03",
)
def test_families(change: dict[str, Any], ids: list[str]) -> None:
    wanted = [next(r.id for r in RECORDS.values() if id == r.id or id in r.checklist) for id in ids]
    assert found(replace(MIXED, **change), "error", "warning") == wanted


def test_both_families_need_a_gate() -> None:
    problem = check_network_plan(replace(MIXED, dual_stack=True))[0]
    assert problem.message == "dual stack needs the feature gate IPv6DualStack, which is off"


# ---- plugins ----


@pytest.mark.parametrize(
    ("change", "id"),
    [
        ({"cni_version": "0.3.0"}, ""),
        ({"cni_version": "0.3.1"}, "WIN-NET-004"),
        ({"cni_version": "0.4.0"}, "WIN-NET-004"),
        ({"cni_version": "0.4.0", "plugin": "win-bridge"}, "WIN-NET-004"),
        ({"cni_version": "0.4.0", "plugins_release": "1.0"}, ""),
        ({"cni_version": "0.4.0", "mode": "overlay"}, "WIN-NET-005"),
        ({"cni_version": "0.4.0", "mode": "l2tunnel"}, ""),
        ({"cni_version": "1.0.0", "mode": "l2tunnel"}, "SUP-NET-001"),
    ],
)
@pytest.mark.windows("WIN-NET-004", "WIN-NET-005", "CNI-01", "CNI-02")
def test_versions_of_the_specification(change: dict[str, Any], id: str) -> None:
    problems = [p for p in check_network_plan(replace(MIXED, **change)) if p.severity == "error"]
    assert [p.id for p in problems] == ([id] if id else [])
    if id.startswith("WIN"):
        text = (
            f'incompatible CNI versions; config is "{change["cni_version"]}", plugin supports '
            '["0.1.0" "0.2.0" "0.3.0"]'
        )
        assert (
            problems[0].message == text
            and problems[0].remedy == 'Set "cniVersion": "0.2.0" or "0.3.0".'
        )


@pytest.mark.parametrize(
    ("mode", "plugin", "ipam", "id"),
    [
        ("l2bridge", "win-bridge", "", ""),
        ("l2bridge", "win-bridge", "host-local", ""),
        ("l2tunnel", "azure", "azure-vnet-ipam", ""),
        ("l2bridge", "win-bridge", "azure-vnet-ipam", "SUP-NET-032"),
        ("overlay", "flannel", "", "SUP-NET-031"),
        ("l2tunnel", "azure", "host-local", "SUP-NET-030"),
    ],
)
@pytest.mark.windows("IPAM-01", "IPAM-02", "IPAM-03")
def test_ipam_serves_some(mode: str, plugin: str, ipam: str, id: str) -> None:
    assert found(replace(MIXED, mode=mode, plugin=plugin, ipam=ipam), "error") == (
        [id] if id else []
    )


@pytest.mark.windows("WIN-NET-017", "NET-15")
def test_win_bridge_alone_needs_routes() -> None:
    assert found(replace(MIXED, plugin="win-bridge")) == ["WIN-NET-017"]
    assert found(replace(MIXED, plugin="win-bridge", nodes=(OLD,))) == []


def test_errors_come_first() -> None:
    plan = replace(MIXED, mode="overlay", backend={"VNI": 1}, flannel_version="0.11.0")
    assert [p.severity for p in check_network_plan(plan)] == ["error", "warning", "info", "info"]


def test_old_flannels_are_warned_of() -> None:
    plan = replace(MIXED, mode="overlay", gates=frozenset({"WinOverlay"}))
    other = replace(plan, backend={"VNI": 5000})
    texts = [
        problem.message for problem in check_network_plan(other) if problem.severity == "warning"
    ]
    assert any("VNI 4096, not 5000" in text for text in texts)
    assert not [
        p
        for p in check_network_plan(replace(other, flannel_version="0.14.0"))
        if "5000" in p.message
    ]
    for mode in ("l2bridge", "overlay"):
        oldest = replace(plan, mode=mode, flannel_version="0.10.0")
        texts = [
            problem.message
            for problem in check_network_plan(oldest)
            if problem.severity == "warning"
        ]
        assert any("0.10.0 has no backend for Windows" in text for text in texts)
