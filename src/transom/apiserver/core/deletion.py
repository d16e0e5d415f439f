"""The rules of a delete: grace periods, finalizers, preconditions.

Pure functions on stored objects; the storage writes the result.
"""

from __future__ import annotations

from transom.apiserver.core.resources import Resource
from transom.apiserver.core.strategies import Strategy
from transom.kit.clock import parse_rfc3339, rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.machinery import errors
from transom.machinery.objects import Object
from transom.machinery.releases.behaviour import has_behaviour

_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"


class Deletion(NamedTuple):
    obj: Object  # the object after the delete
    changed: bool  # it differs from the stored object, and watchers must see that
    gone: bool  # no finalizer or grace period remains


def check_preconditions(res: Resource, name: str, options: Object, obj: Object) -> None:
    wanted = options.get("preconditions") or {}
    meta = obj["metadata"]
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    if uid is not None and uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record "
            f"({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise _unlike(res, name, "UID", uid, meta["uid"], why)
    if version is not None and version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the "
            "ResourceVersion in record "
            f"({meta['resourceVersion']}). The object might have been modified"
        )
        raise _unlike(res, name, "ResourceVersion", version, meta["resourceVersion"], why)


def _unlike(
    res: Resource, name: str, what: str, wanted: str, found: str, why: str
) -> errors.ApiError:
    if _is_namespace(res):  # the storage of namespaces checks this itself, with its own message
        why = (
            f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
        )
        return errors.conflict(res.gr, name, why)
    return errors.conflict(errors.GroupResource(res.kind.group, res.kind.kind), name, why)


def _is_namespace(res: Resource) -> bool:
    return res.kind.key == "/Namespace"


def _namespace_held(res: Resource, obj: Object) -> bool:
    return _is_namespace(res) and bool((obj.get("spec") or {}).get("finalizers"))


def can_be_removed(res: Resource, obj: Object) -> bool:
    """An object marked for deletion is removed when nothing holds it any more."""
    meta = obj["metadata"]
    return (
        not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
        and not _namespace_held(res, obj)
    )


def mark_for_deletion(
    res: Resource, strategy: Strategy, old: Object, options: Object, now: float
) -> Deletion:
    """The object after a delete with these options."""
    started = "deletionTimestamp" in old["metadata"]
    one_second = has_behaviour(res.release, "NegativeGraceIsOne")
    if one_second and options.get("gracePeriodSeconds", 0) < 0:
        options = {**options, "gracePeriodSeconds": 1}
    if strategy.begin_deletion is not None and not started:
        return Deletion(strategy.begin_deletion(old, now), True, False)
    if _is_namespace(res) and (not started or _namespace_held(res, old)):
        return (
            Deletion(old, False, False)
            if started
            else _mark_namespace(res, strategy, old, options, now)
        )
    meta = dict(old["metadata"])
    graceful = False
    if strategy.grace_period is not None:
        if meta.get("deletionGracePeriodSeconds") and not _shortened(meta, options):
            # already being deleted; finalizers are also unchanged
            return Deletion(old, False, False)
        if not started:
            period = strategy.grace_period(old, options.get("gracePeriodSeconds"))
            _begin(meta, 1 if one_second and period < 0 else period, now)
        graceful = meta.get("deletionTimestamp") != old["metadata"].get("deletionTimestamp") or (
            meta.get("deletionGracePeriodSeconds")
            != old["metadata"].get("deletionGracePeriodSeconds")
        )
    finalizers = garbage_finalizers(res, strategy, meta, options)
    _set_finalizers(meta, finalizers)
    if not graceful:
        if not finalizers:
            return Deletion(old, False, True)
        if not started or parse_rfc3339(meta["deletionTimestamp"]) > now:
            _begin(meta, 0, now)
        meta["deletionGracePeriodSeconds"] = 0
    held = bool(finalizers) or meta["deletionGracePeriodSeconds"] > 0
    return Deletion({**old, "metadata": meta}, meta != old["metadata"], not held)


def _begin(meta: Object, period: int, now: float) -> None:
    if "deletionTimestamp" not in meta and meta.get("generation", 0) > 0:
        meta["generation"] += 1
    meta["deletionTimestamp"] = rfc3339(now + _seconds(period))
    meta["deletionGracePeriodSeconds"] = period


def _shortened(meta: Object, options: Object) -> bool:
    """A second delete may shorten the grace period, counted from the first one."""
    requested, period = options.get("gracePeriodSeconds"), meta["deletionGracePeriodSeconds"]
    if requested is None or requested >= period:
        return False
    meta["deletionTimestamp"] = rfc3339(
        parse_rfc3339(meta["deletionTimestamp"]) - _seconds(period) + _seconds(requested)
    )
    meta["deletionGracePeriodSeconds"] = requested
    return True


def _mark_namespace(
    res: Resource, strategy: Strategy, old: Object, options: Object, now: float
) -> Deletion:
    """The first delete of a namespace marks it as terminating; its content is deleted first."""
    meta = {**old["metadata"], "deletionTimestamp": rfc3339(now)}
    _set_finalizers(meta, garbage_finalizers(res, strategy, meta, options))
    status = {**(old.get("status") or {}), "phase": "Terminating"}
    return Deletion({**old, "metadata": meta, "status": status}, True, False)


def _set_finalizers(meta: Object, finalizers: list[str]) -> None:
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)


def garbage_finalizers(
    res: Resource, strategy: Strategy, meta: Object, options: Object
) -> list[str]:
    """Finalizers after a delete with this propagation policy, which sets or removes `orphan` and
    `foregroundDeletion`.
    """
    finalizers: list[str] = list(meta.get("finalizers") or [])
    if not (
        finalizers
        or "propagationPolicy" in options
        or "orphanDependents" in options
        or strategy.orphan_versions
    ):
        return finalizers
    if res.kind.key == "/Event":  # has no dependents
        return [f for f in finalizers if f not in (_ORPHAN, _FOREGROUND)]
    policy = options.get("propagationPolicy")
    orphan = options.get("orphanDependents")
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    if policy is None:
        present = next((f for f in finalizers if f in (_ORPHAN, _FOREGROUND)), None)
        if present is not None:
            policy = "Orphan" if present == _ORPHAN else "Foreground"
        else:
            policy = "Orphan" if res.api_version in strategy.orphan_versions else "Background"
    wanted = {"Orphan": _ORPHAN, "Foreground": _FOREGROUND}.get(policy)
    out = [f for f in finalizers if f not in (_ORPHAN, _FOREGROUND)]
    if wanted:
        out = [*out, wanted]
    return finalizers if set(out) == set(finalizers) else out


def _seconds(period: int) -> float:
    """A grace period as Go's time.Duration: 64-bit nanoseconds that wrap around."""
    nanoseconds = (period * 1_000_000_000 + (1 << 63)) % (1 << 64) - (1 << 63)
    return nanoseconds / 1_000_000_000
