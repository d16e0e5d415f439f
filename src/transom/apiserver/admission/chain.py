"""The run through the admission plugins. Mutating ones run first, then the object is checked, then validating ones run.

Which plugin looks at which request is decided once for each resource, operation and sub-resource, so that a request
passes only the links that have something to do. `order.py` says which plugins there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from transom.apiserver.admission.attributes import Attributes
from transom.apiserver.resources import Resource
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from transom.apiserver.subresources.call import Call

Step = Callable[[Attributes], object]
_REMEMBERED = 4096  # sorts of requests; custom resources come and go


class Plugin(Protocol):
    """A link. It has `admit`, which may change the object, or `validate`, which may not, or both; either may return an
    awaitable. `handles`, if it has that too, says which requests it wants to see; the answer may not change."""

    name: str


class Chain:
    def __init__(self, plugins: Sequence[Plugin] = ()) -> None:
        self._admit = _Phase("admit")
        self._validate = _Phase("validate")
        self.install(plugins)

    def install(self, plugins: Sequence[Plugin]) -> None:
        self._admit.install(plugins)
        self._validate.install(plugins)

    async def admit(self, attributes: Attributes) -> None:
        for step in self._admit.steps(attributes):
            pending = step(attributes)
            if pending is not None:
                await pending  # type: ignore[misc]
        rounds = attributes.rounds
        if rounds is not None and rounds.wanted and not rounds.second:
            rounds.second = True
            await self.admit(attributes)

    async def validate(self, attributes: Attributes) -> None:
        for step in self._validate.steps(attributes):
            pending = step(attributes)
            if pending is not None:
                await pending  # type: ignore[misc]

    async def connect(self, call: Call, obj: Object, operation: str = "CREATE") -> None:
        """What travels by a sub-resource (a binding, an eviction, the options of an exec) as admission sees it."""
        attributes = Attributes(
            operation, call.res, call.info.subresource, call.info.namespace, call.info.name, obj, None, call.ctx
        )
        await self.admit(attributes)
        await self.validate(attributes)


class _Phase:
    """One of the two passes, and the steps of it that concern each sort of request."""

    __slots__ = ("_method", "_plugins", "_steps")

    def __init__(self, method: str) -> None:
        self._method = method
        self._plugins: list[Plugin] = []
        self._steps: dict[tuple[Resource, str, str], tuple[Step, ...]] = {}

    def install(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = [plugin for plugin in plugins if hasattr(plugin, self._method)]
        self._steps.clear()

    def steps(self, attributes: Attributes) -> tuple[Step, ...]:
        key = (attributes.resource, attributes.operation, attributes.subresource)
        found = self._steps.get(key)
        if found is None:
            if len(self._steps) >= _REMEMBERED:
                self._steps.clear()
            found = self._steps[key] = tuple(
                getattr(plugin, self._method) for plugin in self._plugins if _handles(plugin, *key)
            )
        return found


def _handles(plugin: Plugin, resource: Resource, operation: str, subresource: str) -> bool:
    handles = getattr(plugin, "handles", None)
    return handles is None or handles(resource, operation, subresource)
