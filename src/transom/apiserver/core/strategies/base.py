"""The strategy interface and the rules that all kinds share.

A strategy modifies objects in the storage version in place: the object is the request's own copy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from transom.apiserver.core.allocators import ServiceAllocators
from transom.apiserver.core.context import RequestContext
from transom.kit.lazy_dataclass import dataclass
from transom.machinery.field import FieldError
from transom.machinery.kinds import Kind
from transom.machinery.objects import Object, copy_object
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import Behaviour, has_behaviour
from transom.machinery.schema import schema_table
from transom.machinery.typed import zero_value
from transom.store.api import Store


class StorageRules(Protocol):
    """The parts of the storage that strategies use."""

    @property
    def store(self) -> Store: ...
    @property
    def services(self) -> ServiceAllocators: ...
    @property
    def release(self) -> Release: ...
    def feature(self, gate: str) -> bool: ...


CreateHook = Callable[[StorageRules, RequestContext, Object], None]
UpdateHook = Callable[[StorageRules, RequestContext, Object, Object], None]
# Allocates an address or a port before a write; the returned callable releases it if the write
# fails.
Reserve = Callable[[StorageRules, RequestContext, Object, Object | None], Callable[[], None] | None]
# Deletes objects that depend on a deleted object; the response waits for the returned awaitable.
AfterDelete = Callable[[StorageRules, Object], Awaitable[object] | None]
# Errors that depend on other objects; None for a create, and the subresource of an update.
FindErrors = Callable[
    [StorageRules, RequestContext, Object, Object | None, str], Sequence[FieldError]
]
# Writes what goes along with an object that was written; the response waits for the awaitable.
AfterWrite = Callable[
    [StorageRules, RequestContext, Object, Object | None], Awaitable[object] | None
]
GracePeriod = Callable[[Object, int | None], int]
BeginDeletion = Callable[[Object, float], Object]


@dataclass(frozen=True, slots=True)
class Strategy:
    create_on_update: bool = False  # PUT to a name that does not exist creates it
    unconditional_update: bool = True  # PUT without resourceVersion overwrites
    # Services are validated before the store sets the version of an unconditional update, so they
    # reject it.
    checks_before_store: bool = False
    # Since then, `create_on_update` holds and `checks_before_store` does not.
    generic_since: Behaviour | None = None
    return_deleted: bool = False  # DELETE returns the object instead of a Status
    deletion_in_words: bool = False  # DELETE returns a Status even while finalizers hold the object
    # group versions whose deletion orphans dependents by default
    orphan_versions: tuple[str, ...] = ()
    # fields whose change increments metadata.generation; () = no generation
    generation: tuple[str, ...] = ()
    generation_since: Behaviour | None = None  # the releases that have it; None = all
    has_status: bool = True  # has a status that only the subresource may change
    created_with_status: bool = False  # a create may set the status
    # Metadata that a status update may not change, in addition to what no update may.
    status_keeps: tuple[str, ...] = ()
    # The hooks below modify only their arguments, so that they can run in the worker thread for
    # large objects.
    pure: bool = False
    on_create: CreateHook | None = None
    on_update: UpdateHook | None = None
    on_status: UpdateHook | None = None
    find_errors: FindErrors | None = None
    reserve: Reserve | None = None
    after_write: AfterWrite | None = None
    after_delete: AfterDelete | None = None
    grace_period: GracePeriod | None = None  # the grace period of this object; None = not graceful
    begin_deletion: BeginDeletion | None = (
        None  # what the first delete does to the object; None = the common rules
    )
    ttl: float | None = None


def empty_status(kind: Kind, release: Release) -> Any:
    """The initial status of this kind (`{}`, or zero counters where Kubernetes prints them)."""
    of = schema_table(release).lookup(kind.gvk())
    return None if of is None else copy_object(zero_value(of).get("status"))


def set_status(obj: Object, status: Any) -> None:
    if status is None:
        obj.pop("status", None)
    else:
        obj["status"] = status


def _has_generation(strategy: Strategy, release: Release) -> bool:
    since = strategy.generation_since
    return bool(strategy.generation) and (since is None or has_behaviour(release, since))


def prepare_create(
    strategy: Strategy, kind: Kind, storage: StorageRules, ctx: RequestContext, obj: Object
) -> None:
    if strategy.has_status and not strategy.created_with_status:
        set_status(obj, empty_status(kind, storage.release))
    if _has_generation(strategy, storage.release):
        obj["metadata"]["generation"] = 1
    if strategy.on_create is not None:
        strategy.on_create(storage, ctx, obj)


def prepare_update(
    strategy: Strategy, storage: StorageRules, ctx: RequestContext, new: Object, old: Object
) -> None:
    if strategy.has_status:
        set_status(new, old.get("status"))
    if strategy.on_update is not None:
        strategy.on_update(storage, ctx, new, old)
    if _has_generation(strategy, storage.release):
        changed = any(_differs(new, old, name) for name in strategy.generation)
        if changed:
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _differs(new: Object, old: Object, name: str) -> bool:
    if name == "*":  # everything but metadata (and status, where it is separate)
        ignored = {"metadata", "status", "apiVersion", "kind"}
        return {k: v for k, v in new.items() if k not in ignored} != {
            k: v for k, v in old.items() if k not in ignored
        }
    if name == "metadata.annotations":
        return (new["metadata"].get("annotations") or {}) != (
            old["metadata"].get("annotations") or {}
        )
    return new.get(name) != old.get(name)


def prepare_status_update(
    strategy: Strategy, storage: StorageRules, ctx: RequestContext, new: Object, old: Object
) -> None:
    """A status update changes the status (and most metadata), nothing else."""
    for name in [k for k in new if k not in ("status", "metadata", "apiVersion", "kind")]:
        if name not in old:
            del new[name]
    for name, value in old.items():
        if name not in ("status", "metadata"):
            new[name] = value
    meta, old_meta = new["metadata"], old["metadata"]
    for name in strategy.status_keeps:
        if name in old_meta:
            meta[name] = old_meta[name]
        else:
            meta.pop(name, None)
    if strategy.on_status is not None:
        strategy.on_status(storage, ctx, new, old)
