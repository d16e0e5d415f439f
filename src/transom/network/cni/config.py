"""The network configuration of a node: files in its configuration directory, as libcni reads them.

The files are read in lexical order, and the first valid one is the node's network. A file with a
single plugin becomes a list of one. Parsed lists are cached by file content: a thousand nodes share
a few configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from transom.kit.caching import text_cache
from transom.kit.lazy_dataclass import dataclass
from transom.machinery import gojson
from transom.machines.smallfiles import list_small_directory, read_small_file
from transom.network.cni.paths import go_error_reason

if TYPE_CHECKING:
    from transom.machines.api import Files

LINUX_DIRECTORY = "/etc/cni/net.d"
WINDOWS_DIRECTORY = r"c:\k\cni\config"  # docker, as the guide configures the kubelet
CONTAINERD_WINDOWS_DIRECTORY = r"C:\etc\cni\net.d"
EXTENSIONS = (".conf", ".conflist", ".json")
_MOST_FILES = 100

_KINDS = {
    type(None): "<nil>",
    bool: "bool",
    int: "float64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
}
_STRINGS = ("cniVersion", "name", "type")


class CniConfigError(Exception):
    """An unusable configuration; the text is libcni's."""


@dataclass(frozen=True, slots=True)
class PluginConfig:
    type: str
    config: Mapping[str, Any]
    capabilities: tuple[str, ...]  # the capabilities that it requests
    name: str = ""  # of a file with this plugin only


@dataclass(frozen=True, slots=True)
class NetworkList:
    name: str
    version: str
    plugins: tuple[PluginConfig, ...]
    disable_check: bool
    data: bytes

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset(name for plugin in self.plugins for name in plugin.capabilities)


def build_plugin_config(
    plugin: PluginConfig,
    network: NetworkList,
    previous: Mapping[str, Any] | None,
    capabilities: Mapping[str, Any],
) -> dict[str, Any]:
    """The standard input of one plugin of a list."""
    config = {**plugin.config, "name": network.name, "cniVersion": network.version}
    if previous is not None:
        config["prevResult"] = previous
    wanted = {name: capabilities[name] for name in plugin.capabilities if name in capabilities}
    if wanted:
        config["runtimeConfig"] = wanted
    return config


# ---- files ----


def read_config_files(files: Files, directory: str) -> list[tuple[str, bytes | OSError]]:
    """The configuration files in lexical order, with their content or the reason why they cannot be
    read. Of a directory with very many files, only some are considered.
    """
    try:
        names = [
            name for name in list_small_directory(files, directory) if name.endswith(EXTENSIONS)
        ]
    except FileNotFoundError:
        return []
    names.sort()
    prefix = directory + ("\\" if "\\" in directory else "/")
    found: list[tuple[str, bytes | OSError]] = []
    for name in names[:_MOST_FILES]:
        try:
            found.append((prefix + name, read_small_file(files, prefix + name)))
        except OSError as error:
            if files.stat(prefix + name).kind != "directory":
                found.append((prefix + name, error))
    return found


def load_network_list(
    files: Files, directory: str, validate: Callable[[NetworkList], str] | None = None
) -> NetworkList:
    """The node's network. With `validate`, which returns a problem, it behaves like dockershim and
    skips invalid files; without it, like containerd, the first file must be valid.
    """
    found = read_config_files(files, directory)
    if not found:
        kind = "networks" if validate is not None else "network config"
        tail = "" if validate is not None else ": cni plugin not initialized"
        raise CniConfigError(f"no {kind} found in {directory}{tail}")
    for path, data in found:
        listed = path.endswith(".conflist")
        try:
            if isinstance(data, OSError):
                raise CniConfigError(f"error reading {path}: open {path}: {go_error_reason(data)}")
            network = (parse_list if listed else parse_single)(data)
        except CniConfigError as error:
            if validate is None:
                kind = "CNI config list file" if listed else "CNI config file"
                raise CniConfigError(
                    f"failed to load {kind} {path}: {error}: invalid cni config"
                ) from error
            continue
        if validate is None or not validate(network):
            return network
    raise CniConfigError(f"no valid networks found in {directory}")


@text_cache(256, longest=65536)
def parse_list(data: bytes) -> NetworkList:
    whole = _decode(data, "error parsing configuration list", "map[string]interface {}")
    problem = "error parsing configuration list: "
    if "name" not in whole:
        raise CniConfigError(problem + "no name")
    for key, kind in (("name", str), ("cniVersion", str), ("disableCheck", bool)):
        if key in whole and type(whole[key]) is not kind:
            raise CniConfigError(f"{problem}invalid {key} type {_kind(whole[key])}")
    if "plugins" not in whole:
        raise CniConfigError(problem + "no 'plugins' key")
    plugins = whole["plugins"]
    if type(plugins) is not list:
        raise CniConfigError(f"{problem}invalid 'plugins' type {_kind(plugins)}")
    if not plugins:
        raise CniConfigError(problem + "no plugins in list")
    parsed = []
    for number, plugin in enumerate(plugins):
        try:
            parsed.append(_plugin(plugin))
        except CniConfigError as error:
            raise CniConfigError(f"failed to parse plugin config {number}: {error}") from error
    version = whole.get("cniVersion", "")
    return NetworkList(
        whole["name"], version, tuple(parsed), whole.get("disableCheck", False), data
    )


@text_cache(256, longest=65536)
def parse_single(data: bytes) -> NetworkList:
    plugin = _plugin(_decode(data, "error parsing configuration", "types.NetConf"))
    version = plugin.config.get("cniVersion") or ""
    whole = orjson.dumps(
        {"cniVersion": version, "name": plugin.name, "plugins": [plugin.config]},
        option=orjson.OPT_SORT_KEYS,
    )
    return NetworkList(plugin.name, version, (plugin,), False, whole)


def _decode(data: bytes, problem: str, kind: str) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise CniConfigError(f"{problem}: {gojson.syntax_error(data) or error}") from error
    if type(value) is not dict:
        word = {bool: "bool", str: "string", list: "array"}.get(type(value), "number")
        if value is not None:
            raise CniConfigError(
                f"{problem}: json: cannot unmarshal {word} into Go value of type {kind}"
            )
        value = {}
    return value


def _plugin(config: Any) -> PluginConfig:
    problem = "error parsing configuration: "
    if type(config) is not dict:
        word = {bool: "bool", str: "string", list: "array"}.get(type(config), "number")
        raise CniConfigError(
            f"{problem}json: cannot unmarshal {word} into Go value of type types.NetConf"
        )
    for key in _STRINGS:
        if config.get(key) is not None and type(config[key]) is not str:
            word = {bool: "bool", dict: "object", list: "array"}.get(type(config[key]), "number")
            raise CniConfigError(
                f"{problem}json: cannot unmarshal {word} into Go struct field NetConf.{key} "
                "of type string"
            )
    if not config.get("type"):
        raise CniConfigError(problem + "missing 'type'")
    wanted = config.get("capabilities") or {}
    if type(wanted) is not dict or any(type(value) is not bool for value in wanted.values()):
        raise CniConfigError(
            problem
            + (
                "json: cannot unmarshal value into Go struct field NetConf.capabilities of type "
                "map[string]bool"
            )
        )
    return PluginConfig(
        config["type"],
        config,
        tuple(sorted(k for k, v in wanted.items() if v)),
        config.get("name") or "",
    )


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "map[string]interface {}")
