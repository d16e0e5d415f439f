"""azure-vnet-ipam: pods get the secondary addresses of the machine's card, as the platform lists them.

On Azure a plugin asks the platform's wire server for the list; here its answer is a file of the machine (`ANSWER`, written
with `answer`), and with environment `mas` the file that Azure Stack has anyway. What is given to whom is in a state file,
which counts for nothing after the machine was started anew. It serves azure-vnet alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree

import orjson

from transom.network.cni.plugin import Call, CniError, Delegate, Machine, Result
from transom.network.cni.windows import shim
from transom.network.cni.windows.azure_state import read_state, write_state
from transom.network.cni.windows.shim import Failed, annotate, value

CODE: Final = 100  # of every error of these plugins
ANSWER: Final = r"C:\k\wireserver\getinterfaceinfov1.xml"
AZURE_STACK: Final = r"C:\k\interfaces.json"
STATE: Final = r"C:\k\azure-vnet-ipam.json"
WIRE_SERVER: Final = "168.63.129.16"  # which is the DNS server, too
_SOURCES: Final = {"azure": ANSWER, "mas": AZURE_STACK, "fileIpam": AZURE_STACK}
_SPACE: Final = "local"


class Subnet(NamedTuple):
    mac: str  # of the card, lower case without separators; "*" for any
    primary: bool  # the card, not the address
    prefix: str
    addresses: tuple[str, ...]  # for pods


def answer(mac: str, prefix: str, primary: str, secondary: Iterable[str]) -> bytes:
    """The wire server's for a machine with one card."""
    interfaces = ElementTree.Element("Interfaces")
    card = ElementTree.SubElement(interfaces, "Interface", MacAddress=_digits(mac).upper(), IsPrimary="true")
    subnet = ElementTree.SubElement(card, "IPSubnet", Prefix=prefix)
    ElementTree.SubElement(subnet, "IPAddress", Address=primary, IsPrimary="true")
    for address in secondary:
        ElementTree.SubElement(subnet, "IPAddress", Address=address, IsPrimary="false")
    return ElementTree.tostring(interfaces)


def plugin(call: Call, machine: Machine, delegate: Delegate) -> Result | None:
    owner = value(call.config, "type", "")
    if owner != "azure-vnet":
        raise CniError(CODE, f"azure-vnet-ipam serves azure-vnet only, not {owner}")
    with shim.told(CODE):
        if call.command == "ADD":
            return _add(call, machine)
        if call.command == "DEL":
            _delete(call, machine)
    return None


def _add(call: Call, machine: Machine) -> Result:
    ipam = value(call.config, "ipam", {})
    with annotate("Failed to parse network configuration"):
        state = _state(machine, ipam)
    wanted = str(value(ipam, "subnet", ""))
    if not wanted:
        with annotate("Failed to allocate pool"):
            wanted = _choose_pool(_pools(state), str(value(call.config, "master", "")))
    with annotate("Failed to allocate address"):
        pool = _pools(state).get(wanted)
        if pool is None:
            raise Failed(f"Pool id {wanted} not found :Invalid address pool")
        address = _request(pool, str(value(ipam, "ipAddress", "")), call.container_id)
    pool["RefCount"] = 1
    write_state(machine, STATE, "IPAM", state)
    gateway = pool["Gateway"]
    return {
        "ips": [{
            "version": "6" if ":" in address else "4", "address": f"{address}/{wanted.rpartition('/')[2]}",
            "gateway": gateway,
        }],
        "routes": [{"dst": "0.0.0.0/0", "gw": gateway}],
        "dns": {"nameservers": [WIRE_SERVER]},
    }  # fmt: skip


def _delete(call: Call, machine: Machine) -> None:
    ipam = value(call.config, "ipam", {})
    with annotate("Failed to parse network configuration"):
        state = _state(machine, ipam)
    pool = _pools(state).get(str(value(ipam, "subnet", "")))
    if pool is None:
        # A network that is not known any more: whatever pool has the container's address gives it back.
        pools = list(_pools(state).values())
    else:
        pools = [pool]
    address = str(value(ipam, "ipAddress", ""))
    for pool in pools:
        for text, record in list(pool["Addresses"].items()):
            # Who releases twice, or what he does not have, is told that all is well.
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
            raise Failed("Address not found")
        if records[address]["InUse"] and records[address]["ID"] != owner:
            raise Failed("Address already in use")
    else:
        own = next((text for text, record in records.items() if record["ID"] == owner), "")
        address = own or next((text for text, record in records.items() if not record["InUse"] and not record["ID"]), "")
        if not address:
            raise Failed("No available addresses")
    records[address] |= {"ID": owner, "InUse": True}
    return address


