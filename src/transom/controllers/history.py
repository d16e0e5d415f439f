"""ControllerRevisions: earlier pod templates of StatefulSets and DaemonSets, as patches that bring them back."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from transom.client.api import Client, is_already_exists
from transom.client.resources import CONTROLLER_REVISIONS, GroupVersionResource
from transom.controllers.ownership import controller_ref
from transom.controllers.template_hash import fnv32, safe_encode
from transom.machinery import gojson
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, same_json

HASH_LABEL = "controller.kubernetes.io/hash"
_LONGEST_PREFIX = 223


def patch_of(owner: Object) -> Object:
    """What a revision keeps of its owner: a patch that puts the pod template back.

    Names are in order at every level, as in Kubernetes: clients find the current revision by comparing its bytes.
    """
    patch = {"spec": {"template": {**(owner["spec"].get("template") or {}), "$patch": "replace"}}}
    sorted_patch: Object = orjson.loads(orjson.dumps(patch, option=orjson.OPT_SORT_KEYS))
    return sorted_patch


def restored(owner: Object, revision: Object) -> Object:
    """The owner as it was at a revision."""
    template = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    template = {key: value for key, value in template.items() if key != "$patch"}
    return {**owner, "spec": {**owner["spec"], "template": template}}


def same_data(a: Object, b: Object) -> bool:
    return same_json(a.get("data"), b.get("data"))


def number(revision: Object) -> int:
    return revision.get("revision", 0)


def ordered(revisions: Sequence[Object]) -> list[Object]:
    """By number; then by age and name."""
    return sorted(revisions, key=lambda r: (
        number(r), r["metadata"].get("creationTimestamp") or "", r["metadata"]["name"]
    ))


def name_of(owner: Object, data: Object, collisions: int) -> tuple[str, str]:
    """Name and hash of the revision with this content."""
    hashed = safe_encode(fnv32(gojson.marshal(data) + str(collisions).encode()))
    return f"{owner['metadata']['name'][:_LONGEST_PREFIX]}-{hashed}", hashed


def planned(owner: Object, resource: GroupVersionResource, revision: int, collisions: int) -> Object:
    """The revision of an owner's current template, not yet created."""
    meta = owner["metadata"]
    data = patch_of(owner)
    name, hashed = name_of(owner, data, collisions)
    labels = ((owner["spec"].get("template") or {}).get("metadata") or {}).get("labels") or {}
    out: Object = {
        "kind": CONTROLLER_REVISIONS.kind, "apiVersion": CONTROLLER_REVISIONS.api_version,
        "metadata": {
            "name": name, "namespace": meta["namespace"], "labels": {**labels, HASH_LABEL: hashed},
            "ownerReferences": [controller_ref(owner, resource)],
        },
        "data": data, "revision": revision,
    }
    if meta.get("annotations"):
        out["metadata"]["annotations"] = meta["annotations"]
    return out


async def create(client: Client, owner: Object, revision: Object, collisions: int) -> tuple[Object, int]:
    """The created revision, or the same one from before, and the collision count that its name needed."""
    namespace = owner["metadata"]["namespace"]
    while True:
        name, _ = name_of(owner, revision["data"], collisions)
        try:
            named = {**revision, "metadata": {**revision["metadata"], "name": name}}
            return await client.create(CONTROLLER_REVISIONS, namespace, named), collisions
        except ApiError as problem:
            if not is_already_exists(problem):
                raise
        existing = await client.get(CONTROLLER_REVISIONS, namespace, name)
        if same_data(existing, revision):
            return existing, collisions
        collisions += 1


async def renumber(client: Client, revision: Object, new: int) -> Object:
    """Move a revision to the end of the history: it is rolled back to."""
    if number(revision) == new:
        return revision
    return await client.update(CONTROLLER_REVISIONS, {**revision, "revision": new})
