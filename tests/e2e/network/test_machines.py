"""The network after nodes, or the whole cluster, are switched off and on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client, config

from .conftest import Net, at_once, crowd, eventually, made, pod, service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

APP = {"app": "s"}
MANY = 200  # services


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    """A cluster that no other test uses, so that it can be switched off."""
    with made(tmp_path_factory.mktemp("machines")) as net:
        net.apply(
            crowd("lin", "linux-1", 2, APP),
            crowd("win", "windows-1", 2, APP),
            crowd("core", "windows-2", 2, APP),
            service("s", APP, type="NodePort"),
            pod("lin-client", "linux-1"),
            pod("win-client", "windows-1"),
            pod("far", "control-plane"),
        )
        net.rolled_out("lin", "win", "core")
        net.ready("pod/lin-client", "pod/win-client", "pod/far")
        eventually(lambda: answers(net), lambda found: all(found))
        yield net


def answers(net: Net, *clients: str) -> list[str]:
    rows = at_once(
        *(
            lambda client=client: net.fetch(client, *["s/hostname"] * 12)
            for client in clients or ("lin-client", "win-client", "far")
        )
    )
    return [answer for row in rows for answer in row]


def addresses(net: Net) -> list[str]:
    return [p["status"]["podIP"] for p in net.object("pods")["items"] if p["status"].get("podIP")]


def transom(net: Net, *words: str) -> None:
    done = net.cluster.transom(*words, "--name", net.cluster.name, check=False)
    assert done.returncode == 0, done.stderr


def ready(net: Net, node: str) -> None:
    net("wait", "--for=condition=Ready", f"node/{node}", "--timeout=30s")


@pytest.mark.parametrize("node", ["linux-1", "windows-1", "windows-2"])
def test_a_node_reboots(own: Net, node: str) -> None:
    """Its pods have networks again, nothing is left of the former ones, and services lead to
    them.
    """
    pods = {
        p["metadata"]["name"] for p in own.object("pods")["items"] if p["spec"]["nodeName"] == node
    }
    before = {
        p["metadata"]["name"]: p["status"]["containerStatuses"][0]["restartCount"]
        for p in own.object("pods")["items"]
    }
    transom(own, "node", "reboot", node)

    def back() -> bool:
        found = [p for p in own.object("pods")["items"] if p["metadata"]["name"] in pods]
        return all(
            p["status"]["containerStatuses"][0]["restartCount"] > before[p["metadata"]["name"]]
            and p["status"]["containerStatuses"][0]["ready"]
            for p in found
        )

    eventually(back)
    ready(own, node)
    eventually(
        lambda: answers(own),
        lambda found: all(found) and len({name.partition("-")[0] for name in found}) == 3,
    )
    given = addresses(own)
    assert len(given) == len(set(given))
    if node.startswith("windows"):
        held = [
            e
            for e in own.hns(node, "endpoints")
            if not e.get("IsRemoteEndpoint") and not e["Name"].endswith("_ep")
        ]
        ours = {
            p["status"]["podIP"]
            for p in own.object("pods")["items"]
            if p["spec"]["nodeName"] == node
        }
        assert sorted(e["IPAddress"] for e in held) == sorted(ours)


def test_a_node_is_off_for_a_while(own: Net) -> None:
    transom(own, "node", "stop", "windows-2")
    # What is off does not answer; what leads there is the business of controllers, which wait.
    target = f"{next(p['status']['podIP'] for p in own.object('pods')['items'] if p['spec']['nodeName'] == 'windows-2')}:8080"
    assert own.connect("lin-client", target) not in ("", "REFUSED")
    transom(own, "node", "start", "windows-2")
    ready(own, "windows-2")
    eventually(
        lambda: answers(own),
        lambda found: all(found) and any(name.startswith("core-") for name in found),
    )


def test_a_service_restart_that_loses_networks(own: Net) -> None:
    """Pods are cut off, and new ones cannot be made, until the network is created again: a
    reboot does.
    """
    for words in (
        ("fault", "lose-networks-on-restart"),
        ("restart",),
        ("fault", "lose-networks-on-restart", "off"),
    ):
        transom(own, "hns", "windows-1", *words)
    assert own.hns("windows-1", "networks") == []
    assert own.fetch("win-client", "s.default.svc.cluster.local/hostname") == [""]
    own.apply(pod("unlucky", "windows-1"))
    recorded = "--output=jsonpath={.items[*].message}"
    eventually(
        lambda: own("get", "events", "--field-selector=involvedObject.name=unlucky", recorded),
        lambda messages: "Network cbr0 not found" in messages,
    )
    transom(own, "node", "reboot", "windows-1")
    own.ready("pod/unlucky")
    eventually(lambda: own.fetch("win-client", "s/hostname"), all)
    own("delete", "pod", "unlucky")


def test_a_node_joins_and_leaves(own: Net) -> None:
    added = "guest"
    transom(own, "node", "add", added, "--os", "windows")
    eventually(lambda: own.kubectl("get", "node", added, check=False).returncode == 0)
    ready(own, added)
    own.apply(pod("new", added))
    own.ready("pod/new")
    address = own.ip("new")
    assert own.fetch("new", "s/hostname")[0]
    for name in ("lin-client", "win-client", "far"):
        assert own.fetch(name, f"{address}:8080/hostname") == ["new"]
    own("delete", "pod", "new")
    transom(own, "node", "delete", added)
    assert own.connect("lin-client", f"{address}:8080") not in ("", "REFUSED")


def test_the_cluster_is_switched_off_and_on(own: Net) -> None:
    former = own.object("service", "s")["spec"]
    transom(own, "down")
    transom(own, "up")
    eventually(
        lambda: answers(own),
        lambda found: all(found) and len({name.partition("-")[0] for name in found}) == 3,
    )
    assert own.object("service", "s")["spec"] == former
    given = addresses(own)
    assert len(given) == len(set(given))


def test_many_services(own: Net) -> None:
    own("create", "namespace", "many")
    own.at("many").apply(pod("server", "linux-1", APP))
    # kubectl allows itself few requests
    core = client.CoreV1Api(config.new_client_from_config(str(own.cluster.kubeconfig)))
    for i in range(MANY):
        core.create_namespaced_service("many", service(f"s-{i}", APP))
    last = [f"s-{i}.many.svc.cluster.local/hostname" for i in (0, MANY // 2, MANY - 1)]
    for name in ("lin-client", "win-client"):
        eventually(lambda name=name: own.fetch(name, *last), lambda found: all(found))
    assert len(own.hns("windows-1", "loadbalancers")) > MANY
    own("delete", "namespace", "many", "--wait=false")
