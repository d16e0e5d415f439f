"""Services at releases after 1.20."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.kinds import BY_KEY
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation import validate_create, validate_update

CURRENT = FeatureSet(Release(1, 36))


def service(name: str = "s", **spec: Any) -> dict[str, Any]:
    port = {"port": 80, "protocol": "TCP", "targetPort": 80}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": "1", "resourceVersion": "1"},
        "spec": {
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "ports": [port],
            **spec,
        },
    }


def create(obj: dict[str, Any], features: FeatureSet = CURRENT) -> list[str]:
    return [str(e) for e in validate_create(BY_KEY["/Service"], obj, "", features)]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({}, ""),
        (
            {"internalTrafficPolicy": "Near"},
            'spec.internalTrafficPolicy: Unsupported value: "Near"',
        ),
        ({"trafficDistribution": "PreferSameNode"}, ""),
        ({"trafficDistribution": "Far"}, 'spec.trafficDistribution: Unsupported value: "Far"'),
        ({"loadBalancerClass": "a.b/c"}, "spec.loadBalancerClass: Forbidden: may only be used"),
        ({"externalIPs": ["010.1.1.1"]}, "spec.externalIPs[0]: Invalid value"),
        (
            {"externalTrafficPolicy": "Local"},
            'spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally',
        ),
    ],
)
def test_fields(spec: dict[str, Any], problem: str) -> None:
    errors = create(service(**spec))
    assert errors[0].startswith(problem) if problem else errors == []


def test_names_may_start_with_a_digit_where_that_is_relaxed() -> None:
    assert create(service("1a")) == []
    assert len(create(service("1a"), FeatureSet(Release(1, 35)))) == 1


def test_stored_addresses_stay_valid() -> None:
    old = service(externalIPs=["010.1.1.1"], externalTrafficPolicy="Cluster")
    assert validate_update(BY_KEY["/Service"], old, old, "", "", CURRENT) == []


def test_the_class_of_a_load_balancer_is_immutable() -> None:
    fields = {
        "type": "LoadBalancer",
        "allocateLoadBalancerNodePorts": True,
        "externalTrafficPolicy": "Cluster",
    }
    old = service(loadBalancerClass="a.b/c", **fields)
    new = service(loadBalancerClass="a.b/d", **fields)
    errors = validate_update(BY_KEY["/Service"], new, old, "", "", CURRENT)
    assert [(e.field, e.detail) for e in errors] == [
        ("spec.loadBalancerClass", "may not change once set")
    ]
