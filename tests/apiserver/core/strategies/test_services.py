"""Services: what a change of type clears, and which ports a dry run shows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.harness import start

SERVICES = "/api/v1/namespaces/default/services"
MERGE = "application/merge-patch+json"


def _service(name: str, **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": spec}


async def test_the_traffic_policy_goes_with_the_ports() -> None:
    api = await start()
    await api.ok("POST", SERVICES, _service("s", type="NodePort", ports=[{"port": 80}]))
    plain = (await api.ok("PATCH", SERVICES + "/s", {"spec": {"type": "ClusterIP"}}, media=MERGE))[
        "spec"
    ]
    assert "externalTrafficPolicy" not in plain
    assert "nodePort" not in plain["ports"][0]


async def test_a_dry_run_makes_ports_up_but_no_address() -> None:
    api = await start()
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    shown = (
        await api.ok("POST", SERVICES + "?dryRun=All", _service("s", type="NodePort", ports=ports))
    )["spec"]
    assert [p["nodePort"] for p in shown["ports"]] == [32769, 32770]
    assert "clusterIP" not in shown
    await api.ok(
        "POST",
        SERVICES,
        _service("s", type="NodePort", ports=[{"port": 80, "nodePort": 31000}]),
    )
    status, problem = await api.call(
        "POST",
        SERVICES + "?dryRun=All",
        _service("t", type="NodePort", ports=[{"port": 80, "nodePort": 31000}]),
    )
    assert (status, problem["details"]["causes"][0]["field"]) == (422, "spec.ports[0].nodePort")


async def test_only_ports_of_one_number_share_a_node_port() -> None:
    api = await start()
    one = {"name": "a", "port": 80, "nodePort": 31000}
    twin = {"name": "b", "port": 80, "protocol": "UDP"}
    other = {"name": "b", "port": 81, "protocol": "UDP", "nodePort": 31000}
    assert (await api.call("POST", SERVICES, _service("s", type="NodePort", ports=[one, other])))[
        0
    ] == 422
    made = await api.ok("POST", SERVICES, _service("s", type="NodePort", ports=[one, twin]))
    assert [p["nodePort"] for p in made["spec"]["ports"]] == [31000, 31000]


@pytest.mark.parametrize(
    ("release", "wrong", "found"),
    [
        # Allocated first, since 1.23: neither the type of affinity nor the labels are looked at.
        ("1.22", {"clusterIP": "10.96.0.1"}, ["spec.sessionAffinity"]),
        ("1.36", {"clusterIP": "10.96.0.1"}, ["spec.clusterIPs"]),
        ("1.22", {"clusterIP": "10.96.0.x"}, ["spec.sessionAffinity", "spec.clusterIPs[0]"]),
        ("1.36", {"clusterIP": "10.96.0.x"}, ["spec.clusterIPs[0]"]),
        ("1.36", {"ipFamilies": ["IPv6"]}, ["spec.ipFamilies[0]"]),
        ("1.36", {}, ["spec.sessionAffinity"]),
    ],
)
async def test_a_failed_allocation_hides_other_errors(
    release: str, wrong: dict[str, Any], found: list[str]
) -> None:
    api = await start(release=release, service_cidr="10.96.0.0/16")
    invalid = {"ports": [{"port": 80}], "sessionAffinity": "Wrong"}
    status, problem = await api.call("POST", SERVICES, _service("s", **invalid, **wrong))
    assert status == 422
    assert [cause["field"] for cause in problem["details"]["causes"]] == found
    # Nothing stays allocated.
    await api.ok("POST", SERVICES, _service("s", ports=[{"port": 80}], clusterIP="10.96.0.2"))
    await api.server.stop()


@pytest.mark.parametrize(
    ("release", "text"),
    [
        ("1.22", "must be empty when clusterIP is empty"),
        ("1.23", "must be empty when `clusterIP` is not specified"),
    ],
)
async def test_texts_of_addresses(release: str, text: str) -> None:
    api = await start(release=release)
    spec = {"ports": [{"port": 80}], "clusterIP": "", "clusterIPs": ["10.0.0.1"]}
    _, problem = await api.call("POST", SERVICES, _service("s", **spec))
    assert text in problem["message"]
    await api.server.stop()
