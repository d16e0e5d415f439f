"""ControllerRevisions: earlier pod templates of StatefulSets and DaemonSets, stored as patches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import orjson

from transom.client.api import ApiClient, is_already_exists
from transom.client.resources import CONTROLLER_REVISIONS, GroupVersionResource
from transom.controllers.ownership import controller_ref
from transom.controllers.template_hash import safe_encode
from transom.kit.large_work import compute_for_object
from transom.machinery import gojson
from transom.machinery.errors import ApiError
from transom.machinery.hashes import fnv32
from transom.machinery.objects import Object, same_json

HASH_LABEL = "controller.kubernetes.io/hash"
_LONGEST_PREFIX = 223


def revision_patch(owner: Object) -> Object:
    """The data of a revision: a patch that restores the pod template.

    Keys are sorted at every level, as in Kubernetes: clients find the current revision by comparing
    its bytes.
    """
    patch = {"spec": {"template": {**(owner["spec"].get("template") or {}), "$patch": "replace"}}}
    sorted_patch: Object = orjson.loads(orjson.dumps(patch, option=orjson.OPT_SORT_KEYS))
    return sorted_patch


def restored_object(owner: Object, revision: Object) -> Object:
    """The owner with the template of a revision."""
    template = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    template = {key: value for key, value in template.items() if key != "$patch"}
    return {**owner, "spec": {**owner["spec"], "template": template}}


def same_revision_data(a: Object, b: Object) -> bool:
    return same_json(a.get("data"), b.get("data"))


def revision_number(revision: Object) -> int:
    return revision.get("revision", 0)


def sorted_revisions(revisions: Sequence[Object]) -> list[Object]:
    """By number, then by age and name."""
    return sorted(
        revisions,
        key=lambda r: (
            revision_number(r),
            r["metadata"].get("creationTimestamp") or "",
            r["metadata"]["name"],
        ),
    )


def revision_name(owner: Object, data: Object, collisions: int) -> tuple[str, str]:
    """Name and hash of the revision with this data."""
    hashed = safe_encode(fnv32(gojson.marshal(data) + str(collisions).encode()))
    return f"{owner['metadata']['name'][:_LONGEST_PREFIX]}-{hashed}", hashed


def planned_revision(
    owner: Object, resource: GroupVersionResource, revision: int, collisions: int
) -> Object:
    """The revision of an owner's current template, not created yet."""
    meta = owner["metadata"]
    data = revision_patch(owner)
    name, hashed = revision_name(owner, data, collisions)
    labels = ((owner["spec"].get("template") or {}).get("metadata") or {}).get("labels") or {}
    out: Object = {
        "kind": CONTROLLER_REVISIONS.kind,
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": {**labels, HASH_LABEL: hashed},
            "ownerReferences": [controller_ref(owner, resource)],
        },
        "data": data,
        "revision": revision,
    }
    if meta.get("annotations"):
        out["metadata"]["annotations"] = meta["annotations"]
    return out


async def create_revision(
    client: ApiClient, owner: Object, revision: Object, collisions: int
) -> tuple[Object, int]:
    """The created or existing revision, and the collision count that its name needed."""
    namespace = owner["metadata"]["namespace"]
    while True:
        data = revision["data"]
        name, _ = await compute_for_object(data, partial(revision_name, owner, data, collisions))
        try:
            named = {**revision, "metadata": {**revision["metadata"], "name": name}}
            return await client.create(CONTROLLER_REVISIONS, namespace, named), collisions
        except ApiError as problem:
            if not is_already_exists(problem):
                raise
        existing = await client.get(CONTROLLER_REVISIONS, namespace, name)
        if same_revision_data(existing, revision):
            return existing, collisions
        collisions += 1


async def renumber_revision(client: ApiClient, revision: Object, new: int) -> Object:
    """Moves a revision to the end of the history, for a rollback."""
    if revision_number(revision) == new:
        return revision
    return await client.update(CONTROLLER_REVISIONS, {**revision, "revision": new})
