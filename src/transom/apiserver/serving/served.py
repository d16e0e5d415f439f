"""The served group versions: built-in, custom and aggregated ones, and resource metrics."""

from __future__ import annotations

from collections.abc import Iterable

from transom.apiserver.aggregation.aggregator import Aggregator
from transom.apiserver.core.discovery import ServedVersion, served_versions
from transom.apiserver.core.resources import ResourceRegistry
from transom.apiserver.serving.resource_metrics import ResourceMetrics


class ServedVersions:
    def __init__(
        self,
        resources: ResourceRegistry,
        aggregation: Aggregator,
        metrics: ResourceMetrics | None,
        *,
        internal: bool = False,
    ) -> None:
        """`internal`: includes kinds that the release does not serve and only components of the
        cluster may use.
        """
        self._resources = resources
        self._aggregation = aggregation
        self._metrics = metrics
        self._internal = internal
        self._versions: list[ServedVersion] = []
        self._versions_of: object = None

    @property
    def generation(self) -> tuple[int, int]:
        """Changes with every change of the served resources."""
        return self._resources.generation, self._aggregation.generation

    def versions(self) -> list[ServedVersion]:
        """All discovery documents are built from this list."""
        generation = self.generation
        if self._versions_of != generation:
            resources = self._resources
            kinds = resources.kinds() if self._internal else resources.served_kinds()
            self._versions = served_versions(kinds, self._aggregated(), resources.release)
            self._versions_of = generation
        return self._versions

    def _aggregated(self) -> Iterable[ServedVersion]:
        yield from self._aggregation.served()
        if self._metrics is not None:
            own = self._metrics.served()
            if not self._aggregation.claims(own.group, own.version):
                yield own
