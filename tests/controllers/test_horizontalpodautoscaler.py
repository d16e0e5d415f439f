"""Autoscalers follow their metrics up and down, within limits, and report the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import pytest
from tests.conftest import ContextFactory

from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
    GroupVersionResource,
)
from transom.controllers.horizontalpodautoscaler import calculator
from transom.controllers.horizontalpodautoscaler.conditions import Conditions
from transom.controllers.horizontalpodautoscaler.limits import ScalingHistory
from transom.controllers.horizontalpodautoscaler.metrics import MetricsError, PodMetric, _window
from transom.controllers.horizontalpodautoscaler.sources import go_selector
from transom.kit.clock import rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

from .conftest import Plane

Play = Callable[..., None]
NS = "default"
NOW = 1_600_000_000.0


# ---- the whole loop ----


class Server:
    """The metrics APIs: `usage` is what each pod uses of the processor; `answers` other paths."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.usage: str | None = None
        self.answers: dict[str, Any] = {}
        self.requested: list[str] = []
        original = InProcessClient.get_json

        async def get_json(client: InProcessClient, path: str) -> Any:
            if "metrics.k8s.io" not in path:
                document = await original(client, path)
                if path == "/apis" and self.answers:
                    version = {
                        "groupVersion": "custom.metrics.k8s.io/v1beta1",
                        "version": "v1beta1",
                    }
                    group = {
                        "name": "custom.metrics.k8s.io",
                        "versions": [version],
                        "preferredVersion": version,
                    }
                    document = {**document, "groups": [*document["groups"], group]}
                return document
            self.requested.append(path)
            bare, _, query = path.partition("?")
            if bare in self.answers:
                return self.answers[bare]
            if self.usage is None or not bare.endswith("/pods"):
                return await original(client, path)
            pods = (
                await client.list(PODS, NS, label_selector=parse_qs(query)["labelSelector"][0])
            ).items
            return {
                "items": [
                    {
                        "metadata": {"name": p["metadata"]["name"], "namespace": NS},
                        "timestamp": rfc3339(client._server.clock.time()),
                        "window": "30s",
                        "containers": [
                            {"name": "c", "usage": {"cpu": self.usage, "memory": "1Gi"}}
                        ],
                    }
                    for p in pods
                ]
            }

        monkeypatch.setattr(InProcessClient, "get_json", get_json)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


