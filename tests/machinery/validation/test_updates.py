"""What a change may do, kind by kind: each row changes one thing of a sound object and gives the
errors it causes.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from transom.machinery import validation
from transom.machinery.kinds import BY_KEY

META = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
CLUSTER = {key: value for key, value in META.items() if key != "namespace"}
SERVICE = {
    "metadata": META,
    "spec": {
        "type": "ClusterIP",
        "clusterIP": "10.96.0.5",
        "clusterIPs": ["10.96.0.5"],
        "sessionAffinity": "None",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    },
}
BALANCER = {
    "metadata": META,
    "spec": {
        **SERVICE["spec"],
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 30000,
    },
}
CLAIM = {
    "metadata": META,
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeMode": "Filesystem",
    },
    "status": {"phase": "Pending"},
}
VOLUME = {
    "metadata": CLUSTER,
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": "d.example.com", "volumeHandle": "h"},
        "volumeMode": "Filesystem",
    },
}
NODE = {"metadata": CLUSTER, "spec": {"podCIDRs": ["10.0.0.0/24"]}}
FROZEN = {"metadata": META, "immutable": True, "data": {"a": "YQ=="}}
NAMESPACE = {
    "metadata": CLUSTER,
    "spec": {"finalizers": ["kubernetes"]},
    "status": {"phase": "Active"},
}
AUTOSCALER = {
    "metadata": META,
    "spec": {"minReplicas": 1, "maxReplicas": 2, "scaleTargetRef": {"kind": "D", "name": "d"}},
}
WEBHOOKS = {
    "metadata": CLUSTER,
    "webhooks": [
        {
            "name": "a.b.c",
            "sideEffects": "Some",
            "admissionReviewVersions": ["v9"],
            "clientConfig": {"url": "https://h"},
        }
    ],
}
DEFINITION = {
    "metadata": {**CLUSTER, "name": "foos.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
    "status": {"storedVersions": ["v1"], "conditions": [{"type": "Established", "status": "True"}]},
}
INGRESS = {
    "metadata": META,
    "spec": {
        "tls": [{"secretName": "Bad_"}],
        "rules": [{"host": "*.a.b", "http": {"paths": [{"path": "x"}]}}],
    },
}
SCHEMA = ("spec", "versions", 0, "schema", "openAPIV3Schema")
DROP = object()

ROWS: list[tuple[str, dict[str, Any], tuple[Any, ...], Any, str, list[str]]] = [
    (
        "/Service",
        SERVICE,
        ("spec", "clusterIPs"),
        ["10.96.0.6"],
        "",
        [
            'spec.clusterIPs[0]: Invalid value: []string{"10.96.0.6"}: may not change once set',
            (
                'spec.clusterIPs: Invalid value: []string{"10.96.0.6"}: element [0] must match '
                "clusterIP"
            ),
        ],
    ),
    (
        "/Service",
        SERVICE,
        ("spec", "type"),
        "ExternalName",
        "",
        [
            "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
            "spec.externalName: Required value",
        ],
    ),
    ("/Service", BALANCER, ("spec", "type"), "ClusterIP", "", []),
    (
        "/Service",
        BALANCER,
        ("spec", "healthCheckNodePort"),
        30001,
        "",
        [
            "spec.healthCheckNodePort: Invalid value: 30001: cannot change "
            "healthCheckNodePort on loadBalancer service with "
            "externalTraffic=Local during update"
        ],
    ),
    (
        "/Service",
        SERVICE,
        ("status",),
        {"loadBalancer": {"ingress": [{"ip": "x", "hostname": "1.2.3.4"}]}},
        "status",
        [
            'status.loadBalancer.ingress[0].ip: Invalid value: "x": must be a valid IP address',
            (
                'status.loadBalancer.ingress[0].hostname: Invalid value: "1.2.3.4": must be a '
                "DNS name, not an IP address"
            ),
        ],
    ),
    ("/PersistentVolumeClaim", CLAIM, ("spec", "volumeName"), "v", "", []),
    (
        "/PersistentVolumeClaim",
        CLAIM,
        ("spec", "resources", "requests", "storage"),
        "1024Mi",
        "",
        [],
    ),
    (
        "/PersistentVolumeClaim",
        CLAIM,
        ("spec", "resources", "requests", "storage"),
        "1Mi",
        "",
        [
            "spec: Forbidden: ...",
            "spec.resources.requests.storage: Forbidden: field can not be less than previous value",
        ],
    ),
    (
        "/PersistentVolume",
        VOLUME,
        ("spec", "csi", "volumeHandle"),
        "other",
        "",
        ["spec.persistentvolumesource: Forbidden: ..."],
    ),
    (
        "/PersistentVolume",
        VOLUME,
        ("spec", "csi", "controllerExpandSecretRef"),
        {"name": "s", "namespace": "n"},
        "",
        [],
    ),
    (
        "/PersistentVolume",
        VOLUME,
        ("spec", "volumeMode"),
        "Block",
        "",
        ['volumeMode: Invalid value: "Block": field is immutable'],
    ),
    (
        "/Node",
        NODE,
        ("spec", "podCIDRs"),
        ["10.0.1.0/24"],
        "",
        ['spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid'],
    ),
    (
        "/Node",
        NODE,
        ("status",),
        {"capacity": {"pods": "1500m"}},
        "status",
        [
            "status.capacity.pods: Invalid value: "
            "resource.Quantity{i:resource.int64Amount{value:1500, scale:-3}, "
            'd:resource.infDecAmount{Dec:(*inf.Dec)(nil)}, s:"1500m", Format:"DecimalSI"}: '
            "must be an integer"
        ],
    ),
    (
        "/Secret",
        FROZEN,
        ("data", "a"),
        "Yg==",
        "",
        ["data: Forbidden: field is immutable when `immutable` is set"],
    ),
    (
        "/ConfigMap",
        FROZEN,
        ("immutable",),
        DROP,
        "",
        ["immutable: Forbidden: field is immutable when `immutable` is set"],
    ),
    (
        "/Namespace",
        NAMESPACE,
        ("status", "phase"),
        "Terminating",
        "status",
        [
            (
                "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if "
                "`deletionTimestamp` is empty"
            )
        ],
    ),
    (
        "/Namespace",
        NAMESPACE,
        ("spec", "finalizers"),
        ["mine"],
        "finalize",
        [
            'spec.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer '
            "name nor is it fully "
            "qualified"
        ],
    ),
    (
        "autoscaling/HorizontalPodAutoscaler",
        AUTOSCALER,
        ("spec", "minReplicas"),
        0,
        "",
        [
            "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
            "spec.metrics: Forbidden: must specify at least one Object or External metric to "
            "support scaling to zero "
            "replicas",
        ],
    ),
    # What is stored already is not held against a change.
    (
        "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
        WEBHOOKS,
        ("webhooks", 0, "timeoutSeconds"),
        5,
        "",
        [],
    ),
    ("networking.k8s.io/Ingress", INGRESS, ("spec", "ingressClassName"), "c", "", []),
    (
        "apiextensions.k8s.io/CustomResourceDefinition",
        DEFINITION,
        ("spec", "scope"),
        "Cluster",
        "",
        ['spec.scope: Invalid value: "Cluster": field is immutable'],
    ),
    (
        "apiextensions.k8s.io/CustomResourceDefinition",
        DEFINITION,
        ("status", "storedVersions"),
        ["v0"],
        "",
        [
            (
                "status.storedVersions: Invalid value: "
                "apiextensions.CustomResourceDefinitionVersion{..."
            ),
            'status.storedVersions[0]: Invalid value: "v0": must appear in spec.versions',
        ],
    ),
    (
        "apiextensions.k8s.io/CustomResourceDefinition",
        DEFINITION,
        (*SCHEMA, "properties"),
        {"a": {"type": "string", "default": 1}},
        "",
        [
            "spec.validation.openAPIV3Schema.properties[a].default: Invalid value: "
            '"integer":  in body must be of type '
            'string: "integer"'
        ],
    ),
]


def _changed(obj: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    new = copy.deepcopy(obj)
    at: Any = new
    for step in path[:-1]:
        at = at[step]
    if value is DROP:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return new


@pytest.mark.parametrize(("key", "old", "path", "value", "subresource", "texts"), ROWS)
def test_update(
    key: str,
    old: dict[str, Any],
    path: tuple[Any, ...],
    value: Any,
    subresource: str,
    texts: list[str],
) -> None:
    errors = validation.validate_update(BY_KEY[key], _changed(old, path, value), old, subresource)
    got = list(dict.fromkeys(map(str, errors)))
    assert len(got) == len(texts), got
    for text, expected in zip(got, texts, strict=True):
        assert text.startswith(expected[:-3]) if expected.endswith("...") else text == expected


def test_a_beta_ingress_names_its_fields() -> None:
    obj = {
        "metadata": META,
        "spec": {"defaultBackend": {"service": {"name": "B_", "port": {"number": 0}}}},
    }
    fields = [
        e.field
        for e in validation.validate_create(
            BY_KEY["networking.k8s.io/Ingress"], obj, "networking.k8s.io/v1beta1"
        )
    ]
    assert fields == ["spec.backend.serviceName", "spec.backend"]
    assert [
        e.field for e in validation.validate_create(BY_KEY["networking.k8s.io/Ingress"], obj)
    ] == [
        "spec.defaultBackend.service.name",
        "spec.defaultBackend",
    ]


def test_versions_that_differ_keep_their_schemas() -> None:
    crd = _changed(
        DEFINITION,
        ("spec", "versions"),
        [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "string"}},
            },
            {
                "name": "v2",
                "served": True,
                "storage": False,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            },
        ],
    )
    errors = validation.validate_create(
        BY_KEY["apiextensions.k8s.io/CustomResourceDefinition"], crd
    )
    assert [str(error) for error in errors] == [
        (
            'spec.versions[0].schema.openAPIV3Schema.type: Invalid value: "string": must be '
            "object at the root"
        )
    ]
