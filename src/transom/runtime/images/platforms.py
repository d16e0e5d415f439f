"""Which of an index's images is for a machine. Pure functions; containerd's rules, and Windows' rule of builds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from transom.runtime.images.model import Configuration, Descriptor, NotFound, build_of
from transom.windows.builds import process_isolation

_ARCHITECTURES: Final = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64", "i386": "386", "i686": "386",
                         "armhf": "arm", "armel": "arm", "armv7l": "arm", "armv6l": "arm"}  # fmt: skip
_VARIANTS: Final = {"armhf": "v7", "armv7l": "v7", "armel": "v6", "armv6l": "v6"}
_ARM: Final = ("v5", "v6", "v7", "v8")  # each runs those before it


class Platform(NamedTuple):
    """A node, as far as images care."""

    os: str
    architecture: str = "amd64"
    variant: str = ""
    build: int = 0  # of Windows
    stable_abi: bool = False  # the runtime knows that newer hosts take older images

    def __str__(self) -> str:
        parts = [self.os, self.architecture, self.variant]
        return "/".join(filter(None, parts)) + (f" 10.0.{self.build}" if self.build else "")

    @property
    def key(self) -> str:
        """Under which the store remembers what a name meant for such a node."""
        return "/".join(filter(None, (self.os, self.architecture, self.variant, str(self.build or ""))))


def of_node(system: str, build: int = 0, architecture: str = "", *, stable_abi: bool = False) -> Platform:
    """Containers for Windows are amd64, whatever this machine is; those for Linux run on its own processor."""
    name, variant = normal(architecture or ("amd64" if system == "windows" else os.uname().machine))
    return Platform(system, name, variant, build if system == "windows" else 0, stable_abi)


def of_image(config: Configuration) -> Platform:
    name, variant = normal(config.architecture or "amd64", config.variant)
    return Platform(config.os or "linux", name, variant, build_of(config.os_version))


def normal(architecture: str, variant: str = "") -> tuple[str, str]:
    """The names that manifests should use."""
    raw, variant = architecture.lower(), variant.lower()
    name = _ARCHITECTURES.get(raw, raw)
    variant = _VARIANTS.get(raw, variant)
    if name == "arm":
        variant = "v7" if not variant else variant if variant.startswith("v") else f"v{variant}"
    elif raw != name or (name == "arm64" and variant in ("8", "v8")):
        variant = ""
    return name, variant


def rank(wanted: Platform, found: Mapping[str, Any]) -> tuple[int, int] | None:
    """How well an image for a platform, as an index writes it, suits a node; None when it does not, the least is best."""
    architecture, variant = normal(str(found.get("architecture") or ""), str(found.get("variant") or ""))
    if str(found.get("os") or "").lower() != wanted.os or architecture != wanted.architecture:
        return None
    if wanted.architecture == "arm":
        if variant not in _ARM or wanted.variant not in _ARM or _ARM.index(variant) > _ARM.index(wanted.variant):
            return None
        return (_ARM.index(wanted.variant) - _ARM.index(variant), 0)
    if variant != wanted.variant:
        return None
    if wanted.os != "windows" or not wanted.build:
        return (0, 0)
    version = str(found.get("os.version") or "")
    build = build_of(version)
    if not version:
        return (1, 0)  # for every build
    if not build or not process_isolation(wanted.build, build, stable_abi=wanted.stable_abi):
        return None
    return (0, wanted.build - build)


def choose(wanted: Platform, found: Iterable[Descriptor]) -> list[Descriptor]:
    """The images of an index that suit a node, the best first; after them those that do not say what they are for.
    NotFound when there is none."""
    suitable: list[tuple[tuple[int, int], Descriptor]] = []
    silent = []
    for entry in found:
        if entry.platform is None:
            silent.append(entry)
        elif (how := rank(wanted, entry.platform)) is not None:
            suitable.append((how, entry))
    ordered = [entry for _, entry in sorted(suitable, key=lambda pair: pair[0])]
    if not ordered and not silent:
        raise NotFound("no match for platform in manifest")
    return ordered + silent


def suits(wanted: Platform, config: Configuration) -> bool:
    """By its configuration, for an image that no index tells of."""
    shown = {"os": config.os, "architecture": config.architecture, "variant": config.variant, "os.version": config.os_version}
    return rank(wanted, shown) is not None