async def start(plane: Plane, spec: Object, replicas: int = 2) -> None:
    await plane.client.create(
        SERVICE_ACCOUNTS,
        NS,
        {"metadata": {"name": "default"}, "automountServiceAccountToken": False},
    )
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    await plane.client.create(
        REPLICA_SETS,
        NS,
        {
            "metadata": {"name": "w"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "w"}},
                "template": {
                    "metadata": {"labels": {"app": "w"}},
                    "spec": {"containers": [container]},
                },
            },
        },
    )
    ref = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w"}
    await plane.client.create(
        HORIZONTAL_POD_AUTOSCALERS,
        NS,
        {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": ref, **spec}},
    )
    await plane.settle()


async def run(plane: Plane, seconds: float) -> int:
    """Pods become ready as they come; the size after that time."""
    for _ in range(int(seconds // 5)):
        for pod in (await plane.client.list(PODS, NS)).items:
            if pod["status"]["phase"] == "Pending":
                since = rfc3339(plane.clock.time())
                condition = {"type": "Ready", "status": "True", "lastTransitionTime": since}
                body = {
                    "status": {"phase": "Running", "startTime": since, "conditions": [condition]}
                }
                await plane.client.patch(
                    PODS, NS, pod["metadata"]["name"], body, subresource="status"
                )
        await plane.settle(5)
    return int((await plane.get(REPLICA_SETS, NS, "w"))["spec"]["replicas"])


async def conditions(plane: Plane) -> dict[str, tuple[str, str]]:
    found = (await plane.get(HORIZONTAL_POD_AUTOSCALERS, NS, "h"))["status"]["conditions"]
    return {c["type"]: (c["status"], c["reason"]) for c in found}


def cpu(percent: int) -> list[Object]:
    target = {"type": "Utilization", "averageUtilization": percent}
    return [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


async def messages(plane: Plane, reason: str) -> list[str]:
    return [
        e["message"] for e in (await plane.client.list(EVENTS, NS)).items if e["reason"] == reason
    ]


async def test_following_a_metric_up_and_down(
    control_plane: ContextFactory, server: Server
) -> None:
    async with control_plane("horizontalpodautoscaling", "replicaset") as plane:
        server.usage = "50m"
        await start(plane, {"minReplicas": 2, "maxReplicas": 10, "metrics": cpu(50)})
        assert await run(plane, 60) == 2
        assert await conditions(plane) == {
            "AbleToScale": ("True", "ReadyForNewScale"),
            "ScalingActive": ("True", "ValidMetricFound"),
            "ScalingLimited": ("False", "DesiredWithinRange"),
        }
        status = (await plane.get(HORIZONTAL_POD_AUTOSCALERS, NS, "h"))["status"]
        assert status["currentMetrics"] == [
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "current": {"averageUtilization": 50, "averageValue": "50m"},
                },
            }
        ]
        server.usage = "52m"
        assert await run(plane, 60) == 2  # within tolerance
        server.usage = "150m"  # three times too much, but no more than four at once from two
        assert await run(plane, 15) == 4
        assert (await conditions(plane))["AbleToScale"] == ("True", "SucceededRescale")
        assert (await conditions(plane))["ScalingLimited"] == ("True", "ScaleUpLimit")
        assert await run(plane, 120) == 10
        assert (await conditions(plane))["ScalingLimited"] == ("True", "TooManyReplicas")
        assert (
            "New size: 10; reason: cpu resource utilization (percentage of request) above target"
            in await messages(plane, "SuccessfulRescale")
        )
        server.usage = "10m"
        assert await run(plane, 120) == 10
        assert (await conditions(plane))["AbleToScale"] == ("True", "ScaleDownStabilized")
        assert await run(plane, 240) == 2
        assert "New size: 2; reason: All metrics below target" in await messages(
            plane, "SuccessfulRescale"
        )
        assert (await plane.get(HORIZONTAL_POD_AUTOSCALERS, NS, "h"))["status"][
            "desiredReplicas"
        ] == 2


async def test_behaviour_limits_the_rate(control_plane: ContextFactory, server: Server) -> None:
    async with control_plane("horizontalpodautoscaling", "replicaset") as plane:
        server.usage = "100m"
        behavior = {
            "scaleUp": {
                "stabilizationWindowSeconds": 60,
                "policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}],
            },
            "scaleDown": {
                "stabilizationWindowSeconds": 0,
                "selectPolicy": "Min",
                "policies": [
                    {"type": "Percent", "value": 50, "periodSeconds": 60},
                    {"type": "Pods", "value": 1, "periodSeconds": 60},
                ],
            },
        }
        await start(
            plane, {"minReplicas": 1, "maxReplicas": 20, "metrics": cpu(50), "behavior": behavior}
        )
        assert await run(plane, 45) == 2
        assert (await conditions(plane))["AbleToScale"] == ("True", "ScaleUpStabilized")
        assert await run(plane, 45) == 4  # the window has passed; two a minute from now on
        assert await run(plane, 45) == 4
        assert await run(plane, 30) == 6
        server.usage = "10m"
        assert await run(plane, 15) == 5
        assert (await conditions(plane))["ScalingLimited"] == ("True", "ScaleDownLimit")
        assert await run(plane, 30) == 5
        assert await run(plane, 30) == 4


async def test_no_metrics_but_bounds(control_plane: ContextFactory) -> None:
    async with control_plane("horizontalpodautoscaling", "replicaset") as plane:
        await start(plane, {"minReplicas": 3, "maxReplicas": 5, "metrics": cpu(50)}, replicas=1)
        assert await run(plane, 20) == 3
        assert await run(plane, 20) == 3
        text = (
            "failed to get cpu utilization: unable to get metrics for resource cpu: unable "
            "to fetch metrics from "
            "resource metrics API: the server could not find the requested resource (get "
            "pods.metrics.k8s.io)"
        )
        assert await messages(plane, "FailedGetResourceMetric") == [text]
        assert await messages(plane, "FailedComputeMetricsReplicas") == [
            f"invalid metrics (1 invalid out of 1), first error is: {text}"
        ]
        await plane.client.patch(REPLICA_SETS, NS, "w", {"spec": {"replicas": 9}})
        assert await run(plane, 20) == 5
        await plane.client.patch(REPLICA_SETS, NS, "w", {"spec": {"replicas": 0}})
        assert await run(plane, 40) == 0
        assert (await conditions(plane))["ScalingActive"] == ("False", "ScalingDisabled")


async def test_the_highest_proposal_of_several_metrics_counts(
    control_plane: ContextFactory, server: Server
) -> None:
    custom, external = (
        "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default",
        "/apis/external.metrics.k8s.io/v1beta1",
    )
    one = {"describedObject": {"kind": "Service", "name": "s"}, "metricName": "rps", "value": "900"}
    server.answers = {
        f"{custom}/services/s/rps": {"items": [one]},
        f"{custom}/pods/*/queue": {"items": []},
        f"{external}/namespaces/default/orders": {"items": [{"value": "30"}, {"value": "10"}]},
    }
    metrics = [
        {
            "type": "Object",
            "object": {
                "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"},
                "metric": {"name": "rps"},
                "target": {"type": "Value", "value": "300"},
            },
        },
        {
            "type": "Pods",
            "pods": {
                "metric": {"name": "queue"},
                "target": {"type": "AverageValue", "averageValue": "10"},
            },
        },
        {
            "type": "External",
            "external": {
                "metric": {"name": "orders", "selector": {"matchLabels": {"q": "a"}}},
                "target": {"type": "AverageValue", "averageValue": "10"},
            },
        },
    ]

    async with control_plane("horizontalpodautoscaling", "replicaset") as plane:
        server.usage = "0"
        await start(plane, {"minReplicas": 1, "maxReplicas": 9, "metrics": metrics})
        await run(plane, 10)
        # 6 by the object's metric, 4 by orders; four at once is the limit
        assert await run(plane, 10) == 4
        status = (await plane.get(HORIZONTAL_POD_AUTOSCALERS, NS, "h"))["status"]
        assert [m["type"] for m in status["currentMetrics"]] == ["Object", "", "External"]
        assert status["currentMetrics"][0]["object"]["current"] == {"value": "900"}
        assert status["currentMetrics"][2]["external"]["current"] == {"averageValue": "20"}
        assert await messages(plane, "FailedGetPodsMetric") == [
            "unable to get metric queue: no metrics returned from custom metrics API"
        ]
        assert any(
            "metricLabelSelector" not in path and "labelSelector=q%3Da" in path
            for path in server.requested
        )
        active = next(c for c in status["conditions"] if c["type"] == "ScalingActive")
        assert (
            active["message"]
            == "the HPA was able to successfully calculate a replica count from Service metric rps"
        )


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        (
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gone"},
            'deployments/scale.apps "gone" not found',
        ),
        (
            {"apiVersion": "apps/v1", "kind": "Depl", "name": "x"},
            'no matches for kind "Depl" in group "apps"',
        ),
        (
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x"},
            "the server could not find the requested resource",
        ),
    ],
)
async def test_targets_that_cannot_be_scaled(
    control_plane: ContextFactory, ref: Object, message: str
) -> None:
    async with control_plane("horizontalpodautoscaling") as plane:
        spec = {"scaleTargetRef": ref, "maxReplicas": 3}
        await plane.client.create(
            HORIZONTAL_POD_AUTOSCALERS, NS, {"metadata": {"name": "h"}, "spec": spec}
        )
        await plane.settle(20)
        (condition,) = (await plane.get(HORIZONTAL_POD_AUTOSCALERS, NS, "h"))["status"][
            "conditions"
        ]
        assert (condition["status"], condition["reason"]) == ("False", "FailedGetScale")
        assert (
            condition["message"]
            == f"the HPA controller was unable to get the target's current scale: {message}"
        )


