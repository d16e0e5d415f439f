"""Objects in the store: the rules of create, update and delete that hold for every kind.

Callers hand in objects in the storage version and get stored records back. Strategies say what is particular to a kind,
admission what the cluster's policy adds. This module knows no HTTP and no request versions.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

import orjson

from transom.apiserver.admission.attributes import Admission, Attributes
from transom.apiserver.allocators import ServiceAllocators
from transom.apiserver.context import Context
from transom.apiserver.deletion import check_preconditions, mark, may_go
from transom.apiserver.resources import Resource
from transom.apiserver.sharing import share
from transom.apiserver.strategies import Strategy, base, services, strategy_for
from transom.kit.clock import Clock, rfc3339
from transom.machinery import errors, field, selectors
from transom.machinery.objects import Object, same_json
from transom.store.api import PreconditionFailed, Record, Store

Transform = Callable[[Object | None], Object]
# Prepares the update of a sub-resource: (storage, ctx, new, old).
Prepare = Callable[["Storage", Context, Object, Object], None]
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_DECODED_KEPT = 4096  # decoded objects kept beside their bytes, newest reads first
_PASSING_KEPT = 256  # of those that expire (events), which are many and which hardly anybody reads here
_NO_LABELS: dict[str, str] = {}  # nobody changes the labels of a stored object


class Cached:
    """What readers derived from a record's bytes."""

    __slots__ = ("fields", "labels", "lean", "obj", "reader")

    def __init__(self, labels: dict[str, str] | None = None) -> None:
        self.obj: Object | None = None
        self.lean: Object | None = None  # the same without managedFields, which are half of many an object
        self.reader: Resource | None = None  # who decoded `obj`: each version sees a custom object its own way
        self.labels = labels
        self.fields: dict[str, str] | None = None


