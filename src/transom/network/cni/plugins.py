"""The plugins that run in this process: which are installed on a node, and the versions that each
supports.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from transom.kit.named_tuple import NamedTuple
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
    "bandwidth": bandwidth,
    "bridge": bridge,
    "loopback": loopback,
    "portmap": portmap,
    "static": static,
}
_FEWER: Mapping[str, tuple[str, ...]] = {"bandwidth": ALL_VERSIONS[2:]}

PLUGINS: dict[str, Plugin] = {**_EVERYWHERE, **_LINUX, **windows.WINDOWS_PLUGINS}


class InstalledPlugin(NamedTuple):
    run: Plugin
    versions: tuple[str, ...]


Table = Mapping[str, InstalledPlugin]


@cache
def plugin_table(os: str, release: Release = DEFAULT_RELEASE) -> Table:
    """The plugins in a node's plugin directory; `release` is that of the reference plugins for
    Windows.
    """
    found = {**_EVERYWHERE, **(windows.windows_plugins(release) if os == "windows" else _LINUX)}
    known = {**_FEWER, **windows.windows_plugin_versions(release)}
    return {
        kind: InstalledPlugin(plugin, known.get(kind, ALL_VERSIONS))
        for kind, plugin in found.items()
    }
