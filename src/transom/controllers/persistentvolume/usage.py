"""Which pods use a claim."""

from __future__ import annotations

from transom.machinery.objects import Object

BY_CLAIM = "claims"  # the index of pods


def claims_of(pod: Object) -> list[str]:
    """Keys of the claims that the pod mounts."""
    out = []
    for volume in pod["spec"].get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim and (name := claim.get("claimName")):
            out.append(f"{pod['metadata'].get('namespace', '')}/{name}")
    return out


def is_pod_terminated(pod: Object) -> bool:
    """Terminal, or deleted with no container running (IsPodTerminated of volume/util)."""
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    if "deletionTimestamp" not in pod["metadata"]:
        return False
    for row in status.get("containerStatuses") or ():
        state = row.get("state") or {}
        if "terminated" not in state and "waiting" not in state:
            return False
    return True
