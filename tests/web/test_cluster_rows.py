"""The rows of the Cluster page."""

from __future__ import annotations

from typing import Any

import pytest

from transom.web.cluster_rows import endpoints_row, node_row, pod_row, service_row


def _pod(phase: str, *states: dict[str, Any], ready: bool = False, **status: Any) -> dict[str, Any]:
    containers = [{"name": f"c{at}"} for at in range(max(1, len(states)))]
    statuses = [
        {"name": f"c{at}", "state": state, "ready": ready, "restartCount": at}
        for at, state in enumerate(states)
    ]
    return {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"nodeName": "n1", "containers": containers},
        "status": {"phase": phase, "containerStatuses": statuses, **status},
    }


RUNNING: dict[str, Any] = {"running": {}}
UNSCHEDULABLE = [
    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes"}
]
# Its node is lost: the containers are as the kubelet last reported them.
NOT_READY = [{"type": "Ready", "status": "False"}]


@pytest.mark.parametrize(
    ("pod", "state", "status", "message"),
    [
        (_pod("Running", RUNNING, ready=True), "running", "Running", ""),
        (_pod("Running", RUNNING), "unready", "Running", ""),
        (_pod("Running", RUNNING, ready=True, conditions=NOT_READY), "unready", "Running", ""),
        (_pod("Pending"), "starting", "Pending", ""),
        (
            _pod("Pending", {"waiting": {"reason": "ContainerCreating"}}),
            "starting",
            "ContainerCreating",
            "",
        ),
        (
            _pod("Running", {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}),
            "problem",
            "CrashLoopBackOff",
            "back-off",
        ),
        (_pod("Pending", conditions=UNSCHEDULABLE), "problem", "Pending", "0/4 nodes"),
        (_pod("Succeeded", {"terminated": {"reason": "Completed"}}), "done", "Completed", ""),
        (
            _pod("Failed", reason="Evicted", message="The node was low on memory."),
            "problem",
            "Evicted",
            "The node was low on memory.",
        ),
    ],
)
def test_states_of_pods(pod: dict[str, Any], state: str, status: str, message: str) -> None:
    row = pod_row(pod)
    assert [row[0], row[1], row[2], row[3], row[6]] == ["shop/web", "n1", state, status, message]


def test_a_pod_that_is_deleted_is_ending() -> None:
    pod = _pod("Running", RUNNING, ready=True)
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert pod_row(pod)[2:4] == ["ending", "Terminating"]


def test_node_service_and_endpoints() -> None:
    node = {
        "metadata": {"name": "w1", "labels": {}},
        "spec": {"unschedulable": True},
        "status": {
            "nodeInfo": {
                "operatingSystem": "windows",
                "kernelVersion": "10.0.17763.1697",
                "osImage": "Windows Server 2019 Datacenter",
                "kubeletVersion": "v1.20.15",
                "containerRuntimeVersion": "docker://20.10",
            },
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "DiskPressure", "status": "True"},
            ],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.4"}],
        },
    }
    assert node_row(node) == [
        "w1",
        "windows",
        "10.0.17763.1697",
        "Windows Server 2019 Datacenter",
        "True",
        True,
        ["DiskPressure"],
        "v1.20.15",
        "docker://20.10",
        "10.0.0.4",
    ]
    meta = {"name": "web", "namespace": "shop"}
    service = {"metadata": meta, "spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}}
    assert service_row(service) == ["shop/web", "ClusterIP", "10.96.0.9", ["80/TCP"]]
    address = {"targetRef": {"kind": "Pod", "namespace": "shop", "name": "a"}}
    subset = {"addresses": [address, address], "notReadyAddresses": [{"ip": "1.2.3.4"}]}
    assert endpoints_row({"metadata": meta, "subsets": [subset]}) == ["shop/web", ["shop/a"], []]


def test_an_empty_node_has_a_row() -> None:
    assert node_row({"metadata": {"name": "n"}})[:5] == ["n", "linux", "", "", "Unknown"]
