"""The rules, kind by kind, on objects in normalised form: what goes in, what must stand there
afterwards.
"""

from typing import Any

import pytest

from transom.machinery.defaults import _BY_KIND, _BY_VERSION, apply_defaults
from transom.machinery.kinds import GVK, KINDS

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

WITHOUT_DEFAULTS = {
    "Binding",
    "ComponentStatus",
    "ConfigMap",
    "Event",
    "ServiceAccount",
    "ControllerRevision",
    "TokenReview",
    "SelfSubjectReview",
    "LocalSubjectAccessReview",
    "SelfSubjectAccessReview",
    "SelfSubjectRulesReview",
    "SubjectAccessReview",
    "Lease",
    "IngressClass",
    "RuntimeClass",
    "PodDisruptionBudget",
    "ClusterRole",
    "Role",
    "CSINode",
    "CSIStorageCapacity",
}


def defaulted(group: str, version: str, kind: str, obj: Object) -> Object:
    apply_defaults(GVK(group, version, kind), obj)
    return obj


def template() -> Object:
    return {"metadata": {"creationTimestamp": None}, "spec": {}}


def test_every_kind_has_its_rule_or_is_known_to_have_none() -> None:
    ruled = {kind for _, kind in _BY_KIND} | {kind for _, _, kind in _BY_VERSION}
    assert {k.kind for k in KINDS} - ruled == WITHOUT_DEFAULTS


def test_pod() -> None:
    pod = defaulted(
        "",
        "v1",
        "Pod",
        {
            "metadata": {
                "annotations": {"pod.beta.kubernetes.io/init-containers": "[]", "keep": "1"}
            },
            "spec": {
                "serviceAccount": "builder",
                "hostNetwork": True,
                "overhead": {"cpu": "100u"},
                "containers": [
                    {
                        "name": "a",
                        "image": "nginx",
                        "ports": [{"containerPort": 80}],
                        "resources": {
                            "limits": {"cpu": "1", "memory": "1Gi"},
                            "requests": {"cpu": "1100u"},
                        },
                    }
                ],
                "initContainers": [
                    {"name": "i", "image": "x:1", "resources": {"limits": {"cpu": "2"}}}
                ],
                "ephemeralContainers": [
                    {"name": "e", "image": "x:1", "resources": {"limits": {"cpu": "2"}}}
                ],
            },
            "status": {"podIPs": [{"ip": "10.0.0.1"}]},
        },
    )
    spec = pod["spec"]
    assert pod["metadata"]["annotations"] == {"keep": "1"}
    assert pod["status"]["podIP"] == "10.0.0.1"
    assert {k: spec[k] for k in POD_SPEC} == POD_SPEC
    assert spec["enableServiceLinks"] is True
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "builder"
    assert spec["overhead"] == {"cpu": "1m"}
    first = spec["containers"][0]
    assert first["imagePullPolicy"] == "Always"
    assert first["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    assert first["resources"]["requests"] == {"cpu": "2m", "memory": "1Gi"}
    assert spec["initContainers"][0]["resources"]["requests"] == {"cpu": "2"}
    assert spec["ephemeralContainers"][0] == {
        **CONTAINER,
        "name": "e",
        "image": "x:1",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": {"cpu": "2"}},
    }


def test_what_the_pod_says_stays() -> None:
    printed = {
        "dnsPolicy": "None",
        "restartPolicy": "Never",
        "schedulerName": "x",
        "securityContext": {"runAsUser": 1},
        "terminationGracePeriodSeconds": 0,
        "enableServiceLinks": False,
        "serviceAccountName": "a",
        "serviceAccount": "a",
        "containers": [
            {
                "imagePullPolicy": "Never",
                "terminationMessagePath": "/x",
                "terminationMessagePolicy": "y",
                "ports": [{"containerPort": 1, "protocol": "UDP"}],
            }
        ],
    }
    pod = {"spec": printed, "metadata": {}, "status": {}}
    expected = {
        "spec": {**printed, "containers": [dict(printed["containers"][0])]},
        "metadata": {},
        "status": {},
    }  # type: ignore[index]
    assert defaulted("", "v1", "Pod", pod) == expected


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        ({}, {"emptyDir": {}}),
        ({"secret": {}}, {"secret": {"defaultMode": 420}}),
        ({"secret": {"defaultMode": 0}}, {"secret": {"defaultMode": 0}}),
        ({"configMap": {"name": "c"}}, {"configMap": {"name": "c", "defaultMode": 420}}),
        (
            {"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "b"}}]}},
            {
                "downwardAPI": {
                    "defaultMode": 420,
                    "items": [{"path": "a", "fieldRef": {"fieldPath": "b", "apiVersion": "v1"}}],
                }
            },
        ),
        (
            {
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "t"}},
                        {"downwardAPI": {"items": [{"fieldRef": {"fieldPath": "b"}}]}},
                    ]
                }
            },
            {
                "projected": {
                    "defaultMode": 420,
                    "sources": [
                        {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                        {
                            "downwardAPI": {
                                "items": [{"fieldRef": {"fieldPath": "b", "apiVersion": "v1"}}]
                            }
                        },
                    ],
                }
            },
        ),
        ({"hostPath": {"path": "/x"}}, {"hostPath": {"path": "/x", "type": ""}}),
        ({"iscsi": {}}, {"iscsi": {"iscsiInterface": "default"}}),
        ({"rbd": {}}, {"rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}}),
        (
            {"azureDisk": {}},
            {
                "azureDisk": {
                    "cachingMode": "ReadWrite",
                    "kind": "Shared",
                    "fsType": "ext4",
                    "readOnly": False,
                }
            },
        ),
        ({"scaleIO": {}}, {"scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"}}),
        (
            {
                "ephemeral": {
                    "volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1u"}}}}
                }
            },
            {
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {
                            "resources": {"requests": {"storage": "1m"}},
                            "volumeMode": "Filesystem",
                        }
                    }
                }
            },
        ),
        ({"nfs": {"server": "s"}}, {"nfs": {"server": "s"}}),
    ],
)
def test_volumes(volume: Object, expected: Object) -> None:
    pod = {"spec": {"volumes": [{"name": "v", **volume}]}, "metadata": {}}
    assert defaulted("", "v1", "Pod", pod)["spec"]["volumes"] == [{"name": "v", **expected}]


