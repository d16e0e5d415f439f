"""flannel: a meta plugin. It combines its own configuration with the node's subnet from flanneld
and delegates to another plugin, bridge on Linux and win-bridge on Windows. The delegate's
configuration is saved in a file for DEL.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

import orjson

from transom.kit.caching import text_cache
from transom.kit.lazy_dataclass import dataclass
from transom.machines.smallfiles import read_small_file
from transom.network.cni import values
from transom.network.cni.paths import fail_with_file_error, join_cni_path
from transom.network.cni.plugin import CniCall, CniNode, Delegate, Result, fail_plugin

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


def flannel(call: CniCall, machine: CniNode, delegate: Delegate) -> Result | None:
    if call.command == "CHECK":
        return None
    directory = join_cni_path(machine.os, call.config.get("dataDir") or DATA)
    sandbox = pod_sandbox_id(call) if machine.os == "windows" else call.container_id
    scratch = join_cni_path(machine.os, directory, sandbox)
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
        fail_with_file_error("open", scratch, error)
    return delegate(conf["type"], call.with_config(conf))


def pod_sandbox_id(call: CniCall) -> str:
    """Docker calls the plugin for each container of a pod; all of them use the network of the
    first.
    """
    if call.netns not in ("", "none"):
        kind, colon, identity = call.netns.partition(":")
        if colon and kind:
            return identity
    return call.container_id


def _delete(call: CniCall, machine: CniNode, delegate: Delegate, scratch: str) -> None:
    try:
        data = read_small_file(machine.files, scratch)
    except FileNotFoundError:
        return
    except OSError as error:
        fail_with_file_error("open", scratch, error)
    try:
        conf = _parsed(data)
    except orjson.JSONDecodeError as error:
        fail_plugin(f"failed to parse netconf: {error}")
    delegate(conf.get("type") or "", call.with_config(conf))
    machine.files.remove(scratch)


@text_cache(1024, longest=4096)
def _parsed(data: bytes) -> dict[str, Any]:
    """Usually the same for all sandboxes of a node. Immutable."""
    conf: dict[str, Any] = orjson.loads(data)
    return conf


def _delegated(call: CniCall, machine: CniNode) -> tuple[dict[str, Any], bytes]:
    shown = call.config.get("subnetFile") or SUBNET_FILE
    try:
        data = read_small_file(machine.files, join_cni_path(machine.os, shown))
    except OSError as error:
        fail_with_file_error("open", shown, error)
    key = ("flannel", call.config["name"])
    before = machine.memory.get(key)
    if before is not None and before[0] == data and before[1] == call.config:
        kept: tuple[dict[str, Any], bytes] = before[2]
        return kept
    conf = delegate_config(call.config, read_subnet(data, shown), machine.os)
    answer = (conf, bytes(memoryview(orjson.dumps(conf, option=orjson.OPT_SORT_KEYS))))
    machine.memory[key] = (data, call.config, answer)
    return answer


def read_subnet(data: bytes, path: str) -> SubnetEnv:
    found: dict[str, Any] = {}
    for line in data.decode(errors="replace").splitlines():
        key, _, value = line.partition("=")
        if key in _NETWORKS:
            found[key] = str(values.parse_network(value))
        elif key == "FLANNEL_MTU":
            if not value.isdigit():
                fail_plugin(f'strconv.ParseUint: parsing "{value}": invalid syntax')
            found[key] = int(value)
        elif key == "FLANNEL_IPMASQ":
            found[key] = value == "true"
    missing = []
    for kind in ("NETWORK", "SUBNET"):
        if f"FLANNEL_{kind}" not in found and f"FLANNEL_IPV6_{kind}" not in found:
            missing += [f"FLANNEL_{kind}", f"FLANNEL_IPV6_{kind}"]
    missing += [key for key in ("FLANNEL_MTU", "FLANNEL_IPMASQ") if key not in found]
    if missing:
        fail_plugin(f"{path} is missing {', '.join(missing)}")
    return SubnetEnv(
        found.get("FLANNEL_NETWORK", ""),
        found.get("FLANNEL_SUBNET", ""),
        found.get("FLANNEL_IPV6_NETWORK", ""),
        found.get("FLANNEL_IPV6_SUBNET", ""),
        found["FLANNEL_MTU"],
        found["FLANNEL_IPMASQ"],
    )


def delegate_config(config: Mapping[str, Any], env: SubnetEnv, os: str) -> dict[str, Any]:
    """The configuration for the delegate."""
    given = config.get("delegate")
    if given is not None:
        if "type" in given and type(given["type"]) is not str:
            fail_plugin("'delegate' dictionary, if present, must have (string) 'type' field")
        for key in ("name", "ipam"):
            if key in given:
                fail_plugin(
                    f"'delegate' dictionary must not have '{key}' field, it'll be set by flannel"
                )
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
    conf.setdefault("ipMasq", not env.masquerade)  # either flanneld or the plugin masquerades
    conf.setdefault("mtu", env.mtu)
    if conf["type"] == "bridge":
        conf.setdefault("isGateway", True)
    if config.get("cniVersion"):
        conf["cniVersion"] = config["cniVersion"]
    ipam = {"type": "host-local", **(config.get("ipam") or {})}
    ipam["ranges"] = [[{"subnet": subnet}] for subnet in (env.subnet, env.subnet6) if subnet]
    ipam["routes"] = [
        *values.parse_routes(ipam.get("routes")),
        *({"dst": network} for network in (env.network, env.network6) if network),
    ]
    conf["ipam"] = ipam
    return conf


def write_subnet(
    network: str, subnet: str, mtu: int, masquerade: bool, network6: str = "", subnet6: str = ""
) -> bytes:
    """Writes subnet.env like flanneld: the first address of the subnet, with the prefix."""
    lines = []
    for cluster, own, infix in ((network, subnet, ""), (network6, subnet6, "IPV6_")):
        if own:
            first = ipaddress.ip_network(own)
            lines += [
                f"FLANNEL_{infix}NETWORK={cluster}",
                f"FLANNEL_{infix}SUBNET={first[1]}/{first.prefixlen}",
            ]
    lines += [f"FLANNEL_MTU={mtu}", f"FLANNEL_IPMASQ={'true' if masquerade else 'false'}"]
    return "\n".join([*lines, ""]).encode()
