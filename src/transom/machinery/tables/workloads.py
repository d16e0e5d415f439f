"""Cells of the kinds that create pods, scale them or limit their disruption. Objects are in the
storage version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.machinery.tables.text import (
    NONE,
    UNKNOWN,
    UNSET,
    Object,
    age_cell,
    container_cells,
    human_duration,
    labels_cell,
    name_cell,
    part_cell,
    selector_cell,
    selector_string,
    shorten_list,
    since_cell,
    timestamp,
)

_HPA_METRICS_SHOWN = 2


def _replicas(obj: Object, now: float) -> list[Any]:
    status = part_cell(obj, "status")
    return [
        name_cell(obj),
        part_cell(obj, "spec").get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age_cell(obj, now),
        *container_cells(part_cell(obj, "spec", "template", "spec")),
    ]


def print_replication_controller(obj: Object, now: float) -> list[Any]:
    return [*_replicas(obj, now), labels_cell(part_cell(obj, "spec", "selector"))]


def print_replica_set(obj: Object, now: float) -> list[Any]:
    return [*_replicas(obj, now), selector_cell(part_cell(obj, "spec", "selector"))]


def print_deployment(obj: Object, now: float) -> list[Any]:
    status = part_cell(obj, "status")
    return [
        name_cell(obj),
        f"{status.get('readyReplicas', 0)}/{part_cell(obj, 'spec').get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age_cell(obj, now),
        *container_cells(part_cell(obj, "spec", "template", "spec")),
        selector_string(part_cell(obj, "spec", "selector")),
    ]


def print_stateful_set(obj: Object, now: float) -> list[Any]:
    ready = part_cell(obj, "status").get("readyReplicas", 0)
    return [
        name_cell(obj),
        f"{ready}/{part_cell(obj, 'spec').get('replicas', 0)}",
        age_cell(obj, now),
        *container_cells(part_cell(obj, "spec", "template", "spec")),
    ]


def print_daemon_set(obj: Object, now: float) -> list[Any]:
    status = part_cell(obj, "status")
    return [
        name_cell(obj),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels_cell(part_cell(obj, "spec", "template", "spec", "nodeSelector")),
        age_cell(obj, now),
        *container_cells(part_cell(obj, "spec", "template", "spec")),
        selector_cell(part_cell(obj, "spec", "selector")),
    ]


def _completions(spec: Object, status: Object) -> str:
    done = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(status: Object, now: float) -> str:
    if not status.get("startTime"):
        return ""
    end = timestamp(status["completionTime"]) if status.get("completionTime") else now
    return human_duration(end - timestamp(status["startTime"]))


def print_job(obj: Object, now: float) -> list[Any]:
    spec, status = part_cell(obj, "spec"), part_cell(obj, "status")
    return [
        name_cell(obj),
        _completions(spec, status),
        _job_duration(status, now),
        age_cell(obj, now),
        *container_cells(part_cell(spec, "template", "spec")),
        selector_cell(spec.get("selector")),
    ]


def print_cron_job(obj: Object, now: float) -> list[Any]:
    spec, status = part_cell(obj, "spec"), part_cell(obj, "status")
    suspend, last = spec.get("suspend"), status.get("lastScheduleTime")
    return [
        name_cell(obj),
        spec.get("schedule", ""),
        UNSET if suspend is None else str(suspend),
        len(status.get("active") or ()),
        since_cell(last, now) if last else NONE,
        age_cell(obj, now),
        *container_cells(part_cell(spec, "jobTemplate", "spec", "template", "spec")),
        selector_cell(part_cell(spec, "jobTemplate", "spec", "selector")),
    ]


def print_controller_revision(obj: Object, now: float) -> list[Any]:
    owner = next(
        (o for o in obj["metadata"].get("ownerReferences") or () if o.get("controller")), None
    )
    controller = NONE
    if owner is not None:
        group = owner.get("apiVersion", "").rpartition("/")[0]
        kind = f"{owner.get('kind', '')}.{group}" if group else owner.get("kind", "")
        controller = f"{kind.lower()}/{owner.get('name', '')}"
    return [name_cell(obj), controller, obj.get("revision", 0), age_cell(obj, now)]


def print_pod_disruption_budget(obj: Object, now: float) -> list[Any]:
    spec = part_cell(obj, "spec")
    limits = [
        str(v) if (v := spec.get(key)) is not None else "N/A"
        for key in ("minAvailable", "maxUnavailable")
    ]
    return [
        name_cell(obj),
        *limits,
        part_cell(obj, "status").get("disruptionsAllowed", 0),
        age_cell(obj, now),
    ]


# source of a metric -> (field of spec and status, whether `(avg)` marks an average)
_METRICS = {
    "External": ("external", True),
    "Object": ("object", True),
    "Pods": ("pods", False),
    "Resource": ("resource", False),
    "ContainerResource": ("containerResource", False),
}
_NIL = "<nil>"  # Go's output for a missing quantity


def _metric(spec: Object, status: Object) -> str:
    """`current/target` of one metric: an average, an amount or a share of the request."""
    source = spec.get("type", "")
    if source not in _METRICS:
        return "<unknown type>"
    field, may_be_total = _METRICS[source]
    target = part_cell(spec, field, "target")
    observed = status.get(field)
    current = part_cell(observed, "current") if observed else {}
    average = target.get("averageValue")
    if source == "Pods":
        return f"{current.get('averageValue', _NIL) if observed else UNKNOWN}/{average or _NIL}"
    if may_be_total:
        if average is not None:
            return f"{current.get('averageValue', UNKNOWN)}/{average} (avg)"
        return f"{current.get('value', _NIL) if observed else UNKNOWN}/{target.get('value', _NIL)}"
    if average is not None:
        return f"{current.get('averageValue', _NIL) if observed else UNKNOWN}/{average}"
    used, wanted = current.get("averageUtilization"), target.get("averageUtilization")
    return (
        f"{UNKNOWN if used is None else f'{used}%'}/{'<auto>' if wanted is None else f'{wanted}%'}"
    )


def _named_metric(spec: Object, status: Object) -> str:
    """Names the resource of a metric, as newer releases do."""
    field = _METRICS.get(spec.get("type", ""), ("",))[0]
    text = _metric(spec, status)
    if field not in ("resource", "containerResource"):
        return text
    return f"{(spec.get(field) or {}).get('name', '')}: {text}"


def print_autoscaler_with_names(obj: Object, now: float) -> list[Any]:
    return print_horizontal_pod_autoscaler(obj, now, metric_text=_named_metric)


def print_horizontal_pod_autoscaler(
    obj: Object, now: float, metric_text: Callable[[Object, Object], str] = _metric
) -> list[Any]:
    spec, status = part_cell(obj, "spec"), part_cell(obj, "status")
    metrics = spec.get("metrics") or ()
    observed = status.get("currentMetrics") or ()
    texts = [
        metric_text(m, observed[i] if i < len(observed) else {}) for i, m in enumerate(metrics)
    ]
    reference, least = part_cell(spec, "scaleTargetRef"), spec.get("minReplicas")
    return [
        name_cell(obj),
        f"{reference.get('kind', '')}/{reference.get('name', '')}",
        shorten_list(texts, _HPA_METRICS_SHOWN, ", ") if texts else NONE,
        UNSET if least is None else str(least),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age_cell(obj, now),
    ]


CELLS = {
    "/ReplicationController": print_replication_controller,
    "apps/ControllerRevision": print_controller_revision,
    "apps/DaemonSet": print_daemon_set,
    "apps/Deployment": print_deployment,
    "apps/ReplicaSet": print_replica_set,
    "apps/StatefulSet": print_stateful_set,
    "autoscaling/HorizontalPodAutoscaler": print_horizontal_pod_autoscaler,
    "batch/CronJob": print_cron_job,
    "batch/Job": print_job,
    "policy/PodDisruptionBudget": print_pod_disruption_budget,
}
