"""Rules that changed after 1.20, with the errors that a real kube-apiserver 1.36.4 returned."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery import codec, validation
from transom.machinery.codec import DecodeError
from transom.machinery.field import invalid
from transom.machinery.kinds import GVK, Kind
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.texts import in_release
from transom.machinery.schema import schema_table
from transom.machinery.validation.godump import dump_label_selector
from transom.machinery.validation.names import (
    is_dns1123_label,
    is_label_value,
    is_qualified_name,
)
from transom.machinery.validation.pod_status import claim_status_errors, container_status_errors

Object = dict[str, Any]


def kind_of(key: str) -> Kind:
    group, _, name = key.partition("/")
    return Kind(group, name, f"{name.lower()}s", namespaced=name != "CSINode")


META = {"name": "a", "namespace": "n"}
LABEL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def features(minor: int) -> FeatureSet:
    return FeatureSet(Release(1, minor))


def created(minor: int, kind: str, obj: Object) -> list[str]:
    errors = validation.validate_create(kind_of(kind), obj, "", features(minor))
    return [str(error) for error in in_release(Release(1, minor), errors)]


def updated(minor: int, kind: str, new: Object, old: Object) -> list[str]:
    meta = {"resourceVersion": "1", "uid": "u"}
    new, old = ({**obj, "metadata": {**obj["metadata"], **meta}} for obj in (new, old))
    errors = validation.validate_update(kind_of(kind), new, old, "", "", features(minor))
    return [str(error) for error in in_release(Release(1, minor), errors)]


def policy(value: str, operator: str = "In") -> Object:
    term = {"key": "k", "operator": operator, "values": [value]}
    return {
        "metadata": dict(META),
        "spec": {"podSelector": {"matchExpressions": [term]}, "policyTypes": ["Ingress"]},
    }


@pytest.mark.parametrize(
    "minor, expected",
    [
        (25, []),
        (26, [f'spec.podSelector.matchExpressions[0].values[0]: Invalid value: "-a": {LABEL}']),
    ],
)
def test_values_of_selectors_are_label_values(minor: int, expected: list[str]) -> None:
    assert created(minor, "networking.k8s.io/NetworkPolicy", policy("-a")) == expected


def test_an_object_keeps_the_selector_values_it_had() -> None:
    kind = "networking.k8s.io/NetworkPolicy"
    assert updated(36, kind, policy("-b"), policy("-a")) == []
    assert len(updated(36, kind, policy("-b"), policy("a"))) == 1


def node_driver(name: str) -> Object:
    return {"metadata": {"name": "a"}, "spec": {"drivers": [{"name": name, "nodeID": "x"}]}}


@pytest.mark.parametrize("minor, times", [(20, 2), (21, 1), (32, 1), (36, 1)])
def test_each_error_of_a_new_csi_node_appears_once_since_1_21(minor: int, times: int) -> None:
    assert len(created(minor, "storage.k8s.io/CSINode", node_driver("a_b"))) == times


@pytest.mark.parametrize("minor, times", [(32, 2), (35, 2), (36, 1)])
def test_each_error_of_a_changed_csi_node_appears_once_since_1_36(minor: int, times: int) -> None:
    node = node_driver("a_b")
    assert len(updated(minor, "storage.k8s.io/CSINode", node, node)) == times


@pytest.mark.parametrize("minor, longest", [(20, 128), (21, 128), (22, 192), (23, 256), (36, 256)])
def test_length_of_node_ids(minor: int, longest: int) -> None:
    for length, problems in ((longest, []), (longest + 1, [longest])):
        node = node_driver("a.b")
        node["spec"]["drivers"][0]["nodeID"] = "x" * length
        found = created(minor, "storage.k8s.io/CSINode", node)
        expected = [f"must be {limit} characters or less" for limit in problems]
        assert sorted({error.rpartition(": ")[2] for error in found}) == expected


@pytest.mark.parametrize("minor, shown", [(21, '[]string{"A b"}'), (32, '"A b"'), (36, '"A b"')])
def test_errors_of_topology_keys(minor: int, shown: str) -> None:
    node = node_driver("a.b")
    node["spec"]["drivers"][0]["topologyKeys"] = ["A b"]
    (error,) = created(minor, "storage.k8s.io/CSINode", node)
    assert error.startswith(f"spec.drivers[0]: Invalid value: {shown}: name part must consist of")


@pytest.mark.parametrize(
    "minor, text",
    [
        (29, "not a valid CIDR"),
        (30, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        (32, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        (36, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
    ],
)
def test_blocks_of_network_policies(minor: int, text: str) -> None:
    obj = {
        "metadata": dict(META),
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"ipBlock": {"cidr": "x"}}]}],
        },
    }
    path = "spec.ingress[0].from[0].ipBlock.cidr"
    found = created(minor, "networking.k8s.io/NetworkPolicy", obj)
    assert found == [f'{path}: Invalid value: "x": {text}']


def test_a_missing_driver_name_is_one_error_since_1_35() -> None:
    kind = "storage.k8s.io/CSINode"
    assert created(36, kind, node_driver("")) == ["spec.drivers[0].name: Required value"]
    assert len(created(34, kind, node_driver(""))) == 2


def stateful_set(container: Object) -> Object:
    labels = {"app": "a"}
    pod = {
        "containers": [
            {
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                **container,
            }
        ],
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "hostname": "Not A Name",
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return {
        "metadata": dict(META),
        "spec": {
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": labels},
            "serviceName": "a",
            "template": {"metadata": {"labels": labels}, "spec": pod},
            "volumeClaimTemplates": [claim],
        },
    }


def test_the_template_of_a_stateful_set_is_checked_since_1_34() -> None:
    kind = "apps/StatefulSet"
    good, bad = stateful_set({"name": "c", "image": "i"}), stateful_set({"name": "c"})
    assert created(36, kind, good) == []  # the claim is a volume of the pods
    wrong = ["spec.template.spec.containers[0].image: Required value"]
    assert (created(33, kind, bad), created(34, kind, bad)) == ([], wrong)
    assert updated(36, kind, bad, good) == wrong
    assert updated(36, kind, bad, bad) == []  # it was accepted before


def test_metadata_of_claim_templates_is_labels_and_annotations() -> None:
    spec = {"devices": {}}
    template = {
        "metadata": dict(META),
        "spec": {"metadata": {"labels": {"a": "b"}, "uid": "u", "name": "x"}, "spec": spec},
    }
    assert created(36, "resource.k8s.io/ResourceClaimTemplate", template) == [
        "spec.metadata.name: Forbidden: cannot be set",
        "spec.metadata.uID: Forbidden: cannot be set",
    ]


def decoding_error(minor: int, gvk: GVK, text: bytes) -> str:
    with pytest.raises(DecodeError) as found:
        codec.decode_object(text, "application/json", gvk, types=schema_table(Release(1, minor)))
    return found.value.base


@pytest.mark.parametrize(
    "gvk, body, expected",
    [
        (
            GVK("batch", "v1", "Job"),
            b'{"spec":{"podReplacementPolicy":[]}}',
            "json: cannot unmarshal array into Go struct field JobSpec.spec.podReplacementPolicy "
            "of type v1.PodReplacementPolicy",
        ),
        (
            GVK("", "v1", "LimitRange"),
            b'{"spec":{"limits":[{"max":"1Gi"}]}}',
            "json: cannot unmarshal string into Go struct field LimitRangeItem.spec.limits.max "
            "of type v1.ResourceList",
        ),
        (
            GVK("certificates.k8s.io", "v1", "CertificateSigningRequest"),
            b'{"spec":{"usages":["any",2]}}',
            "json: cannot unmarshal number into Go struct field "
            "CertificateSigningRequestSpec.spec.usages of type v1.KeyUsage",
        ),
        (
            GVK("resource.k8s.io", "v1", "ResourceSlice"),
            b'{"spec":{"devices":[{"attributes":[]}]}}',
            "json: cannot unmarshal array into Go struct field Device.spec.devices.attributes "
            "of type map[v1.QualifiedName]v1.DeviceAttribute",
        ),
        (
            GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
            b'{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"items":[""]}}}]}}',
            "json: cannot unmarshal string into Go struct field "
            "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items of type v1.JSONSchemaProps",
        ),
    ],
)
def test_decoding_errors_name_the_types_of_go(gvk: GVK, body: bytes, expected: str) -> None:
    assert decoding_error(36, gvk, body) == expected


def test_a_null_in_a_map_of_lists_is_an_empty_list() -> None:
    gvk = GVK("authorization.k8s.io", "v1", "SubjectAccessReview")
    body = b'{"spec":{"extra":{"a":null}}}'
    decoded = codec.decode_object(body, "application/json", gvk, types=schema_table(Release(1, 36)))
    assert decoded.obj["spec"]["extra"] == {"a": None}


@pytest.mark.parametrize(
    ("minor", "expected"),
    [
        # It was validated twice.
        (33, ["spec.template.metadata.labels", "spec.template.metadata.labels", "spec.selector"]),
        (34, ["spec.selector", "spec.template.metadata.labels"]),
    ],
)
def test_a_changed_selector_of_a_daemon_set_comes_first_since_1_34(
    minor: int, expected: list[str]
) -> None:
    def daemon_set(selected: str) -> Object:
        container = {
            "name": "c",
            "image": "i",
            "imagePullPolicy": "Always",
            "terminationMessagePolicy": "File",
        }
        return {
            "metadata": dict(META),
            "spec": {
                "selector": {"matchLabels": {"a": selected}},
                "template": {
                    "metadata": {"labels": {"a": "x"}},
                    "spec": {
                        "containers": [container],
                        "restartPolicy": "Always",
                        "dnsPolicy": "ClusterFirst",
                        "terminationGracePeriodSeconds": 30,
                    },
                },
                "updateStrategy": {"type": "OnDelete"},
            },
        }

    errors = updated(minor, "apps/DaemonSet", daemon_set("y"), daemon_set("x"))
    assert [error.partition(":")[0] for error in errors] == expected


@pytest.mark.parametrize(
    ("gvk", "body", "expected"),
    [
        (
            GVK("policy", "v1", "PodDisruptionBudget"),
            b'{"spec":{"minAvailable":[]}}',
            "array into Go struct field PodDisruptionBudgetSpec.spec.minAvailable of type int32",
        ),
        (  # it ends the decoding; the error before does not
            GVK("", "v1", "Service"),
            b'{"metadata":false,"spec":{"ports":[{"targetPort":{}}]}}',
            "object into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
        (
            GVK("", "v1", "Service"),
            b'{"metadata":{"creationTimestamp":1}}',
            "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
    ],
)
def test_errors_of_types_that_decode_themselves(gvk: GVK, body: bytes, expected: str) -> None:
    assert decoding_error(36, gvk, body).endswith(expected)


@pytest.mark.parametrize("minor, valid", [(26, True), (27, False), (36, False)])
def test_names_of_new_stateful_sets_are_labels_since_1_27(minor: int, valid: bool) -> None:
    obj = stateful_set({"name": "c", "image": "i"})
    obj["metadata"] = {**obj["metadata"], "name": "a.b"}
    found = created(minor, "apps/StatefulSet", obj)
    assert [error for error in found if error.startswith("metadata.name")] == (
        [] if valid else ['metadata.name: Invalid value: "a.b": must not contain dots']
    )
    named = [error for error in updated(minor, "apps/StatefulSet", obj, obj) if "name" in error]
    assert not any(error.startswith("metadata.name") for error in named)


def status_errors(minor: int, kind: str, status: Object, api_version: str = "") -> list[str]:
    old = {"metadata": {**META, "resourceVersion": "1", "uid": "u"}, "spec": {}}
    new = {**old, "status": status}
    errors = validation.validate_update(
        kind_of(kind), new, old, "status", api_version, features(minor)
    )
    return [str(error) for error in in_release(Release(1, minor), errors)]


_TOO_MANY = "status.availableReplicas: Invalid value: 3: cannot be greater than "


@pytest.mark.parametrize(
    "minor, expected",
    [
        (20, []),
        (22, []),
        (23, ["status.replicas", "readyReplicas"]),
        (25, ["status.replicas", "status.readyReplicas"]),
        (36, ["status.replicas", "status.readyReplicas"]),
    ],
)
def test_available_replicas_of_a_stateful_set(minor: int, expected: list[str]) -> None:
    status = {"replicas": 2, "readyReplicas": 1, "availableReplicas": 3}
    found = status_errors(minor, "apps/StatefulSet", status)
    assert found == [_TOO_MANY + text for text in expected]
    assert status_errors(minor, "apps/StatefulSet", {**status, "availableReplicas": 1}) == []


_NEGATIVE = (
    "status.currentHealthy: Invalid value: -1: must be greater than or equal to 0",
    'status.conditions[0].status: Unsupported value: "Maybe": '
    'supported values: "False", "True", "Unknown"',
    "status.conditions[0].lastTransitionTime: Required value",
)


@pytest.mark.parametrize(
    "minor, version, expected",
    [
        (20, "policy/v1beta1", []),
        (21, "policy/v1beta1", [_NEGATIVE[1], _NEGATIVE[2] + ": must be set"]),
        (21, "policy/v1", [_NEGATIVE[1], _NEGATIVE[2] + ": must be set", _NEGATIVE[0]]),
        (33, "policy/v1", [_NEGATIVE[1], _NEGATIVE[2] + ": must be set", _NEGATIVE[0]]),
        (34, "policy/v1", [_NEGATIVE[1], _NEGATIVE[2], _NEGATIVE[0]]),
    ],
)
def test_status_of_a_disruption_budget(minor: int, version: str, expected: list[str]) -> None:
    condition = {"type": "A", "status": "Maybe", "reason": "B"}
    status = {"currentHealthy": -1, "conditions": [condition]}
    assert status_errors(minor, "policy/PodDisruptionBudget", status, version) == expected


@pytest.mark.parametrize(("minor", "count"), [(35, 2), (36, 1)])
def test_the_driver_of_an_attachment_is_required_once_since_1_36(minor: int, count: int) -> None:
    obj = {"metadata": dict(META), "spec": {"nodeName": "n", "source": {}}}
    errors = created(minor, "storage.k8s.io/VolumeAttachment", obj)
    assert errors.count("spec.attacher: Required value") == count


def test_maps_in_values_of_errors_are_sorted() -> None:
    selector = {"matchLabels": {"b": "1", "a": "2"}, "matchExpressions": [{"key": "c"}]}
    text = dump_label_selector(selector).json
    assert text == '{"matchLabels":{"a":"2","b":"1"},"matchExpressions":[{"key":"c"}]}'


@pytest.mark.parametrize(("minor", "unit"), [(34, "characters"), (35, "bytes")])
def test_lengths_of_label_values_are_bytes_since_1_35(minor: int, unit: str) -> None:
    errors = [
        invalid("a.forZones[0].name", "x" * 64, is_label_value("x" * 64)[0]),
        invalid("a.names[0]", "x" * 64, is_dns1123_label("x" * 64)[0]),
    ]
    assert [error.detail for error in in_release(Release(1, minor), errors)] == [
        f"must be no more than 63 {unit}",
        "must be no more than 63 characters",
    ]


CONTAINER = {"name": "c", "resources": {"requests": {"example.com/x": "1"}}}
USER = {"linux": {"uid": -1, "gid": 1, "supplementalGroups": [-2]}}
RANGE = "must be between 0 and 2147483647, inclusive"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {"resourceClaimStatuses": [{"name": "a"}, {"name": "b"}, {"name": "a"}]},
            [
                ("resourceClaimStatuses[1].name", "must match the name of an entry in "),
                ("resourceClaimStatuses[2].name", ""),
            ],
        ),
        (
            {"extendedResourceClaimStatus": {}},
            [
                ("extendedResourceClaimStatus.requestMappings", "at least one request mapping"),
                ("extendedResourceClaimStatus.resourceClaimName", ""),
            ],
        ),
        (
            {
                "extendedResourceClaimStatus": {
                    "resourceClaimName": "claim",
                    "requestMappings": [
                        {"containerName": "c", "resourceName": "example.com/x", "requestName": "r"},
                        {"containerName": "c", "resourceName": "cpu", "requestName": "r"},
                        {"containerName": "d", "resourceName": "cpu", "requestName": "R"},
                    ],
                }
            },
            [
                (
                    "extendedResourceClaimStatus.requestMappings[1].resourceName",
                    "must match the extended resource name",
                ),
                (
                    "extendedResourceClaimStatus.requestMappings[2].containerName",
                    "must match the name of an entry in spec.initContainers",
                ),
                ("extendedResourceClaimStatus.requestName", "a lowercase RFC 1123 label"),
            ],
        ),
        (
            {"containerStatuses": [{"name": "c", "user": USER}]},
            [
                ("containerStatuses[0].user.linux.uid", RANGE),
                ("containerStatuses[0].user.linux.supplementalGroups[0]", RANGE),
            ],
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "c",
                        "allocatedResourcesStatus": [
                            {"name": "claim:x", "resources": [{"resourceID": "1"}] * 2}
                        ],
                    }
                ]
            },
            [
                ("containerStatuses[0].allocatedResourcesStatus[0].name", "must match one of the"),
                ("containerStatuses[0].allocatedResourcesStatus[0].resources[0].health", ""),
                ("containerStatuses[0].allocatedResourcesStatus[0].resources[1].health", ""),
                ("containerStatuses[0].allocatedResourcesStatus[0].resources[1].resourceID", ""),
            ],
        ),
    ],
)
def test_claims_and_containers_in_the_status_of_a_pod(
    status: Object, expected: list[tuple[str, str]]
) -> None:
    spec: Object = {"containers": [CONTAINER], "resourceClaims": [{"name": "a"}]}
    errors = claim_status_errors(status, spec) + container_status_errors(status, spec)
    assert [error.field.removeprefix("status.") for error in errors] == [
        name for name, _ in expected
    ]
    for error, (_, text) in zip(errors, expected, strict=True):
        assert error.detail.startswith(text)


@pytest.mark.parametrize(
    ("minor", "expected"),
    [
        (24, ["spec.csi.name", "spec.csi.nodePublishSecretRef.namespace: Required value"]),
        (
            25,
            [
                "spec.csi.controllerPublishSecretRef.name",
                "spec.csi.nodePublishSecretRef.namespace: Required value",
                "spec.csi.nodeExpandSecretRef.name: Required value",
            ],
        ),
    ],
)
def test_secrets_of_csi_volumes_are_checked_each_by_itself_since_1_25(
    minor: int, expected: list[str]
) -> None:
    csi = {
        "driver": "d.example.com",
        "volumeHandle": "h",
        "controllerPublishSecretRef": {"name": "A", "namespace": "n"},
        "nodePublishSecretRef": {"name": "a"},
        "nodeExpandSecretRef": {"namespace": "n"},
    }
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi}
    found = created(minor, "/PersistentVolume", {"metadata": {"name": "a"}, "spec": spec})
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True)), found


def test_an_end_port_of_a_named_port_is_reported_first() -> None:
    spec = {"podSelector": {}, "ingress": [{"ports": [{"port": "a%", "endPort": 5}]}]}
    found = created(36, "networking.k8s.io/NetworkPolicy", {"metadata": dict(META), "spec": spec})
    assert [text.partition(":")[0].rpartition(".")[2] for text in found][:2] == ["endPort", "port"]


def test_names_of_declared_features_are_checked_and_sorted() -> None:
    names = ["B", "A/b", "A/b", "a"]
    node = {"metadata": {"name": "n"}, "status": {"declaredFeatures": names}}
    found = [text.partition(": invalid feature")[0] for text in created(36, "/Node", node)]
    assert found == [
        'status.declaredFeatures[1]: Invalid value: "A/b": list must be sorted alphabetically',
        'status.declaredFeatures[2]: Duplicate value: "A/b"',
        'status.declaredFeatures[3]: Invalid value: "a"',
    ]


@pytest.mark.parametrize(("minor", "checked"), [(32, False), (33, True)])
def test_values_of_a_volumes_node_affinity_are_label_values_since_1_33(
    minor: int, checked: bool
) -> None:
    def volume(value: str) -> Object:
        expression = {"key": "a", "operator": "In", "values": [value]}
        affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/x"},
            "nodeAffinity": affinity,
        }
        return {"metadata": {"name": "v", "resourceVersion": "1", "uid": "u"}, "spec": spec}

    kind, text = "/PersistentVolume", "spec.nodeAffinity.required.nodeSelectorTerms[0]"
    assert any(e.startswith(text) for e in created(minor, kind, volume("-"))) is checked
    assert not any(e.startswith(text) for e in updated(minor, kind, volume("-"), volume("-")))


@pytest.mark.parametrize(("minor", "text"), [(34, "a qualified name"), (35, "a valid label key")])
def test_qualified_names_are_label_keys_since_1_35(minor: int, text: str) -> None:
    (message,) = is_qualified_name("a/b/c")
    (error,) = in_release(
        Release(1, minor), [invalid("spec.auditAnnotations[1].key", "a", message)]
    )
    assert error.detail.startswith(f"{text} must consist of")
