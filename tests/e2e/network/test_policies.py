"""NetworkPolicy, for pods of both operating systems and between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Net, Object, at_once, eventually, pod, service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SERVERS = ("lin", "win", "core")  # Linux, and two builds of Windows with their own runtimes
CLIENTS = ("lin-friend", "win-friend", "lin-stranger", "win-stranger")
SERVER_PLACES: list[str] = []  # their addresses, once they have some
ON = {"lin": "linux-1", "win": "windows-1", "core": "windows-2"}


def policy(name: str, selector: dict[str, str], **spec: Any) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {"podSelector": {"matchLabels": selector}, **spec},
    }


def labels(**matched: str) -> Object:
    return {"matchLabels": matched}


@pytest.fixture(scope="module")
def yard(net: Net) -> Iterator[Net]:
    """Servers and clients in one namespace, and clients in another one that is labelled."""
    net("create", "namespace", "yard")
    net("create", "namespace", "street")
    net("label", "namespace", "street", "place=street")
    yard, street = net.at("yard"), net.at("street")
    yard.apply(
        *(pod(name, node, {"app": "server", "name": name}) for name, node in ON.items()),
        *(
            pod(name, ON[name.partition("-")[0]], {"role": name.partition("-")[2]})
            for name in CLIENTS
        ),
        *(service(f"to-{name}", {"name": name}) for name in SERVERS),
    )
    street.apply(
        pod("lin-friend", "control-plane", {"role": "friend"}),
        pod("win-friend", "windows-1", {"role": "friend"}),
    )
    yard.ready()
    street.ready()
    SERVER_PLACES[:] = [f"{yard.ip(name)}:8080" for name in SERVERS]
    eventually(lambda: reached(yard, services=True), lambda found: all(found.values()))
    yield yard
    for name in ("yard", "street"):
        net("delete", "namespace", name, "--wait=false")


def reached(yard: Net, *, street: bool = False, services: bool = False) -> dict[str, bool]:
    """Which clients reach which servers, by their addresses or through services."""
    space = yard.at("street") if street else yard
    clients = ("lin-friend", "win-friend") if street else CLIENTS
    places = (
        [f"to-{server}.yard.svc.cluster.local" for server in SERVERS] if services else SERVER_PLACES
    )
    urls = [f"{place}/hostname" for place in places]
    rows = at_once(
        *(lambda client=client: space.fetch(client, *urls, patience=0.5) for client in clients)
    )
    return {
        f"{client} {server}": bool(answer)
        for client, row in zip(clients, rows, strict=True)
        for server, answer in zip(SERVERS, row, strict=True)
    }


def only(found: dict[str, bool], *words: str) -> bool:
    """Those connections work that have one of these words, and no others."""
    return all(works == any(word in name for word in words) for name, works in found.items())


@pytest.fixture
def clean(yard: Net) -> Iterator[Net]:
    yield yard
    yard("delete", "networkpolicy", "--all")


def test_deny_by_default_and_allow_by_label(clean: Net) -> None:
    clean.apply(policy("deny", {"app": "server"}, policyTypes=["Ingress"]))
    eventually(lambda: reached(clean), lambda found: only(found))
    assert clean.connect("win-stranger", f"{clean.ip('lin')}:8080") == "TIMEOUT"
    clean.apply(
        policy(
            "friends",
            {"app": "server"},
            ingress=[{"from": [{"podSelector": labels(role="friend")}]}],
        )
    )
    eventually(lambda: reached(clean), lambda found: only(found, "friend"))
    assert only(reached(clean, street=True))  # a friend of another namespace is none
    # Without direct server return services show the address of a Windows client's node, and that is
    # selected by no policy.
    assert only(reached(clean, services=True), "lin-friend", "win-friend win")
    # Kubelets reach their own pods whatever policies say: probes must work.
    assert clean.object("pod", "win")["status"]["containerStatuses"][0]["ready"]


def test_by_namespace_and_port(clean: Net) -> None:
    clean.apply(
        policy(
            "street",
            {"app": "server"},
            ingress=[
                {
                    "from": [
                        {
                            "namespaceSelector": labels(place="street"),
                            "podSelector": labels(role="friend"),
                        }
                    ],
                    "ports": [{"port": "http", "protocol": "TCP"}],
                }
            ],
        )
    )
    eventually(lambda: reached(clean), lambda found: only(found))
    eventually(lambda: reached(clean, street=True), lambda found: all(found.values()))
    clean.apply(
        policy(
            "street", {"app": "server"}, ingress=[{"ports": [{"port": 8081, "protocol": "TCP"}]}]
        )
    )
    eventually(lambda: reached(clean, street=True), lambda found: not any(found.values()))


def test_by_addresses(clean: Net) -> None:
    friend = clean.ip("lin-friend")
    clean.apply(
        policy(
            "block",
            {"app": "server"},
            ingress=[
                {"from": [{"ipBlock": {"cidr": "10.244.0.0/16", "except": [f"{friend}/32"]}}]},
            ],
        )
    )
    eventually(lambda: reached(clean), lambda found: only(found, "win-friend", "stranger"))


def test_what_pods_send(clean: Net) -> None:
    """Nothing, then names and one server: a policy must let DNS out, or names do not work."""
    everyone = {"matchExpressions": [{"key": "role", "operator": "Exists"}]}
    deny = {"podSelector": everyone, "policyTypes": ["Egress"]}
    clean.apply({**policy("out", {}), "spec": deny})
    eventually(lambda: reached(clean), lambda found: only(found))
    # Only the server: by its address, but not by its name.
    server = {"to": [{"podSelector": labels(name="win")}], "ports": [{"port": 8080}]}
    clean.apply({**policy("out", {}), "spec": {**deny, "egress": [server]}})
    eventually(lambda: reached(clean), lambda found: only(found, " win"))
    assert only(reached(clean, services=True))
    names = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    clean.apply({**policy("out", {}), "spec": {**deny, "egress": [server, names]}})
    eventually(lambda: reached(clean, services=True), lambda found: only(found, " win"))
    assert all(reached(clean, street=True).values())  # not stated anything about them


def test_clients_of_a_node_port_are_filtered_as_the_docs_describe(clean: Net) -> None:
    """On the pod's own node: by their address on Linux; not at all on Windows, unless Local."""
    own = {"lin": ("linux-1", 31081, 31082), "win": ("windows-1", 31083, 31084)}
    for name, (node, cluster, local) in own.items():
        selector = {"port-test": name}
        clean.apply(
            pod(f"np-{name}", node, selector),
            *(
                service(
                    f"np-{name}-{policy_name.lower()}",
                    selector,
                    type="NodePort",
                    externalTrafficPolicy=policy_name,
                    ports=[{"port": 80, "targetPort": 8080, "nodePort": port}],
                )
                for policy_name, port in (("Cluster", cluster), ("Local", local))
            ),
            policy(f"np-{name}", selector, ingress=[{"from": [{"podSelector": {}}]}]),
        )
    clean.ready()

    def dropped() -> list[bool]:
        return [
            clean.trace("external", f"node/{node}:{port}").get("reason") == "policy"
            for node, *ports in own.values()
            for port in ports
        ]

    eventually(dropped, lambda found: found == [True, True, False, True])
