"""Back-off by key: the delay doubles with each failure and resets after a while without one.

The flowcontrol.Backoff of client-go, for image pulls, container restarts and failed daemon pods.
Pure: the caller passes the time.
"""

from __future__ import annotations

from collections.abc import Hashable


class _Entry:
    __slots__ = ("seconds", "updated")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.updated = 0.0


class KeyedBackoff:
    """Delays by key: `first` seconds, doubled each time up to `longest`; resets after `expires`
    seconds (0 for twice `longest`) without a failure.
    """

    __slots__ = ("_entries", "_expires", "_first", "_longest")

    def __init__(self, first: float = 10.0, longest: float = 300.0, expires: float = 0.0) -> None:
        self._first = first
        self._longest = longest
        self._expires = expires or longest * 2
        self._entries: dict[Hashable, _Entry] = {}

    def get(self, key: Hashable) -> float:
        entry = self._entries.get(key)
        return entry.seconds if entry else 0.0

    def next(self, key: Hashable, since: float, now: float) -> None:
        """Records a failure at `since` that is retried now."""
        entry = self._entries.get(key)
        if entry is None or self._expired(entry, since):
            entry = self._entries[key] = _Entry(self._first)
        else:
            entry.seconds = min(entry.seconds * 2, self._longest)
        entry.updated = now

    def waits(self, key: Hashable, since: float, now: float) -> bool:
        """Whether a failure at `since` must not be retried yet."""
        entry = self._entries.get(key)
        return entry is not None and not self._expired(entry, since) and now - since < entry.seconds

    def left(self, key: Hashable, now: float) -> float:
        """Seconds until the next retry, counted from the last failure."""
        entry = self._entries.get(key)
        return max(0.0, entry.seconds - (now - entry.updated)) if entry else 0.0

    def collect(self, now: float) -> None:
        """Removes entries without recent failures."""
        for key in [key for key, entry in self._entries.items() if self._expired(entry, now)]:
            del self._entries[key]

    def _expired(self, entry: _Entry, since: float) -> bool:
        return since - entry.updated > self._expires
