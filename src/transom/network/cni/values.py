"""Addresses and arguments in configurations, with the error messages of the libraries that real
plugins use.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from transom.network.cni.plugin import fail_plugin
from transom.network.stacks import Address, Interface, Network, read_interface


def parse_address(text: Any) -> Address:
    try:
        return unmapped_address(ipaddress.ip_address(str(text)))
    except ValueError:
        fail_plugin(f"invalid IP address: {text}")


def unmapped_address(found: Address) -> Address:
    """An IPv4-mapped IPv6 address is an IPv4 address."""
    mapped = found.ipv4_mapped if found.version == 6 else None
    return mapped if mapped is not None else found


@lru_cache(4096)
def parse_interface(text: str) -> Interface:
    """An address with its prefix, as net.ParseCIDR parses it."""
    if "/" not in text or not text.rsplit("/", 1)[1].isdigit():
        raise ValueError(f"invalid CIDR address: {text}")
    try:
        return read_interface(text)
    except ValueError:
        raise ValueError(f"invalid CIDR address: {text}") from None


def parse_cidr_value(text: Any) -> Interface:
    try:
        return parse_interface(text if type(text) is str else str(text))
    except ValueError as error:
        fail_plugin(str(error))


def parse_network(text: str) -> Network:
    return parse_cidr_value(text).network


def parse_routes(given: Any) -> list[dict[str, Any]]:
    """Routes as written in results."""
    answer = []
    for route in given or ():
        written = {"dst": str(parse_network(route.get("dst")))}
        if route.get("gw"):
            written["gw"] = str(parse_address(route["gw"]))
        answer.append(written)
    return answer


def check_cni_args(args: dict[str, str], known: Iterable[str]) -> None:
    """CNI_ARGS may have arguments that the plugin does not know only with IgnoreUnknown."""
    ignore = args.get("IgnoreUnknown", "").lower()
    if ignore not in ("", "1", "true", "0", "false"):
        fail_plugin(
            f'ARGS: error parsing value of pair "IgnoreUnknown={ignore}": boolean unmarshal '
            f"error: invalid input {ignore})"
        )
    if ignore in ("1", "true"):
        return
    unknown = [
        f'"{key}={value}"'
        for key, value in args.items()
        if key != "IgnoreUnknown" and key not in known
    ]
    if unknown:
        fail_plugin(f"ARGS: unknown args [{' '.join(unknown)}]")
