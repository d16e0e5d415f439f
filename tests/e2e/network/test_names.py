"""DNS names, as the resolvers of both operating systems look them up."""

from __future__ import annotations

import pytest

from .conftest import Net, pod, service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

NAMES = [
    "linux",
    "linux.default",
    "linux.default.svc",
    "linux.default.svc.cluster.local",
    "linux.default.svc.cluster.local.",
]


@pytest.mark.windows("WIN-DNS-002", "DNS-03")
def test_names_with_and_without_dots(net: Net) -> None:
    linux, windows = (
        net.fetch(client, *(f"{name}/hostname" for name in NAMES)) for client in ("lin-c", "win-c")
    )
    assert [bool(answer) for answer in linux] == [True, True, True, True, True]
    assert [bool(answer) for answer in windows] == [True, False, False, True, True]


def test_records_of_all_kinds(net: Net) -> None:
    address = net.object("service", "linux")["spec"]["clusterIP"]
    pods = sorted(net.ip(name) for name in ("win-1", "win-2"))
    suffix = "default.svc.cluster.local"
    windows = net.exec(
        "win-c",
        "powershell",
        "-Command",
        "; ".join(
            [
                f"(Resolve-DnsName linux.{suffix} -Type A).IPAddress",
                f"((Resolve-DnsName headless.{suffix} -Type A).IPAddress | Sort-Object) -join ' '",
                (
                    f"(Resolve-DnsName _http._tcp.headless.{suffix} -Type SRV | Where-Object "
                    "Type -eq SRV).Port -join ' '"
                ),
                f"(Resolve-DnsName {address}).NameHost",
                f"(Resolve-DnsName alias.{suffix} -Type CNAME).NameHost",
            ]
        ),
    )
    assert windows.split("\n")[:5] == [
        address,
        " ".join(pods),
        "8080 8080",
        f"linux.{suffix}",
        f"windows.{suffix}",
    ]
    dashes = pods[0].replace(".", "-")
    behind = f"headless.{suffix}"
    linux = net.exec(
        "lin-c",
        "sh",
        "-c",
        f"getent hosts linux; nslookup {address}; nslookup {behind}; "
        f"nslookup -type=srv _http._tcp.{behind}; nslookup {dashes}.default.pod.cluster.local",
    )
    assert linux.startswith(f"{address} ") and f"name = linux.{suffix}" in linux
    assert all(one in linux for one in pods)


def test_policies_and_settings_of_pods(space: Net) -> None:
    """The one server is asked, whatever it is called; searches count on Linux, the first of them on
    Windows.
    """
    settings = {
        "nameservers": ["10.96.0.10"],
        "searches": ["svc.cluster.local", "default.svc.cluster.local"],
        "options": [{"name": "ndots", "value": "1"}],
    }
    own = {"dnsPolicy": "None", "dnsConfig": settings}
    more = {"dnsConfig": {"searches": ["default.svc.cluster.local"]}}
    space.apply(
        *(
            pod(f"{name}-{system}", node, **spec)
            for system, node in (("lin", "linux-1"), ("win", "windows-1"))
            for name, spec in (("own", own), ("more", more), ("hosts", {"dnsPolicy": "Default"}))
        )
    )
    space.ready()
    names = ["linux/hostname", "linux.default/hostname", "linux.default.svc.cluster.local/hostname"]
    found = {
        name: [bool(a) for a in space.fetch(name, *names, patience=3)]
        for name in ("own-lin", "own-win", "more-lin", "more-win", "hosts-lin", "hosts-win")
    }
    assert found == {
        # ndots is 1: a name with a dot is tried as it is first, and then with the searches all the
        # same
        "own-lin": [True, True, True],
        "own-win": [False, False, True],
        "more-lin": [True, True, True],
        "more-win": [False, False, True],
        "hosts-lin": [False, False, False],
        "hosts-win": [False, False, False],
    }
    resolv = space.exec("own-lin", "cat", "/etc/resolv.conf").split("\n")
    assert resolv[:3] == [
        "nameserver 10.96.0.10",
        "search svc.cluster.local default.svc.cluster.local",
        "options ndots:1",
    ]


def test_names_of_pods_behind_a_headless_service(space: Net) -> None:
    """As stateful sets have them, with a hostname and a subdomain."""
    peer = {"peer": "yes"}
    space.apply(
        pod("a", "linux-1", peer, hostname="first", subdomain="peers"),
        pod("b", "windows-1", peer, hostname="second", subdomain="peers"),
        service("peers", peer, clusterIP="None"),
    )
    space.ready()
    suffix = f"peers.{space.namespace}.svc.cluster.local:8080/hostname"
    for client in ("a", "b"):
        assert space.fetch(client, f"first.{suffix}", f"second.{suffix}", patience=3) == [
            "first",
            "second",
        ]


def test_a_trace_resolves_names_as_programs_of_the_node_do(net: Net) -> None:
    """A hosts file on the node, its name server, and localhost; cluster DNS is not asked."""

    def traced(node: str, target: str) -> tuple[str, str]:
        found = net.trace(f"node/{node}", target)
        return found["verdict"], found["address"]

    hosts = {"linux-1": "/etc/hosts", "windows-1": r"C:\Windows\System32\drivers\etc\hosts"}
    for node, path in hosts.items():
        line = f"203.0.113.10 made-up-{node}.example"
        add = f"Add-Content {path} '{line}'" if "win" in node else f"echo {line} >> {path}"
        net.cluster.transom("node", "exec", "--name", net.cluster.name, node, add)
        for name in (f"made-up-{node}.example", "www.example.com"):
            assert traced(node, f"{name}:443") == ("delivered", "203.0.113.10")
        assert traced(node, "localhost:10248") == ("delivered", "127.0.0.1")
        assert traced(node, "localhost:81")[0] == "refused"
        assert traced(node, "linux.default.svc.cluster.local")[0] == "unresolved"
