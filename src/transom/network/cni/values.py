"""Addresses and arguments in configuration, refused in the words of the libraries that real plugins are made with."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from transom.network.cni.plugin import fail
from transom.network.stacks import Address, Interface, Network, read_interface


def address(text: Any) -> Address:
    try:
        return canonical(ipaddress.ip_address(str(text)))
    except ValueError:
        fail(f"invalid IP address: {text}")


def canonical(found: Address) -> Address:
    """An IPv4 address in the clothes of IPv6 is an IPv4 address."""
    mapped = found.ipv4_mapped if found.version == 6 else None
    return mapped if mapped is not None else found


@lru_cache(4096)
def interface(text: str) -> Interface:
    """An address with its prefix, as net.ParseCIDR takes it."""
    if "/" not in text or not text.rsplit("/", 1)[1].isdigit():
        raise ValueError(f"invalid CIDR address: {text}")
    try:
        return read_interface(text)
    except ValueError:
        raise ValueError(f"invalid CIDR address: {text}") from None


def cidr(text: Any) -> Interface:
    try:
        return interface(text if type(text) is str else str(text))
    except ValueError as error:
        fail(str(error))


def network(text: str) -> Network:
    return cidr(text).network


def routes(given: Any) -> list[dict[str, Any]]:
    """As they are written in results."""
    answer = []
    for route in given or ():
        written = {"dst": str(network(route.get("dst")))}
        if route.get("gw"):
            written["gw"] = str(address(route["gw"]))
        answer.append(written)
    return answer


def check_args(args: dict[str, str], known: Iterable[str]) -> None:
    """CNI_ARGS may have what the plugin does not know only if they say so."""
    ignore = args.get("IgnoreUnknown", "").lower()
    if ignore not in ("", "1", "true", "0", "false"):
        fail(f'ARGS: error parsing value of pair "IgnoreUnknown={ignore}": boolean unmarshal error: invalid input {ignore})')
    if ignore in ("1", "true"):
        return
    unknown = [f'"{key}={value}"' for key, value in args.items() if key != "IgnoreUnknown" and key not in known]
    if unknown:
        fail(f"ARGS: unknown args [{' '.join(unknown)}]")
