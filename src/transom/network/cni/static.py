"""static: addresses from the configuration or requested by the runtime. Stateless."""

from __future__ import annotations

import ipaddress
from typing import Any

from transom.network.cni import results, values
from transom.network.cni.plugin import CniCall, CniNode, Delegate, Result, fail_plugin
from transom.network.stacks import Interface

_ONE_OF_EACH = ("", "0.1.0", "0.2.0")


def static(call: CniCall, _machine: CniNode, _delegate: Delegate) -> Result | None:
    if call.command == "DEL":
        return None
    addresses = _addresses(call)
    if call.command == "CHECK":
        _check(call, addresses)
        return None
    ipam = call.config["ipam"]
    result: Result = {"cniVersion": "0.4.0"}
    if addresses:
        result["ips"] = [
            {
                "version": str(address.version),
                "address": str(address),
                **({"gateway": gateway} if gateway else {}),
            }
            for address, gateway in addresses
        ]
    routes = values.parse_routes(ipam.get("routes"))
    if routes:
        result["routes"] = routes
    result["dns"] = ipam.get("dns") or {}
    return result


def _addresses(call: CniCall) -> list[tuple[Interface, str]]:
    """The addresses with their gateways. Those of the runtime replace the configuration's; those of
    CNI_ARGS are added.
    """
    ipam = call.config.get("ipam")
    values.check_cni_args(call.args, ("IP", "GATEWAY"))
    if ipam is None:
        fail_plugin("IPAM config missing 'ipam' key")
    written: list[dict[str, Any]] = list(ipam.get("addresses") or ())
    for item in (part.strip() for part in call.args.get("IP", "").split(",") if part):
        _cidr(item)
        written.append({"address": item, "requested": True})
    written = _gateways(call, written)
    for listed in (
        ((call.config.get("args") or {}).get("cni") or {}).get("ips"),
        (call.config.get("runtimeConfig") or {}).get("ips"),
    ):
        if listed:
            written = [{"address": text} for text in listed]
    found = []
    for one in written:
        gateway = one.get("gateway")
        found.append(
            (_cidr(one.get("address") or ""), str(values.parse_address(gateway)) if gateway else "")
        )
    version = call.config.get("cniVersion") or ""
    families = [address.version for address, _ in found]
    if version in _ONE_OF_EACH and (families.count(4) > 1 or families.count(6) > 1):
        fail_plugin(f"CNI version {version} does not support more than 1 address per family")
    return found


def _gateways(call: CniCall, written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """GATEWAY of CNI_ARGS applies to the addresses of CNI_ARGS whose network contains it."""
    for item in (part for part in call.args.get("GATEWAY", "").split(",") if part):
        try:
            gateway = ipaddress.ip_address(item.strip())
        except ValueError:
            fail_plugin(f"invalid gateway address: {item}")
        written = [
            {**one, "gateway": str(gateway)}
            if one.get("requested") and gateway in _cidr(one["address"]).network
            else one
            for one in written
        ]
    return written


def _check(call: CniCall, addresses: list[tuple[Interface, str]]) -> None:
    previous = call.config.get("prevResult")
    if previous is None:
        fail_plugin("Required prevResult missing")
    held = results.to_current(previous, call.config.get("cniVersion") or "").get("ips") or ()
    for address, gateway in addresses:
        for ip in held:
            if (
                ip["address"].split("/")[0] == str(address.ip)
                and gateway
                and ip.get("gateway") != gateway
            ):
                fail_plugin(f"static: Failed to match addr {address.ip} on interface {call.ifname}")


def _cidr(text: str) -> Interface:
    try:
        return values.parse_interface(text)
    except ValueError as error:
        fail_plugin(f"invalid CIDR {text}: {error}")