class Storage:
    def __init__(
        self, store: Store, admission: Admission, allocators: ServiceAllocators, clock: Clock, rng: random.Random,
        release: tuple[int, int] = (1, 20), feature_gates: Mapping[str, bool] | None = None,
    ) -> None:
        self.store = store
        self.release = release
        self._feature_gates = dict(feature_gates or {})
        self.admission = admission
        self.services = allocators
        self.clock = clock
        self._rng = rng
        self._decoded: deque[Cached] = deque()
        self._passing: deque[Cached] = deque()

    def feature(self, gate: str, since: tuple[int, int]) -> bool:
        """Whether a feature is on: as the cluster was told, else from the release that turned it on."""
        return self._feature_gates.get(gate, self.release >= since)

    # ---- reading -------------------------------------------------------------------------------------------------

    def cached(self, record: Record) -> Cached:
        entry = record.cache
        if entry is None:
            entry = record.cache = Cached()
        return entry

    def superseded(self, record: Record) -> None:
        """There is a newer one, and everybody has heard of it: whoever still reads this one decodes its bytes again."""
        entry: Cached | None = record.cache
        if entry is not None:
            entry.obj = entry.lean = entry.fields = entry.labels = record.cache = None

    def decode(self, res: Resource, record: Record) -> Object:
        """The stored object as a dict in the storage version, a custom one in that of the resource. Shared: read only."""
        entry = self.cached(record)
        if entry.obj is None or (res.custom and entry.reader is not res):
            obj = res.ops.load(record.value)
            share(res.kind.key, obj)
            self._keep_decoded(entry, res, obj)
        return entry.obj  # type: ignore[return-value]  # just set

    def _keep_decoded(self, entry: Cached, res: Resource, obj: Object, passing: bool = False) -> None:
        entry.obj = obj
        entry.lean = None
        entry.reader = res
        kept, most = (self._passing, _PASSING_KEPT) if passing else (self._decoded, _DECODED_KEPT)
        kept.append(entry)
        if len(kept) > most:
            oldest = kept.popleft()
            oldest.obj = oldest.lean = None

    def decode_lean(self, res: Resource, record: Record) -> Object:
        """What `decode` gives, without managedFields: for those who keep many objects and never look at them."""
        obj = self.decode(res, record)
        if "managedFields" not in obj["metadata"]:
            return obj
        entry = self.cached(record)
        if entry.lean is None:
            entry.lean = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}}
        return entry.lean

    def labels(self, res: Resource, record: Record) -> dict[str, str]:
        entry = self.cached(record)
        if entry.labels is None:
            entry.labels = self._as_stored(res, record)["metadata"].get("labels") or {}
        return entry.labels

    def fields(self, res: Resource, record: Record) -> dict[str, str]:
        entry = self.cached(record)
        if entry.fields is None:
            entry.fields = selectors.field_values(res.kind, self._as_stored(res, record))
        return entry.fields

    def _as_stored(self, res: Resource, record: Record) -> Object:
        """The object for a look at its metadata, which does not depend on the version."""
        return orjson.loads(record.value) if res.custom else self.decode(res, record)

    async def readable(self, res: Resource, record: Record) -> Record:
        """The record for readers of this version; only a conversion webhook makes them wait."""
        if res.ops.converter is None:
            return record
        return (await res.ops.converter.records([record], res.version))[0]

    def get(self, res: Resource, namespace: str, name: str) -> Record:
        record = self.store.get(res.key(namespace, name))
        if record is None:
            raise errors.not_found(res.gr, name)
        return record

    def find(self, res: Resource, namespace: str, name: str) -> Object | None:
        record = self.store.get(res.key(namespace, name))
        return None if record is None else self.decode(res, record)

    def objects(self, res: Resource, namespace: str = "") -> list[Object]:
        return [self.decode(res, r) for r in self.store.list(res.key_prefix(namespace)).records]

    # ---- creating ------------------------------------------------------------------------------------------------

    async def create(self, ctx: Context, res: Resource, namespace: str, obj: Object) -> Record:
        """Store a new object. `obj` becomes the storage's own."""
        meta = obj["metadata"]
        given_name = meta.get("name", "")
        attributes = Attributes("CREATE", res, "", namespace, given_name, obj, None, ctx)
        await self.admission.admit(attributes)
        obj = attributes.obj
        meta = obj["metadata"]
        for attempt in range(8 if meta.get("generateName") and not meta.get("name") else 1):
            if attempt:
                meta["name"] = ""
            strategy = self._before_create(ctx, res, namespace, obj)
            attributes.name = meta.get("name", "")
            await self.admission.validate(attributes)
            try:
                record = await self._insert(ctx, res, strategy, namespace, obj, attributes)
                return await self.readable(res, record)
            except errors.ApiError as problem:
                if problem.reason != "AlreadyExists" or not meta.get("generateName") or given_name:
                    raise
        raise errors.ApiError(
            409, "AlreadyExists",
            f'{res.gr} "{meta["name"]}" already exists, the server was not able to generate a unique name for the object',
            {"name": meta["name"], "group": res.gr.group, "kind": res.gr.resource, "retryAfterSeconds": 1},
        )

    def _before_create(self, ctx: Context, res: Resource, namespace: str, obj: Object) -> Strategy:
        meta = obj["metadata"]
        if res.kind.namespaced:
            if meta.setdefault("namespace", namespace) != namespace:
                raise errors.bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
        else:
            meta.pop("namespace", None)
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            meta.pop(name, None)
        meta["uid"] = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        meta["creationTimestamp"] = rfc3339(ctx.now)
        if meta.get("generateName") and not meta.get("name"):
            meta["name"] = self.generate_name(meta["generateName"])
        strategy = strategy_for(res.kind, res.version)
        base.prepare_create(strategy, res.kind, self, ctx, obj)
        problems = res.ops.validate_create(obj)
        if problems:
            raise errors.invalid(res.ops.error_kind(obj), meta.get("name", ""), problems)
        res.ops.default_stored(obj)
        return strategy

    def generate_name(self, prefix: str) -> str:
        return prefix[:58] + "".join(self._rng.choices(_SUFFIX_LETTERS, k=5))

    async def _insert(
        self, ctx: Context, res: Resource, strategy: Strategy, namespace: str, obj: Object, attributes: Attributes
    ) -> Record:
        meta = obj["metadata"]
        if _is_version(meta.get("resourceVersion") or "") and not ctx.dry_run:
            raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        key = res.key(namespace, meta["name"])
        undo = strategy.reserve(self, ctx, obj, None) if strategy.reserve is not None else None
        try:
            if ctx.dry_run:
                existing = self.store.latest(key)
                if existing is not None:
                    raise self._exists(res, meta["name"], existing)
                return Record(key, encode_value(obj, custom=res.custom), 0, 0)
            stored = await res.ops.stored(obj)
            share(res.kind.key, stored)
            try:
                pending = self._put(res, key, stored, 0, strategy.ttl)
            except PreconditionFailed as problem:
                raise self._exists(res, meta["name"], problem.current) from None
            if attributes.on_accept is not None:
                attributes.on_accept()
            return await pending  # whoever stops waiting does not stop the write: the store sees to that
        except BaseException:
            if undo is not None:
                undo()
            raise

    def _exists(self, res: Resource, name: str, current: Record | None) -> errors.ApiError:
        problem = errors.already_exists(res.gr, name)
        if current is not None and self._as_stored(res, current)["metadata"].get("deletionTimestamp"):
            problem.message = f"object is being deleted: {problem.message}"
        return problem

    def _put(self, res: Resource, key: str, obj: Object, expected: int, ttl: float | None) -> asyncio.Future[Record]:
        meta = obj["metadata"]
        body = obj if res.custom else {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}
        cached = Cached(meta.get("labels") or _NO_LABELS)

        def encode(revision: int) -> bytes:
            meta["resourceVersion"] = str(revision)
            # orjson's bytes keep the room of their buffer, four times what they hold; what stays gets its own size.
            return bytes(memoryview(orjson.dumps(body)))

        pending = self.store.put(key, encode, expected=expected, ttl=ttl, cache=cached)
        if not res.custom:  # those who watch need not decode what was just encoded
            whole = {"kind": res.kind.kind, "apiVersion": res.kind.gvk().api_version, **body}
            self._keep_decoded(cached, res, whole, ttl is not None)
        return pending

    # ---- updating ------------------------------------------------------------------------------------------------

    async def update(
        self, ctx: Context, res: Resource, namespace: str, name: str, transform: Transform, *,
        subresource: str = "", prepare: Prepare | None = None, reread: bool = False, force_create: bool = False,
        admit_as: str = "", checked: bool = True,
    ) -> tuple[Record, bool]:
        """Read, change, check and write; again when somebody else was faster and the caller set no resourceVersion.

        `transform` makes the new object from the current one (None when there is none); `reread` says that it is a patch,
        which may be applied again to a newer version. Admission sees the sub-resource `admit_as`; `checked=False` leaves
        admission and validation out, for changes the server makes itself. Returns the record and whether it was created.
        """
        gr = res.gr
        retries = 5
        key = res.key(namespace, name)
        strategy = strategy_for(res.kind, res.version)
        converter = res.ops.converter
        while True:
            current = self.store.latest(key)
            if current is None:
                if not (strategy.create_on_update or force_create) or subresource:
                    raise errors.not_found(gr, name)
                obj = transform(None)
                uid = obj["metadata"].get("uid")
                if uid and force_create:
                    raise errors.conflict(gr, name, f"uid mismatch: the provided object specified uid {uid}, and no existing "
                                                    "object was found")
                if uid:
                    raise _uid_mismatch(res, key, name, uid, "")
                _forget_version(obj["metadata"], ctx.dry_run)
                return await self.create(ctx, res, namespace, obj), True
            old = self.decode(res, await self.readable(res, current))
            new = transform(old) if converter is None else await converter.settle(partial(transform, old))
            unconditional = self._check_version(res, strategy, key, name, new, old, current, reread)
            attributes = Attributes("UPDATE", res, subresource or admit_as, namespace, name, new, old, ctx)
            if checked:
                await self.admission.admit(attributes)
                new = attributes.obj
            self._before_update(ctx, res, strategy, new, old, subresource, prepare, checked)
            if checked:
                await self.admission.validate(attributes)
            try:
                record = await self._replace(ctx, res, strategy, key, new, old, current, attributes)
                return await self.readable(res, record), False
            except PreconditionFailed:
                retries -= 1
                if not (unconditional or reread) or retries < 0:
                    raise errors.conflict(res.gr, name, _MODIFIED) from None

    def _check_version(
        self, res: Resource, strategy: Strategy, key: str, name: str, new: Object, old: Object, current: Record,
        patched: bool,
    ) -> bool:
        """Refuse an update of another version or another object. True when the caller did not insist on a version."""
        meta = new["metadata"]
        uid = meta.get("uid")
        if uid and uid != old["metadata"]["uid"] and not patched:  # validation refuses a patch of the uid
            raise _uid_mismatch(res, key, name, uid, old["metadata"]["uid"])
        version = meta.get("resourceVersion") or ""
        if version in ("", "0"):
            if not strategy.unconditional_update:
                raise errors.invalid(
                    res.gr, name,
                    [field.invalid("metadata.resourceVersion", field.GoText("0x0"), "must be specified for an update")],
                )
            if not strategy.checks_before_store or version == "0":
                meta["resourceVersion"] = old["metadata"]["resourceVersion"]
            return True
        if parse_version(version) != current.mod_revision:
            raise errors.conflict(res.gr, name, _MODIFIED)
        return False

    def _before_update(
        self, ctx: Context, res: Resource, strategy: Strategy, new: Object, old: Object, subresource: str,
        prepare: Prepare | None, checked: bool,
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
        problems = res.ops.validate_update(new, old, subresource) if checked else None
        if problems:
            raise errors.invalid(res.ops.error_kind(new), meta.get("name", ""), problems)
        res.ops.default_stored(new)

    async def _replace(
        self, ctx: Context, res: Resource, strategy: Strategy, key: str, new: Object, old: Object, current: Record,
        attributes: Attributes,
    ) -> Record:
        undo = strategy.reserve(self, ctx, new, old) if strategy.reserve is not None else None
        try:
            meta = new["metadata"]
            meta["resourceVersion"] = old["metadata"]["resourceVersion"]
            if may_go(res, new) and old["metadata"].get("deletionTimestamp"):
                if not ctx.dry_run:
                    await self.store.delete(key, expected=current.mod_revision)
                    await self._deleted(strategy, new)
                return Record(key, encode_value(new, custom=res.custom), current.create_revision, current.mod_revision)
            stored = await res.ops.stored(new)
            # A custom object that looks the same is written if it is stored in another form: that is how objects get into
            # a new storage version.
            if same_json(stored, orjson.loads(current.value)) if res.custom else same_object(new, old):
                if self.store.get(key) is not current:  # still on its way to disk
                    await asyncio.shield(self._settled(key, current))
                return current
            if ctx.dry_run:
                return Record(key, encode_value(new, custom=res.custom), current.create_revision, current.mod_revision)
            pending = self._put(res, key, stored, current.mod_revision, strategy.ttl)
            if attributes.on_accept is not None:
                attributes.on_accept()
            record = await pending
        except BaseException:
            if undo is not None:
                undo()
            raise
        if strategy.reserve is not None:
            services.release(self, old, new)
        return record

    def replace_now(self, res: Resource, new: Object, current: Record) -> asyncio.Future[Record]:
        """Write a change that the server makes itself, without admission or validation. It is accepted (or
        PreconditionFailed raised) before this returns; the future tells when it is durable."""
        return self._put(res, current.key, new, current.mod_revision, strategy_for(res.kind).ttl)

    async def _settled(self, key: str, record: Record) -> None:
        """Wait until a write that was accepted is durable: an answer may not show what could still be lost."""
        while True:
            committed = self.store.get(key)
            if committed is not None and committed.mod_revision >= record.mod_revision:
                return
            if self.store.latest(key) is not record and committed is self.store.latest(key):
                return
            await asyncio.sleep(0)

    async def _deleted(self, strategy: Strategy, obj: Object) -> None:
        if strategy.after_delete is not None:
            along = strategy.after_delete(self, obj)
            if along is not None:
                await asyncio.shield(along)

    # ---- deleting ------------------------------------------------------------------------------------------------

    async def delete(
        self, ctx: Context, res: Resource, namespace: str, name: str, options: Object,
        admitted: bool = False,
    ) -> tuple[Object, bool]:
        """Delete, or mark for deletion while finalizers or a grace period hold the object.

        Returns the object as it was last, and whether it is gone.
        """
        key = res.key(namespace, name)
        strategy = strategy_for(res.kind, res.version)
        while True:
            current = self.store.latest(key)
            if current is None:
                raise errors.not_found(res.gr, name)
            old = self.decode(res, await self.readable(res, current))
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
        self, ctx: Context, res: Resource, strategy: Strategy, key: str, old: Object, current: Record, options: Object
    ) -> tuple[Object, bool]:
        marked, changed, gone = mark(res, strategy, old, options, ctx.now)
        if ctx.dry_run:
            return marked, gone
        if not gone:
            if not changed:
                return marked, False
            stored = await res.ops.stored(marked)
            record = await self._put(res, key, stored, current.mod_revision, strategy.ttl)
            return res.ops.load((await self.readable(res, record)).value), False
        if changed:  # a grace period of nothing: watchers see the mark, then the end
            marking = self._put(res, key, marked, current.mod_revision, strategy.ttl)
            accepted = self.store.latest(key)
            assert accepted is not None
            removal = self.store.delete(key, expected=accepted.mod_revision)
            await asyncio.shield(asyncio.gather(marking, removal))
        else:
            await self.store.delete(key, expected=current.mod_revision)
        await self._deleted(strategy, old)
        return marked, True


