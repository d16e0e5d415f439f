"""Records of etcd that are corrupt: which, and who is notified of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from transom.store.api import KeyQuarantined

_log = logging.getLogger(__name__)


class QuarantinedKeys:
    def __init__(self) -> None:
        self._keys: dict[str, KeyQuarantined] = {}
        self._listeners: list[Callable[[KeyQuarantined], None]] = []

    def all(self) -> Sequence[KeyQuarantined]:
        return tuple(self._keys.values())

    def on_added(self, notify: Callable[[KeyQuarantined], None]) -> None:
        self._listeners.append(notify)

    def clear(self) -> None:
        self._keys.clear()

    def stored(self, key: str, revision: int) -> None:
        """A server has put the key aside at this revision; 0 if it was removed from there."""
        if revision:
            reason = "its value could not be decoded"
            self._keys[key] = KeyQuarantined(key, revision, reason, time.time())
        else:
            self._keys.pop(key, None)

    def add(self, one: KeyQuarantined) -> None:
        self._keys[one.key] = one
        _log.error("the record %s of revision %d is corrupt: %s", one.key, one.revision, one.reason)
        for notify in self._listeners:
            try:
                notify(one)
            except Exception:
                _log.exception("the quarantine of %s could not be reported", one.key)