def _choose_pool(pools: dict[str, Any], master: str) -> str:
    """One that nobody uses, of the wanted card; second cards first, then those with more addresses."""
    free = [
        pool for pool in pools.values()
        if not any(record["InUse"] or record["ID"] for record in pool["Addresses"].values())
        and not pool["IsIPv6"] and master in ("", pool["IfName"])
    ]  # fmt: skip
    if not free:
        raise Failed("No available address pools")
    best = max(free, key=lambda pool: (pool["Priority"], len(pool["Addresses"])))
    return str(best["Id"])


# ---- state ----------------------------------------------------------------------------------------------------------


def _pools(state: dict[str, Any]) -> dict[str, Any]:
    space = state["AddressSpaces"].get(_SPACE)
    if space is None:
        raise Failed("Invalid address space")
    pools: dict[str, Any] = space["Pools"]
    return pools


def _state(machine: Machine, ipam: dict[str, Any]) -> dict[str, Any]:
    """What was given, brought up to date with the platform's list."""
    state, rebooted = read_state(machine, STATE, "IPAM")
    spaces = state.setdefault("AddressSpaces", {})
    if rebooted:
        for pool in spaces.get(_SPACE, {}).get("Pools", {}).values():
            pool["RefCount"] = 0
            for record in pool["Addresses"].values():
                record["ID"], record["InUse"] = "", False
    source = _SOURCES.get(str(value(ipam, "environment", "azure")))
    if source is None:
        raise Failed("Invalid configuration")
    listed = _listed(machine, source)
    if listed is not None:
        space = spaces.setdefault(_SPACE, {"Id": _SPACE, "Scope": 0, "Pools": {}})
        _merge(space["Pools"], listed, machine)
    return state


def _listed(machine: Machine, source: str) -> tuple[Subnet, ...] | None:
    """None if the platform does not answer: then what was known counts."""
    try:
        return _parse(machine.files.read(source))
    except (OSError, ValueError, ElementTree.ParseError):
        return None


@lru_cache(maxsize=2048)
def _parse(data: bytes) -> tuple[Subnet, ...]:
    if data.lstrip().startswith(b"{"):
        return tuple(
            Subnet(
                _digits(card["MacAddress"]), bool(card.get("IsPrimary")), subnet["Prefix"],
                tuple(a["Address"] for a in subnet["IPAddresses"] if not a.get("IsPrimary")),
            )
            for card in orjson.loads(data)["Interfaces"] for subnet in card["IPSubnets"]
        )  # fmt: skip
    return tuple(
        Subnet(
            _digits(card.get("MacAddress", "")), card.get("IsPrimary") == "true", subnet.get("Prefix", ""),
            tuple(a.get("Address", "") for a in subnet.iter("IPAddress") if a.get("IsPrimary") != "true"),
        )
        for card in ElementTree.fromstring(data).iter("Interface") for subnet in card.iter("IPSubnet")
    )  # fmt: skip


def _merge(pools: dict[str, Any], listed: tuple[Subnet, ...], machine: Machine) -> None:
    known: set[tuple[str, str]] = set()
    cards = {_digits(link.mac): link.name for link in machine.stack.links.values() if link.mac}
    for subnet in listed:
        name = next(iter(cards.values()), "") if subnet.mac == "*" else cards.get(subnet.mac, "")
        if not name:
            continue
        network = ipaddress.ip_network(subnet.prefix)
        pool = pools.setdefault(str(network), {
            "Id": str(network), "IfName": name, "Gateway": str(network[1]), "Addresses": {},
            "IsIPv6": network.version == 6, "Priority": 0 if subnet.primary else 1, "RefCount": 0,
        })  # fmt: skip
        for address in subnet.addresses:
            pool["Addresses"].setdefault(address, {"ID": "", "Addr": address, "InUse": False})
            known.add((pool["Id"], address))
    for key, pool in list(pools.items()):
        for address, record in list(pool["Addresses"].items()):
            if (key, address) in known:
                record.pop("Stale", None)
            elif record["InUse"]:
                record["Stale"] = True  # goes when it is given back
            else:
                del pool["Addresses"][address]
        if not pool["Addresses"]:
            del pools[key]


def _digits(mac: str) -> str:
    return mac.replace(":", "").replace("-", "").lower()
