"""The state that the first round of mutating admission passes to the second: which webhooks and
policies must run again because the object changed after they ran.
"""

from __future__ import annotations

from typing import Any

from transom.apiserver.core.attributes import Attributes


class PluginRound:
    """The state of one plugin."""

    __slots__ = ("again", "output", "requested")

    def __init__(self) -> None:
        self.requested: set[str] = set()  # webhooks or policies that request reinvocation
        self.again: set[str] = set()  # those of them that must run again
        self.output: Any = None  # the object as the plugin left it

    def changed(self) -> None:
        self.again |= self.requested
        self.requested = set()


class ReinvocationState:
    __slots__ = ("_plugins", "second", "wanted")

    def __init__(self) -> None:
        self.second = False
        self.wanted = False  # the object was changed, so a second round is needed
        self._plugins: dict[str, PluginRound] = {}

    def of_plugin(self, name: str) -> PluginRound:
        return self._plugins.setdefault(name, PluginRound())


def reinvocation_of(attributes: Attributes) -> ReinvocationState:
    rounds = attributes.rounds
    if not isinstance(rounds, ReinvocationState):
        rounds = attributes.rounds = ReinvocationState()
    return rounds
