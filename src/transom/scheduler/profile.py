"""A profile: the plugins that decide for the pods of one scheduler name, by the points they act at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transom.scheduler.framework import ConfigError, Handle
from transom.scheduler.plugins.table import PLUGINS, POINTS

_MAX_TOTAL = (1 << 63) - 1


class Profile:
    """`enabled` says for each point which plugins act there, in order; `weights` are those of scores."""

    def __init__(
        self, name: str, enabled: Mapping[str, Sequence[tuple[str, int]]], args: Mapping[str, dict[str, Any]],
        handle: Handle,
    ) -> None:
        self.name = name
        self.weights: dict[str, int] = {}
        self._plugins: dict[str, Any] = {}
        for point in POINTS:
            for plugin, weight in enabled.get(point, ()):
                if plugin not in PLUGINS:
                    raise ConfigError(f'initializing profiles: creating profile for scheduler name {name}: '
                                      f'{POINTS[point]} "{plugin}" does not exist')
                if plugin not in self._plugins:
                    self._plugins[plugin] = PLUGINS[plugin](args.get(plugin) or {}, handle)
                if weight or plugin not in self.weights:
                    self.weights[plugin] = weight or 1
        if sum(self.weights.values()) * 100 > _MAX_TOTAL:
            raise ConfigError("total score of Score plugins could overflow")
        self.points: dict[str, list[Any]] = {point: self._at(point, enabled.get(point, ())) for point in POINTS}
        if len(self.points["queueSort"]) != 1:
            raise ConfigError("no queue sort plugin is enabled" if not self.points["queueSort"]
                              else "only one queue sort plugin can be enabled")
        if not self.points["bind"]:
            raise ConfigError("at least one bind plugin is needed")
        self.filters = self.points["filter"]
        # What a static filter says follows from the pod's shape and the Node object: it is worked out once for both.
        self.static_filters = [plugin for plugin in self.filters if getattr(plugin, "static", False)]
        self.dynamic_filters = [plugin for plugin in self.filters if not getattr(plugin, "static", False)]
        self.scores = [(plugin, self.weights[plugin.name]) for plugin in self.points["score"]]

    def _at(self, point: str, enabled: Sequence[tuple[str, int]]) -> list[Any]:
        out: list[Any] = []
        for name, _ in enabled:
            plugin = self._plugins[name]
            if not hasattr(plugin, _METHODS[point]):
                raise ConfigError(f'plugin "{name}" does not extend {POINTS[point]} plugin')
            if plugin in out:
                raise ConfigError(f'plugin "{name}" already registered as "{POINTS[point]}"')
            out.append(plugin)
        return out


_METHODS = {
    "queueSort": "queue_sort", "preFilter": "pre_filter", "filter": "filter", "postFilter": "post_filter",
    "preScore": "pre_score", "score": "score", "reserve": "reserve", "permit": "permit", "preBind": "pre_bind",
    "bind": "bind", "postBind": "post_bind",
}
