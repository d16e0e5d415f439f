"""An Ingress and an HTTPRoute of a running cluster answer on ports of this machine."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import Cluster, Kubectl, kubectl_binaries, running_cluster

from transom.kit import pki

pytestmark = pytest.mark.e2e

HOST = "web.example.com"
MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {kubernetes.io/os: linux}
      containers: [{name: web, image: "nginx:1.19", ports: [{containerPort: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 8000, name: http, targetPort: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  ingressClassName: transom
  tls: [{hosts: [web.example.com], secretName: web-tls}]
  rules:
  - host: web.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: other}
spec:
  ingressClassName: nginx
  rules:
  - host: other.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 8000}}}}]}
"""
GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: public}
spec: {controllerName: transom.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {gatewayClassName: public, listeners: [{name: web, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: edge}]
  hostnames: [route.example.com]
  rules: [{backendRefs: [{name: web, port: 8000}]}]
"""


def crd(kind: str, plural: str, scope: str) -> dict[str, Any]:
    """As the Gateway API's, without its schema."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    group = "gateway.networking.k8s.io"
    # Groups of Kubernetes need this annotation.
    approval = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api"}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": approval},
        "spec": {"group": group, "names": names, "scope": scope, "versions": [version]},
    }


@pytest.fixture
def kubectl_here(tmp_path: Path) -> Iterator[Kubectl]:
    """For a cluster of its own, which has never had an Ingress."""
    binaries = kubectl_binaries()
    if not binaries:
        pytest.skip("no kubectl on this machine")
    with running_cluster(tmp_path, "--linux", "1", "--windows", "0") as running:
        yield Kubectl(binaries[0], running)


def ports(cluster: Cluster) -> dict[str, tuple[str, int]]:
    done = cluster.transom("status", "--name", cluster.name, "--output", "json", check=False)
    found = {}
    for row in json.loads(done.stdout)["relays"]:
        if row["inside"] == "ingress controller":
            host, _, port = row["outside"].rpartition(":")
            found[row["port"]] = host, int(port)
    return found


def get(address: tuple[str, int], host: str, context: ssl.SSLContext | None = None) -> int:
    made: http.client.HTTPConnection
    if context is None:
        made = http.client.HTTPConnection(*address, timeout=20)
    else:
        made = _NamedConnection(*address, timeout=20, context=context)
    made.request("GET", "/", headers={"Host": host})
    status = made.getresponse().status
    made.close()
    return status


class _NamedConnection(http.client.HTTPSConnection):
    """Connects to the address, and asks for the certificate of HOST."""

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        context: ssl.SSLContext = self._context  # type: ignore[attr-defined]
        self.sock = context.wrap_socket(self.sock, server_hostname=HOST)


def test_an_ingress_answers(kubectl_here: Kubectl, tmp_path: Path) -> None:
    kubectl, cluster = kubectl_here, kubectl_here.cluster
    assert ports(cluster) == {}, "nothing listens before the first Ingress"
    authority = pki.make_ca("test")
    pair = pki.issue_server(authority, HOST, [HOST])
    crt, key, ca = tmp_path / "crt", tmp_path / "key", tmp_path / "ca"
    crt.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    ca.write_bytes(authority.certificate)
    kubectl("create", "secret", "tls", "web-tls", "--cert", str(crt), "--key", str(key))
    kubectl("apply", "--filename", "-", stdin=MANIFEST)
    kubectl("rollout", "status", "deployment/web", "--timeout=50s")
    wait_for(kubectl, "ingress/web", "{.status.loadBalancer.ingress[0].ip}", "127.0.0.1")
    found = ports(cluster)
    assert get(found["http"], HOST) == 200
    assert get(found["http"], "other.example.com") == 404, "the class of another controller"
    assert get(found["https"], HOST, ssl.create_default_context(cafile=str(ca))) == 200

    definitions = (
        crd("GatewayClass", "gatewayclasses", "Cluster"),
        crd("Gateway", "gateways", "Namespaced"),
        crd("HTTPRoute", "httproutes", "Namespaced"),
    )
    kubectl("apply", "--filename", "-", stdin=yaml.safe_dump_all(definitions))
    names = [f"crd/{row['metadata']['name']}" for row in definitions]
    kubectl("wait", "--for=condition=Established", *names, "--timeout=30s")
    kubectl("apply", "--filename", "-", stdin=GATEWAY)
    wait_for(kubectl, "gateway/edge", "{.status.addresses[0].value}", "127.0.0.1")
    wait_for(kubectl, "httproute/web", "{.status.parents[0].conditions[0].type}", "Accepted")
    wait_for(kubectl, "gatewayclass/public", "{.status.conditions[0].status}", "True")
    assert get(found["http"], "route.example.com") == 200
    assert get(found["https"], "route.example.com", insecure_context()) == 404, "no HTTPS listener"


def insecure_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def wait_for(kubectl: Kubectl, name: str, path: str, wanted: str) -> None:
    """Follows the object until the value is there."""
    command = [kubectl.binary, "get", name, "--watch", f"--output=jsonpath={path}{{'\\n'}}"]
    with subprocess.Popen(
        command, env=kubectl.cluster.env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any(line.strip() == wanted for line in process.stdout)
        process.kill()
