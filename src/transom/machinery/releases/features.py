"""Feature gates by release: their stage, whether they are on, and whether they can be changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.machinery.releases.release import TABLES_SINCE, Release, in_range, table_lines


class Gate(NamedTuple):
    stage: str  # alpha, beta, stable or deprecated
    default: bool
    locked: bool = False  # setting it to anything but the default is an error


# Gates that clusters of 1.20 and older support: the release that turned each on.
SUPPORTED_BEFORE_1_21: Final = {
    "AnyVolumeDataSource": Release(1, 24),
    "CPUManager": Release(1, 10),
    "CSIServiceAccountToken": Release(1, 21),
    "CSIStorageCapacity": Release(1, 21),
    "HPAContainerMetrics": Release(1, 27),
    "IPv6DualStack": Release(1, 21),
    "KubeletPodResources": Release(1, 15),
    "TTLAfterFinished": Release(1, 21),
    "TopologyManager": Release(1, 18),
}


@cache
def feature_gates(release: Release) -> dict[str, Gate]:
    """The gates that a release from 1.21 on knows."""
    out = {}
    for line in table_lines("gates.txt"):
        name, *steps = line.split()
        for step in steps:
            value, at, where = step.partition("@")
            if not at or in_range(where, release):
                stage, _, default = value.partition("=")
                out[name] = Gate(stage, default.startswith("true"), default.endswith("!"))
                break
    return out


def is_enabled(release: Release, gate: str) -> bool:
    """Whether the release has the feature on by default.

    A gate is removed some releases after its feature became stable, so a gate that only earlier
    releases have is on if it was stable there.
    """
    if release < TABLES_SINCE:
        since = SUPPORTED_BEFORE_1_21.get(gate)
        return since is not None and release >= since
    found = feature_gates(release).get(gate)
    if found is not None:
        return found.default
    return _became_permanent(release, gate)


@cache
def _became_permanent(release: Release, gate: str) -> bool:
    for minor in range(release.minor - 1, TABLES_SINCE.minor - 1, -1):
        found = feature_gates(Release(1, minor)).get(gate)
        if found is not None:
            return found.default and found.stage in ("stable", "deprecated")
    return SUPPORTED_BEFORE_1_21.get(gate, Release(9, 0)) <= release


@dataclass(frozen=True, slots=True)
class FeatureSet:
    """The feature gates of one component: the defaults of its release and what its options change."""

    release: Release
    overrides: Mapping[str, bool] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.release)  # equal sets have equal releases; almost all are of one

    def enabled(self, gate: str) -> bool:
        chosen = self.overrides.get(gate)
        return is_enabled(self.release, gate) if chosen is None else chosen
