"""The table of plugins that run in this process: what is installed on a node, and which versions each understands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from transom.network.cni import windows
from transom.network.cni.bandwidth import bandwidth
from transom.network.cni.bridge import bridge
from transom.network.cni.flannel import flannel
from transom.network.cni.hostlocal import host_local
from transom.network.cni.loopback import loopback
from transom.network.cni.plugin import Plugin
from transom.network.cni.portmap import portmap
from transom.network.cni.static import static
from transom.network.cni.windows import DEFAULT_RELEASE
from transom.network.cni.windows.netconf import Release

ALL_VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0")

_EVERYWHERE: Mapping[str, Plugin] = {"flannel": flannel, "host-local": host_local}
_LINUX: Mapping[str, Plugin] = {
    "bandwidth": bandwidth, "bridge": bridge, "loopback": loopback, "portmap": portmap, "static": static,
}  # fmt: skip
_FEWER: Mapping[str, tuple[str, ...]] = {"bandwidth": ALL_VERSIONS[2:]}

PLUGINS: dict[str, Plugin] = {**_EVERYWHERE, **_LINUX, **windows.WINDOWS_PLUGINS}


class Installed(NamedTuple):
    run: Plugin
    versions: tuple[str, ...]


Table = Mapping[str, Installed]


@cache
def table(os: str, release: Release = DEFAULT_RELEASE) -> Table:
    """What is in the plugins' directory of a node; `release` is that of the reference plugins for Windows."""
    found = {**_EVERYWHERE, **(windows.plugins(release) if os == "windows" else _LINUX)}
    known = {**_FEWER, **windows.versions(release)}
    return {kind: Installed(plugin, known.get(kind, ALL_VERSIONS)) for kind, plugin in found.items()}
