"""CertificateSigningRequests: the server sets the requester, and only /approval approves.
PodCertificateRequests: a certificate is issued for a time that begins now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.strategies.base import StorageRules, Strategy
from transom.kit.clock import parse_rfc3339, rfc3339
from transom.machinery.field import FieldError, invalid
from transom.machinery.objects import Object

_DECISIONS = ("Approved", "Denied")
_SKEW_SECONDS = 300.0


def _create(_storage: StorageRules, ctx: RequestContext, obj: Object) -> None:
    spec = obj["spec"]
    for name in ("username", "uid", "groups", "extra"):
        spec.pop(name, None)
    spec.update(ctx.user.info())
    obj["status"] = {}


def _update(_storage: StorageRules, _ctx: RequestContext, new: Object, old: Object) -> None:
    new["spec"] = old["spec"]


def stamp_request_conditions(ctx: RequestContext, new: Object, old: Object) -> None:
    """Sets the times of new conditions; unchanged ones keep theirs."""
    before = {c.get("type"): c for c in (old.get("status") or {}).get("conditions") or ()}
    now = rfc3339(ctx.now)
    for condition in (new.get("status") or {}).get("conditions") or ():
        known = before.get(condition.get("type"))
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = now
        if not condition.get("lastTransitionTime"):
            same = known is not None and known.get("status") == condition.get("status")
            condition["lastTransitionTime"] = known["lastTransitionTime"] if same and known else now


def _keep_decisions(new: Object, old: Object) -> bool:
    """Restores the approval conditions of the stored object; False if their number changed, so that
    they cannot be restored.
    """
    conditions = (new.get("status") or {}).get("conditions") or []
    before = (old.get("status") or {}).get("conditions") or []
    merged = list(conditions)
    same = True
    for kind in _DECISIONS:
        places = [i for i, c in enumerate(conditions) if c.get("type") == kind]
        known = [c for c in before if c.get("type") == kind]
        if len(places) != len(known):
            same = False
            continue
        for place, condition in zip(places, known, strict=True):
            merged[place] = condition
    if merged:
        new["status"]["conditions"] = merged
    return same


def _status(_storage: StorageRules, ctx: RequestContext, new: Object, old: Object) -> None:
    """Validation rejects an added or removed decision."""
    _keep_decisions(new, old)
    stamp_request_conditions(ctx, new, old)


def _beta_status(_storage: StorageRules, ctx: RequestContext, new: Object, old: Object) -> None:
    """v1beta1 restores all conditions instead of rejecting the update."""
    if not _keep_decisions(new, old):
        before = (old.get("status") or {}).get("conditions")
        status = {k: v for k, v in (new.get("status") or {}).items() if k != "conditions"}
        new["status"] = {**status, "conditions": before} if before else status
    stamp_request_conditions(ctx, new, old)


def approve_request(_storage: StorageRules, ctx: RequestContext, new: Object, old: Object) -> None:
    """The /approval subresource changes conditions only."""
    stamp_request_conditions(ctx, new, old)
    conditions = (new.get("status") or {}).get("conditions")
    new["spec"] = old["spec"]
    new["status"] = {k: v for k, v in (old.get("status") or {}).items() if k != "conditions"}
    if conditions:
        new["status"]["conditions"] = conditions


STRATEGY = Strategy(on_create=_create, on_update=_update, on_status=_status)
BETA_STRATEGY = replace(STRATEGY, on_status=_beta_status)


def _issued_now(
    _storage: StorageRules, ctx: RequestContext, new: Object, old: Object | None, subresource: str
) -> Sequence[FieldError]:
    """A certificate that is issued now is valid from about now on."""
    if old is None or subresource != "status":
        return ()
    before, after = old.get("status") or {}, new.get("status") or {}
    start = after.get("notBefore")
    if before.get("notBefore") or not start:
        return ()
    if abs(parse_rfc3339(start) - ctx.now) < _SKEW_SECONDS:
        return ()
    text = "must be set to within 5 minutes of kube-apiserver's current time"
    return [invalid("status.notBefore", start, text)]


POD_CERTIFICATE = Strategy(
    unconditional_update=False,
    status_keeps=("labels", "annotations", "ownerReferences", "finalizers"),
    find_errors=_issued_now,
)
