"""Addresses of both families, which Windows has from build 19041 on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from .conftest import Net, at_once, eventually, made, pod, service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

NODES = """
apiVersion: transom.dev/v1
kind: Cluster
podCIDR: 10.10.0.0/16,fd00:99::/56
nodes:
- {name: control-plane, role: control-plane}
- {name: linux-1}
- {name: windows-1, os: windows}
- {name: windows-2, os: windows, build: 19041}
"""
SERVERS = {"app": "server"}
ON = {"lin": "linux-1", "core": "windows-2", "old": "windows-1"}
CLIENTS = {"lin-client": "control-plane", "core-client": "windows-2", "old-client": "windows-1"}
OUTSIDE = "2001:db8::10"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    with made(tmp_path_factory.mktemp("dual"), "{dualStack: true}", NODES) as net:
        net.apply(
            *(pod(name, node, SERVERS) for name, node in ON.items()),
            *(pod(name, node, {"role": name}) for name, node in CLIENTS.items()),
            pod("host", "linux-1", hostNetwork=True, container={"args": ["pause"]}),
            service("four", SERVERS),
            service("six", SERVERS, ipFamilies=["IPv6"], type="NodePort"),
            service("two", SERVERS, ipFamilyPolicy="RequireDualStack", type="LoadBalancer"),
            service(
                "backwards", SERVERS, ipFamilyPolicy="PreferDualStack", ipFamilies=["IPv6", "IPv4"]
            ),
            service("headless", SERVERS, ipFamilyPolicy="PreferDualStack", clusterIP="None"),
        )
        net.ready()
        yield net


def ips(net: Net, name: str) -> list[str]:
    return [one["ip"] for one in net.object("pod", name)["status"]["podIPs"]]


def six(net: Net, *names: str) -> list[str]:
    """Where pods serve by IPv6."""
    return [f"[{ips(net, name)[1]}]:8080" for name in names]


def who(net: Net, client: str, place: str) -> set[str]:
    return set(net.fetch(client, *[f"{place}/hostname"] * 18))


@pytest.mark.windows("WIN-NET-015", "DS-01", "DS-02", "LB-10", "LB-11", "IP6-02", "SUP-SVC-012")
def test_addresses_of_nodes_pods_and_services(both: Net) -> None:
    nodes = {node["metadata"]["name"]: node for node in both.object("nodes")["items"]}
    ranges = {name: node["spec"]["podCIDRs"] for name, node in nodes.items()}
    assert all(
        one.startswith("10.10.") and other.startswith("fd00:99:") for one, other in ranges.values()
    ), ranges
    internal = {
        name: [a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP"]
        for name, node in nodes.items()
    }
    pods = {name: ips(both, name) for name in (*ON, "host")}
    assert pods.pop("host") == internal["linux-1"]
    families = {name: [":" in ip for ip in given] for name, given in (internal | pods).items()}
    two, one = [False, True], [False]
    assert families == {
        "control-plane": two,
        "linux-1": two,
        "windows-2": two,
        "windows-1": one,
        "lin": two,
        "core": two,
        "old": one,
    }
    specs = {
        name: both.object("service", name)["spec"] for name in ("four", "six", "two", "backwards")
    }
    assert {name: [":" in ip for ip in spec["clusterIPs"]] for name, spec in specs.items()} == {
        "four": [False],
        "six": [True],
        "two": [False, True],
        "backwards": [True, False],
    }
    assert [spec["ipFamilyPolicy"] for spec in specs.values()] == [
        "SingleStack",
        "SingleStack",
        "RequireDualStack",
        "PreferDualStack",
    ]
    lin, core, old = (pods[name] for name in ON)
    slices = both.object("endpointslices", "--selector", "kubernetes.io/service-name=two")["items"]
    found = {s["addressType"]: {a for e in s["endpoints"] for a in e["addresses"]} for s in slices}
    assert found == {"IPv4": {lin[0], core[0], old[0]}, "IPv6": {lin[1], core[1]}}
    first = both.object("endpoints", "backwards")["subsets"][0]["addresses"]
    assert {a["ip"] for a in first} == {lin[1], core[1]}, "Endpoints have the first family alone"
    ingress = eventually(
        lambda: both.object("service", "two")["status"]["loadBalancer"].get("ingress")
    )
    assert [":" in row["ip"] for row in ingress] == two


@pytest.mark.windows("DS-01", "DS-02", "IP6-02", "SUP-SVC-012", "WIN-NET-015")
def test_between_pods_and_nodes(both: Net) -> None:
    places = six(both, "lin", "core")
    for client in ("lin-client", "core-client"):
        own = ips(both, client)[1]
        assert both.fetch(client, *(f"{place}/hostname" for place in places)) == ["lin", "core"]
        assert both.clients(client, *places) == [f"[{own}]"] * 2
        assert both.exec(
            client, "ping", "-n" if client == "core-client" else "-c", "1", ips(both, "lin")[1]
        )
    assert both.fetch("host", *(f"{place}/hostname" for place in places)) == ["lin", "core"]
    assert both.fetch("old-client", *(f"{place}/hostname" for place in places)) == ["", ""]
    assert both.trace("old-client", places[0])["limit"] == "WIN-NET-015"
    outside = both.trace("core-client", f"[{OUTSIDE}]:80")
    assert outside["verdict"] == "delivered" and any(
        "OutBoundNAT: source becomes fd" in hop["what"] for hop in outside["hops"]
    )
    [network] = both.hns("windows-2", "networks")
    assert [":" in subnet["AddressPrefix"] for subnet in network["Subnets"]] == [False, True]


@pytest.mark.windows("WIN-SVC-016", "IP6-02", "SUP-SVC-012")
def test_services_of_each_family(both: Net) -> None:
    two = both.object("service", "two")["spec"]["clusterIPs"]
    for client in ("lin-client", "core-client"):
        eventually(
            lambda client=client: who(both, client, "four"),
            lambda found: found == {"lin", "core", "old"},
        )
        eventually(
            lambda client=client: who(both, client, "six"), lambda found: found == {"lin", "core"}
        )
    assert who(both, "lin-client", f"[{two[1]}]") == {"lin", "core"}
    assert both.fetch("old-client", "four/hostname", "six/hostname", patience=0.5)[1] == ""
    # On Windows kube-proxy reads Endpoints, which have one family.
    assert (
        both.fetch("core-client", f"{two[0]}/hostname", f"[{two[1]}]/hostname", patience=0.5)[1]
        == ""
    )
    found = both.trace("core-client", f"[{two[1]}]:80")
    assert (found["verdict"], found["limit"]) == ("dropped", "WIN-SVC-016")
    address = both.object("service", "six")["spec"]["clusterIP"]
    balancers = [
        one
        for one in both.hns("windows-2", "loadbalancers")
        if one.get("FrontendVIPs") == [address]
    ]
    assert [(one["Flags"], len(one["HostComputeEndpoints"])) for one in balancers] == [(2, 2)]


def test_from_outside(both: Net) -> None:
    """By the relays of this machine, and by the way that a packet from outside takes."""
    ways = json.loads(
        both.cluster.transom("status", "--name", both.cluster.name, "--output", "json").stdout
    )["relays"]
    assert {way["service"] for way in ways} == {"default/six", "default/two"}
    for way in ways:
        with urlopen(f"http://{way['outside']}/hostname", timeout=5) as answer:
            assert answer.read().decode() in ON, way
    spec = both.object("service", "six")["spec"]
    node = both.object("node", "windows-2")["status"]["addresses"][1]["address"]
    for target in (f"[{node}]:{spec['ports'][0]['nodePort']}", "svc/two:80"):
        assert both.trace("external", target)["verdict"] == "delivered"


@pytest.mark.windows("DS-01", "WIN-NET-015")
def test_names(both: Net) -> None:
    address = both.object("service", "six")["spec"]["clusterIP"]
    assert address in both.exec("lin-client", "nslookup", "six")
    assert address in both.exec("core-client", "powershell", "Resolve-DnsName six -Type AAAA")
    assert "six.default.svc.cluster.local" in both.exec("lin-client", "nslookup", address)
    listed = {
        line.split()[0]
        for line in both.exec("lin-client", "getent", "ahosts", "headless").splitlines()
    }
    assert listed == {ip for name in ON for ip in ips(both, name)}
    found = both.trace("old-client", "six:80")
    assert (found["verdict"], found["limit"]) == ("unresolved", "WIN-NET-015")
    assert both.trace("core-client", "six:80")["verdict"] == "delivered"


def test_network_policies(both: Net) -> None:
    """Selectors mean all addresses of pods; blocks are of one family."""

    def reached() -> list[bool]:
        rows = at_once(
            *(
                lambda client=client: both.fetch(
                    client, *(f"{place}/hostname" for place in places), patience=0.5
                )
                for client in ("lin-client", "core-client")
            )
        )
        return [bool(answer) for row in rows for answer in row]

    places = [
        *six(both, "lin", "core"),
        *(f"{ips(both, name)[0]}:8080" for name in ("lin", "core")),
    ]
    block = {"ipBlock": {"cidr": f"{ips(both, 'core-client')[1]}/128"}}
    allowed = [{"podSelector": {"matchLabels": {"role": "lin-client"}}}, block]
    both.apply(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "some"},
            "spec": {"podSelector": {"matchLabels": SERVERS}, "ingress": [{"from": allowed}]},
        }
    )
    eventually(reached, lambda found: found == [True, True, True, True, True, True, False, False])
    both("delete", "networkpolicy", "some")
    eventually(reached, all)


def test_a_restart_keeps_it(both: Net) -> None:
    before = {name: both.object("service", name)["spec"] for name in ("six", "two")}
    both.cluster.transom("down", "--name", both.cluster.name)
    again = both.cluster.transom("up", "--name", both.cluster.name)
    assert "windows-1" in again.stderr and "(WIN-NET-015)" in again.stderr, "reported each time"
    assert {name: both.object("service", name)["spec"] for name in before} == before
    both.ready()
    eventually(
        lambda: both.fetch(
            "lin-client", *(f"{place}/hostname" for place in six(both, "lin", "core"))
        ),
        all,
    )


@pytest.mark.windows("WIN-NET-013", "WIN-NET-016", "DS-03", "IP6-01")
@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        ({"network": {"mode": "overlay"}}, ["--dual-stack"], "WIN-NET-013"),
        ({"podCIDR": "fd00:1::/56", "serviceCIDR": "fd00:2::/112"}, [], "WIN-NET-016"),
    ],
)
def test_what_is_refused(
    content: dict[str, Any],
    options: list[str],
    says: str,
    tmp_path: Path,
    isolated_environment: dict[str, str],
) -> None:
    from tests.conftest import Cluster

    file = tmp_path / "cluster.yaml"
    file.write_text(json.dumps({"apiVersion": "transom.dev/v1", "kind": "Cluster", **content}))
    done = Cluster("no", tmp_path, isolated_environment).transom(
        "up", "--name", "no", "--config", str(file), *options, check=False
    )
    assert done.returncode == 1 and says in done.stderr, done.stderr
