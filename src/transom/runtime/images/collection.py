"""Making room: images that nobody uses go, those first that were used least recently, once the disk is too full."""

from __future__ import annotations

import shutil
from typing import NamedTuple

from transom.runtime.images.model import StoredImage
from transom.runtime.images.store import Store


class Thresholds(NamedTuple):
    """Above `high`, images are removed until `low` is reached: percent of the disk in use, or bytes of the store."""

    high: float = 85.0
    low: float = 80.0
    in_bytes: bool = False


class Collected(NamedTuple):
    removed: tuple[StoredImage, ...]
    freed: int
    busy: bool = False
    wanted: int = 0  # bytes that could not be freed


def collect(store: Store, thresholds: Thresholds) -> Collected:
    """Blocking."""
    excess = _excess(store, thresholds.high, thresholds.in_bytes)
    if excess <= 0:
        return Collected((), 0)
    swept = store.sweep()
    freed, removed = swept.freed, []
    for image in unused(store):
        if swept.busy or _excess(store, thresholds.low, thresholds.in_bytes) <= 0:
            break
        if store.remove(image.id):
            removed.append(image)
            swept = store.sweep()
            freed += swept.freed
    left = max(0, _excess(store, thresholds.low, thresholds.in_bytes))
    return Collected(tuple(removed), freed, swept.busy, left)


def prune(store: Store, *, everything: bool = False) -> Collected:
    """Images without a name go, or all that no container uses, and whatever else nobody refers to. Blocking."""
    removed = [image for image in unused(store) if (everything or not image.tags) and store.remove(image.id)]
    swept = store.sweep()
    return Collected(tuple(removed), swept.freed, swept.busy)


def unused(store: Store) -> list[StoredImage]:
    """Images that no container needs, the one that was used least recently first."""
    needed = store.in_use()
    found = [image for image in store.images() if image.id not in needed]
    return sorted(found, key=lambda image: store.last_used(image.id))


def _excess(store: Store, limit: float, in_bytes: bool) -> int:
    if in_bytes:
        return int(store.usage()[0] - limit)
    disk = shutil.disk_usage(store.folder)
    return int(disk.used - (disk.used + disk.free) * limit / 100)