def decode_value(res: Resource, value: bytes) -> Object:
    return res.ops.load(value)


def encode_value(obj: Object, *, custom: bool = False) -> bytes:
    """An object as a record holds it: the kind is known, and so is the version unless the object is a custom one."""
    body = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}
    return orjson.dumps({"apiVersion": obj["apiVersion"], **body} if custom else body)


def _keep(meta: Object, old: Object, name: str) -> None:
    if name in old:
        meta[name] = old[name]
    else:
        meta.pop(name, None)


def same_object(new: Object, old: Object) -> bool:
    return all(new.get(k) == old.get(k) for k in new.keys() | old.keys() if k not in ("kind", "apiVersion"))


def parse_version(text: str) -> int:
    """A resourceVersion of an object being written; anything but a number is the client's grave mistake (500)."""
    if not (text.isascii() and text.isdigit()):
        raise errors.ApiError(500, "", f'strconv.ParseUint: parsing {field.go_quote(text)}: invalid syntax')
    return int(text)


def _is_version(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0


def _forget_version(meta: Object, dry_run: bool) -> None:
    """An update that creates may name any version: there is none to compare it with. Only a rehearsal shows it again."""
    if parse_version(meta.get("resourceVersion") or "0") and not dry_run:
        del meta["resourceVersion"]


def _uid_mismatch(res: Resource, key: str, name: str, given: str, actual: str) -> errors.ApiError:
    return errors.conflict(
        res.gr, name,
        f"StorageError: invalid object, Code: 4, Key: /registry/{registry_path(res, key)}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {actual}",
    )


def registry_path(res: Resource, key: str) -> str:
    """The key as Kubernetes' own store would write it, for error texts."""
    rest = key.split("/", 1)[1]
    return f"{res.kind.group}/{res.kind.plural}/{rest}" if res.custom else f"{res.kind.plural}/{rest}"
