from __future__ import annotations

import json

import pytest
from tests.kubelet.server_harness import ADMIN, ServerHarness

from transom.http.messages import PeerCertificate


def test_strangers_are_sent_away() -> None:
    harness = ServerHarness()
    assert harness.text("/pods", peer=None) == (401, "Unauthorized")
    assert harness.text("/pods", peer=None, authorization="Bearer wrong") == (401, "Unauthorized")
    assert harness.text("/pods", peer=PeerCertificate("old", [], 0, 1)) == (401, "Unauthorized")
    assert harness.text("/pods", peer=None, authorization="bearer secret")[0] == 200
    harness.client.denied = {"proxy", "metrics"}
    harness.clock.advance(400)
    forbidden = "Forbidden (user={}, verb={}, resource=nodes, subresource={})"
    assert harness.text("/pods") == (403, forbidden.format("admin", "get", "proxy"))
    assert harness.text("/metrics/resource", peer=None, authorization="Bearer secret") == (
        403,
        forbidden.format("jane", "get", "metrics"),
    )
    assert harness.text("/stats/summary", method="POST")[0] == 200
    assert harness.text("/nowhere", peer=None) == (404, "404 page not found\n")


@pytest.mark.windows("W-DBG-13", "SUP-TRB-113")
@pytest.mark.parametrize("verb", ["exec", "attach", "portForward", "run"])
def test_commands_in_containers_need_the_right_to_the_proxy(verb: str) -> None:
    harness = ServerHarness()
    harness.text(f"/{verb}/default/p/c", method="POST", peer=None, authorization="Bearer secret")
    requested = harness.client.requested[-1]["spec"]["resourceAttributes"]
    assert (requested["resource"], requested["subresource"], requested["verb"]) == (
        "nodes",
        "proxy",
        "create",
    )


def test_anonymous_when_allowed() -> None:
    harness = ServerHarness(anonymous_auth=True)
    assert harness.text("/pods", peer=None)[0] == 200
    assert harness.client.requested[0]["spec"] == {
        "resourceAttributes": {
            "verb": "get",
            "version": "v1",
            "resource": "nodes",
            "subresource": "proxy",
            "name": "n1",
        },
        "user": "system:anonymous",
        "groups": ["system:unauthenticated"],
    }


def test_answers_of_the_api_server_are_remembered_for_a_while() -> None:
    harness = ServerHarness()

    def requested() -> int:
        harness.get("/pods", peer=None, authorization="Bearer secret")
        return len(harness.client.requested)

    assert [requested(), requested()] == [2, 2]
    harness.clock.advance(130)  # the token is looked at again
    assert requested() == 3
    harness.clock.advance(200)  # and so is the right
    assert requested() == 5
    harness.client.broken = True
    harness.clock.advance(400)
    assert harness.text("/pods") == (
        500,
        "Authorization error (user=admin, verb=get, resource=nodes, subresource=proxy)",
    )


@pytest.mark.parametrize(
    ("target", "method", "wanted"),
    [
        ("/healthz", "GET", (200, "ok")),
        ("/healthz/syncloop", "GET", (200, "ok")),
        (
            "/healthz?verbose",
            "GET",
            (200, "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n"),
        ),
        ("/", "GET", (404, "404 page not found\n")),
        ("/spec", "GET", (404, "404 page not found\n")),
        ("/pods/x", "GET", (404, "404: Page Not Found")),
        ("/pods", "POST", (405, "405: Method Not Allowed")),
        ("/stats/other", "GET", (404, "404: Page Not Found")),
        ("/exec/ns/p", "POST", (404, "404: Page Not Found")),
        ("/exec/ns/p/c?output=1", "POST", (500, "Upgrade request required\n")),
        ("/exec/ns/p/c", "POST", (400, "you must specify at least 1 of stdin, stdout, stderr")),
        ("/exec/ns/x/c?output=1", "POST", (404, "pod does not exist")),
        ("/exec/ns/p/x?output=1", "POST", (500, 'container not found ("x")')),
        ("/attach/ns/p/x?output=1", "POST", (500, "container x not found in pod p_ns")),
        ("/attach/ns/p/uid/c?output=1", "POST", (500, "pod p_ns not found")),
        ("/portForward/ns/x", "POST", (404, "pod does not exist")),
        ("/portForward/ns/p/other", "POST", (404, "pod not found")),
        ("/run/ns/p/c?cmd=echo+hi", "POST", (200, "echo hioops")),
        ("/run/ns/p/c?cmd=false", "POST", (500, "command 'false' exited with 1: oops")),
        ("/run/ns/p/c", "GET", (405, "405: Method Not Allowed")),
        ("/logs/nothing", "GET", (404, "404 page not found\n")),
        ("/logs/../etc/passwd", "GET", (301, '<a href="/etc/passwd">Moved Permanently</a>.\n\n')),
        (
            '/pods//"><script>\r\nX: y',
            "GET",
            (301, '<a href="/pods/%22%3E%3Cscript%3E%0D%0AX:%20y">Moved Permanently</a>.\n\n'),
        ),
        ("/runningpods", "GET", (301, '<a href="/runningpods/">Moved Permanently</a>.\n\n')),
    ],
)
def test_places(target: str, method: str, wanted: tuple[int, str]) -> None:
    assert ServerHarness().text(target, method=method) == wanted


