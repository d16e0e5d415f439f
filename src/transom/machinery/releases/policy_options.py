"""Options of the kubelet's CPU manager and topology manager, with their stage by release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from transom.machinery.releases.release import Release

OptionStage = Literal["alpha", "beta", "stable"]
_Stages = tuple[tuple[Release, OptionStage], ...]

# From the newest stage to the oldest.
_CPU_MANAGER: Final[Mapping[str, _Stages]] = {
    "full-pcpus-only": ((Release(1, 33), "stable"), (Release(1, 22), "beta")),
    "distribute-cpus-across-numa": ((Release(1, 33), "beta"), (Release(1, 23), "alpha")),
    "align-by-socket": ((Release(1, 25), "alpha"),),
    "distribute-cpus-across-cores": ((Release(1, 31), "alpha"),),
    "strict-cpu-reservation": (
        (Release(1, 35), "stable"),
        (Release(1, 33), "beta"),
        (Release(1, 32), "alpha"),
    ),
    "prefer-align-cpus-by-uncorecache": (
        (Release(1, 36), "stable"),
        (Release(1, 34), "beta"),
        (Release(1, 32), "alpha"),
    ),
}
_TOPOLOGY_MANAGER: Final[Mapping[str, _Stages]] = {
    "prefer-closest-numa-nodes": (
        (Release(1, 32), "stable"),
        (Release(1, 28), "beta"),
        (Release(1, 26), "alpha"),
    ),
    "max-allowable-numa-nodes": ((Release(1, 35), "stable"), (Release(1, 31), "beta")),
}


def cpu_manager_option_stage(release: Release, name: str) -> OptionStage | None:
    """None for an option that the release does not have."""
    return _stage(_CPU_MANAGER, release, name)


def topology_manager_option_stage(release: Release, name: str) -> OptionStage | None:
    """None for an option that the release does not have."""
    return _stage(_TOPOLOGY_MANAGER, release, name)


def _stage(options: Mapping[str, _Stages], release: Release, name: str) -> OptionStage | None:
    return next((stage for since, stage in options.get(name, ()) if release >= since), None)
