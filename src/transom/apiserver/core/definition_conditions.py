"""The conditions of CustomResourceDefinitions: their names, and how to read and set them."""

from __future__ import annotations

from transom.machinery.objects import Object

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
NAMES_ACCEPTED, ESTABLISHED, TERMINATING = "NamesAccepted", "Established", "Terminating"
NON_STRUCTURAL, APPROVED = "NonStructuralSchema", "KubernetesAPIApprovalPolicyConformant"


def find_definition_condition(crd: Object, kind: str) -> Object | None:
    return next(
        (c for c in (crd.get("status") or {}).get("conditions") or () if c.get("type") == kind),
        None,
    )


def is_condition_true(crd: Object, kind: str) -> bool:
    found = find_definition_condition(crd, kind)
    return found is not None and found.get("status") == "True"


def make_definition_condition(kind: str, status: str, reason: str, message: str) -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def with_definition_condition(crd: Object, new: Object, now: str) -> Object:
    """The definition with one condition set; its time changes with its status only."""
    status = dict(crd.get("status") or {})
    conditions = list(status.get("conditions") or ())
    for i, old in enumerate(conditions):
        if old.get("type") == new["type"]:
            since = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
            conditions[i] = {**new, "lastTransitionTime": since or now}
            break
    else:
        conditions.append({**new, "lastTransitionTime": now})
    return {**crd, "status": {**status, "conditions": conditions}}


def without_definition_condition(crd: Object, kind: str) -> Object:
    status = crd.get("status") or {}
    kept = [c for c in status.get("conditions") or () if c.get("type") != kind]
    return {**crd, "status": {**status, "conditions": kept}}
