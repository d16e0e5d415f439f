"""How a failure is produced, what doctor must report, and what remedies it: the row of a table, and
the objects and actions that the tables `failures_*.py` share.

A row creates `objects` (and calls `do`). Doctor must then report one finding about `where`, with
the cause `what` and the remedy `remedy`. The remedy is followed: `fixed` objects replace those that
were created, `undo` is called. Doctor must be silent then. `covers` names the event reasons,
container states and fault switches that the row stands for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.doctor.virtual_cluster import VirtualCluster

from transom.client.resources import NODES

Object = dict[str, Any]
Action = Callable[[VirtualCluster], Awaitable[None]]

NS = "default"
CNI_CONF = r"C:\k\cni\config\cni.conf"
NANO = "mcr.microsoft.com/windows/nanoserver:1809"
WAIT = ["cmd", "/c", "ping -t localhost"]


@dataclass(frozen=True)
class Failure:
    name: str
    where: str
    what: str
    remedy: str
    objects: tuple[Object, ...] = ()
    fixed: tuple[Object, ...] | None = None  # None: the objects are deleted
    do: Action | None = None
    undo: Action | None = None
    covers: tuple[str, ...] = ()
    record: str = ""
    also: tuple[str, ...] = ()  # texts of further findings about the same object
    first: tuple[Object, ...] = ()  # what exists before, and is right
    after: float = 0  # seconds after which it must still be reported
    seconds: float = 150
    harmless: bool = False  # the cluster overcomes it by itself
    runtime: str = ""  # of Windows nodes that have this failure: docker or containerd; "" for both
    since: str = ""  # the first release that has it


def pod(
    name: str = "a",
    *,
    os: str = "linux",
    annotations: Object | None = None,
    labels: Object | None = None,
    spec: Object | None = None,
    **container: Any,
) -> Object:
    base: Object = (
        {"name": "c", "image": "nginx:1.19"}
        if os == "linux"
        else {"name": "c", "image": NANO, "command": WAIT}
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NS,
            "annotations": annotations or {},
            "labels": labels or {"app": name},
        },
        "spec": {
            "nodeSelector": {"kubernetes.io/os": os},
            "containers": [{**base, **container}],
            "terminationGracePeriodSeconds": 1,
            **(spec or {}),
        },
    }


def sim(**annotations: str) -> Object:
    return {f"sim.transom.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}


def obj(
    kind: str, name: str, version: str = "v1", namespace: str | None = NS, **fields: Any
) -> Object:
    meta = {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        **fields.pop("metadata", {}),
    }
    return {"apiVersion": version, "kind": kind, "metadata": meta, **fields}


def template(**more: Any) -> Object:
    found = pod("x", **more)
    return {
        "metadata": {"labels": {"app": "w"}, "annotations": found["metadata"]["annotations"]},
        "spec": found["spec"],
    }


def workload(
    kind: str = "Deployment",
    name: str = "w",
    replicas: int = 1,
    spec: Object | None = None,
    pod_spec: Object | None = None,
    **pods: Any,
) -> Object:
    more: Object = {} if kind == "DaemonSet" else {"replicas": replicas}
    return obj(
        kind,
        name,
        "apps/v1",
        spec={
            **more,
            "selector": {"matchLabels": {"app": "w"}},
            "template": template(spec=pod_spec, **pods),
            **(spec or {}),
        },
    )


def job(name: str = "j", *, spec: Object | None = None, **container: Any) -> Object:
    body = pod("x", **container)["spec"]
    return obj(
        "Job",
        name,
        "batch/v1",
        spec={"template": {"spec": {**body, "restartPolicy": "Never"}}, **(spec or {})},
    )


def service(
    name: str = "s", selector: Object | None = None, port: int = 80, target: Any = None, **spec: Any
) -> Object:
    ports = [{"port": port, **({"targetPort": target} if target is not None else {})}]
    return obj("Service", name, spec={"selector": selector or {}, "ports": ports, **spec})


def claim(name: str = "v", **spec: Any) -> Object:
    return obj(
        "PersistentVolumeClaim",
        name,
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
    )


def volume(name: str = "pv", metadata: Object | None = None, **spec: Any) -> Object:
    return obj(
        "PersistentVolume",
        name,
        namespace=None,
        metadata=metadata or {},
        spec={
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/data"},
            **spec,
        },
    )


def mounting(source: Object, os: str = "linux", path: str = "/v", **more: Any) -> Object:
    spec = {"volumes": [{"name": "v", **source}]}
    mounts = [{"name": "v", "mountPath": path, **more.pop("mount", {})}]
    return pod(os=os, spec={**spec, **more.pop("spec", {})}, volumeMounts=mounts, **more)


CONFIG = obj("ConfigMap", "settings", data={"key": "value"})
SECRET = obj("Secret", "secret", stringData={"key": "value"})


def config(**data: str) -> Object:
    return obj("ConfigMap", "settings", data=data)


def node(name: str, what: str, *args: Any) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        result = getattr(cluster.pool, what)(name, *args)
        if result is not None:
            await result

    return do


def host(name: str, what: str, *args: Any) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        getattr(cluster.pool.node(name).machine, what)(*args)

    return do


def switch(name: str, fault: str, on: bool) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        cluster.pool.node(name).machine.hns.faults.switch(fault, on)

    return do


def both(*actions: Action) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        for action in actions:
            await action(cluster)

    return do


def sleep(seconds: float) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        await cluster.clock.sleep(seconds)

    return do


def patch_node(name: str, body: Object) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        await cluster.patch(NODES, name, body, "")

    return do


def autoscaler(target: str) -> Object:
    return obj(
        "HorizontalPodAutoscaler",
        "h",
        "autoscaling/v1",
        spec={
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": 1,
            "maxReplicas": 3,
            "targetCPUUtilizationPercentage": 50,
        },
    )


def ingress(backend: str, port: int, kind: str) -> Object:
    path = {
        "path": "/",
        "pathType": "Prefix",
        "backend": {"service": {"name": backend, "port": {"number": port}}},
    }
    return obj(
        "Ingress",
        "i",
        "networking.k8s.io/v1",
        spec={
            **({"ingressClassName": kind} if kind else {}),
            "rules": [{"host": "a.example.com", "http": {"paths": [path]}}],
        },
    )


def webhook(target: str) -> Object:
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
                "failurePolicy": "Ignore",
                "clientConfig": {"service": {"name": target, "namespace": NS}},
                "rules": [
                    {
                        "apiGroups": ["example.com"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["things"],
                    }
                ],
            }
        ],
    )


def endpoints(name: str, count: int) -> Object:
    addresses = [{"ip": f"10.9.0.{i + 1}"} for i in range(count)]
    return obj("Endpoints", name, subsets=[{"addresses": addresses, "ports": [{"port": 80}]}])


def fill_memory(name: str) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        machine = cluster.pool.node(name).machine
        assert machine.fill_memory(machine.hardware.memory - machine.committed - (50 << 20))

    return do


def remove_network(name: str, network: str) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        hns = cluster.pool.node(name).machine.hns
        for key in [key for key, one in hns.networks.items() if one["Name"] == network]:
            hns.remove("network", key)

    return do


def held(found: Object) -> Object:
    return {**found, "metadata": {**found["metadata"], "finalizers": ["example.com/x"]}}


def create(*objects: Object) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        await cluster.apply(*objects)

    return do


def begin_delete(found: Object) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        meta = found["metadata"]
        await cluster.client.delete(
            cluster.resource(found),
            meta.get("namespace", ""),
            meta["name"],
            propagation="Background",
        )

    return do


def remove(found: Object) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        await cluster.delete(found)

    return do


def release(found: Object) -> Action:
    """Removes the finalizers."""

    async def do(cluster: VirtualCluster) -> None:
        meta = found["metadata"]
        body = {"metadata": {"finalizers": None}}
        await cluster.patch(cluster.resource(found), meta["name"], body, meta.get("namespace", ""))

    return do


def delete_node(name: str) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        await cluster.client.delete(NODES, "", name)

    return do


def restart_hns(name: str) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        cluster.pool.node(name).machine.hns.restart_service()

    return do


def remove_endpoints(name: str) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        hns = cluster.pool.node(name).machine.hns
        local = [key for key, one in hns.endpoints.items() if not one.get("Flags", 0) & 1]
        for key in [key for key in local if hns.attachment(key)[0] not in ("host", "machine")]:
            hns.remove("endpoint", key)

    return do


def write_file(name: str, path: str, content: bytes) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        cluster.pool.node(name).machine.files.write(path, content)

    return do


def copy_file(source: str, target: str, path: str) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        cluster.pool.node(target).machine.files.write(
            path, cluster.pool.node(source).machine.files.read(path)
        )

    return do


def stop(name: str, program: str) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        process = cluster.pool.node(name).programs.running(program)
        assert process is not None
        await process.stop()

    return do


def start(name: str, program: str) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        binaries = cluster.pool.node(name).programs
        _, argv = binaries.usual(program)
        await binaries.launch(
            program, argv, binaries.environment(program), "C:\\k", lambda data: None
        )

    return do


def restart(name: str, program: str) -> Action:
    return both(stop(name, program), start(name, program))


def remove_file(name: str, path: str) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        cluster.pool.node(name).machine.files.remove(path)

    return do


A = "pod/default/a"
