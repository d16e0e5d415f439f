"""Failures caused by references of an object: ports, probes, roles, Secrets, names, peers."""

from __future__ import annotations

from typing import Any

from tests.doctor.failures import (
    NS,
    SECRET,
    A,
    Action,
    Failure,
    Object,
    claim,
    job,
    mounting,
    obj,
    patch_node,
    pod,
    service,
    template,
    volume,
    workload,
)
from tests.doctor.virtual_cluster import VirtualCluster

S = "service/default/s"
RBAC = "rbac.authorization.k8s.io"
A_LABELS = {"app": "a"}
EXTERNAL = "its externalName"


def probe(kind: str, os: str = "linux", **how: Any) -> Object:
    return pod(os=os, **{kind: {"periodSeconds": 5, "failureThreshold": 2, **how}})


def port(number: int, target: Any, protocol: str = "TCP", **more: Any) -> Object:
    return obj(
        "Service",
        "s",
        spec={
            "selector": A_LABELS,
            "ports": [{"port": number, "targetPort": target, "protocol": protocol}],
            **more,
        },
    )


def external(name: str) -> Object:
    return obj("Service", "s", spec={"type": "ExternalName", "externalName": name})


def binding(kind: str, role: str, subject: Object | None = None) -> Object:
    called = subject or {"kind": "User", "name": "jane", "apiGroup": RBAC}
    return obj(
        kind,
        "b",
        f"{RBAC}/v1",
        NS if kind == "RoleBinding" else None,
        roleRef={"apiGroup": RBAC, "kind": role, "name": "reader"},
        subjects=[called],
    )


def role(kind: str) -> Object:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    return obj(kind, "reader", f"{RBAC}/v1", NS if kind == "Role" else None, rules=rules)


def policy(**spec: Any) -> Object:
    return obj("NetworkPolicy", "np", "networking.k8s.io/v1", spec={"podSelector": {}, **spec})


def stateful(**spec: Any) -> Object:
    return obj(
        "StatefulSet",
        "w",
        "apps/v1",
        spec={
            "serviceName": "s",
            "replicas": 1,
            "selector": {"matchLabels": {"app": "w"}},
            "template": template(),
            **spec,
        },
    )


def affinity(key: str, kind: str = "podAffinity", app: str = "a") -> Object:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def default_class(name: str, default: str) -> Object:
    mark = {"storageclass.kubernetes.io/is-default-class": default}
    return obj(
        "StorageClass",
        name,
        "storage.k8s.io/v1",
        None,
        provisioner="example.com/disk",
        metadata={"annotations": mark},
    )


def release_volume(name: str) -> Action:
    async def do(cluster: VirtualCluster) -> None:
        body = {"spec": {"claimRef": None}}
        await cluster.patch(cluster.resource(volume()), name, body, "")

    return do


WEB = pod(ports=[{"containerPort": 80, "name": "web"}])
UDP = pod(
    image="busybox:1.33",
    command=["sleep", "1d"],
    ports=[{"containerPort": 5353, "protocol": "UDP"}],
)
LOCAL = obj(
    "StorageClass",
    "local",
    "storage.k8s.io/v1",
    None,
    provisioner="kubernetes.io/no-provisioner",
    volumeBindingMode="WaitForFirstConsumer",
)
PULL = obj(
    "Secret",
    "secret",
    type="kubernetes.io/dockerconfigjson",
    stringData={".dockerconfigjson": '{"auths":{}}'},
)

