"""metrics.k8s.io, served by the API server itself, until a metrics-server is installed."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.apiserver.harness import Api, start

from transom.http.messages import PeerCertificate
from transom.machinery.resource_metrics import NodeSample, PodSample, ResourceUsage

BASE = "/apis/metrics.k8s.io/v1beta1"
SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
NOW = 1577934245.0


class Samples:
    """Every node and every pod but those called `new`."""

    def node(self, name: str) -> NodeSample | None:
        return None if name == "new" else NodeSample(NOW - 5, ResourceUsage(1000, 2048))

    def pod(self, node: str, namespace: str, name: str) -> PodSample | None:
        return (
            None
            if name == "new" or node != "n1"
            else PodSample(NOW - 5, {"c": ResourceUsage(1000, 2048)})
        )


async def cluster() -> Api:
    api = await start(metrics=Samples())
    for name in ("n1", "new"):
        await api.ok("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"is": name}}})
    for namespace, name, phase in (
        ("a", "z", "Running"),
        ("a", "new", "Running"),
        ("a", "done", "Succeeded"),
        ("b", "c", "Running"),
        ("a", "b", "Running"),
    ):
        if name in ("z", "c"):
            await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
            await api.ok(
                "POST",
                f"/api/v1/namespaces/{namespace}/serviceaccounts",
                {"metadata": {"name": "default"}},
            )
        spec = {
            "nodeName": "n1",
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "i"}],
        }
        await api.ok(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods",
            {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec},
        )
        await api.ok(
            "PATCH",
            f"/api/v1/namespaces/{namespace}/pods/{name}/status",
            {"status": {"phase": phase}},
            media="application/merge-patch+json",
        )
    return api


def names(listing: Any) -> list[str]:
    return [
        f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
        for item in listing["items"]
    ]


async def test_lists_and_single_objects() -> None:
    api = await cluster()
    listing = await api.ok("GET", f"{BASE}/nodes")
    assert (listing["kind"], listing["apiVersion"], listing["metadata"]) == (
        "NodeMetricsList",
        "metrics.k8s.io/v1beta1",
        {},
    )
    assert listing["items"] == [
        {
            "metadata": {
                "name": "n1",
                "creationTimestamp": "2020-01-02T03:04:05Z",
                "labels": {"is": "n1"},
            },
            "timestamp": "2020-01-02T03:04:00Z",
            "window": "30s",
            "usage": {"cpu": "1u", "memory": "2Ki"},
        }
    ]
    assert names(await api.ok("GET", f"{BASE}/pods")) == ["a/b", "a/z", "b/c"]
    assert names(await api.ok("GET", f"{BASE}/namespaces/a/pods")) == ["a/b", "a/z"]
    assert names(await api.ok("GET", f"{BASE}/pods?labelSelector=app+in+(z,c)")) == [
        "a/z",
        "b/c",
    ]
    assert names(await api.ok("GET", f"{BASE}/pods?fieldSelector=metadata.namespace%3Db")) == [
        "b/c"
    ]
    one = await api.ok("GET", f"{BASE}/namespaces/a/pods/z")
    assert (one["kind"], one["containers"]) == (
        "PodMetrics",
        [{"name": "c", "usage": {"cpu": "1u", "memory": "2Ki"}}],
    )
    both = "application/vnd.kubernetes.protobuf, application/json"
    assert (await api.ok("GET", f"{BASE}/nodes/n1", accept=both))["kind"] == "NodeMetrics"
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    assert (await api.ok("GET", f"{BASE}/nodes/n1", accept=table))["kind"] == "NodeMetrics"


async def test_what_is_not_there() -> None:
    api = await cluster()
    cases = {
        ("GET", "/namespaces/a/pods/none"): (404, 'pods "none" not found'),
        ("GET", "/namespaces/a/pods/new"): (404, 'pods.metrics.k8s.io "a/new" not found'),
        ("GET", "/namespaces/a/pods/done"): (404, 'pods.metrics.k8s.io "a/done" not found'),
        ("GET", "/nodes/new"): (404, 'nodes.metrics.k8s.io "new" not found'),
        ("GET", "/nodes/none"): (404, 'nodes.metrics.k8s.io "none" not found'),
        ("GET", "/things"): (404, "the server could not find the requested resource"),
        ("POST", "/nodes"): (
            405,
            "the server does not allow this method on the requested resource",
        ),
        ("GET", "/nodes?watch=true"): (
            405,
            "the server does not allow this method on the requested resource",
        ),
        ("GET", "/pods?labelSelector=((("): (400, None),
        ("GET", "/pods?fieldSelector=spec.nodeName%3Dx"): (
            400,
            "field label not supported: spec.nodeName",
        ),
    }
    for (method, path), (status, message) in cases.items():
        got = await api.call(method, BASE + path)
        assert got[0] == status, (path, got)
        assert message is None or got[1]["message"] == message


async def test_discovery_and_rights() -> None:
    api = await cluster()
    groups = {g["name"]: g for g in (await api.ok("GET", "/apis"))["groups"]}
    assert groups["metrics.k8s.io"]["preferredVersion"] == {
        "groupVersion": "metrics.k8s.io/v1beta1",
        "version": "v1beta1",
    }
    resources = (await api.ok("GET", BASE))["resources"]
    assert [(r["name"], r["namespaced"], r["kind"], r["verbs"]) for r in resources] == [
        ("nodes", False, "NodeMetrics", ["get", "list"]),
        ("pods", True, "PodMetrics", ["get", "list"]),
    ]
    role = await api.ok(
        "GET",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregated-metrics-reader",
    )
    assert role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    without_group = PeerCertificate("jane", [])
    status, answer = await api.call("GET", f"{BASE}/nodes", peer=without_group)
    assert (status, answer["message"]) == (
        403,
        (
            'nodes.metrics.k8s.io is forbidden: User "jane" cannot list resource "nodes" '
            'in API group "metrics.k8s.io" at '
            "the cluster scope"
        ),
    )
    await api.ok(
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "jane"},
            "subjects": [{"kind": "User", "name": "jane"}],
            "roleRef": {"kind": "ClusterRole", "name": "system:aggregated-metrics-reader"},
        },
    )
    assert (await api.call("GET", f"{BASE}/nodes", peer=without_group))[0] == 200


async def test_a_server_without_samples_does_not_have_the_group() -> None:
    api = await start()
    assert await api.call("GET", f"{BASE}/nodes") == (404, "404 page not found\n")
    assert (await api.call("GET", SERVICE))[0] == 404


async def test_a_metrics_server_takes_over_and_gives_back() -> None:
    api = await cluster()
    own = await api.ok("GET", SERVICE)
    assert own["spec"] == {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    assert own["status"]["conditions"][0]["reason"] == "Local"
    service = {"namespace": "kube-system", "name": "metrics-server"}
    patch = {"spec": {"service": service, "insecureSkipTLSVerify": True}}
    await api.ok("PATCH", SERVICE, patch, media="application/merge-patch+json")
    for _ in range(20):
        await asyncio.sleep(0)
    taken = await api.ok("GET", SERVICE)
    assert taken["spec"]["service"]["name"] == "metrics-server"
    assert taken["status"]["conditions"][0]["reason"] == "ServiceNotFound"
    assert await api.call("GET", f"{BASE}/nodes") == (503, "service unavailable\n")
    await api.ok("DELETE", SERVICE)
    for _ in range(20):
        await asyncio.sleep(0)
    assert (await api.ok("GET", SERVICE))["spec"] == own["spec"]
    assert names(await api.ok("GET", f"{BASE}/nodes")) == ["/n1"]
