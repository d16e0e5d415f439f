"""The images on each node, for ImageLocality."""

from __future__ import annotations

from collections.abc import Iterable

from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object

MOST_NAMES = 5_000  # of one node; a kubelet reports 50 images unless configured otherwise


class ImageState(NamedTuple):
    """An image on one node. `nodes` is the number of nodes with the image at this node's last
    update, as in Kubernetes.
    """

    size: int
    nodes: int


class ImageStates:
    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._rows: dict[str, set[int]] = {}
        self._held: dict[str, dict[int, ImageState]] = {}
        self._names: dict[int, set[str]] = {}

    def set(self, row: int, images: Iterable[Object]) -> bool:
        """Set the images of a node; returns whether they changed."""
        before = {name: self._held[name].pop(row) for name in self._names.get(row, ())}
        for name in self._names.pop(row, ()):
            self._rows[name].discard(row)
            if not self._rows[name]:
                del self._rows[name], self._sizes[name], self._held[name]
        names: set[str] = set()
        for image in images:
            for name in image.get("names") or ():
                if len(names) >= MOST_NAMES:
                    break
                rows = self._rows.setdefault(name, set())
                self._sizes.setdefault(name, image.get("sizeBytes", 0))
                rows.add(row)
                if name not in names:
                    names.add(name)
                    self._held.setdefault(name, {})[row] = ImageState(self._sizes[name], len(rows))
        if names:
            self._names[row] = names
        return before != {name: self._held[name][row] for name in names}

    def holders(self, name: str) -> dict[int, ImageState]:
        """The rows of nodes that have the image."""
        return self._held.get(name, {})
