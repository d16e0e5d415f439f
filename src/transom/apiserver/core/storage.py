"""The rules of create, update and delete for all kinds.

Callers pass objects in the storage version and get stored records back. Strategies define the rules
of a kind, admission the cluster's policy. This module is independent of HTTP and of request
versions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from transom.apiserver.core.allocators import ServiceAllocators
from transom.apiserver.core.attributes import AdmissionInterface, Attributes
from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.deletion import can_be_removed, check_preconditions, mark_for_deletion
from transom.apiserver.core.names import NameGenerator
from transom.apiserver.core.object_validation import is_compiled, validate_object
from transom.apiserver.core.objectstore import ObjectStore, missing_error
from transom.apiserver.core.offload import compute_in_worker, is_costly
from transom.apiserver.core.request_size import fit_request
from transom.apiserver.core.requestinfo import is_path_segment
from transom.apiserver.core.resource_versions import (
    OBJECT_MODIFIED,
    check_resource_version,
    drop_resource_version,
    is_generic,
    is_resource_version,
    uid_mismatch,
)
from transom.apiserver.core.resources import Resource
from transom.apiserver.core.sharing import share
from transom.apiserver.core.strategies import Strategy, base, services, strategy_for
from transom.apiserver.core.strategies.base import StorageRules
from transom.apiserver.core.unchanged import is_unchanged
from transom.kit.clock import Clock, rfc3339
from transom.kit.lazy import lazy_import
from transom.kit.uuids import random_uuid
from transom.machinery import errors
from transom.machinery.field import FieldError
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet, is_enabled
from transom.store.api import PreconditionFailed, StoreRecord

if TYPE_CHECKING:
    from transom.machinery import object_warnings
    from transom.machinery.structural import cel as structural_cel
else:
    object_warnings = lazy_import("transom.machinery.object_warnings")
    structural_cel = lazy_import("transom.machinery.structural.cel")

T = TypeVar("T")
Transform = Callable[[Object | None], Object]
# Prepares the update of a subresource: (storage, ctx, new, old).
Prepare = Callable[[StorageRules, RequestContext, Object, Object], None]
_ALLOCATION_ATTEMPTS = 50
_FOLLOWED_ATTEMPTS = 10_000
_SERVER_FIELDS = frozenset(("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"))


class Storage:
    def __init__(
        self,
        objects: ObjectStore,
        admission: AdmissionInterface,
        allocators: ServiceAllocators,
        clock: Clock,
        names: NameGenerator,
        rng: random.Random,
        release: Release = DEFAULT,
        feature_gates: Mapping[str, bool] | None = None,
    ) -> None:
        self.store = objects.store
        self.workers = objects.workers
        self.admission = admission
        self.services = allocators
        self.clock = clock
        self.release = release
        self._feature_gates = dict(feature_gates or {})
        self.watch_list = FeatureSet(release, feature_gates or {}).enabled("WatchList")
        self._warns = has_behaviour(release, "ObjectWarnings")
        self._names = names
        self._rng = rng
        # Reads are those of the object store.
        self.compute = objects.compute
        self.decode = objects.decode
        self.decode_large = objects.decode_large
        self.encode_result = objects.encode_result
        self._copied = objects.copied
        self._is_terminating = objects.is_terminating
        self.decode_in_thread = objects.decode_in_thread
        self.served_in_thread = objects.served_in_thread
        self.decode_lean = objects.decode_lean
        self.find = objects.find
        self.get = objects.get
        self.labels = objects.labels
        self.fields = objects.fields
        self.objects = objects.objects
        self.load_objects = objects.load_objects
        self.readable = objects.readable
        self.superseded = objects.superseded
        self.replace_now = objects.replace_now
        self._put = objects.put
        self._durable = objects.durable
        # The lock of all writes that allocate; a store of one process needs none.
        self._lock = "service-allocations" if objects.store.follows else ""
        self._allocation = asyncio.Lock()
        self._quota_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def feature(self, gate: str) -> bool:
        """Whether a feature is enabled: by the feature gates, otherwise by the release's
        default.
        """
        found = self._feature_gates.get(gate)
        if found is None:
            found = self._feature_gates[gate] = is_enabled(self.release, gate)
        return found

    # ---- creating ----

    async def create(
        self,
        ctx: RequestContext,
        res: Resource,
        namespace: str,
        obj: Object,
        authorize: Callable[[], None] | None = None,
    ) -> StoreRecord:
        """Stores a new object. Takes ownership of `obj`.

        `authorize` raises an error if the user of an update may not create; as in Kubernetes, it is
        called once the object is valid.
        """
        meta = obj["metadata"]
        given_name = meta.get("name", "")
        attributes = Attributes("CREATE", res, "", namespace, given_name, obj, None, ctx)
        await self.admission.admit(attributes)
        obj = attributes.obj
        meta = obj["metadata"]
        for attempt in range(8 if meta.get("generateName") and not meta.get("name") else 1):
            if attempt:
                meta["name"] = ""
            strategy = strategy_for(res.kind, res.version)
            if ctx.large and strategy.pure:
                await self.compute(
                    ctx, partial(self._before_create, ctx, res, strategy, namespace, obj)
                )
            else:
                self._before_create(ctx, res, strategy, namespace, obj)
            check = partial(res.ops.validate_create, obj)
            await self._validated(
                ctx, res, obj, self._with_strategy(strategy, ctx, obj, None, "", check)
            )
            await self._warn(ctx, res, obj)
            if authorize is not None:
                authorize()
            attributes.name = meta.get("name", "")
            await self.admission.validate(attributes)
            try:
                record = await self._insert(ctx, res, strategy, namespace, obj, attributes)
                return record if res.ops.converter is None else await self.readable(res, record)
            except errors.ApiError as problem:
                if problem.reason != "AlreadyExists" or not meta.get("generateName"):
                    raise
        if not has_behaviour(res.release, "GeneratedNameConflicts"):
            kind = errors.GroupResource(res.gvk.group, res.gvk.kind)
            raise errors.server_timeout(kind, "POST")
        raise errors.generated_name_taken(res.gr, meta["name"])

    def _before_create(
        self, ctx: RequestContext, res: Resource, strategy: Strategy, namespace: str, obj: Object
    ) -> None:
        meta = obj["metadata"]
        if res.kind.namespaced:
            if meta.setdefault("namespace", namespace) != namespace:
                raise errors.bad_request(
                    "the namespace of the provided object does not match the namespace sent "
                    "on the request"
                )
        else:
            meta.pop("namespace", None)
        if not _SERVER_FIELDS.isdisjoint(meta):
            for name in _SERVER_FIELDS:
                meta.pop(name, None)
        meta["uid"] = random_uuid(self._rng)
        meta["creationTimestamp"] = rfc3339(ctx.now)
        if meta.get("generateName") and not meta.get("name"):
            meta["name"] = self._names.generate(meta["generateName"])
        base.prepare_create(strategy, res.kind, self, ctx, obj)

    async def _warn(
        self,
        ctx: RequestContext,
        res: Resource,
        obj: Object,
        old: Object | None = None,
        subresource: str = "",
    ) -> None:
        if not self._warns:
            return
        if not res.custom:
            find = partial(
                object_warnings.object_warnings, res.release, res.kind.key, obj, old, subresource
            )
        elif not subresource:
            find = partial(object_warnings.custom_object_warnings, res.release, obj, old)
        else:
            return
        for text in await self.compute(ctx, find) if ctx.large else find():
            ctx.warn(text)

    def _with_strategy(
        self,
        strategy: Strategy,
        ctx: RequestContext,
        new: Object,
        old: Object | None,
        subresource: str,
        validate: Callable[[], list[FieldError]],
    ) -> Callable[[], list[FieldError]]:
        """The validation, after the errors that the strategy finds by other objects."""
        if strategy.find_errors is None:
            return validate
        found = list(strategy.find_errors(self, ctx, new, old, subresource))
        return (lambda: found + validate()) if found else validate

    async def _validated(
        self,
        ctx: RequestContext,
        res: Resource,
        obj: Object,
        find_problems: Callable[[], list[FieldError]],
    ) -> None:
        """Validates an object: in the worker thread if it is large, or has slow rules."""
        try:
            if ctx.large or is_compiled(res, obj):
                found = await compute_in_worker(
                    self.workers, ctx, partial(validate_object, res, obj, find_problems)
                )
            else:
                found = validate_object(res, obj, find_problems)
        except structural_cel.SlowRules as slow:
            found = await compute_in_worker(
                self.workers, ctx, partial(validate_object, res, obj, slow.work)
            )
        for text in found.warnings:
            ctx.warn(text)
        try:
            if found.error is not None:
                raise found.error
        finally:
            del found  # the traceback of its error refers to this frame

    def _insert(
        self,
        ctx: RequestContext,
        res: Resource,
        strategy: Strategy,
        namespace: str,
        obj: Object,
        attributes: Attributes,
    ) -> Awaitable[StoreRecord]:
        allocates = strategy.reserve is not None
        if not self._lock or not (allocates or attributes.confirm is not None):
            return self._insert_once(ctx, res, strategy, namespace, obj, attributes)
        key = res.key(namespace, obj["metadata"]["name"])

        async def attempt() -> StoreRecord:
            existing = self.store.get(key)
            if existing is not None:
                raise await self._exists(ctx, res, obj["metadata"]["name"], existing)
            fresh = await self._copied(ctx, obj)
            return await self._insert_once(ctx, res, strategy, namespace, fresh, attributes)

        lock = self._write_lock(namespace, allocates)
        return self._repeating(lock, attempt, lambda: True)

    def _write_lock(self, namespace: str, allocates: bool) -> asyncio.Lock:
        """Writes of this server that would only get in each other's way wait for each other."""
        if allocates:
            return self._allocation
        found = self._quota_locks.get(namespace)
        if found is None:
            found = self._quota_locks[namespace] = asyncio.Lock()
        return found

    async def _repeating(
        self,
        lock: asyncio.Lock,
        attempt: Callable[[], Awaitable[StoreRecord]],
        is_unchanged: Callable[[], bool],
    ) -> StoreRecord:
        """Writes an object that takes numbers from a range, or a part of a quota, that several servers
        share. The write is refused if another server has just taken some; then this one knows what.
        """
        async with lock:
            for _ in range(_ALLOCATION_ATTEMPTS):
                try:
                    return await attempt()
                except PreconditionFailed:
                    if not is_unchanged():
                        raise
        raise errors.internal("failed to allocate: ranges or quotas are changed too often")

    async def _insert_once(
        self,
        ctx: RequestContext,
        res: Resource,
        strategy: Strategy,
        namespace: str,
        obj: Object,
        attributes: Attributes,
    ) -> StoreRecord:
        meta = obj["metadata"]
        if is_resource_version(meta.get("resourceVersion") or "") and not ctx.dry_run:
            raise errors.ApiError(
                500, "", "resourceVersion should not be set on objects to be created"
            )
        key = res.key(namespace, meta["name"])
        undo = strategy.reserve(self, ctx, obj, None) if strategy.reserve is not None else None
        try:
            if ctx.dry_run:
                await attributes.confirm_write()
                existing = self.store.latest(key)
                if existing is not None:
                    raise await self._exists(ctx, res, meta["name"], existing)
                return StoreRecord(key, await self.encode_result(ctx, res, obj), 0, 0)
            stored = await res.ops.stored(obj, partial(self.compute, ctx) if ctx.large else None)
            if ctx.large:
                await self.compute(ctx, partial(fit_request, res, key, stored, ctx.applying))
            share(res.kind.key, stored)
            if attributes.confirm is not None:
                await attributes.confirm_write()
            lock = self._lock if strategy.reserve is not None else ""
            try:
                along = attributes.along
                pending = self._put(res, key, stored, 0, strategy.ttl, lock, along)
                more = attributes.on_accept() if attributes.on_accept is not None else None
                record = await pending  # a cancelled request does not cancel the write
            except PreconditionFailed as problem:
                if (lock or attributes.along) and problem.current is None:
                    raise
                raise await self._exists(ctx, res, meta["name"], problem.current) from None
            if more is not None:
                await more
        except BaseException:
            attributes.reject()
            if undo is not None:
                undo()
            raise
        if strategy.after_write is not None:
            await self._written(strategy, ctx, obj, None)
        return record

    async def _written(
        self, strategy: Strategy, ctx: RequestContext, new: Object, old: Object | None
    ) -> None:
        if strategy.after_write is not None:
            along = strategy.after_write(self, ctx, new, old)
            if along is not None:
                await asyncio.shield(along)

    async def _exists(
        self, ctx: RequestContext, res: Resource, name: str, current: StoreRecord | None
    ) -> errors.ApiError:
        problem = errors.already_exists(res.gr, name)
        if current is not None and await self._is_terminating(ctx, res, current):
            problem.message = f"object is being deleted: {problem.message}"
        return problem

    # ---- updating ----

    async def update(
        self,
        ctx: RequestContext,
        res: Resource,
        namespace: str,
        name: str,
        transform: Transform,
        *,
        subresource: str = "",
        prepare: Prepare | None = None,
        reread: bool = False,
        force_create: bool = False,
        admit_as: str = "",
        checked: bool = True,
    ) -> tuple[StoreRecord, bool]:
        """Reads, changes, checks and writes; retries after a conflict if the caller set no
        resourceVersion.

        `transform` builds the new object from the current one (None if there is none); `reread`
        marks a patch, which may be applied again to a newer version. Admission sees the subresource
        `admit_as`; `checked=False` skips admission and validation, for changes by the server
        itself. Returns the record and whether it was created.
        """
        gr = res.gr
        # Each refusal by etcd means that another write succeeded; Kubernetes tries again without
        # limit.
        retries = _FOLLOWED_ATTEMPTS if self.store.follows else 5
        key = res.key(namespace, name)
        strategy = strategy_for(res.kind, res.version)
        converter = res.ops.converter
        while True:
            current = self.store.latest(key)
            if current is None:
                if (
                    not (strategy.create_on_update or is_generic(strategy, res) or force_create)
                    or subresource
                    or not is_path_segment(name)
                ):
                    raise missing_error(res, name)
                make = partial(transform, None)
                obj = await self.compute(ctx, make) if ctx.large else make()
                uid = obj["metadata"].get("uid")
                if uid and force_create:
                    raise errors.conflict(
                        gr,
                        name,
                        f"uid mismatch: the provided object specified uid {uid}, and no existing "
                        "object was found",
                    )
                if uid:
                    raise uid_mismatch(res, key, name, uid, "", ctx.dry_run)
                if ctx.authorize_create is None:
                    raise errors.internal(
                        "no authorizer provided, unable to authorize a create on update"
                    )
                drop_resource_version(obj["metadata"], ctx.dry_run)
                return await self.create(ctx, res, namespace, obj, ctx.authorize_create), True
            if not ctx.large and is_costly(len(current.value), res.ops.weight):
                ctx.large = True
            readable = current if converter is None else await self.readable(res, current)
            if ctx.large:
                old = await self.decode_large(ctx, res, readable)
                work = partial(self.compute, ctx, partial(transform, old))
                new = await work() if converter is None else await converter.settle(work)
            elif converter is None:
                old = self.decode(res, readable)
                new = transform(old)
            else:
                old = self.decode(res, readable)
                new = await converter.settle(partial(_result_of, partial(transform, old)))
            unconditional = check_resource_version(
                res, strategy, key, name, new, old, current, reread, ctx.dry_run
            )
            attributes = Attributes(
                "UPDATE", res, subresource or admit_as, namespace, name, new, old, ctx
            )
            if checked:
                await self.admission.admit(attributes)
                new = attributes.obj
            before = partial(
                self._before_update, ctx, res, strategy, new, old, subresource, prepare
            )
            # Strategies of custom objects compare all of the two, and use nothing else.
            beside = ctx.large and res.custom and prepare is None
            await (self.compute(ctx, before) if beside else _result_of(before))
            validate: Callable[[], list[FieldError]] = list
            if checked:
                validate = partial(res.ops.validate_update, new, old, subresource)
                validate = self._with_strategy(strategy, ctx, new, old, subresource, validate)
            await self._validated(ctx, res, new, validate)
            if checked:
                await self._warn(ctx, res, new, old, subresource)
                await self.admission.validate(attributes)
            try:
                record = await self._replace(ctx, res, strategy, key, new, old, current, attributes)
                return record if converter is None else await self.readable(res, record), False
            except PreconditionFailed:
                retries -= 1
                if not (unconditional or reread) or retries < 0:
                    raise errors.conflict(res.gr, name, OBJECT_MODIFIED) from None

    def _before_update(
        self,
        ctx: RequestContext,
        res: Resource,
        strategy: Strategy,
        new: Object,
        old: Object,
        subresource: str,
        prepare: Prepare | None,
    ) -> None:
        meta, old_meta = new["metadata"], old["metadata"]
        if res.kind.namespaced:
            meta.setdefault("namespace", old_meta.get("namespace", ""))
        else:
            meta.pop("namespace", None)
        for name in ("generation", "selfLink", "creationTimestamp"):
            _keep(meta, old_meta, name)
        if old_meta.get("deletionTimestamp"):
            meta["deletionTimestamp"] = old_meta["deletionTimestamp"]
        for name in ("uid", "deletionGracePeriodSeconds"):
            if meta.get(name) is None:
                _keep(meta, old_meta, name)
        if prepare is not None:
            prepare(self, ctx, new, old)
        elif subresource == "status":
            base.prepare_status_update(strategy, self, ctx, new, old)
            _keep(meta, old_meta, "deletionTimestamp")
        else:
            base.prepare_update(strategy, self, ctx, new, old)

    async def _replace(
        self,
        ctx: RequestContext,
        res: Resource,
        strategy: Strategy,
        key: str,
        new: Object,
        old: Object,
        current: StoreRecord,
        attributes: Attributes,
    ) -> StoreRecord:
        allocates = strategy.reserve is not None
        if not self._lock or not (allocates or attributes.confirm is not None):
            return await self._replace_once(ctx, res, strategy, key, new, old, current, attributes)

        async def attempt() -> StoreRecord:
            fresh = await self._copied(ctx, new)
            return await self._replace_once(
                ctx, res, strategy, key, fresh, old, current, attributes
            )

        lock = self._write_lock(attributes.namespace, allocates)
        return await self._repeating(lock, attempt, lambda: self.store.get(key) is current)

    async def _replace_once(
        self,
        ctx: RequestContext,
        res: Resource,
        strategy: Strategy,
        key: str,
        new: Object,
        old: Object,
        current: StoreRecord,
        attributes: Attributes,
    ) -> StoreRecord:
        undo = strategy.reserve(self, ctx, new, old) if strategy.reserve is not None else None
        try:
            meta = new["metadata"]
            meta["resourceVersion"] = old["metadata"]["resourceVersion"]
            if can_be_removed(res, new) and old["metadata"].get("deletionTimestamp"):
                if not ctx.dry_run:
                    await self.store.delete(key, expected=current.mod_revision)
                    await self._deleted(strategy, new)
                return StoreRecord(
                    key,
                    await self.encode_result(ctx, res, new),
                    current.create_revision,
                    current.mod_revision,
                )
            stored = await res.ops.stored(new, partial(self.compute, ctx) if ctx.large else None)
            compare = partial(is_unchanged, res, stored, new, old, current)
            if await self.compute(ctx, compare) if ctx.large else compare():
                newest = self.store.get(key)
                if newest is not current and self.store.follows:  # changed by another server
                    raise PreconditionFailed(newest)
                if newest is not current:  # not on disk yet
                    await self._durable(key)
                return current
            if ctx.large and not ctx.dry_run:
                await self.compute(ctx, partial(fit_request, res, key, stored, ctx.applying))
            await attributes.confirm_write()
            if ctx.dry_run:
                return StoreRecord(
                    key,
                    await self.encode_result(ctx, res, new),
                    current.create_revision,
                    current.mod_revision,
                )
            lock = self._lock if strategy.reserve is not None else ""
            along = attributes.along
            pending = self._put(res, key, stored, current.mod_revision, strategy.ttl, lock, along)
            more = attributes.on_accept() if attributes.on_accept is not None else None
            record = await pending
            if more is not None:
                await more
        except BaseException:
            attributes.reject()
            if undo is not None:
                undo()
            raise
        if strategy.reserve is not None:
            services.release_allocations(self, old, new)
        await self._written(strategy, ctx, new, old)
        return record

    async def _deleted(self, strategy: Strategy, obj: Object) -> None:
        while strategy.after_delete is not None:
            along = strategy.after_delete(self, obj)
            if along is None:
                return
            try:
                await asyncio.shield(along)
                return
            except PreconditionFailed:  # another server has just changed what goes along
                continue

    # ---- deleting ----

    async def delete(
        self,
        ctx: RequestContext,
        res: Resource,
        namespace: str,
        name: str,
        options: Object,
        admitted: bool = False,
    ) -> tuple[Object, bool]:
        """Deletes the object, or marks it for deletion while finalizers or a grace period hold it.

        Returns the last state of the object, and whether it is deleted.
        """
        key = res.key(namespace, name)
        strategy = strategy_for(res.kind, res.version)
        while True:
            current = self.store.latest(key)
            if current is None:
                raise missing_error(res, name)
            ctx.large = ctx.large or is_costly(len(current.value), res.ops.weight)
            readable = current
            if res.ops.converter is not None:
                readable = await self.readable(res, current)
            old = (
                await self.decode_large(ctx, res, readable)
                if ctx.large
                else self.decode(res, readable)
            )
            if not admitted:
                attributes = Attributes("DELETE", res, "", namespace, name, None, old, ctx, options)
                await self.admission.admit(attributes)
                await self.admission.validate(attributes)
                if self.store.latest(key) is not current:
                    continue
            check_preconditions(res, name, options, old)
            try:
                return await self._delete_once(ctx, res, strategy, key, old, current, options)
            except PreconditionFailed:
                continue

    async def _delete_once(
        self,
        ctx: RequestContext,
        res: Resource,
        strategy: Strategy,
        key: str,
        old: Object,
        current: StoreRecord,
        options: Object,
    ) -> tuple[Object, bool]:
        marked, changed, gone = mark_for_deletion(res, strategy, old, options, ctx.now)
        if ctx.dry_run:
            return marked, gone
        if not gone:
            if not changed:
                return marked, False
            stored = await res.ops.stored(marked, partial(self.compute, ctx) if ctx.large else None)
            record = await self._put(res, key, stored, current.mod_revision, strategy.ttl)
            return res.ops.load((await self.readable(res, record)).value), False
        # a grace period of zero: watchers see the deletion timestamp, then the deletion
        if changed and self.store.follows:  # the deletion has to name the revision of the mark
            marking = self._put(res, key, marked, current.mod_revision, strategy.ttl)
            written = await asyncio.shield(marking)
            await self.store.delete(key, expected=written.mod_revision)
        elif changed:
            marking = self._put(res, key, marked, current.mod_revision, strategy.ttl)
            accepted = self.store.latest(key)
            assert accepted is not None
            removal = self.store.delete(key, expected=accepted.mod_revision)
            await asyncio.shield(asyncio.gather(marking, removal))
        else:
            await self.store.delete(key, expected=current.mod_revision)
        await self._deleted(strategy, old)
        return marked, True


async def _result_of(work: Callable[[], T]) -> T:
    return work()


def _keep(meta: Object, old: Object, name: str) -> None:
    if name in old:
        meta[name] = old[name]
    else:
        meta.pop(name, None)
