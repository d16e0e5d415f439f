"""loopback: the `lo` of a sandbox, which every stack has from the start."""

from __future__ import annotations

from typing import Any

from transom.network.cni import results
from transom.network.cni.plugin import CniCall, CniNode, Delegate, Result


def loopback(call: CniCall, machine: CniNode, _delegate: Delegate) -> Result | None:
    if call.command == "DEL" and not call.netns:
        return None
    stack = machine.namespace(call.netns, prefix="")
    if call.command != "ADD":
        return None
    previous = call.config.get("prevResult")
    if previous is not None:
        return results.to_current(previous, call.config.get("cniVersion") or "")
    ips: list[dict[str, Any]] = []
    for address in stack.links["lo"].addresses:
        version = str(address.version)
        if all(ip["version"] != version for ip in ips):
            ips.append({"version": version, "interface": 0, "address": str(address)})
    result: Result = {
        "cniVersion": "0.4.0",
        "interfaces": [{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": call.netns}],
    }
    if ips:
        result["ips"] = ips
    result["dns"] = {}
    return result
