"""Certificate signing requests: who asked is the server's word, and only /approval approves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from transom.apiserver.strategies.base import Strategy
from transom.kit.clock import rfc3339
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from transom.apiserver.context import Context
    from transom.apiserver.storage import Storage

_DECISIONS = ("Approved", "Denied")


def _create(_storage: Storage, ctx: Context, obj: Object) -> None:
    spec = obj["spec"]
    for name in ("username", "uid", "groups", "extra"):
        spec.pop(name, None)
    spec.update(ctx.user.info())
    obj["status"] = {}


def _update(_storage: Storage, _ctx: Context, new: Object, old: Object) -> None:
    new["spec"] = old["spec"]


def stamp_conditions(ctx: Context, new: Object, old: Object) -> None:
    """New conditions get their times; unchanged ones keep theirs."""
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
    """Decisions made elsewhere keep their old words; False when their number changed, which nothing can mend."""
    conditions = (new.get("status") or {}).get("conditions") or []
    before = (old.get("status") or {}).get("conditions") or []
    mended = list(conditions)
    same = True
    for kind in _DECISIONS:
        places = [i for i, c in enumerate(conditions) if c.get("type") == kind]
        known = [c for c in before if c.get("type") == kind]
        if len(places) != len(known):
            same = False
            continue
        for place, condition in zip(places, known, strict=True):
            mended[place] = condition
    if mended:
        new["status"]["conditions"] = mended
    return same


def _status(_storage: Storage, ctx: Context, new: Object, old: Object) -> None:
    """A decision that was added or left out is for validation to refuse."""
    _keep_decisions(new, old)
    stamp_conditions(ctx, new, old)


def _beta_status(_storage: Storage, ctx: Context, new: Object, old: Object) -> None:
    """The beta puts all conditions back instead of refusing."""
    if not _keep_decisions(new, old):
        before = (old.get("status") or {}).get("conditions")
        status = {k: v for k, v in (new.get("status") or {}).items() if k != "conditions"}
        new["status"] = {**status, "conditions": before} if before else status
    stamp_conditions(ctx, new, old)


def approve(_storage: Storage, ctx: Context, new: Object, old: Object) -> None:
    """The /approval sub-resource changes conditions only."""
    stamp_conditions(ctx, new, old)
    conditions = (new.get("status") or {}).get("conditions")
    new["spec"] = old["spec"]
    new["status"] = {k: v for k, v in (old.get("status") or {}).items() if k != "conditions"}
    if conditions:
        new["status"]["conditions"] = conditions


STRATEGY = Strategy(on_create=_create, on_update=_update, on_status=_status)
BETA_STRATEGY = replace(STRATEGY, on_status=_beta_status)
