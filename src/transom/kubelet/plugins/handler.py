"""The interface of what registers plugins of one type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class PluginRefused(Exception):
    """The reason for a failed registration, sent to the plugin."""


class PluginHandler(Protocol):
    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raises PluginRefused."""

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raises PluginRefused, and then keeps nothing of the plugin."""

    async def deregister(self, name: str, endpoint: str) -> None:
        """A no-op for an unknown plugin."""
