from typing import Any

import pytest
from tests.kubelet.machines import Machine, pod

from transom.kubelet.dns import check_node_limits
from transom.kubelet.failures import ContainerFailure
from transom.network.api import DnsConfig

CLUSTER = ("ns.svc.cluster.local", "svc.cluster.local", "cluster.local")


def dns_of(machine: Machine, **spec: Any) -> DnsConfig:
    return machine.builder.sandbox_config(pod(**spec), 0).dns


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, DnsConfig(("10.96.0.10",), (*CLUSTER, "example.com"), ("ndots:5",))),
        ({"hostNetwork": True}, DnsConfig(("9.9.9.9",), ("example.com",))),
        (
            {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
            DnsConfig(("10.96.0.10",), (*CLUSTER, "example.com"), ("ndots:5",)),
        ),
        ({"dnsPolicy": "Default"}, DnsConfig(("9.9.9.9",), ("example.com",))),
        (
            {
                "dnsPolicy": "None",
                "dnsConfig": {"nameservers": ["1.1.1.1"], "searches": ["resolv.conf.local"]},
            },
            DnsConfig(("1.1.1.1",), ("resolv.conf.local",)),
        ),
        (
            {
                "dnsConfig": {
                    "nameservers": ["10.96.0.10", "1.1.1.1"],
                    "searches": ["cluster.local", "x"],
                    "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
                }
            },
            DnsConfig(
                ("10.96.0.10", "1.1.1.1"), (*CLUSTER, "example.com", "x"), ("ndots:2", "edns0")
            ),
        ),
    ],
)
def test_policies(spec: dict[str, Any], expected: DnsConfig) -> None:
    machine = Machine()
    assert dns_of(machine, **spec) == expected
    assert machine.events.recorded == []


def test_windows_without_a_resolver_file() -> None:
    assert dns_of(Machine("windows")) == DnsConfig(("10.96.0.10",), CLUSTER, ("ndots:5",))
    assert dns_of(Machine("windows"), dnsPolicy="Default") == DnsConfig(("127.0.0.1",), (".",))


def test_a_windows_kubelet_with_the_default_resolver_file_starts_no_pod() -> None:
    with pytest.raises(ContainerFailure) as caught:
        dns_of(Machine("windows", resolv_conf="/etc/resolv.conf"))
    assert str(caught.value) == "open /etc/resolv.conf: The system cannot find the path specified."
    assert caught.value.reason == "CreatePodSandboxConfigError"


def test_no_cluster_dns() -> None:
    machine = Machine(cluster_dns=())
    assert dns_of(machine) == DnsConfig(("9.9.9.9",), ("example.com",))
    text = (
        "kubelet does not have ClusterDNS IP configured and cannot create Pod using "
        '"ClusterFirst" policy. Falling back '
        'to "Default" policy.'
    )
    uid = pod()["metadata"]["uid"]
    assert machine.events.recorded == [
        ("MissingClusterDNS", text),
        ("MissingClusterDNS", f'pod: "web_ns({uid})". {text}'),
    ]


def test_limits() -> None:
    machine = Machine()
    requested = {
        "nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3"],
        "searches": ["a.b", "c.d", "e.f"],
    }
    found = dns_of(machine, dnsConfig=requested)
    assert found.servers == ("10.96.0.10", "1.1.1.1", "2.2.2.2")
    assert found.searches == (*CLUSTER, "example.com", "a.b", "c.d")
    assert machine.events.recorded == [
        (
            "DNSConfigForming",
            "Nameserver limits were exceeded, some nameservers have been omitted, the "
            "applied nameserver "
            "line is: 10.96.0.10 1.1.1.1 2.2.2.2",
        ),
        (
            "DNSConfigForming",
            "Search Line limits were exceeded, some search paths have been omitted, the "
            "applied search line "
            "is: " + " ".join(found.searches),
        ),
    ]
    long = dns_of(Machine(), dnsConfig={"searches": ["x" * 120, "y" * 120]}).searches
    assert long == (*CLUSTER, "example.com", "x" * 120)


def test_the_nodes_own_file_is_looked_at() -> None:
    machine = Machine()
    machine.files.write("/etc/resolv.conf", b"search a b c d\n")
    check_node_limits(machine.env)
    assert machine.events.recorded == [
        (
            "CheckLimitsForResolvConf",
            (
                "Resolv.conf file '/etc/resolv.conf' contains search line consisting of more "
                "than 3 domains!"
            ),
        )
    ]
