"""Server-side apply: a manager applies the fields it wants, the server merges them and tracks
ownership.

Changing the value of another manager's field is a conflict, unless forced. A field that the manager
applied before and omits now is removed, unless another manager owns it too. `kubectl` may take over
the fields it owned through the annotation of client-side apply.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import orjson

from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.machinery.errors import ApiError, apply_conflict, bad_request
from transom.machinery.fieldset import (
    FieldSet,
    InvalidFields,
    Path,
    field_path_text,
    has_path,
    set_difference,
    set_intersection,
    set_of_paths,
    set_paths,
    set_union,
)
from transom.machinery.gojson import marshal
from transom.machinery.kinds import GVK
from transom.machinery.managedfields import (
    PLAIN_WRITE,
    STRIPPED,
    Convert,
    Managed,
    ManagerIdentity,
    Object,
    OwnedFields,
    Type,
    WriteRules,
    changed_fields,
    decode_managed_fields,
    delta_in_version,
    encode_managed_fields,
    fields_in_version,
    fresh_entry,
    identify_manager,
    read_managed_fields,
    reconcile_all,
    update_managed_fields,
    withdraw_fields,
    without_paths,
)
from transom.machinery.normalise import TypeMismatch
from transom.machinery.objects import with_metadata
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.typed import TypeNode, Unmanageable, type_node_of
from transom.machinery.typedvalue import (
    field_set_of,
    merge_typed_values,
    remove_fields,
    validate_typed_value,
    with_named_parents,
)
from transom.machinery.unstructured import unstructured_conversion_error

if TYPE_CHECKING:
    from transom.machinery import goyaml
else:
    goyaml = lazy_import("transom.machinery.goyaml")

BEFORE_FIRST_APPLY = "before-first-apply"
KUBECTL = "kubectl"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MAX_ANNOTATION_BYTES = 256 * 1024

_STRIPPED = set_of_paths(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{k}") for k in STRIPPED)]
)

Normalise = Callable[[Object], Object]


class Conflict(NamedTuple):
    who: ManagerIdentity
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
    node: TypeNode
    manager: str
    api_version: str
    now: str
    convert: Convert | None
    kind: str
    release: Release = DEFAULT
    rules: WriteRules = PLAIN_WRITE


def parse_json_config(raw: bytes) -> Object | None:
    """The body of an apply request that is JSON, parsed as JSON; None if YAML would parse it
    differently.
    """
    config = goyaml.load_json(raw)
    return config if isinstance(config, dict) else None


def parse_config(raw: bytes) -> Object:
    """The body of an apply request, YAML or JSON."""
    try:
        config = goyaml.load_yaml(raw)
    except goyaml.YamlError as e:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {e}") from None
    if config is None:
        return {}
    if not isinstance(config, dict):
        kind = {list: "array", str: "string", bool: "bool"}.get(type(config), "number")
        why = f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        raise bad_request(
            f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}"
        )
    return config


def has_duplicate_keys(raw: bytes) -> bool:
    """Whether an object of a JSON text has a key twice."""
    found = False

    def note(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or len({key for key, _ in pairs}) < len(pairs)

    json.loads(raw, object_pairs_hook=note)
    return found


def find_duplicate_keys(raw: bytes) -> list[str]:
    """Errors about the keys that occur twice in a map of a YAML text."""
    return goyaml.duplicate_keys(raw)


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
    release: Release = DEFAULT,
    rules: WriteRules = PLAIN_WRITE,
) -> Object:
    """The object after `manager` applied `patch`, managedFields included; all in the request's
    version.

    `normalise` turns the merged fields into an object (decoding, defaults); it is not called if
    nothing changed. `kind` is the resource's, for custom ones.
    """
    entries = ((live.get("metadata") or {}).get("managedFields") if live else None) or []
    try:
        managed = (
            read_managed_fields(entries)
            if not isinstance(type, TypeNode)
            else decode_managed_fields(entries)
        )
    except InvalidFields as e:
        _fail(f"failed to decode managed fields: failed to convert managed fields from API: {e}")
    node = type_node_of(type)
    request = _Request(type, node, manager, api_version, now, convert, kind, release, rules)
    current = with_metadata(live, managedFields=None) if live is not None else fresh_entry(type)
    _check(patch, request)
    if not managed and live is not None:
        try:
            update_managed_fields(
                managed,
                fresh_entry(type),
                current,
                type,
                BEFORE_FIRST_APPLY,
                api_version,
                now,
                rules=rules,
            )
        except Unmanageable as e:
            _fail(
                "failed to create manager for existing fields: failed to convert new object "
                f"to smd typed: {e}"
            )
    try:
        result = _apply_or_take_over(current, patch, managed, request, force)
    except TypeMismatch as e:  # in the conversion to the version of another manager
        _unconvertible(patch, type, str(e))
    obj = result.obj
    if obj is not current or live is None:
        obj = _completed(obj, type, normalise)
    obj = _sync_last_applied(obj, patch, manager)
    return with_metadata(obj, managedFields=encode_managed_fields(result.managed) or None)


def _completed(obj: Object, type: Type, normalise: Normalise | None) -> Object:
    if normalise is None:
        return obj
    try:
        return normalise(obj)
    except ApiError as e:
        if isinstance(type, TypeNode):
            raise
        _unconvertible(obj, type, e.message)


def _unconvertible(obj: Object, type: Type, why: str) -> NoReturn:
    kind = "{}/{}, Kind={}".format(*_group_version(obj["apiVersion"]), obj["kind"])
    found = "" if isinstance(type, TypeNode) else unstructured_conversion_error(obj, type)
    _fail(
        "failed to convert new object to proper version: "
        f"unable to convert unstructured object to {kind}: {found or why}"
    )


def _group_version(api_version: str) -> tuple[str, str]:
    group, _, version = api_version.rpartition("/")
    return group, version


def _fail(message: str) -> NoReturn:
    raise ApiError(500, "", message)


def _check(patch: Object, request: _Request) -> None:
    version = patch.get("apiVersion")
    version = version if isinstance(version, str) and version.count("/") <= 1 else ""
    named = has_behaviour(request.release, "ApplyChecksType")
    wanted = request.kind or request.type.name.rpartition(".")[2]
    if named and (version != request.api_version or patch.get("kind") != wanted):
        group, _, number = version.rpartition("/")
        raise bad_request(f"invalid object type: {group}/{number}, Kind={patch.get('kind', '')}")
    if version != request.api_version:
        raise bad_request(
            "Incorrect version specified in apply patch. "
            f"Specified patch version: {version}, expected: {request.api_version}"
        )
    meta = patch.get("metadata")
    if isinstance(meta, dict) and isinstance(meta.get("managedFields"), list):
        raise bad_request("metadata.managedFields must be nil")
    problem = _unknown_kind(patch, request) or validate_typed_value(patch, request.node)
    if problem:
        _fail(f"failed to create typed patch object{_named(patch, request)}: {problem}")


def _named(patch: Object, request: _Request) -> str:
    """The object as errors of later releases name it: ` (namespace/name; group/version, Kind=K)`."""
    if not has_behaviour(request.release, "ApplyErrorsNameObject"):
        return ""
    meta = patch.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    namespace, name = (
        value if isinstance(value := meta.get(key), str) else "" for key in ("namespace", "name")
    )
    group, version = _group_version(request.api_version)
    return f" ({namespace}/{name}; {group}/{version}, Kind={patch.get('kind', '')})"


def _unknown_kind(patch: Object, request: _Request) -> str:
    """An error for a kind that is not the resource's; such a kind has another type, or none."""
    group, version = _group_version(request.api_version)
    kind = patch.get("kind")
    kind = kind if isinstance(kind, str) else ""
    missing = f"no corresponding type for {group}/{version}, Kind={kind}"
    if isinstance(request.type, TypeNode):
        return missing if request.kind and kind != request.kind else ""
    other = request.type.table.lookup(GVK(group, version, kind))
    if other is None:
        return missing
    if other.id != request.type.id:
        _fail(
            "failed to merge config: expected objects of the same type, but got "
            f"{request.type.name} and {other.name}"
        )
    return ""


