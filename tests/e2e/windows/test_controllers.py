"""Controllers and limits of namespaces that are independent of the operating system work for
Windows pods too.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.e2e.windows.conftest import Place

pytestmark = pytest.mark.e2e

SERVERCORE = "mcr.microsoft.com/windows/servercore:ltsc2019"
ON_WINDOWS = {"kubernetes.io/os": "windows"}


def pod_spec(**container: Any) -> dict[str, Any]:
    first = {
        "name": "c",
        "image": SERVERCORE,
        "command": ["cmd", "/c", "ping -t localhost > nul"],
        **container,
    }
    return {"nodeSelector": ON_WINDOWS, "terminationGracePeriodSeconds": 0, "containers": [first]}


def apply(place: Place, *objects: dict[str, Any]) -> None:
    place(
        "apply",
        "--filename",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}),
    )


@pytest.mark.windows("CTL-03", "SUP-POD-017")
def test_a_replication_controller_keeps_its_windows_pods(place: Place) -> None:
    labels = {"app": "old"}
    apply(
        place,
        {
            "apiVersion": "v1",
            "kind": "ReplicationController",
            "metadata": {"name": "old"},
            "spec": {
                "replicas": 2,
                "selector": labels,
                "template": {"metadata": {"labels": labels}, "spec": pod_spec()},
            },
        },
    )
    place.until("rc/old", "{.status.readyReplicas}", "2")
    first, second = place.pods("app=old")
    assert {p["spec"]["nodeName"] for p in (first, second)} <= {"windows-1", "windows-2"}
    place("delete", "pod", first["metadata"]["name"])
    place.until("rc/old", "{.status.readyReplicas}", "2")
    names = {p["metadata"]["name"] for p in place.pods("app=old")}
    assert (
        second["metadata"]["name"] in names
        and first["metadata"]["name"] not in names
        and len(names) == 2
    )
    place("scale", "rc/old", "--replicas=1")
    place.until("rc/old", "{.status.replicas}", "1")


@pytest.mark.windows("LIFE-02", "SUP-POD-024")
def test_windows_pods_are_scaled_by_what_they_use(place: Place) -> None:
    labels = {"app": "busy"}
    template = {
        "metadata": {"labels": labels, "annotations": {"sim.transom.dev/cpu": "300m"}},
        "spec": pod_spec(resources={"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}}),
    }
    apply(
        place,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "busy"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        },
        {
            "apiVersion": "autoscaling/v1",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "busy"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"},
                "minReplicas": 1,
                "maxReplicas": 2,
                "targetCPUUtilizationPercentage": 50,
            },
        },
    )
    place.until("deployment/busy", "{.status.readyReplicas}", "2")
    assert place.object("hpa", "busy")["status"]["desiredReplicas"] == 2
    assert all(p["spec"]["nodeName"].startswith("windows-") for p in place.pods("app=busy"))


@pytest.mark.windows("LIFE-04", "SUP-POD-026")
def test_quotas_count_windows_pods(place: Place) -> None:
    place("create", "quota", "small", "--hard=pods=1,requests.memory=300Mi")
    sized = pod_spec(resources={"requests": {"memory": "200Mi"}, "limits": {"memory": "200Mi"}})
    apply(place, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "first"}, "spec": sized})
    place.ready("pod/first")
    done = place.kubectl(
        "--namespace",
        place.namespace,
        "apply",
        "--filename",
        "-",
        check=False,
        stdin=json.dumps(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "second"}, "spec": sized}
        ),
    )
    assert (
        "exceeded quota: small, requested: pods=1,requests.memory=200Mi, used: "
        "pods=1,requests.memory=200Mi, limited: "
        "pods=1,requests.memory=300Mi" in done.stderr
    )


@pytest.mark.windows("LIFE-05", "SUP-POD-027")
def test_a_windows_pod_of_higher_priority_displaces_one_of_lower(place: Place) -> None:
    name = f"high-{place.namespace}"
    node = place.object("node", "windows-2")["status"]["allocatable"]["cpu"]
    most = int(node) * 1000 * 2 // 3 if node.isdigit() else int(node.removesuffix("m")) * 2 // 3
    big = {
        **pod_spec(resources={"requests": {"cpu": f"{most}m"}}),
        "nodeSelector": {**ON_WINDOWS, "kubernetes.io/hostname": "windows-2"},
    }
    apply(place, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "low"}, "spec": big})
    place.ready("pod/low")
    try:
        apply(
            place,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": 1000,
            },
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "high"},
                "spec": {**big, "priorityClassName": name},
            },
        )
        assert place.event("low", "Preempted").startswith(
            f"Preempted by {place.namespace}/high on node windows-2"
        )
        place.ready("pod/high")
        assert "low" not in place("get", "pods", "--output=name")
    finally:
        place("delete", "priorityclass", name)
