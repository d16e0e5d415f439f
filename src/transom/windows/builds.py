"""The builds of Windows Server that have containers: their names, and which image runs on which
host.

A build is known by its number (17763), the releases that have it (1809, ltsc2019) and its version
in full (10.0.17763.1697). Only the builds matter here: a container of one release starts on a host
of another if their builds are compatible. The Service features of a node depend on the version of
its host networking service (HNS), which is also part of a build.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

from transom.kit.lazy import lazy_pattern
from transom.kit.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class WindowsBuild:
    number: int
    ubr: int  # the default patch level of a machine, and of a base image
    release: str  # "1809": the registry's ReleaseId, or DisplayVersion from 20H2 on
    product: str  # ProductName
    channel: Literal["LTSC", "SAC", "AC"]
    tags: tuple[str, ...]  # of base images; the first is the usual one
    # The version of the host networking service. Updates raise it; if none is published, a version
    # with the known features of the build.
    hns: tuple[int, int]

    @property
    def version(self) -> str:
        """The prefix of `node.kubernetes.io/windows-build` and of `os.version` in a manifest."""
        return f"10.0.{self.number}"

    @property
    def full_version(self) -> str:
        return f"10.0.{self.number}.{self.ubr}"


BUILDS: Final = {
    build.number: build
    for build in (
        WindowsBuild(
            14393,
            4169,
            "1607",
            "Windows Server 2016 Datacenter",
            "LTSC",
            ("ltsc2016", "1607", "sac2016"),
            (5, 0),
        ),
        WindowsBuild(16299, 1087, "1709", "Windows Server Datacenter", "SAC", ("1709",), (6, 0)),
        WindowsBuild(17134, 1130, "1803", "Windows Server Datacenter", "SAC", ("1803",), (7, 2)),
        WindowsBuild(
            17763,
            1697,
            "1809",
            "Windows Server 2019 Datacenter",
            "LTSC",
            ("ltsc2019", "1809"),
            (9, 4),
        ),
        WindowsBuild(18362, 1256, "1903", "Windows Server Datacenter", "SAC", ("1903",), (10, 4)),
        WindowsBuild(18363, 1316, "1909", "Windows Server Datacenter", "SAC", ("1909",), (10, 4)),
        WindowsBuild(19041, 746, "2004", "Windows Server Datacenter", "SAC", ("2004",), (11, 10)),
        WindowsBuild(19042, 746, "20H2", "Windows Server Datacenter", "SAC", ("20H2",), (11, 10)),
        WindowsBuild(
            20348,
            587,
            "21H2",
            "Windows Server 2022 Datacenter",
            "LTSC",
            ("ltsc2022", "21H2"),
            (13, 2),
        ),
        WindowsBuild(
            25398, 531, "23H2", "Windows Server 2022 Datacenter", "AC", ("23H2",), (15, 4)
        ),
        WindowsBuild(
            26100,
            2314,
            "24H2",
            "Windows Server 2025 Datacenter",
            "LTSC",
            ("ltsc2025", "24H2"),
            (16, 0),
        ),
    )
}
DEFAULT: Final = BUILDS[17763]

# Builds whose host networking service got newer with an update: its revision, and the version
# before it.
_HNS_UPDATES: Final[Mapping[int, tuple[int, tuple[int, int]]]] = {17763: (379, (9, 2))}

# Features of the host networking service and their minimum versions; within a range, from its first
# version to the last of the same major version.
HNS_FEATURES: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    "V2 Api/Schema": ((9, 2),),
    "Remote Subnet": ((9, 2),),
    "Host Route": ((9, 2),),
    "Direct Server Return (DSR)": ((9, 3), (10, 2)),
    "Slash 32 Endpoint prefixes": ((9, 3), (10, 4)),
    "VXLAN port configuration": ((10, 3),),
    "IPv6 DualStack": ((11, 10),),
    "Session Affinity": ((12, 0),),
    "SetPolicy": ((13, 0),),
    "Modify Loadbalancer": ((15, 4),),
}

_BY_TAG: Final = {tag.lower(): build for build in BUILDS.values() for tag in build.tags}
_VERSION: Final = lazy_pattern(r"(?:^|[^0-9.])10\.0\.([0-9]{5})(?:\.[0-9]+)?(?![0-9])")
_WORDS: Final = lazy_pattern(r"[-_]")

# From this build on the interface between containers and the kernel is stable.
_STABLE: Final = 20348
_STABLE_LTSC: Final = tuple(
    build.number for build in BUILDS.values() if build.channel == "LTSC" and build.number >= _STABLE
)


def has_hns_feature(build: WindowsBuild, feature: str) -> bool:
    """Whether the host networking service of a build has one of HNS_FEATURES."""
    *ranges, last = HNS_FEATURES[feature]
    return build.hns >= last or any(first <= build.hns < (first[0] + 1, 0) for first in ranges)


def build_with_revision(number: int, revision: int = 0) -> WindowsBuild:
    """A build at a patch level (UBR); 0 for the default one."""
    build = BUILDS[number]
    if not revision or revision == build.ubr:
        return build
    update, hns = _HNS_UPDATES.get(number, (0, build.hns))
    return replace(build, ubr=revision, hns=hns if revision < update else build.hns)


def parse_node_build(text: str) -> tuple[int, int] | None:
    """The build and the revision (0 if not given) of "17763", "17763.1697", "10.0.17763.1697",
    "1809" or "ltsc2019"; None if there is no such build.
    """
    match = re.fullmatch(r"(?:10\.0\.)?([0-9]{5})(?:\.([0-9]{1,5}))?", text.strip())
    if match is not None:
        return (int(match[1]), int(match[2] or 0)) if int(match[1]) in BUILDS else None
    found = build_by_name(text)
    return (found.number, 0) if found is not None else None


def build_by_name(name: str) -> WindowsBuild | None:
    """By number, version, release or tag: "17763", "10.0.17763", "10.0.17763.1697", "1809",
    "ltsc2019".
    """
    name = name.strip().lower()
    if name in _BY_TAG:
        return _BY_TAG[name]
    if name.isascii() and name.isdigit():
        return BUILDS.get(int(name))
    match = _VERSION.fullmatch(name)
    return BUILDS.get(int(match[1])) if match else None


def build_of_tag(tag: str) -> WindowsBuild | None:
    """The build in an image's tag: "1809-KB4592440", "4.8-windowsservercore-ltsc2019",
    "1.4.1-windows-1809-amd64", "10.0.17763.1697-amd64". None when it contains none, or more than
    one.
    """
    tag = tag.lower()
    found = {BUILDS.get(int(number)) for number in _VERSION.findall(tag)} or {
        _BY_TAG[word] for word in _WORDS.split(tag) if word in _BY_TAG
    }
    return found.pop() if len(found) == 1 else None


def process_isolation(host: int, container: int, *, stable_abi: bool = False) -> bool:
    """Whether a container of a build runs on a host's own kernel. The patch level is irrelevant.

    The builds must be equal. On hosts from Windows Server 2022 on, a runtime that supports the
    stable interface also accepts images between the previous long-term release and the host's
    build.
    """
    if host == container:
        return True
    if not stable_abi or host < _STABLE:
        return False
    oldest = max((number for number in _STABLE_LTSC if number < host), default=_STABLE)
    return oldest <= container <= host


def hyperv_isolation(host: int, container: int) -> bool:
    """Whether a container of a build runs in its own utility VM: its kernel may be older, not
    newer.
    """
    return container <= host
