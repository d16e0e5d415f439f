"""The configuration file: KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1beta1.

Fields for the HTTP server and the client connection are accepted and have no effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT
from transom.machinery.releases.features import FeatureSet
from transom.scheduler.default_plugins import DEFAULT_PLUGINS, default_plugins
from transom.scheduler.errors import SchedulerConfigError
from transom.scheduler.runtime import EXTENSION_POINTS, PluginSet

DEFAULT_SCHEDULER_NAME = "default-scheduler"
_GROUP = "kubescheduler.config.k8s.io"
_VERSIONS = (f"{_GROUP}/v1beta1",)
_KIND = "KubeSchedulerConfiguration"
_FIELDS = (
    "apiVersion",
    "kind",
    "parallelism",
    "leaderElection",
    "clientConnection",
    "healthzBindAddress",
    "metricsBindAddress",
    "enableProfiling",
    "enableContentionProfiling",
    "percentageOfNodesToScore",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "profiles",
    "extenders",
)


@dataclass(frozen=True, slots=True)
class KubeSchedulerProfile:
    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    plugins: dict[str, PluginSet] = field(default_factory=lambda: dict(DEFAULT_PLUGINS))
    args: dict[str, Object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KubeSchedulerConfiguration:
    profiles: tuple[KubeSchedulerProfile, ...] = (KubeSchedulerProfile(),)
    percentage_of_nodes_to_score: int = 0
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    leader_elect: bool = True


_DEFAULT_FEATURES = FeatureSet(DEFAULT)


def default_scheduler_config(features: FeatureSet) -> KubeSchedulerConfiguration:
    """The configuration of a release without a file."""
    return KubeSchedulerConfiguration((KubeSchedulerProfile(plugins=default_plugins(features)),))


def load_scheduler_config(
    path: Path, features: FeatureSet = _DEFAULT_FEATURES
) -> KubeSchedulerConfiguration:
    try:
        document = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError) as error:
        raise SchedulerConfigError(f"{path}: {error}") from error
    try:
        return decode_scheduler_config(document, features)
    except SchedulerConfigError as error:
        raise SchedulerConfigError(f"{path}: {error}") from error


def decode_scheduler_config(
    document: Any, features: FeatureSet = _DEFAULT_FEATURES
) -> KubeSchedulerConfiguration:
    if not isinstance(document, dict):
        raise SchedulerConfigError("couldn't get version/kind; json parse error: not an object")
    if document.get("apiVersion") not in _VERSIONS or document.get("kind") != _KIND:
        raise SchedulerConfigError(
            f'no kind "{document.get("kind", "")}" is registered for version "{document.get("apiVersion", "")}"; '
            f"known is {_KIND} of {', '.join(_VERSIONS)}"
        )
    _check_fields(document, _FIELDS, "")
    if document.get("extenders"):
        raise SchedulerConfigError("extenders: Forbidden: extenders are not supported")
    if document.get("parallelism", 1) <= 0:
        raise _invalid(
            "parallelism", document["parallelism"], "should be an integer value greater than zero"
        )
    percentage = _integer(document, "percentageOfNodesToScore", 0)
    initial = _integer(document, "podInitialBackoffSeconds", 1)
    longest = _integer(document, "podMaxBackoffSeconds", 10)
    if not 0 <= percentage <= 100:
        raise _invalid("percentageOfNodesToScore", percentage, "not in valid range [0-100]")
    if initial <= 0:
        raise _invalid("podInitialBackoffSeconds", initial, "must be greater than 0")
    if longest < initial:
        raise _invalid(
            "podMaxBackoffSeconds",
            longest,
            "must be greater than or equal to PodInitialBackoffSeconds",
        )
    given = document.get("profiles") or [{}]
    defaults = default_plugins(features)
    profiles = tuple(
        _profile(entry, f"profiles[{i}]", defaults, alone=len(given) == 1)
        for i, entry in enumerate(given)
    )
    seen: dict[str, int] = {}
    for i, profile in enumerate(profiles):
        if profile.scheduler_name in seen:
            raise SchedulerConfigError(
                f"profiles[{i}].schedulerName: Duplicate value: profiles[{seen[profile.scheduler_name]}].schedulerName"
            )
        if profile.plugins["queueSort"] != profiles[0].plugins["queueSort"]:
            raise SchedulerConfigError(
                f"profiles[{i}].plugins.queueSort: Invalid value: has to match for all profiles"
            )
        seen[profile.scheduler_name] = i
    elect = (document.get("leaderElection") or {}).get("leaderElect", True)
    return KubeSchedulerConfiguration(profiles, percentage, float(initial), float(longest), elect)


def _profile(
    entry: Object, where: str, defaults: dict[str, PluginSet], alone: bool
) -> KubeSchedulerProfile:
    _check_fields(entry, ("schedulerName", "plugins", "pluginConfig"), where)
    name = entry.get("schedulerName", DEFAULT_SCHEDULER_NAME if alone else "")
    if not name:
        raise SchedulerConfigError(f"{where}.schedulerName: Required value")
    args: dict[str, Object] = {}
    for config in entry.get("pluginConfig") or ():
        plugin = config.get("name", "")
        if plugin in args:
            raise SchedulerConfigError(f"repeated config for plugin {plugin}")
        args[plugin] = _args(config.get("args") or {}, plugin)
    plugins = entry.get("plugins") or {}
    _check_fields(plugins, tuple(EXTENSION_POINTS), f"{where}.plugins")
    enabled = {
        point: _merge_plugin_set(defaults.get(point, ()), plugins.get(point) or {})
        for point in EXTENSION_POINTS
    }
    return KubeSchedulerProfile(name, enabled, args)


def _args(args: Object, plugin: str) -> Object:
    kind = args.get("kind", f"{plugin}Args")
    if kind != f"{plugin}Args":
        raise SchedulerConfigError(
            f"args for plugin {plugin} were not of type {plugin}Args.{_GROUP}, got {kind}.{_GROUP}"
        )
    return args


def _merge_plugin_set(defaults: PluginSet, custom: Object) -> PluginSet:
    """The defaults without the disabled plugins, then the enabled ones."""
    disabled = {entry.get("name") for entry in custom.get("disabled") or ()}
    kept = () if "*" in disabled else tuple(row for row in defaults if row[0] not in disabled)
    return kept + tuple(
        (entry.get("name", ""), entry.get("weight") or 0) for entry in custom.get("enabled") or ()
    )


def _check_fields(value: Any, fields: tuple[str, ...], where: str) -> None:
    if not isinstance(value, dict):
        raise SchedulerConfigError(f"{where}: not an object")
    for name in value:
        if name not in fields:
            raise SchedulerConfigError(
                f'strict decoder error: unknown field "{where + "." if where else ""}{name}"'
            )


def _integer(document: Object, name: str, default: int) -> int:
    value = document.get(name, default)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise _invalid(name, value, "not an integer")
    return value


def _invalid(name: str, value: Any, why: str) -> SchedulerConfigError:
    return SchedulerConfigError(f"{name}: Invalid value: {value}: {why}")
