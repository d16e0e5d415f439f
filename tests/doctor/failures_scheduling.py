"""Pods that cannot be scheduled, or that the kubelet rejects."""

from __future__ import annotations

from tests.doctor.failures import A, Failure, mounting, patch_node, pod

SCHEDULING_FAILURES: tuple[Failure, ...] = (
    # ---- scheduling ----
    Failure(
        "a selector that no node matches",
        A,
        "no node has the label disk=ssd",
        "disk=ssd --overwrite",
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
        "do not have enough free memory",
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
        "a topology spread constraint of it has the topologyKey nope",
        "label the nodes with nope",
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
    # ---- refused by the kubelet ----
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
        "node linux-1 does not have enough cpu",
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
)
