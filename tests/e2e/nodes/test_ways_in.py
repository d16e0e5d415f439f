"""Access to pods, services and nodes: port-forward, proxy and the proxy subresources; and from pod
to pod.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from .conftest import Space

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

WELCOME = "<title>Welcome to nginx!</title>"


@contextmanager
def listening(space: Space, *args: str) -> Iterator[str]:
    """The address at which a kubectl listens for us."""
    with space.running(*args) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:\d+", line)
        assert found is not None, line + process.stdout.read()
        yield f"http://{found[0]}"


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    "way", ["deployment/web :80", "service/web :8080", "service/web :http", "pod :http"]
)
def test_port_forward(home: Space, way: str) -> None:
    what, port = way.split()
    if what == "pod":
        what = home("get", "pods", "--selector=app=web", "--output=name").split()[0]
    with listening(home, "port-forward", what, port) as address:
        assert WELCOME in get(address)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(address + "/none")


def test_a_port_without_listener(home: Space) -> None:
    with home.running("port-forward", "pod/talker", ":81") as process:
        assert process.stdout is not None
        found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
        assert found is not None
        with pytest.raises(OSError):
            get(f"http://{found[0]}")
        assert any(
            "failed to dial 81: dial tcp4 127.0.0.1:81: connect: connection refused" in line
            for line in process.stdout
        )


def test_proxies(home: Space) -> None:
    base = f"/api/v1/namespaces/{home.name}"
    pod = home("get", "pods", "--selector=app=web", "--output=jsonpath={.items[0].metadata.name}")
    for path in (
        f"pods/{pod}/proxy/",
        f"pods/{pod}:80/proxy/",
        f"pods/http:{pod}:80/proxy/",
        "services/web:http/proxy/",
        "services/web:8080/proxy/",
    ):
        assert WELCOME in home("get", "--raw", f"{base}/{path}")
    with listening(home, "proxy", "--port=0") as address:
        assert WELCOME in get(f"{address}{base}/services/web:http/proxy/")
        assert json.loads(get(f"{address}{base}/pods/{pod}"))["kind"] == "Pod"
    for port, kind in (("", "endpoints"), (":80", "services")):
        missing = home.done("get", "--raw", f"{base}/services/none{port}/proxy/")
        assert missing.stderr == f'Error from server (NotFound): {kind} "none" not found\n'


def test_nodes_by_proxy(home: Space) -> None:
    for node in ("linux-1", "windows-1"):
        proxy = f"/api/v1/nodes/{node}/proxy"
        assert home("get", "--raw", f"{proxy}/healthz") == "ok"
        assert (
            json.loads(home("get", "--raw", f"{proxy}/stats/summary"))["node"]["nodeName"] == node
        )
        assert "node_cpu_usage_seconds_total" in home("get", "--raw", f"{proxy}/metrics/resource")
        assert (
            json.loads(home("get", "--raw", f"{proxy}/configz"))["kubeletconfig"]["maxPods"] == 110
        )
    running = json.loads(home("get", "--raw", "/api/v1/nodes/linux-1/proxy/runningpods/"))["items"]
    assert "talker" in {pod["metadata"]["name"] for pod in running}


def test_services_from_inside(home: Space) -> None:
    node_port = home.object("service/web")["spec"]["ports"][0]["nodePort"]
    address = home.object("node/linux-1")["status"]["addresses"][0]["address"]
    cluster_ip = home.object("service/web")["spec"]["clusterIP"]
    for url in (
        "http://web:8080",
        f"http://web.{home.name}.svc.cluster.local:8080",
        f"http://{cluster_ip}:8080",
        f"http://{address}:{node_port}",
    ):
        assert WELCOME in home("exec", "shell", "--", "wget", "-qO-", url)
    done = home.done("exec", "shell", "--", "wget", "-qO-", "http://nowhere")
    assert "wget: bad address 'nowhere'" in done.stderr
    assert f"Address: {cluster_ip}" in home("exec", "shell", "--", "nslookup", "web").replace(
        " 1: ", ": "
    )
    token = "/var/run/secrets/kubernetes.io/serviceaccount"
    version = (
        f'wget -qO- --header "Authorization: Bearer $(cat {token}/token)" '
        "https://kubernetes.default/version"
    )
    assert json.loads(home("exec", "shell", "--", "sh", "-c", version))["gitVersion"] == "v1.20.15"
