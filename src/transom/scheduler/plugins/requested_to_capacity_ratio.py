"""RequestedToCapacityRatio: a score that is a configured function of the resource utilization."""

from __future__ import annotations

from typing import cast

from transom.machinery.objects import Object
from transom.scheduler.arrays import Ints, Rows, Some, np
from transom.scheduler.errors import SchedulerConfigError
from transom.scheduler.framework import BatchScorePlugin, CycleState, Handle, Score, check_args
from transom.scheduler.plugins.allocation import allocated_amounts, read_resources, requests_of
from transom.scheduler.pods import PodInfo
from transom.scheduler.snapshot import Snapshot

_FULL = 100
_STEP = 10  # configured scores are 0 to 10


class RequestedToCapacityRatio(BatchScorePlugin):
    name = "RequestedToCapacityRatio"

    def __init__(self, args: Object, handle: Handle) -> None:
        check_args(args, ("shape", "resources"), self.name)
        self._snapshot = handle.snapshot
        points = [(p.get("utilization", 0), p.get("score", 0)) for p in args.get("shape") or ()]
        resources = read_resources(args)
        problem = _wrong_shape(points) or next(
            (
                f"resource {name} weight {weight} must not be less than 1"
                for name, weight in resources
                if weight < 1
            ),
            "",
        )
        if problem:
            raise SchedulerConfigError(f'initializing plugin "{self.name}": {problem}')
        self._resources = tuple(dict(resources).items())
        self._line = np.array([_on_line(points, use) for use in range(_FULL + 1)], np.int64)
        self._key = self.name, self._resources, tuple(points)

    def score_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Score:
        snapshot = self._snapshot
        wanted = requests_of(pod.shape, self._resources)
        key = self._key, wanted
        return cast(
            Ints,
            snapshot.usage.get(key, lambda some: self._scores(snapshot, wanted, some), slices=True),
        )[rows]

    def _scores(self, snapshot: Snapshot, wanted: tuple[int, ...], rows: Some) -> Ints:
        nothing = np.zeros_like(snapshot.alloc_cpu[rows])
        total, weights = nothing, nothing.copy()
        for (name, weight), want in zip(self._resources, wanted, strict=True):
            has, requested = allocated_amounts(snapshot, name, want, rows)
            use = _FULL - np.maximum(has - requested, 0) * _FULL // np.maximum(has, 1)
            score = self._line[np.where(has == 0, _FULL, use)]
            total += score * weight
            weights += np.where(score > 0, weight, 0)
        # Round half up.
        return np.where(weights > 0, np.floor(total / np.maximum(weights, 1) + 0.5), 0).astype(
            np.int64
        )


def _on_line(points: list[tuple[int, int]], use: int) -> int:
    for i, (x, y) in enumerate(points):
        if use <= x:
            if i == 0:
                return y * _STEP
            x0, y0 = points[i - 1]
            rise = (y - y0) * _STEP * (use - x0)
            # Go divides integers towards zero.
            return y0 * _STEP + (rise // (x - x0) if rise >= 0 else -(-rise // (x - x0)))
    return points[-1][1] * _STEP


def _wrong_shape(points: list[tuple[int, int]]) -> str:
    if not points:
        return "at least one point must be specified"
    for i in range(1, len(points)):
        if points[i - 1][0] >= points[i][0]:
            return (
                "utilization values must be sorted. "
                f"Utilization[{i - 1}]=={points[i - 1][0]} >= Utilization[{i}]=={points[i][0]}"
            )
    for i, point in enumerate(points):
        for what, short, value, most in (
            ("utilization", "Utilization", point[0], 100),
            ("score", "Score", point[1], 10),
        ):
            if value < 0:
                return f"{what} values must not be less than 0. {short}[{i}]=={value}"
            if value > most:
                return f"{what} values must not be greater than {most}. {short}[{i}]=={value}"
    return ""
