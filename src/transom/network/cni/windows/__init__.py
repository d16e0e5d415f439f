"""Network plugins of Windows nodes. They change the host networking service of the node, and their own state files."""

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


def plugins(release: Release = DEFAULT_RELEASE) -> dict[str, Plugin]:
    """By the type that configurations name them with; `release` is that of the reference plugins."""
    return {
        "win-bridge": bridge.plugin(release),
        "win-overlay": overlay.plugin(release),
        "azure-vnet": azure.plugin,
        "azure-vnet-ipam": azure_ipam.plugin,
        "ovn-k8s-cni-overlay": ovn.plugin,
        **{kind: sdn.plugin(kind) for kind in sdn.TYPES},
    }


def versions(release: Release = DEFAULT_RELEASE) -> Mapping[str, tuple[str, ...]]:
    """Of the CNI specification, for each plugin. The reference plugins have no CHECK up to 0.9.1, and so no 0.4.0."""
    reference = (*_UP_TO_0_4_0, "1.0.0") if release == "1.0" else _UP_TO_0_3_0
    return {
        "win-bridge": reference,
        "win-overlay": reference,
        **dict.fromkeys(("azure-vnet", "azure-vnet-ipam", "ovn-k8s-cni-overlay"), _UP_TO_0_4_0),
        **dict.fromkeys(sdn.TYPES, sdn.VERSIONS),
    }


WINDOWS_PLUGINS: Final = plugins()
