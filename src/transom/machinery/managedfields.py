"""Who owns which field: metadata.managedFields, kept up on every write.

An entry says which fields a manager set through Apply or Update, in which version. A plain write takes the fields it
changed away from everybody and gives them to its manager. The entries of an object form a `Managed` map by identity:
the version is part of the identity of an updater, not of an applier. Knows no requests: managers come by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from transom.machinery import schema
from transom.machinery.fieldset import MEMBER, FieldSet, InvalidFields, difference, from_fields_v1, union
from transom.machinery.kinds import GVK
from transom.machinery.typed import GRANULAR, Node, Unmanageable, node_of, zero
from transom.machinery.typedvalue import compare, everything, reconcile

Object = dict[str, Any]
Entry = dict[str, Any]
Type = schema.Type | Node
# (object, apiVersion) -> the object in that version, None when the version is not served any more.
Convert = Callable[[Object, str], Object | None]

_NO_FIELDS: dict[str, Node] = {}
MAX_UPDATE_MANAGERS = 10
ANCIENT = "ancient-changes"
UNKNOWN = "unknown"
MAX_MANAGER_BYTES = 128

# Fields nobody owns: they belong to the system, or name the object.
STRIPPED = frozenset({"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation",
                      "managedFields", "resourceVersion"})


class Identity(NamedTuple):
    manager: str
    operation: str
    api_version: str  # "" for appliers


class Owned(NamedTuple):
    fields: FieldSet
    api_version: str
    time: str | None
    entry: Entry | None  # the entry this was read from, as long as nothing changed


Managed = dict[Identity, Owned]


def manager_from_user_agent(user_agent: str) -> str:
    """The manager of a client that names none: its user agent up to the first slash, printable and not too long."""
    name = "".join(c for c in user_agent.partition("/")[0] if c.isprintable())
    if len(name.encode()) > MAX_MANAGER_BYTES:
        name = name.encode()[:MAX_MANAGER_BYTES].decode(errors="ignore")
    return name


def identify(manager: str, operation: str, api_version: str) -> Identity:
    return Identity(manager or UNKNOWN, operation, "" if operation == "Apply" else api_version)


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
) -> list[Entry]:
    """The managedFields of `new` after a create or update by `manager`; both objects in the request's version.

    `ignore_request` is for sub-resources, through which managedFields cannot be set. An object whose fields cannot be
    told apart (repeated list keys) has no managedFields.
    """
    meta = new.get("metadata") or {}
    given = None if ignore_request else meta.get("managedFields")
    kept: list[Entry] = ((live.get("metadata") or {}).get("managedFields") if live else None) or []
    # Entries that we wrote ourselves need no look at their form, unless the type may have changed since.
    trusted = not isinstance(type, Node)
    if given is not None and given != kept:
        if is_reset(given):
            return [] if live else _first(new, type, manager, api_version, now)
        managed = _decode_or_none(given)
        if managed:
            return _update(live, new, type, manager, api_version, now, convert, managed, False, None)
    if not kept:
        return [] if live else _first(new, type, manager, api_version, now)
    return _update(live, new, type, manager, api_version, now, convert, read(kept), trusted, kept)


def _first(new: Object, type: Type, manager: str, api_version: str, now: str) -> list[Entry]:
    """The entries of a new object, made straight from its fields."""
    try:
        changed, _ = changes(fresh(type), new, node_of(type))
    except Unmanageable:
        return []
    return [_entry(identify(manager, "Update", api_version), changed, api_version, now)] if changed else []


def _update(
    live: Object | None, new: Object, type: Type, manager: str, api_version: str, now: str, convert: Convert | None,
    managed: Managed, trusted: bool, kept: list[Entry] | None,
) -> list[Entry]:
    old = {"apiVersion": api_version, "kind": new.get("kind"), **fresh(type)} if live is None else live
    try:
        changed = update(managed, old, new, type, manager, api_version, now, convert, trusted)
    except Unmanageable:
        return []
    if not changed and kept is not None:
        return kept
    cap(managed)
    return encode(managed)


def update(
    managed: Managed, old: Object, new: Object, type: Type, manager: str, api_version: str, now: str,
    convert: Convert | None = None, trusted: bool = False,
) -> bool:
    """Gives the fields that differ between the objects to the manager, in place; says whether anything changed."""
    node = node_of(type)
    touched = not trusted and reconcile_all(managed, old, type, api_version, convert)
    me = identify(manager, "Update", api_version)
    former = managed.get(me)
    taken, gone = changes(old, new, node)
    if taken or gone or any(o.api_version != api_version for o in managed.values()):
        touched |= withdraw(managed, {api_version: (taken, gone)}, old, new, type, convert)
    mine = difference(taken, gone) if gone else taken
    if mine:
        before = managed.get(me)
        fields = union(mine, before.fields) if before else mine
        time = former.time if former is not None and fields == former.fields else now
        managed[me] = Owned(fields, api_version, time, None)
    return bool(mine) or touched


def withdraw(
    managed: Managed, versions: dict[str, tuple[FieldSet, FieldSet]], old: Object, new: Object, type: Type,
    convert: Convert | None, but: Identity | None = None,
) -> bool:
    """Takes changed and removed fields from every manager (`but` one); `versions` has what changed, by version."""
    touched = False
    for who, owned in list(managed.items()):
        if who == but:
            continue
        delta = delta_in(owned.api_version, versions, old, new, type, convert)
        if delta is None:
            del managed[who]
            touched = True
            continue
        left = difference(difference(owned.fields, delta[0]), delta[1])
        if not left:
            del managed[who]
            touched = True
        elif left is not owned.fields:
            managed[who] = Owned(left, owned.api_version, owned.time, None)
            touched = True
    return touched


def delta_in(
    api_version: str, versions: dict[str, tuple[FieldSet, FieldSet]], old: Object, new: Object, type: Type,
    convert: Convert | None,
) -> tuple[FieldSet, FieldSet] | None:
    """What changed between the objects, seen in another version; None when that version is gone."""
    delta = versions.get(api_version)
    if delta is None:
        before, after = in_version(old, type, api_version, convert), in_version(new, type, api_version, convert)
        if before is None or after is None:
            return None
        delta = versions[api_version] = changes(before[0], after[0], before[1])
    return delta


def in_version(obj: Object, type: Type, api_version: str, convert: Convert | None) -> tuple[Object, Node] | None:
    """An object and its type in another version, None when that is gone; without conversion, as it is."""
    if obj.get("apiVersion") != api_version:
        converted = convert(obj, api_version) if convert is not None else obj
        if converted is None:
            return None
        if converted is obj:
            return obj, node_of(type)
        obj = converted
    if isinstance(type, Node):
        return obj, type.siblings.get(api_version, type)
    group, _, version = api_version.rpartition("/")
    other = schema.lookup(GVK(group, version, str(obj.get("kind", ""))))
    return None if other is None else (obj, node_of(other))


def reconcile_all(managed: Managed, live: Object, type: Type, api_version: str, convert: Convert | None) -> bool:
    """Brings sets in line with types that changed since they were written; says whether one had to change."""
    touched = False
    for who, owned in list(managed.items()):
        place = (live, node_of(type)) if owned.api_version == api_version else in_version(
            live, type, owned.api_version, convert)
        if place is None:
            del managed[who]
            touched = True
            continue
        fields = reconcile(owned.fields, place[1])
        if not fields:
            del managed[who]
            touched = True
        elif fields is not owned.fields:
            managed[who] = owned._replace(fields=fields, entry=None)
            touched = True
    return touched


def fresh(type: Type) -> Object:
    """What a first write is compared with."""
    return {} if isinstance(type, Node) else zero(type.id)


def changes(old: Object, new: Object, node: Node) -> tuple[FieldSet, FieldSet]:
    """(fields added or modified, fields removed) between two objects, without those nobody owns."""
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
        elif key not in old:
            changed[child.fkey or "f:" + key] = MEMBER if child.leaf else everything(value, child)
            continue
        else:
            before = old[key]
            if before is value or before == value:
                continue
        now, gone = (MEMBER, None) if child.leaf else compare(before, value, child)
        name = child.fkey or "f:" + key
        if now is not None:
            changed[name] = now
        if gone is not None:
            removed[name] = gone
    for key, value in old.items():
        if key not in new and key != "apiVersion" and key != "kind":
            child = node.child(key)
            if child is not None:
                removed[child.fkey or "f:" + key] = everything(value, child)
    return changed, removed


def _owned_metadata(meta: Any) -> Object:
    return {k: v for k, v in meta.items() if k not in STRIPPED} if meta else {}


def is_reset(given: list[Entry]) -> bool:
    """An empty list, or one empty entry, asks to forget all owners."""
    return not given or (len(given) == 1 and not any(given[0].values()))


def read(entries: list[Entry]) -> Managed:
    """Entries that we wrote, as a map."""
    return {_identity(e): Owned(e.get("fieldsV1") or {}, e.get("apiVersion", ""), e.get("time"), e) for e in entries}


def _identity(entry: Entry) -> Identity:
    operation = entry.get("operation", "")
    return Identity(entry.get("manager", ""), operation, "" if operation == "Apply" else entry.get("apiVersion", ""))


def decode(entries: list[Entry]) -> Managed:
    """Entries from a client, as a map. InvalidFields says what is wrong with them."""
    for i, entry in enumerate(entries):
        kind = entry.get("fieldsType", "")
        if not kind:
            raise InvalidFields(f"missing fieldsType in managed fields entry {i}")
        if kind != "FieldsV1":
            raise InvalidFields(f'invalid fieldsType "{kind}" in managed fields entry {i}')
    managed = read(entries)
    return {who: owned._replace(fields=from_fields_v1(owned.fields), entry=None) for who, owned in managed.items()}


def _decode_or_none(entries: list[Entry]) -> Managed | None:
    """A client that sends nonsense is taken for one that does not know managedFields: the live ones stay."""
    try:
        return decode(entries)
    except InvalidFields:
        return None


def encode(managed: Managed) -> list[Entry]:
    """The entries of a map, in their order: appliers first, then by time."""
    entries = [o.entry or _entry(who, o.fields, o.api_version, o.time) for who, o in managed.items()]
    if len(entries) > 1:
        entries.sort(key=_order)
    return entries


def _entry(who: Identity, fields: FieldSet, api_version: str, time: str | None) -> Entry:
    entry: Entry = {"manager": who.manager, "operation": who.operation, "apiVersion": api_version}
    if time is not None:
        entry["time"] = time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = fields
    return entry


def _order(entry: Entry) -> tuple[str, str, str, str]:
    return entry["operation"], entry.get("time") or "", entry["manager"], entry.get("apiVersion", "")


def cap(managed: Managed) -> None:
    """Folds the oldest updaters of one version into one bucket as long as there are too many of them."""
    updaters = [who for who in managed if who.operation != "Apply"]
    excess = len(updaters) - MAX_UPDATE_MANAGERS
    if excess <= 0:
        return
    updaters.sort(key=lambda who: (managed[who].time or "", who))
    first_of: dict[str, Identity] = {}
    for who in updaters:
        if excess <= 0:
            break
        owned = managed[who]
        version = owned.api_version
        if version not in first_of:
            first_of[version] = who
            continue
        bucket = Identity(ANCIENT, "Update", version)
        if bucket not in managed:
            managed[bucket] = managed.pop(first_of[version])
        # The later of the two times stands: updaters come by age.
        fields = union(owned.fields, managed[bucket].fields)
        del managed[who]
        managed[bucket] = Owned(fields, version, owned.time, None)
        excess -= 1
