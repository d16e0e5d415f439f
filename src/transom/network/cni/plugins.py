"""The table of plugins that run in this process, and which versions of the specification each understands."""

from __future__ import annotations

from collections.abc import Mapping

from transom.network.cni.plugin import Plugin

ALL_VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0")
UP_TO_0_3_0 = ("0.1.0", "0.2.0", "0.3.0")

PLUGINS: dict[str, Plugin] = {}

_FEWER: Mapping[str, tuple[str, ...]] = {"win-bridge": UP_TO_0_3_0, "win-overlay": UP_TO_0_3_0}


def versions(kind: str) -> tuple[str, ...]:
    return _FEWER.get(kind, ALL_VERSIONS)
