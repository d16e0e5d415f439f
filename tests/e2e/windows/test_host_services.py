"""A pod of Windows is made by two services of its node: one has the containers, the other their
network.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.e2e.windows.conftest import Place

pytestmark = pytest.mark.e2e
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "both"},
    "spec": {
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "c",
                "image": "mcr.microsoft.com/windows/servercore:ltsc2019",
                "command": ["ping", "-t", "localhost"],
            }
        ],
    },
}


@pytest.mark.windows("NET-03", "NET-04", "NET-02", "SUP-NET-003")
def test_containers_and_their_network_come_and_go_together(place: Place) -> None:
    def shown(*args: str) -> Any:
        cluster = place.kubectl.cluster
        return json.loads(cluster.transom(*args, "--name", cluster.name, "--output", "json").stdout)

    place("apply", "--filename", "-", stdin=json.dumps(POD))
    place.ready("pod/both")
    pod = place.object("pod", "both")
    node, address, uid = pod["spec"]["nodeName"], pod["status"]["podIP"], pod["metadata"]["uid"]

    def endpoints() -> list[Any]:
        found = shown("hns", node, "endpoints")
        return [one for one in found if address in json.dumps(one)]

    def containers() -> list[Any]:
        return [one for one in shown("ps") if uid in json.dumps(one) or "both" in json.dumps(one)]

    [endpoint] = endpoints()
    networks = {network["ID"]: network["Type"] for network in shown("hns", node, "networks")}
    assert networks[endpoint["VirtualNetwork"]].lower() == "l2bridge"
    assert containers() and endpoint["AttachedTo"]
    place("delete", "pod", "both")
    assert (endpoints(), containers()) == ([], [])
