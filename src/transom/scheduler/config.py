"""The configuration file, in Kubernetes' own format: KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1beta1.

What concerns a server (addresses, profiling, client connection) is read and does not matter here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from transom.machinery.objects import Object
from transom.scheduler.framework import ConfigError, Handle
from transom.scheduler.plugins.table import DEFAULTS, POINTS
from transom.scheduler.profile import Profile

DEFAULT_SCHEDULER = "default-scheduler"
_GROUP = "kubescheduler.config.k8s.io"
_VERSIONS = (f"{_GROUP}/v1beta1",)
_KIND = "KubeSchedulerConfiguration"
_FIELDS = (
    "apiVersion", "kind", "parallelism", "leaderElection", "clientConnection", "healthzBindAddress", "metricsBindAddress",
    "enableProfiling", "enableContentionProfiling", "percentageOfNodesToScore", "podInitialBackoffSeconds",
    "podMaxBackoffSeconds", "profiles", "extenders",
)

Enabled = dict[str, tuple[tuple[str, int], ...]]


@dataclass(frozen=True, slots=True)
class ProfileConfig:
    name: str = DEFAULT_SCHEDULER
    enabled: Enabled = field(default_factory=lambda: dict(DEFAULTS))
    args: dict[str, dict[str, Any]] = field(default_factory=dict)

    def build(self, handle: Handle) -> Profile:
        return Profile(self.name, self.enabled, self.args, handle)


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    profiles: tuple[ProfileConfig, ...] = (ProfileConfig(),)
    percentage_of_nodes_to_score: int = 0
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    leader_elect: bool = True


def load(path: Path) -> SchedulerConfig:
    try:
        document = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError) as problem:
        raise ConfigError(f"{path}: {problem}") from problem
    try:
        return read(document)
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}") from problem


def read(document: Any) -> SchedulerConfig:
    if not isinstance(document, dict):
        raise ConfigError("couldn't get version/kind; json parse error: not an object")
    if document.get("apiVersion") not in _VERSIONS or document.get("kind") != _KIND:
        raise ConfigError(
            f'no kind "{document.get("kind", "")}" is registered for version "{document.get("apiVersion", "")}"; '
            f"known is {_KIND} of {', '.join(_VERSIONS)}"
        )
    _known(document, _FIELDS, "")
    if document.get("extenders"):
        raise ConfigError("extenders: Forbidden: extenders are not supported")
    if document.get("parallelism", 1) <= 0:
        raise _invalid("parallelism", document["parallelism"], "should be an integer value greater than zero")
    percentage = _integer(document, "percentageOfNodesToScore", 0)
    initial = _integer(document, "podInitialBackoffSeconds", 1)
    longest = _integer(document, "podMaxBackoffSeconds", 10)
    if not 0 <= percentage <= 100:
        raise _invalid("percentageOfNodesToScore", percentage, "not in valid range [0-100]")
    if initial <= 0:
        raise _invalid("podInitialBackoffSeconds", initial, "must be greater than 0")
    if longest < initial:
        raise _invalid("podMaxBackoffSeconds", longest, "must be greater than or equal to PodInitialBackoffSeconds")
    given = document.get("profiles") or [{}]
    profiles = tuple(_profile(entry, f"profiles[{i}]", alone=len(given) == 1) for i, entry in enumerate(given))
    seen: dict[str, int] = {}
    for i, profile in enumerate(profiles):
        if profile.name in seen:
            raise ConfigError(f"profiles[{i}].schedulerName: Duplicate value: profiles[{seen[profile.name]}].schedulerName")
        if profile.enabled["queueSort"] != profiles[0].enabled["queueSort"]:
            raise ConfigError(f"profiles[{i}].plugins.queueSort: Invalid value: has to match for all profiles")
        seen[profile.name] = i
    elect = (document.get("leaderElection") or {}).get("leaderElect", True)
    return SchedulerConfig(profiles, percentage, float(initial), float(longest), elect)


def _profile(entry: Object, where: str, alone: bool) -> ProfileConfig:
    _known(entry, ("schedulerName", "plugins", "pluginConfig"), where)
    name = entry.get("schedulerName", DEFAULT_SCHEDULER if alone else "")
    if not name:
        raise ConfigError(f"{where}.schedulerName: Required value")
    args: dict[str, dict[str, Any]] = {}
    for config in entry.get("pluginConfig") or ():
        plugin = config.get("name", "")
        if plugin in args:
            raise ConfigError(f"repeated config for plugin {plugin}")
        args[plugin] = _args(config.get("args") or {}, plugin)
    plugins = entry.get("plugins") or {}
    _known(plugins, tuple(POINTS), f"{where}.plugins")
    enabled = {point: _merged(DEFAULTS.get(point, ()), plugins.get(point) or {}) for point in POINTS}
    return ProfileConfig(name, enabled, args)


def _args(args: dict[str, Any], plugin: str) -> dict[str, Any]:
    kind = args.get("kind", f"{plugin}Args")
    if kind != f"{plugin}Args":
        raise ConfigError(f"args for plugin {plugin} were not of type {plugin}Args.{_GROUP}, got {kind}.{_GROUP}")
    return args


def _merged(defaults: tuple[tuple[str, int], ...], given: Object) -> tuple[tuple[str, int], ...]:
    """The defaults without what is disabled, then what is enabled."""
    off = {entry.get("name") for entry in given.get("disabled") or ()}
    kept = () if "*" in off else tuple(row for row in defaults if row[0] not in off)
    return kept + tuple((entry.get("name", ""), entry.get("weight") or 0) for entry in given.get("enabled") or ())


def _known(value: Any, fields: tuple[str, ...], where: str) -> None:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: not an object")
    for name in value:
        if name not in fields:
            raise ConfigError(f'strict decoder error: unknown field "{where + "." if where else ""}{name}"')


def _integer(document: Object, name: str, default: int) -> int:
    value = document.get(name, default)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise _invalid(name, value, "not an integer")
    return value


def _invalid(name: str, value: Any, why: str) -> ConfigError:
    return ConfigError(f"{name}: Invalid value: {value}: {why}")
