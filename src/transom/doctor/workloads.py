"""Checks of the controllers that create and scale pods: Deployments, StatefulSets, DaemonSets,
Jobs, autoscalers, budgets, quotas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from transom.doctor import causes, repairs
from transom.doctor.findings import DoctorFinding
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    condition_text,
    event_message,
    event_time,
    key_of_object,
    place_of_object,
    status_condition,
    time_of,
)
from transom.machinery.cron import CronSchedule
from transom.machinery.selectors import from_object
from transom.machinery.validation.cron import CronError

_RECENT: Final = 1200.0  # seconds for which an event about a retried operation counts
_RECENT_SECONDS: Final = 180.0
_REVISION: Final = "deployment.kubernetes.io/revision"
_CREATING: Final = {
    "ReplicaSet": "replicasets",
    "ReplicationController": "replicationcontrollers",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Job": "jobs",
}
_SCALING: Final[tuple[tuple[str, str, str], ...]] = (
    (
        r"(external|custom) metrics API|(external|custom)\.metrics\.k8s\.io",
        "no API for {0} metrics is installed",
        "Install an adapter that serves {0}.metrics.k8s.io, or use a cpu or memory metric.",
    ),
    (
        r"missing request for (\w+)",
        "a container of its pods does not request {0}",
        "Set resources.requests.{0} in the pods' template.",
    ),
    (
        r"could not find the requested resource \(get \w+\.metrics\.k8s\.io\)|metrics\.k8s\.io.* is not available",
        "the resource metrics API is not available",
        "Install or repair metrics-server: kubectl get apiservice v1beta1.metrics.k8s.io",
    ),
    (
        r"no metrics returned|unable to fetch metrics|unable to get metrics|metrics\.k8s\.io",
        "no metrics of its pods are available",
        "Start its pods; check the metrics API: kubectl top pods",
    ),
    (
        r"not found|FailedGetScale|no matches for kind",
        "its scaleTargetRef does not exist",
        "Correct spec.scaleTargetRef.",
    ),
    (
        r"[Ss]elector",
        "its target has no selector",
        "Use a target with a scale subresource and a selector.",
    ),
)


def check_creating(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Controllers that cannot create their pods: a quota, a webhook, a missing ServiceAccount, an
    invalid template.
    """
    for kind, plural in _CREATING.items():
        for owner in s.of(plural):
            if _complete(s, kind, owner):
                continue
            for event in s.warnings_of(kind, owner, "FailedCreate")[:1]:
                if s.now - event_time(event) < _RECENT:
                    yield _cannot_create(s, kind, owner, event_message(event))
    for job in s.of("cronjobs"):
        for event in s.warnings_of("CronJob", job, "FailedCreate")[:1]:
            if s.now - event_time(event) < _RECENT_SECONDS:
                yield _cannot_create(s, "CronJob", job, event_message(event))


def _cannot_create(s: ClusterSnapshot, kind: str, owner: Object, text: str) -> DoctorFinding:
    plain = re.sub(
        r'(?:pods|jobs)(?:\.batch)? "[^"]*" is forbidden',
        "it is forbidden",
        text.removeprefix("Error creating: "),
    )
    found = causes.explain_text(
        causes.REFUSED, "FailedCreate", text, known={"namespace": key_of_object(owner)[0]}
    )
    above = [
        f"{one['kind'].lower()}/{key_of_object(owner)[0]}/{one['name']}"
        for one in owner["metadata"].get("ownerReferences") or ()
        if one.get("kind") in ("Deployment", "CronJob")
    ]
    where = (place_of_object(kind.lower(), owner), *above)
    made = "Jobs" if kind == "CronJob" else "pods"
    if found is not None:
        return DoctorFinding(
            "error",
            f"cannot create its {made}: {found.cause} ({plain})",
            where,
            f"The {made} that it wants do not exist.",
            found.remedy,
            commands=(
                *(_allow_creating(s, owner, text) or found.commands),
                repairs.create_pods_now(kind, owner, s.now),
            ),
        )
    return DoctorFinding(
        "error",
        f"cannot create its {made}: {plain}",
        where,
        f"The {made} that it wants do not exist.",
        "Correct what the message names.",
    )


