"""Which image of an index is for a node."""

from __future__ import annotations

from typing import Any

import pytest

from transom.runtime.images.index import ImageIndexState, IndexedImage, NameMeaning
from transom.runtime.images.model import ContentDescriptor, ImageNotFound
from transom.runtime.images.platforms import NodePlatform, choose_descriptors, normal_platform

W17763, W20348 = NodePlatform("windows", build=17763), NodePlatform("windows", build=20348)
W26100 = NodePlatform("windows", build=26100, stable_abi=True)
LINUX, ARM7, ARM64 = (
    NodePlatform("linux"),
    NodePlatform("linux", "arm", "v7"),
    NodePlatform("linux", "arm64"),
)


def entry(text: str) -> ContentDescriptor:
    """`linux/arm/v7`, `windows/amd64:10.0.17763.1`, or `?` for one that does not say."""
    if text == "?":
        return ContentDescriptor("", text, 1)
    names, _, version = text.partition(":")
    parts = names.split("/")
    platform: dict[str, Any] = {"os": parts[0], "architecture": parts[1]}
    if len(parts) > 2:
        platform["variant"] = parts[2]
    if version:
        platform["os.version"] = version
    return ContentDescriptor("", text, 1, platform=platform)


@pytest.mark.parametrize(
    ("wanted", "listed", "chosen"),
    [
        (LINUX, "linux/arm64 linux/amd64 windows/amd64:10.0.17763.1", "linux/amd64"),
        (LINUX, "linux/x86_64", "linux/x86_64"),
        (LINUX, "linux/arm64 windows/amd64", None),
        (ARM64, "linux/arm/v7 linux/arm64/v8", "linux/arm64/v8"),
        (ARM64, "linux/aarch64", "linux/aarch64"),
        (ARM7, "linux/arm/v5 linux/arm/v6 linux/arm/v7 linux/arm/v8", "linux/arm/v7"),
        (ARM7, "linux/arm/v5 linux/arm/v6", "linux/arm/v6"),
        (ARM7, "linux/arm", "linux/arm"),
        (ARM7, "linux/arm/v8 linux/arm64/v8", None),
        (
            W17763,
            "linux/amd64 windows/amd64:10.0.17763.1697 windows/amd64:10.0.20348.587",
            "windows/amd64:10.0.17763.1697",
        ),
        (W17763, "windows/amd64:10.0.17763", "windows/amd64:10.0.17763"),
        (W17763, "windows/amd64:10.0.1776.1 windows/amd64:10.0.177630.1", None),
        (W17763, "windows/amd64:10.0.17134.1 windows/amd64:10.0.20348.1", None),
        (W17763, "windows/arm64:10.0.17763.1", None),
        (W17763, "windows/amd64 windows/amd64:10.0.17763.1", "windows/amd64:10.0.17763.1"),
        (W20348, "windows/amd64", "windows/amd64"),
        (W20348, "windows/amd64:10.0.17763.1", None),
        (
            W26100,
            "windows/amd64:10.0.17763.1 windows/amd64:10.0.20348.1 windows/amd64:10.0.25398.1",
            "windows/amd64:10.0.25398.1",
        ),
        (
            W26100,
            "windows/amd64:10.0.20348.1 windows/amd64:10.0.26100.1",
            "windows/amd64:10.0.26100.1",
        ),
        (W26100._replace(stable_abi=False), "windows/amd64:10.0.20348.1", None),
        (LINUX, "? windows/amd64", "?"),
        (LINUX, "? linux/amd64", "linux/amd64"),
        (LINUX, "", None),
    ],
)
def test_choose(wanted: NodePlatform, listed: str, chosen: str | None) -> None:
    entries = [entry(text) for text in listed.split()]
    if chosen is None:
        with pytest.raises(ImageNotFound) as caught:
            choose_descriptors(wanted, entries)
        assert str(caught.value) == "no match for platform in manifest: not found"
    else:
        assert choose_descriptors(wanted, entries)[0].digest == chosen


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("x86_64", ""), ("amd64", "")),
        (("AARCH64", "v8"), ("arm64", "")),
        (("armhf", ""), ("arm", "v7")),
        (("arm", ""), ("arm", "v7")),
        (("arm", "6"), ("arm", "v6")),
        (("armel", ""), ("arm", "v6")),
        (("i386", ""), ("386", "")),
        (("s390x", ""), ("s390x", "")),
    ],
)
def test_normal_names(given: tuple[str, str], expected: tuple[str, str]) -> None:
    assert normal_platform(*given) == expected


@pytest.mark.parametrize(
    ("node", "found"),
    [
        (W17763, "pulled"),
        (W20348, "by-hand-20348"),
        (NodePlatform("windows", build=19041), "by-hand-20348"),
        (LINUX, "linux"),
        (ARM64, None),
    ],
)
def test_a_name_means_what_was_pulled_for_such_a_node_or_put_there_by_hand(
    node: NodePlatform, found: str | None
) -> None:
    """A build that does not fit is found too: the container's start then says what is wrong."""
    state = ImageIndexState()
    for identity, platform in (
        ("pulled", W17763),
        ("by-hand-17763", W17763),
        ("by-hand-20348", W20348),
        ("linux", LINUX),
    ):
        state.images[identity] = IndexedImage("", 0, platform)
    state.names["x:1"] = {
        W17763.key: NameMeaning("pulled", ""),
        "a": NameMeaning("by-hand-17763", "", True),
        "b": NameMeaning("by-hand-20348", "", True),
        LINUX.key: NameMeaning("linux", ""),
    }
    meaning = state.find("x:1", node)
    assert (meaning.id if meaning else None) == found