def test_a_loop_that_hangs_is_not_healthy() -> None:
    harness = ServerHarness()
    harness.server._alive = lambda: False
    status, printed = harness.text("/healthz")
    assert (
        status == 500 and "[-]syncloop failed: reason withheld\nhealthz check failed\n" in printed
    )
    assert harness.text("/healthz/syncloop") == (
        500,
        "internal server error: sync Loop took longer than expected\n",
    )


def test_pods_and_running_pods() -> None:
    harness = ServerHarness()
    listed = json.loads(harness.text("/pods")[1])
    assert listed["kind"] == "PodList" and listed["items"] == [harness.pod]
    assert json.loads(harness.text("/runningpods/")[1])["items"] == [
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "creationTimestamp": None},
            "spec": {"containers": [{"name": "c", "image": "busybox:1", "resources": {}}]},
            "status": {},
        }
    ]
    assert harness.text("/pods", accept="text/html") == (406, "406: Not Acceptable")


def test_the_log_directory() -> None:
    harness = ServerHarness()
    harness.files.write("/var/log/a&b.log", b"said")
    assert (
        '<a href="a%26b.log">a&amp;b.log</a>\n<a href="containers/">containers/</a>\n'
        in harness.text("/logs/")[1]
    )
    assert harness.text("/logs/a&b.log") == (200, "said")
    assert dict(harness.get("/logs/pods").headers)[b"Location"] == b"pods/"


def test_configz() -> None:
    shown = json.loads(ServerHarness(max_pods=50, cluster_dns=("10.96.0.10",)).text("/configz")[1])[
        "kubeletconfig"
    ]
    assert (
        shown["maxPods"] == 50
        and shown["clusterDNS"] == ["10.96.0.10"]
        and shown["syncFrequency"] == "1m0s"
    )
    assert (
        shown["authentication"]["anonymous"] == {"enabled": False} and "staticPodPath" not in shown
    )


def test_requests_are_counted() -> None:
    harness = ServerHarness()
    harness.get("/pods", peer=ADMIN)
    printed = harness.text("/metrics")[1]
    assert (
        'kubelet_http_requests_total{long_running="false",method="GET",path="pods",server_type="readwrite"} '
        "1\n"
    ) in printed
    assert 'kubelet_running_containers{container_state="running"} 1\n' in printed
    assert "kubelet_running_pods 1\n" in printed and 'kubelet_node_name{node="n1"} 1\n' in printed


@pytest.mark.windows("TRB-39")
@pytest.mark.parametrize(
    "path", ["/containerLogs/ns/web/c", "/exec/ns/web/c", "/runningpods/", "/logs/"]
)
def test_debugging_handlers_may_be_off(path: str) -> None:
    off = ServerHarness(enable_debugging_handlers=False)
    assert off.text(path) == (405, "Debug endpoints are disabled.")
    assert off.text("/pods")[0] == 200
    assert ServerHarness().text(path)[1] != "Debug endpoints are disabled."
