from __future__ import annotations

import pytest

from transom.machinery import schema
from transom.machinery.kinds import GVK


def field(type_id: str, name: str) -> schema.SchemaField:
    return schema.get_schema_type(type_id).properties[name]


def test_every_type_can_be_read() -> None:
    for name in schema.BASE.names():
        for f in schema.get_schema_type(name).properties.values():
            assert f.kind == "struct" or f.struct is None or f.item is not None


@pytest.mark.parametrize(
    ("gvk", "name"),
    [
        (GVK("", "v1", "Pod"), "v1.Pod"),
        (GVK("networking.k8s.io", "v1beta1", "Ingress"), "v1beta1.Ingress"),
        (GVK("apps", "v1", "DeleteOptions"), "v1.DeleteOptions"),
        (GVK("autoscaling", "v1", "Scale"), "v1.Scale"),
        (GVK("", "v1", "Status"), "v1.Status"),
    ],
)
def test_lookup(gvk: GVK, name: str) -> None:
    found = schema.lookup_schema_type(gvk)
    assert found is not None
    assert found.name == name


def test_unknown_kinds_have_no_type() -> None:
    assert schema.lookup_schema_type(GVK("example.com", "v1", "Widget")) is None
    assert schema.lookup_schema_type(GVK("", "v2", "Pod")) is None


def test_embedded_structs_are_flat_and_remember_the_way() -> None:
    path = field("core/v1.Volume", "hostPath")
    assert path.go_path == ("VolumeSource", "HostPath")
    assert path.value.go_name == "*v1.HostPathVolumeSource"
    assert field("core/v1.Probe", "httpGet").go_path == ("Handler", "HTTPGet")


def test_lists_merge_as_in_release_1_20() -> None:
    assert field("core/v1.PodSpec", "tolerations").list_type == "atomic"
    ports = field("core/v1.ServiceSpec", "ports")
    assert (ports.patch_merge_key, ports.list_type, ports.list_map_keys) == (
        "port",
        "map",
        ("port", "protocol"),
    )
    env = field("core/v1.Container", "env")  # no list type in 1.20: the merge key says it
    assert (env.list_type, env.list_map_keys) == ("map", ("name",))
    assert field("meta/v1.ObjectMeta", "finalizers").list_type == "set"
    assert not field("core/v1.PodSpec", "nodeSelector").atomic  # so since 1.21
    assert field("core/v1.PodSpec", "volumes").patch_strategy == "merge,retainKeys"


def test_required_fields() -> None:
    assert schema.get_schema_type("core/v1.Container").required == ("name",)
    rules = field("rbac/v1.ClusterRole", "rules")
    assert rules.always
    assert not rules.required
