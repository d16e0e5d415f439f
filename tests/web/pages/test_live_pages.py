"""The pages over HTTP, with a real cluster: what they show is what the commands print."""

from __future__ import annotations

import html
import json
import re
from urllib.parse import urlencode

import pytest
from tests.conftest import Cluster
from tests.web.pages.live import EVIL, ConsoleBrowser

pytestmark = pytest.mark.e2e


def hops(page: str) -> list[str]:
    return re.findall(r'<g class="hop[^"]*" data-hop="([^"]+)"', page)


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", page))


# ---- trace ----


def test_a_packet_that_arrives(console: ConsoleBrowser, page_cluster: Cluster) -> None:
    page = console.page("/trace?from=pod/default/tools&to=svc/default/web")
    command = ("trace", "tools", "svc/web", "--output", "json", "--name", page_cluster.name)
    document = json.loads(page_cluster.transom(*command).stdout)
    assert len(hops(page)) == len(document["hops"]) > 3
    assert '<span class="badge ok">delivered</span>' in page
    assert all(
        hop["what"] in text_of(page) for hop in document["hops"] if "port" not in hop["what"]
    )
    assert 'class="changed"' in page, "the service's address is rewritten"


def test_a_packet_that_is_dropped_has_limit_and_remedy(console: ConsoleBrowser) -> None:
    page = console.page("/trace?from=node/windows-1&to=svc/default/web")
    assert 'href="/windows?show=WIN-NET-002#WIN-NET-002"' in page
    assert "Connect to the service from a pod" in page
    assert re.search(r'<g class="hop bad[^"]*" data-hop="3"', page)


@pytest.mark.parametrize("name", ["nobody", EVIL])
def test_unknown_ends_are_explained(console: ConsoleBrowser, name: str) -> None:
    page = console.page("/trace?" + urlencode({"from": name, "to": "svc/default/web"}))
    assert 'class="problem"' in page and EVIL not in page


def test_flows_and_heat_map(console: ConsoleBrowser) -> None:
    flows = console.page("/trace/flows")
    assert "Pod to service by address" in flows and 'class="tile ok"' in flows
    assert 'class="tile bad"' in flows
    pairs = console.page("/trace/pairs")
    cells = re.findall(r'<td class="cell ([a-z]*)"', pairs)
    assert {"ok", "bad"} <= set(cells) and len(cells) > 30
    assert "WIN-NET-002" in pairs


def test_the_hns_of_a_windows_node(console: ConsoleBrowser) -> None:
    page = console.page("/trace/hns")
    assert "L2Bridge" in page and "pod default/web" in page and "OutBoundNAT" in page
    assert "There is no Windows node linux-1" in console.page("/trace/hns?node=linux-1")


# ---- why ----


def test_a_pod_that_cannot_be_scheduled(console: ConsoleBrowser, page_cluster: Cluster) -> None:
    page = console.page("/why?pod=default/big")
    command = ("explain-schedule", "big", "--output", "json", "--name", page_cluster.name)
    document = json.loads(page_cluster.transom(*command, check=False).stdout)
    assert document["message"] in text_of(page)
    assert page.count('class="rejects"') == sum(len(n["reasons"]) for n in document["nodes"]) > 2
    assert "cannot be scheduled: it requests 2097152Mi memory" in page, "doctor's finding"


def test_a_pod_that_runs_and_one_that_does_not_exist(console: ConsoleBrowser) -> None:
    assert "runs on linux-1" in console.page("/why?pod=default/tools")
    assert 'class="problem"' in console.page("/why?pod=default/none")


def test_pods_with_problems_come_first(console: ConsoleBrowser) -> None:
    page = console.page("/why")
    assert page.index("?pod=default/big") < page.index("?pod=default/tools")


def test_doctor(console: ConsoleBrowser) -> None:
    page = console.page("/why/doctor")
    assert "cannot be scheduled" in page
    assert '<p class="command"><code>kubectl patch pod big' in page, "what repairs it"


@pytest.mark.parametrize("fault", ["cordon", "mac-spoofing", "hns-leak-endpoints"])
def test_a_fault_is_switched_on_and_off(console: ConsoleBrowser, fault: str) -> None:
    def state() -> str:
        page = console.page("/why/faults").partition('id="windows-1"')[2]
        switch = page.partition(f'name="fault" value="{fault}"')[2]
        found = re.search(r'aria-checked="(\w+)"', switch)
        assert found is not None
        return found[1]

    assert state() == "false"
    for on in ("true", "false"):
        assert console.post_form("/why/faults", node="windows-1", fault=fault, on=on) == 303
        assert state() == on


def test_faults_need_the_csrf_token_and_a_known_name(console: ConsoleBrowser) -> None:
    assert console.post_form("/why/faults", csrf="", node="windows-1", fault="cordon") == 403
    assert console.post_form("/why/faults", node="windows-1", fault="meteor", on="true") == 400
    assert console.post_form("/why/faults", node="../x", fault="cordon", on="true") == 400


def test_the_timeline_has_events_status_and_restarts(console: ConsoleBrowser) -> None:
    entries = console.get_json("/why/timeline/data?pod=default/web")["entries"]
    assert entries[0]["text"] == f"Evil: {EVIL}", "the oldest"
    texts = [entry["text"] for entry in entries]
    assert "container web started" in texts and "Ready is True" in texts
    assert {"event", "status", "restart", "condition"} == {entry["kind"] for entry in entries}
    assert len(console.get_json("/why/timeline/data")["entries"]) > len(entries)


# ---- lint and Windows ----


def test_lint(console: ConsoleBrowser) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  hostNetwork: true\n"
    pod += "  nodeSelector: {kubernetes.io/os: windows}\n  containers: []\n"
    found = console.post_json("/lint/check", {"text": pod, "release": "1.20", "runtime": "docker"})
    assert [one["id"] for one in found["findings"]] == ["WIN-POD-002"]
    file = console.post_json("/lint/report", {"text": pod, "format": "sarif"})
    assert file["name"] == "lint.sarif" and "WIN-POD-00" in file["text"]
    assert 'value="1.20" selected' in console.page("/lint"), "the release of the cluster"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"text": 7}, 400),
        ({"text": "a: b", "release": "9.9"}, 400),
        ({"text": "a: b", "format": "exe"}, 400),
        ({"text": "x" * (257 * 1024)}, 413),
    ],
)
def test_lint_refuses_what_it_cannot_check(
    console: ConsoleBrowser, body: dict[str, object], status: int
) -> None:
    path = "/lint/report" if "format" in body else "/lint/check"
    console.post_json(path, body, status)


def test_the_support_matrix_by_release_and_build(console: ConsoleBrowser) -> None:
    old = console.page("/windows?release=1.25&build=17763&kind=limit")
    new = console.page("/windows?release=1.25&build=20348&kind=limit")
    assert 'id="WIN-SVC-002"' in old and 'id="WIN-SVC-002"' not in new
    assert "SUP-POD-001" not in new
    assert "privileged: true" in new and "kubernetes.io/docs" in new, "example and source"
    assert 'id="WIN-SVC-002"' in console.page("/windows?release=1.25&build=20348&show=WIN-SVC-002")
    console.page("/windows?build=vista", status=400)
