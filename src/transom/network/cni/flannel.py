"""flannel: a meta plugin. It makes a configuration of its own and of what flanneld wrote about the node's subnet, and hands
it to another plugin, bridge on Linux and win-bridge on Windows. What it handed over is kept in a file for DEL.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from transom.network.cni import values
from transom.network.cni.paths import fail_file, join
from transom.network.cni.plugin import Call, Delegate, Machine, Result, fail

SUBNET_FILE = "/run/flannel/subnet.env"
DATA = "/var/lib/cni/flannel"
_NETWORKS = ("FLANNEL_NETWORK", "FLANNEL_SUBNET", "FLANNEL_IPV6_NETWORK", "FLANNEL_IPV6_SUBNET")


@dataclass(frozen=True, slots=True)
class SubnetEnv:
    network: str = ""
    subnet: str = ""
    network6: str = ""
    subnet6: str = ""
    mtu: int | None = None
    masquerade: bool | None = None


def flannel(call: Call, machine: Machine, delegate: Delegate) -> Result | None:
    if call.command == "CHECK":
        return None
    directory = join(machine.os, call.config.get("dataDir") or DATA)
    sandbox = sandbox_id(call) if machine.os == "windows" else call.container_id
    scratch = join(machine.os, directory, sandbox)
    if call.command == "DEL":
        _delete(call, machine, delegate, scratch)
        return None
    conf, written = _delegated(call, machine)
    try:
        machine.files.write(scratch, written, 0o600)
    except FileNotFoundError:
        machine.files.mkdir(directory, 0o700)
        machine.files.write(scratch, written, 0o600)
    except OSError as error:
        fail_file("open", scratch, error)
    return delegate(conf["type"], call.with_config(conf))


def sandbox_id(call: Call) -> str:
    """Docker calls for each container of a pod; all of them are in the network of the first."""
    if call.netns not in ("", "none"):
        kind, colon, identity = call.netns.partition(":")
        if colon and kind:
            return identity
    return call.container_id


def _delete(call: Call, machine: Machine, delegate: Delegate, scratch: str) -> None:
    try:
        data = machine.files.read(scratch)
    except FileNotFoundError:
        return
    except OSError as error:
        fail_file("open", scratch, error)
    try:
        conf = _parsed(data)
    except orjson.JSONDecodeError as error:
        fail(f"failed to parse netconf: {error}")
    delegate(conf.get("type") or "", call.with_config(conf))
    machine.files.remove(scratch)


@lru_cache(1024)
def _parsed(data: bytes) -> dict[str, Any]:
    """The same for all sandboxes of a node, mostly. Nobody changes it."""
    conf: dict[str, Any] = orjson.loads(data)
    return conf


def _delegated(call: Call, machine: Machine) -> tuple[dict[str, Any], bytes]:
    shown = call.config.get("subnetFile") or SUBNET_FILE
    try:
        data = machine.files.read(join(machine.os, shown))
    except OSError as error:
        fail_file("open", shown, error)
    key = ("flannel", call.config["name"])
    before = machine.memory.get(key)
    if before is not None and before[0] == data and before[1] == call.config:
        kept: tuple[dict[str, Any], bytes] = before[2]
        return kept
    conf = make(call.config, read_subnet(data, shown), machine.os)
    answer = (conf, bytes(memoryview(orjson.dumps(conf, option=orjson.OPT_SORT_KEYS))))
    machine.memory[key] = (data, call.config, answer)
    return answer


def read_subnet(data: bytes, path: str) -> SubnetEnv:
    found: dict[str, Any] = {}
    for line in data.decode(errors="replace").splitlines():
        key, _, value = line.partition("=")
        if key in _NETWORKS:
            found[key] = str(values.network(value))
        elif key == "FLANNEL_MTU":
            if not value.isdigit():
                fail(f'strconv.ParseUint: parsing "{value}": invalid syntax')
            found[key] = int(value)
        elif key == "FLANNEL_IPMASQ":
            found[key] = value == "true"
    missing = []
    for kind in ("NETWORK", "SUBNET"):
        if f"FLANNEL_{kind}" not in found and f"FLANNEL_IPV6_{kind}" not in found:
            missing += [f"FLANNEL_{kind}", f"FLANNEL_IPV6_{kind}"]
    missing += [key for key in ("FLANNEL_MTU", "FLANNEL_IPMASQ") if key not in found]
    if missing:
        fail(f"{path} is missing {', '.join(missing)}")
    return SubnetEnv(
        found.get("FLANNEL_NETWORK", ""), found.get("FLANNEL_SUBNET", ""), found.get("FLANNEL_IPV6_NETWORK", ""),
        found.get("FLANNEL_IPV6_SUBNET", ""), found["FLANNEL_MTU"], found["FLANNEL_IPMASQ"],
    )  # fmt: skip


def make(config: Mapping[str, Any], env: SubnetEnv, os: str) -> dict[str, Any]:
    """The configuration for the delegate."""
    given = config.get("delegate")
    if given is not None:
        if "type" in given and type(given["type"]) is not str:
            fail("'delegate' dictionary, if present, must have (string) 'type' field")
        for key in ("name", "ipam"):
            if key in given:
                fail(f"'delegate' dictionary must not have '{key}' field, it'll be set by flannel")
    conf = {**(given or {}), "name": config["name"]}
    if config.get("runtimeConfig") is not None:
        conf["runtimeConfig"] = config["runtimeConfig"]
    if os == "windows":
        conf.setdefault("type", "win-bridge")
        conf["ipMasq"] = env.masquerade
        conf["ipMasqNetwork"] = env.network
        conf["cniVersion"] = config.get("cniVersion") or "0.2.0"
        conf["ipam"] = {"type": "host-local", "subnet": env.subnet}
        return conf
    conf.setdefault("type", "bridge")
    conf.setdefault("ipMasq", not env.masquerade)  # somebody has to do it
    conf.setdefault("mtu", env.mtu)
    if conf["type"] == "bridge":
        conf.setdefault("isGateway", True)
    if config.get("cniVersion"):
        conf["cniVersion"] = config["cniVersion"]
    ipam = {"type": "host-local", **(config.get("ipam") or {})}
    ipam["ranges"] = [[{"subnet": subnet}] for subnet in (env.subnet, env.subnet6) if subnet]
    ipam["routes"] = [
        *values.routes(ipam.get("routes")), *({"dst": network} for network in (env.network, env.network6) if network)
    ]  # fmt: skip
    conf["ipam"] = ipam
    return conf


def write_subnet(network: str, subnet: str, mtu: int, masquerade: bool, network6: str = "", subnet6: str = "") -> bytes:
    """As flanneld writes it: of the subnet the first address, with the prefix."""
    lines = []
    for cluster, own, infix in ((network, subnet, ""), (network6, subnet6, "IPV6_")):
        if own:
            first = ipaddress.ip_network(own)
            lines += [f"FLANNEL_{infix}NETWORK={cluster}", f"FLANNEL_{infix}SUBNET={first[1]}/{first.prefixlen}"]
    lines += [f"FLANNEL_MTU={mtu}", f"FLANNEL_IPMASQ={'true' if masquerade else 'false'}"]
    return "\n".join([*lines, ""]).encode()