async def test_a_deployment_by_v1(control_plane: ContextFactory, server: Server) -> None:
    async with control_plane("horizontalpodautoscaling", "deployment", "replicaset") as plane:
        server.usage = "100m"
        await plane.client.create(
            SERVICE_ACCOUNTS,
            NS,
            {"metadata": {"name": "default"}, "automountServiceAccountToken": False},
        )
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
        await plane.client.create(
            DEPLOYMENTS,
            NS,
            {
                "metadata": {"name": "d"},
                "spec": {
                    "selector": {"matchLabels": {"app": "w"}},
                    "template": {
                        "metadata": {"labels": {"app": "w"}},
                        "spec": {"containers": [container]},
                    },
                },
            },
        )
        await plane.client.create(
            HORIZONTAL_POD_AUTOSCALERS.at("v1"),
            NS,
            {
                "metadata": {"name": "h"},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                    "maxReplicas": 3,
                    "targetCPUUtilizationPercentage": 50,
                },
            },
        )
        await plane.settle()
        for _ in range(12):
            for pod in (await plane.client.list(PODS, NS)).items:
                start = "2020-01-02T03:04:05Z"
                condition = {"type": "Ready", "status": "True", "lastTransitionTime": start}
                body = {
                    "status": {"phase": "Running", "startTime": start, "conditions": [condition]}
                }
                await plane.client.patch(
                    PODS, NS, pod["metadata"]["name"], body, subresource="status"
                )
            await plane.settle(5)
        assert (await plane.get(DEPLOYMENTS, NS, "d"))["spec"]["replicas"] == 3
        v1 = await plane.get(HORIZONTAL_POD_AUTOSCALERS.at("v1"), NS, "h")
        assert (
            v1["status"]["desiredReplicas"] == 3
            and v1["status"]["currentCPUUtilizationPercentage"] == 100
        )


