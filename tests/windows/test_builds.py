from __future__ import annotations

import pytest

from transom.windows import builds


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("17763", 17763),
        ("10.0.17763", 17763),
        ("10.0.17763.1", 17763),
        ("1809", 17763),
        ("LTSC2019", 17763),
        ("20h2", 19042),
        ("ltsc2022", 20348),
        ("10.0.20348.587", 20348),
        ("1", None),
        ("10.0.1", None),
        ("ltsc", None),
    ],
)
def test_a_build_has_many_names(name: str, number: int | None) -> None:
    build = builds.build_by_name(name)
    assert (build.number if build else None) == number


@pytest.mark.parametrize(
    ("tag", "number"),
    [
        ("ltsc2019", 17763),
        ("1809-KB4592440", 17763),
        ("4.8-20210209-windowsservercore-ltsc2019", 17763),
        ("3.1-nanoserver-1909", 18363),
        ("1.4.1-windows-2004-amd64", 19041),
        ("10.0.19042.746-amd64", 19042),
        ("v1-windows_20H2", 19042),
        ("latest", None),
        ("2.1809.3", None),
        ("3.2", None),
        ("from-1809-to-1909", None),
    ],
)
def test_a_tag_names_a_build(tag: str, number: int | None) -> None:
    build = builds.build_of_tag(tag)
    assert (build.number if build else None) == number


@pytest.mark.parametrize(
    ("host", "container", "strict", "stable"),
    [
        (17763, 17763, True, True),
        (17763, 18363, False, False),
        (18363, 17763, False, False),
        (20348, 17763, False, False),
        (20348, 20348, True, True),
        (25398, 20348, False, True),
        (25398, 17763, False, False),
        (26100, 20348, False, True),
        (26100, 25398, False, True),
        (27000, 20348, False, False),  # two long-term releases back
        (27000, 26100, False, True),
        (20348, 25398, False, False),
    ],
)
def test_process_isolation(host: int, container: int, strict: bool, stable: bool) -> None:
    assert builds.process_isolation(host, container) is strict
    assert builds.process_isolation(host, container, stable_abi=True) is stable


def test_hyperv_isolation_takes_older_builds() -> None:
    assert builds.hyperv_isolation(19041, 17763)
    assert builds.hyperv_isolation(19041, 19041)
    assert not builds.hyperv_isolation(17763, 19041)


def test_versions() -> None:
    assert builds.DEFAULT.full_version == "10.0.17763.1697"
    assert builds.DEFAULT.version == "10.0.17763"
    assert all(number == build.number for number, build in builds.BUILDS.items())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20348", (20348, 0)),
        ("17763.1697", (17763, 1697)),
        ("10.0.17763.1697", (17763, 1697)),
        ("10.0.26100", (26100, 0)),
        ("ltsc2025", (26100, 0)),
        ("12345", None),
        ("2019", None),
        ("10.0.17763.1697.1", None),
    ],
)
def test_builds_of_nodes_may_have_a_revision(text: str, expected: tuple[int, int] | None) -> None:
    assert builds.parse_node_build(text) == expected


def test_an_older_revision_has_an_older_network_service() -> None:
    assert builds.build_with_revision(17763) is builds.BUILDS[17763]
    old = builds.build_with_revision(17763, 316)
    assert (old.full_version, old.hns) == ("10.0.17763.316", (9, 2))
    assert not builds.has_hns_feature(old, "Direct Server Return (DSR)")
    assert builds.has_hns_feature(
        builds.build_with_revision(17763, 1817), "Direct Server Return (DSR)"
    )
