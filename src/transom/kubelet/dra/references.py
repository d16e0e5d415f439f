"""Which claims a pod and its containers use."""

from __future__ import annotations

from collections.abc import Iterator

from transom.kit.goquote import go_quote
from transom.machinery.objects import Object


class PodClaimError(Exception):
    """The text is Kubernetes'."""


def pod_claims(pod: Object) -> Iterator[tuple[str, str, bool]]:
    """For each claim that exists: its name in the pod ("" for that of extended resources), its own
    name, and whether the pod must own it. Raises ClaimProblem.
    """
    status = pod.get("status") or {}
    for entry in pod["spec"].get("resourceClaims") or ():
        if entry.get("resourceClaimName"):
            yield entry["name"], entry["resourceClaimName"], False
            continue
        name = _generated(pod, entry, status)
        if name:
            yield entry["name"], name, True
    if extended := status.get("extendedResourceClaimStatus"):
        yield "", extended["resourceClaimName"], False


def _generated(pod: Object, entry: Object, status: Object) -> str:
    """ "" if the template needs no claim."""
    who = f'pod "{pod["metadata"]["namespace"]}/{pod["metadata"]["name"]}"'
    if not entry.get("resourceClaimTemplateName"):
        raise PodClaimError(
            f"{who}, spec.resourceClaim {go_quote(entry['name'])}: none of the supported fields "
            "are set"
        )
    for found in status.get("resourceClaimStatuses") or ():
        if found["name"] == entry["name"]:
            return found.get("resourceClaimName") or ""
    raise PodClaimError(f"{who}: ResourceClaim not created yet")


def container_requests(pod: Object, container: Object) -> Iterator[tuple[str, str]]:
    """The names of the claims and of their requests ("" for all) that a container uses."""
    used = (container.get("resources") or {}).get("claims") or ()
    names = {entry: name for entry, name, _ in pod_claims(pod)} if used else {}
    for entry in used:
        if name := names.get(entry["name"]):
            yield name, entry.get("request") or ""
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if extended:
        wanted = (container.get("resources") or {}).get("requests") or {}
        for mapping in extended.get("requestMappings") or ():
            if mapping["containerName"] == container["name"] and mapping["resourceName"] in wanted:
                yield extended["resourceClaimName"], mapping["requestName"]


def check_owner(pod: Object, claim: Object) -> None:
    """Raises ClaimProblem unless the claim was created for the pod."""
    uid = pod["metadata"]["uid"]
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner["uid"] == uid:
            return
    namespace = claim["metadata"]["namespace"]
    raise PodClaimError(
        f"ResourceClaim {namespace}/{claim['metadata']['name']} was not created for Pod "
        f"{namespace}/{pod['metadata']['name']} (Pod is not owner)"
    )


def check_reserved(pod: Object, claim: Object) -> None:
    """Raises ClaimProblem unless the claim is reserved for the pod."""
    meta = pod["metadata"]
    for consumer in (claim.get("status") or {}).get("reservedFor") or ():
        if consumer["uid"] == meta["uid"]:
            return
    raise PodClaimError(
        f"pod {meta['name']} ({meta['uid']}) is not allowed to use ResourceClaim "
        f"{claim['metadata']['name']} ({claim['metadata']['uid']})"
    )
