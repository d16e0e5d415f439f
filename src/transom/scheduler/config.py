"""The configuration file: KubeSchedulerConfiguration of kubescheduler.config.k8s.io, in the versions
that the release reads.

Fields for the HTTP server and the client connection are accepted and have no effect.
"""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass
from transom.machinery import goyaml
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.releases.features import FeatureSet
from transom.scheduler.default_plugins import DEFAULT_PLUGINS, default_plugins
from transom.scheduler.errors import SchedulerConfigError
from transom.scheduler.multi_point import MultiPoint
from transom.scheduler.runtime import EXTENSION_POINTS, PluginSet

if TYPE_CHECKING:
    import yaml
else:
    yaml = lazy_import("yaml")  # few schedulers have a file

_FIT, _LEAST_ALLOCATED = "NodeResourcesFit", "NodeResourcesLeastAllocated"
_STRATEGIES = {
    "LeastAllocated": _LEAST_ALLOCATED,
    "MostAllocated": "NodeResourcesMostAllocated",
    "RequestedToCapacityRatio": "RequestedToCapacityRatio",
}
DEFAULT_SCHEDULER_NAME = "default-scheduler"
_GROUP = "kubescheduler.config.k8s.io"
# The releases that read a version.
_VERSIONS = {
    f"{_GROUP}/v1beta1": (Release(0, 0), Release(1, 22)),
    f"{_GROUP}/v1beta2": (Release(1, 22), Release(1, 27)),
    f"{_GROUP}/v1beta3": (Release(1, 23), Release(1, 28)),
    f"{_GROUP}/v1": (Release(1, 25), Release(9, 0)),
}
_WITH_ADDRESSES = (f"{_GROUP}/v1beta1", f"{_GROUP}/v1beta2")
_WITH_MULTI_POINT = (f"{_GROUP}/v1beta3", f"{_GROUP}/v1")
_ADDRESSES = ("healthzBindAddress", "metricsBindAddress")
_KIND = "KubeSchedulerConfiguration"
_FIELDS = (
    "apiVersion",
    "kind",
    "parallelism",
    "leaderElection",
    "clientConnection",
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
    multi_point: MultiPoint = field(default_factory=MultiPoint)


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
    path: Path, features: FeatureSet | None = None
) -> KubeSchedulerConfiguration:
    """Without the features of a release, every version is read."""
    try:
        document = goyaml.load_yaml(path.read_bytes())
    except (OSError, goyaml.YamlError) as error:
        raise SchedulerConfigError(f"{path}: {error}") from error
    try:
        return decode_scheduler_config(document, features)
    except SchedulerConfigError as error:
        raise SchedulerConfigError(f"{path}: {error}") from error


