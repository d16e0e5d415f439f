"""persistentVolumeClaimRetentionPolicy: the owner of a claim decides when the garbage collector
deletes it: with the set, with the pod that is scaled down, or never.
"""

from __future__ import annotations

from transom.client.resources import PODS, STATEFUL_SETS, GroupVersionResource
from transom.controllers.ownership import controller_ref
from transom.controllers.statefulset.identity import is_in_ordinal_range, ordinal_of
from transom.machinery.objects import Object


def with_owners(claim: Object, stateful_set: Object, pod: Object) -> Object | None:
    """The claim with the owner that the policy wants; None if it needs no change."""
    before: list[Object] = claim["metadata"].get("ownerReferences") or []
    wanted = _wanted_owner(stateful_set, pod)
    ours = [
        ref for ref in before if _names(ref, stateful_set, STATEFUL_SETS) or _names(ref, pod, PODS)
    ]
    uids = {stateful_set["metadata"]["uid"], pod["metadata"].get("uid")}
    if any(ref["uid"] not in uids for ref in ours):
        return None  # of an object that had the same name: left to the garbage collector
    others = [ref for ref in before if ref not in ours]
    if any(ref.get("controller") for ref in others):
        wanted = None
    after = [*others, wanted] if wanted is not None else others
    if after == before or (wanted is not None and ours == [wanted]):
        return None
    meta = {k: v for k, v in claim["metadata"].items() if k != "ownerReferences"}
    if after:
        meta["ownerReferences"] = after
    return {**claim, "metadata": meta}


def _wanted_owner(stateful_set: Object, pod: Object) -> Object | None:
    policy = stateful_set["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    deletes_scaled = policy.get("whenScaled") == "Delete"
    scaled_down = not is_in_ordinal_range(stateful_set, ordinal_of(pod))
    if deletes_scaled and scaled_down:
        return controller_ref(pod, PODS)
    if policy.get("whenDeleted") == "Delete":
        return controller_ref(stateful_set, STATEFUL_SETS)
    return None


def _names(ref: Object, obj: Object, resource: GroupVersionResource) -> bool:
    return (ref.get("kind"), ref.get("apiVersion"), ref.get("name")) == (
        resource.kind,
        resource.api_version,
        obj["metadata"]["name"],
    )
