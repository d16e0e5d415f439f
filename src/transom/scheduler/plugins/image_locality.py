"""ImageLocality: prefers nodes that already have the pod's images, weighted by their size."""

from __future__ import annotations

from typing import cast

from transom.machinery.objects import Object
from transom.scheduler.arrays import Ints, Rows, Some, np
from transom.scheduler.framework import MAX_NODE_SCORE, BatchScorePlugin, CycleState, Handle, Score
from transom.scheduler.pods import PodInfo
from transom.scheduler.snapshot import Snapshot

_MB = 1024 * 1024
_LEAST, _MOST = 23 * _MB, 1000 * _MB


def normalized_image_name(image: str) -> str:
    """The image with its tag, which defaults to latest."""
    return image if image.rfind(":") > image.rfind("/") else image + ":latest"


class ImageLocality(BatchScorePlugin):
    name = "ImageLocality"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._snapshot = handle.snapshot

    def score_nodes(self, state: CycleState, pod: PodInfo, rows: Rows) -> Score:
        snapshot, images = self._snapshot, pod.shape.images
        names = [normalized_image_name(image) for image in images]
        if not any(map(snapshot.images.holders, names)):
            return 0
        # How far an image is spread depends on how many nodes there are.
        key = self.name, images, len(snapshot)
        return cast(
            Ints, snapshot.static.get(key, lambda some: _scores(snapshot, names, some), slices=True)
        )[rows]


def _scores(snapshot: Snapshot, names: list[str], rows: Some) -> Ints:
    sums = np.zeros(snapshot.capacity, np.int64)
    for name in names:
        for row, held in snapshot.images.holders(name).items():
            sums[row] += int(held.size * (held.nodes / len(snapshot)))
    most = _MOST * len(names)
    return MAX_NODE_SCORE * (np.clip(sums[rows], _LEAST, most) - _LEAST) // (most - _LEAST)
