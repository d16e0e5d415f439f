"""Failures that components report only by an event: each is produced by the component itself.

A webhook whose server does not answer makes single writes of a controller fail.
"""

from __future__ import annotations

from typing import Any

from tests.doctor.failures import (
    NS,
    A,
    Action,
    Failure,
    Object,
    autoscaler,
    both,
    claim,
    config,
    create,
    job,
    obj,
    pod,
    remove,
    service,
    sleep,
    volume,
    workload,
)
from tests.doctor.failures_cloud import csi_volume
from tests.doctor.virtual_cluster import VirtualCluster


def refusing(resource: str, operation: str, group: str = "") -> Object:
    """A webhook that does not answer, for one kind of write."""
    return obj(
        "ValidatingWebhookConfiguration",
        "hook",
        "admissionregistration.k8s.io/v1",
        None,
        webhooks=[
            {
                "name": "hook.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "clientConfig": {"url": "https://127.0.0.1:1/x"},
                "rules": [
                    {
                        "apiGroups": [group],
                        "apiVersions": ["*"],
                        "operations": [operation],
                        "resources": [resource],
                    }
                ],
            }
        ],
    )


def patch(found: Object, body: Object, status: bool = False) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        meta, resource = found["metadata"], cluster.resource(found)
        await cluster.client.patch(
            resource,
            meta.get("namespace", ""),
            meta["name"],
            body,
            "application/merge-patch+json",
            **({"subresource": "status"} if status else {}),
        )

    return do


def replace(found: Object) -> Action:
    """Changes an object, while a webhook refuses what its controller does then."""

    async def do(cluster: VirtualCluster) -> None:
        await cluster.apply(found)

    return do


def budget(name: str = "b", selector: Object | None = None, **spec: Any) -> Object:
    found = {"matchLabels": selector or {"app": "a"}}
    return obj("PodDisruptionBudget", name, "policy/v1beta1", spec={"selector": found, **spec})


def many_endpoints(count: int) -> Object:
    addresses = [{"ip": f"10.9.{i // 250}.{i % 250 + 1}"} for i in range(count)]
    return obj("Endpoints", "s", subsets=[{"addresses": addresses, "ports": [{"port": 80}]}])


def unknown_job(name: str) -> Action:
    """A Job that a user created with the CronJob as its controller."""

    async def do(cluster: VirtualCluster) -> None:
        found = await cluster.client.get(cluster.resource(cron()), NS, "c")
        owner = {
            "apiVersion": "batch/v1beta1",
            "kind": "CronJob",
            "name": "c",
            "uid": found["metadata"]["uid"],
            "controller": True,
        }
        made = job(name)
        made["metadata"]["ownerReferences"] = [owner]
        await cluster.apply(made)

    return do


async def owned_volume(cluster: VirtualCluster) -> None:
    """A volume whose owner is an object of a namespace."""
    await cluster.apply(config(a="b"))
    found = await cluster.client.get(cluster.resource(config()), NS, "settings")
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "settings",
        "uid": found["metadata"]["uid"],
    }
    await cluster.apply(volume(metadata={"ownerReferences": [owner]}))


def cron(schedule: str = "* * * * *", **spec: Any) -> Object:
    return obj(
        "CronJob",
        "c",
        "batch/v1beta1",
        spec={"schedule": schedule, "jobTemplate": {"spec": job()["spec"]}, **spec},
    )


def stateful(replicas: int = 1, **more: Any) -> Object:
    return workload("StatefulSet", replicas=replicas, spec={"serviceName": "h"}, **more)


HEADLESS = service("h", {"app": "w"}, clusterIP="None")


