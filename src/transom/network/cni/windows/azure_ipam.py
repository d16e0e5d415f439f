"""azure-vnet-ipam: pods get the secondary addresses of the machine's network card, as the platform
lists them.

On Azure the plugin requests the list from the platform's wire server; here the response is a file
of the machine (`ANSWER`, written with `wire_server_answer`), and with environment `mas` the file
that Azure Stack provides. Allocations are in a state file, which is ignored after a reboot. Only
azure-vnet uses this plugin.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import orjson

from transom.kit.caching import text_cache
from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.machines.smallfiles import read_small_file
from transom.network.cni.plugin import CniCall, CniError, CniNode, Delegate, Result
from transom.network.cni.windows import shim
from transom.network.cni.windows.azure_state import read_state, write_state
from transom.network.cni.windows.shim import HcsshimFailed, annotate_errors, config_value

if TYPE_CHECKING:
    from xml.etree import ElementTree
else:
    ElementTree = lazy_import("xml.etree.ElementTree")

CODE: Final = 100  # the code of all errors of these plugins
ANSWER: Final = r"C:\k\wireserver\getinterfaceinfov1.xml"
AZURE_STACK: Final = r"C:\k\interfaces.json"
STATE: Final = r"C:\k\azure-vnet-ipam.json"
WIRE_SERVER: Final = "168.63.129.16"  # also the DNS server
_SOURCES: Final = {"azure": ANSWER, "mas": AZURE_STACK, "fileIpam": AZURE_STACK}
_SPACE: Final = "local"


class AzureSubnet(NamedTuple):
    mac: str  # of the card, lower case without separators; "*" for any
    primary: bool  # whether the card, not the address, is primary
    prefix: str
    addresses: tuple[str, ...]  # for pods


def wire_server_answer(mac: str, prefix: str, primary: str, secondary: Iterable[str]) -> bytes:
    """The wire server's response for a machine with one card."""
    interfaces = ElementTree.Element("Interfaces")
    card = ElementTree.SubElement(
        interfaces, "Interface", MacAddress=_digits(mac).upper(), IsPrimary="true"
    )
    subnet = ElementTree.SubElement(card, "IPSubnet", Prefix=prefix)
    ElementTree.SubElement(subnet, "IPAddress", Address=primary, IsPrimary="true")
    for address in secondary:
        ElementTree.SubElement(subnet, "IPAddress", Address=address, IsPrimary="false")
    return ElementTree.tostring(interfaces)


def azure_ipam_plugin(call: CniCall, machine: CniNode, delegate: Delegate) -> Result | None:
    owner = config_value(call.config, "type", "")
    if owner != "azure-vnet":
        raise CniError(CODE, f"azure-vnet-ipam serves azure-vnet only, not {owner}")
    with shim.plugin_errors(CODE):
        if call.command == "ADD":
            return _add(call, machine)
        if call.command == "DEL":
            _delete(call, machine)
    return None


def _add(call: CniCall, machine: CniNode) -> Result:
    ipam = config_value(call.config, "ipam", {})
    with annotate_errors("Failed to parse network configuration"):
        state = _state(machine, ipam)
    wanted = str(config_value(ipam, "subnet", ""))
    if not wanted:
        with annotate_errors("Failed to allocate pool"):
            wanted = _choose_pool(_pools(state), str(config_value(call.config, "master", "")))
    with annotate_errors("Failed to allocate address"):
        pool = _pools(state).get(wanted)
        if pool is None:
            raise HcsshimFailed(f"Pool id {wanted} not found :Invalid address pool")
        address = _request(pool, str(config_value(ipam, "ipAddress", "")), call.container_id)
    pool["RefCount"] = 1
    write_state(machine, STATE, "IPAM", state)
    gateway = pool["Gateway"]
    return {
        "ips": [
            {
                "version": "6" if ":" in address else "4",
                "address": f"{address}/{wanted.rpartition('/')[2]}",
                "gateway": gateway,
            }
        ],
        "routes": [{"dst": "0.0.0.0/0", "gw": gateway}],
        "dns": {"nameservers": [WIRE_SERVER]},
    }


def _delete(call: CniCall, machine: CniNode) -> None:
    ipam = config_value(call.config, "ipam", {})
    with annotate_errors("Failed to parse network configuration"):
        state = _state(machine, ipam)
    pool = _pools(state).get(str(config_value(ipam, "subnet", "")))
    if pool is None:
        # The network is no longer known: release the container's address in whichever pool has it.
        pools = list(_pools(state).values())
    else:
        pools = [pool]
    address = str(config_value(ipam, "ipAddress", ""))
    for pool in pools:
        for text, record in list(pool["Addresses"].items()):
            # Releasing twice, or an address that is not allocated, succeeds.
            if record["ID"] == call.container_id and address in ("", text):
                record["ID"], record["InUse"] = "", False
                if record.get("Stale"):
                    del pool["Addresses"][text]
        if not any(record["InUse"] for record in pool["Addresses"].values()):
            pool["RefCount"] = 0
    write_state(machine, STATE, "IPAM", state)


