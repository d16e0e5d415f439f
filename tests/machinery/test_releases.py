"""The tables of releases: every fact is read for every release, and some are checked against what
Kubernetes documents.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from transom.machinery.defaults.newer import default_rules
from transom.machinery.field import FieldError, GoText, RuleValue
from transom.machinery.kinds import GVK, KINDS
from transom.machinery.normalise import normalise_value
from transom.machinery.releases import BUILDS, DEFAULT, NEWEST, Release, in_range, parse_release
from transom.machinery.releases.columns import release_columns
from transom.machinery.releases.features import feature_gates, is_enabled
from transom.machinery.releases.kinds import group_version_priorities, release_kinds
from transom.machinery.releases.release import table_lines
from transom.machinery.releases.served import deprecation_text, served_resources
from transom.machinery.releases.texts import in_release, typed_custom_errors
from transom.machinery.schema import BASE, schema_table
from transom.machinery.served_since import is_served_by, kinds_of
from transom.machinery.sigsjson import decode_error
from transom.machinery.validation.godump import go_dump

TABLED = [Release(1, minor) for minor in range(21, NEWEST.minor + 1)]


def release(minor: int) -> Release:
    return Release(1, minor)


def test_the_newest_release_is_1_37_and_the_default_1_20() -> None:
    assert NEWEST == (1, 37)
    assert DEFAULT == (1, 20)
    assert BUILDS["1.36"].git_version == "v1.36.4"
    assert parse_release("1.36") == release(36)


@pytest.mark.parametrize(
    ("text", "minor", "expected"),
    [
        ("24-30", 24, True),
        ("24-30", 31, False),
        ("24-", 37, True),
        ("24-", 23, False),
        ("-25", 21, True),
        ("-25", 26, False),
        ("21", 21, True),
        ("21", 22, False),
        ("21-22,28-", 25, False),
        ("21-22,28-", 30, True),
    ],
)
def test_ranges_of_the_tables(text: str, minor: int, expected: bool) -> None:
    assert in_range(text, release(minor)) is expected


@pytest.mark.parametrize("of", TABLED, ids=str)
def test_every_type_of_every_release_can_be_built(of: Release) -> None:
    table = schema_table(of)
    for name in table.names():
        for field in table.get(name).properties.values():
            assert field.struct is None or field.struct.id


@pytest.mark.parametrize("of", TABLED, ids=str)
def test_every_served_kind_has_a_type_and_a_priority(of: Release) -> None:
    table = schema_table(of)
    for group, version, kind in served_resources(of):
        assert table.lookup(GVK(group, version, kind)) is not None, kind
        if group != "apiregistration.k8s.io":
            assert group_version_priorities(of, group, version) is not None, (group, version)
    assert "Pod" in release_columns(of)


@pytest.mark.parametrize(
    ("group", "version", "kind", "first", "last"),
    [
        ("batch", "v1beta1", "CronJob", 21, 24),
        ("batch", "v1", "CronJob", 21, 37),
        ("policy", "v1beta1", "PodSecurityPolicy", 21, 24),
        ("policy", "v1", "PodDisruptionBudget", 21, 37),
        ("networking.k8s.io", "v1beta1", "Ingress", 21, 21),
        ("autoscaling", "v2", "HorizontalPodAutoscaler", 23, 37),
        ("autoscaling", "v2beta2", "HorizontalPodAutoscaler", 21, 25),
        ("flowcontrol.apiserver.k8s.io", "v1beta3", "FlowSchema", 26, 31),
        ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", 29, 37),
        ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", 30, 37),
        ("authentication.k8s.io", "v1", "SelfSubjectReview", 28, 37),
        ("networking.k8s.io", "v1", "ServiceCIDR", 33, 37),
        ("resource.k8s.io", "v1", "ResourceClaim", 34, 37),
        ("storage.k8s.io", "v1", "VolumeAttributesClass", 34, 37),
    ],
)
def test_kinds_are_served_from_one_release_to_another(
    group: str, version: str, kind: str, first: int, last: int
) -> None:
    served = [of.minor for of in TABLED if (group, version, kind) in served_resources(of)]
    assert served == list(range(first, last + 1))


def test_runtime_config_turns_group_versions_on_and_off() -> None:
    beta = ("resource.k8s.io", "v1beta1", "ResourceClaim")
    assert beta not in served_resources(release(36))
    assert beta in served_resources(release(36), {"resource.k8s.io/v1beta1": True})
    assert beta in served_resources(release(36), {"api/beta": True})
    jobs = ("batch", "v1", "Job")
    assert jobs not in served_resources(release(36), {"batch/v1": False})
    assert jobs in served_resources(release(36), {"batch/v1": False, "batch/v1/jobs": True})


def test_1_20_keeps_its_kinds_and_types() -> None:
    assert kinds_of(DEFAULT) is KINDS
    assert is_served_by(DEFAULT)("batch", "v1", "CronJob")
    assert schema_table(DEFAULT) is BASE


def test_kinds_of_a_release_have_its_subresources() -> None:
    pods = {of.minor: next(k for k in release_kinds(of) if k.key == "/Pod") for of in TABLED}
    names = {minor: {s.name for s in kind.subresources} for minor, kind in pods.items()}
    assert "ephemeralcontainers" not in names[22]
    assert "ephemeralcontainers" in names[23]
    assert "resize" not in names[31]
    assert "resize" in names[33]


@pytest.mark.parametrize(
    ("gate", "minor", "expected"),
    [
        ("IndexedJob", 21, False),
        ("IndexedJob", 22, True),
        ("IndexedJob", 36, True),  # the gate is gone, the feature has become permanent
        ("SidecarContainers", 28, False),
        ("SidecarContainers", 29, True),
        ("MaxUnavailableStatefulSet", 36, False),
        ("CSIMigration", 20, False),
        ("NoSuchGate", 36, False),
    ],
)
def test_feature_gates(gate: str, minor: int, expected: bool) -> None:
    assert is_enabled(release(minor), gate) is expected


def test_stable_features_are_locked() -> None:
    assert feature_gates(release(36))["SidecarContainers"].locked
    assert not feature_gates(release(30))["SidecarContainers"].locked


def test_warnings_name_the_release_that_removes_a_kind() -> None:
    assert deprecation_text(release(24), GVK("batch", "v1beta1", "CronJob")) == (
        "batch/v1beta1 CronJob is deprecated in v1.21+, unavailable in v1.25+; use batch/v1 CronJob"
    )
    assert deprecation_text(release(36), GVK("", "v1", "Endpoints")) == (
        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    )
    assert deprecation_text(release(32), GVK("", "v1", "Endpoints")) == ""


def test_fields_exist_since_their_release_and_need_their_gate() -> None:
    pod = GVK("", "v1", "Pod")
    body = {"spec": {"os": {"name": "linux"}, "hostnameOverride": "x", "containers": []}}
    of = {minor: schema_table(release(minor)).lookup(pod) for minor in (22, 23, 36)}
    for minor, found in of.items():
        assert found is not None
        assert ("os" in normalise_value(found, body)["spec"]) is (minor >= 23)
    lease = {"spec": {"strategy": "OldestEmulationVersion"}}
    gvk = GVK("coordination.k8s.io", "v1", "Lease")
    off = schema_table(release(36)).lookup(gvk)
    on = schema_table(release(36), {"CoordinatedLeaderElection": True}).lookup(gvk)
    assert off is not None and on is not None
    assert "strategy" not in normalise_value(off, lease)["spec"]
    assert normalise_value(on, lease)["spec"] == lease["spec"]


def test_an_empty_creation_time_is_left_out_since_1_34() -> None:
    for minor, expected in ((33, {"creationTimestamp": None}), (34, {})):
        meta = schema_table(release(minor)).get("meta/v1.ObjectMeta")
        assert normalise_value(meta, {}) == expected


def test_errors_show_values_as_json_since_1_34() -> None:
    value = go_dump("core.Toleration", {"key": "a", "operator": "Exists"})
    error = FieldError("Duplicate", "tolerations[1]", value, "")
    (before,) = in_release(release(33), [error])
    (after,) = in_release(release(34), [error])
    assert before.body().startswith('Duplicate value: core.Toleration{Key:"a", Operator:"Exists"')
    assert after.body() == (
        'Duplicate value: {"Key":"a","Operator":"Exists","Value":"","Effect":"",'
        '"TolerationSeconds":null}'
    )


def test_a_long_value_of_many_errors_is_printed_once() -> None:
    """20,000 references with a controller cause as many errors that show all of them."""
    refs = [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": str(n)} for n in range(500)]
    value = go_dump("[]v1.OwnerReference", refs)
    errors = [FieldError("Invalid", "metadata.ownerReferences", value, str(n)) for n in range(20)]
    for minor in (24, 33, 34):
        found = in_release(release(minor), errors)
        assert [e.detail for e in found] == [str(n) for n in range(20)]
        assert '"a"' in found[0].body() and len({id(e.value) for e in found}) == 1


def test_errors_of_rules_show_scalars_and_no_objects_since_1_35() -> None:
    scalar = FieldError("Invalid", "spec.kind", RuleValue("string", GoText('"l"')), "is immutable")
    whole = FieldError("Invalid", "spec", RuleValue("object", None), "is wrong")
    texts = {
        minor: [e.body() for e in in_release(release(minor), [scalar, whole])] for minor in (34, 35)
    }
    assert texts[34] == [
        'Invalid value: "string": is immutable',
        'Invalid value: "object": is wrong',
    ]
    assert texts[35] == ['Invalid value: "l": is immutable', "Invalid value: is wrong"]


def test_errors_of_custom_objects_have_the_reason_of_what_is_wrong() -> None:
    error = FieldError("Invalid", "spec.size", "string", "spec.size must be of type integer: x")
    assert [e.reason for e in typed_custom_errors(release(23), [error])] == ["FieldValueInvalid"]
    assert [e.reason for e in typed_custom_errors(release(24), [error])] == [
        "FieldValueTypeInvalid"
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b'{"metadata": {"name": 5}}',
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type "
            "string",
        ),
        (
            b'{"spec": {"containers": {"name": "c"}}}',
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type "
            "[]v1.Container",
        ),
        (
            b'{"spec": {"priority": 1.5}}',
            "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type "
            "int32",
        ),
        (b'{"metadata": {"name": "a"}}', ""),
    ],
)
def test_decoding_errors_are_those_of_encoding_json(body: bytes, expected: str) -> None:
    assert decode_error(schema_table(release(36)).get("core/v1.Pod"), body) == expected


def test_defaults_of_later_releases() -> None:
    gvk = GVK("", "v1", "Service")
    for minor, expected in ((20, None), (21, None), (22, "Cluster")):
        obj: dict[str, Any] = {"metadata": {}, "spec": {"type": "ClusterIP"}}
        for rule in default_rules(release(minor), gvk):
            rule(obj)
        assert obj["spec"].get("internalTrafficPolicy") == expected
        assert obj["spec"]["sessionAffinity"] == "None"


def test_defaults_of_pods_follow_the_release() -> None:
    def defaulted(minor: int, gvk: GVK, obj: dict[str, Any]) -> dict[str, Any]:
        obj = {"metadata": {}, **copy.deepcopy(obj)}
        for rule in default_rules(release(minor), gvk):
            rule(obj)
        return obj

    spec = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": -5,
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {},
                "ports": [{"containerPort": 80}],
                "livenessProbe": {"grpc": {"port": 1}},
            }
        ],
        "volumes": [{"name": "v", "image": {"reference": "r:1"}}],
    }
    for minor, grace, service, policy in (
        (22, -5, None, None),
        (27, 1, "", None),
        (36, 1, "", "IfNotPresent"),
    ):
        for gvk, obj in (
            (GVK("", "v1", "Pod"), {"spec": spec}),
            (GVK("apps", "v1", "ReplicaSet"), {"spec": {"template": {"spec": spec}}}),
        ):
            made = defaulted(minor, gvk, obj)["spec"]
            found = made if gvk.kind == "Pod" else made["template"]["spec"]
            container = found["containers"][0]
            assert found["terminationGracePeriodSeconds"] == grace
            assert container["livenessProbe"]["grpc"].get("service") == service
            assert found["volumes"][0]["image"].get("pullPolicy") == policy
            # Since 1.28 templates do not get ports on the host's network.
            of_host = gvk.kind == "Pod" or minor < 28
            assert container["ports"][0].get("hostPort") == (80 if of_host else None)


def test_every_gate_of_a_field_exists() -> None:
    """A field with an unknown gate would never be stored."""
    gates = {line.split()[0] for line in table_lines("gates.txt")}
    for table in ("types.txt", "resources.txt"):
        notes = (note for line in table_lines(table) for note in line.split())
        used = {g for n in notes if n.startswith("gate=") for g in n[len("gate=") :].split(",")}
        assert used <= gates, table