def _apply_or_take_over(
    live: Object, patch: Object, managed: Managed, request: _Request, force: bool
) -> _Result:
    """Applies; if kubectl meets conflicts over fields that its client-side annotation claims, it
    takes them over.
    """
    try:
        return _apply(live, patch, dict(managed), request, force)
    except _Conflicts as e:
        conflicts = e.conflicts
    except Unmanageable as e:
        _fail(f"failed to create typed live object: {e}")
    if request.manager == KUBECTL:
        allowed = _claimed_by_annotation(live, request)
        if allowed is not None:
            conflicts = [c for c in conflicts if not has_path(allowed, c.path)]
            if not conflicts:
                return _apply(live, patch, dict(managed), request, True)
    raise _conflict_error(conflicts)


def _apply(
    live: Object, patch: Object, managed: Managed, request: _Request, force: bool
) -> _Result:
    node, api_version = request.node, request.api_version
    before = dict(managed)
    problem = validate_typed_value(live, node)
    if problem:
        raise Unmanageable(problem)
    reconcile_all(managed, live, request.type, api_version, request.convert)
    rules = request.rules
    me = identify_manager(request.manager, "Apply", api_version, rules.subresource)
    last = managed.get(me)
    merged = merge_typed_values(live, patch, node)
    mine = field_set_of(patch, node)
    if rules.reset:
        mine = without_paths(mine, rules.reset)
    managed[me] = OwnedFields(mine, api_version, last.time if last else None, None)
    if last is not None and last.fields:
        merged = _prune(merged, managed, last, request)
    taken, gone = changed_fields(live, merged, node)
    versions = {api_version: (without_paths(taken, rules.reset), without_paths(gone, rules.reset))}
    conflicts = _conflicts(managed, versions, live, merged, request, me)
    if conflicts and not force:
        raise _Conflicts(conflicts)
    withdraw_fields(managed, versions, live, merged, request.type, request.convert, me)
    same = not taken and not gone and merged == live
    mine = set_difference(managed[me].fields, _STRIPPED)
    if mine:
        managed[me] = managed[me]._replace(fields=mine)
    else:
        del managed[me]
    timed = not same or (not rules.applied_changes_timed and not _same_owners(managed, before))
    if timed and me in managed:
        managed[me] = managed[me]._replace(time=request.now)
    return _Result(live if same else merged, managed)


