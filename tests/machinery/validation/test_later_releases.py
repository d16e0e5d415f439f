"""Rules that later releases added to kinds of 1.20."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.kinds import BY_KEY
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation import validate_create, validate_update

CURRENT = FeatureSet(Release(1, 36))
META = {"name": "x", "namespace": "default", "uid": "1", "resourceVersion": "1"}


def create(key: str, obj: dict[str, Any], features: FeatureSet = CURRENT) -> list[str]:
    meta = META if BY_KEY[key].namespaced else {**META, "namespace": ""}
    return [str(e) for e in validate_create(BY_KEY[key], {"metadata": meta, **obj}, "", features)]


def policy(**port: Any) -> dict[str, Any]:
    return {"spec": {"podSelector": {}, "egress": [{"ports": [port]}]}}


def test_end_ports_need_a_number_before_them() -> None:
    key = "networking.k8s.io/NetworkPolicy"
    assert create(key, policy(port=1, endPort=2)) == []
    [error] = create(key, policy(port=3, endPort=2))
    assert error.endswith("must be greater than or equal to `port`")
    [error] = create(key, policy(port="a", endPort=2))
    assert error.endswith("may not be specified when `port` is non-numeric")
    assert create(key, policy(port=3, endPort=2), FeatureSet(Release(1, 20))) == []


def test_parameters_of_an_ingress_class_have_a_scope() -> None:
    key = "networking.k8s.io/IngressClass"

    def of(**parameters: Any) -> list[str]:
        spec = {"controller": "a.b/c", "parameters": {"kind": "K", "name": "n", **parameters}}
        return create(key, {"spec": spec})

    assert of(scope="Cluster") == []
    assert of(scope="Namespace", namespace="a") == []
    [error] = of(scope="Namespace")
    assert error.startswith("spec.parameters.namespace: Required value")


def test_budgets_have_known_eviction_policies() -> None:
    spec = {"minAvailable": 1, "unhealthyPodEvictionPolicy": "Sometimes"}
    [error] = create("policy/PodDisruptionBudget", {"spec": spec})
    assert error.startswith('spec.unhealthyPodEvictionPolicy: Unsupported value: "Sometimes"')


@pytest.mark.parametrize(
    ("limited", "field"),
    [
        ({"lendablePercent": 101}, "spec.limited.lendablePercent"),
        ({"borrowingLimitPercent": -1}, "spec.limited.borrowingLimitPercent"),
    ],
)
def test_levels_lend_a_percentage(limited: dict[str, Any], field: str) -> None:
    key = "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration"
    base = {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}
    [error] = create(key, {"spec": {"type": "Limited", "limited": {**base, **limited}}})
    assert error.startswith(field)


def test_a_suspended_job_may_change_its_resources() -> None:
    def job(**container: Any) -> dict[str, Any]:
        labels = {
            f"{prefix}{name}": value
            for prefix in ("", "batch.kubernetes.io/")
            for name, value in (("job-name", "x"), ("controller-uid", "1"))
        }
        made = {
            "name": "c",
            "image": "i",
            "imagePullPolicy": "Always",
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            **container,
        }
        pod = {
            "containers": [made],
            "restartPolicy": "Never",
            "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler",
            "securityContext": {},
        }
        return {
            "metadata": META,
            "spec": {
                "suspend": True,
                "completionMode": "NonIndexed",
                "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "1"}},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }

    kind = BY_KEY["batch/Job"]
    bigger = job(resources={"requests": {"cpu": "1"}})
    assert validate_update(kind, bigger, job(), "", "", CURRENT) == []
    errors = validate_update(kind, job(image="other"), job(), "", "", CURRENT)
    assert [error.field for error in errors] == ["spec.template.spec"]
    errors = validate_update(kind, bigger, job(), "", "", FeatureSet(Release(1, 34)))
    assert [error.field for error in errors] == ["spec.template"]