def _allow_creating(s: ClusterSnapshot, owner: Object, text: str) -> tuple[str, ...]:
    """Raises the quota that the message names, or removes the webhook that does not answer."""
    if exceeded := re.search(r"exceeded quota: ([^,\s]+)", text):
        wanted = (key_of_object(owner)[0], exceeded[1])
        quotas = (one for one in s.of("resourcequotas") if key_of_object(one) == wanted)
        return repairs.raise_quota(next(quotas, None), owner)
    if most := re.search(r"maximum (cpu|memory) usage per Container is (\S+), but", text):
        found = repairs.find_workload(s, owner)
        if found is not None:
            namespace, called = key_of_object(found[1])
            amount = f"{most[1]}={most[2].rstrip('.')}"
            return (
                f"kubectl set resources {found[0].lower()} {called} --namespace {namespace} "
                f"--requests={amount} --limits={amount}",
            )
    if silent := re.search(r'failed calling webhook "([^"]+)"', text):
        for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
            for one in s.of(f"{kind}s"):
                if silent[1] in [hook.get("name") for hook in one.get("webhooks") or ()]:
                    return (f"kubectl delete {kind} {key_of_object(one)[1]}",)
    return ()


def _complete(s: ClusterSnapshot, kind: str, owner: Object) -> bool:
    spec, status = owner.get("spec") or {}, owner.get("status") or {}
    if kind == "DaemonSet":
        # The controller does not update the status while pods cannot be created, so the newest
        # event counts. A success in the same second wins: a failure would be reported again soon.
        tried = {"FailedCreate": 0.0, "SuccessfulCreate": 0.0}
        for event in s.events_of(kind, owner):
            if event.get("reason") in tried:
                tried[event["reason"]] = max(tried[event["reason"]], event_time(event))
        return tried["SuccessfulCreate"] >= tried["FailedCreate"]
    if kind == "Job":
        return bool(
            status.get("active", 0) or status.get("completionTime") or status.get("succeeded")
        )
    return bool(status.get("replicas", 0) >= spec.get("replicas", 1))


