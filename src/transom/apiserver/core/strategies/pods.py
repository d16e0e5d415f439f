"""Pods: initial status, fields behind gates that are disabled in 1.20, graceful deletion."""

from __future__ import annotations

from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.strategies.base import StorageRules, Strategy
from transom.kit.clock import rfc3339
from transom.machinery import podutil
from transom.machinery.objects import Object
from transom.machinery.releases.behaviour import has_behaviour

# The releases that added these fields of pods; earlier API servers do not know them.
_POD_OS = (1, 23)
_HOST_PROCESS = (1, 22)
_EPHEMERAL_VOLUMES = (1, 21)


def drop_disabled_pod_fields(
    storage: StorageRules, template: Object | None, old: Object | None
) -> None:
    """Fields that the API server drops unless the stored object already has them."""
    spec = (template or {}).get("spec")
    if not spec:
        return
    old_spec = (old or {}).get("spec") or {}
    if "ephemeralContainers" in spec and not old_spec.get("ephemeralContainers"):
        del spec["ephemeralContainers"]
    if storage.release < _POD_OS:
        spec.pop("os", None)
    if storage.release < _HOST_PROCESS:
        for holder in (spec, *podutil.visit_containers(spec)):
            options = (holder.get("securityContext") or {}).get("windowsOptions")
            if options:
                options.pop("hostProcess", None)
    if storage.release < _EPHEMERAL_VOLUMES and not _uses_inline_csi(old_spec):
        for volume in spec.get("volumes") or ():
            volume.pop("ephemeral", None)
    for container in podutil.visit_containers(spec):
        context = container.get("securityContext")
        if context and "procMount" in context and not _uses_proc_mount(old_spec):
            context["procMount"] = "Default"  # not dropped: 1.12 always stored it


def _uses_proc_mount(spec: Object) -> bool:
    return any(
        (c.get("securityContext") or {}).get("procMount") not in (None, "Default")
        for c in podutil.visit_containers(spec)
    )


def _uses_inline_csi(spec: Object) -> bool:
    return any(volume.get("csi") is not None for volume in spec.get("volumes") or ())


def _create(storage: StorageRules, ctx: RequestContext, obj: Object) -> None:
    obj["status"] = {"phase": "Pending", "qosClass": podutil.qos_class(obj)}
    drop_disabled_pod_fields(storage, obj, None)
    podutil.sync_seccomp(obj)
    if (obj.get("spec") or {}).get("schedulingGates"):
        obj["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": rfc3339(ctx.now),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    if has_behaviour(storage.release, "PodGeneration"):
        obj["metadata"]["generation"] = 1


def _update(storage: StorageRules, _ctx: RequestContext, new: Object, old: Object) -> None:
    drop_disabled_pod_fields(storage, new, old)
    if has_behaviour(storage.release, "PodGeneration") and new["spec"] != old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _status(_storage: StorageRules, _ctx: RequestContext, new: Object, old: Object) -> None:
    new["metadata"].pop("deletionTimestamp", None)
    if "ownerReferences" in old["metadata"]:
        new["metadata"]["ownerReferences"] = old["metadata"]["ownerReferences"]
    else:
        new["metadata"].pop("ownerReferences", None)


def _grace_period(pod: Object, asked: int | None) -> int:
    """Pods without a node and terminated pods are deleted without a grace period."""
    period = asked
    spec = pod.get("spec") or {}
    if period is None:
        period = spec.get("terminationGracePeriodSeconds", 0)
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in (
        "Failed",
        "Succeeded",
    ):
        return 0
    return period


STRATEGY = Strategy(
    return_deleted=True,
    pure=True,
    on_create=_create,
    on_update=_update,
    on_status=_status,
    grace_period=_grace_period,
)
