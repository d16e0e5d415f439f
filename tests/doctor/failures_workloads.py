"""Failures of what creates, scales, converts and protects: workloads, webhooks, budgets, policies, finalizers."""

from __future__ import annotations

from typing import Any

from tests.doctor.failures import (
    A,
    Failure,
    Object,
    autoscaler,
    begin_delete,
    both,
    create,
    held,
    job,
    mounting,
    obj,
    patch_node,
    pod,
    release,
    remove,
    service,
    workload,
)
from tests.doctor.failures_events import HEADLESS, budget, cron, refusing

LIMITS = obj("LimitRange", "l", spec={"limits": [{"type": "Container", "max": {"memory": "10Mi"}}]})
NO_PODS = obj("ResourceQuota", "q", spec={"hard": {"pods": "0"}})
NO_JOBS = obj("ResourceQuota", "q", spec={"hard": {"count/jobs.batch": "0"}})
LARGE = {"limits": {"memory": "64Mi"}}


def made(kind: str, **more: Any) -> tuple[Object, ...]:
    if kind == "StatefulSet":
        return HEADLESS, workload(kind, spec={"serviceName": "h"}, **more)
    return (workload(kind, **more),)


def cannot_create(kind: str) -> tuple[Failure, ...]:
    """Each reason for which the API server refuses the pods of a workload."""
    where = f"{kind.lower()}/default/w"
    return (
        Failure(
            f"a {kind} without its ServiceAccount",
            where,
            "the ServiceAccount nope does not exist",
            "kubectl create serviceaccount nope --namespace default",
            made(kind, pod_spec={"serviceAccountName": "nope"}),
            (obj("ServiceAccount", "nope"),),
            covers=("FailedCreate",),
        ),
        Failure(
            f"a {kind} without quota",
            where,
            "the ResourceQuota q allows no more",
            "Raise the quota q",
            (NO_PODS, *made(kind)),
            (obj("ResourceQuota", "q", spec={"hard": {"pods": "9"}}),),
        ),
        Failure(
            f"a {kind} beyond a LimitRange",
            where,
            "a LimitRange of the namespace does not allow the resources",
            "or the LimitRange",
            (LIMITS, *made(kind, resources=LARGE)),
            made(kind, resources={"limits": {"memory": "10Mi"}}),
        ),
        Failure(
            f"a {kind} whose webhook does not answer",
            where,
            "the admission webhook hook.example.com does not answer",
            "remove its configuration",
            (refusing("pods", "CREATE"), *made(kind)),
            None,
        ),
    )


def cron_with(**spec: Any) -> Object:
    found = cron()
    found["spec"]["jobTemplate"]["spec"]["template"]["spec"] |= spec
    return found


def definition(conversion: Object) -> Object:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return obj(
        "CustomResourceDefinition",
        "things.example.com",
        "apiextensions.k8s.io/v1",
        None,
        spec={
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": schema},
                {"name": "v2", "served": True, "storage": False, "schema": schema},
            ],
            "conversion": conversion,
        },
    )


def policy(**spec: Any) -> Object:
    return obj("NetworkPolicy", "deny", "networking.k8s.io/v1", spec=spec)


WAITING_INIT = {"name": "i", "image": "busybox", "command": ["sleep", "9999"]}


def cron_job_with(schedule: str, **spec: Any) -> Object:
    return obj(
        "CronJob",
        "c",
        "batch/v1beta1",
        spec={"schedule": schedule, "jobTemplate": {"spec": job()["spec"]}, **spec},
    )


def egress_policy(rules: list[Object]) -> Object:
    return obj(
        "NetworkPolicy",
        "n",
        "networking.k8s.io/v1",
        spec={"podSelector": {}, "policyTypes": ["Egress"], "egress": rules},
    )


