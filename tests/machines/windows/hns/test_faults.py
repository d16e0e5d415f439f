from __future__ import annotations

import pytest
from tests.machines.windows.hns.service import (
    balancer,
    endpoint,
    made_endpoint,
    made_network,
    refused,
    remote,
    service,
)

from transom.kit.clock import RealClock
from transom.machines.windows import WindowsHost
from transom.machines.windows.hns import Adapter, HnsError, HostNetworkService


@pytest.fixture
def hns() -> HostNetworkService:
    return service()


def test_leaked_endpoints_keep_their_address(hns: HostNetworkService) -> None:
    net = made_network(hns)
    a = made_endpoint(hns, net, "10.244.1.7")
    hns.faults.leak_endpoints = True
    hns.delete("endpoint", a)
    assert hns.call("DELETE", f"/endpoints/{a}") == {"Success": True}
    assert a in hns.endpoints
    assert refused(hns, "endpoint", endpoint(net, "10.244.1.7")).code == 0x80071392
    hns.faults.leak_endpoints = False
    hns.delete("endpoint", a)
    made_endpoint(hns, net, "10.244.1.7")


def test_refused_deletes(hns: HostNetworkService) -> None:
    net = made_network(hns)
    hns.faults.refuse_deletes = "Access is denied."
    with pytest.raises(HnsError) as caught:
        hns.delete("network", net)
    assert caught.value.text == (
        "hcnDeleteNetwork failed in Win32: Access is denied. (0x5) "
        '{"Success":false,"Error":"Access is denied. ","ErrorCode":2147942405}'
    )
    hns.faults.refuse_deletes = "The moon is full."
    assert hns.call("DELETE", f"/networks/{net}")["Error"] == "Unspecified error The moon is full."
    hns.faults.refuse_deletes = ""
    hns.delete("network", net)


def test_one_call_fails_once(hns: HostNetworkService) -> None:
    net = made_network(hns)
    hns.faults.fail_next("hcnCreateEndpoint", 0x803B0007)
    hns.faults.fail_next("Attach", 0x803B0014)
    error = refused(hns, "endpoint", endpoint(net))
    assert (error.code, error.call) == (0x803B0007, "hcnCreateEndpoint")
    a = made_endpoint(hns, net)
    assert (
        hns.call("POST", f"/endpoints/{a}/attach", {"SystemType": "Host"})["ErrorCode"]
        == 0x803B0014
    )
    hns.attach_to_host(a)


def test_faults_by_name(hns: HostNetworkService) -> None:
    hns.faults.switch("leak-endpoints", True)
    hns.faults.switch("refuse_deletes", True)
    assert hns.faults.leak_endpoints
    assert hns.faults.refuse_deletes == "Access is denied."
    assert hns.faults.shown() == {
        "keep-remote-endpoints": False,
        "late-management-address": False,
        "leak-endpoints": True,
        "lose-balancers-on-restart": False,
        "lose-networks-on-reboot": False,
        "lose-networks-on-restart": False,
        "refuse-deletes": True,
    }
    with pytest.raises(KeyError):
        hns.faults.switch("queued", True)


def full(hns: HostNetworkService, flags: int = 0) -> dict[str, str]:
    net = made_network(hns, Flags=flags)
    made = {
        "net": net,
        "host": made_endpoint(hns, net, "10.244.1.2", Name="cbr0_ep"),
        "far": remote(hns, net, "10.244.2.5"),
    }
    hns.attach_to_host(made["host"])
    made["docker"], made["containerd"] = made_endpoint(hns, net), made_endpoint(hns, net)
    hns.hot_attach(made["docker"], "c")
    made["space"] = hns.create("namespace", {"Type": "Host"})["ID"]
    hns.add_to_namespace(made["space"], made["containerd"])
    made["lb"] = hns.create("loadbalancer", balancer([made["docker"], made["far"]]))["ID"]
    made["local lb"] = hns.create("loadbalancer", balancer([made["docker"]], "10.96.0.11"))["ID"]
    return made


def left(hns: HostNetworkService, made: dict[str, str]) -> set[str]:
    there = {
        key
        for kind in (hns.networks, hns.endpoints, hns.namespaces, hns.loadbalancers)
        for key in kind
    }
    return {name for name, key in made.items() if key in there}


def test_a_reboot_ends_containers(hns: HostNetworkService) -> None:
    made = full(hns)
    hns.count(made["host"], BytesSent=7)
    hns.reboot()
    assert left(hns, made) == {"net", "host", "far", "lb"}
    assert hns.loadbalancers[made["lb"]]["HostComputeEndpoints"] == [made["far"]]
    assert hns.stats(made["host"])["BytesSent"] == 0
    assert "vEthernet (cbr0_ep)" in hns.adapters


@pytest.mark.parametrize("flags, fault", [(8, False), (0, True)])
def test_networks_that_a_reboot_takes(hns: HostNetworkService, flags: int, fault: bool) -> None:
    hns.faults.lose_networks_on_reboot = fault
    made = full(hns, flags)
    hns.reboot()
    assert left(hns, made) == set()
    assert list(hns.adapters) == ["Ethernet"]
    assert full(hns)


def test_a_restart_of_the_service_loses_nothing_by_itself(hns: HostNetworkService) -> None:
    made = full(hns, 8)
    seen: list[tuple[str, str, str]] = []
    hns.listeners.append(lambda *change: seen.append(change))
    hns.restart_service()
    assert left(hns, made) == set(made)
    assert seen == [("service", "", "restarted")]
    hns.faults.lose_networks_on_restart = True
    hns.restart_service()
    assert left(hns, made) == {"space"}


def test_a_machine_has_one() -> None:
    host = WindowsHost("windows-1", RealClock(), seed="s")
    host.reboot()
    hns = host.hns
    assert host.hns is hns
    hns.set_adapters([Adapter("Ethernet", "00-15-5D-00-00-01", "172.18.0.4/16", "172.18.0.1")])
    made_network(hns, Flags=8)
    host.reboot()
    assert not hns.networks
