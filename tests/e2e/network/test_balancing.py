"""How many endpoints a service may have, and how connections are balanced: on Linux nodes, and on
two Windows builds.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .conftest import Net, Object, at_once, crowd, eventually, pod, service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

MOST = 64  # destinations of a load balancer on Windows
MANY = {"app": "many"}


def _sticky(seconds: int) -> Object:
    return {
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}},
    }


@pytest.fixture(scope="module")
def many(net: Net) -> Iterator[Net]:
    """As many pods as a service may have, behind services with affinity and without; they serve
    from both systems.
    """
    net("create", "namespace", "crowd")
    found = net.at("crowd")
    found.apply(
        crowd("lin", "linux-1", MOST - 4, MANY),
        crowd("win", "windows-1", 4, MANY),
        pod("client", "windows-2"),
        service("many", MANY),
        service("sticky", MANY, **_sticky(1)),
        service("ever", MANY, **_sticky(600)),
    )
    found.rolled_out("lin", "win")
    found.ready("pod/client")
    yield found
    net("delete", "namespace", "crowd", "--wait=false")


@pytest.mark.windows("WIN-SVC-001", "LNET-08")
def test_a_65th_backend_takes_the_service_away_on_windows(net: Net, many: Net) -> None:
    clients = ("lin-c", "win-c")
    url = "many.crowd.svc.cluster.local/hostname"
    address = many.object("service", "many")["spec"]["clusterIP"]
    assert all(all(net.fetch(client, *[url] * 3)) for client in clients)

    def balancers(node: str) -> list[int]:
        """How many destinations the service has there."""
        found = net.hns(node, "loadbalancers")
        return [
            len(lb["HostComputeEndpoints"]) for lb in found if address in lb.get("FrontendVIPs", ())
        ]

    assert balancers("windows-1") == balancers("windows-2") == [MOST]
    many("scale", "deployment/win", "--replicas=5")
    eventually(lambda: balancers("windows-1"), lambda found: found == [])
    linux, windows, traced = at_once(
        lambda: net.fetch("lin-c", *[url] * 3),
        lambda: net.fetch("win-c", url),
        lambda: net.trace("win-c", f"{address}:80"),
    )
    assert all(linux) and windows == [""]
    assert (traced["verdict"], traced["limit"]) == ("dropped", "WIN-SVC-001")
    many("scale", "deployment/win", "--replicas=4")
    eventually(lambda: balancers("windows-1"), lambda found: found == [MOST])
    assert all(net.fetch("win-c", *[url] * 3))


def _served(many: Net, net: Net, client: str, name: str) -> list[str]:
    space = many if client == "client" else net
    return space.fetch(client, *[f"{name}.crowd.svc.cluster.local/hostname"] * 6)


@pytest.mark.windows("WIN-SVC-002", "LB-02")
def test_affinity_by_system_and_build(net: Net, many: Net) -> None:
    build = {"lin-c": "linux", "win-c": "17763", "client": "20348"}
    found = {build[client]: _served(many, net, client, "ever") for client in build}
    assert all(all(names) for names in found.values())
    assert {kind: len(set(names)) == 1 for kind, names in found.items()} == {
        "linux": True,
        "17763": False,
        "20348": True,
    }


@pytest.mark.windows("WIN-SVC-004", "LNET-20")
def test_the_time_of_affinity(net: Net, many: Net) -> None:
    """It runs out on Linux; Windows knows none."""
    url = "http://sticky.crowd.svc.cluster.local/hostname"
    ask = f"curl -s -w '\\n' {url}"

    def on_linux() -> list[str]:
        return net.exec(
            "lin-c",
            "sh",
            "-c",
            f"{ask}; {ask}; sleep 1.2; {ask}; sleep 1.2; {ask}; sleep 1.2; {ask}",
        ).split()

    def on_windows() -> list[str]:
        again = f"Start-Sleep -Milliseconds 1200; curl.exe -s {url}; ''"
        return many.exec(
            "client", "powershell", "-Command", f"curl.exe -s {url}; ''; {again}; {again}"
        ).split()

    linux, windows = at_once(on_linux, on_windows)
    assert len(linux) == 5 and linux[0] == linux[1] and len(set(linux)) > 1
    assert len(windows) == 3 and len(set(windows)) == 1
