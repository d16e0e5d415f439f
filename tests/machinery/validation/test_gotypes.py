"""The table of Go types against the published schema, and how values of those types print."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery import schema
from transom.machinery.validation import godump, gotypes
from transom.machinery.validation.godiff import go_diff

RENAMED = {"Handler": "ProbeHandler"}
GONE = {("v1.ObjectMeta", "clusterName"), ("core.EphemeralVolumeSource", "readOnly")}


def _published(go_type: str) -> schema.SchemaType | None:
    package, _, name = go_type.partition(".")
    package = {"core": "core/v1", "apps": "apps/v1", "v1": "meta/v1"}[package]
    full = f"{package}.{RENAMED.get(name, name)}"
    return schema.get_schema_type(full) if full in schema.BASE.names() else None


@pytest.mark.parametrize("go_type", sorted(gotypes._TABLE))
def test_json_names_are_those_of_the_api(go_type: str) -> None:
    published = _published(go_type)
    assert published is not None or go_type == "core.VolumeSource"
    for field in gotypes.struct_fields(go_type) or ():
        if (
            field.json
            and published is not None
            and field.json not in gotypes.LIFTED.get(go_type, ())
        ):
            assert field.json in published.properties or (go_type, field.json) in GONE
        inner = field.type.lstrip("*[]")
        if "." in inner and inner not in (
            "resource.Quantity",
            "intstr.IntOrString",
            "v1.Time",
            "core.ResourceList",
        ):
            assert gotypes.struct_fields(inner) or not (
                _published(inner) if inner[:4] in ("core", "apps") else None
            )


@pytest.mark.parametrize(
    ("go_type", "value", "text"),
    [
        ("map[string]string", {"b": "2", "a": 'q"'}, r'map[string]string{"a":"q\"", "b":"2"}'),
        ("map[string]string", None, "map[string]string(nil)"),
        ("[]string", ["x"], '[]string{"x"}'),
        ("[]int32", [1, 2], "[]int32{1, 2}"),
        (
            "core.ResourceRequirements",
            {"limits": {"cpu": "1"}},
            'core.ResourceRequirements{Limits:core.ResourceList{"cpu":resource.Quantity{'
            "i:resource.int64Amount{value:1, scale:0}, "
            "d:resource.infDecAmount{Dec:(*inf.Dec)(nil)}, "
            's:"1", Format:"DecimalSI"}}, '
            "Requests:core.ResourceList(nil)}",
        ),
        (
            "core.Volume",
            {"name": "v"},
            (
                'core.Volume{Name:"v", '
                "VolumeSource:core.VolumeSource{HostPath:(*core.HostPathVolumeSource)(nil), "
            ),
        ),
        ("v1.Time", "2001-01-01T00:00:00Z", "2001-01-01 00:00:00 +0000 UTC"),
        ("v1.Time", None, '"null"'),
    ],
)
def test_dump(go_type: str, value: Any, text: str) -> None:
    assert godump.go_dump(go_type, value).startswith(text)


def test_pointers_print_an_address() -> None:
    text = godump.go_dump("core.SeccompProfile", {"type": "Unconfined", "localhostProfile": "x"})
    assert text.startswith('core.SeccompProfile{Type:"Unconfined", LocalhostProfile:(*string)(0xc')


def test_diff_marks_what_changed_and_counts_the_rest() -> None:
    one = {"name": "c", "image": "i"}
    old = {
        "containers": [one, {**one, "stdin": True}],
        "restartPolicy": "Always",
        "hostPID": True,
        "securityContext": {},
        "nodeSelector": {"a": "1", "b": "2"},
    }
    new = {
        "containers": [one, one],
        "restartPolicy": "Always",
        "securityContext": {},
        "nodeSelector": {"a": "1", "c": "3"},
        "hostname": "n",
    }
    assert (
        go_diff("core.PodSpec", new, old).replace("\t", "  ")
        == """\
  core.PodSpec{
    Volumes:        nil,
    InitContainers: nil,
    Containers: []core.Container{
      {Name: "c", Image: "i"},
      {
        ... // 17 identical fields
        ImagePullPolicy: "",
        SecurityContext: nil,
-       Stdin:           false,
+       Stdin:           true,
        StdinOnce:       false,
        TTY:             false,
      },
    },
    EphemeralContainers:           nil,
    RestartPolicy:                 "Always",
    TerminationGracePeriodSeconds: nil,
    ActiveDeadlineSeconds:         nil,
    DNSPolicy:                     "",
    NodeSelector: map[string]string{
      "a": "1",
+     "b": "2",
-     "c": "3",
    },
    ServiceAccountName:           "",
    AutomountServiceAccountToken: nil,
    NodeName:                     "",
    SecurityContext: &core.PodSecurityContext{
      HostNetwork:           false,
-     HostPID:               false,
+     HostPID:               true,
      HostIPC:               false,
      ShareProcessNamespace: nil,
      ... // 10 identical fields
    },
    ImagePullSecrets:  nil,
-   Hostname:          "n",
+   Hostname:          "",
    Subdomain:         "",
    SetHostnameAsFQDN: nil,
    ... // 13 identical fields
  }
"""
    )
    assert go_diff("core.PodSpec", old, old) == ""
