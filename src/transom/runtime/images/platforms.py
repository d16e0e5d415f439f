"""Selects the images of an index that suit a machine. Pure functions; containerd's rules, and
Windows' build matching.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from transom.runtime.images.model import (
    ContentDescriptor,
    ImageConfiguration,
    NoMatchingPlatform,
    windows_build_number,
)
from transom.windows.builds import process_isolation

_ARCHITECTURES: Final = {
    "x86_64": "amd64",
    "x86-64": "amd64",
    "aarch64": "arm64",
    "i386": "386",
    "i686": "386",
    "armhf": "arm",
    "armel": "arm",
    "armv7l": "arm",
    "armv6l": "arm",
}
_VARIANTS: Final = {"armhf": "v7", "armv7l": "v7", "armel": "v6", "armv6l": "v6"}
_ARM: Final = ("v5", "v6", "v7", "v8")  # each runs images of those before it


class NodePlatform(NamedTuple):
    """The platform of a node, as far as image selection needs it."""

    os: str
    architecture: str = "amd64"
    variant: str = ""
    build: int = 0  # of Windows
    stable_abi: bool = False  # whether the runtime runs older images on newer hosts
    older_builds: bool = False  # whether it pulls older images, even those that cannot start

    def __str__(self) -> str:
        parts = [self.os, self.architecture, self.variant]
        return "/".join(filter(None, parts)) + (f" 10.0.{self.build}" if self.build else "")

    @property
    def key(self) -> str:
        """The key under which the store records what a name refers to on such a node."""
        return "/".join(
            filter(None, (self.os, self.architecture, self.variant, str(self.build or "")))
        )


def platform_of_node(
    system: str,
    build: int = 0,
    architecture: str = "",
    *,
    stable_abi: bool = False,
    older_builds: bool = False,
) -> NodePlatform:
    """Windows containers are amd64, whatever this machine is; Linux containers run on its own
    processor.
    """
    name, variant = normal_platform(
        architecture or ("amd64" if system == "windows" else os.uname().machine)
    )
    return NodePlatform(
        system, name, variant, build if system == "windows" else 0, stable_abi, older_builds
    )


def platform_of_image(config: ImageConfiguration) -> NodePlatform:
    name, variant = normal_platform(config.architecture or "amd64", config.variant)
    return NodePlatform(
        config.os or "linux", name, variant, windows_build_number(config.os_version)
    )


def normal_platform(architecture: str, variant: str = "") -> tuple[str, str]:
    """The canonical names for manifests."""
    raw, variant = architecture.lower(), variant.lower()
    name = _ARCHITECTURES.get(raw, raw)
    variant = _VARIANTS.get(raw, variant)
    if name == "arm":
        variant = "v7" if not variant else variant if variant.startswith("v") else f"v{variant}"
    elif raw != name or (name == "arm64" and variant in ("8", "v8")):
        variant = ""
    return name, variant


def platform_rank(wanted: NodePlatform, found: Mapping[str, Any]) -> tuple[int, int] | None:
    """How well an image for a platform, as written in an index, suits a node; None when it does
    not, lower is better.
    """
    architecture, variant = normal_platform(
        str(found.get("architecture") or ""), str(found.get("variant") or "")
    )
    if str(found.get("os") or "").lower() != wanted.os or architecture != wanted.architecture:
        return None
    if wanted.architecture == "arm":
        if (
            variant not in _ARM
            or wanted.variant not in _ARM
            or _ARM.index(variant) > _ARM.index(wanted.variant)
        ):
            return None
        return (_ARM.index(wanted.variant) - _ARM.index(variant), 0)
    if variant != wanted.variant:
        return None
    if wanted.os != "windows" or not wanted.build:
        return (0, 0)
    version = str(found.get("os.version") or "")
    build = windows_build_number(version)
    if not version:
        return (1, 0)  # for every build
    older = wanted.older_builds and build <= wanted.build
    if not build or not (
        older or process_isolation(wanted.build, build, stable_abi=wanted.stable_abi)
    ):
        return None
    return (0, wanted.build - build)


def choose_descriptors(
    wanted: NodePlatform, found: Iterable[ContentDescriptor]
) -> list[ContentDescriptor]:
    """The images of an index that suit a node, best first; then those that do not specify a
    platform. Raises NotFound when there is none.
    """
    suitable: list[tuple[tuple[int, int], ContentDescriptor]] = []
    silent = []
    for entry in found:
        if entry.platform is None:
            silent.append(entry)
        elif (how := platform_rank(wanted, entry.platform)) is not None:
            suitable.append((how, entry))
    ordered = [entry for _, entry in sorted(suitable, key=lambda pair: pair[0])]
    if not ordered and not silent:
        raise NoMatchingPlatform()
    return ordered + silent


def suits_platform(wanted: NodePlatform, config: ImageConfiguration) -> bool:
    """By its configuration, for an image without an index."""
    shown = {
        "os": config.os,
        "architecture": config.architecture,
        "variant": config.variant,
        "os.version": config.os_version,
    }
    return platform_rank(wanted, shown) is not None
