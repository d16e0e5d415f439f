"""Random actions of users: they create, scale, update, evict and delete objects.

Users speak to the API server without faults, so that the script of a seed is carried out in full.
What they want in the end is written in the cluster itself: the specifications that are left.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from transom.client.api import STRATEGIC_PATCH, ApiClient, is_not_found
from transom.client.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    GroupVersionResource,
)
from transom.client.retry import Backoff, retry_on_conflict
from transom.kit.clock import Clock
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, copy_object

from .kubelets import FAILS, RUNS, WINDOWS_TAINT

APP, SMALL = "app", "small"  # the second has a quota
BULK = "bulk"  # the priority of pods that are large, and make way for all others
PROVISIONER = "simulation/disk"
_MOST_PODS = 6
_QUARANTINE = "quarantine"
_TOLERATION = {**WINDOWS_TAINT, "operator": "Equal"}
_EAGER = Backoff(20, 0.01, 1.5)

Step = Callable[[], Awaitable[None]]


class Script:
    def __init__(
        self, client: ApiClient, clock: Clock, rng: random.Random, report: Callable[[str], None]
    ) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._report = report
        self._numbers = iter(range(1, 10_000))
        self._evictions: set[asyncio.Task[None]] = set()
        # Likelihoods against each other. What makes comes more often at first.
        self._makers: list[tuple[Step, int]] = [
            (self._create_deployment, 6),
            (self._create_stateful_set, 6),
            (self._create_daemon_set, 2),
            (self._create_job, 3),
            (self._create_cron_job, 1),
            (self._create_budget, 3),
            (self._create_service, 2),
            (self._create_replica_set, 1),
            (self._create_replication_controller, 1),
            (self._create_bulk, 1),
            (self._create_namespace, 1),
        ]
        self._changers: list[tuple[Step, int]] = [
            (self._scale, 8),
            (self._update, 8),
            (self._evict, 6),
            (self._drain, 2),
            (self._kill, 4),
            (self._relabel, 1),
            (self._delete, 4),
            (self._delete_namespace, 1),
            (self._quota, 2),
            (self._pause, 1),
            (self._undo, 1),
            (self._suspend, 1),
            (self._partition, 1),
            (self._uncordon, 1),
        ]

    async def prepare(self) -> None:
        """What is there before the faults begin."""
        storage_class = {
            "metadata": {"name": "disk"},
            "provisioner": PROVISIONER,
            "reclaimPolicy": "Delete",
        }
        await self._client.create(STORAGE_CLASSES, "", storage_class)
        await self._client.create(PRIORITY_CLASSES, "", {"metadata": {"name": BULK}, "value": -10})
        for name in (APP, SMALL):
            await self._client.create(NAMESPACES, "", {"metadata": {"name": name}})
        hard = {
            "pods": str(self._rng.randrange(3, 9)),
            "requests.cpu": self._rng.choice(("600m", "2")),
        }
        await self._client.create(
            RESOURCE_QUOTAS, SMALL, {"metadata": {"name": "quota"}, "spec": {"hard": hard}}
        )

    async def run(self, steps: int, mean_pause: float) -> None:
        for step in range(steps):
            makers = 8 if step < steps / 3 else 1
            rows = [(act, weight * makers) for act, weight in self._makers] + self._changers
            act = self._rng.choices([row[0] for row in rows], [row[1] for row in rows])[0]
            await act()
            await self._clock.sleep(self._rng.expovariate(1 / mean_pause))

    async def finish(self) -> None:
        """Stops what would never settle."""
        for task in [*self._evictions]:
            task.cancel()
        if self._evictions:
            await asyncio.wait(self._evictions)
        for pod in await self._all(PODS):
            if pod["metadata"]["labels"].get("app") == _QUARANTINE:
                await self._client.delete(
                    PODS, pod["metadata"]["namespace"], pod["metadata"]["name"]
                )
        for cron_job in await self._all(CRON_JOBS):
            await self._patch(CRON_JOBS, cron_job, {"spec": {"suspend": True}})
        for job in await self._all(JOBS):
            if (job["spec"] or {}).get("suspend"):
                await self._patch(JOBS, job, {"spec": {"suspend": False}})
        for deployment in await self._all(DEPLOYMENTS):
            if deployment["spec"].get("paused"):
                await self._patch(DEPLOYMENTS, deployment, {"spec": {"paused": None}})
        for node in await self._all(NODES):
            await self._patch(NODES, node, {"spec": {"unschedulable": None}})

    # ---- tools ----

    def _name(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"

    async def _all(self, resource: GroupVersionResource) -> list[Object]:
        found = (await self._client.list(resource)).items
        return [obj for obj in found if "deletionTimestamp" not in obj["metadata"]]

    async def _any(
        self, *resources: GroupVersionResource
    ) -> tuple[GroupVersionResource, Object] | None:
        found = [
            (resource, obj)
            for resource in resources
            for obj in await self._all(resource)
            if obj["metadata"].get("namespace") != "kube-system"
        ]
        return self._rng.choice(found) if found else None

    async def _create(
        self, resource: GroupVersionResource, obj: Object, namespace: str = ""
    ) -> None:
        if not namespace:
            named = [
                n["metadata"]["name"]
                for n in await self._all(NAMESPACES)
                if n["metadata"]["name"].startswith("tmp")
            ]
            namespace = self._rng.choice((APP, APP, SMALL, *named))
        self._report(
            f"user creates {resource.plural} {namespace}/{obj['metadata']['name']}: "
            f"{_brief(obj['spec'])}"
        )
        try:
            await self._client.create(resource, namespace, obj)
        except ApiError as problem:
            # the quota, or a namespace that has just gone
            self._report(f"user is refused: {problem}")

    async def _patch(
        self, resource: GroupVersionResource, obj: Object, body: Object, how: str = STRATEGIC_PATCH
    ) -> None:
        meta = obj["metadata"]

        async def attempt() -> None:
            try:
                await self._client.patch(
                    resource, meta.get("namespace", ""), meta["name"], body, how
                )
            except ApiError as problem:
                if not is_not_found(problem):
                    raise

        self._report(
            f"user patches {resource.plural} {meta.get('namespace', '')}/{meta['name']}: {body}"
        )
        await retry_on_conflict(attempt, self._clock, self._rng, _EAGER)

    def _template(self, name: str, **spec: Any) -> Object:
        rng = self._rng
        windows = rng.random() < 0.2
        pod: Object = {
            "containers": [
                {
                    "name": "app",
                    "image": "app:1",
                    "resources": {"requests": {"cpu": rng.choice(("50m", "100m", "250m"))}},
                }
            ],
            "terminationGracePeriodSeconds": rng.choice((0, 2, 30)),
            "nodeSelector": {"kubernetes.io/os": "windows" if windows else "linux"},
            "tolerations": [_TOLERATION] if windows else [],
            **spec,
        }
        if rng.random() < 0.6:
            seconds = rng.choice((1, 5, 30))
            pod["tolerations"] = [
                *pod["tolerations"],
                *(
                    {
                        "key": f"node.kubernetes.io/{why}",
                        "operator": "Exists",
                        "effect": "NoExecute",
                        "tolerationSeconds": seconds,
                    }
                    for why in ("unreachable", "not-ready")
                ),
            ]
        return {"metadata": {"labels": {"app": name}}, "spec": pod}

    def _workload(self, name: str, **spec: Any) -> Object:
        spec = {
            "selector": {"matchLabels": {"app": name}},
            "template": self._template(name),
            **spec,
        }
        return {"metadata": {"name": name}, "spec": spec}

    # ---- making ----

    async def _create_deployment(self) -> None:
        rng = self._rng
        spec: Object = {
            "replicas": rng.randrange(_MOST_PODS),
            "revisionHistoryLimit": rng.choice((0, 1, 10)),
        }
        if rng.random() < 0.2:
            spec["strategy"] = {"type": "Recreate"}
        elif rng.random() < 0.6:
            surge, unavailable = rng.choice(
                ((1, 0), (0, 1), ("50%", "50%"), (2, 1), ("100%", 0), ("25%", "25%"))
            )
            spec["strategy"] = {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
        if rng.random() < 0.3:
            spec["minReadySeconds"] = rng.choice((1, 5))
        await self._create(DEPLOYMENTS, self._workload(self._name("web"), **spec))

    async def _create_replica_set(self) -> None:
        await self._create(
            REPLICA_SETS,
            self._workload(self._name("set"), replicas=self._rng.randrange(_MOST_PODS)),
        )

    async def _create_replication_controller(self) -> None:
        name = self._name("rc")
        spec = {
            "replicas": self._rng.randrange(_MOST_PODS),
            "selector": {"app": name},
            "template": self._template(name),
        }
        await self._create(REPLICATION_CONTROLLERS, {"metadata": {"name": name}, "spec": spec})

    async def _create_bulk(self) -> None:
        """More than there is room for, so that others have to push it aside."""
        name = self._name("bulk")
        template = self._template(name, priorityClassName=BULK)
        template["spec"]["containers"][0]["resources"] = {
            "requests": {"cpu": self._rng.choice(("2", "3500m"))}
        }
        spec = {"replicas": self._rng.randrange(2, 9), "template": template}
        await self._create(REPLICA_SETS, self._workload(name, **spec), APP)

    async def _create_stateful_set(self) -> None:
        rng = self._rng
        spec: Object = {
            "replicas": rng.randrange(4),
            "serviceName": "db",
            "podManagementPolicy": rng.choice(("OrderedReady", "Parallel")),
            "revisionHistoryLimit": rng.choice((0, 10)),
        }
        if rng.random() < 0.2:
            spec["updateStrategy"] = {
                "type": "RollingUpdate",
                "rollingUpdate": {"partition": rng.randrange(1, 3)},
            }
        if rng.random() < 0.3:
            claim = {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "disk",
                "resources": {"requests": {"storage": "1Gi"}},
            }
            spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
        name = self._name("db")
        # Without any grace the API forgets a pod before its kubelet has heard of it: then two of
        # one name may run.
        template = self._template(name, terminationGracePeriodSeconds=rng.choice((2, 30)))
        await self._create(STATEFUL_SETS, self._workload(name, template=template, **spec))

    async def _create_daemon_set(self) -> None:
        name = self._name("agent")
        spec = self._workload(name)["spec"]
        if self._rng.random() < 0.5:
            spec["template"]["spec"] |= {"nodeSelector": {}, "tolerations": [_TOLERATION]}
        if self._rng.random() < 0.5:
            spec["updateStrategy"] = {
                "rollingUpdate": {"maxUnavailable": self._rng.choice((1, 2, "50%"))}
            }
        await self._create(DAEMON_SETS, {"metadata": {"name": name}, "spec": spec}, APP)

    def _job_spec(self, name: str) -> Object:
        rng = self._rng
        template = self._template(name, restartPolicy=rng.choice(("Never", "OnFailure")))
        template["metadata"]["annotations"] = {
            RUNS: rng.choice(("1", "10", "60")),
            FAILS: rng.choice(("0", "0", "0.3")),
        }
        completions = rng.randrange(1, 5)
        spec = {
            "template": template,
            "completions": completions,
            "parallelism": rng.randrange(1, completions + 1),
            "backoffLimit": rng.choice((1, 6)),
        }
        if rng.random() < 0.3:
            spec["completionMode"] = "Indexed"
        return spec

    async def _create_job(self) -> None:
        name = self._name("job")
        spec = self._job_spec(name)
        if self._rng.random() < 0.3:
            spec["ttlSecondsAfterFinished"] = self._rng.choice((0, 30))
        if self._rng.random() < 0.2:
            spec["activeDeadlineSeconds"] = 60
        await self._create(JOBS, {"metadata": {"name": name}, "spec": spec})

    async def _create_cron_job(self) -> None:
        name = self._name("cron")
        policy = self._rng.choice(("Allow", "Forbid", "Replace"))
        spec = {
            "schedule": "* * * * *",
            "concurrencyPolicy": policy,
            "jobTemplate": {"spec": self._job_spec(name)},
        }
        await self._create(CRON_JOBS, {"metadata": {"name": name}, "spec": spec})

    async def _create_budget(self) -> None:
        found = await self._any(DEPLOYMENTS, STATEFUL_SETS)
        if found is None:
            return
        meta = found[1]["metadata"]
        taken = {
            (b["metadata"]["namespace"], b["metadata"]["name"])
            for b in await self._all(POD_DISRUPTION_BUDGETS)
        }
        if (meta["namespace"], meta["name"]) in taken:
            return
        wanted = self._rng.choice(
            (
                {"minAvailable": 1},
                {"minAvailable": 2},
                {"maxUnavailable": 1},
                {"minAvailable": "50%"},
                {"maxUnavailable": 0},
            )
        )
        spec = {"selector": {"matchLabels": {"app": meta["name"]}}, **wanted}
        await self._create(
            POD_DISRUPTION_BUDGETS,
            {"metadata": {"name": meta["name"]}, "spec": spec},
            meta["namespace"],
        )

    async def _create_service(self) -> None:
        found = await self._any(DEPLOYMENTS, STATEFUL_SETS)
        if found is None:
            return
        meta = found[1]["metadata"]
        taken = {
            (b["metadata"]["namespace"], b["metadata"]["name"]) for b in await self._all(SERVICES)
        }
        if (meta["namespace"], meta["name"]) not in taken:
            spec = {
                "selector": {"app": meta["name"]},
                "ports": [{"port": 80}],
                "type": self._rng.choice(("ClusterIP", "NodePort", "LoadBalancer")),
            }
            await self._create(
                SERVICES, {"metadata": {"name": meta["name"]}, "spec": spec}, meta["namespace"]
            )

    async def _create_namespace(self) -> None:
        name = self._name("tmp")
        self._report(f"user creates namespace {name}")
        await self._client.create(NAMESPACES, "", {"metadata": {"name": name}})

    # ---- changing ----

    async def _scale(self) -> None:
        found = await self._any(DEPLOYMENTS, STATEFUL_SETS, REPLICATION_CONTROLLERS)
        if found is not None:
            await self._patch(*found, {"spec": {"replicas": self._rng.randrange(_MOST_PODS)}})

    async def _update(self) -> None:
        found = await self._any(DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS)
        if found is not None:
            container = {"name": "app", "image": f"app:{self._rng.randrange(1, 5)}"}
            await self._patch(*found, {"spec": {"template": {"spec": {"containers": [container]}}}})

    async def _undo(self) -> None:
        """As `kubectl rollout undo` does: the template of an older ReplicaSet."""
        found = await self._any(REPLICA_SETS)
        ref = (
            (found[1]["metadata"].get("ownerReferences") or [None])[0]
            if found is not None
            else None
        )
        if found is None or ref is None:
            return
        template = copy_object(found[1]["spec"]["template"])
        template["metadata"]["labels"].pop("pod-template-hash", None)
        body = [{"op": "replace", "path": "/spec/template", "value": template}]
        owner = {"metadata": {"name": ref["name"], "namespace": found[1]["metadata"]["namespace"]}}
        await self._patch(DEPLOYMENTS, owner, body, "application/json-patch+json")

    async def _pause(self) -> None:
        found = await self._any(DEPLOYMENTS)
        if found is not None:
            await self._patch(
                *found, {"spec": {"paused": not found[1]["spec"].get("paused", False) or None}}
            )

    async def _suspend(self) -> None:
        found = await self._any(JOBS, CRON_JOBS)
        if found is not None:
            await self._patch(
                *found, {"spec": {"suspend": not found[1]["spec"].get("suspend", False)}}
            )

    async def _partition(self) -> None:
        found = await self._any(STATEFUL_SETS)
        if found is not None:
            rolling = {
                "type": "RollingUpdate",
                "rollingUpdate": {"partition": self._rng.randrange(3)},
            }
            await self._patch(*found, {"spec": {"updateStrategy": rolling}})

    async def _quota(self) -> None:
        hard = {"pods": str(self._rng.randrange(1, 12))}
        await self._patch(
            RESOURCE_QUOTAS,
            {"metadata": {"namespace": SMALL, "name": "quota"}},
            {"spec": {"hard": hard}},
        )

    async def _uncordon(self) -> None:
        for node in await self._all(NODES):
            if node["spec"].get("unschedulable"):
                await self._patch(NODES, node, {"spec": {"unschedulable": None}})

    # ---- taking away ----

    async def _delete(self) -> None:
        found = await self._any(
            DEPLOYMENTS,
            STATEFUL_SETS,
            DAEMON_SETS,
            JOBS,
            CRON_JOBS,
            POD_DISRUPTION_BUDGETS,
            SERVICES,
            REPLICATION_CONTROLLERS,
            REPLICA_SETS,
        )
        if found is None:
            return
        resource, obj = found
        meta = obj["metadata"]
        how = self._rng.choice(("Background", "Background", "Foreground", "Orphan"))
        self._report(f"user deletes {resource.plural} {meta['namespace']}/{meta['name']}, {how}")
        try:
            await self._client.delete(resource, meta["namespace"], meta["name"], propagation=how)
        except ApiError as problem:
            if not is_not_found(problem):
                raise

    async def _delete_namespace(self) -> None:
        found = [n for n in await self._all(NAMESPACES) if n["metadata"]["name"].startswith("tmp")]
        if found:
            name = self._rng.choice(found)["metadata"]["name"]
            self._report(f"user deletes namespace {name}")
            await self._client.delete(NAMESPACES, "", name)

    async def _kill(self) -> None:
        found = await self._any(PODS)
        if found is not None:
            meta = found[1]["metadata"]
            self._report(f"user deletes pod {meta['namespace']}/{meta['name']}")
            try:
                await self._client.delete(PODS, meta["namespace"], meta["name"], uid=meta["uid"])
            except ApiError as problem:
                self._report(f"user is refused: {problem}")

    async def _relabel(self) -> None:
        """Take a pod away from its owner, to look at it. It is deleted later, because no controller deletes it."""
        found = await self._any(PODS)
        if found is None:
            return
        await self._patch(*found, {"metadata": {"labels": {"app": _QUARANTINE}}})
        meta = found[1]["metadata"]

        async def later() -> None:
            await self._clock.sleep(30 * self._rng.random())
            try:
                await self._client.delete(PODS, meta["namespace"], meta["name"], uid=meta["uid"])
            except ApiError as problem:
                self._report(f"user is refused: {problem}")

        self._spawn(later())

    async def _evict(self) -> None:
        """Several at once, as the drains of several nodes do."""
        found = await self._all(PODS)
        budgets = {
            (b["metadata"]["namespace"], b["metadata"]["name"])
            for b in await self._all(POD_DISRUPTION_BUDGETS)
        }
        guarded = [
            p
            for p in found
            if (p["metadata"]["namespace"], (p["metadata"].get("labels") or {}).get("app"))
            in budgets
        ]
        self._evict_all(
            self._rng.sample(guarded, min(len(guarded), self._rng.randrange(1, 5))), tries=3
        )

    async def _drain(self) -> None:
        nodes = await self._all(NODES)
        if not nodes:
            return
        node = self._rng.choice(nodes)
        await self._patch(NODES, node, {"spec": {"unschedulable": True}})
        name = node["metadata"]["name"]
        self._evict_all(
            [p for p in await self._all(PODS) if p["spec"].get("nodeName") == name], tries=10
        )

    def _evict_all(self, pods: Sequence[Object], tries: int) -> None:
        for pod in pods:
            self._spawn(self._evict_one(pod["metadata"], tries))

    async def _evict_one(self, meta: Object, tries: int) -> None:
        namespace, name = meta["namespace"], meta["name"]
        body = {
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
        }
        for _ in range(tries):
            try:
                await self._client.create_subresource(PODS, namespace, name, "eviction", body)
            except ApiError as problem:
                self._report(f"user may not evict pod {namespace}/{name}: {problem}")
                if problem.code != 429:
                    return
            else:
                self._report(f"user evicted pod {namespace}/{name}")
                return
            await self._clock.sleep(5 * self._rng.random())

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._evictions.add(task)
        task.add_done_callback(self._evictions.discard)


def _brief(spec: Object) -> str:
    return ", ".join(
        f"{k} {v}" for k, v in spec.items() if k not in ("template", "selector", "jobTemplate")
    )
