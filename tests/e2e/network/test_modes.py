"""The network modes of clusters with Windows nodes, each with its own cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from tests.conftest import running_cluster

from .conftest import NODES, Net, at_once, eventually, made, pod, service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


class Mode(NamedTuple):
    network: str  # of the cluster file
    kind: str  # of the HNS network that pods are in
    name: str
    pods: str = "10.244."  # what addresses of Windows pods begin with


MODES = {
    "win-bridge": Mode("{mode: l2bridge, plugin: win-bridge}", "L2Bridge", "cbr0"),
    "overlay": Mode("{mode: overlay}", "Overlay", "vxlan0"),
    "azure-bridge": Mode("{mode: l2bridge, plugin: azure}", "L2Bridge", "azure", "172.20."),
    "azure-tunnel": Mode("{mode: l2tunnel, plugin: azure}", "L2Tunnel", "azure", "172.20."),
    "ovn": Mode("{mode: transparent, plugin: ovn}", "Transparent", "external"),
    "userspace": Mode("{proxyMode: userspace}", "L2Bridge", "cbr0"),
}
PODS = {"lin-0": "control-plane", "lin-1": "linux-1", "win-1": "windows-1", "win-2": "windows-2"}


@pytest.fixture(scope="module", params=MODES)
def mode(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Net, Mode]]:
    wanted = MODES[request.param]
    with made(tmp_path_factory.mktemp(request.param), wanted.network) as net:
        systems = {"lin": {"os": "linux"}, "win": {"os": "windows"}}
        net.apply(
            *(pod(name, node, systems[name[:3]]) for name, node in PODS.items()),
            pod("client", "windows-1"),
            service("to-lin", systems["lin"], type="NodePort"),
            service("to-win", systems["win"], type="NodePort"),
        )
        net.ready()
        yield net, wanted


@pytest.mark.windows("NET-13")
def test_pods_and_services(mode: tuple[Net, Mode]) -> None:
    net, wanted = mode
    pods = {name: net.object("pod", name)["status"]["podIP"] for name in (*PODS, "client")}
    assert all(pods[name].startswith(wanted.pods) for name in ("win-1", "win-2", "client"))
    assert (wanted.kind, wanted.name) in [
        (n.get("Type"), n["Name"]) for n in net.hns("windows-1", "networks")
    ]
    ports = {
        name: net.object("service", name)["spec"]["ports"][0]["nodePort"]
        for name in ("to-lin", "to-win")
    }
    urls = [f"{pods[name]}:8080" for name in PODS]
    urls += ["to-lin.default.svc.cluster.local", "to-win"]
    urls += [f"172.20.0.{number}:{ports['to-lin']}" for number in (2, 3, 5)]

    def unanswered() -> list[tuple[str, str]]:
        """On overlays kube-proxy waits for ten seconds before it begins."""
        clients = ("lin-0", "client", "win-2")
        rows = at_once(
            *(
                lambda client=client: net.fetch(client, *(f"{url}/hostname" for url in urls))
                for client in clients
            )
        )
        return [
            (client, url)
            for client, row in zip(clients, rows, strict=True)
            for url, answer in zip(urls, row, strict=True)
            if not answer
        ]

    eventually(unanswered, lambda missing: not missing)
    assert (
        net(
            "get",
            "events",
            "--field-selector=type=Warning",
            "--output=jsonpath={.items[*].message}",
        )
        == ""
    )
    seen: dict[str, Any] = {url: net.trace("external", url)["verdict"] for url in urls[-3:]}
    assert seen == dict.fromkeys(urls[-3:], "delivered")


def test_addresses_are_given_back(mode: tuple[Net, Mode]) -> None:
    net, _ = mode
    before = {node: len(net.hns(node, "endpoints")) for node in ("windows-1", "windows-2")}
    net.apply(pod("brief-1", "windows-1"), pod("brief-2", "windows-2"))
    net.ready("pod/brief-1", "pod/brief-2")
    assert all(len(net.hns(node, "endpoints")) > before[node] for node in before)
    net("delete", "pod", "brief-1", "brief-2")
    eventually(
        lambda: {node: len(net.hns(node, "endpoints")) for node in before},
        lambda found: found == before,
    )


@pytest.mark.windows("WIN-NET-006", "CNI-03")
def test_nodes_and_pods_of_an_overlay(mode: tuple[Net, Mode]) -> None:
    """A node reaches its own pods at most."""
    net, wanted = mode
    own, other = at_once(
        lambda: net.trace("windows-1", "win-1"), lambda: net.trace("windows-1", "win-2")
    )
    assert own["verdict"] == "delivered"
    if wanted.kind == "Overlay":
        assert (other["verdict"], other["limit"]) == ("dropped", "WIN-NET-006")
    else:
        assert other["verdict"] == "delivered"


@pytest.mark.windows("WIN-NET-008", "WIN-NET-009", "WIN-NET-012")
@pytest.mark.parametrize(
    ("network", "words"),
    [
        ("{mode: overlay, backend: {VNI: 1}}", "WIN-NET-008"),
        ("{mode: overlay, backend: {Port: 8472}}", "WIN-NET-009"),
        ("{mode: nat}", "WIN-NET-012"),
        ("{mode: overlay, plugin: win-bridge}", "SUP-NET"),
        ("{mode: l2bridge, plugin: nat}", "SUP-NET"),
    ],
)
def test_networks_that_cannot_be(tmp_path: Any, network: str, words: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(NODES + f"network: {network}\n")
    with (
        pytest.raises(AssertionError, match=words),
        running_cluster(tmp_path, "--config", str(file)),
    ):
        pass
