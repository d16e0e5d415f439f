"""The defaults, kind by kind, on normalised objects: input and expected output."""

from typing import Any

import pytest
from tests.machinery.defaults.cases import CASES, CONTAINER, POD_SPEC

from transom.machinery.defaults import _BY_KIND, _BY_VERSION, apply_defaults
from transom.machinery.kinds import GVK, KINDS

Object = dict[str, Any]


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


def test_values_in_the_pod_are_kept() -> None:
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