def _same_owners(a: Managed, b: Managed) -> bool:
    return a.keys() == b.keys() and all(
        o.api_version == b[who].api_version and o.fields == b[who].fields for who, o in a.items()
    )


def _conflicts(
    managed: Managed,
    versions: dict[str, tuple[FieldSet, FieldSet]],
    live: Object,
    merged: Object,
    request: _Request,
    me: ManagerIdentity,
) -> list[Conflict]:
    out: list[Conflict] = []
    for who in sorted(managed, key=_identity_text):
        owned = managed[who]
        if who == me:
            continue
        delta = delta_in_version(
            owned.api_version, versions, live, merged, request.type, request.convert
        )
        if delta is not None:
            out += [
                Conflict(who, path) for path in set_paths(set_intersection(owned.fields, delta[0]))
            ]
    return out


def _identity_text(who: ManagerIdentity) -> str:
    text = {"manager": who.manager, "operation": who.operation, "apiVersion": who.api_version}
    return orjson.dumps({k: v for k, v in text.items() if v}).decode()


def _conflict_error(conflicts: list[Conflict]) -> ApiError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {_print(c.who)}",
            "field": field_path_text(c.path),
        }
        for c in conflicts
    ]
    if len(conflicts) == 1:
        only = conflicts[0]
        return apply_conflict(
            causes,
            (
                f"Apply failed with 1 conflict: conflict with {_print(only.who)}: "
                f"{field_path_text(only.path)}"
            ),
        )
    lines: list[str] = []
    by_manager: dict[ManagerIdentity, list[str]] = {}
    for c in conflicts:
        by_manager.setdefault(c.who, []).append(f"- {field_path_text(c.path)}")
    for who, texts in by_manager.items():
        lines += [f"conflicts with {_print(who)}:", *texts]
    return apply_conflict(
        causes, f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    )


