"""The source address that servers see: that of the client or of a hop; and paths to a pod through
its node's address.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Net, at_once, eventually, made, pod, service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

OUTSIDE = "203.0.113.10"
NODES = {
    "control-plane": "172.20.0.2",
    "linux-1": "172.20.0.3",
    "windows-1": "172.20.0.4",
    "windows-2": "172.20.0.5",
}


def from_this_machine(net: Net, name: str) -> str:
    """What a service says to a client outside, by way of the relay of its node port."""

    def relay() -> str:
        report = json.loads(
            net.cluster.transom("status", "--name", net.cluster.name, "--output", "json").stdout
        )
        return next(
            (
                way["outside"]
                for way in report["relays"]
                if way["service"] == f"{net.namespace}/{name}"
                and way["inside"].startswith("nodes:")
            ),
            "",
        )

    with urllib.request.urlopen(f"http://{eventually(relay)}/clientip", timeout=10) as answer:
        return str(answer.read().decode()).rpartition(":")[0]


def test_pods_see_pods(net: Net) -> None:
    """Without a service, nothing is rewritten between pods."""
    targets = {name: f"{net.ip(name)}:8080" for name in ("lin-0", "lin-1", "win-1", "win-2")}
    for client in ("lin-c", "win-c", "lin-1", "win-1"):
        assert set(net.clients(client, *targets.values())) == {net.ip(client)}
    assert set(net.clients("host-1", *targets.values())) <= {
        NODES["linux-1"],
        net.ip("lin-1").rpartition(".")[0] + ".1",
    }


def test_through_a_service_without_direct_server_return(net: Net) -> None:
    """Linux keeps the client's address. Windows puts its node's in front of what leaves the
    node.
    """
    for system in ("linux", "windows"):
        assert set(net.clients("lin-c", *[system] * 8)) == {net.ip("lin-c")}
    assert set(net.clients("win-c", *["linux"] * 8)) == {NODES["windows-1"]}
    assert set(net.clients("win-c", *["windows"] * 24)) == {NODES["windows-1"], net.ip("win-c")}


def test_a_pod_that_reaches_itself_through_its_service(space: Net) -> None:
    space.apply(
        *(
            pod(name, node, {"app": name})
            for name, node in (("lin", "linux-1"), ("win", "windows-1"))
        ),
        service("to-lin", {"app": "lin"}),
        service("to-win", {"app": "win"}),
    )
    space.ready()
    for name in ("lin", "win"):
        eventually(
            lambda name=name: space.fetch(name, f"to-{name}/hostname"),
            lambda answers, name=name: answers == [name],
        )


@pytest.mark.parametrize(
    ("node", "other"), [("linux-1", "control-plane"), ("windows-1", "windows-2")]
)
def test_the_external_policy_local_keeps_clients(space: Net, node: str, other: str) -> None:
    space.apply(
        pod("server", node, {"app": "s"}),
        pod("near", node),
        pod("far", other),
        service("local", {"app": "s"}, type="LoadBalancer", externalTrafficPolicy="Local"),
        service("any", {"app": "s"}, type="NodePort"),
    )
    space.ready()
    # Inside the cluster the policy has no effect.
    eventually(
        lambda: (
            all(space.fetch("near", "local/hostname"))
            and all(space.fetch("far", "local/hostname", "any/hostname"))
        )
    )
    ports = {
        name: space.object("service", name)["spec"]["ports"][0]["nodePort"]
        for name in ("local", "any")
    }
    at = {
        f"{name} by {via}": f"{NODES[via]}:{ports[name]}" for name in ports for via in (node, other)
    }
    traced = dict(
        zip(
            at,
            at_once(*(lambda to=to: space.trace("external", to) for to in at.values())),
            strict=True,
        )
    )
    # there is a rule for it, or there is none
    nothing = "refused" if other.startswith("windows") else "dropped"
    assert {name: found["verdict"] for name, found in traced.items()} == {
        f"local by {node}": "delivered",
        f"local by {other}": nothing,
        f"any by {node}": "delivered",
        f"any by {other}": "delivered",
    }
    assert traced[f"local by {node}"]["seen"]["source"] == OUTSIDE
    assert OUTSIDE not in (
        traced[f"any by {node}"]["seen"]["source"],
        traced[f"any by {other}"]["seen"]["source"],
    )
    assert from_this_machine(space, "local") == OUTSIDE


def test_the_health_of_a_local_service(net: Net, space: Net) -> None:
    """Balancers in front ask every node whether it has a pod of the service."""
    space.apply(
        pod("lin", "linux-1", {"app": "s"}),
        pod("win", "windows-1", {"app": "s"}),
        service("local", {"app": "s"}, type="LoadBalancer", externalTrafficPolicy="Local"),
    )
    space.ready()
    number = space.object("service", "local")["spec"]["healthCheckNodePort"]

    def answers() -> dict[str, Any]:
        urls = [f"http://{address}:{number}/" for address in NODES.values()]
        printed = net.exec("lin-c", "curl", "-s", "-m", "2", "-w", "|%{http_code}\\n", *urls)
        rows = [
            line.rpartition("|")
            for line in printed.replace("\n\t", "").replace("\n}", "}").splitlines()
            if "|" in line
        ]
        return {node: code for node, (_, _, code) in zip(NODES, rows, strict=False)}

    wanted = {"control-plane": "503", "linux-1": "200", "windows-1": "200", "windows-2": "503"}
    eventually(answers, lambda found: found == wanted)


@pytest.mark.parametrize("node", ["linux-1", "windows-1", "windows-2"])
def test_ports_of_hosts(net: Net, space: Net, node: str) -> None:
    ports = [{"containerPort": 8080, "hostPort": 9090}]
    space.apply(pod("server", node, container={"ports": ports}))
    space.ready()
    # mappings are on the way into the node
    own = {"windows-1": "win-1", "windows-2": "win-2"}.get(node)
    clients = [name for name in ("lin-0", "lin-c", "win-1", "win-2", "host-1") if name != own]
    answers = {client: net.fetch(client, f"{NODES[node]}:9090/hostname")[0] for client in clients}
    assert answers == dict.fromkeys(clients, "server")
    assert net.trace("external", f"{NODES[node]}:9090")["verdict"] == "delivered"
    space("delete", "pod", "server")
    assert net.fetch("lin-0", f"{NODES[node]}:9090/hostname") == [""]


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    folder: Path = tmp_path_factory.mktemp("dsr")
    with made(folder, "{enableDSR: true}") as found:
        found.apply(
            pod("a", "windows-1", {"app": "s"}),
            pod("b", "windows-2", {"app": "s"}),
            pod("c", "linux-1", {"app": "s"}),
            pod("client", "windows-1"),
            service("s", {"app": "s"}),
        )
        found.ready()
        yield found


@pytest.mark.windows("LB-03")
def test_with_direct_server_return_servers_see_the_pod(direct: Net) -> None:
    eventually(
        lambda: direct.fetch("client", *["s/hostname"] * 24),
        lambda answers: set(answers) == {"a", "b", "c"},
    )
    assert set(direct.clients("client", *["s"] * 16)) == {direct.ip("client")}
    balancers = direct.hns("windows-1", "loadbalancers")
    assert {lb["Flags"] & 1 for lb in balancers} == {1}
