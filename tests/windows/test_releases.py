from __future__ import annotations

import pytest

from transom.runtime.sim import catalogue, names
from transom.windows import builds, match, releases
from transom.windows.builds import BUILDS
from transom.windows.records import NodeTarget
from transom.windows.support import SUPPORT


@pytest.mark.windows("WIN-OS-001", "SUP-OS-006", "SUP-OS-007")
@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("1.14", {17763}),
        ("1.17", {17763}),
        ("1.18", {17763, 18362, 18363}),
        ("1.19", {17763, 18363, 19041}),
        ("1.20", {17763, 18363, 19041}),
        ("1.21", {17763, 19041, 19042}),
        ("1.22", {17763, 19041, 19042}),
        ("1.23", {17763, 19042, 20348}),
        ("1.34", {17763, 19042, 20348}),
        ("1.35", {20348, 26100}),
        ("1.37", {20348, 26100}),
    ],
)
def test_builds_of_a_release(release: str, expected: set[int]) -> None:
    parsed = releases.parse_release_version(release)
    assert set(releases.release_facts(parsed).builds) == expected
    assert {number for number in BUILDS if releases.supports_build(parsed, number)} == expected


@pytest.mark.windows("WIN-RUN-004")
@pytest.mark.parametrize(
    ("release", "runtimes", "stage"),
    [
        ((1, 14), {"docker": "18.09"}, ""),
        ((1, 17), {"docker": "19.03"}, ""),
        ((1, 19), {"docker": "19.03", "containerd": "1.4.0"}, "beta"),
        ((1, 20), {"docker": "19.03", "containerd": "1.4.0"}, "stable"),
        ((1, 24), {"containerd": "1.4.0"}, "stable"),
        ((1, 26), {"containerd": "1.6.0"}, "stable"),
        ((1, 99), {"containerd": "2.0.0"}, "stable"),
    ],
)
def test_runtimes_of_a_release(
    release: tuple[int, int], runtimes: dict[str, str], stage: str
) -> None:
    facts = releases.release_facts(release)
    assert (facts.runtimes(), facts.containerd_stage) == (runtimes, stage)
    assert releases.GATES["CRIContainerD"].stage(release) == stage
    assert facts.runtime == next(iter(runtimes))


def test_the_pause_image_of_a_release_runs_on_its_nodes() -> None:
    for facts in releases.RELEASES.values():
        made_for = releases.PAUSE_BUILDS.get(facts.pause)
        assert made_for is not None and facts.builds[0] in made_for, facts
        for build in facts.builds:
            image = releases.node_pause_image(facts.release, build)
            assert build in releases.PAUSE_BUILDS[image], (facts.release, build)


@pytest.mark.parametrize("image", releases.PAUSE_BUILDS)
def test_pause_images_are_as_the_simulated_registry_has_them(image: str) -> None:
    found = catalogue.default_catalogue().find(names.parse_image_name(image))
    assert {platform.build for platform in found.platforms if platform.os == "windows"} == set(
        releases.PAUSE_BUILDS[image]
    )


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        (
            "WindowsGMSA",
            {(1, 13): "", (1, 14): "alpha", (1, 16): "beta", (1, 18): "stable", (1, 30): "stable"},
        ),
        ("HyperVContainer", {(1, 14): "alpha", (1, 20): "deprecated", (1, 21): ""}),
        ("WinOverlay", {(1, 19): "alpha", (1, 20): "beta", (1, 34): "stable"}),
        (
            "WindowsHostProcessContainers",
            {(1, 21): "", (1, 22): "alpha", (1, 23): "beta", (1, 26): "stable", (1, 36): "stable"},
        ),
    ],
)
def test_stages_of_features(name: str, stages: dict[tuple[int, int], str]) -> None:
    gate = releases.GATES[name]
    assert {release: gate.stage(release) for release in stages} == stages
    assert [gate.default(release) for release, stage in stages.items()] == [
        s in ("beta", "stable") for s in stages.values()
    ]


@pytest.mark.parametrize(
    ("name", "release", "stage", "default", "locked"),
    [
        ("NodeLogQuery", (1, 30), "beta", False, False),
        ("NodeLogQuery", (1, 36), "stable", True, True),
        ("WindowsHostNetwork", (1, 25), "", False, False),
        ("WindowsHostNetwork", (1, 26), "alpha", True, False),
        ("WindowsHostNetwork", (1, 33), "deprecated", False, False),
        ("WinDSR", (1, 32), "alpha", False, False),
        ("WinDSR", (1, 33), "beta", True, False),
        ("WinDSR", (1, 34), "stable", True, True),
        ("PodLevelResourceManagers", (1, 37), "beta", False, False),
        ("CSIMigrationAWS", (1, 22), "beta", False, False),
        ("CSIMigrationAWS", (1, 30), "stable", True, False),
    ],
)
def test_defaults_of_gates_are_those_of_kubernetes(
    name: str, release: tuple[int, int], stage: str, default: bool, locked: bool
) -> None:
    gate = releases.GATES[name]
    assert (gate.stage(release), gate.default(release), gate.locked(release)) == (
        stage,
        default,
        locked,
    )


@pytest.mark.parametrize(
    ("release", "build", "pause"),
    [
        ((1, 20), 17763, "mcr.microsoft.com/oss/kubernetes/pause:1.4.1"),
        ((1, 22), 17763, "k8s.gcr.io/pause:3.5"),
        ((1, 24), 17763, "k8s.gcr.io/pause:3.6"),
        ((1, 30), 17763, "registry.k8s.io/pause:3.6"),
        ((1, 31), 20348, "registry.k8s.io/pause:3.6"),
        ((1, 36), 20348, "registry.k8s.io/pause:3.6"),
    ],
)
def test_nodes_of_a_release_are_what_it_recommends(
    release: tuple[int, int], build: int, pause: str
) -> None:
    assert releases.node_build(release) == build
    assert releases.node_pause_image(release, build) == pause


def test_windows_server_2025_has_a_newer_pause_image() -> None:
    assert releases.node_pause_image((1, 36), 26100) == "registry.k8s.io/pause:3.10.2"
    assert releases.node_pause_image((1, 20), 20348) == ""


@pytest.mark.parametrize("text", ["", "1", "v1", "one.two", "1.x", "-1.20"])
def test_invalid_releases(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kubernetes release"):
        releases.parse_release_version(text)


def test_releases_have_several_spellings() -> None:
    assert {
        releases.parse_release_version(text) for text in ("1.20", "v1.20.15", " 1.20.0 ", "v1.20")
    } == {(1, 20)}


@pytest.mark.parametrize(
    ("feature", "record"),
    [
        ("Direct Server Return (DSR)", "SUP-SVC-009"),
        ("IPv6 DualStack", "SUP-SVC-012"),
        ("Session Affinity", "SUP-SVC-008"),
    ],
)
def test_the_host_networking_service_and_the_documents_agree(feature: str, record: str) -> None:
    for build in BUILDS.values():
        assert builds.has_hns_feature(build, feature) == match.record_holds(
            SUPPORT[record], NodeTarget(build=build.number)
        ), build
