"""Strategies of resource.k8s.io: admin access needs a label of the namespace, taints get their time,
and the status of a device goes with its allocation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.strategies.base import StorageRules, Strategy
from transom.kit.clock import rfc3339
from transom.machinery.field import FieldError, forbidden, internal_error
from transom.machinery.objects import Object

_ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_STATUS_KEEPS = ("labels", "annotations", "ownerReferences", "finalizers")


def _admin_access(storage: StorageRules, namespace: str, path: str) -> list[FieldError]:
    record = storage.store.get(f"namespaces/{namespace}")
    if record is None:
        text = f'namespaces "{namespace}" not found'
        return [
            internal_error(path, f"could not retrieve namespace to verify admin access: {text}")
        ]
    labels = orjson.loads(record.value)["metadata"].get("labels") or {}
    if labels.get(_ADMIN_LABEL) == "true":
        return []
    text = (
        f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing "
        "namespace"
    )
    return [forbidden(path, text)]


def _admin_requested(spec: Mapping[str, Any]) -> str:
    """The path of the first request for admin access, or an empty text."""
    for i, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            return f"spec.devices.requests[{i}].adminAccess"
    return ""


def _admin_allocated(status: Mapping[str, Any]) -> str:
    devices = (status.get("allocation") or {}).get("devices") or {}
    for i, result in enumerate(devices.get("results") or ()):
        if result.get("adminAccess"):
            return f"status.allocation.devices.results[{i}].adminAccess"
    return ""


def _claim_errors(
    storage: StorageRules, _ctx: RequestContext, new: Object, old: Object | None, subresource: str
) -> Sequence[FieldError]:
    path = ""
    if old is None:
        path = _admin_requested(new.get("spec") or {})
    elif subresource == "status" and not _admin_allocated(old.get("status") or {}):
        path = _admin_allocated(new.get("status") or {})
    return _admin_access(storage, new["metadata"].get("namespace", ""), path) if path else ()


def _template_errors(
    storage: StorageRules, _ctx: RequestContext, new: Object, old: Object | None, _subresource: str
) -> Sequence[FieldError]:
    if old is not None:  # the spec is immutable
        return ()
    path = _admin_requested((new.get("spec") or {}).get("spec") or {})
    return _admin_access(storage, new["metadata"].get("namespace", ""), path) if path else ()


def _device_key(device: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(device.get(name, "") for name in ("driver", "pool", "device", "shareID"))


def _allocated(status: Mapping[str, Any]) -> set[tuple[str, ...]]:
    devices = (status.get("allocation") or {}).get("devices") or {}
    return {_device_key(result) for result in devices.get("results") or ()}


def _claim_status(_storage: StorageRules, _ctx: RequestContext, new: Object, old: Object) -> None:
    """Drops the status of devices that are no longer allocated."""
    status = new.get("status") or {}
    gone = _allocated(old.get("status") or {}) - _allocated(status)
    devices = status.get("devices") or ()
    kept = [device for device in devices if _device_key(device) not in gone]
    if len(kept) != len(devices):
        status = {name: value for name, value in status.items() if name != "devices"}
        new["status"] = {**status, "devices": kept} if kept else status


def _add_time(ctx: RequestContext, taint: Object) -> None:
    taint.setdefault("timeAdded", rfc3339(ctx.now))


def _slice_times(
    _storage: StorageRules, ctx: RequestContext, new: Object, _old: Object | None = None
) -> None:
    for device in (new.get("spec") or {}).get("devices") or ():
        for taint in device.get("taints") or ():
            _add_time(ctx, taint)


def _rule_time(
    _storage: StorageRules, ctx: RequestContext, new: Object, _old: Object | None = None
) -> None:
    taint = (new.get("spec") or {}).get("taint")
    if taint is not None:
        _add_time(ctx, taint)


CLAIM = Strategy(find_errors=_claim_errors, on_status=_claim_status, status_keeps=_STATUS_KEEPS)
CLAIM_TEMPLATE = Strategy(has_status=False, find_errors=_template_errors)
SLICE = Strategy(
    has_status=False, generation=("spec",), on_create=_slice_times, on_update=_slice_times
)
TAINT_RULE = Strategy(
    generation=("spec",), on_create=_rule_time, on_update=_rule_time, status_keeps=_STATUS_KEEPS
)