async def test_a_custom_resource_with_a_scale(control_plane: ContextFactory) -> None:
    """Scaled by an autoscaler, and counted by a disruption budget."""

    async with control_plane("horizontalpodautoscaling", "disruption") as plane:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        scale = {
            "specReplicasPath": ".spec.size",
            "statusReplicasPath": ".status.size",
            "labelSelectorPath": ".status.selector",
        }
        await plane.client.create(
            CUSTOM_RESOURCE_DEFINITIONS,
            "",
            {
                "metadata": {"name": "things.example.com"},
                "spec": {
                    "group": "example.com",
                    "scope": "Namespaced",
                    "names": {"plural": "things", "kind": "Thing"},
                    "versions": [
                        {
                            "name": "v1",
                            "served": True,
                            "storage": True,
                            "schema": {"openAPIV3Schema": schema},
                            "subresources": {"scale": scale, "status": {}},
                        }
                    ],
                },
            },
        )
        await plane.settle(5)
        things = GroupVersionResource("example.com", "v1", "things", True, "Thing")
        thing = await plane.client.create(
            things,
            NS,
            {
                "apiVersion": "example.com/v1",
                "kind": "Thing",
                "metadata": {"name": "t"},
                "spec": {"size": 1},
            },
        )
        spec = {
            "scaleTargetRef": {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t"},
            "minReplicas": 4,
            "maxReplicas": 5,
        }
        await plane.client.create(
            HORIZONTAL_POD_AUTOSCALERS, NS, {"metadata": {"name": "h"}, "spec": spec}
        )
        await plane.settle(20)
        assert (await plane.get(things, NS, "t"))["spec"]["size"] == 4
        await plane.settle(20)
        assert await messages(plane, "SelectorRequired") == ["selector is required"]
        await plane.client.create(
            SERVICE_ACCOUNTS,
            NS,
            {"metadata": {"name": "default"}, "automountServiceAccountToken": False},
        )
        ref = {
            "apiVersion": "example.com/v1",
            "kind": "Thing",
            "name": "t",
            "uid": thing["metadata"]["uid"],
            "controller": True,
        }
        await plane.client.create(
            PODS,
            NS,
            {
                "metadata": {"name": "p", "labels": {"app": "w"}, "ownerReferences": [ref]},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        )
        await plane.client.create(
            POD_DISRUPTION_BUDGETS,
            NS,
            {
                "metadata": {"name": "b"},
                "spec": {"maxUnavailable": "25%", "selector": {"matchLabels": {"app": "w"}}},
            },
        )
        await plane.settle()
        status = (await plane.get(POD_DISRUPTION_BUDGETS, NS, "b"))["status"]
        assert (status["expectedPods"], status["desiredHealthy"]) == (4, 3)


# ---- arithmetic ----


def pod(
    name: str, phase: str = "Running", ready: str = "True", age: float = 3600, since: float = 1800
) -> Object:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": rfc3339(NOW - since)}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": phase, "startTime": rfc3339(NOW - age), "conditions": [condition]},
    }


def usage(**values: int) -> dict[str, PodMetric]:
    return {name: PodMetric(value, NOW, 30) for name, value in values.items()}


A, B, C = pod("a"), pod("b"), pod("c")


