"""What `transom hns` asks of a running cluster: the host networking service of one of its Windows nodes, and its faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from transom.cluster.errors import ClusterError
from transom.hosts.windows.hns import Hns, rest
from transom.hosts.windows.hns.faults import SWITCHES

Item = dict[str, Any]


def answer(node: str, host: object, method: str, parts: Sequence[str]) -> Item:
    """For a path below a node's /hns. ClusterError if the node has no such service or the path is none."""
    hns: Hns | None = getattr(host, "hns", None)
    if hns is None:
        raise ClusterError(
            f"node {node} has no host networking service: it is not a Windows node",
            "transom node list shows which nodes are",
        )
    match method, list(parts):
        case "GET", [what] if what in VIEWS:
            return {"node": node, "version": "{}.{}".format(*hns.version), "items": VIEWS[what](hns)}
        case "POST", ["restart"]:
            hns.restart_service()
            return {"node": node, "networks": len(hns.networks)}
        case "POST", ["faults", name, "on" | "off" as state]:
            return _switch(hns, name, state == "on")
    raise ClusterError(f"a host networking service cannot do {'/'.join(parts)!r}", f"it shows {', '.join(VIEWS)}")


def _switch(hns: Hns, name: str, on: bool) -> Item:
    try:
        hns.faults.switch(name, on)
    except KeyError:
        known = ", ".join(switch.replace("_", "-") for switch in SWITCHES)
        raise ClusterError(f"there is no fault {name!r}", f"the faults: {known}") from None
    return hns.faults.shown()


# ---- what it shows -------------------------------------------------------------------------------------------------


def _networks(hns: Hns) -> list[Item]:
    return [rest.view(hns, "network", key) for key in hns.networks]


def _endpoints(hns: Hns) -> list[Item]:
    out = []
    for key in hns.endpoints:
        kind, whose = hns.attachment(key)
        out.append({**rest.view(hns, "endpoint", key), "AttachedTo": {"Type": kind, "ID": whose} if kind else None})
    return out


def _policies(hns: Hns) -> list[Item]:
    """Of networks and endpoints, one after the other."""
    return [
        {"Owner": kind, "ID": obj["ID"], "Name": obj.get("Name", ""), **policy}
        for kind, table in (("network", hns.networks), ("endpoint", hns.endpoints))
        for obj in table.values()
        for policy in obj.get("Policies", ())
    ]


def _faults(hns: Hns) -> list[Item]:
    return [{"Name": name, "On": on} for name, on in hns.faults.shown().items()]


VIEWS: Final[Mapping[str, Callable[[Hns], list[Item]]]] = {
    "networks": _networks,
    "endpoints": _endpoints,
    "loadbalancers": lambda hns: list(hns.loadbalancers.values()),
    "namespaces": lambda hns: list(hns.namespaces.values()),
    "routes": lambda hns: list(hns.routes.values()),
    "policies": _policies,
    "adapters": lambda hns: [asdict(adapter) for adapter in hns.adapters.values()],
    "faults": _faults,
}
