"""bandwidth: traffic limits of a sandbox. They are validated and stored; no data plane here
enforces them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from transom.network.cni import results
from transom.network.cni.plugin import CniCall, CniNode, Delegate, Result, fail_plugin
from transom.network.stacks import stable_mac

_FIELDS = ("ingressRate", "ingressBurst", "egressRate", "egressBurst")
_LARGEST = 0xFFFFFFFF


def bandwidth(call: CniCall, machine: CniNode, _delegate: Delegate) -> Result | None:
    limits = _limits(call)
    shaped: dict[str, Mapping[str, int]] = machine.memory.setdefault("bandwidth", {})
    if call.command == "DEL":
        shaped.pop(call.container_id, None)
        return None
    previous = call.config.get("prevResult")
    if call.command == "CHECK":
        if previous is None:
            fail_plugin("must be called as a chained plugin")
        return None
    if previous is None:
        fail_plugin("must be called as chained plugin")
    result = results.to_current(previous, call.config.get("cniVersion") or "")
    if not any(limits.values()):
        return result
    _host_interface(call, machine, result)
    shaped[call.container_id] = limits
    if limits["egressRate"]:
        name = (
            f"bwp{hashlib.sha512((call.config['name'] + call.container_id).encode()).hexdigest()}"[
                :15
            ]
        )
        added = {"name": name, "mac": stable_mac(machine.stack.name, name)}
        result = {**result, "interfaces": [*(result.get("interfaces") or ()), added]}
    return result


def _limits(call: CniCall) -> dict[str, int]:
    given: Mapping[str, Any] = call.config
    if not any(field in given for field in _FIELDS):
        given = (call.config.get("runtimeConfig") or {}).get("bandwidth") or {}
    limits = {field: int(given.get(field) or 0) for field in _FIELDS}
    for rate, burst in (
        (limits["ingressRate"], limits["ingressBurst"]),
        (limits["egressRate"], limits["egressBurst"]),
    ):
        if rate < 0 or burst < 0:
            fail_plugin("rate and burst must be a positive integer")
        if not burst and rate:
            fail_plugin("if rate is set, burst must also be set")
        if not rate and burst:
            fail_plugin("if burst is set, rate must also be set")
        if burst // 8 >= _LARGEST:
            fail_plugin("burst cannot be more than 4GB")
    return limits


def _host_interface(call: CniCall, machine: CniNode, result: Result) -> None:
    interfaces = result.get("interfaces")
    if not interfaces:
        fail_plugin("no interfaces provided")
    link = machine.namespace(call.netns).links.get(call.ifname)
    if link is None or link.peer is None:
        fail_plugin(
            f"container interface {call.ifname} has no veth peer: could not look up "
            f'"{call.ifname}": Link not found'
        )
    if all(one.get("sandbox") or one["name"] != link.peer[1] for one in interfaces):
        fail_plugin("no veth peer of container interface found in host ns")
