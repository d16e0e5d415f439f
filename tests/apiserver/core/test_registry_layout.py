"""Keys in etcd are those of a kube-apiserver of the same release."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from transom.apiserver.core.registry_layout import RegistryLayout
from transom.machinery.kinds import GVK
from transom.machinery.protobuf import encode_protobuf
from transom.machinery.releases import Release
from transom.machinery.schema import schema_table

LATER = RegistryLayout(Release(1, 36))


@pytest.mark.parametrize(
    ("key", "path"),
    [
        # Seen in the etcd of kube-apiserver 1.36.
        ("pods/default/a", "pods/default/a"),
        ("nodes/a", "minions/a"),
        ("services/default/a", "services/specs/default/a"),
        ("endpoints/default/a", "services/endpoints/default/a"),
        ("ingresses.networking.k8s.io/default/a", "ingress/default/a"),
        ("ipaddresses.networking.k8s.io/10.96.0.1", "ipaddresses/10.96.0.1"),
        ("servicecidrs.networking.k8s.io/kubernetes", "servicecidrs/kubernetes"),
        (
            "validatingadmissionpolicies.admissionregistration.k8s.io/a",
            "validatingadmissionpolicies/a",
        ),
        ("deviceclasses.resource.k8s.io/a", "deviceclasses/a"),
        ("resourceclaims.resource.k8s.io/default/a", "resourceclaims/default/a"),
        ("volumeattributesclasses.storage.k8s.io/a", "volumeattributesclasses/a"),
        ("apiservices.apiregistration.k8s.io/v1.", "apiregistration.k8s.io/apiservices/v1."),
        (
            "customresourcedefinitions.apiextensions.k8s.io/a.b.c",
            "apiextensions.k8s.io/customresourcedefinitions/a.b.c",
        ),
        ("widgets.example.com/default/a", "example.com/widgets/default/a"),
    ],
)
def test_keys_of_a_later_release(key: str, path: str) -> None:
    assert LATER.to_path(key) == path
    assert LATER.from_path(path) == key


def test_values_of_a_later_kind_are_stored_without_their_version() -> None:
    stored = b'{"kind":"DeviceClass","apiVersion":"resource.k8s.io/v1","metadata":{"name":"a"}}'
    found = LATER.from_etcd("deviceclasses.resource.k8s.io/a", stored, 7)
    assert found == b'{"metadata":{"resourceVersion":"7","name":"a"}}'


def test_former_paths_are_read_only_on_request() -> None:
    """Transom wrote kinds that came after 1.20 as if they were custom resources."""
    former = "resource.k8s.io/deviceclasses/a"
    assert LATER.from_path(former) is None
    assert LATER.from_path(former, former=True) == "deviceclasses.resource.k8s.io/a"


@pytest.mark.parametrize(
    ("key", "gvk", "obj"),
    [
        (
            "servicecidrs.networking.k8s.io/kubernetes",
            GVK("networking.k8s.io", "v1", "ServiceCIDR"),
            {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]}},
        ),
        (
            "pods/default/a",
            GVK("", "v1", "Pod"),
            {"metadata": {"name": "a", "generation": 2}, "spec": {"hostUsers": False}},
        ),
        (  # kube-apiserver 1.36 stores it as v1beta1
            "mutatingadmissionpolicies.admissionregistration.k8s.io/a",
            GVK("admissionregistration.k8s.io", "v1beta1", "MutatingAdmissionPolicy"),
            {
                "metadata": {"name": "a"},
                "spec": {
                    "matchConstraints": {
                        "resourceRules": [
                            {
                                "resourceNames": ["x"],
                                "apiGroups": [""],
                                "apiVersions": ["*"],
                                "operations": ["CREATE"],
                                "resources": ["configmaps"],
                                "scope": "*",
                            }
                        ]
                    }
                },
            },
        ),
    ],
)
def test_protobuf_of_a_later_release(key: str, gvk: GVK, obj: dict[str, Any]) -> None:
    """Kinds and fields that came after 1.20."""
    stored = encode_protobuf(obj, gvk, schema_table(Release(1, 36)))
    found = orjson.loads(LATER.from_etcd(key, stored, 7))
    for member, value in obj["metadata"].items():
        assert found["metadata"][member] == value
    for member, value in obj["spec"].items():
        assert found["spec"][member] == value
    assert found["metadata"]["resourceVersion"] == "7"
    assert not found.keys() & {"kind", "apiVersion"}


def test_a_definition_of_a_kube_apiserver_keeps_its_selectable_fields() -> None:
    """It is stored as v1beta1, with what all versions have in common above them."""
    spec = {
        "group": "example.com",
        "version": "v1",
        "names": {"plural": "shirts", "kind": "Shirt"},
        "scope": "Namespaced",
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "versions": [{"name": "v1", "served": True, "storage": True}],
    }
    stored = {
        "kind": "CustomResourceDefinition",
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "metadata": {"name": "shirts.example.com"},
        "spec": spec,
    }
    key = "customresourcedefinitions.apiextensions.k8s.io/shirts.example.com"
    found = orjson.loads(LATER.from_etcd(key, orjson.dumps(stored), 7))
    assert found["spec"]["versions"][0]["selectableFields"] == spec["selectableFields"]
