"""Certificate signing requests: who asked is the server's word, and only /approval approves."""

from __future__ import annotations

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


def _status(_storage: Storage, ctx: Context, new: Object, old: Object) -> None:
    """Decisions made elsewhere survive a status update that left them out."""
    status = new.setdefault("status", {})
    kept = [c for c in (old.get("status") or {}).get("conditions") or () if c.get("type") in _DECISIONS]
    present = {c.get("type") for c in status.get("conditions") or ()}
    missing = [c for c in kept if c.get("type") not in present]
    if missing:
        status["conditions"] = [*missing, *(status.get("conditions") or ())]
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
