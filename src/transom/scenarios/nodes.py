"""The Windows node of a scenario, from the list of nodes of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from transom.kit.user_errors import UserError
from transom.scenarios.model import ScenarioNode
from transom.windows.builds import BUILDS

_NANO: Final = "mcr.microsoft.com/windows/nanoserver"


def scenario_node(nodes: Sequence[Mapping[str, Any]], name: str = "") -> ScenarioNode:
    """The named Windows node, or the first one that is ready. Raises UserError."""
    for node in nodes:
        if node["os"] == "windows" and node["ready"] and name in ("", node["name"]):
            other = BUILDS[20348 if node["build"] < 20348 else 17763]
            return ScenarioNode(
                node["name"],
                node["build"],
                f"{_NANO}:{BUILDS[node['build']].tags[0]}"
                if node["build"] != 17763
                else f"{_NANO}:1809",
                f"{_NANO}:{other.tags[0]}",
            )
    raise UserError(
        f"{name!r} is not a Windows node that is ready" if name else "no Windows node is ready",
        "see transom node list; add one with transom node add windows-3 --os windows",
    )