def test_probes_hooks_and_environment() -> None:
    container = {
        "livenessProbe": {"httpGet": {"port": 1}},
        "startupProbe": {"tcpSocket": {"port": 1}, "periodSeconds": 2},
        "lifecycle": {
            "preStop": {"httpGet": {"port": 2, "scheme": "HTTPS"}},
            "postStart": {"exec": {}},
        },
        "env": [
            {"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
            {"name": "b", "value": "c"},
        ],
    }
    defaulted("", "v1", "Pod", {"spec": {"containers": [container]}, "metadata": {}})
    times = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert container["livenessProbe"] == {
        "httpGet": {"port": 1, "path": "/", "scheme": "HTTP"},
        **times,
    }
    assert container["startupProbe"] == {"tcpSocket": {"port": 1}, **times, "periodSeconds": 2}
    assert container["lifecycle"] == {
        "preStop": {"httpGet": {"port": 2, "path": "/", "scheme": "HTTPS"}},
        "postStart": {"exec": {}},
    }
    assert container["env"] == [
        {"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "x", "apiVersion": "v1"}}},
        {"name": "b", "value": "c"},
    ]


def test_templates_get_no_requests_and_no_service_links() -> None:
    container = {"image": "x", "resources": {"limits": {"cpu": "1"}}}
    spec = defaulted("", "v1", "PodTemplate", {"template": {"spec": {"containers": [container]}}})[
        "template"
    ]["spec"]
    assert "enableServiceLinks" not in spec and spec["containers"][0]["resources"] == {
        "limits": {"cpu": "1"}
    }


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
            }
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


@pytest.mark.parametrize(("name", "obj", "expected"), CASES, ids=[c[0] for c in CASES])
def test_kinds(name: str, obj: Object, expected: Object) -> None:
    group, version, kind = ("/" + name).rsplit("/", 2)
    gvk = GVK(group.strip("/"), version, kind)
    apply_defaults(gvk, obj)
    assert obj == expected
    apply_defaults(gvk, obj)
    assert obj == expected, "a second pass changes nothing"


def test_copied_labels_are_not_shared() -> None:
    rc = {"metadata": {}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {}}}}
    defaulted("", "v1", "ReplicationController", rc)
    rc["spec"]["selector"]["c"] = "d"  # type: ignore[index]
    assert rc["metadata"] == {"labels": {"a": "b"}}
