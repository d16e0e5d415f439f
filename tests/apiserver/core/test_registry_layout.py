"""Keys in etcd are those of a kube-apiserver of the same release."""

from __future__ import annotations

import pytest

from transom.apiserver.core.registry_layout import RegistryLayout
from transom.machinery.releases import Release

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
