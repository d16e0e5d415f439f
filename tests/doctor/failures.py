"""Every failure that a cluster of ours can produce: how it is produced, what doctor must report,
and what remedies it.

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
FAILURES: tuple[Failure, ...] = (
    # ---- scheduling
    Failure(
        "a selector that no node matches",
        A,
        "no node has the label disk=ssd",
        "kubectl label node NODE disk=ssd",
        (pod(spec={"nodeSelector": {"disk": "ssd"}}),),
        (pod(),),
        covers=("FailedScheduling",),
    ),
    Failure(
        "a selector with a wrong value",
        A,
        "nodes have kubernetes.io/os=linux, windows",
        "Correct spec.nodeSelector",
        (pod(spec={"nodeSelector": {"kubernetes.io/os": "Linux"}}),),
        (pod(),),
    ),
    Failure(
        "labels that no node has together",
        A,
        "no node has all labels of its nodeSelector",
        "Correct spec.nodeSelector",
        (
            pod(
                spec={
                    "nodeSelector": {
                        "kubernetes.io/os": "linux",
                        "kubernetes.io/hostname": "windows-1",
                    }
                }
            ),
        ),
        (pod(),),
    ),
    Failure(
        "required affinity that no node meets",
        A,
        "required node affinity: zone In a",
        "Correct the node affinity",
        (
            pod(
                spec={
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [
                                    {
                                        "matchExpressions": [
                                            {"key": "zone", "operator": "In", "values": ["a"]}
                                        ]
                                    }
                                ]
                            }
                        }
                    }
                }
            ),
        ),
        (pod(),),
    ),
    Failure(
        "a taint that is not tolerated",
        A,
        "does not tolerate the taint node-role.kubernetes.io/master:NoSchedule",
        (
            "Add the toleration {key: node-role.kubernetes.io/master, operator: Exists, effect: "
            "NoSchedule}"
        ),
        (pod(spec={"nodeSelector": {"node-role.kubernetes.io/master": ""}}),),
        (
            pod(
                spec={
                    "nodeSelector": {"node-role.kubernetes.io/master": ""},
                    "tolerations": [
                        {
                            "key": "node-role.kubernetes.io/master",
                            "operator": "Exists",
                            "effect": "NoSchedule",
                        }
                    ],
                }
            ),
        ),
    ),
    Failure(
        "a taint with a value",
        A,
        "does not tolerate the taint team=red:NoSchedule",
        "value: red",
        (pod(),),
        do=patch_node(
            "linux-1",
            {"spec": {"taints": [{"key": "team", "value": "red", "effect": "NoSchedule"}]}},
        ),
        undo=patch_node("linux-1", {"spec": {"taints": None}}),
    ),
    Failure(
        "cordoned nodes",
        A,
        "every node that it selects is cordoned: linux-1",
        "kubectl uncordon linux-1",
        (pod(),),
        (pod(),),
        do=patch_node("linux-1", {"spec": {"unschedulable": True}}),
        undo=patch_node("linux-1", {"spec": {"unschedulable": None}}),
    ),
    Failure(
        "a request larger than any node",
        A,
        "it requests 100 cpu, and the largest node that it may run on has 4",
        "Lower its request for cpu",
        (pod(resources={"requests": {"cpu": "100"}}),),
        (pod(),),
    ),
    Failure(
        "nodes without free memory",
        A,
        "have not enough free memory",
        "Lower its request for memory",
        (pod(resources={"requests": {"memory": "6Gi"}}),),
        (pod(),),
        first=(pod("b", resources={"requests": {"memory": "6Gi"}}),),
    ),
    Failure(
        "an extended resource",
        A,
        "no node that it may run on offers nvidia.com/gpu",
        "device plugin",
        (pod(resources={"limits": {"nvidia.com/gpu": "1"}}),),
        (pod(),),
    ),
    Failure(
        "huge pages on Windows",
        A,
        "Windows nodes have no huge pages",
        "Remove the request for huge pages",
        (
            pod(
                os="windows",
                resources={"limits": {"hugepages-2Mi": "4Mi", "memory": "64Mi", "cpu": "1"}},
            ),
        ),
        (pod(os="windows"),),
        record="WIN-RES-005",
    ),
    Failure(
        "huge pages on Linux",
        A,
        "no node that it may run on offers hugepages-2Mi",
        "vm.nr_hugepages",
        (pod(resources={"limits": {"hugepages-2Mi": "4Mi", "memory": "64Mi", "cpu": "1"}}),),
        (pod(),),
    ),
    Failure(
        "a hostPort in use",
        A,
        "its hostPort is in use on every node",
        "Use another hostPort",
        (pod(ports=[{"containerPort": 80, "hostPort": 8080}]),),
        (pod(ports=[{"containerPort": 80, "hostPort": 8081}]),),
        first=(pod("b", ports=[{"containerPort": 80, "hostPort": 8080}]),),
    ),
    Failure(
        "a claim that does not exist",
        A,
        "the PersistentVolumeClaim nope does not exist",
        "Create the claim nope",
        (mounting({"persistentVolumeClaim": {"claimName": "nope"}}),),
        (pod(),),
    ),
    Failure(
        "pod anti-affinity",
        A,
        "pod anti-affinity keeps it from every node",
        "make the anti-affinity preferred",
        (
            pod(
                labels={"app": "b"},
                spec={
                    "affinity": {
                        "podAntiAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": [
                                {
                                    "labelSelector": {"matchLabels": {"app": "b"}},
                                    "topologyKey": "kubernetes.io/hostname",
                                }
                            ]
                        }
                    }
                },
            ),
        ),
        (pod(),),
        first=(pod("b"),),
    ),
    Failure(
        "pod affinity",
        A,
        "its pod affinity matches no running pod",
        "Start the pods that it wants to be near",
        (
            pod(
                spec={
                    "affinity": {
                        "podAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": [
                                {
                                    "labelSelector": {"matchLabels": {"app": "nope"}},
                                    "topologyKey": "kubernetes.io/hostname",
                                }
                            ]
                        }
                    }
                }
            ),
        ),
        (pod(),),
    ),
    Failure(
        "topology spread",
        A,
        "its topology spread constraints cannot be met",
        "ScheduleAnyway",
        (
            pod(
                spec={
                    "topologySpreadConstraints": [
                        {
                            "maxSkew": 1,
                            "topologyKey": "nope",
                            "whenUnsatisfiable": "DoNotSchedule",
                            "labelSelector": {"matchLabels": {"app": "a"}},
                        }
                    ]
                }
            ),
        ),
        (pod(),),
    ),
    Failure(
        "an unknown scheduler",
        A,
        "no scheduler named nope runs",
        "correct spec.schedulerName",
        (pod(spec={"schedulerName": "nope"}),),
        (pod(),),
    ),
    # ---- refused by the kubelet
    Failure(
        "a forbidden sysctl",
        A,
        "asks for sysctls that node linux-1 does not allow",
        "Remove them from spec.securityContext",
        (
            pod(
                spec={
                    "securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}
                }
            ),
        ),
        (pod(),),
        covers=("SysctlForbidden",),
    ),
    Failure(
        "a forbidden sysctl on Windows",
        A,
        "forbidden sysctl",
        "Remove them",
        (
            pod(
                os="windows",
                spec={"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
            ),
        ),
        (pod(os="windows"),),
        record="WIN-SEC-026",
    ),
    Failure(
        "a hostPort in use on a named node",
        A,
        "a hostPort is in use on node linux-1",
        "leave spec.nodeName to the scheduler",
        (pod(spec={"nodeName": "linux-1"}, ports=[{"containerPort": 80, "hostPort": 8080}]),),
        (pod(),),
        first=(pod("b", ports=[{"containerPort": 80, "hostPort": 8080}]),),
        covers=("NodePorts",),
    ),
    Failure(
        "a named node without room",
        A,
        "node linux-1 has not enough cpu",
        "leave spec.nodeName to the scheduler",
        (pod(spec={"nodeName": "linux-1"}, resources={"requests": {"cpu": "100"}}),),
        (pod(),),
        covers=("OutOfcpu",),
    ),
    Failure(
        "a named node of another label",
        A,
        "node linux-1 does not have the labels that it selects",
        "Correct nodeSelector",
        (pod(spec={"nodeName": "linux-1", "nodeSelector": {"disk": "ssd"}}),),
        (pod(),),
        covers=("NodeAffinity",),
    ),
    Failure(
        "an AppArmor profile",
        A,
        "asks for an AppArmor profile",
        "remove the annotation",
        (pod(annotations={"container.apparmor.security.beta.kubernetes.io/c": "localhost/nope"}),),
        (pod(),),
        covers=("AppArmor",),
    ),
    Failure(
        "a deadline that has passed",
        A,
        "ran longer than its activeDeadlineSeconds",
        "Raise activeDeadlineSeconds",
        (pod(spec={"activeDeadlineSeconds": 3}),),
        (pod(),),
    ),
    Failure(
        "a pod that fails",
        A,
        "container c ended with exit code 3",
        "Read its log (kubectl logs a --namespace default)",
        (pod(command=["sh", "-c", "exit 3"], spec={"restartPolicy": "Never"}),),
        (pod(),),
    ),
    # ---- images
    Failure(
        "a tag that does not exist",
        A,
        "the image nginx:nope does not exist in the registry",
        "Correct the image's name",
        (pod(image="nginx:nope"),),
        (pod(),),
        covers=("Failed", "BackOff", "state:ErrImagePull", "state:ImagePullBackOff"),
    ),
    Failure(
        "a registry that does not exist",
        A,
        "the name of the registry, nope.invalid, cannot be resolved",
        "Correct the registry",
        (pod(image="nope.invalid/app:1"),),
        (pod(),),
    ),
    Failure(
        "a malformed image name",
        A,
        "is not a valid image name",
        "lower case",
        (pod(image="Foo:::bar"),),
        (pod(),),
        covers=("InspectFailed", "state:InvalidImageName"),
    ),
    Failure(
        "an image that may not be pulled",
        A,
        "is not on the node, and imagePullPolicy is Never",
        "IfNotPresent",
        (pod(image="nginx:1.20", imagePullPolicy="Never"),),
        (pod(),),
        covers=("ErrImageNeverPull", "state:ErrImageNeverPull"),
    ),
    Failure(
        "a Windows image on Linux",
        A,
        "is for Windows, and the pod runs on a Linux node",
        "nodeSelector kubernetes.io/os: windows",
        (pod(image=NANO),),
        (pod(os="windows"),),
        record="WIN-POD-010",
    ),
    Failure(
        "a Linux image on Windows",
        A,
        "image nginx:1.19 cannot be pulled",
        "",
        (pod(os="windows", image="nginx:1.19"),),
        (pod(os="windows"),),
        record="WIN-OS-007",
    ),
    Failure(
        "an image of a later Windows build",
        A,
        "no matching manifest for windows/amd64 10.0.17763",
        "select nodes with a build",
        (pod(os="windows", image="mcr.microsoft.com/windows/nanoserver:ltsc2022"),),
        (pod(os="windows"),),
        record="WIN-OS-005",
        runtime="docker",
    ),
    Failure(
        "a failing pull",
        A,
        "sim.transom.dev/fail-*",
        "Remove the annotation",
        (pod(annotations=sim(fail_pull="true"), imagePullPolicy="Always"),),
        (pod(),),
        covers=("fault:fail-pull",),
    ),
    # ---- sandboxes
    Failure(
        "hostNetwork on Windows",
        A,
        "network host not found",
        "",
        (pod(os="windows", spec={"hostNetwork": True}),),
        (pod(os="windows"),),
        record="WIN-POD-002",
        covers=("FailedCreatePodSandBox", "state:ContainerCreating"),
        runtime="docker",
    ),
    Failure(
        "a failing sandbox",
        A,
        "the annotation sim.transom.dev/fail-sandbox",
        "Remove the annotation",
        (pod(annotations=sim(fail_sandbox="true")),),
        (pod(),),
        covers=("fault:fail-sandbox",),
    ),
    Failure(
        "a handler that the runtime does not have",
        A,
        "has no handler nope",
        "Use a RuntimeClass whose handler",
        (
            obj("RuntimeClass", "rc", "node.k8s.io/v1", None, handler="nope"),
            pod(spec={"runtimeClassName": "rc"}),
        ),
        (pod(),),
    ),
    # ---- volumes
    Failure(
        "a ConfigMap of a volume that does not exist",
        A,
        "the ConfigMap settings does not exist",
        "Create the ConfigMap settings",
        (mounting({"configMap": {"name": "settings"}}),),
        (CONFIG, mounting({"configMap": {"name": "settings"}})),
        covers=("FailedMount",),
    ),
    Failure(
        "a key of a volume that does not exist",
        A,
        "the ConfigMap of a volume has no key nope",
        "Add the key nope",
        (mounting({"configMap": {"name": "settings", "items": [{"key": "nope", "path": "f"}]}}),),
        (
            config(nope="1"),
            mounting({"configMap": {"name": "settings", "items": [{"key": "nope", "path": "f"}]}}),
        ),
        first=(CONFIG,),
    ),
    Failure(
        "a Secret of a volume that does not exist",
        A,
        "the Secret secret does not exist",
        "Create the Secret secret",
        (mounting({"secret": {"secretName": "secret"}}),),
        (SECRET, mounting({"secret": {"secretName": "secret"}})),
    ),
    Failure(
        "a hostPath of another type",
        A,
        "has no /nope of the type",
        "DirectoryOrCreate",
        (mounting({"hostPath": {"path": "/nope", "type": "Directory"}}),),
        (mounting({"hostPath": {"path": "/nope", "type": "DirectoryOrCreate"}}),),
    ),
    Failure(
        "a hostPath of Linux on Windows",
        A,
        "has no c:/var/run/docker.sock",
        "Use a directory of the Windows node",
        (mounting({"hostPath": {"path": "/var/run/docker.sock"}}, "windows"),),
        (mounting({"hostPath": {"path": "C:\\data", "type": "DirectoryOrCreate"}}, "windows"),),
        record="WIN-STO-017",
        also=("is a path of Linux",),
        runtime="docker",
    ),
    Failure(
        "a hostPath of Linux that Windows creates",
        A,
        "its hostPath /var/lib/data is a path of Linux",
        "Use a directory of the Windows node",
        (
            mounting(
                {"hostPath": {"path": "/var/lib/data", "type": "DirectoryOrCreate"}}, "windows"
            ),
        ),
        (mounting({"hostPath": {"path": "C:\\data", "type": "DirectoryOrCreate"}}, "windows"),),
        record="WIN-STO-017",
    ),
    Failure(
        "a named pipe that does not exist",
        A,
        "has no named pipe",
        "Start the program that creates the pipe",
        (mounting({"hostPath": {"path": r"\\.\pipe\nope"}}, "windows", r"\\.\pipe\nope"),),
        (pod(os="windows"),),
        record="WIN-STO-018",
    ),
    Failure(
        "NFS on Windows",
        A,
        "should have at least 2 options",
        "Use SMB",
        (mounting({"nfs": {"server": "s", "path": "/x"}}, "windows"),),
        (pod(os="windows"),),
        record="WIN-STO-010",
    ),
    Failure(
        "a single file on Windows with Docker",
        A,
        "source path must be a directory",
        "Mount the whole volume",
        (
            mounting(
                {"configMap": {"name": "kube-root-ca.crt"}},
                "windows",
                "/v/ca.crt",
                mount={"subPath": "ca.crt"},
            ),
        ),
        (mounting({"configMap": {"name": "kube-root-ca.crt"}}, "windows"),),
        record="WIN-STO-002",
        runtime="docker",
    ),
    Failure(
        "a FlexVolume driver that is not there",
        A,
        "no volume plugin of node linux-1",
        "Install the FlexVolume",
        (mounting({"flexVolume": {"driver": "a/b"}}),),
        (pod(),),
    ),
    Failure(
        "a CSI driver that is not there",
        A,
        "the CSI driver of a volume is not installed",
        "Install the CSI driver",
        (mounting({"csi": {"driver": "a.b"}}),),
        (pod(),),
    ),
    # ---- configuration of containers
    Failure(
        "a ConfigMap of the environment that does not exist",
        A,
        "the ConfigMap settings does not exist",
        "Create the ConfigMap settings in namespace default",
        (pod(envFrom=[{"configMapRef": {"name": "settings"}}]),),
        (CONFIG, pod(envFrom=[{"configMapRef": {"name": "settings"}}])),
        covers=("state:CreateContainerConfigError",),
    ),
    Failure(
        "a key of the environment that does not exist",
        A,
        "the ConfigMap settings has no key nope",
        "Add the key nope",
        (
            pod(
                env=[
                    {
                        "name": "A",
                        "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "nope"}},
                    }
                ]
            ),
        ),
        (
            config(nope="1"),
            pod(
                env=[
                    {
                        "name": "A",
                        "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "nope"}},
                    }
                ]
            ),
        ),
        first=(CONFIG,),
    ),
    Failure(
        "a Secret of the environment that does not exist",
        A,
        "the Secret secret does not exist",
        "Create the Secret secret",
        (
            pod(
                env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "key"}}}]
            ),
        ),
        (
            SECRET,
            pod(
                env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "key"}}}]
            ),
        ),
    ),
    Failure(
        "runAsNonRoot with an image of root",
        A,
        "runAsNonRoot is set, and the image runs as root",
        "Set runAsUser",
        (pod(spec={"securityContext": {"runAsNonRoot": True}}),),
        (pod(spec={"securityContext": {"runAsNonRoot": True, "runAsUser": 101}}),),
    ),
    Failure(
        "runAsNonRoot with ContainerAdministrator",
        A,
        "will be regarded as root identity",
        "Run as ContainerUser",
        (
            pod(
                os="windows",
                spec={
                    "securityContext": {
                        "runAsNonRoot": True,
                        "windowsOptions": {"runAsUserName": "ContainerAdministrator"},
                    }
                },
            ),
        ),
        (
            pod(
                os="windows",
                spec={
                    "securityContext": {
                        "runAsNonRoot": True,
                        "windowsOptions": {"runAsUserName": "ContainerUser"},
                    }
                },
            ),
        ),
        record="WIN-SEC-013",
        runtime="docker",
    ),
    Failure(
        "an unknown account on Windows",
        A,
        "has no account of the name in runAsUserName",
        "Use ContainerUser",
        (pod(os="windows", securityContext={"windowsOptions": {"runAsUserName": "bob"}}),),
        (
            pod(
                os="windows", securityContext={"windowsOptions": {"runAsUserName": "ContainerUser"}}
            ),
        ),
        record="WIN-SEC-018",
    ),
    # ---- starting and running
    Failure(
        "a command that does not exist",
        A,
        "the image has no command nope",
        "Correct the container's command",
        (pod(command=["nope"]),),
        (pod(),),
        covers=("state:CrashLoopBackOff", "state:RunContainerError"),
    ),
    Failure(
        "a command with a path that does not exist",
        A,
        "the image has no command /bin/nope",
        "Correct the container's command",
        (pod(command=["/bin/nope"]),),
        (pod(),),
    ),
    Failure(
        "a command that does not exist on Windows",
        A,
        "the image has no command nope",
        "Correct the container's command",
        (pod(os="windows", command=["nope"]),),
        (pod(os="windows"),),
    ),
    Failure(
        "sh on Windows",
        A,
        "the image has no command sh",
        '["cmd", "/c", ...]',
        (pod(os="windows", command=["sh", "-c", "true"]),),
        (pod(os="windows"),),
        record="WIN-CTR-002",
    ),
    Failure(
        "a failing start",
        A,
        "fail-*",
        "Remove the annotation",
        (pod(annotations=sim(fail_start="true")),),
        (pod(),),
        covers=("fault:fail-start",),
    ),
    Failure(
        "a crash",
        A,
        "container c fails with exit code 3",
        "kubectl logs a --namespace default --container c --previous",
        (pod(command=["sh", "-c", "exit 3"]),),
        (pod(),),
        covers=("fault:exit-code", "fault:crash"),
    ),
    Failure(
        "a container that ends",
        A,
        "ends with exit code 0, and restartPolicy is Always",
        "use a Job",
        (pod(command=["true"]),),
        (pod(),),
        covers=("fault:run-time",),
    ),
    Failure(
        "a memory limit that is too small",
        A,
        "used more memory than its limit of 20Mi",
        "Raise its memory limit",
        (pod(annotations=sim(memory="50Mi"), resources={"limits": {"memory": "20Mi"}}),),
        (pod(annotations=sim(memory="50Mi"), resources={"limits": {"memory": "100Mi"}}),),
        covers=("fault:memory",),
    ),
    Failure(
        "an init container that fails",
        A,
        "container i fails with exit code 1",
        "--container i --previous",
        (
            pod(
                spec={
                    "initContainers": [
                        {"name": "i", "image": "busybox", "command": ["sh", "-c", "exit 1"]}
                    ]
                }
            ),
        ),
        (pod(),),
        covers=("state:PodInitializing",),
    ),
    Failure(
        "a liveness probe that fails",
        A,
        "Liveness probe failed: HTTP probe failed with statuscode: 404",
        "Correct httpGet.path in the probe",
        (pod(livenessProbe={"httpGet": {"path": "/nope", "port": 80}, "periodSeconds": 1}),),
        (pod(),),
        covers=("Unhealthy",),
        seconds=400,
    ),
    Failure(
        "a readiness probe that fails",
        A,
        "is not ready: nothing listens on port 81 of the pod (Readiness probe failed",
        "Correct the port in the probe",
        (pod(readinessProbe={"tcpSocket": {"port": 81}, "periodSeconds": 1}),),
        (pod(readinessProbe={"tcpSocket": {"port": 80}, "periodSeconds": 1}),),
    ),
    Failure(
        "a postStart hook that fails",
        A,
        "its postStart hook fails",
        "Correct the container's postStart hook",
        (pod(lifecycle={"postStart": {"exec": {"command": ["false"]}}}),),
        (pod(),),
        covers=("FailedPostStartHook",),
    ),
    Failure(
        "a readiness gate",
        A,
        "its readiness gate example.com/ready is not True",
        "Check the controller",
        (pod(spec={"readinessGates": [{"conditionType": "example.com/ready"}]}),),
        (pod(),),
    ),
    Failure(
        "a pod that is not deleted",
        A,
        "is not deleted: it has the finalizers example.com/x",
        "remove the finalizer",
        do=both(create(held(pod())), sleep(2), begin_delete(pod())),
        undo=release(pod()),
    ),
    # ---- workloads
    Failure(
        "a quota that is used up",
        "replicaset/default/w-",
        "the ResourceQuota q allows no more",
        "Raise the quota q",
        (obj("ResourceQuota", "q", spec={"hard": {"pods": "1"}}), workload(replicas=2)),
        (obj("ResourceQuota", "q", spec={"hard": {"pods": "5"}}), workload(replicas=2)),
        covers=("FailedCreate",),
    ),
    Failure(
        "a quota that wants limits",
        "replicaset/default/w-",
        "the ResourceQuota q requires limits.cpu",
        "Set limits.cpu",
        (obj("ResourceQuota", "q", spec={"hard": {"limits.cpu": "1"}}), workload()),
        (
            obj("ResourceQuota", "q", spec={"hard": {"limits.cpu": "1"}}),
            workload(resources={"limits": {"cpu": "100m"}}),
        ),
    ),
    Failure(
        "a ServiceAccount that does not exist",
        "replicaset/default/w-",
        "the ServiceAccount nope does not exist",
        "kubectl create serviceaccount nope --namespace default",
        (workload(pod_spec={"serviceAccountName": "nope"}),),
        (obj("ServiceAccount", "nope"), workload(pod_spec={"serviceAccountName": "nope"})),
    ),
    Failure(
        "a limit range",
        "replicaset/default/w-",
        "a LimitRange of the namespace does not allow",
        "Change the containers' resources",
        (
            obj(
                "LimitRange", "l", spec={"limits": [{"type": "Container", "max": {"cpu": "100m"}}]}
            ),
            workload(resources={"limits": {"cpu": "2"}}),
        ),
        (workload(resources={"limits": {"cpu": "50m"}}),),
    ),
    Failure(
        "a PriorityClass that does not exist",
        "replicaset/default/w-",
        "the PriorityClass nope does not exist",
        "Create the PriorityClass nope",
        (workload(pod_spec={"priorityClassName": "nope"}),),
        (workload(),),
    ),
    Failure(
        "a RuntimeClass that does not exist",
        "replicaset/default/w-",
        "the RuntimeClass nope does not exist",
        "Create the RuntimeClass nope",
        (workload(pod_spec={"runtimeClassName": "nope"}),),
        (workload(),),
    ),
    Failure(
        "a rollout that is stuck",
        "deployment/default/w",
        "its rollout is stuck",
        "kubectl rollout undo deployment w",
        (workload(image="nginx:nope", spec={"progressDeadlineSeconds": 20}),),
        (workload(spec={"progressDeadlineSeconds": 20}),),
    ),
    Failure(
        "a paused rollout",
        "deployment/default/w",
        "is paused",
        "kubectl rollout resume deployment w",
        (workload(spec={"paused": True}),),
        (workload(spec={"paused": False}),),
    ),
    Failure(
        "a StatefulSet without its Service",
        "statefulset/default/w",
        "its Service nope does not exist",
        "Create a headless Service nope",
        (workload("StatefulSet", spec={"serviceName": "nope"}),),
        (
            service("nope", {"app": "w"}, clusterIP="None"),
            workload("StatefulSet", spec={"serviceName": "nope"}),
        ),
    ),
    Failure(
        "a DaemonSet for no node",
        "daemonset/default/w",
        "runs on no node",
        "Correct nodeSelector",
        (workload("DaemonSet", pod_spec={"nodeSelector": {"disk": "ssd"}}),),
        (workload("DaemonSet"),),
    ),
    Failure(
        "a Job that fails",
        "job/default/j",
        "has failed: BackoffLimitExceeded",
        "kubectl logs job/j --namespace default",
        (job(command=["sh", "-c", "exit 1"], spec={"backoffLimit": 0}),),
        (job(command=["true"]),),
        covers=("BackoffLimitExceeded",),
    ),
    Failure(
        "a Job that takes too long",
        "job/default/j",
        "has failed: DeadlineExceeded",
        "Raise activeDeadlineSeconds",
        (job(spec={"activeDeadlineSeconds": 3}),),
        (job(command=["true"]),),
        covers=("DeadlineExceeded",),
    ),
    Failure(
        "an autoscaler without a target",
        "horizontalpodautoscaler/default/h",
        "its scaleTargetRef does not exist",
        "Correct spec.scaleTargetRef",
        (autoscaler("nope"),),
        None,
        covers=("FailedGetScale",),
    ),
    Failure(
        "an autoscaler without requests",
        "horizontalpodautoscaler/default/h",
        "",
        "",
        (workload(), autoscaler("w")),
        None,
        covers=("FailedGetResourceMetric", "FailedComputeMetricsReplicas"),
    ),
    Failure(
        "a budget for no pods",
        "poddisruptionbudget/default/b",
        "selects no pods",
        "Correct spec.selector",
        (
            obj(
                "PodDisruptionBudget",
                "b",
                "policy/v1",
                spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "nope"}}},
            ),
        ),
        None,
    ),
    Failure(
        "a quota that is full",
        "resourcequota/default/q",
        "is used up: pods",
        "Raise the quota",
        (obj("ResourceQuota", "q", spec={"hard": {"pods": "1"}}), pod()),
        (obj("ResourceQuota", "q", spec={"hard": {"pods": "9"}}), pod()),
    ),
    # ---- services
    Failure(
        "a selector that no pod has",
        "service/default/s",
        "no pod has the labels that it selects (app=nope); pods have app=a",
        "Correct its selector",
        (service(selector={"app": "nope"}),),
        (service(selector={"app": "a"}),),
        first=(pod(),),
    ),
    Failure(
        "no pod that is ready",
        "service/default/s",
        "none of its 1 pods is ready",
        "kubectl get pods --namespace default",
        (
            pod(readinessProbe={"exec": {"command": ["false"]}, "periodSeconds": 1}),
            service(selector={"app": "a"}),
        ),
        (pod(), service(selector={"app": "a"})),
        seconds=200,
    ),
    Failure(
        "a named port that no container has",
        "service/default/s",
        "no pod has a port named http",
        "Correct targetPort",
        (service(selector={"app": "a"}, target="http"),),
        (service(selector={"app": "a"}, target=80),),
        first=(pod(),),
    ),
    Failure(
        "a port where nothing listens",
        "service/default/s",
        "sends to port 81 of its pods, where nothing listens",
        "Correct targetPort",
        (service(selector={"app": "a"}, target=81),),
        (service(selector={"app": "a"}, target=80),),
        first=(pod(),),
    ),
    Failure(
        "a service without selector and endpoints",
        "service/default/s",
        "has no selector and no Endpoints",
        "Give it a selector",
        (service(),),
        (service(selector={"app": "a"}),),
        first=(pod(),),
    ),
    Failure(
        "a load balancer without a provider",
        "service/default/s",
        "has no external address",
        "Install a load balancer controller",
        (service(selector={"app": "a"}, type="LoadBalancer"),),
        (service(selector={"app": "a"}, type="NodePort"),),
        first=(pod(),),
    ),
    Failure(
        "an Ingress without a controller",
        "ingress/default/i",
        "no ingress controller serves its class c",
        "Install an ingress controller",
        (
            obj(
                "IngressClass",
                "c",
                "networking.k8s.io/v1",
                None,
                spec={"controller": "example.com/c"},
            ),
            ingress("s", 80, "c"),
        ),
        None,
        first=(pod(), service(selector={"app": "a"})),
    ),
    Failure(
        "an IngressClass that does not exist",
        "ingress/default/i",
        "its IngressClass nope does not exist",
        "correct spec.ingressClassName",
        (ingress("s", 80, "nope"),),
        None,
        first=(pod(), service(selector={"app": "a"})),
    ),
    Failure(
        "a backend that does not exist",
        "ingress/default/i",
        "there is no Service nope",
        "Create the Service",
        (ingress("nope", 80, "c"),),
        None,
        also=("IngressClass c",),
    ),
    Failure(
        "a port of a backend that does not exist",
        "ingress/default/i",
        "Service s has no port 81",
        "correct the backend",
        (ingress("s", 81, "c"),),
        None,
        first=(pod(), service(selector={"app": "a"})),
        also=("IngressClass c",),
    ),
    # ---- storage
    Failure(
        "a StorageClass that does not exist",
        "persistentvolumeclaim/default/v",
        "the StorageClass nope does not exist",
        "Create the StorageClass nope",
        (claim(storageClassName="nope"),),
        None,
        covers=("ProvisioningFailed",),
    ),
    Failure(
        "no volume and no class",
        "persistentvolumeclaim/default/v",
        "no PersistentVolume fits",
        "Create a PersistentVolume",
        (claim(),),
        (volume(), claim()),
        covers=("FailedBinding",),
    ),
    Failure(
        "a provisioner that does not run",
        "persistentvolumeclaim/default/v",
        "the provisioner a.b did not create a volume",
        "Install or start the provisioner a.b",
        (
            obj("StorageClass", "sc", "storage.k8s.io/v1", None, provisioner="a.b"),
            claim(storageClassName="sc"),
        ),
        None,
    ),
    Failure(
        "a volume that was deleted",
        "persistentvolumeclaim/default/v",
        "is Lost: its volume pv does not exist",
        "create it again",
        (),
        None,
        first=(volume(), claim()),
        do=both(begin_delete(volume()), release(volume())),
        undo=begin_delete(claim()),
        covers=("ClaimLost",),
    ),
    # ---- control plane
    Failure(
        "a webhook without a service",
        "validatingwebhookconfiguration/hook",
        "calls service default/nope, which does not exist",
        "kubectl delete validatingwebhookconfiguration hook",
        (webhook("nope"),),
        None,
    ),
    Failure(
        "a webhook without endpoints",
        "validatingwebhookconfiguration/hook",
        "which has no ready endpoints",
        "Start its pods",
        (service("s", {"app": "nope"}, 443), webhook("s")),
        None,
    ),
    Failure(
        "an aggregated API that is not there",
        "apiservice/v1.example.com",
        "is not available",
        "delete the APIService",
        (
            obj(
                "APIService",
                "v1.example.com",
                "apiregistration.k8s.io/v1",
                None,
                spec={
                    "group": "example.com",
                    "version": "v1",
                    "groupPriorityMinimum": 100,
                    "versionPriority": 1,
                    "insecureSkipTLSVerify": True,
                    "service": {"name": "nope", "namespace": NS},
                },
            ),
        ),
        None,
    ),
    Failure(
        "a namespace that does not end",
        "namespace/old",
        "is being deleted for more than a minute",
        "Remove the finalizers",
        do=both(
            create(
                obj("Namespace", "old", namespace=None),
                held(obj("ConfigMap", "kept", namespace="old")),
            ),
            begin_delete(obj("Namespace", "old", namespace=None)),
        ),
        undo=release(obj("ConfigMap", "kept", namespace="old")),
    ),
    # ---- nodes
    Failure(
        "a node that is off",
        "node/linux-1",
        "The machine is off",
        "transom node start linux-1",
        do=node("linux-1", "stop"),
        undo=node("linux-1", "start"),
        covers=("NodeNotReady",),
    ),
    Failure(
        "a control plane that is off",
        "service/kube-system/kube-dns",
        "the cluster's DNS does not answer",
        "Start the control-plane node",
        do=node("control-plane", "stop"),
        undo=node("control-plane", "start"),
    ),
    Failure(
        "a node that is cordoned",
        "node/linux-1",
        "is cordoned",
        "kubectl uncordon linux-1",
        do=patch_node("linux-1", {"spec": {"unschedulable": True}}),
        undo=patch_node("linux-1", {"spec": {"unschedulable": None}}),
    ),
    Failure(
        "a full disk",
        "node/linux-1",
        "its disk is full",
        "Free space on linux-1",
        do=host("linux-1", "fill_disk"),
        undo=host("linux-1", "fill_disk", 0),
        also=("DiskPressure", "cannot free", "runs out"),
        seconds=200,
        covers=("fault:disk", "EvictionThresholdMet", "ImageGCFailed", "FreeDiskSpaceFailed"),
    ),
    Failure(
        "a full disk on Windows",
        "node/windows-1",
        "its disk is full",
        "Free space on windows-1",
        do=host("windows-1", "fill_disk"),
        undo=host("windows-1", "fill_disk", 0),
        also=("DiskPressure", "cannot free", "runs out"),
        seconds=200,
    ),
    Failure(
        "memory pressure",
        "node/linux-1",
        "MemoryPressure",
        "Free memory on linux-1",
        first=(
            pod(
                resources={
                    "requests": {"memory": "64Mi"},
                    "limits": {"memory": "64Mi", "cpu": "100m"},
                }
            ),
        ),
        do=fill_memory("linux-1"),
        undo=both(host("linux-1", "fill_memory", 0), remove(pod())),
        also=("runs out",),
        covers=("fault:memory-of-node",),
        seconds=300,
    ),
    Failure(
        "a clock that is ahead",
        "node/linux-1",
        "its clock is 600 s ahead",
        "Synchronize the node's clock",
        do=host("linux-1", "jump", 600),
        undo=host("linux-1", "jump", -600),
        also=("ahead",),
        covers=("fault:clock",),
    ),
    Failure(
        "a deleted Node",
        "node/linux-1",
        "its machine runs, but there is no Node",
        "transom node reboot linux-1",
        do=delete_node("linux-1"),
        undo=node("linux-1", "reboot"),
    ),
    Failure(
        "a deleted control-plane node",
        "node/control-plane",
        "its machine runs, but there is no Node",
        "transom node reboot control-plane",
        do=delete_node("control-plane"),
        undo=node("control-plane", "reboot"),
    ),
    # ---- faults of Windows nodes
    Failure(
        "MAC spoofing off",
        "node/windows-1",
        "MAC spoofing is off",
        "transom node set windows-1 mac-spoofing=on",
        do=node("windows-1", "set", {"macSpoofing": False}),
        undo=node("windows-1", "set", {"macSpoofing": True}),
        record="SUP-TRB-009",
        covers=("fault:macSpoofing",),
    ),
    Failure(
        "a node behind a proxy",
        "node/windows-1",
        "the node is behind the proxy http://proxy.example.com:80/",
        "SetEnvironmentVariable",
        do=node("windows-1", "set", {"proxy": "http://proxy.example.com:80/"}),
        undo=node("windows-1", "set", {"proxy": ""}),
        record="SUP-TRB-018",
        covers=("fault:proxy",),
    ),
    Failure(
        "networks lost on restart",
        "node/windows-1",
        "has no network cbr0",
        "transom node reboot windows-1",
        do=both(switch("windows-1", "lose-networks-on-restart", True), restart_hns("windows-1")),
        undo=both(
            switch("windows-1", "lose-networks-on-restart", False), node("windows-1", "reboot")
        ),
        record="SUP-TRB-015",
        covers=("fault:lose_networks_on_restart",),
    ),
    Failure(
        "networks lost on reboot",
        "node/windows-1",
        "",
        "",
        do=both(
            switch("windows-1", "lose-networks-on-reboot", True),
            node("windows-1", "reboot"),
            switch("windows-1", "lose-networks-on-reboot", False),
        ),
        covers=("fault:lose_networks_on_reboot", "Rebooted"),
        harmless=True,
    ),
    Failure(
        "a management address that is late",
        "node/windows-1",
        "the network cbr0 has no management address",
        "Remove-HnsNetwork",
        do=both(switch("windows-1", "late-management-address", True), node("windows-1", "reboot")),
        undo=both(
            switch("windows-1", "late-management-address", False),
            remove_network("windows-1", "cbr0"),
            node("windows-1", "reboot"),
        ),
        record="SUP-TRB-013",
        also=("is not Ready",),
        covers=("fault:late_management_address",),
        seconds=300,
    ),
    Failure(
        "endpoints that leak",
        "node/windows-1",
        "keeps 1 endpoints of pods that are gone",
        "Remove-HnsEndpoint",
        first=(pod(os="windows", spec={"nodeName": "windows-1"}),),
        do=both(switch("windows-1", "leak-endpoints", True), remove(pod())),
        undo=both(switch("windows-1", "leak-endpoints", False), remove_endpoints("windows-1")),
        record="SUP-TRB-015",
        covers=("fault:leak_endpoints",),
    ),
    Failure(
        "deletes that are refused",
        "node/windows-1",
        "keeps 1 endpoints of pods that are gone",
        "Remove-HnsEndpoint",
        first=(pod(os="windows", spec={"nodeName": "windows-1"}),),
        do=both(switch("windows-1", "refuse-deletes", True), remove(pod())),
        undo=both(switch("windows-1", "refuse-deletes", False), remove_endpoints("windows-1")),
        record="SUP-TRB-015",
        covers=("fault:refuse_deletes",),
    ),
    Failure(
        "a pod whose endpoint is lost",
        A,
        "has no endpoint with its address",
        "Delete the pod",
        (),
        None,
        first=(pod(os="windows", spec={"nodeName": "windows-1"}),),
        do=remove_endpoints("windows-1"),
        undo=remove(pod()),
        record="SUP-TRB-015",
    ),
    Failure(
        "an unreadable cni.conf",
        "node/windows-1",
        "its CNI configuration cannot be used",
        "Correct the file",
        do=write_file("windows-1", CNI_CONF, b"{ not json"),
        undo=copy_file("windows-2", "windows-1", CNI_CONF),
        runtime="docker",
    ),
    Failure(
        "a missing subnet.env",
        "node/windows-1",
        r"subnet.env is missing",
        "Restart flanneld",
        do=remove_file("windows-1", r"C:\run\flannel\subnet.env"),
        undo=restart("windows-1", "flanneld"),
        record="SUP-TRB-014",
    ),
    Failure(
        "a kube-proxy that does not run",
        "node/windows-1",
        "kube-proxy does not run",
        "Start-Service kube-proxy",
        do=stop("windows-1", "kube-proxy"),
        undo=start("windows-1", "kube-proxy"),
        record="SUP-TRB-002",
    ),
    Failure(
        "a flanneld that does not run",
        "node/windows-1",
        "flanneld does not run",
        "Start-Service flanneld",
        do=stop("windows-1", "flanneld"),
        undo=start("windows-1", "flanneld"),
        record="SUP-TRB-002",
    ),
    Failure(
        "a kubelet that does not run",
        "node/windows-1",
        "kubelet does not run",
        "Start-Service kubelet",
        do=stop("windows-1", "kubelet"),
        undo=start("windows-1", "kubelet"),
        record="SUP-TRB-002",
        also=("is not Ready",),
    ),
    Failure(
        "65 backends",
        "service/default/s",
        "has 65 endpoints: Windows nodes have no load balancer for it",
        "",
        (service(), endpoints("s", 65)),
        (service(), endpoints("s", 64)),
        record="WIN-SVC-001",
    ),
)