def decode_scheduler_config(
    document: Any, features: FeatureSet | None = None
) -> KubeSchedulerConfiguration:
    if not isinstance(document, dict):
        raise SchedulerConfigError("couldn't get version/kind; json parse error: not an object")
    version = document.get("apiVersion")
    known = [
        name
        for name, (since, until) in _VERSIONS.items()
        if features is None or since <= features.release <= until
    ]
    if version not in known or document.get("kind") != _KIND:
        raise SchedulerConfigError(
            f'no kind "{document.get("kind", "")}" is registered for version "{document.get("apiVersion", "")}"; '
            f"known is {_KIND} of {', '.join(known)}"
        )
    features = features or _DEFAULT_FEATURES
    _check_fields(document, _fields_of(version), "")
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
    if version != f"{_GROUP}/v1beta1":
        defaults = {**defaults, "score": _renamed(defaults["score"], _LEAST_ALLOCATED, _FIT)}
    profiles = tuple(
        _profile(entry, f"profiles[{i}]", defaults, version, alone=len(given) == 1)
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


def _fields_of(version: str) -> tuple[str, ...]:
    more: tuple[str, ...] = _ADDRESSES if version in _WITH_ADDRESSES else ()
    return (*_FIELDS, *more, *(("delayCacheUntilActive",) if version == f"{_GROUP}/v1" else ()))


def _profile(
    entry: Object, where: str, defaults: dict[str, PluginSet], version: str, alone: bool
) -> KubeSchedulerProfile:
    share = ("percentageOfNodesToScore",) if version == f"{_GROUP}/v1" else ()
    _check_fields(entry, ("schedulerName", "plugins", "pluginConfig", *share), where)
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
    many = ("multiPoint",) if version in _WITH_MULTI_POINT else ()
    _check_fields(plugins, (*EXTENSION_POINTS, *many), f"{where}.plugins")
    multi = _multi_point(plugins)
    enabled = {
        point: _merge_plugin_set(
            tuple(row for row in defaults.get(point, ()) if not multi.replaces_default(row[0])),
            plugins.get(point) or {},
            replaces=version != f"{_GROUP}/v1beta1",
        )
        for point in EXTENSION_POINTS
    }
    if version != f"{_GROUP}/v1beta1":
        enabled, args = _with_scoring_strategy(enabled, args)
    return KubeSchedulerProfile(name, enabled, args, multi)


def _multi_point(plugins: Object) -> MultiPoint:
    given = plugins.get("multiPoint") or {}
    return MultiPoint(
        tuple((e.get("name", ""), e.get("weight") or 0) for e in given.get("enabled") or ()),
        frozenset(e.get("name", "") for e in given.get("disabled") or ()),
        {
            point: frozenset(e.get("name", "") for e in (own.get("disabled") or ()))
            for point, own in plugins.items()
            if point != "multiPoint"
        },
    )


def _with_scoring_strategy(
    enabled: dict[str, PluginSet], args: dict[str, Object]
) -> tuple[dict[str, PluginSet], dict[str, Object]]:
    """NodeResourcesFit scores by a strategy, which is a plugin of its own here."""
    fit = dict(args.get(_FIT) or {})
    strategy = fit.pop("scoringStrategy", None) or {}
    kind = strategy.get("type") or "LeastAllocated"
    if kind not in _STRATEGIES:
        raise SchedulerConfigError(
            f"pluginConfig[{_FIT}].args.scoringStrategy.type: Unsupported value: {kind!r}: "
            f"supported values: {', '.join(sorted(_STRATEGIES))}"
        )
    plugin = _STRATEGIES[kind]
    given: Object = {}
    if strategy.get("resources"):
        given["resources"] = strategy["resources"]
    ratio = strategy.get("requestedToCapacityRatio")
    if ratio:
        given["shape"] = ratio.get("shape") or []
    scores = _renamed(enabled["score"], _FIT, plugin)
    return {**enabled, "score": scores}, {**args, _FIT: fit, plugin: given}


def _renamed(rows: PluginSet, old: str, new: str) -> PluginSet:
    return tuple((new if name == old else name, weight) for name, weight in rows)


def _args(args: Object, plugin: str) -> Object:
    kind = args.get("kind", f"{plugin}Args")
    if kind != f"{plugin}Args":
        raise SchedulerConfigError(
            f"args for plugin {plugin} were not of type {plugin}Args.{_GROUP}, got {kind}.{_GROUP}"
        )
    return args


def _merge_plugin_set(defaults: PluginSet, custom: Object, *, replaces: bool) -> PluginSet:
    """The defaults without the disabled plugins, then the enabled ones. `replaces`: a default
    plugin that is enabled again keeps its place, with the new weight.
    """
    disabled = {entry.get("name") for entry in custom.get("disabled") or ()}
    kept = () if "*" in disabled else tuple(row for row in defaults if row[0] not in disabled)
    enabled = [
        (entry.get("name", ""), entry.get("weight") or 0) for entry in custom.get("enabled") or ()
    ]
    if not replaces:
        return (*kept, *enabled)
    again = dict(enabled)
    held = {name for name, _ in kept}
    return tuple((name, again.get(name, weight)) for name, weight in kept) + tuple(
        row for row in enabled if row[0] not in held
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
