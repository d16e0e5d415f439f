"""Warnings about valid objects, and the releases that return them."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.object_warnings import (
    custom_object_warnings,
    job_deletion_warning,
    object_warnings,
)
from transom.machinery.releases import Release

NEW = Release(1, 36)


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [container or {}], **spec}}


@pytest.mark.parametrize(
    ("kind", "obj", "expected"),
    [
        ("/Pod", pod(), []),
        (
            "/Pod",
            pod(nodeSelector={"beta.kubernetes.io/os": "linux"}),
            [
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "
                '"kubernetes.io/os" instead'
            ],
        ),
        (
            "/Pod",
            pod({"env": [{"name": "A"}, {"name": "A"}]}),
            [
                'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped '
                "when using apply"
            ],
        ),
        ("/Pod", pod({"env": [{"name": "A", "value": "x"}, {"name": "A", "value": "$(A)y"}]}), []),
        (
            "/Pod",
            pod({"env": [{"name": "A", "value": "x"}, {"name": "A", "value": "$(A)"}]}),
            [
                'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped '
                "when using apply"
            ],
        ),
        (
            "/Pod",
            pod({"resources": {"limits": {"memory": "1500m", "cpu": "1500m"}}}),
            [
                'spec.containers[0].resources.limits[memory]: fractional byte value "1500m" is '
                "invalid, must be an integer"
            ],
        ),
        (
            "/Pod",
            pod({"ports": [{"containerPort": 80}, {"containerPort": 80}]}),
            [
                "spec.containers[0].ports[1]: duplicate port definition with "
                "spec.containers[0].ports[0]"
            ],
        ),
        (
            "/Service",
            {"metadata": {}, "spec": {"externalIPs": ["1.1.1.1"]}},
            ["spec.externalIPs is deprecated and may no longer be implemented in some clusters"],
        ),
    ],
)
def test_warnings(kind: str, obj: dict[str, Any], expected: list[str]) -> None:
    assert object_warnings(NEW, kind, obj) == expected
    assert object_warnings(Release(1, 20), kind, obj) == []


def test_workloads_are_checked_by_their_template() -> None:
    selector = {"beta.kubernetes.io/arch": "amd64"}
    template = {"spec": {"nodeSelector": selector}}
    obj = {"metadata": {"name": "d"}, "spec": {"template": template}}
    (text,) = object_warnings(NEW, "apps/Deployment", obj)
    assert text.startswith("spec.template.spec.nodeSelector[beta.kubernetes.io/arch]: deprecated")


def warnings(kind: str, obj: dict[str, Any], release: Release = NEW) -> list[str]:
    return object_warnings(release, kind, {"metadata": {"name": "x"}, **obj})


def test_ports_of_all_containers_are_compared() -> None:
    first = {"name": "http", "containerPort": 80, "protocol": "TCP", "hostPort": 80}
    ports = [{**first, "hostIP": "1.1.1.1"}]
    obj = {"spec": {"initContainers": [{"ports": [first]}], "containers": [{"ports": ports}]}}
    here, there = "spec.containers[0].ports[0]", "spec.initContainers[0].ports[0]"
    ambiguous = f"{here}: dangerously ambiguous port definition with {there}"
    assert warnings("/Pod", obj) == [
        ambiguous,
        f'{here}: duplicate port name "http" with {there}, services and probes that select ports '
        f"by name will use {there}",
    ]
    assert warnings("/Pod", obj, Release(1, 32)) == [ambiguous]
    assert warnings("/Pod", obj, Release(1, 27)) == []


def projected(*sources: dict[str, Any]) -> dict[str, Any]:
    volume = {"name": "v", "projected": {"sources": list(sources)}}
    return {"spec": {"volumes": [volume]}}


def test_overlapping_paths_of_volumes() -> None:
    token = {"serviceAccountToken": {"path": "a/"}}
    secret = {"secret": {"name": "s", "items": [{"key": "k", "path": "a/b"}]}}
    assert warnings("/Pod", projected(token, secret)) == [
        'volume "v" (Projected): overlapping paths: "a/b" (Secret "s") with "a" '
        "(ServiceAccountToken)"
    ]
    items = [{"key": "k", "path": "p"}, {"key": "l", "path": "p/q"}, {"key": "m", "path": "pq"}]
    volume = {"name": "v", "configMap": {"name": "c", "items": items}}
    assert warnings("/Pod", {"spec": {"volumes": [volume]}}) == [
        'volume "v" (ConfigMap "c"): overlapping paths: "p/q" with "p"'
    ]


def test_some_releases_repeat_the_paths_of_the_source_before() -> None:
    obj = projected({"serviceAccountToken": {"path": "t"}}, {"secret": {"name": "s"}})
    assert warnings("/Pod", obj) == []
    (text,) = warnings("/Pod", obj, Release(1, 32))
    assert text.endswith('"t" (ServiceAccountToken) with "t" (ServiceAccountToken)')
    assert warnings("/Pod", obj, Release(1, 31)) == []


def test_selectors_that_match_no_pod() -> None:
    terms = [{"topologyKey": "a"}]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    spread = [{"topologyKey": "a"}]
    obj = {"spec": {"topologySpreadConstraints": spread, "affinity": affinity}}
    assert [text.partition(": ")[0] for text in warnings("/Pod", obj)] == [
        "spec.topologySpreadConstraints[0].labelSelector",
        "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector",
    ]


@pytest.mark.parametrize(
    ("release", "text"),
    [
        ((1, 22), "deprecated since v1.19; use"),
        ((1, 24), "deprecated since v1.19, non-functional in v1.25+; use"),
        ((1, 26), "deprecated since v1.19, non-functional in a future release; use"),
        ((1, 36), "non-functional in v1.27+; use"),
    ],
)
def test_text_of_seccomp_annotations(release: tuple[int, int], text: str) -> None:
    key = "seccomp.security.alpha.kubernetes.io/pod"
    meta = {"name": "x", "annotations": {key: "runtime/default"}}
    (found,) = warnings("/Pod", {"metadata": meta, "spec": {}}, Release(*release))
    assert found.startswith(f"metadata.annotations[{key}]: {text}")


def test_only_changed_workloads_are_checked() -> None:
    template = {"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}}
    obj = {"metadata": {"name": "d", "generation": 2}, "spec": {"template": template}}
    old = {**obj, "metadata": {"name": "d", "generation": 1}}
    assert object_warnings(NEW, "apps/Deployment", obj, obj) == []
    assert len(object_warnings(NEW, "apps/Deployment", obj, old)) == 1
    assert object_warnings(NEW, "apps/Deployment", obj, old, "status") == []


def test_names_that_are_not_valid_labels() -> None:
    meta = {"name": "a.b"}
    (text,) = warnings("batch/Job", {"metadata": meta})
    assert text.startswith("metadata.name: this is used in Pod names and hostnames, which can")
    assert warnings("batch/Job", {"metadata": meta}, Release(1, 26)) == []


def test_addresses_that_are_not_canonical() -> None:
    spec = {"type": "ClusterIP", "clusterIP": "::1", "clusterIPs": ["0:0::1"]}
    assert warnings("/Service", {"spec": spec}) == [
        'spec.clusterIPs[0]: IPv6 address "0:0::1" should be in RFC 5952 canonical format ("::1")'
    ]
    assert warnings("/Service", {"spec": spec}, Release(1, 32)) == [
        'spec.clusterIPs[0]: IPv6 address "0:0::1" is not in RFC 5952 canonical format ("::1"), '
        "which may cause controller apply-loops"
    ]
    block = {"ipBlock": {"cidr": "10.0.0.1/8"}}
    assert warnings("networking.k8s.io/NetworkPolicy", {"spec": {"egress": [{"to": [block]}]}}) == [
        'spec.egress[0].to[0].ipBlock.cidr: CIDR value "10.0.0.1/8" is ambiguous in this context '
        '(should be "10.0.0.0/8" or "10.0.0.1/32"?)'
    ]


def test_quota_whose_requests_exceed_its_limits() -> None:
    hard = {"requests.cpu": "2", "limits.cpu": "1500m"}
    assert warnings("/ResourceQuota", {"spec": {"hard": hard}}) == [
        "ResourceQuota requests.cpu (2) should be less than limits.cpu (1500m)"
    ]


def test_formats_that_are_not_checked() -> None:
    schema = {"properties": {"a": {"type": "string", "format": "k8s-short-name"}}}
    kind = "apiextensions.k8s.io/CustomResourceDefinition"
    schema["properties"]["b"] = {"type": "integer", "format": "uint8"}
    versions = [{"schema": {"openAPIV3Schema": schema}}]
    obj = {"spec": {"versions": versions}}
    assert warnings(kind, obj) == ['unrecognized format "uint8"']
    assert warnings(kind, obj, Release(1, 33)) == []


def test_finalizers_of_custom_objects() -> None:
    old = {"metadata": {"finalizers": ["kept"]}}
    new = {"metadata": {"finalizers": ["kept", "orphan", "a.io", "a.io/b", "new"]}}
    start = "prefer a domain-qualified finalizer name"
    end = "to avoid accidental conflicts with other finalizer writers"
    assert custom_object_warnings(NEW, new, old) == [
        f'metadata.finalizers: "a.io": {start} including a path (/) {end}',
        f'metadata.finalizers: "new": {start} {end}',
    ]
    assert custom_object_warnings(Release(1, 28), new, old) == []


def test_job_deletion() -> None:
    assert job_deletion_warning(NEW, {}).startswith("child pods are preserved by default")
    assert job_deletion_warning(NEW, {"propagationPolicy": "Orphan"}) == ""
    assert job_deletion_warning(Release(1, 22), {}) == ""
