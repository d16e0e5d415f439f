"""What admission plugins see of a request, how they refuse it, and the chain as storage sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from transom.apiserver.context import Context
from transom.apiserver.resources import Resource
from transom.machinery import errors
from transom.machinery.objects import Object


class Rounds(Protocol):
    """When a webhook changed the object, all mutating plugins look at it in a second round."""

    second: bool
    wanted: bool


class Attributes:
    """One write. Mutating plugins change `obj` in place or replace it; `old` is shared and read only.

    `on_accept` is what a validating plugin wants done together with the write: storage calls it once, in the same turn
    of the loop in which the store accepted the write, and not at all when the write was refused or is a dry run.
    """

    __slots__ = (
        "ctx", "name", "namespace", "obj", "old", "on_accept", "operation", "options", "resource", "rounds",
        "subresource",
    )

    def __init__(
        self, operation: str, resource: Resource, subresource: str, namespace: str, name: str, obj: Any,
        old: Object | None, ctx: Context, options: Object | None = None,
    ) -> None:
        self.operation = operation  # CREATE, UPDATE, DELETE, CONNECT
        self.resource = resource
        self.subresource = subresource
        self.namespace = namespace
        self.name = name
        self.obj = obj
        self.old = old
        self.ctx = ctx
        self.options = options
        self.on_accept: Callable[[], object] | None = None
        self.rounds: Rounds | None = None  # once a webhook was asked

    @property
    def kind_key(self) -> str:
        return self.resource.kind.key

    def forbidden(self, why: str) -> errors.ApiError:
        """The refusal of this request; an object whose name is still to be generated goes by its prefix."""
        name = self.name
        if not name:
            meta = self.obj["metadata"] if self.obj else {}
            name = meta.get("name") or meta.get("generateName") or "Unknown"
        return errors.forbidden(self.resource.gr, name, why)


class Admission(Protocol):
    """The chain as storage sees it."""

    async def admit(self, attributes: Attributes) -> None: ...
    async def validate(self, attributes: Attributes) -> None: ...


class AllowAll:
    """No policy: for tests of what lies below admission."""

    async def admit(self, attributes: Attributes) -> None:
        return None

    async def validate(self, attributes: Attributes) -> None:
        return None