@pytest.mark.parametrize(
    ("pods", "metrics", "current", "replicas"),
    [
        ([A, B, C], usage(a=300, b=500, c=700), 3, 5),  # 50 percent where 30 are wanted
        ([A, B, C], usage(a=320, b=320, c=320), 3, 3),  # tolerance
        ([A, B, C], usage(a=100, b=100, c=100), 3, 1),
        ([A, B, C], usage(a=600, b=600), 3, 4),  # a missing one counts as idle on the way up
        ([A, B, C], usage(a=100, b=100), 3, 3),  # and as full on the way down
        (
            [A, B, pod("c", ready="False", age=60, since=60)],
            usage(a=600, b=600, c=900),
            3,
            4,
        ),  # still starting: idle
        ([A, B, pod("c", "Pending")], usage(a=600, b=600), 3, 4),
        (
            [A, B, pod("c", "Pending")],
            usage(a=100, b=100),
            3,
            1,
        ),  # on the way down it does not matter
        ([A, B, pod("c", "Failed")], usage(a=600, b=600, c=1), 3, 4),
        (
            [A, B, pod("c", ready="False", age=3600, since=10)],
            usage(a=600, b=600, c=600),
            3,
            6,
        ),  # was ready once
        (
            [A, B, pod("c", ready="False", age=3600, since=3599)],
            usage(a=600, b=600, c=900),
            3,
            4,
        ),  # never was
    ],
)
def test_utilization(
    pods: list[Object], metrics: dict[str, PodMetric], current: int, replicas: int
) -> None:
    found = calculator.by_utilization(current, 30, metrics, pods, "cpu", "", NOW)
    assert found.replicas == replicas


def test_utilization_needs_requests_and_pods() -> None:
    bare = {**A, "spec": {"containers": [{"name": "c"}]}}
    with pytest.raises(MetricsError, match="missing request for cpu"):
        calculator.by_utilization(1, 30, usage(a=1), [bare], "cpu", "", NOW)
    with pytest.raises(
        MetricsError, match="no pods returned by selector while calculating replica count"
    ):
        calculator.by_utilization(1, 30, usage(a=1), [], "cpu", "", NOW)
    with pytest.raises(MetricsError, match="did not receive metrics for any ready pods"):
        calculator.by_utilization(1, 30, usage(a=1), [pod("a", "Pending")], "cpu", "", NOW)


@pytest.mark.parametrize(
    ("value", "wanted", "present", "replicas", "average"),
    [
        (90_000, 10_000, 3, 9, 30_000),
        (31_000, 10_000, 3, 3, 10_334),
        (5_000, 10_000, 0, 1, 0),
        (0, 10_000, 2, 0, 0),
    ],
)
def test_a_shared_value_per_pod(
    value: int, wanted: int, present: int, replicas: int, average: int
) -> None:
    assert calculator.by_total_per_pod(present, wanted, value) == (replicas, average)


def test_limits_without_behaviour() -> None:
    memory = ScalingHistory(5, NOW)
    printed = Conditions(None, NOW)
    assert memory.limited({"maxReplicas": 100}, 5, 50, 1, NOW, printed) == 10
    # 50 was asked for a moment ago
    assert memory.limited({"maxReplicas": 100}, 10, 1, 1, NOW + 290, printed) == 20
    assert memory.limited({"maxReplicas": 100}, 20, 1, 3, NOW + 301, printed) == 3
    assert [c["reason"] for c in printed.as_list()] == ["ReadyForNewScale", "TooFewReplicas"]


def test_disabled_directions() -> None:
    behavior = {
        "scaleUp": {"selectPolicy": "Disabled"},
        "scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0},
    }
    memory = ScalingHistory(5, NOW)
    printed = Conditions(None, NOW)
    spec = {"maxReplicas": 100, "behavior": behavior}
    assert memory.limited(spec, 5, 50, 1, NOW, printed) == 5
    assert memory.limited(spec, 5, 1, 1, NOW, printed) == 5


def test_texts() -> None:
    assert _window("1m30.5s") == 90.5 and _window(None) == 0 and _window("soon") == 0
    assert go_selector(None) == "nil"
    assert go_selector(
        {
            "matchLabels": {"b": "1", "a": "2"},
            "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}],
        }
    ) == (
        "&LabelSelector{MatchLabels:map[string]string{a: 2,b: "
        "1,},MatchExpressions:[]LabelSelectorRequirement{"
        "LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}"
    )


async def test_an_unavailable_server_is_reported(
    control_plane: ContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = InProcessClient.get_json

    async def get_json(client: InProcessClient, path: str) -> Any:
        if "metrics.k8s.io" in path:
            raise ApiError(503, "", "service unavailable")
        return await original(client, path)

    monkeypatch.setattr(InProcessClient, "get_json", get_json)

    async with control_plane("horizontalpodautoscaling", "replicaset") as plane:
        await start(plane, {"maxReplicas": 5, "metrics": cpu(50)})
        await run(plane, 20)
        (text,) = await messages(plane, "FailedGetResourceMetric")
        assert text.endswith(
            "the server is currently unable to handle the request (get pods.metrics.k8s.io)"
        )
