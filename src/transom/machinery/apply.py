"""Server-side apply: a manager states the fields it wants, the server merges them and keeps account.

A field of somebody else that would get another value is a conflict, unless forced. A field the manager applied before
and leaves out now goes, unless somebody else owns it too. `kubectl` may take over what it owned by the annotation of
client-side apply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn

import orjson

from transom.machinery import schema
from transom.machinery.errors import ApiError, apply_conflict, bad_request
from transom.machinery.field import go_quote
from transom.machinery.fieldset import (
    FieldSet,
    InvalidFields,
    Path,
    difference,
    has,
    intersection,
    of_paths,
    path_text,
    paths,
    union,
)
from transom.machinery.gojson import marshal
from transom.machinery.kinds import GVK
from transom.machinery.managedfields import (
    STRIPPED,
    Convert,
    Identity,
    Managed,
    Object,
    Owned,
    Type,
    changes,
    decode,
    delta_in,
    encode,
    fresh,
    identify,
    in_version,
    read,
    reconcile_all,
    update,
    withdraw,
)
from transom.machinery.normalise import TypeMismatch
from transom.machinery.objects import with_metadata
from transom.machinery.typed import Node, Unmanageable, node_of
from transom.machinery.typedvalue import field_set, merge, remove, validate, with_named_parents
from transom.machinery.unstructured import conversion_error

BEFORE_FIRST_APPLY = "before-first-apply"
KUBECTL = "kubectl"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MAX_ANNOTATION_BYTES = 256 * 1024

_STRIPPED = of_paths([("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{k}") for k in STRIPPED)])

Normalise = Callable[[Object], Object]


class Conflict(NamedTuple):
    who: Identity
    path: Path


class _Conflicts(Exception):
    def __init__(self, conflicts: list[Conflict]) -> None:
        super().__init__()
        self.conflicts = conflicts


class _Result(NamedTuple):
    obj: Object
    managed: Managed


class _Request(NamedTuple):
    type: Type
    node: Node
    manager: str
    api_version: str
    now: str
    convert: Convert | None
    kind: str


def parse_config(raw: bytes) -> Object:
    """The body of an apply request, YAML or JSON."""
    from transom.machinery import goyaml

    try:
        config = goyaml.load(raw)
    except goyaml.YamlError as e:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {e}") from None
    if config is None:
        return {}
    if not isinstance(config, dict):
        kind = {list: "array", str: "string", bool: "bool"}.get(type(config), "number")
        why = f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding YAML: error unmarshaling JSON: {why}")
    return config


def server_side_apply(
    live: Object | None,
    patch: Object,
    type: Type,
    manager: str,
    api_version: str,
    force: bool,
    now: str,
    convert: Convert | None = None,
    *,
    normalise: Normalise | None = None,
    kind: str = "",
) -> Object:
    """The object after `manager` applied `patch`, managedFields included; all in the request's version.

    `normalise` makes an object of the merged fields (decoding, defaults); it is not called when nothing changed. `kind`
    is the resource's, for custom ones.
    """
    entries = ((live.get("metadata") or {}).get("managedFields") if live else None) or []
    try:
        managed = read(entries) if not isinstance(type, Node) else decode(entries)
    except InvalidFields as e:
        _fail(f"failed to decode managed fields: failed to convert managed fields from API: {e}")
    request = _Request(type, node_of(type), manager, api_version, now, convert, kind)
    current = with_metadata(live, managedFields=None) if live is not None else fresh(type)
    _check(patch, request)
    if not managed and live is not None:
        try:
            update(managed, fresh(type), current, type, BEFORE_FIRST_APPLY, api_version, now)
        except Unmanageable as e:
            _fail(f"failed to create manager for existing fields: failed to convert new object to smd typed: {e}")
    try:
        result = _apply_or_take_over(current, patch, managed, request, force)
    except TypeMismatch as e:  # on the way to the version that another manager speaks
        _unconvertible(patch, type, str(e))
    obj = result.obj
    if obj is not current or live is None:
        obj = _completed(obj, type, normalise)
    obj = _sync_last_applied(obj, patch, manager)
    return with_metadata(obj, managedFields=encode(result.managed) or None)


def _completed(obj: Object, type: Type, normalise: Normalise | None) -> Object:
    if normalise is None:
        return obj
    try:
        return normalise(obj)
    except ApiError as e:
        if isinstance(type, Node):
            raise
        _unconvertible(obj, type, e.message)


def _unconvertible(obj: Object, type: Type, why: str) -> NoReturn:
    kind = "{}/{}, Kind={}".format(*_group_version(obj["apiVersion"]), obj["kind"])
    found = "" if isinstance(type, Node) else conversion_error(obj, type)
    _fail("failed to convert new object to proper version: "
          f"unable to convert unstructured object to {kind}: {found or why}")


def _group_version(api_version: str) -> tuple[str, str]:
    group, _, version = api_version.rpartition("/")
    return group, version


def _fail(message: str) -> NoReturn:
    raise ApiError(500, "", message)


def _check(patch: Object, request: _Request) -> None:
    version = patch.get("apiVersion")
    version = version if isinstance(version, str) and version.count("/") <= 1 else ""
    if version != request.api_version:
        raise bad_request(
            "Incorrect version specified in apply patch. "
            f"Specified patch version: {version}, expected: {request.api_version}"
        )
    meta = patch.get("metadata")
    if isinstance(meta, dict) and isinstance(meta.get("managedFields"), list):
        raise bad_request("metadata.managedFields must be nil")
    problem = _unknown_kind(patch, request) or validate(patch, request.node)
    if problem:
        _fail(f"failed to create typed patch object: {problem}")


def _unknown_kind(patch: Object, request: _Request) -> str:
    """What is wrong with the kind: one that is not the resource's has another type, or none."""
    group, version = _group_version(request.api_version)
    kind = patch.get("kind")
    kind = kind if isinstance(kind, str) else ""
    missing = f"no corresponding type for {group}/{version}, Kind={kind}"
    if isinstance(request.type, Node):
        return missing if request.kind and kind != request.kind else ""
    other = schema.lookup(GVK(group, version, kind))
    if other is None:
        return missing
    if other.id != request.type.id:
        _fail("failed to merge config: expected objects of the same type, but got "
              f"{request.type.name} and {other.name}")
    return ""


