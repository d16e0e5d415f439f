"""Which pods use a claim."""

from __future__ import annotations

from transom.machinery.objects import Object

BY_CLAIM = "claims"  # the index of pods


def claims_of(pod: Object) -> list[str]:
    """Keys of the claims that the pod mounts."""
    namespace = pod["metadata"].get("namespace", "")
    names = (
        (volume.get("persistentVolumeClaim") or {}).get("claimName")
        for volume in pod["spec"].get("volumes") or ()
    )
    return [f"{namespace}/{name}" for name in names if name]


def is_pod_terminated(pod: Object) -> bool:
    """Terminal, or deleted with no container running (IsPodTerminated of volume/util)."""
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    if "deletionTimestamp" not in pod["metadata"]:
        return False
    states = [row.get("state") or {} for row in status.get("containerStatuses") or ()]
    return all("terminated" in state or "waiting" in state for state in states)
