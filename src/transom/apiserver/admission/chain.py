"""The order of admission plugins. Mutating ones run first, then the object is checked, then validating ones run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from transom.apiserver.admission.attributes import Attributes
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from transom.apiserver.subresources.call import Call


class Plugin(Protocol):
    """A link. Either method may return an awaitable; `admit` may change the object, `validate` may not."""

    name: str

    def admit(self, attributes: Attributes) -> object: ...
    def validate(self, attributes: Attributes) -> object: ...


class Chain:
    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._admit = _methods(plugins, "admit")
        self._validate = _methods(plugins, "validate")

    async def admit(self, attributes: Attributes) -> None:
        for step in self._admit:
            pending = step(attributes)
            if pending is not None:
                await pending  # type: ignore[misc]

    async def validate(self, attributes: Attributes) -> None:
        for step in self._validate:
            pending = step(attributes)
            if pending is not None:
                await pending  # type: ignore[misc]

    async def connect(self, call: Call, obj: Object) -> None:
        """A create of a sub-resource (a binding, an eviction, an exec) as admission sees it."""
        attributes = Attributes(
            "CREATE", call.res, call.info.subresource, call.info.namespace, call.info.name, obj, None, call.ctx
        )
        await self.admit(attributes)
        await self.validate(attributes)


def _methods(plugins: Sequence[Plugin], name: str) -> list[Callable[[Attributes], object]]:
    """The plugins' own methods; one that inherits nothing to do is left out of the chain."""
    return [method for plugin in plugins if (method := getattr(plugin, name, None)) is not None]