def _apply_or_take_over(live: Object, patch: Object, managed: Managed, request: _Request, force: bool) -> _Result:
    """Apply; where kubectl meets conflicts over fields that its client-side annotation claims, it takes them."""
    try:
        return _apply(live, patch, dict(managed), request, force)
    except _Conflicts as e:
        conflicts = e.conflicts
    except Unmanageable as e:
        _fail(f"failed to create typed live object: {e}")
    if request.manager == KUBECTL:
        allowed = _claimed_by_annotation(live, request)
        if allowed is not None:
            conflicts = [c for c in conflicts if not has(allowed, c.path)]
            if not conflicts:
                return _apply(live, patch, dict(managed), request, True)
    raise _conflict_error(conflicts)


def _apply(live: Object, patch: Object, managed: Managed, request: _Request, force: bool) -> _Result:
    node, api_version = request.node, request.api_version
    before = dict(managed)
    problem = validate(live, node)
    if problem:
        raise Unmanageable(problem)
    reconcile_all(managed, live, request.type, api_version, request.convert)
    me = identify(request.manager, "Apply", api_version)
    last = managed.get(me)
    merged = merge(live, patch, node)
    managed[me] = Owned(field_set(patch, node), api_version, last.time if last else None, None)
    if last is not None and last.fields:
        merged = _prune(merged, managed, last, request)
    versions = {api_version: changes(live, merged, node)}
    conflicts = _conflicts(managed, versions, live, merged, request, me)
    if conflicts and not force:
        raise _Conflicts(conflicts)
    withdraw(managed, versions, live, merged, request.type, request.convert, me)
    same = not any(versions[api_version]) and merged == live
    mine = difference(managed[me].fields, _STRIPPED)
    if mine:
        managed[me] = managed[me]._replace(fields=mine)
    else:
        del managed[me]
    if (not same or not _same_owners(managed, before)) and me in managed:
        managed[me] = managed[me]._replace(time=request.now)
    return _Result(live if same else merged, managed)


def _same_owners(a: Managed, b: Managed) -> bool:
    return a.keys() == b.keys() and all(
        o.api_version == b[who].api_version and o.fields == b[who].fields for who, o in a.items())


