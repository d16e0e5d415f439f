"""What `transom hns` reads from a running cluster: the host networking service of a Windows node,
and its faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from transom.kit.user_errors import UserError
from transom.machines.windows.hns import HostNetworkService, rest
from transom.machines.windows.hns.faults import SWITCHES

Item = dict[str, Any]


def answer_hns(
    name: str, hns: HostNetworkService | None, method: str, parts: Sequence[str]
) -> Item:
    """Answers a path below a node's /hns. Raises UserError if the node has no such service or the
    path does not exist.
    """
    if hns is None:
        raise UserError(
            f"node {name} has no host networking service: it is not a Windows node",
            "transom node list shows which nodes are",
        )
    match method, list(parts):
        case "GET", [what] if what in VIEWS:
            return {
                "node": name,
                "version": "{}.{}".format(*hns.version),
                "items": VIEWS[what](hns),
            }
        case "POST", ["restart"]:
            hns.restart_service()
            return {"node": name, "networks": len(hns.networks)}
        case "POST", ["faults", name, "on" | "off" as state]:
            return _switch(hns, name, state == "on")
    raise UserError(
        f"a host networking service cannot do {'/'.join(parts)!r}", f"it shows {', '.join(VIEWS)}"
    )


def _switch(hns: HostNetworkService, name: str, on: bool) -> Item:
    try:
        hns.faults.switch(name, on)
    except KeyError:
        known = ", ".join(switch.replace("_", "-") for switch in SWITCHES)
        raise UserError(f"there is no fault {name!r}", f"the faults: {known}") from None
    return hns.faults.shown()


# ---- listings ----


def _networks(hns: HostNetworkService) -> list[Item]:
    return [rest.hns_view(hns, "network", key) for key in hns.networks]


def _endpoints(hns: HostNetworkService) -> list[Item]:
    out = []
    for key in hns.endpoints:
        kind, whose = hns.attachment(key)
        out.append(
            {
                **rest.hns_view(hns, "endpoint", key),
                "AttachedTo": {"Type": kind, "ID": whose} if kind else None,
            }
        )
    return out


def _policies(hns: HostNetworkService) -> list[Item]:
    """The policies of networks, then those of endpoints."""
    return [
        {"Owner": kind, "ID": obj["ID"], "Name": obj.get("Name", ""), **policy}
        for kind, table in (("network", hns.networks), ("endpoint", hns.endpoints))
        for obj in table.values()
        for policy in obj.get("Policies", ())
    ]


def _faults(hns: HostNetworkService) -> list[Item]:
    return [{"Name": name, "On": on} for name, on in hns.faults.shown().items()]


VIEWS: Final[Mapping[str, Callable[[HostNetworkService], list[Item]]]] = {
    "networks": _networks,
    "endpoints": _endpoints,
    "loadbalancers": lambda hns: list(hns.loadbalancers.values()),
    "namespaces": lambda hns: list(hns.namespaces.values()),
    "routes": lambda hns: list(hns.routes.values()),
    "policies": _policies,
    "adapters": lambda hns: [asdict(adapter) for adapter in hns.adapters.values()],
    "faults": _faults,
}
