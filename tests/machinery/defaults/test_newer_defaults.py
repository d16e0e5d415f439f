"""Default values of releases after 1.20, of objects as they are decoded."""

from __future__ import annotations

import pytest

from transom.machinery import codec
from transom.machinery.defaults.newer import default_rules
from transom.machinery.kinds import GVK
from transom.machinery.releases import parse_release
from transom.machinery.schema import schema_table

INGRESS_CLASS = GVK("networking.k8s.io", "v1", "IngressClass")


@pytest.mark.parametrize(
    ("release", "parameters", "scope"),
    [
        ("1.21", b'{"kind":"A","name":"x"}', None),
        ("1.22", b'{"kind":"A","name":"x"}', "Cluster"),
        ("1.36", b'{"kind":"A","name":"x"}', "Cluster"),
        ("1.36", b'{"kind":"A","name":"x","scope":null}', "Cluster"),
        ("1.36", b'{"kind":"A","name":"x","scope":"Namespace"}', "Namespace"),
    ],
)
def test_scope_of_ingress_class_parameters(release: str, parameters: bytes, scope: str) -> None:
    raw = b'{"metadata":{"name":"a"},"spec":{"parameters":%s}}' % parameters
    number = parse_release(release)
    obj = codec.decode_object(raw, codec.JSON, INGRESS_CLASS, types=schema_table(number)).obj
    for rule in default_rules(number, INGRESS_CLASS):
        rule(obj)
    assert obj["spec"]["parameters"].get("scope") == scope
