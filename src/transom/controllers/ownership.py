"""Controller references: finds controlled objects, adopts orphans, and releases objects that no
longer match.

One rule for pods, ReplicaSets and revisions: an object that names the owner as its controller and
matches its selector belongs to it; a matching object without a controller is adopted; a controlled
object that no longer matches is released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from transom.client.api import STRATEGIC_PATCH, ApiClient, is_not_found
from transom.client.informer import Informer
from transom.client.resources import GroupVersionResource
from transom.client.workqueue import RetryLater
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.selectors import LabelSelector

_INDEX = "controller"


def controller_ref(owner: Object, resource: GroupVersionResource) -> Object:
    """The controller reference of a controlled object."""
    meta = owner["metadata"]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def index_by_controller(informer: Informer) -> None:
    """Adds the indexes with which `owned_or_orphaned_objects` avoids scanning the namespace."""
    informer.add_index(_INDEX, _index_values)


def _index_values(obj: Object) -> tuple[str]:
    refs = obj["metadata"].get("ownerReferences")
    if refs:
        for ref in refs:
            if ref.get("controller"):
                return (ref["uid"],)
    return (_orphans(obj["metadata"]["namespace"]),)


def _orphans(namespace: str) -> str:
    return f"orphans of {namespace}"


def owned_objects(informer: Informer, uid: str) -> Iterable[Object]:
    """The objects whose controller has this uid."""
    return informer.by_index(_INDEX, uid)


def owned_or_orphaned_objects(informer: Informer, owner: Object) -> Iterator[Object]:
    """All objects that `claim_objects` must examine."""
    meta = owner["metadata"]
    yield from informer.by_index(_INDEX, meta["uid"])
    yield from informer.by_index(_INDEX, _orphans(meta["namespace"]))


def resolve_controller_ref(owners: Informer, namespace: str, ref: Object | None) -> Object | None:
    """The owner that a controller reference names, if it is of this resource and has the same
    uid.
    """
    if ref is None or ref.get("kind") != owners.resource.kind:
        return None
    owner = owners.get(namespace, ref["name"])
    return owner if owner is not None and owner["metadata"]["uid"] == ref["uid"] else None


class ClaimFailed(RetryLater):
    """An object could not be adopted or released; the sync is retried."""


async def claim_objects(
    client: ApiClient,
    owners: GroupVersionResource,
    owner: Object,
    selector: LabelSelector,
    resource: GroupVersionResource,
    candidates: Iterable[Object],
    belongs: Callable[[Object], bool] | None = None,
    finalizers: Sequence[str] = (),
) -> list[Object]:
    """The candidates that belong to the owner, after adopting and releasing. `belongs` is an
    additional condition. Adopted objects get the finalizers, released ones lose them.
    """
    uid = owner["metadata"]["uid"]
    going = "deletionTimestamp" in owner["metadata"]
    claimed: list[Object] = []
    adoptable: list[Object] = []
    released: list[Object] = []
    for obj in candidates:
        meta = obj["metadata"]
        # like `controller_of`, inlined because it is called very often
        for ref in meta.get("ownerReferences") or ():
            if ref.get("controller"):
                break
        else:
            ref = None
        if ref is not None and ref["uid"] != uid:
            continue
        matches = selector.matches(meta.get("labels")) and (belongs is None or belongs(obj))
        if ref is not None:
            (claimed if matches else released).append(obj)
        elif matches and "deletionTimestamp" not in meta:
            adoptable.append(obj)
    if going or not (adoptable or released):
        return claimed
    problems = []
    for obj in released:
        try:
            await _release(client, resource, obj, uid, finalizers)
        except ApiError as problem:
            problems.append(str(problem))
    if adoptable:
        await _check_alive(client, owners, owner)
    for obj in adoptable:
        try:
            added: Object = {"finalizers": [*finalizers]} if finalizers else {}
            await _patch(client, resource, obj, [controller_ref(owner, owners)], added)
            claimed.append(_with_finalizers(obj, finalizers))
        except ApiError as problem:
            if not is_not_found(problem):
                problems.append(str(problem))
    if problems:
        raise ClaimFailed("; ".join(problems))
    return claimed


async def _check_alive(client: ApiClient, owners: GroupVersionResource, owner: Object) -> None:
    """An informer may lag behind, so read the owner from the server before adopting an object."""
    meta = owner["metadata"]
    where = f"{meta['namespace']}/{meta['name']}"
    try:
        fresh = (await client.get(owners, meta["namespace"], meta["name"]))["metadata"]
    except ApiError as problem:
        raise ClaimFailed(f"can't adopt: {problem}") from problem
    if fresh["uid"] != meta["uid"]:
        raise ClaimFailed(
            f"original {owners.kind} {where} is gone: got uid {fresh['uid']}, wanted {meta['uid']}"
        )
    if "deletionTimestamp" in fresh:
        raise ClaimFailed(f"{where} has just been deleted at {fresh['deletionTimestamp']}")


async def _release(
    client: ApiClient,
    resource: GroupVersionResource,
    obj: Object,
    uid: str,
    finalizers: Sequence[str],
) -> None:
    removed: Object = {"$deleteFromPrimitiveList/finalizers": [*finalizers]} if finalizers else {}
    try:
        await _patch(client, resource, obj, [{"$patch": "delete", "uid": uid}], removed)
    except ApiError as problem:
        # Invalid: it has no owner any more, or is another object with the same name.
        if problem.reason not in ("NotFound", "Invalid"):
            raise


def _with_finalizers(obj: Object, finalizers: Sequence[str]) -> Object:
    meta = obj["metadata"]
    missing = [name for name in finalizers if name not in (meta.get("finalizers") or ())]
    if not missing:
        return obj
    return {**obj, "metadata": {**meta, "finalizers": [*(meta.get("finalizers") or ()), *missing]}}


async def _patch(
    client: ApiClient,
    resource: GroupVersionResource,
    obj: Object,
    refs: list[Object],
    more: Object,
) -> None:
    meta = obj["metadata"]
    body = {"metadata": {"uid": meta["uid"], "ownerReferences": refs, **more}}
    await client.patch(resource, meta["namespace"], meta["name"], body, STRATEGIC_PATCH)
