"""The extension point `multiPoint` of a profile: it enables a plugin everywhere it can be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from transom.kit.lazy_dataclass import dataclass
from transom.scheduler.errors import SchedulerConfigError
from transom.scheduler.framework import Registry
from transom.scheduler.runtime import EXTENSION_POINTS, PluginSet


@dataclass(frozen=True, slots=True)
class MultiPoint:
    enabled: PluginSet = ()
    disabled: frozenset[str] = frozenset()
    # What single extension points disable.
    disabled_at: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def replaces_default(self, plugin: str) -> bool:
        """Whether a default plugin is disabled, or enabled again with other settings."""
        return "*" in self.disabled or plugin in self.disabled


def expand_multi_point(
    plugins: Mapping[str, PluginSet], multi: MultiPoint, registry: Registry
) -> dict[str, PluginSet]:
    """The plugins of each extension point: those that it enables itself, then those of multiPoint
    that implement it. An extension point can disable a plugin, or enable it with another weight.
    """
    names = [name for name, _ in multi.enabled]
    for name in names:
        if name not in registry:
            raise SchedulerConfigError(f'PreEnqueuePlugin "{name}" does not exist')
        if names.count(name) > 1:
            raise SchedulerConfigError(f'plugin "{name}" already registered as "MultiPoint"')
    return {
        point: _expanded(plugins.get(point, ()), multi, registry, point)
        for point in EXTENSION_POINTS
    }


def _expanded(rows: PluginSet, multi: MultiPoint, registry: Registry, point: str) -> PluginSet:
    disabled = multi.disabled_at.get(point, frozenset())
    if "*" in disabled:
        return rows
    weights = dict(multi.enabled)
    present = {name for name, _ in rows}
    kept = tuple((name, weights.get(name) or weight) for name, weight in rows)
    return kept + tuple(
        (name, weight)
        for name, weight in multi.enabled
        if name not in present and name not in disabled and _implements(registry, name, point)
    )


def _implements(registry: Registry, plugin: str, point: str) -> bool:
    factory = registry[plugin]
    return isinstance(factory, type) and issubclass(factory, EXTENSION_POINTS[point])
