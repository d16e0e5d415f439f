"""The metrics of volume operations: how long they take, how many fail, and how many volumes a kubelet
has. Names and labels are those of the release.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from transom.kit.metric_table import MetricRow, MetricTable
from transom.kit.prometheus import Family, Sample
from transom.kubelet.volumes.plugin import PodVolumeSpec, VolumePlugin
from transom.machinery.releases.metrics import MetricRules

_SECONDS: Final = "storage_operation_duration_seconds"
_ERRORS: Final = "storage_operation_errors_total"
_STATUSES: Final = "storage_operation_status_count"
_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
_BY: Final = ("volume_plugin", "operation_name")


def volume_plugin_label(plugin: VolumePlugin, spec: PodVolumeSpec) -> str:
    """The name of the plugin; with the driver's for CSI."""
    driver = spec.source.get("driver", "") if spec.kind == "csi" else ""
    return f"{plugin.name}:{driver}" if driver else plugin.name


class StorageMetrics:
    __slots__ = ("_rules", "_table")

    def __init__(self, rules: MetricRules) -> None:
        self._rules = rules
        self._table = MetricTable(
            {
                _SECONDS: MetricRow(
                    "histogram",
                    "Storage operation duration",
                    (*_BY, "status", "migrated") if rules.storage_status else _BY,
                    _BUCKETS,
                    rules.storage_stability,
                ),
                _ERRORS: MetricRow("counter", "Storage operation errors", _BY),
                _STATUSES: MetricRow(
                    "counter", "Storage operation return statuses count", (*_BY, "status")
                ),
            }
        )

    def record(self, plugin: str, operation: str, seconds: float, failed: bool) -> None:
        """Before 1.21, the duration of failed operations is not recorded."""
        status = "fail-unknown" if failed else "success"
        if self._rules.storage_status:
            self._table.observe(_SECONDS, seconds, plugin, operation, status, "false")
        elif not failed:
            self._table.observe(_SECONDS, seconds, plugin, operation)
        if self._rules.storage_errors:
            self._table.count(_STATUSES, plugin, operation, status)
            if failed:
                self._table.count(_ERRORS, plugin, operation)

    def collect(self) -> list[Family]:
        return self._table.collect()


def total_volumes(desired: Iterable[str], actual: Iterable[str]) -> Family:
    """Of the plugins of all volumes that pods should have, and of those that are mounted."""
    samples = [
        Sample((("plugin_name", plugin), ("state", state)), count)
        for state, plugins in (
            ("actual_state_of_world", Counter(actual)),
            ("desired_state_of_world", Counter(desired)),
        )
        for plugin, count in sorted(plugins.items())
    ]
    text = "[ALPHA] Number of volumes in Volume Manager"
    return Family("volume_manager_total_volumes", "gauge", text, samples)
