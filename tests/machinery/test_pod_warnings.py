"""Warnings about pods: the quick look at common pods does not hide any."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.pod_warnings import pod_warnings, template_warnings
from transom.machinery.releases import Release
from transom.machinery.serviceaccounts import token_sources

NEW = Release(1, 36)
TOKEN = {"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": token_sources()}}
CONTAINER = {
    "name": "main",
    "env": [{"name": "A", "value": "1"}],
    "ports": [{"containerPort": 80, "protocol": "TCP"}],
    "resources": {
        "limits": {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1G"},
        "requests": {"cpu": "1m", "memory": "1000", "ephemeral-storage": "1k"},
    },
}


def common_pod(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    made = {"containers": [CONTAINER], "volumes": [{"name": "v", "emptyDir": {}}, TOKEN]}
    return {"metadata": {"annotations": annotations or {"a": "b"}}, "spec": {**made, **spec}}


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{**CONTAINER, **fields}]}


def test_a_common_pod_has_no_warnings() -> None:
    assert list(pod_warnings(NEW, common_pod())) == []
    assert list(template_warnings(NEW, common_pod(), "spec.template")) == []


@pytest.mark.parametrize(
    "key",
    [
        "scheduler.alpha.kubernetes.io/critical-pod",
        "security.alpha.kubernetes.io/sysctls",
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "seccomp.security.alpha.kubernetes.io/pod",
        "container.seccomp.security.alpha.kubernetes.io/main",
        "container.apparmor.security.beta.kubernetes.io/main",
    ],
)
def test_an_annotation_of_a_common_pod_is_checked(key: str) -> None:
    (text,) = template_warnings(NEW, common_pod({"b": "", key: "unconfined"}), "spec.template")
    assert text.startswith(f"spec.template.metadata.annotations[{key}]: ")


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"nodeSelector": {"beta.kubernetes.io/arch": "amd64"}}, "nodeSelector"),
        ({"topologySpreadConstraints": [{}]}, "topologySpreadConstraints[0].labelSelector"),
        ({"hostAliases": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}]}, "hostAliases[1].ip"),
        ({"imagePullSecrets": [{}]}, "imagePullSecrets[0].name"),
        ({"overhead": {"memory": "1m"}}, "overhead[memory]"),
        ({"dnsConfig": {"nameservers": ["01.1.1.1"]}}, "dnsConfig.nameservers[0]"),
        ({"volumes": [TOKEN, {"name": "g", "gitRepo": {}}]}, "volumes[1].gitRepo"),
        ({"terminationGracePeriodSeconds": -1}, "terminationGracePeriodSeconds"),
        ({"containers": [CONTAINER, CONTAINER]}, "containers[1].ports[0]"),
        (container(env=[{"name": "A"}] * 2), "containers[0].env[1]"),
        (container(ports=[{"containerPort": 80, "hostIP": "1.1.1.1"}]), "containers[0].ports[0]"),
        (container(ports=[{"containerPort": 80}] * 2), "containers[0].ports[1]"),
        ({"initContainers": [{"env": [{"name": "A"}] * 2}]}, "initContainers[0].env[1]"),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "affinity.podAffinity.required",
        ),
    ],
)
def test_a_field_of_a_common_pod_is_checked(spec: dict[str, Any], path: str) -> None:
    assert next(iter(pod_warnings(NEW, common_pod(**spec)))).startswith(f"spec.{path}")


@pytest.mark.parametrize("name", ["memory", "ephemeral-storage"])
@pytest.mark.parametrize("kind", ["limits", "requests"])
@pytest.mark.parametrize("amount", ["1500m", "1.5", "100u"])
def test_every_amount_of_bytes_is_checked(kind: str, name: str, amount: str) -> None:
    resources = {**CONTAINER["resources"], kind: {name: amount}}  # type: ignore[dict-item]
    (text,) = pod_warnings(NEW, common_pod(**container(resources=resources)))
    assert text.startswith(f"spec.containers[0].resources.{kind}[{name}]: fractional byte value")


def test_paths_of_another_projected_volume_are_checked() -> None:
    source = {"configMap": {"name": "c", "items": [{"key": "k", "path": "token"}]}}
    volume = {"name": "v", "projected": {"sources": [*token_sources(), source]}}
    (text,) = pod_warnings(NEW, common_pod(volumes=[volume]))
    assert text.startswith('volume "v" (Projected): overlapping paths: "token"')
