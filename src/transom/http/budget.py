"""Accounts for the bytes buffered for slow clients: for each connection, each user and the server.

A connection asks for its window before it encodes more output: the fuller the server, the smaller
the window. If a limit is still exceeded, the connections that have been stalled longest are
dropped. Does no I/O and reads no clock.
"""

from __future__ import annotations

from collections.abc import Hashable

from transom.kit.lazy_dataclass import dataclass

_SHARE = 128  # one connection gets this part of what is free


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Sizes in bytes, times in seconds."""

    server: int = 128 * 1024 * 1024
    user: int = 32 * 1024 * 1024
    largest_window: int = 256 * 1024
    smallest_window: int = 8 * 1024
    patience: float = 10.0  # a connection stalled for less is never dropped for the budget


class _Held:
    __slots__ = ("owner", "since", "size")

    def __init__(self, owner: str, since: float) -> None:
        self.owner = owner
        self.since = since
        self.size = 0


class ByteBudget:
    def __init__(self, limits: BudgetLimits | None = None) -> None:
        self.limits = limits or BudgetLimits()
        self.total = 0
        self._held: dict[Hashable, _Held] = {}
        self._owners: dict[str, int] = {}

    def hold(self, connection: Hashable, owner: str, size: int, now: float) -> None:
        """The connection cannot send and buffers `size` bytes; called again when the size
        changes.
        """
        held = self._held.get(connection)
        if held is None:
            held = self._held[connection] = _Held(owner, now)
        self._add(held, size - held.size)

    def progress(self, connection: Hashable, now: float) -> None:
        """The client of a held connection has read something."""
        held = self._held.get(connection)
        if held is not None:
            held.since = now

    def release(self, connection: Hashable) -> None:
        """The connection can send again, or is closed."""
        held = self._held.pop(connection, None)
        if held is not None:
            self._add(held, -held.size)

    def _add(self, held: _Held, size: int) -> None:
        held.size += size
        self.total += size
        used = self._owners.get(held.owner, 0) + size
        if used:
            self._owners[held.owner] = used
        else:
            self._owners.pop(held.owner, None)

    def window(self, owner: str) -> int:
        """How many bytes a connection of this user may encode ahead of its client."""
        limits = self.limits
        free = limits.server - self.total
        if self._owners:
            free = min(free, limits.user - self._owners.get(owner, 0))
        return max(limits.smallest_window, min(limits.largest_window, free // _SHARE))

    def used_by(self, owner: str) -> int:
        return self._owners.get(owner, 0)

    def victims(self, now: float) -> list[Hashable]:
        """The connections to drop so that all limits hold again: the heaviest users first, the
        longest stalled first.
        """
        limits = self.limits
        over_server = self.total - limits.server
        over = {
            owner: used - limits.user for owner, used in self._owners.items() if used > limits.user
        }
        if over_server <= 0 and not over:
            return []
        # By user first, so that one user's flood does not cost the others their connections.
        candidates = sorted(
            ((c, held) for c, held in self._held.items() if held.since <= now - limits.patience),
            key=lambda item: (-self._owners[item[1].owner], item[1].since),
        )
        victims: list[Hashable] = []
        for connection, held in candidates:
            if over_server > 0 or over.get(held.owner, 0) > 0:
                victims.append(connection)
                over_server -= held.size
                if held.owner in over:
                    over[held.owner] -= held.size
        return victims