def _print(who: ManagerIdentity) -> str:
    name = go_quote(who.manager)
    if who.subresource:
        name += f" with subresource {go_quote(who.subresource)}"
    return f"{name} using {who.api_version}" if who.operation == "Update" else name


def _prune(merged: Object, managed: Managed, last: OwnedFields, request: _Request) -> Object:
    """Removes what the manager applied last time, does not apply now, and no other manager owns."""
    place = fields_in_version(merged, request.type, last.api_version, request.convert)
    if place is None:
        return merged
    full, node = place
    pruned = remove_fields(full, with_named_parents(last.fields, node), node) or {}
    pruned = _add_back_owned(full, pruned, managed, request, last.api_version)
    pruned_place = fields_in_version(pruned, request.type, last.api_version, request.convert)
    if pruned_place is None:
        return merged
    # Only the manager's own fields are removed.
    gone = set_difference(_members(full, node), _members(pruned_place[0], node))
    pruned = (
        remove_fields(full, set_intersection(gone, with_named_parents(last.fields, node)), node)
        or {}
    )
    back = fields_in_version(pruned, request.type, request.api_version, request.convert)
    return merged if back is None else back[0]


def _members(obj: Object, node: TypeNode) -> FieldSet:
    return with_named_parents(field_set_of(obj, node), node)


def _add_back_owned(
    full: Object, pruned: Object, managed: Managed, request: _Request, pruned_version: str
) -> Object:
    """The pruned object with everything restored that any manager owns, including the manager's own
    new configuration; first in its own version, because a conversion may need what was pruned.
    """
    claims: dict[str, FieldSet] = {}
    for owned in managed.values():
        claims[owned.api_version] = set_union(claims.get(owned.api_version, {}), owned.fields)
    for api_version in sorted(claims, key=lambda version: version != pruned_version):
        claimed = claims[api_version]
        whole = fields_in_version(full, request.type, api_version, request.convert)
        rest = fields_in_version(pruned, request.type, api_version, request.convert)
        if whole is None or rest is None:
            continue
        full, node = whole
        keep = set_union(_members(rest[0], node), with_named_parents(claimed, node))
        pruned = remove_fields(full, set_difference(_members(full, node), keep), node) or {}
    return pruned


def _claimed_by_annotation(live: Object, request: _Request) -> FieldSet | None:
    """The fields of the client-side annotation that still have its value; None without a usable
    one.
    """
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    if not text:
        return None
    try:
        applied = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if (
        not isinstance(applied, dict)
        or applied.get("apiVersion") != request.api_version
        or not applied.get("kind")
    ):
        return None
    if validate_typed_value(applied, request.node):
        return None
    changed, removed = changed_fields(applied, live, request.node)
    return set_difference(set_difference(field_set_of(applied, request.node), changed), removed)


def _sync_last_applied(obj: Object, patch: Object, manager: str) -> Object:
    """Keeps the annotation of client-side apply up to date, so that users can return to it."""
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    if manager != KUBECTL or not annotations.get(LAST_APPLIED):
        return obj
    applied = patch
    given = (patch.get("metadata") or {}).get("annotations")
    if given is not None:
        given = {k: v for k, v in given.items() if k != LAST_APPLIED}
        applied = with_metadata(patch, annotations=given)
    annotations = {**annotations, LAST_APPLIED: marshal(applied).decode() + "\n"}
    if (
        sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items())
        > MAX_ANNOTATION_BYTES
    ):
        del annotations[LAST_APPLIED]
    return with_metadata(obj, annotations=annotations)
