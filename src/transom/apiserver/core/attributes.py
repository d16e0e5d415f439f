"""The attributes of a request for admission plugins, the rejection error, and the admission
interface for storage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from transom.apiserver.core.call import ApiCall
from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.resources import Resource
from transom.machinery import errors
from transom.machinery.objects import Object
from transom.store.api import AlsoPut


class ReinvocationContext(Protocol):
    """If a webhook changes the object, all mutating plugins run again in a second round."""

    second: bool
    wanted: bool


class Attributes:
    """One write. Mutating plugins change `obj` in place or replace it; `old` is shared and
    read-only.

    A validating plugin sets `on_accept` to run code together with the write: storage calls it once,
    in the same iteration of the event loop in which the store accepted the write, and not at all if
    the write failed or is a dry run. `confirm` is a check that must run in that same iteration,
    just before the write; it raises an error to reject the request. Both may return something to
    wait for: then `confirm` has reserved what the write needs, and sets `on_reject`, which storage
    calls if the write fails.

    `confirm` may also set `along`, in a store that several servers share: what is written in the same
    transaction. If another server was faster, storage calls `confirm` again.
    """

    __slots__ = (
        "along",
        "confirm",
        "ctx",
        "name",
        "namespace",
        "obj",
        "old",
        "on_accept",
        "on_reject",
        "operation",
        "options",
        "resource",
        "rounds",
        "subresource",
    )

    def __init__(
        self,
        operation: str,
        resource: Resource,
        subresource: str,
        namespace: str,
        name: str,
        obj: Any,
        old: Object | None,
        ctx: RequestContext,
        options: Object | None = None,
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
        self.confirm: Callable[[], Awaitable[None] | None] | None = None
        self.on_accept: Callable[[], Awaitable[None] | None] | None = None
        self.on_reject: Callable[[], None] | None = None
        self.along: Sequence[AlsoPut] = ()
        self.rounds: ReinvocationContext | None = None  # set once a webhook was called

    async def confirm_write(self) -> None:
        waiting = self.confirm() if self.confirm is not None else None
        if waiting is not None:
            await waiting

    def reject(self) -> None:
        """The write failed."""
        if self.on_reject is not None:
            self.on_reject()

    @property
    def kind_key(self) -> str:
        return self.resource.kind.key

    def forbidden(self, why: str) -> errors.ApiError:
        """The rejection error; an object without a generated name yet is identified by its
        prefix.
        """
        name = self.name
        if not name:
            meta = self.obj["metadata"] if self.obj else {}
            name = meta.get("name") or meta.get("generateName") or "Unknown"
        return errors.forbidden(self.resource.gr, name, why)


class AdmissionInterface(Protocol):
    """The admission chain as storage uses it."""

    async def admit(self, attributes: Attributes) -> None: ...
    def validate(self, attributes: Attributes) -> Awaitable[None]: ...


def subresource_attributes(call: ApiCall, obj: Object, operation: str = "CREATE") -> Attributes:
    info = call.info
    return Attributes(
        operation, call.res, info.subresource, info.namespace, info.name, obj, None, call.ctx
    )


async def admit_subresource(
    admission: AdmissionInterface, call: ApiCall, obj: Object, operation: str = "CREATE"
) -> None:
    """Admission of the object of a subresource: a binding, an eviction, the options of an exec."""
    attributes = subresource_attributes(call, obj, operation)
    await admission.admit(attributes)
    await admission.validate(attributes)