EVENT_FAILURES: tuple[Failure, ...] = (
    Failure(
        "keys that cannot be variables",
        A,
        "keys of a ConfigMap or Secret are not valid names of variables",
        "Rename the keys",
        (config(**{"1-bad": "x"}), pod(envFrom=[{"configMapRef": {"name": "settings"}}])),
        (pod(),),
        covers=("InvalidEnvironmentVariableNames",),
    ),
    Failure(
        "too many search domains",
        A,
        "its DNS configuration has too many search domains",
        "Shorten spec.dnsConfig",
        (pod(spec={"dnsConfig": {"searches": [f"a{i}.example.com" for i in range(6)]}}),),
        (pod(),),
        covers=("DNSConfigForming",),
    ),
    Failure(
        "a rollback to a revision that does not exist",
        "deployment/default/w",
        "the revision to roll back to does not exist",
        "kubectl rollout history",
        first=(workload(),),
        do=patch(
            workload(),
            {"metadata": {"annotations": {"deprecated.deployment.rollback.to": "99"}}},
        ),
        covers=("DeploymentRollbackRevisionNotFound",),
    ),
    Failure(
        "a rollback to the same revision",
        "deployment/default/w",
        "the rollback changes nothing",
        "kubectl rollout history",
        first=(workload(),),
        do=patch(
            workload(),
            {"metadata": {"annotations": {"deprecated.deployment.rollback.to": "1"}}},
        ),
        covers=("DeploymentRollbackTemplateUnchanged",),
    ),
    Failure(
        "a ReplicaSet that cannot be created",
        "deployment/default/w",
        "its ReplicaSet cannot be created",
        "Correct what the message names",
        (refusing("replicasets", "CREATE", "apps"), workload()),
        (workload(),),
        undo=remove(refusing("replicasets", "CREATE", "apps")),
        also=("its rollout is stuck",),
        covers=("ReplicaSetCreateError",),
    ),
    Failure(
        "a pod that cannot be deleted by its StatefulSet",
        "statefulset/default/w",
        "cannot delete a pod or Job",
        "Remove what prevents the deletion",
        first=(HEADLESS, stateful(2)),
        do=both(create(refusing("pods", "DELETE")), replace(stateful(1))),
        undo=remove(refusing("pods", "DELETE")),
        covers=("FailedDelete",),
    ),
    Failure(
        "Endpoints that cannot be created",
        "service/default/s",
        "its Endpoints cannot be created",
        "webhooks",
        (refusing("endpoints", "CREATE"), service(selector={"app": "a"})),
        (service(selector={"app": "a"}),),
        first=(pod(),),
        undo=remove(refusing("endpoints", "CREATE")),
        covers=("FailedToCreateEndpoint",),
    ),
    Failure(
        "Endpoints that cannot be updated",
        "endpoints/default/s",
        "its Endpoints cannot be updated",
        "webhooks",
        first=(pod(), service(selector={"app": "a"})),
        do=both(create(refusing("endpoints", "UPDATE")), remove(pod())),
        undo=both(remove(refusing("endpoints", "UPDATE")), create(pod())),
        covers=("FailedToUpdateEndpoint",),
    ),
    Failure(
        "EndpointSlices that cannot be written",
        "service/default/s",
        "its EndpointSlices cannot be written",
        "Check that the API server accepts writes",
        (
            refusing("endpointslices", "CREATE", "discovery.k8s.io"),
            service(selector={"app": "a"}),
        ),
        (service(selector={"app": "a"}),),
        first=(pod(),),
        undo=remove(refusing("endpointslices", "CREATE", "discovery.k8s.io")),
        covers=("FailedToUpdateEndpointSlices",),
    ),
    Failure(
        "more than 1000 endpoints to mirror",
        "endpoints/default/s",
        "its Endpoints have more than 1000 addresses",
        "Use several EndpointSlices",
        (service(), many_endpoints(1001)),
        (service(), many_endpoints(10)),
        seconds=60,
        covers=("TooManyAddressesToMirror",),
    ),
    Failure(
        "an autoscaler that cannot scale",
        "horizontalpodautoscaler/default/h",
        "it cannot change the replicas of its target",
        "check webhooks",
        (
            refusing("deployments/scale", "UPDATE", "apps"),
            {
                **autoscaler("w"),
                "spec": {**autoscaler("w")["spec"], "minReplicas": 2},
            },
        ),
        None,
        first=(workload(),),
        also=("does not scale",),
        covers=("FailedRescale",),
    ),
    Failure(
        "an autoscaler whose status cannot be written",
        "horizontalpodautoscaler/default/h",
        "its status cannot be written",
        "accepts writes",
        (refusing("horizontalpodautoscalers/status", "UPDATE", "autoscaling"), autoscaler("w")),
        None,
        first=(workload(),),
        also=("does not scale",),
        covers=("FailedUpdateStatus",),
    ),
    Failure(
        "a budget for pods without a controller",
        "poddisruptionbudget/default/b",
        "the budget cannot count its pods",
        "use a number for minAvailable",
        (budget(maxUnavailable=1),),
        (budget(minAvailable=0),),
        first=(pod(),),
        also=("no controller", "selects no pods"),
        covers=("CalculateExpectedPodCountFailed", "NoControllers", "NoControllerRef"),
    ),
    Failure(
        "two budgets for one pod",
        A,
        "several PodDisruptionBudgets select it",
        "Let one budget select it",
        (budget("b", minAvailable=0), budget("b2", minAvailable=0), pod()),
        (budget("b", minAvailable=0), pod()),
        undo=remove(budget("b2")),
        covers=("MultiplePodDisruptionBudgets",),
    ),
    Failure(
        "a pod that was to be evicted and still runs",
        A,
        "it was to be evicted, and still runs",
        "Delete it again",
        (),
        None,
        first=(pod(), budget(minAvailable=0)),
        do=patch(
            budget(), {"status": {"disruptedPods": {"a": "2020-01-01T00:00:30Z"}}}, status=True
        ),
        undo=both(remove(pod()), remove(budget())),
        covers=("NotDeleted",),
    ),
    Failure(
        "a volume that an object of a namespace owns",
        "persistentvolume/pv",
        "is owned by an object of a namespace",
        "Correct its ownerReferences",
        do=owned_volume,
        undo=both(remove(volume()), remove(config(a="b"))),
        covers=("OwnerRefInvalidNamespace",),
    ),
    Failure(
        "a pod of a StatefulSet that fails",
        "statefulset/default/w",
        "a pod of it fails and is replaced",
        "Read the log of its pods",
        (
            HEADLESS,
            stateful(
                image="busybox",
                command=["sh", "-c", "dd if=/dev/zero of=/v/f bs=1M count=10; sleep 9999"],
                pod_spec={"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]},
                volumeMounts=[{"name": "v", "mountPath": "/v"}],
            ),
        ),
        None,
        seconds=200,
        covers=("RecreatingFailedPod",),
    ),
    Failure(
        "a pod of a DaemonSet that fails",
        "daemonset/default/w",
        "its pod on a node fails and is replaced",
        "Read the log of its pods",
        (
            workload(
                "DaemonSet",
                image="busybox",
                command=["sh", "-c", "dd if=/dev/zero of=/v/f bs=1M count=10; sleep 9999"],
                pod_spec={"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]},
                volumeMounts=[{"name": "v", "mountPath": "/v"}],
            ),
        ),
        None,
        seconds=200,
        covers=("FailedDaemonPod",),
    ),
    Failure(
        "a CronJob that missed too many starts",
        "cronjob/default/c",
        "the CronJob cannot decide whether to start a Job",
        "set spec.startingDeadlineSeconds",
        (cron(),),
        None,
        do=both(
            create(cron(suspend=True)),
            patch(cron(), {"status": {"lastScheduleTime": "2019-12-01T00:00:00Z"}}, status=True),
        ),
        also=("start was missed",),
        covers=("FailedNeedsStart",),
    ),
    Failure(
        "a Job that a CronJob does not know",
        "cronjob/default/c",
        "a Job of it is not in its list of active Jobs",
        "Delete the Job",
        first=(cron("0 0 1 1 *"),),
        do=unknown_job("j"),
        undo=remove(job("j")),
        covers=("UnexpectedJob",),
    ),
    Failure(
        "a preStop hook that fails",
        A,
        "its preStop hook fails",
        "Correct the container's preStop hook",
        (
            pod(
                lifecycle={"preStop": {"exec": {"command": ["false"]}}},
                livenessProbe={"exec": {"command": ["false"]}, "periodSeconds": 1},
            ),
        ),
        (pod(),),
        also=("Liveness probe failed",),
        covers=("FailedPreStopHook",),
    ),
    Failure(
        "a claim that no driver enlarges",
        "persistentvolumeclaim/default/v",
        "it is to be resized by a driver that does not answer",
        "resizer",
        do=both(
            create(
                obj(
                    "StorageClass",
                    "sc",
                    "storage.k8s.io/v1",
                    None,
                    provisioner="a.b",
                    allowVolumeExpansion=True,
                )
            ),
            create(
                csi_volume(driver="a.b", storageClassName="sc"),
                claim(storageClassName="sc"),
            ),
            sleep(5),
            create(claim(storageClassName="sc", resources={"requests": {"storage": "2Gi"}})),
        ),
        undo=both(
            remove(claim()),
            remove(volume()),
            remove(obj("StorageClass", "sc", "storage.k8s.io/v1", None)),
        ),
        covers=("ExternalExpanding",),
    ),
)
