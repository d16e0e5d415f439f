"""Addresses of both families, which Windows has from build 19041 on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .conftest import NODES, Net, eventually, made, pod, service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

GATE = "featureGates: {IPv6DualStack: true}\n"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    with made(tmp_path_factory.mktemp("dual"), "{dualStack: true}", NODES + GATE) as net:
        servers = {"app": "s"}
        net.apply(
            pod("lin", "linux-1", servers), pod("core", "windows-2", servers), pod("old", "windows-1", servers),
            pod("lin-client", "control-plane"), pod("core-client", "windows-2"),
            service("four", servers), service("six", servers, ipFamilies=["IPv6"]),
            service("two", servers, ipFamilyPolicy="RequireDualStack"),
        )  # fmt: skip
        net.ready()
        yield net


@pytest.mark.windows("WIN-NET-015", "DS-01", "DS-02")
def test_addresses_of_pods_and_services(both: Net) -> None:
    pods = {name: both.object("pod", name)["status"]["podIPs"] for name in ("lin", "core", "old")}
    families = {name: [":" in one["ip"] for one in given] for name, given in pods.items()}
    assert families == {"lin": [False, True], "core": [False, True], "old": [False]}
    ips = {name: both.object("service", name)["spec"]["clusterIPs"] for name in ("four", "six", "two")}
    assert [[":" in ip for ip in ips[name]] for name in ips] == [[False], [True], [False, True]]


@pytest.mark.windows("WIN-SVC-016")
def test_services_of_each_family(both: Net) -> None:
    six, two = both.object("service", "six")["spec"]["clusterIP"], both.object("service", "two")["spec"]["clusterIPs"]

    def who(client: str, place: str) -> set[str]:
        return set(both.fetch(client, *[f"{place}/hostname"] * 18))

    for client in ("lin-client", "core-client"):
        eventually(lambda client=client: who(client, "four"), lambda found: found == {"lin", "core", "old"})
        eventually(lambda client=client: who(client, f"[{six}]"), lambda found: found == {"lin", "core"})
        eventually(lambda client=client: both.fetch(client, "six/hostname", f"{two[0]}/hostname"), all)
    assert both.fetch("lin-client", f"[{two[1]}]/hostname")[0] in ("lin", "core")
    # On Windows kube-proxy reads Endpoints, which have one family.
    assert both.fetch("core-client", f"[{two[1]}]/hostname") == [""]
    assert both.trace("core-client", f"[{two[1]}]:80")["limit"] == "WIN-SVC-016"