WORKLOAD_FAILURES: tuple[Failure, ...] = (
    *cannot_create("Deployment"),
    *cannot_create("StatefulSet"),
    *cannot_create("DaemonSet"),
    Failure(
        "a CronJob whose pods cannot be created",
        "cronjob/default/c",
        "the ServiceAccount nope does not exist",
        "kubectl create serviceaccount nope",
        (cron_with(serviceAccountName="nope"),),
        None,
    ),
    Failure(
        "a CronJob without quota",
        "cronjob/default/c",
        "cannot create its Jobs: the ResourceQuota q allows no more",
        "Raise the quota q",
        (NO_JOBS, cron()),
        None,
    ),
    Failure(
        "a webhook at a URL that does not answer",
        "validatingwebhookconfiguration/hook",
        "webhook hook.example.com calls https://127.0.0.1:1/x, which does not answer",
        "kubectl delete validatingwebhookconfiguration hook",
        (refusing("pods", "CREATE"), workload()),
        None,
    ),
    Failure(
        "a conversion webhook without its service",
        "customresourcedefinition/things.example.com",
        "its conversion webhook is service default/nope, which does not exist",
        "spec.conversion.strategy",
        (
            definition(
                {
                    "strategy": "Webhook",
                    "webhook": {
                        "conversionReviewVersions": ["v1"],
                        "clientConfig": {"service": {"name": "nope", "namespace": "default"}},
                    },
                }
            ),
        ),
        None,
    ),
    Failure(
        "a Service whose workload has no pods",
        "service/default/s",
        "Deployment w, whose pods it selects, has 0 replicas",
        "kubectl scale deployment w --namespace default --replicas 1",
        (workload(replicas=0), service(selector={"app": "w"})),
        (workload(replicas=1), service(selector={"app": "w"})),
    ),
    Failure(
        "a budget that allows no eviction",
        "poddisruptionbudget/default/b",
        "allows no disruption even while all of its 1 pods are healthy",
        "Lower minAvailable",
        (budget(selector={"app": "w"}, minAvailable=1),),
        (budget(selector={"app": "w"}, minAvailable=0),),
        first=(workload(),),
    ),
    Failure(
        "a budget that requires more pods than there are",
        "poddisruptionbudget/default/b",
        "can never allow a disruption: it requires 3 healthy pods of 1",
        "Lower minAvailable below 1, or run more replicas",
        (budget(selector={"app": "w"}, minAvailable=3),),
        (budget(selector={"app": "w"}, minAvailable=0),),
        first=(workload(),),
    ),
    Failure(
        "a drain that a budget blocks",
        "poddisruptionbudget/default/b",
        "allows no disruption",
        "run more replicas",
        (budget(selector={"app": "w"}, minAvailable=1),),
        None,
        first=(workload(),),
        do=patch_node("linux-1", {"spec": {"unschedulable": True}}),
        undo=patch_node("linux-1", {"spec": {"unschedulable": None}}),
    ),
    Failure(
        "a policy that denies all traffic",
        "service/default/s",
        "no NetworkPolicy allows traffic to its pods; deny denies it",
        "Add an ingress rule",
        (policy(podSelector={}, policyTypes=["Ingress"]),),
        (policy(podSelector={}, policyTypes=["Ingress"], ingress=[{}]),),
        first=(pod(), service(selector={"app": "a"})),
    ),
    Failure(
        "a policy for no pods",
        "networkpolicy/default/deny",
        "selects no pods",
        "Correct spec.podSelector",
        (policy(podSelector={"matchLabels": {"app": "nope"}}, policyTypes=["Ingress"]),),
        None,
    ),
    Failure(
        "two autoscalers of one target",
        "horizontalpodautoscaler/default/h2",
        "several autoscalers scale Deployment w",
        "Keep one of them",
        (
            autoscaler("w"),
            {**autoscaler("w"), "metadata": {"name": "h2", "namespace": "default"}},
        ),
        None,
        first=(workload(),),
        also=("does not scale",),
    ),
    Failure(
        "a StatefulSet that is not deleted",
        "statefulset/default/w",
        "is not deleted: it has the finalizers example.com/x",
        "kubectl patch statefulset w --namespace default",
        do=both(
            create(HEADLESS, held(workload("StatefulSet", replicas=0, spec={"serviceName": "h"}))),
            begin_delete(workload("StatefulSet")),
        ),
        undo=both(release(workload("StatefulSet")), remove(HEADLESS)),
    ),
    Failure(
        "an init container that does not end",
        A,
        "init container i still runs; the pod waits for it",
        "kubectl logs a --namespace default --container i",
        (pod(spec={"initContainers": [WAITING_INIT]}),),
        (pod(),),
        seconds=400,
    ),
    Failure(
        "a subPathExpr without its variable",
        A,
        "subPathExpr names the variable NOPE",
        "Add NOPE to the container's env",
        (mounting({"emptyDir": {}}, mount={"subPathExpr": "$(NOPE)"}),),
        (mounting({"emptyDir": {}}),),
    ),
    Failure(
        "a CronJob for a day that does not exist",
        "cronjob/default/c",
        "its schedule '0 0 31 2 *' names a day that no month has",
        "Correct spec.schedule",
        (cron_job_with("0 0 31 2 *"),),
        (cron_job_with("0 0 28 2 *"),),
    ),
    Failure(
        "a policy without a rule for DNS",
        "networkpolicy/default/n",
        "allows no DNS queries of the pods that it selects (a)",
        "Add an egress rule for port 53",
        (pod(), egress_policy([])),
        (pod(), egress_policy([{"ports": [{"port": 53, "protocol": "UDP"}]}])),
    ),
    Failure(
        "a Local node port on nodes without pods",
        "service/default/s",
        "its node ports do not answer on ",
        "set externalTrafficPolicy to Cluster",
        (pod(), service("s", {"app": "a"}, type="NodePort", externalTrafficPolicy="Local")),
        (pod(), service("s", {"app": "a"}, type="NodePort", externalTrafficPolicy="Cluster")),
    ),
)