def _request(pool: dict[str, Any], address: str, owner: str) -> str:
    records = pool["Addresses"]
    if address:
        if address not in records:
            raise HcsshimFailed("Address not found")
        if records[address]["InUse"] and records[address]["ID"] != owner:
            raise HcsshimFailed("Address already in use")
    else:
        own = next((text for text, record in records.items() if record["ID"] == owner), "")
        address = own or next(
            (text for text, record in records.items() if not record["InUse"] and not record["ID"]),
            "",
        )
        if not address:
            raise HcsshimFailed("No available addresses")
    records[address] |= {"ID": owner, "InUse": True}
    return address


def _choose_pool(pools: dict[str, Any], master: str) -> str:
    """A free pool of the requested card; secondary cards first, then those with more addresses."""
    free = [
        pool
        for pool in pools.values()
        if not any(record["InUse"] or record["ID"] for record in pool["Addresses"].values())
        and not pool["IsIPv6"]
        and master in ("", pool["IfName"])
    ]
    if not free:
        raise HcsshimFailed("No available address pools")
    best = max(free, key=lambda pool: (pool["Priority"], len(pool["Addresses"])))
    return str(best["Id"])


# ---- state ----


def _pools(state: dict[str, Any]) -> dict[str, Any]:
    space = state["AddressSpaces"].get(_SPACE)
    if space is None:
        raise HcsshimFailed("Invalid address space")
    pools: dict[str, Any] = space["Pools"]
    return pools


def _state(machine: CniNode, ipam: dict[str, Any]) -> dict[str, Any]:
    """The allocations, updated with the platform's list."""
    state, rebooted = read_state(machine, STATE, "IPAM")
    spaces = state.setdefault("AddressSpaces", {})
    if rebooted:
        for pool in spaces.get(_SPACE, {}).get("Pools", {}).values():
            pool["RefCount"] = 0
            for record in pool["Addresses"].values():
                record["ID"], record["InUse"] = "", False
    source = _SOURCES.get(str(config_value(ipam, "environment", "azure")))
    if source is None:
        raise HcsshimFailed("Invalid configuration")
    listed = _listed(machine, source)
    if listed is not None:
        space = spaces.setdefault(_SPACE, {"Id": _SPACE, "Scope": 0, "Pools": {}})
        _merge(space["Pools"], listed, machine)
    return state


def _listed(machine: CniNode, source: str) -> tuple[AzureSubnet, ...] | None:
    """None if the platform does not answer: then the known list is used."""
    try:
        return _parse(read_small_file(machine.files, source))
    except (OSError, ValueError, ElementTree.ParseError):
        return None


@text_cache(2048, longest=4096)
def _parse(data: bytes) -> tuple[AzureSubnet, ...]:
    if data.lstrip().startswith(b"{"):
        return tuple(
            AzureSubnet(
                _digits(card["MacAddress"]),
                bool(card.get("IsPrimary")),
                subnet["Prefix"],
                tuple(a["Address"] for a in subnet["IPAddresses"] if not a.get("IsPrimary")),
            )
            for card in orjson.loads(data)["Interfaces"]
            for subnet in card["IPSubnets"]
        )
    return tuple(
        AzureSubnet(
            _digits(card.get("MacAddress", "")),
            card.get("IsPrimary") == "true",
            subnet.get("Prefix", ""),
            tuple(
                a.get("Address", "")
                for a in subnet.iter("IPAddress")
                if a.get("IsPrimary") != "true"
            ),
        )
        for card in ElementTree.fromstring(data).iter("Interface")
        for subnet in card.iter("IPSubnet")
    )


def _merge(pools: dict[str, Any], listed: tuple[AzureSubnet, ...], machine: CniNode) -> None:
    known: set[tuple[str, str]] = set()
    cards = {_digits(link.mac): link.name for link in machine.stack.links.values() if link.mac}
    for subnet in listed:
        name = next(iter(cards.values()), "") if subnet.mac == "*" else cards.get(subnet.mac, "")
        if not name:
            continue
        network = ipaddress.ip_network(subnet.prefix)
        pool = pools.setdefault(
            str(network),
            {
                "Id": str(network),
                "IfName": name,
                "Gateway": str(network[1]),
                "Addresses": {},
                "IsIPv6": network.version == 6,
                "Priority": 0 if subnet.primary else 1,
                "RefCount": 0,
            },
        )
        for address in subnet.addresses:
            pool["Addresses"].setdefault(address, {"ID": "", "Addr": address, "InUse": False})
            known.add((pool["Id"], address))
    for key, pool in list(pools.items()):
        for address, record in list(pool["Addresses"].items()):
            if (key, address) in known:
                record.pop("Stale", None)
            elif record["InUse"]:
                record["Stale"] = True  # removed when it is released
            else:
                del pool["Addresses"][address]
        if not pool["Addresses"]:
            del pools[key]


def _digits(mac: str) -> str:
    return mac.replace(":", "").replace("-", "").lower()
