"""The scenarios, in the order of `transom scenario list`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transom.scenarios.model import (
    NAMESPACE,
    Object,
    Scenario,
    ScenarioNode,
    apply,
    delete,
    hns_fault,
    hns_restart,
    machine,
    setting,
    wait,
)

_RUN: Final = ["cmd", "/c", "ping -t localhost"]
_AGNHOST: Final = "registry.k8s.io/e2e-test-images/agnhost:2.47"
_LISTEN: Final = ["netexec", "--http-port=80"]
_NODE_PORT: Final = 30788
_WINDOWS: Final = {"kubernetes.io/os": "windows"}
_ANY: Final = [{"operator": "Exists"}]


def _container(node: ScenarioNode, **fields: Any) -> Object:
    return {"name": "app", "image": node.image, "command": _RUN, **fields}


def _pod(
    node: ScenarioNode, container: Object, annotations: Object | None = None, **spec: Any
) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "app",
            "namespace": NAMESPACE,
            "labels": {"app": "app"},
            "annotations": annotations or {},
        },
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node.name},
            "tolerations": _ANY,
            "containers": [container],
            **spec,
        },
    }


def _one(container: Object | None = None, *, simulate: Object | None = None, **spec: Any) -> Any:
    """A pod on the node; `simulate` are annotations of the simulated runtime."""

    def make(node: ScenarioNode) -> list[Object]:
        annotations = {f"sim.transom.dev/{key}": value for key, value in (simulate or {}).items()}
        return [_pod(node, _container(node, **(container or {})), annotations, **spec)]

    return make


def _service(name: str = "app", **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"app": "app"}, "ports": [{"port": 80}], **spec},
    }


def _server(node: ScenarioNode, **fields: Any) -> Object:
    """A container that listens on port 80, on any build."""
    ports = [{"containerPort": 80}]
    return {"name": "app", "image": _AGNHOST, "args": _LISTEN, "ports": ports, **fields}


def _served(node: ScenarioNode) -> list[Object]:
    return [_pod(node, _server(node)), _service()]


def _deployment(node: ScenarioNode, replicas: int) -> Object:
    template = _pod(node, _server(node))
    template["spec"]["nodeSelector"] = _WINDOWS
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "app", "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "app"}},
            "template": {
                "metadata": {"labels": {"app": "app"}},
                "spec": dict(template["spec"]),
            },
        },
    }


def _with_gmsa(node: ScenarioNode) -> list[Object]:
    made = _deployment(node, 1)
    made["spec"]["template"]["spec"]["securityContext"] = {
        "windowsOptions": {"gmsaCredentialSpecName": "missing"}
    }
    return [made]


def _many(node: ScenarioNode) -> list[Object]:
    return [_deployment(node, 65), _service()]


def _elsewhere(node: ScenarioNode) -> list[Object]:
    """A Linux pod behind a Service: the Windows node has a remote endpoint for it."""
    pod = _pod(node, _server(node))
    pod["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
    return [pod, _service()]


def _daemon_set(node: ScenarioNode) -> list[Object]:
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": NAMESPACE},
            "spec": {
                "selector": {"matchLabels": {"app": "agent"}},
                "template": {
                    "metadata": {"labels": {"app": "agent"}},
                    "spec": {
                        "tolerations": _ANY,
                        "containers": [
                            {"name": "agent", "image": "busybox:1.33", "command": ["sleep", "1d"]}
                        ],
                    },
                },
            },
        }
    ]


def _sidecar(node: ScenarioNode) -> list[Object]:
    [pod] = _one()(node)
    pod["spec"]["containers"].append({"name": "proxy", "image": "envoyproxy/envoy:v1.17.0"})
    return [pod]


# Makes the network of the node again, which removes all endpoints.
_RENEW: Final = (
    hns_fault("lose-networks-on-restart"),
    hns_restart(),
    hns_fault("lose-networks-on-restart", False),
    machine("reboot"),
)

_ROWS: Final = (
    Scenario(
        "stale-remote-endpoints",
        "Remote endpoints of deleted pods stay in HNS",
        "kubernetes/kubernetes#135144",
        "Connections to a Service sometimes end at an address that no pod has any more.",
        "transom hns NODE endpoints",
        "Remove the endpoints on the node, then restart kube-proxy; or upgrade to 1.32.10, 1.33.6, "
        "1.34.2 or 1.35, whose kube-proxy removes them.",
        "remote endpoints",
        (
            apply(_elsewhere),
            wait(20),
            hns_fault("keep-remote-endpoints"),
            delete(_elsewhere),
            wait(10),
            hns_fault("keep-remote-endpoints", False),
        ),
        (hns_fault("keep-remote-endpoints", False), *_RENEW),
        until="1.31",
    ),
    Scenario(
        "lost-load-balancers",
        "Load balancers are gone after HNS was restarted",
        "kubernetes/kubernetes#135802",
        "Pods of one node no longer reach Services, while pods of other nodes do.",
        "transom hns NODE loadbalancers",
        "Restart kube-proxy on the node.",
        "has lost the load balancers",
        (
            apply(_served),
            wait(20),
            hns_fault("lose-balancers-on-restart"),
            hns_restart(),
        ),
        (hns_fault("lose-balancers-on-restart", False), machine("reboot")),
    ),
    Scenario(
        "leaked-endpoints",
        "Endpoints of deleted pods keep their addresses",
        "microsoft/Windows-Containers#631",
        "After many pods came and went, new pods get no address.",
        "transom hns NODE endpoints",
        "Remove the endpoints that belong to no pod, or restart the node.",
        "endpoint",
        (
            apply(_one()),
            wait(20),
            hns_fault("leak-endpoints"),
            delete(_one()),
            hns_fault("leak-endpoints", False),
        ),
        (hns_fault("leak-endpoints", False), *_RENEW),
    ),
    Scenario(
        "dns-suffix",
        "A name with a dot gets no suffix",
        "kubernetes/kubernetes#65016",
        "A Windows pod resolves `app` and `app.scenario.svc.cluster.local`, but not `app.scenario`.",
        "kubectl exec -n scenario app -- nslookup app.scenario",
        "Use the full name of the Service.",
        "gets no suffix",
        (
            apply(
                lambda node: [
                    _pod(
                        node, _server(node, env=[{"name": "URL", "value": "http://app.scenario/"}])
                    ),
                    _service(),
                ]
            ),
        ),
    ),
    Scenario(
        "65-backends",
        "A Service with more than 64 backends has no load balancer",
        "kubernetes/kubernetes#98680",
        "A Service stops to work on Windows nodes when its Deployment is scaled beyond 64.",
        "transom hns NODE loadbalancers",
        "Split the Service, or use a headless one.",
        "65 endpoints",
        (apply(_many),),
        within=180,
    ),
    Scenario(
        "linux-pod-on-windows",
        "A DaemonSet for Linux runs on Windows nodes",
        "kubernetes/kubernetes#94366",
        "Pods of the DaemonSet on Windows nodes stay in ErrImagePull.",
        "kubectl get pods -n scenario -o wide",
        "Add nodeSelector kubernetes.io/os: linux.",
        "cannot be pulled",
        (apply(_daemon_set),),
    ),
    Scenario(
        "linux-security-context",
        "runAsUser keeps a Windows pod from starting",
        "kubernetes/kubernetes#102849",
        "The pod stays in ContainerCreating.",
        "kubectl describe pod -n scenario app",
        "Use windowsOptions.runAsUserName instead of runAsUser.",
        "not supported by windows",
        (apply(_one(securityContext={"runAsUser": 1000})),),
        since="1.21",
        until="1.30",
        within=90,
    ),
    Scenario(
        "other-build",
        "The image is for another Windows build",
        "kubernetes/kubernetes#74066",
        "The image cannot be pulled, or the container does not start.",
        "kubectl describe pod -n scenario app",
        "Use an image of the build of the node.",
        "cannot be pulled",
        (apply(lambda node: [_pod(node, _container(node, image=node.other_image))]),),
    ),
    Scenario(
        "memory-exhaustion",
        "A container without a limit takes the memory of the node",
        "kubernetes/kubernetes#73417",
        "Everything on the node becomes slow; nothing is killed.",
        "kubectl top node NODE",
        "Set memory limits, and reserve memory for the system.",
        "is in the page file",
        (apply(_one(simulate={"memory": "7500Mi"})),),
        within=120,
    ),
    Scenario(
        "slow-image-pull",
        "An image takes longer than the kubelet waits",
        "openshift/windows-machine-config-operator#205",
        "The pod waits for the image. Docker cancels the pull, and it starts again.",
        "kubectl get events -n scenario",
        "Pull large images ahead of time, or use smaller ones.",
        "the pull takes",
        (
            apply(
                lambda node: [
                    _pod(
                        node,
                        _container(node, image="example.com/large:windows-1"),
                        {"sim.transom.dev/stall-pull": "3600s"},
                    )
                ]
            ),
        ),
        within=180,
    ),
    Scenario(
        "graceful-shutdown",
        "The preStop hook fails, and the container is ended without it",
        "kubernetes/kubernetes#73434",
        "Requests are cut off whenever a container stops.",
        "kubectl get events -n scenario",
        "Handle CTRL_SHUTDOWN_EVENT, or run a program of the image in the preStop hook.",
        "preStop",
        (
            apply(
                _one(
                    {
                        "lifecycle": {"preStop": {"exec": {"command": ["missing.exe"]}}},
                        "livenessProbe": {
                            "exec": {"command": ["cmd", "/c", "exit 1"]},
                            "periodSeconds": 2,
                        },
                    }
                )
            ),
        ),
    ),
    Scenario(
        "single-file-mount",
        "A volume of a single file that the node does not have",
        "kubernetes/kubernetes#63121",
        "The pod stays in ContainerCreating.",
        "kubectl describe pod -n scenario app",
        "Mount a directory that exists, or let the kubelet create it (DirectoryOrCreate).",
        "hostPath type check failed",
        (
            apply(
                _one(
                    {"volumeMounts": [{"name": "f", "mountPath": "C:\\settings\\a.txt"}]},
                    volumes=[
                        {"name": "f", "hostPath": {"path": "C:\\missing\\a.txt", "type": "File"}}
                    ],
                )
            ),
        ),
    ),
    Scenario(
        "gmsa",
        "A credential spec does not exist",
        "kubernetes/website#15905",
        "A Deployment has no pods, or its containers have no domain account.",
        "kubectl describe replicaset -n scenario",
        "Create the GMSACredentialSpec, and allow the service account to use it.",
        "GMSA",
        (apply(_with_gmsa),),
    ),
    Scenario(
        "lost-networks",
        "A restart of HNS loses the network of pods",
        "projectcalico/calico#5164",
        "Pods of the node have no network; new pods stay in ContainerCreating.",
        "transom hns NODE networks",
        "Restart the node, which makes the network again.",
        "network",
        (
            apply(_one()),
            wait(20),
            hns_fault("lose-networks-on-restart"),
            hns_restart(),
        ),
        (hns_fault("lose-networks-on-restart", False), machine("reboot")),
    ),
    Scenario(
        "injected-sidecar",
        "A Linux sidecar is injected into a Windows pod",
        "Azure/azure-workload-identity#1016",
        "One container of the pod stays in ErrImagePull.",
        "kubectl describe pod -n scenario app",
        "Exclude Windows pods from the injection.",
        "cannot be pulled",
        (apply(_sidecar),),
    ),
    Scenario(
        "blind-autoscaler",
        "An autoscaler without metrics",
        "kubernetes/kubernetes#95735",
        "The HorizontalPodAutoscaler shows <unknown> and does not scale.",
        "kubectl describe hpa -n scenario app",
        "Set CPU requests of the containers.",
        "does not scale",
        (
            apply(
                lambda node: [
                    _deployment(node, 1),
                    {
                        "apiVersion": "autoscaling/v1",
                        "kind": "HorizontalPodAutoscaler",
                        "metadata": {"name": "app", "namespace": NAMESPACE},
                        "spec": {
                            "minReplicas": 1,
                            "maxReplicas": 3,
                            "targetCPUUtilizationPercentage": 50,
                            "scaleTargetRef": {
                                "apiVersion": "apps/v1",
                                "kind": "Deployment",
                                "name": "app",
                            },
                        },
                    },
                ]
            ),
        ),
        within=120,
    ),
    Scenario(
        "run-as-non-root",
        "runAsNonRoot and an image that runs as ContainerAdministrator",
        "kubernetes/kubernetes#112469",
        "The container stays in CreateContainerConfigError.",
        "kubectl describe pod -n scenario app",
        "Set windowsOptions.runAsUserName: ContainerUser.",
        "non-root policy",
        (
            apply(
                _one(
                    securityContext={
                        "runAsNonRoot": True,
                        "windowsOptions": {"runAsUserName": "ContainerAdministrator"},
                    }
                )
            ),
        ),
    ),
    Scenario(
        "local-service",
        "A Service with externalTrafficPolicy Local and no pod on the node",
        "kubernetes/kubernetes#109780",
        "The NodePort answers on some nodes only.",
        f"transom trace external control-plane:{_NODE_PORT}",
        "Run a pod on every node, or use the policy Cluster.",
        "node ports do not answer",
        (
            apply(
                lambda node: [
                    _pod(node, _server(node)),
                    _service(
                        type="NodePort",
                        externalTrafficPolicy="Local",
                        ports=[{"port": 80, "nodePort": _NODE_PORT}],
                    ),
                ]
            ),
        ),
    ),
    Scenario(
        "mac-spoofing",
        "The network adapter of the virtual machine drops frames of pods",
        "MicrosoftDocs/Virtualization-Documentation#678",
        "Pods of the node reach nothing.",
        "transom trace scenario/app control-plane",
        "Allow MAC spoofing on the adapter.",
        "MAC",
        (
            apply(_one()),
            wait(20),
            setting("macSpoofing", False),
        ),
        (setting("macSpoofing", True),),
    ),
)
SCENARIOS: Final[Mapping[str, Scenario]] = {row.name: row for row in _ROWS}
