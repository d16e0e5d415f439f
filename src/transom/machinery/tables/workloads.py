"""Cells of the kinds that make pods, scale them or limit their disruption. They see objects in the storage version."""

from __future__ import annotations

from typing import Any

from transom.machinery.tables.text import (
    NONE,
    UNKNOWN,
    UNSET,
    Object,
    age,
    containers,
    human_duration,
    labels,
    name,
    part,
    selector,
    selector_string,
    shortened,
    since,
    timestamp,
)

_HPA_METRICS_SHOWN = 2


def _replicas(obj: Object, now: float) -> list[Any]:
    status = part(obj, "status")
    return [
        name(obj),
        part(obj, "spec").get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age(obj, now),
        *containers(part(obj, "spec", "template", "spec")),
    ]


def replication_controller(obj: Object, now: float) -> list[Any]:
    return [*_replicas(obj, now), labels(part(obj, "spec", "selector"))]


def replica_set(obj: Object, now: float) -> list[Any]:
    return [*_replicas(obj, now), selector(part(obj, "spec", "selector"))]


def deployment(obj: Object, now: float) -> list[Any]:
    status = part(obj, "status")
    return [
        name(obj),
        f"{status.get('readyReplicas', 0)}/{part(obj, 'spec').get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age(obj, now),
        *containers(part(obj, "spec", "template", "spec")),
        selector_string(part(obj, "spec", "selector")),
    ]


def stateful_set(obj: Object, now: float) -> list[Any]:
    ready = part(obj, "status").get("readyReplicas", 0)
    return [
        name(obj),
        f"{ready}/{part(obj, 'spec').get('replicas', 0)}",
        age(obj, now),
        *containers(part(obj, "spec", "template", "spec")),
    ]


def daemon_set(obj: Object, now: float) -> list[Any]:
    status = part(obj, "status")
    return [
        name(obj),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels(part(obj, "spec", "template", "spec", "nodeSelector")),
        age(obj, now),
        *containers(part(obj, "spec", "template", "spec")),
        selector(part(obj, "spec", "selector")),
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


def job(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        name(obj),
        _completions(spec, status),
        _job_duration(status, now),
        age(obj, now),
        *containers(part(spec, "template", "spec")),
        selector(spec.get("selector")),
    ]


def cron_job(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    suspend, last = spec.get("suspend"), status.get("lastScheduleTime")
    return [
        name(obj),
        spec.get("schedule", ""),
        UNSET if suspend is None else str(suspend),
        len(status.get("active") or ()),
        since(last, now) if last else NONE,
        age(obj, now),
        *containers(part(spec, "jobTemplate", "spec", "template", "spec")),
        selector(part(spec, "jobTemplate", "spec", "selector")),
    ]


def controller_revision(obj: Object, now: float) -> list[Any]:
    owner = next((o for o in obj["metadata"].get("ownerReferences") or () if o.get("controller")), None)
    controller = NONE
    if owner is not None:
        group = owner.get("apiVersion", "").rpartition("/")[0]
        kind = f"{owner.get('kind', '')}.{group}" if group else owner.get("kind", "")
        controller = f"{kind.lower()}/{owner.get('name', '')}"
    return [name(obj), controller, obj.get("revision", 0), age(obj, now)]


def pod_disruption_budget(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    limits = [str(v) if (v := spec.get(key)) is not None else "N/A" for key in ("minAvailable", "maxUnavailable")]
    return [name(obj), *limits, part(obj, "status").get("disruptionsAllowed", 0), age(obj, now)]


# source of a metric -> (field of spec and status, whether `(avg)` marks an average)
_METRICS = {
    "External": ("external", True),
    "Object": ("object", True),
    "Pods": ("pods", False),
    "Resource": ("resource", False),
    "ContainerResource": ("containerResource", False),
}
_NIL = "<nil>"  # what Go prints for a quantity that is not there


def _metric(spec: Object, status: Object) -> str:
    """`current/target` of one metric: an average, an amount or a share of the request."""
    source = spec.get("type", "")
    if source not in _METRICS:
        return "<unknown type>"
    field, may_be_total = _METRICS[source]
    target = part(spec, field, "target")
    observed = status.get(field)
    current = part(observed, "current") if observed else {}
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
    return f"{UNKNOWN if used is None else f'{used}%'}/{'<auto>' if wanted is None else f'{wanted}%'}"


def horizontal_pod_autoscaler(obj: Object, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    metrics = spec.get("metrics") or ()
    observed = status.get("currentMetrics") or ()
    texts = [_metric(m, observed[i] if i < len(observed) else {}) for i, m in enumerate(metrics)]
    reference, least = part(spec, "scaleTargetRef"), spec.get("minReplicas")
    return [
        name(obj),
        f"{reference.get('kind', '')}/{reference.get('name', '')}",
        shortened(texts, _HPA_METRICS_SHOWN, ", ") if texts else NONE,
        UNSET if least is None else str(least),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age(obj, now),
    ]


CELLS = {
    "/ReplicationController": replication_controller,
    "apps/ControllerRevision": controller_revision,
    "apps/DaemonSet": daemon_set,
    "apps/Deployment": deployment,
    "apps/ReplicaSet": replica_set,
    "apps/StatefulSet": stateful_set,
    "autoscaling/HorizontalPodAutoscaler": horizontal_pod_autoscaler,
    "batch/CronJob": cron_job,
    "batch/Job": job,
    "policy/PodDisruptionBudget": pod_disruption_budget,
}
