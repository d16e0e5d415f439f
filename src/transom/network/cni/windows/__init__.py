"""Network plugins of Windows nodes. They change the host networking service of the node, and their
own state files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transom.network.cni.plugin import Plugin
from transom.network.cni.windows import azure, azure_ipam, bridge, overlay, ovn, sdn
from transom.network.cni.windows.netconf import Release

RELEASES: Final[tuple[Release, ...]] = ("0.8.6", "0.9.1", "1.0")
DEFAULT_RELEASE: Final[Release] = "0.9.1"
_UP_TO_0_3_0: Final = ("0.1.0", "0.2.0", "0.3.0")
_UP_TO_0_4_0: Final = (*_UP_TO_0_3_0, "0.3.1", "0.4.0")


def windows_plugins(release: Release = DEFAULT_RELEASE) -> dict[str, Plugin]:
    """By the type that configurations use; `release` is that of the reference plugins."""
    return {
        "win-bridge": bridge.win_bridge_plugin(release),
        "win-overlay": overlay.win_overlay_plugin(release),
        "azure-vnet": azure.azure_plugin,
        "azure-vnet-ipam": azure_ipam.azure_ipam_plugin,
        "ovn-k8s-cni-overlay": ovn.ovn_plugin,
        **{kind: sdn.sdn_plugin(kind) for kind in sdn.TYPES},
    }


def windows_plugin_versions(release: Release = DEFAULT_RELEASE) -> Mapping[str, tuple[str, ...]]:
    """The CNI versions of each plugin. The reference plugins up to 0.9.1 have no CHECK, so they do
    not support 0.4.0.
    """
    reference = (*_UP_TO_0_4_0, "1.0.0") if release == "1.0" else _UP_TO_0_3_0
    return {
        "win-bridge": reference,
        "win-overlay": reference,
        **dict.fromkeys(("azure-vnet", "azure-vnet-ipam", "ovn-k8s-cni-overlay"), _UP_TO_0_4_0),
        **dict.fromkeys(sdn.TYPES, sdn.VERSIONS),
    }


WINDOWS_PLUGINS: Final = windows_plugins()
