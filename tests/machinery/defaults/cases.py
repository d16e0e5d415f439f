"""Objects and what they are with their default values."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

POD_SPEC = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
CONTAINER = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
TEMPLATE = {"metadata": {"creationTimestamp": None}, "spec": POD_SPEC}


def template() -> Object:
    return {"metadata": {"creationTimestamp": None}, "spec": {}}


LABELS = {"app": "x"}
LABELLED = {"metadata": {"labels": LABELS}, "spec": {}}
LABELLED_OUT = {"metadata": {"labels": LABELS}, "spec": POD_SPEC}
SHARED_PERCENT = {"maxUnavailable": "25%", "maxSurge": "25%"}
CASES: list[tuple[str, Object, Object]] = [
    (
        "apps/v1/Deployment",
        {"spec": {"strategy": {}, "template": template()}},
        {
            "spec": {
                "replicas": 1,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": SHARED_PERCENT},
                "template": TEMPLATE,
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
            }
        },
    ),
    (
        "apps/v1/Deployment",
        {"spec": {"replicas": 0, "strategy": {"type": "Recreate"}, "template": template()}},
        {
            "spec": {
                "replicas": 0,
                "strategy": {"type": "Recreate"},
                "template": TEMPLATE,
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
            }
        },
    ),
    (
        "apps/v1/DaemonSet",
        {"spec": {"updateStrategy": {}, "template": template()}},
        {
            "spec": {
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
                "template": TEMPLATE,
                "revisionHistoryLimit": 10,
            },
            "metadata": {"annotations": {"deprecated.daemonset.template.generation": "0"}},
        },
    ),
    (
        "apps/v1/StatefulSet",
        {
            "spec": {
                "updateStrategy": {},
                "template": template(),
                "volumeClaimTemplates": [
                    {"metadata": {"name": "d"}, "spec": {"resources": {}}, "status": {}}
                ],
            }
        },
        {
            "spec": {
                "podManagementPolicy": "OrderedReady",
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "template": TEMPLATE,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "volumeClaimTemplates": [
                    {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "metadata": {"name": "d"},
                        "spec": {"resources": {}, "volumeMode": "Filesystem"},
                        "status": {"phase": "Pending"},
                    }
                ],
            }
        },
    ),
    (
        "apps/v1/StatefulSet",
        {"spec": {"updateStrategy": {"type": "RollingUpdate"}, "template": template()}},
        {
            "spec": {
                "podManagementPolicy": "OrderedReady",
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "template": TEMPLATE,
                "updateStrategy": {"type": "RollingUpdate"},
            }
        },
    ),
    (
        "apps/v1/ReplicaSet",
        {"metadata": {}, "spec": {"template": LABELLED}},
        {"metadata": {}, "spec": {"replicas": 1, "template": LABELLED_OUT}},
    ),
    (
        "v1/ReplicationController",
        {"metadata": {}, "spec": {"template": LABELLED}},
        {
            "metadata": {"labels": LABELS},
            "spec": {"replicas": 1, "selector": LABELS, "template": LABELLED_OUT},
        },
    ),
    (
        "v1/ReplicationController",
        {"metadata": {}, "spec": {}},
        {"metadata": {}, "spec": {"replicas": 1}},
    ),
    (
        "batch/v1/Job",
        {"metadata": {}, "spec": {"template": LABELLED}},
        {
            "metadata": {"labels": LABELS},
            "spec": {
                "completions": 1,
                "parallelism": 1,
                "backoffLimit": 6,
                "template": LABELLED_OUT,
            },
        },
    ),
    (
        "batch/v1/Job",
        {"metadata": {}, "spec": {"completions": 3, "template": template()}},
        {
            "metadata": {},
            "spec": {"completions": 3, "parallelism": 1, "backoffLimit": 6, "template": TEMPLATE},
        },
    ),
    (
        "batch/v1/Job",
        {"metadata": {}, "spec": {"parallelism": 3, "template": template()}},
        {"metadata": {}, "spec": {"parallelism": 3, "backoffLimit": 6, "template": TEMPLATE}},
    ),
    (
        "batch/v1beta1/CronJob",
        {"spec": {"schedule": "x", "jobTemplate": {"spec": {"template": template()}}}},
        {
            "spec": {
                "schedule": "x",
                "concurrencyPolicy": "Allow",
                "suspend": False,
                "successfulJobsHistoryLimit": 3,
                "failedJobsHistoryLimit": 1,
                "jobTemplate": {"spec": {"template": TEMPLATE}},
            }
        },
    ),
    (
        "v1/Service",
        {
            "spec": {
                "ports": [
                    {"port": 80, "targetPort": 0},
                    {"port": 1, "targetPort": "x", "protocol": "UDP"},
                ],
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}},
            }
        },
        {
            "spec": {
                "ports": [
                    {"port": 80, "targetPort": 80, "protocol": "TCP"},
                    {"port": 1, "targetPort": "x", "protocol": "UDP"},
                ],
                "sessionAffinity": "None",
                "type": "ClusterIP",
            }
        },
    ),
    (
        "v1/Service",
        {"spec": {"type": "NodePort", "sessionAffinity": "ClientIP"}},
        {
            "spec": {
                "type": "NodePort",
                "sessionAffinity": "ClientIP",
                "externalTrafficPolicy": "Cluster",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
            }
        },
    ),
    (
        "v1/Secret",
        {"data": {"a": "b"}, "stringData": {"c": "d"}},
        {"data": {"a": "b", "c": "ZA=="}, "type": "Opaque"},
    ),
    ("v1/Namespace", {"status": {}}, {"status": {"phase": "Active"}}),
    (
        "v1/Node",
        {"spec": {"podCIDR": "a"}, "status": {"capacity": {"cpu": "1u"}}},
        {
            "spec": {"podCIDR": "a", "podCIDRs": ["a"]},
            "status": {"capacity": {"cpu": "1m"}, "allocatable": {"cpu": "1m"}},
        },
    ),
    (
        "v1/PersistentVolume",
        {"spec": {"hostPath": {"path": "/"}}, "status": {}},
        {
            "status": {"phase": "Pending"},
            "spec": {
                "hostPath": {"path": "/", "type": ""},
                "persistentVolumeReclaimPolicy": "Retain",
                "volumeMode": "Filesystem",
            },
        },
    ),
    (
        "v1/PersistentVolumeClaim",
        {"spec": {"volumeMode": "Block"}, "status": {}},
        {"spec": {"volumeMode": "Block"}, "status": {"phase": "Pending"}},
    ),
    (
        "v1/Endpoints",
        {"subsets": [{"ports": [{"port": 1}]}]},
        {"subsets": [{"ports": [{"port": 1, "protocol": "TCP"}]}]},
    ),
    (
        "v1/LimitRange",
        {
            "spec": {
                "limits": [
                    {
                        "type": "Container",
                        "max": {"cpu": "2", "memory": "1Gi"},
                        "min": {"cpu": "1", "x": "1"},
                        "default": {"cpu": "1500m"},
                    },
                    {"type": "Pod", "max": {"cpu": "2"}},
                    {"type": "Container"},
                ]
            }
        },
        {
            "spec": {
                "limits": [
                    {
                        "type": "Container",
                        "max": {"cpu": "2", "memory": "1Gi"},
                        "min": {"cpu": "1", "x": "1"},
                        "default": {"cpu": "1500m", "memory": "1Gi"},
                        "defaultRequest": {"cpu": "1500m", "memory": "1Gi", "x": "1"},
                    },
                    {"type": "Pod", "max": {"cpu": "2"}},
                    {"type": "Container"},
                ]
            }
        },
    ),
    (
        "autoscaling/v1/HorizontalPodAutoscaler",
        {"spec": {}},
        {"spec": {"minReplicas": 1, "targetCPUUtilizationPercentage": 80}},
    ),
    (
        "autoscaling/v1/HorizontalPodAutoscaler",
        {
            "metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": "[{}]"}},
            "spec": {},
        },
        {
            "metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": "[{}]"}},
            "spec": {"minReplicas": 1},
        },
    ),
    (
        "autoscaling/v2/HorizontalPodAutoscaler",
        {"spec": {}},
        {
            "spec": {
                "minReplicas": 1,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {
                            "name": "cpu",
                            "target": {"type": "Utilization", "averageUtilization": 80},
                        },
                    }
                ],
            }
        },
    ),
    (
        "autoscaling/v2beta1/HorizontalPodAutoscaler",
        {"spec": {}},
        {
            "spec": {
                "minReplicas": 1,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {"name": "cpu", "targetAverageUtilization": 80},
                    }
                ],
            }
        },
    ),
    (
        "autoscaling/v2beta2/HorizontalPodAutoscaler",
        {"spec": {"metrics": [1], "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}}},
        {
            "spec": {
                "metrics": [1],
                "minReplicas": 1,
                "behavior": {
                    "scaleUp": {
                        "stabilizationWindowSeconds": 0,
                        "selectPolicy": "Max",
                        "policies": [
                            {"type": "Pods", "value": 4, "periodSeconds": 15},
                            {"type": "Percent", "value": 100, "periodSeconds": 15},
                        ],
                    },
                    "scaleDown": {
                        "stabilizationWindowSeconds": 5,
                        "selectPolicy": "Max",
                        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
                    },
                },
            }
        },
    ),
    (
        "networking.k8s.io/v1beta1/Ingress",
        {"spec": {"rules": [{"http": {"paths": [{"path": "/"}]}}, {"host": "x"}]}},
        {
            "spec": {
                "rules": [
                    {"http": {"paths": [{"path": "/", "pathType": "ImplementationSpecific"}]}},
                    {"host": "x"},
                ]
            }
        },
    ),
    (
        "extensions/v1beta1/Ingress",
        {"spec": {"rules": [{"http": {"paths": [{"path": "/"}]}}]}},
        {
            "spec": {
                "rules": [
                    {"http": {"paths": [{"path": "/", "pathType": "ImplementationSpecific"}]}}
                ]
            }
        },
    ),
    ("policy/v1beta1/PodSecurityPolicy", {}, {"spec": {"allowPrivilegeEscalation": True}}),
    (
        "policy/v1beta1/PodSecurityPolicy",
        {"spec": {"allowPrivilegeEscalation": False}},
        {"spec": {"allowPrivilegeEscalation": False}},
    ),
    (
        "networking.k8s.io/v1/Ingress",
        {"spec": {"rules": [{"http": {"paths": [{"path": "/"}]}}]}},
        {"spec": {"rules": [{"http": {"paths": [{"path": "/"}]}}]}},
    ),
    (
        "networking.k8s.io/v1/NetworkPolicy",
        {"spec": {"egress": [{"ports": [{"port": 1}]}]}},
        {
            "spec": {
                "egress": [{"ports": [{"port": 1, "protocol": "TCP"}]}],
                "policyTypes": ["Ingress", "Egress"],
            }
        },
    ),
    (
        "networking.k8s.io/v1/NetworkPolicy",
        {"spec": {"podSelector": {}}},
        {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}},
    ),
    (
        "discovery.k8s.io/v1/EndpointSlice",
        {"ports": [{"port": 1}]},
        {"ports": [{"port": 1, "name": "", "protocol": "TCP"}]},
    ),
    ("discovery.k8s.io/v1/EndpointSlice", {"ports": None}, {"ports": None}),
    (
        "rbac.authorization.k8s.io/v1/RoleBinding",
        {
            "roleRef": {"apiGroup": "", "kind": "Role"},
            "subjects": [{"kind": "User"}, {"kind": "ServiceAccount"}],
        },
        {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role"},
            "subjects": [
                {"kind": "User", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "ServiceAccount"},
            ],
        },
    ),
    ("scheduling.k8s.io/v1/PriorityClass", {}, {"preemptionPolicy": "PreemptLowerPriority"}),
    (
        "storage.k8s.io/v1/StorageClass",
        {},
        {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    ),
    (
        "storage.k8s.io/v1/CSIDriver",
        {"spec": {}},
        {
            "spec": {
                "attachRequired": True,
                "podInfoOnMount": False,
                "fsGroupPolicy": "ReadWriteOnceWithFSType",
                "volumeLifecycleModes": ["Persistent"],
            }
        },
    ),
    (
        "storage.k8s.io/v1/VolumeAttachment",
        {"spec": {"source": {"inlineVolumeSpec": {"iscsi": {}}}}},
        {"spec": {"source": {"inlineVolumeSpec": {"iscsi": {"iscsiInterface": "default"}}}}},
    ),
    (
        "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration",
        {"webhooks": [{"clientConfig": {"service": {}}, "rules": [{}]}]},
        {
            "webhooks": [
                {
                    "clientConfig": {"service": {"port": 443}},
                    "rules": [{"scope": "*"}],
                    "failurePolicy": "Fail",
                    "matchPolicy": "Equivalent",
                    "namespaceSelector": {},
                    "objectSelector": {},
                    "timeoutSeconds": 10,
                    "reinvocationPolicy": "Never",
                }
            ]
        },
    ),
    (
        "apiextensions.k8s.io/v1/CustomResourceDefinition",
        {
            "spec": {
                "names": {"kind": "Foo"},
                "versions": [{"name": "a"}, {"name": "b", "storage": True}],
            },
            "status": {},
        },
        {
            "spec": {
                "names": {"kind": "Foo", "singular": "foo", "listKind": "FooList"},
                "conversion": {"strategy": "None"},
                "versions": [{"name": "a"}, {"name": "b", "storage": True}],
            },
            "status": {"storedVersions": ["b"]},
        },
    ),
    (
        "apiregistration.k8s.io/v1/APIService",
        {"spec": {"service": {"name": "x"}}},
        {"spec": {"service": {"name": "x", "port": 443}}},
    ),
    (
        "apiregistration.k8s.io/v1/APIService",
        {"spec": {"service": None}},
        {"spec": {"service": None}},
    ),
    (
        "flowcontrol.apiserver.k8s.io/v1beta1/FlowSchema",
        {"spec": {}},
        {"spec": {"matchingPrecedence": 1000}},
    ),
    (
        "flowcontrol.apiserver.k8s.io/v1beta1/PriorityLevelConfiguration",
        {
            "spec": {
                "limited": {
                    "assuredConcurrencyShares": 0,
                    "limitResponse": {"queuing": {"queues": 1}},
                }
            }
        },
        {
            "spec": {
                "limited": {
                    "assuredConcurrencyShares": 30,
                    "limitResponse": {
                        "queuing": {"queues": 1, "handSize": 8, "queueLengthLimit": 50}
                    },
                }
            }
        },
    ),
    (
        "flowcontrol.apiserver.k8s.io/v1/PriorityLevelConfiguration",
        {"spec": {"limited": {"nominalConcurrencyShares": 0}}},
        {"spec": {"limited": {"nominalConcurrencyShares": 0}}},
    ),
    ("authentication.k8s.io/v1/TokenRequest", {"spec": {}}, {"spec": {"expirationSeconds": 3600}}),
    ("v1/ConfigMap", {"data": {"a": "b"}}, {"data": {"a": "b"}}),
]