def _conflicts(
    managed: Managed, versions: dict[str, tuple[FieldSet, FieldSet]], live: Object, merged: Object, request: _Request,
    me: Identity,
) -> list[Conflict]:
    out: list[Conflict] = []
    for who in sorted(managed, key=_identity_text):
        owned = managed[who]
        if who == me:
            continue
        delta = delta_in(owned.api_version, versions, live, merged, request.type, request.convert)
        if delta is not None:
            out += [Conflict(who, path) for path in paths(intersection(owned.fields, delta[0]))]
    return out


def _identity_text(who: Identity) -> str:
    text = {"manager": who.manager, "operation": who.operation, "apiVersion": who.api_version}
    return orjson.dumps({k: v for k, v in text.items() if v}).decode()


def _conflict_error(conflicts: list[Conflict]) -> ApiError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_print(c.who)}", "field": path_text(c.path)}
        for c in conflicts
    ]
    if len(conflicts) == 1:
        only = conflicts[0]
        return apply_conflict(
            causes, f"Apply failed with 1 conflict: conflict with {_print(only.who)}: {path_text(only.path)}"
        )
    lines: list[str] = []
    for who in dict.fromkeys(c.who for c in conflicts):
        lines.append(f"conflicts with {_print(who)}:")
        lines += [f"- {path_text(c.path)}" for c in conflicts if c.who == who]
    return apply_conflict(causes, f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines))


def _print(who: Identity) -> str:
    name = go_quote(who.manager)
    return f"{name} using {who.api_version}" if who.operation == "Update" else name


def _prune(merged: Object, managed: Managed, last: Owned, request: _Request) -> Object:
    """Removes what the manager applied last time, does not apply now, and nobody else owns."""
    place = in_version(merged, request.type, last.api_version, request.convert)
    if place is None:
        return merged
    full, node = place
    pruned = remove(full, with_named_parents(last.fields, node), node) or {}
    pruned = _add_back_owned(full, pruned, managed, request)
    pruned_place = in_version(pruned, request.type, last.api_version, request.convert)
    if pruned_place is None:
        return merged
    # What is gone now must have been the manager's own.
    gone = difference(_members(full, node), _members(pruned_place[0], node))
    pruned = remove(full, intersection(gone, with_named_parents(last.fields, node)), node) or {}
    back = in_version(pruned, request.type, request.api_version, request.convert)
    return merged if back is None else back[0]


def _members(obj: Object, node: Node) -> FieldSet:
    return with_named_parents(field_set(obj, node), node)


def _add_back_owned(full: Object, pruned: Object, managed: Managed, request: _Request) -> Object:
    """The pruned object with everything back that anybody claims, the manager's own new configuration included."""
    claims: dict[str, FieldSet] = {}
    for owned in managed.values():
        claims[owned.api_version] = union(claims.get(owned.api_version, {}), owned.fields)
    for api_version, claimed in claims.items():
        whole = in_version(full, request.type, api_version, request.convert)
        rest = in_version(pruned, request.type, api_version, request.convert)
        if whole is None or rest is None:
            continue
        full, node = whole
        keep = union(_members(rest[0], node), with_named_parents(claimed, node))
        pruned = remove(full, difference(_members(full, node), keep), node) or {}
    return pruned


def _claimed_by_annotation(live: Object, request: _Request) -> FieldSet | None:
    """The fields of the client-side annotation that still have the value it says; None without a usable one."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    if not text:
        return None
    try:
        applied = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(applied, dict) or applied.get("apiVersion") != request.api_version or not applied.get("kind"):
        return None
    if validate(applied, request.node):
        return None
    changed, removed = changes(applied, live, request.node)
    return difference(difference(field_set(applied, request.node), changed), removed)


def _sync_last_applied(obj: Object, patch: Object, manager: str) -> Object:
    """Keeps the annotation of client-side apply up to date, so that users can go back to it."""
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    if manager != KUBECTL or not annotations.get(LAST_APPLIED):
        return obj
    applied = patch
    given = (patch.get("metadata") or {}).get("annotations")
    if given is not None:
        given = {k: v for k, v in given.items() if k != LAST_APPLIED}
        applied = with_metadata(patch, annotations=given)
    annotations = {**annotations, LAST_APPLIED: marshal(applied).decode() + "\n"}
    if sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > MAX_ANNOTATION_BYTES:
        del annotations[LAST_APPLIED]
    return with_metadata(obj, annotations=annotations)
