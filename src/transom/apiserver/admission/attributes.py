"""What admission plugins see of a request, and the shape of a plugin."""

from __future__ import annotations

from typing import Any, Protocol

from transom.apiserver.context import Context
from transom.apiserver.resources import Resource
from transom.machinery.objects import Object


class Attributes:
    """One write. Mutating plugins change `obj` in place or replace it; `old` is shared and read only."""

    __slots__ = ("ctx", "name", "namespace", "obj", "old", "operation", "options", "resource", "subresource")

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

    @property
    def kind_key(self) -> str:
        return self.resource.kind.key


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
