"""Field ownership: metadata.managedFields, updated on every write.

An entry lists the fields that a manager set through Apply or Update, in a version. A plain write
transfers the fields it changed from all managers to its manager. The entries of an object form a
`Managed` map by identity: the version is part of the identity of an updater, not of an applier.
Does not depend on requests: callers pass manager names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.kit.named_tuple import NamedTuple
from transom.machinery import schema
from transom.machinery.fieldset import (
    MEMBER,
    FieldSet,
    InvalidFields,
    from_fields_v1,
    in_order,
    set_difference,
    set_union,
)
from transom.machinery.kinds import GVK
from transom.machinery.typed import GRANULAR, TypeNode, Unmanageable, type_node_of, zero_value
from transom.machinery.typedvalue import all_fields, compare_typed_values, reconcile_field_set

Object = dict[str, Any]
Entry = dict[str, Any]
Type = schema.SchemaType | TypeNode
# (object, apiVersion) -> the object in that version, None if the version is no longer served.
Convert = Callable[[Object, str], Object | None]

_NO_FIELDS: dict[str, TypeNode] = {}
MAX_UPDATE_MANAGERS = 10
ANCIENT = "ancient-changes"
UNKNOWN = "unknown"
MAX_MANAGER_BYTES = 128

# Fields without an owner: they belong to the system, or identify the object.
STRIPPED = frozenset(
    {
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    }
)


class ManagerIdentity(NamedTuple):
    manager: str
    operation: str
    api_version: str  # "" for appliers
    subresource: str = ""


class WriteRules(NamedTuple):
    """How a write changes ownership: what releases after 1.20 added."""

    subresource: str = ""  # part of the manager's identity
    reset: frozenset[tuple[str, ...]] = frozenset()  # paths that the endpoint does not change
    always_timed: bool = False  # an update sets the time even if the manager's fields are the same
    applied_changes_timed: bool = False  # an apply sets the time only if the object changes


PLAIN_WRITE = WriteRules()


def without_paths(fields: FieldSet, paths: frozenset[tuple[str, ...]]) -> FieldSet:
    """The set without these paths and all below them."""
    for path in paths:
        fields = _without_path(fields, path)
    return fields


def _without_path(fields: FieldSet, path: tuple[str, ...]) -> FieldSet:
    name, *rest = path
    if name not in fields:
        return fields
    left = {key: value for key, value in fields.items() if key != name}
    if rest:
        inner = _without_path(fields[name], tuple(rest))
        if inner:
            left[name] = inner
    return left


class OwnedFields(NamedTuple):
    fields: FieldSet
    api_version: str
    time: str | None
    entry: Entry | None  # the original entry, as long as nothing changed


Managed = dict[ManagerIdentity, OwnedFields]


def manager_from_user_agent(user_agent: str) -> str:
    """The manager of a client that specifies none: its user agent up to the first slash, printable
    and truncated.
    """
    name = user_agent.partition("/")[0]
    if not name.isprintable():
        name = "".join(c for c in name if c.isprintable())
    if len(name.encode()) > MAX_MANAGER_BYTES:
        name = name.encode()[:MAX_MANAGER_BYTES].decode(errors="ignore")
    return name


def identify_manager(
    manager: str, operation: str, api_version: str, subresource: str = ""
) -> ManagerIdentity:
    version = "" if operation == "Apply" else api_version
    return ManagerIdentity(manager or UNKNOWN, operation, version, subresource)


def on_update(
    live: Object | None,
    new: Object,
    type: Type,
    manager: str,
    api_version: str,
    now: str,
    convert: Convert | None = None,
    *,
    ignore_request: bool = False,
    rules: WriteRules = PLAIN_WRITE,
) -> list[Entry]:
    """The managedFields of `new` after a create or update by `manager`; both objects in the
    request's version.

    `ignore_request` is for sub-resources, through which managedFields cannot be set. An object
    whose fields cannot be distinguished (repeated list keys) has no managedFields.
    """
    meta = new.get("metadata") or {}
    given = None if ignore_request else meta.get("managedFields")
    kept: list[Entry] = ((live.get("metadata") or {}).get("managedFields") if live else None) or []
    # Entries that we wrote need no format check, unless the type may have changed since.
    trusted = not isinstance(type, TypeNode)
    if given is not None and given != kept:
        if is_reset(given):
            return [] if live else on_create(new, type, manager, api_version, now, rules)
        managed = _decode_or_none(given)
        if managed:
            return _update(
                live, new, type, manager, api_version, now, convert, managed, False, None, rules
            )
    if not kept:
        return [] if live else on_create(new, type, manager, api_version, now, rules)
    return _update(
        live,
        new,
        type,
        manager,
        api_version,
        now,
        convert,
        read_managed_fields(kept),
        trusted,
        kept,
        rules,
    )


def on_create(
    new: Object, type: Type, manager: str, api_version: str, now: str, rules: WriteRules
) -> list[Entry]:
    """The managedFields of a new object that has none, built directly from its fields."""
    try:
        changed, _ = changed_fields(fresh_entry(type), new, type_node_of(type))
    except Unmanageable:
        return []
    if rules.reset:
        changed = without_paths(changed, rules.reset)
    who = identify_manager(manager, "Update", api_version, rules.subresource)
    return [_entry(who, changed, api_version, now)] if changed else []


def _update(
    live: Object | None,
    new: Object,
    type: Type,
    manager: str,
    api_version: str,
    now: str,
    convert: Convert | None,
    managed: Managed,
    trusted: bool,
    kept: list[Entry] | None,
    rules: WriteRules,
) -> list[Entry]:
    old = (
        {"apiVersion": api_version, "kind": new.get("kind"), **fresh_entry(type)}
        if live is None
        else live
    )
    try:
        changed = update_managed_fields(
            managed, old, new, type, manager, api_version, now, convert, trusted, rules
        )
    except Unmanageable:
        return []
    if not changed and kept is not None:
        return kept
    cap_managers(managed)
    return encode_managed_fields(managed)


def update_managed_fields(
    managed: Managed,
    old: Object,
    new: Object,
    type: Type,
    manager: str,
    api_version: str,
    now: str,
    convert: Convert | None = None,
    trusted: bool = False,
    rules: WriteRules = PLAIN_WRITE,
) -> bool:
    """Gives the fields that differ between the objects to the manager, in place; returns whether
    anything changed.
    """
    node = type_node_of(type)
    touched = not trusted and reconcile_all(managed, old, type, api_version, convert)
    me = identify_manager(manager, "Update", api_version, rules.subresource)
    former = managed.get(me)
    taken, gone = changed_fields(old, new, node)
    if rules.reset:
        taken, gone = without_paths(taken, rules.reset), without_paths(gone, rules.reset)
    mine = set_difference(taken, gone) if gone else taken
    if taken or gone or any(o.api_version != api_version for o in managed.values()):
        # From the manager itself only what is gone: it gets the rest back
        touched |= withdraw_fields(
            managed, {api_version: (taken, gone)}, old, new, type, convert, me if mine else None
        )
    if mine:
        fields = set_union(set_difference(former.fields, gone), mine) if former else mine
        same = former is not None and fields == former.fields and not rules.always_timed
        time = former.time if former is not None and same else now
        managed[me] = OwnedFields(fields, api_version, time, None)
    return bool(mine) or touched


def withdraw_fields(
    managed: Managed,
    versions: dict[str, tuple[FieldSet, FieldSet]],
    old: Object,
    new: Object,
    type: Type,
    convert: Convert | None,
    but: ManagerIdentity | None = None,
) -> bool:
    """Removes changed and removed fields from every manager (except `but`); `versions` has the
    changes by version.
    """
    touched = False
    for who, owned in list(managed.items()):
        if who == but:
            continue
        delta = delta_in_version(owned.api_version, versions, old, new, type, convert)
        if delta is None:
            del managed[who]
            touched = True
            continue
        left = set_difference(set_difference(owned.fields, delta[0]), delta[1])
        if not left:
            del managed[who]
            touched = True
        elif left is not owned.fields:
            managed[who] = OwnedFields(left, owned.api_version, owned.time, None)
            touched = True
    return touched


def delta_in_version(
    api_version: str,
    versions: dict[str, tuple[FieldSet, FieldSet]],
    old: Object,
    new: Object,
    type: Type,
    convert: Convert | None,
) -> tuple[FieldSet, FieldSet] | None:
    """The changes between the objects in another version; None if that version is gone."""
    delta = versions.get(api_version)
    if delta is None:
        before, after = (
            fields_in_version(old, type, api_version, convert),
            fields_in_version(new, type, api_version, convert),
        )
        if before is None or after is None:
            return None
        delta = versions[api_version] = changed_fields(before[0], after[0], before[1])
    return delta


def fields_in_version(
    obj: Object, type: Type, api_version: str, convert: Convert | None
) -> tuple[Object, TypeNode] | None:
    """An object and its type in another version, None if that is gone; unchanged without
    conversion.
    """
    if obj.get("apiVersion") != api_version:
        converted = convert(obj, api_version) if convert is not None else obj
        if converted is None:
            return None
        if converted is obj:
            return obj, type_node_of(type)
        obj = converted
    if isinstance(type, TypeNode):
        return obj, type.siblings.get(api_version, type)
    group, _, version = api_version.rpartition("/")
    other = type.table.lookup(GVK(group, version, str(obj.get("kind", ""))))
    return None if other is None else (obj, type_node_of(other))


def reconcile_all(
    managed: Managed, live: Object, type: Type, api_version: str, convert: Convert | None
) -> bool:
    """Adapts sets to types that changed since they were written; returns whether any of them
    changed.
    """
    touched = False
    for who, owned in list(managed.items()):
        place = (
            (live, type_node_of(type))
            if owned.api_version == api_version
            else fields_in_version(live, type, owned.api_version, convert)
        )
        if place is None:
            del managed[who]
            touched = True
            continue
        fields = reconcile_field_set(owned.fields, place[1])
        if not fields:
            del managed[who]
            touched = True
        elif fields is not owned.fields:
            managed[who] = owned._replace(fields=fields, entry=None)
            touched = True
    return touched


def fresh_entry(type: Type) -> Object:
    """The base for comparing a first write."""
    return {} if isinstance(type, TypeNode) else zero_value(type)


def changed_fields(old: Object, new: Object, node: TypeNode) -> tuple[FieldSet, FieldSet]:
    """(fields added or modified, fields removed) between two objects, without those that have
    no owner.
    """
    changed: FieldSet = {}
    removed: FieldSet = {}
    fields = node.fields or _NO_FIELDS
    for key, value in new.items():
        if key == "apiVersion" or key == "kind":
            continue
        child = fields.get(key) or node.additional
        if child is None:
            raise Unmanageable(f".{key}: field not declared in schema")
        if key == "metadata" and child.map == GRANULAR:
            before, value = _owned_metadata(old.get(key)), _owned_metadata(value)
            if before == value or (not before and not value):
                continue
        elif key in old:
            before = old[key]
            if before is value or before == value:
                continue
        else:
            changed[child.fkey or "f:" + key] = MEMBER if child.leaf else all_fields(value, child)
            continue
        now, gone = (MEMBER, None) if child.leaf else compare_typed_values(before, value, child)
        name = child.fkey or "f:" + key
        if now is not None:
            changed[name] = now
        if gone is not None:
            removed[name] = gone
    if not old.keys() <= new.keys():
        for key, value in old.items():
            child = None if key in new or key in ("apiVersion", "kind") else node.child(key)
            if child is not None:
                removed[child.fkey or "f:" + key] = all_fields(value, child)
    return changed, removed


def _owned_metadata(meta: Any) -> Object:
    return {k: v for k, v in meta.items() if k not in STRIPPED} if meta else {}


def is_reset(given: list[Entry]) -> bool:
    """An empty list, or one empty entry, resets all owners."""
    return not given or (len(given) == 1 and not any(given[0].values()))


def read_managed_fields(entries: list[Entry]) -> Managed:
    """Entries that we wrote, as a map."""
    return {
        _identity(e): OwnedFields(
            e.get("fieldsV1") or {}, e.get("apiVersion", ""), e.get("time"), e
        )
        for e in entries
    }


def _identity(entry: Entry) -> ManagerIdentity:
    operation = entry.get("operation", "")
    return ManagerIdentity(
        entry.get("manager", ""),
        operation,
        "" if operation == "Apply" else entry.get("apiVersion", ""),
        entry.get("subresource", ""),
    )


def decode_managed_fields(entries: list[Entry]) -> Managed:
    """Entries from a client, as a map. Raises InvalidFields."""
    for i, entry in enumerate(entries):
        kind = entry.get("fieldsType", "")
        if not kind:
            raise InvalidFields(f"missing fieldsType in managed fields entry {i}")
        if kind != "FieldsV1":
            raise InvalidFields(f'invalid fieldsType "{kind}" in managed fields entry {i}')
    managed = read_managed_fields(entries)
    return {
        who: owned._replace(fields=from_fields_v1(owned.fields), entry=None)
        for who, owned in managed.items()
    }


def _decode_or_none(entries: list[Entry]) -> Managed | None:
    """Ignores invalid entries, as if the client did not know managedFields: the live ones stay."""
    try:
        return decode_managed_fields(entries)
    except InvalidFields:
        return None


def encode_managed_fields(managed: Managed) -> list[Entry]:
    """The entries of a map, in their order: appliers first, then by time."""
    entries = [
        o.entry or _entry(who, o.fields, o.api_version, o.time) for who, o in managed.items()
    ]
    if len(entries) > 1:
        entries.sort(key=_order)
    return entries


def _entry(who: ManagerIdentity, fields: FieldSet, api_version: str, time: str | None) -> Entry:
    entry: Entry = {"manager": who.manager, "operation": who.operation, "apiVersion": api_version}
    if time is not None:
        entry["time"] = time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = in_order(fields)
    if who.subresource:
        entry["subresource"] = who.subresource
    return entry


def _order(entry: Entry) -> tuple[str, str, str, str, str]:
    return (
        entry["operation"],
        entry.get("time") or "",
        entry["manager"],
        entry.get("apiVersion", ""),
        entry.get("subresource", ""),
    )


def cap_managers(managed: Managed) -> None:
    """Merges the oldest updaters of one version into one entry while there are too many of them."""
    updaters = [who for who in managed if who.operation != "Apply"]
    excess = len(updaters) - MAX_UPDATE_MANAGERS
    if excess <= 0:
        return
    updaters.sort(key=lambda who: (managed[who].time or "", who))
    first_of: dict[str, ManagerIdentity] = {}
    folded: dict[ManagerIdentity, list[FieldSet]] = {}
    for who in updaters:
        if excess <= 0:
            break
        owned = managed[who]
        version = owned.api_version
        if version not in first_of:
            first_of[version] = who
            continue
        bucket = ManagerIdentity(ANCIENT, "Update", version)
        if bucket not in managed:
            managed[bucket] = managed.pop(first_of[version])
        # The later of the two times is kept: updaters are sorted by age.
        sets = folded.setdefault(bucket, [managed[bucket].fields])
        sets.append(owned.fields)
        del managed[who]
        managed[bucket] = OwnedFields(sets[0], version, owned.time, None)
        excess -= 1
    for bucket, sets in folded.items():
        managed[bucket] = managed[bucket]._replace(fields=_union_of(sets))


def _union_of(sets: list[FieldSet]) -> FieldSet:
    """The union of all sets, merged in pairs of similar size: one after another would take
    quadratic time.
    """
    while len(sets) > 1:
        pairs = [set_union(b, a) for a, b in zip(sets[::2], sets[1::2], strict=False)]
        sets = [*pairs, sets[-1]] if len(sets) % 2 else pairs
    return sets[0]
