"""Services of every type, from pods of each operating system to pods of each, and from nodes and
outside.
"""

from __future__ import annotations

import pytest

from .conftest import Net, at_once, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

SERVERS = {"linux": {"lin-0", "lin-1"}, "windows": {"win-1", "win-2"}}
NODES = {
    "control-plane": "172.20.0.2",
    "linux-1": "172.20.0.3",
    "windows-1": "172.20.0.4",
    "windows-2": "172.20.0.5",
}


@pytest.fixture(scope="module")
def balanced(net: Net) -> dict[str, str]:
    """The address of each service's load balancer."""

    def found() -> dict[str, str]:
        services = {name: net.object("service", name) for name in SERVERS}
        ingress = {name: s["status"]["loadBalancer"].get("ingress") for name, s in services.items()}
        return {name: row[0]["ip"] for name, row in ingress.items() if row}

    return eventually(found, lambda addresses: len(addresses) == 2)


@pytest.mark.parametrize("client", ["lin-c", "win-c"])
@pytest.mark.parametrize("system", ["linux", "windows"])
def test_every_type_from_pods(net: Net, balanced: dict[str, str], client: str, system: str) -> None:
    number = {"linux": 30080, "windows": 30081}[system]
    external = {"linux": "198.51.100.1", "windows": "198.51.100.2"}[system]
    cluster_ip = net.object("service", system)["spec"]["clusterIP"]
    headless, alias = {
        "linux": ("headless-linux", "alias-linux"),
        "windows": ("headless", "alias"),
    }[system]
    ways = [
        cluster_ip,
        system,
        f"{system}.default.svc.cluster.local",
        external,
        balanced[system],
        alias,
        f"{headless}:8080",
        *(f"{address}:{number}" for address in NODES.values()),
    ]
    answers = net.fetch(client, *(f"{way}/hostname" for way in ways))
    assert {
        way: answer
        for way, answer in zip(ways, answers, strict=True)
        if answer not in SERVERS[system]
    } == {}
    both = net.fetch(client, *[f"{cluster_ip}/hostname"] * 24)
    assert set(both) == SERVERS[system]


@pytest.mark.parametrize("client", ["lin-1", "win-1"])
def test_datagrams(net: Net, client: str) -> None:
    for system, port in (("linux", 30082), ("windows", 30083)):
        for target in (f"{system}-udp:81", *(f"{address}:{port}" for address in NODES.values())):
            assert net.datagram(client, target) in SERVERS[system], target


def test_from_a_linux_node_itself(net: Net, balanced: dict[str, str]) -> None:
    """Its own node ports and service addresses are not an exception."""
    for system, number in (("linux", 30080), ("windows", 30081)):
        ways = [
            f"{system}.default.svc.cluster.local",
            balanced[system],
            *(f"{address}:{number}" for address in NODES.values()),
        ]
        answers = net.fetch("host-1", *(f"{way}/hostname" for way in ways))
        assert {
            way: answer
            for way, answer in zip(ways, answers, strict=True)
            if answer not in SERVERS[system]
        } == {}


@pytest.mark.windows("WIN-NET-002", "WIN-NET-003")
def test_from_a_windows_node_itself(net: Net) -> None:
    """Rules are on the switch ports of pods and on the way in, so the node meets none."""
    cluster, own, other, linux = at_once(
        lambda: net.trace("windows-1", "svc/linux"),
        lambda: net.trace("windows-1", "172.20.0.4:30080"),
        lambda: net.trace("windows-1", "172.20.0.5:30081"),
        lambda: net.trace("windows-1", "172.20.0.3:30081"),
    )
    assert (cluster["verdict"], cluster["limit"]) == ("dropped", "WIN-NET-002")
    assert own["verdict"] != "delivered" and own["limit"] == "WIN-NET-003"
    assert (other["verdict"], linux["verdict"]) == ("delivered", "delivered")


def test_from_outside(net: Net, balanced: dict[str, str]) -> None:
    targets = [f"{address}:{port}" for address in NODES.values() for port in (30080, 30081)]
    targets += ["svc/linux", f"{balanced['windows']}:80", "198.51.100.2:80"]
    traced = at_once(*(lambda to=to: (to, net.trace("external", to)["verdict"]) for to in targets))
    assert [(to, verdict) for to, verdict in traced if verdict != "delivered"] == []
    # Addresses of pods and of services mean nothing there.
    for target in (net.ip("win-1"), net.object("service", "windows")["spec"]["clusterIP"]):
        assert net.trace("external", f"{target}:80")["verdict"] == "dropped"


@pytest.mark.parametrize(("client", "directory"), [("lin-c", "/var/run"), ("win-c", "C:/var/run")])
def test_the_api_server_is_a_service(net: Net, client: str, directory: str) -> None:
    secrets = f"{directory}/secrets/kubernetes.io/serviceaccount"
    token = net.exec(
        client,
        *(["cat"] if client == "lin-c" else ["powershell", "Get-Content"]),
        f"{secrets}/token",
    ).strip()
    found = net.exec(
        client,
        "curl",
        "-s",
        "-m",
        "5",
        "--cacert",
        f"{secrets}/ca.crt",
        "-H",
        f"Authorization: Bearer {token}",
        "https://kubernetes.default.svc.cluster.local/api/v1/namespaces/default/pods/lin-0",
        "https://kubernetes/version",
    )
    assert (
        '"message": "pods \\"lin-0\\" is forbidden: User '
        '\\"system:serviceaccount:default:default\\"'
    ) in found
    assert '"gitVersion": "v1.20.15"' in found
