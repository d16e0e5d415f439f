"""The history of a DaemonSet: the current and earlier revisions of its template."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from transom.client.api import STRATEGIC_PATCH, ApiClient, is_already_exists, is_not_found
from transom.client.resources import CONTROLLER_REVISIONS, DAEMON_SETS, PODS
from transom.client.workqueue import RetryLater
from transom.controllers import history, template_hash
from transom.controllers.daemonset.template import HASH_LABEL
from transom.controllers.ownership import controller_ref
from transom.kit.large_work import compute_for_object
from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, same_json, with_metadata


class Revisions(NamedTuple):
    hash: str  # the hash of the current one, with which pods are labelled
    old: list[Object]


async def construct_history(
    client: ApiClient, daemon_set: Object, revisions: Iterable[Object], pods: Sequence[Object]
) -> Revisions:
    """Finds or creates the revision of the current template; it gets the highest number."""
    patch = history.revision_patch(daemon_set)
    current: list[Object] = []
    old: list[Object] = []
    for revision in revisions:
        labels = revision["metadata"].get("labels") or {}
        if HASH_LABEL not in labels:
            labelled = with_metadata(
                revision, labels={**labels, HASH_LABEL: revision["metadata"]["name"]}
            )
            revision = await client.update(CONTROLLER_REVISIONS, labelled)
        (current if same_json(revision.get("data"), patch) else old).append(revision)
    following = max(map(history.revision_number, old), default=0) + 1
    if not current:
        found = await _snapshot(client, daemon_set, patch, following)
    else:
        found = await _deduplicated(client, current, pods)
        if history.revision_number(found) < following:
            await history.renumber_revision(client, found, following)
    return Revisions(found["metadata"]["labels"][HASH_LABEL], old)


async def _snapshot(client: ApiClient, daemon_set: Object, patch: Object, number: int) -> Object:
    meta = daemon_set["metadata"]
    template = daemon_set["spec"].get("template") or {}
    collisions = (daemon_set.get("status") or {}).get("collisionCount")
    hashed = await compute_for_object(
        template, partial(template_hash.compute_template_hash, template, collisions)
    )
    labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: hashed}
    name = f"{meta['name']}-{hashed}"
    new_meta = {
        "name": name,
        "namespace": meta["namespace"],
        "labels": labels,
        "ownerReferences": [controller_ref(daemon_set, DAEMON_SETS)],
    }
    if meta.get("annotations"):
        new_meta["annotations"] = meta["annotations"]
    revision = {
        "kind": CONTROLLER_REVISIONS.kind,
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "metadata": new_meta,
        "data": patch,
        "revision": number,
    }
    try:
        return await client.create(CONTROLLER_REVISIONS, meta["namespace"], revision)
    except ApiError as problem:
        if not is_already_exists(problem):
            raise
        existing = await client.get(CONTROLLER_REVISIONS, meta["namespace"], name)
        if same_json(existing.get("data"), patch):
            return existing
        await _count_collision(client, daemon_set, collisions)
        raise


async def _count_collision(client: ApiClient, daemon_set: Object, known: int | None) -> None:
    """Two templates have the same hash: the next attempt gets another name."""
    meta = daemon_set["metadata"]
    fresh = await client.get(DAEMON_SETS, meta["namespace"], meta["name"])
    status = fresh.get("status") or {}
    if status.get("collisionCount") != known:
        raise RetryLater(
            f"found a stale collision count ({known}, expected "
            f"{status.get('collisionCount')}) of DaemonSet "
            f'"{meta["name"]}" while processing; will retry until it is updated'
        )
    counted = {**status, "collisionCount": (known or 0) + 1}
    await client.update_status(DAEMON_SETS, {**fresh, "status": counted})


async def _deduplicated(
    client: ApiClient, current: Sequence[Object], pods: Sequence[Object]
) -> Object:
    """Keeps one of several revisions of the same template; relabels the pods of the others."""
    kept = max(current, key=history.revision_number)
    if len(current) == 1:
        return kept
    hashed = kept["metadata"]["labels"][HASH_LABEL]
    for pod in pods:
        meta = pod["metadata"]
        if (meta.get("labels") or {}).get(HASH_LABEL) != hashed:
            body = {"metadata": {"uid": meta["uid"], "labels": {HASH_LABEL: hashed}}}
            await client.patch(PODS, meta["namespace"], meta["name"], body, STRATEGIC_PATCH)
    for revision in current:
        if revision["metadata"]["name"] != kept["metadata"]["name"]:
            await _delete(client, revision)
    return kept


async def clean_up_history(
    client: ApiClient, daemon_set: Object, old: Sequence[Object], pods: Iterable[Object]
) -> None:
    """Deletes the oldest revisions beyond the limit, except those that pods still use."""
    surplus = len(old) - daemon_set["spec"].get("revisionHistoryLimit", 10)
    if surplus <= 0:
        return
    live = {(pod["metadata"].get("labels") or {}).get(HASH_LABEL) for pod in pods}
    unused = [
        r for r in history.sorted_revisions(old) if r["metadata"]["labels"][HASH_LABEL] not in live
    ]
    for revision in unused[:surplus]:
        await _delete(client, revision)


async def _delete(client: ApiClient, revision: Object) -> None:
    try:
        await client.delete(
            CONTROLLER_REVISIONS, revision["metadata"]["namespace"], revision["metadata"]["name"]
        )
    except ApiError as problem:
        if not is_not_found(problem):
            raise
