"""Parts of pages that need no cluster: HNS as a tree, scheduling decisions, records, workers."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from transom.kit.user_errors import UserError
from transom.machinery.errors import ApiError
from transom.machines.windows.hns.faults import SWITCHES
from transom.web.pages.fault_switches import HNS_ABOUT
from transom.web.pages.hns_tree import render_hns_tree
from transom.web.pages.trace import TraceEndpoints, chosen_pods, chosen_services, trace_link
from transom.web.pages.why import findings_list, scheduling_report
from transom.web.workers import run_in_worker

EVIL = "<img src=x onerror=alert(1)>"


def hns_state(**more: Any) -> dict[str, Any]:
    endpoint = {
        "ID": "E1",
        "Name": EVIL,
        "State": 2,
        "IPAddress": "10.244.2.3",
        "VirtualNetwork": "N1",
        "Policies": [{"Type": "OutBoundNAT", "ExceptionList": ["10.96.0.0/16"]}],
        "AttachedTo": {"Type": "container", "ID": "c"},
    }
    network = {
        "ID": "N1",
        "Name": "cbr0",
        "Type": "L2Bridge",
        "Subnets": [{"AddressPrefix": "10.244.2.0/24"}],
        "ManagementIP": "172.20.0.4",
    }
    balancer = {
        "ID": "B1",
        "FrontendVIPs": ["10.96.0.7"],
        "HostComputeEndpoints": ["E1"],
        "PortMappings": [{"Protocol": 6, "ExternalPort": 80, "InternalPort": 8080}],
        "Flags": 1,
    }
    empty: dict[str, Any] = {
        "namespaces": [],
        "routes": [],
        "adapters": [],
        "faults": [{"Name": "leak-endpoints", "On": True}],
    }
    return {
        "networks": [network],
        "endpoints": [endpoint],
        "loadbalancers": [balancer],
        **empty,
    } | more


def test_hns_shows_networks_endpoints_policies_and_balancers() -> None:
    text = render_hns_tree(hns_state(), {"10.244.2.3": "default/web"}).text
    for part in ("cbr0", "pod default/web", "OutBoundNAT", "10.96.0.7", "TCP 80 → 8080", "DSR"):
        assert part in text
    assert "Faults on: leak-endpoints" in text


def test_names_in_hns_are_escaped() -> None:
    text = render_hns_tree(hns_state(), {}).text
    assert EVIL not in text and "&lt;img" in text


def test_long_lists_of_hns_are_cut() -> None:
    balancer = hns_state()["loadbalancers"][0]
    text = render_hns_tree(hns_state(loadbalancers=[balancer] * 450), {}).text
    assert "and 250 more" in text


def decision(**more: Any) -> dict[str, Any]:
    return {
        "pod": "web",
        "nodeName": "",
        "schedulerName": "default-scheduler",
        "message": "0/2 nodes are available",
        "best": [],
        "nodes": [
            {
                "name": "linux-1",
                "feasible": False,
                "reasons": {"NodeResourcesFit": ["Insufficient memory", EVIL]},
                "scores": {},
                "total": 0,
            }
        ],
        **more,
    }


def test_a_decision_shows_the_reason_of_each_plugin() -> None:
    text = scheduling_report(decision(), ["NodeName", "NodeResourcesFit"]).text
    assert "cannot be scheduled" in text and "Insufficient memory" in text and EVIL not in text
    assert "No node is rejected by NodeName." in text and "Scores" not in text


def test_a_decision_shows_scores_of_feasible_nodes() -> None:
    node = {
        "name": "linux-1",
        "feasible": True,
        "reasons": {},
        "scores": {"ImageLocality": {"score": 7, "weight": 2}},
        "total": 14,
    }
    text = scheduling_report(decision(nodes=[node], best=["linux-1"]), ["NodeName"]).text
    assert "can be scheduled" in text and "7 × 2" in text and "14" in text


def test_many_nodes_of_a_decision_are_cut() -> None:
    node = decision()["nodes"][0]
    nodes = [{**node, "name": f"n{i}"} for i in range(1000)]
    assert "800 more nodes" in scheduling_report(decision(nodes=nodes), []).text


def test_findings_link_to_their_record_and_are_escaped() -> None:
    one = {"severity": "error", "what": EVIL, "where": ["pod/a/b"] * 30, "record": "WIN-OS-007"}
    text = findings_list([one]).text
    assert EVIL not in text and 'href="/windows?show=WIN-OS-007#WIN-OS-007"' in text
    assert "and 10 more" in text


def test_the_heat_map_has_one_pod_of_each_node_and_services_with_selectors_first() -> None:
    def pod(name: str, node: str, ready: str = "True", **spec: Any) -> dict[str, Any]:
        meta = {"name": name, "namespace": "d"}
        spec = {"nodeName": node, **spec}
        conditions = [{"type": "Ready", "status": ready}]
        status = {"phase": "Running", "conditions": conditions}
        return {"metadata": meta, "spec": spec, "status": status}

    def service(name: str, **spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": "d"}, "spec": spec}

    endpoints = TraceEndpoints(
        [
            pod("0", "n1", ready="False"),
            pod("a", "n1"),
            pod("b", "n1"),
            pod("c", "n2"),
            pod("h", "n3", hostNetwork=True),
        ],
        [
            service("kubernetes", clusterIP="10.96.0.1"),
            service("headless", clusterIP="None", selector={"a": "b"}),
            service("web", clusterIP="10.96.0.2", selector={"a": "b"}),
        ],
        [],
    )
    assert chosen_pods(endpoints) == ["pod/d/a", "pod/d/c"]
    assert chosen_services(endpoints) == ["svc/d/web", "svc/d/kubernetes"]


def test_links_to_traces_are_escaped() -> None:
    assert trace_link("a&b", "c d") == "/trace?from=a%26b&to=c%20d&protocol=tcp"


async def test_work_runs_in_a_thread_and_errors_for_users_become_400() -> None:
    assert await run_in_worker(threading.get_ident) != threading.get_ident()

    def fail() -> None:
        raise UserError("no such pod", "look again")

    with pytest.raises(ApiError) as problem:
        await run_in_worker(fail)
    assert (problem.value.code, problem.value.message) == (400, "no such pod (look again)")


def test_every_fault_of_hns_is_described() -> None:
    assert set(HNS_ABOUT) == {name.replace("_", "-") for name in SWITCHES}