def check_deployments(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for one in s.of("deployments"):
        where, spec, status = (
            (place_of_object("deployment", one),),
            one.get("spec") or {},
            one.get("status") or {},
        )
        progressing = status_condition(one, "Progressing")
        namespace, called = key_of_object(one)
        if progressing.get("status") == "False":
            yield DoctorFinding(
                "error",
                f"its rollout is stuck: {condition_text(progressing)}",
                where,
                "Its new pods do not become ready.",
                "Repair its pods"
                + (
                    f"; or go back: kubectl rollout undo deployment {called} --namespace {namespace}"
                    if (one["metadata"].get("annotations") or {}).get(_REVISION, "1") != "1"
                    else "."
                ),
            )
        if spec.get("paused") and status.get("updatedReplicas", 0) < spec.get("replicas", 1):
            yield DoctorFinding(
                "info",
                "is paused, and has pods of an older template",
                where,
                "Changes are not rolled out.",
                f"kubectl rollout resume deployment {called} --namespace {namespace}",
            )


def check_stateful_sets(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for one in s.of("statefulsets"):
        service = (one.get("spec") or {}).get("serviceName", "")
        if (
            service
            and (key_of_object(one)[0], service) not in s.service
            and "services" not in s.unread
        ):
            yield DoctorFinding(
                "warning",
                f"its Service {service} does not exist",
                (place_of_object("statefulset", one),),
                "Its pods have no names of their own in DNS.",
                f"Create a headless Service {service} in namespace {key_of_object(one)[0]}.",
                commands=_headless_service(one, str(service)),
            )
            continue
        found = s.service.get((key_of_object(one)[0], service))
        if found is not None and found["spec"].get("clusterIP") != "None":
            yield DoctorFinding(
                "warning",
                f"its Service {service} is not headless: it has the address {found['spec'].get('clusterIP', '')}",
                (place_of_object("statefulset", one),),
                "Its pods have no names of their own in DNS.",
                f"Delete the Service {service} and create it with clusterIP: None.",
            )


def _headless_service(owner: Object, service: str) -> tuple[str, ...]:
    namespace = key_of_object(owner)[0]
    labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    return (
        f"kubectl create service clusterip {service} --clusterip=None --namespace {namespace}",
        f"kubectl set selector service {service} {selector} --namespace {namespace}",
    )


def check_daemon_sets(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for one in s.of("daemonsets"):
        status = one.get("status") or {}
        if (
            s.nodes
            and status.get("observedGeneration")
            and not status.get("desiredNumberScheduled")
        ):
            yield DoctorFinding(
                "info",
                "runs on no node: its node selector and tolerations fit none",
                (place_of_object("daemonset", one),),
                "It has no pods.",
                "Correct nodeSelector, affinity and tolerations of its template.",
            )
        elif status.get("numberMisscheduled"):
            yield DoctorFinding(
                "info",
                f"has {status['numberMisscheduled']} pods on nodes that it no longer selects",
                (place_of_object("daemonset", one),),
                "These pods are removed.",
                "Wait, or delete the pods.",
            )


def cron_jobs(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """CronJobs that do not start Jobs."""
    for one in s.of("cronjobs"):
        namespace = key_of_object(one)[0]
        where, spec = (place_of_object("cronjob", one),), one.get("spec") or {}
        if spec.get("suspend"):
            continue  # as its owner wants
        if spec.get("concurrencyPolicy") == "Forbid" and _overdue(s, one):
            running = str(one["status"]["active"][0].get("name", ""))
            yield DoctorFinding(
                "warning",
                f"starts no Jobs: its Job {running} still runs, and concurrencyPolicy is Forbid",
                where,
                "Starts that fall into the time of a running Job are skipped.",
                f"Let the Job end (activeDeadlineSeconds), or kubectl delete job {running} --namespace "
                f"{namespace}; or set concurrencyPolicy to Replace or Allow.",
            )
        elif _never_due(str(spec.get("schedule", "")), s.now):
            yield DoctorFinding(
                "warning",
                f"its schedule {spec['schedule']!r} names a day that no month has",
                where,
                "It never starts a Job.",
                "Correct spec.schedule.",
            )


def _overdue(s: ClusterSnapshot, job: Object) -> bool:
    """Whether a CronJob with an active Job has passed two starts since the last one."""
    status = job.get("status") or {}
    last = time_of(str(status.get("lastScheduleTime") or ""))
    if not status.get("active") or not last:
        return False
    try:
        schedule = CronSchedule(str((job.get("spec") or {}).get("schedule", "")))
    except CronError:
        return False
    first = schedule.next(last)
    second = schedule.next(first) if first is not None else None
    return second is not None and second < s.now


def _never_due(schedule: str, now: float) -> bool:
    try:
        return CronSchedule(schedule).next(now) is None
    except CronError:  # a newer API server may accept more
        return False


def check_jobs(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for one in s.of("jobs"):
        yield from _unfinished_job(s, one)
        failed = status_condition(one, "Failed")
        if failed.get("status") == "True":
            namespace, called = key_of_object(one)
            remedy = {
                "DeadlineExceeded": (
                    "Raise activeDeadlineSeconds, or make it finish sooner; then create the Job "
                    "again."
                ),
            }.get(
                str(failed.get("reason")),
                f"Read the log: kubectl logs job/{called} --namespace {namespace}; correct it, "
                "then delete and create the Job again.",
            )
            yield DoctorFinding(
                "error",
                f"has failed: {condition_text(failed)}",
                (place_of_object("job", one),),
                "Its work is not done.",
                remedy,
            )


def _unfinished_job(s: ClusterSnapshot, job: Object) -> Iterator[DoctorFinding]:
    """A Job whose pods fail and are tried again."""
    namespace, called = key_of_object(job)
    where, spec, status = (
        (place_of_object("job", job),),
        job.get("spec") or {},
        job.get("status") or {},
    )
    if status_condition(job, "Failed") or status_condition(job, "Complete"):
        return
    if spec.get("suspend"):
        return  # as its owner wants
    if status.get("failed"):
        uid = job["metadata"].get("uid", "")
        codes = sorted(
            {
                str(ended["exitCode"])
                for pod in s.pods_in(namespace)
                if any(o.get("uid") == uid for o in pod["metadata"].get("ownerReferences") or ())
                for container in (pod.get("status") or {}).get("containerStatuses") or ()
                if (ended := (container.get("state") or {}).get("terminated") or {}).get("exitCode")
            }
        )
        yield DoctorFinding(
            "warning",
            f"{status['failed']} of its pods failed"
            + (f" (exit code {', '.join(codes)})" if codes else "")
            + f"; it tries again until {int(spec.get('backoffLimit', 6)) + 1} have failed",
            where,
            "Its work is not done yet.",
            f"Read the log: kubectl logs job/{called} --namespace {namespace}; correct it, then delete and "
            "create the Job again.",
        )


def check_autoscalers(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for one in s.of("horizontalpodautoscalers"):
        for kind in ("AbleToScale", "ScalingActive"):
            found = status_condition(one, kind)
            if found.get("status") == "False" and found.get("reason") != "ScalingDisabled":
                text = condition_text(found)
                cause, remedy = (
                    "it cannot compute the number of replicas",
                    "Correct what the message names.",
                )
                for pattern, meant, do in _SCALING:
                    match = re.search(pattern, text)
                    if match is not None:
                        groups = [one for one in match.groups() if one is not None]
                        cause, remedy = meant.format(*groups), do.format(*groups)
                        break
                yield DoctorFinding(
                    "warning",
                    f"does not scale: {cause} ({text})",
                    (place_of_object("horizontalpodautoscaler", one),),
                    "The number of replicas stays as it is.",
                    remedy,
                    commands=_request(s, one, text),
                )
                break


def _request(s: ClusterSnapshot, autoscaler: Object, text: str) -> tuple[str, ...]:
    """Gives the containers that request none of a resource a first request."""
    missing = re.search(r"missing request for (cpu|memory)", text)
    target = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    if missing is None or target.get("kind") not in ("Deployment", "StatefulSet"):
        return ()
    namespace, wanted = key_of_object(autoscaler)[0], str(target.get("name", ""))
    owners = s.of(f"{target['kind'].lower()}s")
    owner = next((one for one in owners if key_of_object(one) == (namespace, wanted)), None)
    containers = owner["spec"]["template"]["spec"]["containers"] if owner is not None else ()
    without = [
        str(one["name"])
        for one in containers
        if missing[1] not in ((one.get("resources") or {}).get("requests") or {})
    ]
    amount = "cpu=100m" if missing[1] == "cpu" else "memory=128Mi"
    return tuple(
        f"kubectl set resources {target['kind'].lower()} {wanted} --namespace {namespace} "
        f"--containers={name} --requests={amount}"
        for name in without
    )


def check_shared_targets(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Two autoscalers of one target override each other's replica counts."""
    scalers: dict[tuple[str, str, str], list[Object]] = {}
    for one in s.of("horizontalpodautoscalers"):
        target = (one.get("spec") or {}).get("scaleTargetRef") or {}
        named = key_of_object(one)[0], str(target.get("kind", "")), str(target.get("name", ""))
        scalers.setdefault(named, []).append(one)
    for (_, kind, called), found in scalers.items():
        if len(found) > 1:
            yield DoctorFinding(
                "warning",
                f"several autoscalers scale {kind} {called}",
                tuple(place_of_object("horizontalpodautoscaler", one) for one in found),
                "Each of them undoes what the other has set.",
                "Keep one of them; it may have several metrics.",
            )


def check_budgets(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for one in s.of("poddisruptionbudgets"):
        status, where = one.get("status") or {}, (place_of_object("poddisruptionbudget", one),)
        if not status.get("observedGeneration"):
            continue
        if not status.get("expectedPods"):
            yield DoctorFinding(
                "info",
                "selects no pods",
                where,
                "It protects nothing.",
                "Correct spec.selector.",
            )
        elif not status.get("disruptionsAllowed") and not status.get("disruptedPods"):
            yield from _allows_nothing(s, one, status, where)


def _allows_nothing(
    s: ClusterSnapshot, budget: Object, status: Object, where: tuple[str, ...]
) -> Iterator[DoctorFinding]:
    """No pod of the budget may be evicted, so `kubectl drain` of their nodes does not finish."""
    healthy, desired, expected = (
        int(status.get(field) or 0)
        for field in ("currentHealthy", "desiredHealthy", "expectedPods")
    )
    selector = from_object((budget.get("spec") or {}).get("selector") or {})
    pods = [
        pod
        for pod in s.pods_in(key_of_object(budget)[0])
        if selector.matches(pod["metadata"].get("labels") or {})
    ]
    draining = sorted(
        {
            str(pod["spec"]["nodeName"])
            for pod in pods
            if (s.node.get((pod.get("spec") or {}).get("nodeName", "")) or {"spec": {}})[
                "spec"
            ].get("unschedulable")
        }
    )
    if desired > expected:
        cause = f"can never allow a disruption: it requires {desired} healthy pods of {expected}"
        remedy = f"Lower minAvailable below {expected}, or run more replicas."
    elif healthy >= expected:
        cause = f"allows no disruption even while all of its {expected} pods are healthy"
        remedy = "Lower minAvailable (or raise maxUnavailable), or run more replicas."
    elif draining:
        cause = f"allows no disruption: {healthy} of its pods are healthy, {desired} must be"
        remedy = "Repair its pods, run more replicas, or lower minAvailable."
    else:
        return  # its unhealthy pods have their own findings
    yield DoctorFinding(
        "warning" if draining else "info",
        cause,
        where,
        f"kubectl drain {draining[0]} waits for it."
        if draining
        else "kubectl drain of a node with one of its pods does not end.",
        remedy,
        commands=_one_replica_more(s, pods, desired) if healthy >= expected else (),
    )


def _one_replica_more(s: ClusterSnapshot, pods: Sequence[Object], desired: int) -> tuple[str, ...]:
    """Runs more pods than the budget requires, if one workload has them all."""
    found = repairs.find_workload(s, pods[0]) if pods else None
    if found is None or found[0] == "DaemonSet":
        return ()
    namespace, called = key_of_object(found[1])
    for scaler in s.of("horizontalpodautoscalers"):
        target = (scaler.get("spec") or {}).get("scaleTargetRef") or {}
        named = (key_of_object(scaler)[0], target.get("kind"), target.get("name"))
        if named == (namespace, found[0], called):
            least = {"spec": {"minReplicas": desired + 1}}
            return (repairs.patch_command("horizontalpodautoscaler", scaler, least),)
    return (
        f"kubectl scale {found[0].lower()} {called} --namespace {namespace} --replicas {desired + 1}",
    )


def check_quotas(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for quota in s.of("resourcequotas"):
        status = quota.get("status") or {}
        used = status.get("used") or {}
        full = [
            n
            for n, hard in (status.get("hard") or {}).items()
            if hard == used.get(n) and hard not in ("0", 0)
        ]
        if full:
            yield DoctorFinding(
                "info",
                f"is used up: {', '.join(sorted(full))}",
                (place_of_object("resourcequota", quota),),
                "New objects that need it are refused.",
                "Raise the quota before more is needed.",
            )
