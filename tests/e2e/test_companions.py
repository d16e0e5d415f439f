"""Requests of k9s, Headlamp, Lens and the Kubernetes Dashboard, replayed against a cluster."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import websocket
from kubernetes import client, config

from transom.testing import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {kubernetes.io/os: linux}
      containers: [{name: c, image: nginx, resources: {requests: {cpu: 10m, memory: 16Mi}}}]
"""


class Companion:
    """A client with the admin's kubeconfig."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._settings = client.Configuration()
        config.load_kube_config(str(cluster.kubeconfig), client_configuration=self._settings)
        self._api = client.ApiClient(self._settings)

    def request(
        self, method: str, path: str, body: Any = None, accept: str = "application/json"
    ) -> Any:
        answer = self._api.rest_client.pool_manager.request(
            method,
            self._settings.host + path,
            body=None if body is None else json.dumps(body),
            headers={"Accept": accept, "Content-Type": "application/json"},
        )
        assert answer.status < 300, (path, answer.status, answer.data)
        text = answer.data.decode()
        return json.loads(text) if text.startswith("{") else text

    def web_socket(self, path: str, *protocols: str) -> websocket.WebSocket:
        options = {
            "ca_certs": self._settings.ssl_ca_cert,
            "certfile": self._settings.cert_file,
            "keyfile": self._settings.key_file,
            "cert_reqs": ssl.CERT_REQUIRED,
        }
        url = self._settings.host.replace("https://", "wss://") + path
        return websocket.create_connection(
            url, sslopt=options, subprotocols=list(protocols) or None, timeout=30
        )


@pytest.fixture(scope="module")
def companion() -> Iterator[Companion]:
    with Cluster(release="1.36", linux=1, windows=1, virtual_time=True) as cluster:
        cluster.apply(DEPLOYMENT)
        cluster.wait("deployment/web", "condition=Available")
        cluster.advance(minutes=1)  # for samples of the usage of nodes and pods
        yield Companion(cluster)


def pod_of(companion: Companion) -> Any:
    path = "/api/v1/namespaces/default/pods?labelSelector=app%3Dweb"
    return companion.request("GET", path)["items"][0]


def test_k9s(companion: Companion) -> None:
    assert companion.request("GET", "/version?timeout=10s")["minor"] == "36"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}},
    }
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert companion.request("POST", reviews, review)["status"]["allowed"]
    groups = companion.request("GET", "/apis?timeout=30s", accept=AGGREGATED)
    assert groups["kind"] == "APIGroupDiscoveryList"
    assert "metrics.k8s.io" in [group["metadata"]["name"] for group in groups["items"]]
    table = companion.request("GET", "/api/v1/pods?limit=500", accept=TABLE)
    assert table["kind"] == "Table"
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    pod = pod_of(companion)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    events = companion.request(
        "GET",
        "/api/v1/namespaces/default/events?fieldSelector="
        f"involvedObject.name%3D{name}%2CinvolvedObject.uid%3D{uid}",
    )
    assert "Scheduled" in [event["reason"] for event in events["items"]]
    log = companion.request(
        "GET", f"/api/v1/namespaces/default/pods/{name}/log?container=c&tailLines=5&timestamps=true"
    )
    assert len(log.splitlines()) == 5 and log[:2] == "20"


def test_resource_metrics(companion: Companion) -> None:
    """k9s, Headlamp, Lens and the Dashboard show them, as `kubectl top` does."""
    nodes = companion.request("GET", "/apis/metrics.k8s.io/v1beta1/nodes")
    assert {"linux-1", "windows-1"} <= {node["metadata"]["name"] for node in nodes["items"]}
    node = companion.request("GET", "/apis/metrics.k8s.io/v1beta1/nodes/linux-1")
    assert set(node["usage"]) == {"cpu", "memory"}
    pods = companion.request(
        "GET", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dweb"
    )
    assert [c["name"] for c in pods["items"][0]["containers"]] == ["c"]


def test_headlamp(companion: Companion) -> None:
    rules = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"},
    }
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    assert companion.request("POST", reviews, rules)["status"]["resourceRules"]
    assert companion.request("GET", "/openapi/v2")["swagger"] == "2.0"
    name = pod_of(companion)["metadata"]["name"]
    listed = companion.request("GET", "/apis/apps/v1/namespaces/default/deployments")
    version = listed["metadata"]["resourceVersion"]
    watch = companion.web_socket(
        f"/apis/apps/v1/namespaces/default/deployments?watch=1&resourceVersion={version}",
        "base64.binary.k8s.io",
    )
    scale = {"spec": {"replicas": 2}}
    companion.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "not-watched"},
        }
    )
    path = "/apis/apps/v1/namespaces/default/deployments/web/scale"
    current = companion.request("GET", path)
    companion.request("PUT", path, {**current, **scale})
    event = json.loads(watch.recv())
    assert event["type"] == "MODIFIED" and event["object"]["metadata"]["name"] == "web"
    watch.close()
    shell = companion.web_socket(
        f"/api/v1/namespaces/default/pods/{name}/exec?container=c&command=echo&command=hello&stdout=1",
        "v4.channel.k8s.io",
    )
    output = b""
    while b"hello" not in output:
        message = shell.recv()
        output += message if isinstance(message, bytes) else message.encode()
    shell.close()


def test_lens(companion: Companion) -> None:
    assert companion.request("GET", "/api/v1/nodes?limit=1")["items"]
    for path in (
        "/api/v1/namespaces",
        "/api/v1/persistentvolumes",
        "/api/v1/replicationcontrollers",
        "/apis/apps/v1/statefulsets",
        "/apis/batch/v1/cronjobs",
        "/apis/autoscaling/v2/horizontalpodautoscalers",
        "/apis/policy/v1/poddisruptionbudgets",
        "/apis/networking.k8s.io/v1/networkpolicies",
        "/apis/networking.k8s.io/v1/ingresses",
        "/apis/storage.k8s.io/v1/storageclasses",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/discovery.k8s.io/v1/endpointslices",
    ):
        assert companion.request("GET", path)["kind"].endswith("List")
    summary = companion.request("GET", "/api/v1/nodes/linux-1/proxy/stats/summary")
    assert summary["node"]["nodeName"] == "linux-1"


def test_dashboard(companion: Companion) -> None:
    """It logs in with the token of a service account, and lists with `resourceVersion=0`."""
    admin = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "admin"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "dashboard-admin"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "admin", "namespace": "default"}],
        },
    ]
    companion.cluster.apply(admin)
    made = companion.request(
        "POST", "/api/v1/namespaces/default/serviceaccounts/admin/token", {"spec": {}}
    )
    settings = client.Configuration()
    config.load_kube_config(str(companion.cluster.kubeconfig), client_configuration=settings)
    settings.cert_file = settings.key_file = None
    settings.api_key = {"authorization": f"Bearer {made['status']['token']}"}
    core = client.CoreV1Api(client.ApiClient(settings))
    assert core.list_namespaced_pod("default", resource_version="0").items
    assert core.list_namespaced_secret("kube-system").items is not None
    names = [event.reason for event in core.list_namespaced_event("default").items]
    assert "Scheduled" in names
