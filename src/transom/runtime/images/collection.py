"""Image garbage collection: removes unused images, least recently used first, once the disk is too
full.
"""

from __future__ import annotations

import shutil
from typing import NamedTuple

from transom.runtime.images.model import StoredImage
from transom.runtime.images.store import LocalImageStore


class CollectionThresholds(NamedTuple):
    """Above `high`, images are removed until `low` is reached: percent of the disk in use, or bytes
    of the store.
    """

    high: float = 85.0
    low: float = 80.0
    in_bytes: bool = False


class CollectedImages(NamedTuple):
    removed: tuple[StoredImage, ...]
    freed: int
    busy: bool = False
    wanted: int = 0  # bytes that could not be freed


def collect_images(store: LocalImageStore, thresholds: CollectionThresholds) -> CollectedImages:
    """Blocking."""
    excess = _excess(store, thresholds.high, thresholds.in_bytes)
    if excess <= 0:
        return CollectedImages((), 0)
    swept = store.sweep()
    freed, removed = swept.freed, []
    for image in unused_images(store):
        if swept.busy or _excess(store, thresholds.low, thresholds.in_bytes) <= 0:
            break
        if store.remove(image.id):
            removed.append(image)
            swept = store.sweep()
            freed += swept.freed
    left = max(0, _excess(store, thresholds.low, thresholds.in_bytes))
    return CollectedImages(tuple(removed), freed, swept.busy, left)


def prune_images(store: LocalImageStore, *, everything: bool = False) -> CollectedImages:
    """Removes images without a name, or all that no container uses, and everything unreferenced.
    Blocking.
    """
    removed = [
        image
        for image in unused_images(store)
        if (everything or not image.tags) and store.remove(image.id)
    ]
    swept = store.sweep()
    return CollectedImages(tuple(removed), swept.freed, swept.busy)


def unused_images(store: LocalImageStore) -> list[StoredImage]:
    """Images that no container needs, least recently used first."""
    needed = store.in_use()
    found = [image for image in store.images() if image.id not in needed]
    return sorted(found, key=lambda image: store.last_used(image.id))


def _excess(store: LocalImageStore, limit: float, in_bytes: bool) -> int:
    if in_bytes:
        return int(store.usage()[0] - limit)
    disk = shutil.disk_usage(store.folder)
    return int(disk.used - (disk.used + disk.free) * limit / 100)
