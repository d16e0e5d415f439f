"""Runs the plugins of a network list for a sandbox, as libcni does: in order on ADD, in reverse
order on DEL.

`Execute` runs a single plugin: in this process (`in_process`) or as a program on the node
(exec.py). Results are cached in a file of the node, from which CHECK and DEL get them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

import orjson

from transom.kit.lazy import lazy_pattern
from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.machines.smallfiles import read_small_file
from transom.network.cni import results
from transom.network.cni.config import NetworkList, PluginConfig, build_plugin_config
from transom.network.cni.paths import join_cni_path
from transom.network.cni.plugin import (
    DECODING_FAILURE,
    INCOMPATIBLE_VERSION,
    INVALID_CONFIG,
    INVALID_ENVIRONMENT,
    UNKNOWN_CONTAINER,
    CniCall,
    CniError,
    CniNode,
    Command,
    Result,
    fail_plugin,
)
from transom.network.cni.plugins import Table, plugin_table

Execute = Callable[[str, CniCall], Result | None]
"""A plugin's type and the call -> its result in the current form."""

_NAME = lazy_pattern(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*\Z")
_VERSION = lazy_pattern(r"(\d+)\.(\d+)\.(\d+)\Z")
CHECK_SINCE = (0, 4, 0)


@dataclass(frozen=True, slots=True)
class RuntimeConf:
    """What a container runtime passes about a sandbox."""

    container_id: str
    netns: str
    ifname: str = "eth0"
    args: Mapping[str, str] = field(default_factory=dict)
    # portMappings, bandwidth, ipRanges, dns
    capabilities: Mapping[str, Any] = field(default_factory=dict)


class CniRunner(NamedTuple):
    machine: CniNode
    execute: Execute
    versions: Callable[[str], Sequence[str] | None]  # of a plugin; None: not installed
    path: str = "/opt/cni/bin"
    cache: str = "/var/lib/cni"  # where results are cached
    labelled: bool = False  # libcni since 1.0 names the plugin that failed

    def add(self, network: NetworkList, runtime: RuntimeConf) -> Result:
        """Returns the result in the version of the configuration."""
        previous: Result | None = None
        for plugin in network.plugins:
            previous = self._one("ADD", network, plugin, previous, runtime)
        assert previous is not None
        self._keep(network, runtime, previous)
        return previous

    def delete(self, network: NetworkList, runtime: RuntimeConf) -> None:
        previous = (
            self._kept(network, runtime) if version_number(network.version) >= CHECK_SINCE else None
        )
        for plugin in reversed(network.plugins):
            self._one("DEL", network, plugin, previous, runtime)
        path = self._cached(network, runtime)
        if self.machine.files.exists(path):
            self.machine.files.remove(path)

    def check(self, network: NetworkList, runtime: RuntimeConf) -> None:
        if version_number(network.version) < CHECK_SINCE:
            fail_plugin(
                f'configuration version "{network.version}" does not support the CHECK command'
            )
        if network.disable_check:
            return
        previous = self._kept(network, runtime)
        for plugin in network.plugins:
            self._one("CHECK", network, plugin, previous, runtime)

    def problem(self, network: NetworkList) -> str:
        """Why the list cannot be run: plugins that are not installed or do not support its version.
        Empty if it can.
        """
        requested = network.version or "0.1.0"
        found = []
        for plugin in network.plugins:
            known = self.versions(plugin.type)
            if known is None:
                found.append(plugin_missing_text(plugin.type, self.path))
            elif requested not in known:
                found.append(f'plugin {plugin.type} does not support config version "{requested}"')
        return f"[{' '.join(found)}]" if found else ""

    def _one(
        self,
        command: Command,
        network: NetworkList,
        plugin: PluginConfig,
        previous: Result | None,
        runtime: RuntimeConf,
    ) -> Result | None:
        if command == "ADD":
            check_container(runtime.container_id)
            check_network_name(network.name)
            check_interface(runtime.ifname)
        config = build_plugin_config(plugin, network, previous, runtime.capabilities)
        call = CniCall(
            command,
            runtime.container_id,
            runtime.netns,
            runtime.ifname,
            dict(runtime.args),
            self.path,
            config,
        )
        try:
            result = self.execute(plugin.type, call)
            return None if result is None else results.as_version(result, network.version)
        except CniError as error:
            if not self.labelled:
                raise
            name = f' name="{plugin.name}"' if plugin.name else ""
            text = f'plugin type="{plugin.type}"{name} failed ({command.lower()}): {error}'
            raise CniError(error.code, text) from error

    # ---- results on the node's disk ----

    def _cached(self, network: NetworkList, runtime: RuntimeConf) -> str:
        name = f"{network.name}-{runtime.container_id}-{runtime.ifname}"
        return join_cni_path(self.machine.os, self.cache, "results", name)

    def _keep(self, network: NetworkList, runtime: RuntimeConf, result: Result) -> None:
        kept: dict[str, Any] = {
            "kind": "cniCacheV1",
            "containerId": runtime.container_id,
            "config": _base64(network.data),
            "ifName": runtime.ifname,
            "networkName": network.name,
        }
        if runtime.args:
            kept["cniArgs"] = list(runtime.args.items())
        if runtime.capabilities:
            kept["capabilityArgs"] = runtime.capabilities
        kept["result"] = result
        path = self._cached(network, runtime)
        # orjson's own bytes keep their oversized buffer alive
        data = bytes(memoryview(orjson.dumps(kept)))
        try:
            self.machine.files.write(path, data, 0o600)
        except FileNotFoundError:
            self.machine.files.mkdir(join_cni_path(self.machine.os, self.cache, "results"), 0o700)
            self.machine.files.write(path, data, 0o600)

    def _kept(self, network: NetworkList, runtime: RuntimeConf) -> Result | None:
        try:
            kept = orjson.loads(read_small_file(self.machine.files, self._cached(network, runtime)))
        except (OSError, orjson.JSONDecodeError):
            return None
        result: Result | None = kept.get("result") if kept.get("kind") == "cniCacheV1" else kept
        if result is None or result.get("cniVersion") == network.version:
            return result
        return results.as_version(results.to_current(result), network.version)


def in_process(machine: CniNode, path: str = "", plugins: Table | None = None) -> Execute:
    """Runs plugins of the table. With a path, only those whose program is in the node's files."""
    there = plugin_table(machine.os) if plugins is None else plugins

    def execute(kind: str, call: CniCall) -> Result | None:
        found = there.get(kind)
        if found is None or (path and not is_plugin_present(machine, kind, path)):
            fail_plugin(plugin_missing_text(kind, path or call.path))
        check_call(found.versions, call)
        return found.run(call, machine, execute)

    return execute


def is_plugin_present(machine: CniNode, kind: str, path: str) -> bool:
    if machine.os == "windows":
        return machine.files.exists(f"{path}\\{kind}.exe") or machine.files.exists(
            f"{path}\\{kind}"
        )
    return machine.files.exists(f"{path}/{kind}")


def install_plugins(machine: CniNode, path: str, plugins: Table) -> None:
    """Writes the programs to the node's files, where a runtime looks for them."""
    machine.files.mkdir(path)
    windows = machine.os == "windows"
    for kind in plugins:
        name = f"{path}\\{kind}.exe" if windows else f"{path}/{kind}"
        machine.files.write(name, b"MZ" if windows else b"\x7fELF", 0o755)


# ---- validation before every plugin ----


def check_call(known: Sequence[str], call: CniCall) -> None:
    _environment(call)
    name = call.config.get("name")
    if not name:
        raise CniError(INVALID_CONFIG, "missing network name")
    check_network_name(name)
    check_container(call.container_id)
    check_interface(call.ifname)
    version = call.config.get("cniVersion") or "0.1.0"
    if call.command == "CHECK":
        if version_number(version) < CHECK_SINCE:
            raise CniError(INCOMPATIBLE_VERSION, "config version does not allow CHECK")
        if all(version_number(other) < version_number(version) for other in known):
            raise CniError(INCOMPATIBLE_VERSION, "plugin version does not allow CHECK")
    if version not in known:
        listed = " ".join(f'"{other}"' for other in known)
        raise CniError(
            INCOMPATIBLE_VERSION,
            "incompatible CNI versions",
            f'config is "{version}", plugin supports [{listed}]',
        )


def _environment(call: CniCall) -> None:
    if call.command not in ("ADD", "DEL", "CHECK"):
        raise CniError(INVALID_ENVIRONMENT, f"unknown CNI_COMMAND: {call.command}")
    given = {
        "CNI_CONTAINERID": call.container_id,
        "CNI_NETNS": call.netns or call.command == "DEL",
        "CNI_IFNAME": call.ifname,
        "CNI_PATH": call.path,
    }
    if not all(given.values()):
        names = ",".join(name for name, value in given.items() if not value)
        raise CniError(INVALID_ENVIRONMENT, f"required env variables [{names}] missing")


@lru_cache(64)
def _interface_problem(name: str) -> tuple[str, str] | None:
    if not name:
        return "interface name is empty", ""
    if len(name) > 15:
        return "interface name is too long", "interface name should be less than 16 characters"
    if name in (".", ".."):
        return "interface name is . or ..", ""
    if "/" in name or ":" in name or any(letter.isspace() for letter in name):
        return "interface name contains / or : or whitespace characters", ""
    return None


def check_container(identity: str) -> None:
    if not identity:
        raise CniError(UNKNOWN_CONTAINER, "missing containerID")
    if not _NAME.match(identity):
        raise CniError(INVALID_ENVIRONMENT, "invalid characters in containerID", identity)


def check_network_name(name: str) -> None:
    if not name:
        raise CniError(INVALID_CONFIG, "missing network name:")
    if not _NAME.match(name):
        raise CniError(INVALID_CONFIG, "invalid characters found in network name", name)


def check_interface(name: str) -> None:
    problem = _interface_problem(name)
    if problem is not None:
        raise CniError(INVALID_ENVIRONMENT, *problem)


def plugin_missing_text(kind: str, path: str) -> str:
    return f'failed to find plugin "{kind}" in path [{path}]'


@lru_cache(64)
def version_number(version: str) -> tuple[int, int, int]:
    found = _VERSION.match(version or "0.1.0")
    if found is None:
        raise CniError(DECODING_FAILURE, f'failed to convert major version part "{version}"')
    major, minor, micro = found.groups()
    return int(major), int(minor), int(micro)


_encoded: dict[bytes, str] = {}


def _base64(data: bytes) -> str:
    """Of configurations, of which there are only a few."""
    if data not in _encoded:
        if len(_encoded) > 256:
            _encoded.clear()
        _encoded[data] = base64.b64encode(data).decode()
    return _encoded[data]