REFERENCE_FAILURES: tuple[Failure, ...] = (
    # ---- probes ----
    Failure(
        "a liveness probe of a port where nothing listens",
        A,
        "is restarted: nothing listens on port 8081 of the pod",
        "Correct the port in the probe",
        (probe("livenessProbe", httpGet={"path": "/", "port": 8081}),),
        (probe("livenessProbe", httpGet={"path": "/", "port": 80}),),
    ),
    Failure(
        "a startup probe of a port where nothing listens",
        A,
        "is restarted: nothing listens on port 8081 of the pod",
        "Correct the port in the probe",
        (probe("startupProbe", tcpSocket={"port": 8081}),),
        (probe("startupProbe", tcpSocket={"port": 80}),),
    ),
    Failure(
        "a probe with HTTPS of a server without TLS",
        A,
        "the probe uses HTTPS, and the server does not",
        "Set httpGet.scheme to HTTP",
        (probe("livenessProbe", httpGet={"path": "/", "port": 80, "scheme": "HTTPS"}),),
        (probe("livenessProbe", httpGet={"path": "/", "port": 80, "scheme": "HTTP"}),),
    ),
    Failure(
        "a probe of a named port that does not exist",
        A,
        "is not ready: the probe names a port http that the container does not have",
        "Name the container's port http, or correct the port in the probe",
        (probe("readinessProbe", httpGet={"path": "/", "port": "http"}),),
        (
            pod(
                ports=[{"containerPort": 80, "name": "http"}],
                readinessProbe={"httpGet": {"path": "/", "port": "http"}},
            ),
        ),
    ),
    Failure(
        "a probe of a path that does not exist",
        A,
        "is not ready: the server has no such path (HTTP 404)",
        "Correct httpGet.path",
        (probe("readinessProbe", httpGet={"path": "/nope", "port": 80}),),
        (probe("readinessProbe", httpGet={"path": "/", "port": 80}),),
    ),
    Failure(
        "a probe whose command does not exist",
        A,
        "is not ready: the image has no command /bin/nope",
        "Correct the command in the probe",
        (probe("readinessProbe", exec={"command": ["/bin/nope"]}),),
        (probe("readinessProbe", exec={"command": ["true"]}),),
    ),
    Failure(
        "a readiness probe with a Linux command on Windows",
        A,
        "is not ready: the image has no such command",
        "Use httpGet or tcpSocket, or a Windows command",
        (probe("readinessProbe", "windows", exec={"command": ["cat", "/tmp/ready"]}),),
        (probe("readinessProbe", "windows", exec={"command": ["cmd", "/c", "ver"]}),),
        record="WIN-CTR-003",
    ),
    # ---- ports of services ----
    Failure(
        "a UDP service of pods that declare TCP",
        S,
        "its port 53 is UDP, but port 80 of its pods is TCP",
        "Set protocol: TCP in the Service's port 53",
        (WEB, port(53, 80, "UDP")),
        (WEB, port(53, 80)),
    ),
    Failure(
        "a UDP service of pods that listen on TCP and declare nothing",
        S,
        "its port 53 is UDP, but port 80 of its pods is TCP",
        "Set protocol: TCP in the Service's port 53",
        (pod(), port(53, 80, "UDP")),
        (pod(), port(53, 80)),
    ),
    Failure(
        "a UDP service of a named TCP port",
        S,
        "its port 53 is UDP, but port web of its pods is TCP",
        "Set protocol: TCP",
        (WEB, port(53, "web", "UDP")),
        (WEB, port(53, "web")),
    ),
    Failure(
        "a TCP service of pods that declare UDP",
        S,
        "its port 53 is TCP, but port 5353 of its pods is UDP",
        "Set protocol: UDP",
        (UDP, port(53, 5353)),
        (UDP, port(53, 5353, "UDP")),
    ),
    Failure(
        "a headless service of a port name that does not exist",
        S,
        "no pod has a port named http",
        "Correct targetPort",
        (WEB, port(80, "http", clusterIP="None")),
        (WEB, port(80, "web", clusterIP="None")),
    ),
    Failure(
        "a selector with a misspelt key",
        S,
        "no pod has the labels that it selects (ap=a); pods have app=a",
        "Correct its selector",
        (pod(), service(selector={"ap": "a"})),
        (pod(), service(selector=A_LABELS)),
    ),
    Failure(
        "a service in another namespace than its pods",
        S,
        "pods with them are in namespace kube-public",
        "Correct its selector, or the labels of the pods",
        (
            {**pod(), "metadata": {"name": "a", "namespace": "kube-public", "labels": A_LABELS}},
            service(selector=A_LABELS),
        ),
    ),
    Failure(
        "Endpoints with another port name",
        S,
        "its port http is not in its Endpoints, whose ports are named web",
        "Name the port http in Endpoints s",
        (
            obj("Service", "s", spec={"ports": [{"port": 80, "name": "http"}]}),
            obj(
                "Endpoints",
                "s",
                subsets=[
                    {"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80, "name": "web"}]}
                ],
            ),
        ),
        (
            obj(
                "Endpoints",
                "s",
                subsets=[
                    {"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80, "name": "http"}]}
                ],
            ),
        ),
    ),
    # ---- names ----
    Failure(
        "an ExternalName for a Service that does not exist",
        S,
        f"{EXTERNAL} db.default.svc.cluster.local is a Service that does not exist",
        "Create that Service, or correct spec.externalName",
        (external("db.default.svc.cluster.local"),),
        (external("kubernetes.default.svc.cluster.local"),),
    ),
    Failure(
        "an ExternalName that is an address",
        S,
        f"{EXTERNAL} 192.0.2.7 is an address, not a name",
        "create Endpoints of its name with the address 192.0.2.7",
        (external("192.0.2.7"),),
    ),
    Failure(
        "an ExternalName that does not resolve",
        S,
        f"cluster DNS does not resolve {EXTERNAL} db.example.invalid: NXDOMAIN",
        "Correct spec.externalName",
        (external("db.example.invalid"),),
        (external("kubernetes.default.svc.cluster.local"),),
    ),
    # ---- roles ----
    Failure(
        "a RoleBinding without its Role",
        "rolebinding/default/b",
        "its Role reader does not exist",
        "kubectl create role reader --namespace default",
        (binding("RoleBinding", "Role"),),
        (role("Role"), binding("RoleBinding", "Role")),
    ),
    Failure(
        "a RoleBinding without its ClusterRole",
        "rolebinding/default/b",
        "its ClusterRole reader does not exist",
        "kubectl create clusterrole reader --verb",
        (binding("RoleBinding", "ClusterRole"),),
        (role("ClusterRole"), binding("RoleBinding", "ClusterRole")),
    ),
    Failure(
        "a ClusterRoleBinding without its ClusterRole",
        "clusterrolebinding/b",
        "its ClusterRole reader does not exist",
        "kubectl create clusterrole reader --verb",
        (binding("ClusterRoleBinding", "ClusterRole"),),
        (role("ClusterRole"), binding("ClusterRoleBinding", "ClusterRole")),
    ),
    Failure(
        "a RoleBinding without its ServiceAccount",
        "rolebinding/default/b",
        "its ServiceAccount robot does not exist in namespace default",
        "kubectl create serviceaccount robot --namespace default",
        (
            role("Role"),
            binding(
                "RoleBinding", "Role", {"kind": "ServiceAccount", "name": "robot", "namespace": NS}
            ),
        ),
        (
            obj("ServiceAccount", "robot"),
            role("Role"),
            binding(
                "RoleBinding", "Role", {"kind": "ServiceAccount", "name": "robot", "namespace": NS}
            ),
        ),
    ),
    # ---- Secrets ----
    Failure(
        "a pull secret that does not exist",
        A,
        "the imagePullSecret secret does not exist",
        "--namespace default --docker-server=",
        (pod(spec={"imagePullSecrets": [{"name": "secret"}]}),),
        (PULL, pod(spec={"imagePullSecrets": [{"name": "secret"}]})),
    ),
    Failure(
        "a pull secret of another type",
        A,
        "the imagePullSecret secret is of type Opaque",
        "--namespace default --docker-server=",
        (SECRET, pod(spec={"imagePullSecrets": [{"name": "secret"}]})),
    ),
    Failure(
        "an Ingress without its TLS Secret",
        "ingress/default/i",
        "its TLS Secret cert does not exist",
        "kubectl create secret tls cert --namespace default",
        (
            pod(),
            service(selector=A_LABELS),
            obj(
                "Ingress",
                "i",
                "networking.k8s.io/v1",
                spec={
                    "tls": [{"hosts": ["a.example.com"], "secretName": "cert"}],
                    "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}},
                },
            ),
        ),
        also=("it names no class",),
    ),
    # ---- workloads ----
    Failure(
        "a StatefulSet whose Service is not headless",
        "statefulset/default/w",
        "its Service s is not headless",
        "create it with clusterIP: None",
        (service(selector={"app": "w"}), stateful()),
    ),
    Failure(
        "a Job whose pods fail and are tried again",
        "job/default/j",
        "of its pods failed (exit code 3); it tries again until 7 have failed",
        "kubectl logs job/j --namespace default",
        (job(image="busybox:1.33", command=["sh", "-c", "exit 3"]),),
        (job(image="busybox:1.33", command=["true"]),),
    ),
    Failure(
        "an init container that does not succeed",
        A,
        "init container i fails with exit code 3",
        "kubectl logs a --namespace default --container i --previous",
        (
            pod(
                spec={
                    "initContainers": [
                        {"name": "i", "image": "busybox:1.33", "command": ["sh", "-c", "exit 3"]}
                    ]
                }
            ),
        ),
        (pod(),),
    ),
    # ---- scheduling ----
    Failure(
        "pod affinity with a label that no node has",
        A,
        "its pod affinity has the topologyKey example.com/rack, and no node",
        "Correct topologyKey",
        (pod(spec={"affinity": affinity("example.com/rack")}),),
        (pod(spec={"affinity": affinity("kubernetes.io/hostname")}),),
    ),
    Failure(
        "a selector and an affinity that exclude each other",
        A,
        "no node meets both its nodeSelector and its required node affinity",
        "Correct them, or label a node",
        (
            pod(
                spec={
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [
                                    {
                                        "matchExpressions": [
                                            {
                                                "key": "kubernetes.io/os",
                                                "operator": "In",
                                                "values": ["windows"],
                                            }
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
        "a claim that waits for a volume that no node can use",
        A,
        "no PersistentVolume fits a claim of the pod",
        "Create a PersistentVolume of the claim's size, access mode and class",
        (
            LOCAL,
            claim(storageClassName="local"),
            mounting({"persistentVolumeClaim": {"claimName": "v"}}),
        ),
        (
            volume(storageClassName="local"),
            claim(storageClassName="local"),
            mounting({"persistentVolumeClaim": {"claimName": "v"}}),
        ),
    ),
    # ---- network policies ----
    Failure(
        "a policy that allows DNS to other pods only",
        "networkpolicy/default/np",
        "allows no DNS queries of the pods that it selects (a)",
        "Add an egress rule for port 53",
        (
            pod(),
            policy(
                policyTypes=["Egress"],
                egress=[{"to": [{"podSelector": {"matchLabels": {"app": "x"}}}]}],
            ),
        ),
        (
            pod(),
            policy(
                policyTypes=["Egress"],
                egress=[
                    {
                        "to": [
                            {
                                "namespaceSelector": {},
                                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
                            }
                        ],
                        "ports": [{"port": 53, "protocol": "UDP"}],
                    }
                ],
            ),
        ),
    ),
    Failure(
        "a policy for another port than the service's",
        S,
        "np denies it; np allows only port 8080",
        "Add an ingress rule",
        (pod(), service(selector=A_LABELS), policy(ingress=[{"ports": [{"port": 8080}]}])),
        (pod(), service(selector=A_LABELS), policy(ingress=[{"ports": [{"port": 80}]}])),
    ),
    Failure(
        "a policy for clients that do not exist",
        S,
        "the pods that np allows do not exist",
        "Add an ingress rule for its clients",
        (
            pod(),
            service(selector=A_LABELS),
            policy(ingress=[{"from": [{"podSelector": {"matchLabels": {"role": "x"}}}]}]),
        ),
        (
            pod(),
            service(selector=A_LABELS),
            policy(ingress=[{"from": [{"podSelector": {"matchLabels": A_LABELS}}]}]),
        ),
    ),
    Failure(
        "a budget that keeps a workload of one replica",
        "poddisruptionbudget/default/b",
        "allows no disruption even while all of its 1 pods are healthy",
        "or run more replicas",
        (
            workload(),
            obj(
                "PodDisruptionBudget",
                "b",
                "policy/v1",
                spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "w"}}},
            ),
        ),
    ),
    Failure(
        "an architecture that no node has",
        A,
        "no node has the label kubernetes.io/arch=arm64",
        "add a node that is arm64: its kubelet sets this label",
        (pod(spec={"nodeSelector": {"kubernetes.io/arch": "arm64"}}),),
        (pod(spec={"nodeSelector": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}}),),
    ),
    Failure(
        "a label of another operating system",
        "node/windows-1",
        "its label kubernetes.io/os is linux, and its kubelet reports windows",
        "kubectl label node windows-1 kubernetes.io/os=windows --overwrite",
        do=patch_node("windows-1", {"metadata": {"labels": {"kubernetes.io/os": "linux"}}}),
        undo=patch_node("windows-1", {"metadata": {"labels": {"kubernetes.io/os": "windows"}}}),
    ),
    Failure(
        "two default classes",
        "storageclass/d1",
        "2 StorageClasses are the default",
        "kubectl patch storageclass d2 --patch",
        tuple(default_class(name, "true") for name in ("d1", "d2")),
        (default_class("d2", "false"),),
    ),
    Failure(
        "a seccomp profile that does not exist",
        A,
        "node linux-1 has no seccomp profile /var/lib/kubelet/seccomp/nope.json",
        "or use seccompProfile type RuntimeDefault",
        (
            pod(
                securityContext={
                    "seccompProfile": {"type": "Localhost", "localhostProfile": "nope.json"}
                }
            ),
        ),
        (pod(securityContext={"seccompProfile": {"type": "RuntimeDefault"}}),),
    ),
    Failure(
        "a volume of another class than the claim",
        "persistentvolumeclaim/default/v",
        "pv is of class fast",
        "name a StorageClass in the claim",
        (volume(storageClassName="fast"), claim(storageClassName="")),
    ),
    Failure(
        "a volume that keeps the data of a deleted claim",
        "persistentvolumeclaim/default/v",
        "pv is Released and keeps the data of a deleted claim",
        'kubectl patch persistentvolume pv --type merge -p \'{"spec":{"claimRef":null}}\'',
        (
            volume(
                persistentVolumeReclaimPolicy="Retain",
                claimRef={"namespace": NS, "name": "old", "uid": "x"},
            ),
            claim(),
        ),
        (),
        undo=release_volume("pv"),
    ),
)
