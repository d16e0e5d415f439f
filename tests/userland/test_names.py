"""Programs that resolve names, by the rules of each operating system."""

from __future__ import annotations

import pytest
from tests.userland.conftest import Box

SERVER = "Server:\t\t10.96.0.10\nAddress:\t10.96.0.10#53\n\n"
KUBERNETES = "Name:\tkubernetes.default.svc.cluster.local\nAddress: 10.96.0.1\n\n"


@pytest.fixture(
    params=[
        "example/jessie-dnsutils:1.3",
        "registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0",
    ]
)
def tools(request: pytest.FixtureRequest) -> Box:
    return Box("linux", userland="gnu", name=request.param)


LINUX = [
    ("nslookup kubernetes", 0, SERVER + KUBERNETES),
    ("nslookup kubernetes.default", 0, SERVER + KUBERNETES),
    ("nslookup kubernetes.default.svc.cluster.local.", 0, SERVER + KUBERNETES),
    ("nslookup nope.default", 1, SERVER + "** server can't find nope.default: NXDOMAIN\n\n"),
    (
        "nslookup -type=aaaa kubernetes",
        1,
        SERVER + "*** Can't find kubernetes.default.svc.cluster.local: No answer\n\n",
    ),
    (
        "nslookup 10.96.0.1",
        0,
        SERVER + "1.0.96.10.in-addr.arpa\tname = kubernetes.default.svc.cluster.local.\n\n",
    ),
    (
        "nslookup ext",
        0,
        SERVER + "ext.default.svc.cluster.local\tcanonical name = www.example.com.\n"
        "Name:\twww.example.com\nAddress: 192.0.2.53\n\n",
    ),
    (
        "nslookup -q=TXT dns-version.cluster.local",
        0,
        SERVER + 'dns-version.cluster.local\ttext = "1.1.0"\n\n',
    ),
    (
        "nslookup kubernetes 192.0.2.9",
        1,
        ";; connection timed out; no servers could be reached\n\n",
    ),
    (
        "nslookup kubernetes kube-dns.kube-system",
        1,
        "nslookup: couldn't get address for 'kube-dns.kube-system': not found\n",
    ),
    ("dig +short kubernetes.default.svc.cluster.local", 0, "10.96.0.1\n"),
    ("dig +short kubernetes.default", 0, ""),  # it adds no suffix by default
    ("dig +short +search kubernetes.default", 0, "10.96.0.1\n"),
    (
        "dig +noall +answer SRV _https._tcp.kubernetes.default.svc.cluster.local",
        0,
        (
            "_https._tcp.kubernetes.default.svc.cluster.local. 30 IN\tSRV 0 100 443 "
            "kubernetes.default.svc.cluster.local.\n"
        ),
    ),
    ("dig +noall +answer a.b", 0, ""),
    ("dig -x 10.96.0.10 +short", 0, "kube-dns.kube-system.svc.cluster.local.\n"),
    (
        "dig +short kubernetes @192.0.2.9",
        9,
        ";; connection timed out; no servers could be reached\n",
    ),
    ("host kubernetes", 0, "kubernetes.default.svc.cluster.local has address 10.96.0.1\n"),
    ("host nope", 1, "Host nope not found: 3(NXDOMAIN)\n"),
    (
        "getent hosts kubernetes.default",
        0,
        "10.96.0.1       kubernetes.default.svc.cluster.local\n",
    ),
    ("getent hosts 10.96.0.10", 0, "10.96.0.10      kube-dns.kube-system.svc.cluster.local\n"),
    ("getent hosts box", 0, "10.244.1.2      box\n"),
    ("getent hosts nope box", 2, "10.244.1.2      box\n"),
    (
        "getent ahosts kubernetes",
        0,
        (
            "10.96.0.1       STREAM kubernetes.default.svc.cluster.local\n10.96.0.1       DGRAM  "
            "\n10.96.0.1       RAW    \n"
        ),
    ),
    ("getent ahostsv6 kubernetes", 2, ""),
    ("getent passwd root", 0, "root:x:0:0:root:/root:/bin/sh\n"),
]


@pytest.mark.windows("DNS-03")
@pytest.mark.parametrize(("line", "code", "out"), LINUX, ids=[line for line, _, _ in LINUX])
def test_linux(tools: Box, line: str, code: int, out: str) -> None:
    result = tools.sh(line)
    assert (result.code, result.out, result.err) == (code, out, "")


def test_dig_shows_the_whole_answer(tools: Box) -> None:
    out = tools.sh("dig web-x.default.svc.cluster.local").out
    assert "status: NXDOMAIN" in out
    assert ";; flags: qr aa rd; QUERY: 1, ANSWER: 0, AUTHORITY: 1, ADDITIONAL: 0\n" in out
    assert ";web-x.default.svc.cluster.local. IN\tA\n" in out
    soa = "ns.dns.cluster.local. hostmaster.cluster.local. 0 7200 1800 86400 30"
    assert f";; AUTHORITY SECTION:\ncluster.local.\t\t30\tIN\tSOA\t{soa}\n" in out


def test_the_resolver_reads_its_file(tools: Box) -> None:
    script = (
        "echo nameserver 10.96.0.10 > /etc/resolv.conf; echo search other.svc.cluster.local >> "
        "/etc/resolv.conf; "
    )
    assert sorted(tools.sh(script + "getent hosts db").out.split()) == [
        "10.244.2.3",
        "10.244.2.4",
        "db.other.svc.cluster.local",
        "db.other.svc.cluster.local",
    ]
    assert tools.sh(script + "getent hosts kubernetes").code == 2


def test_busybox() -> None:
    new = Box("linux", name="docker.io/library/busybox:1.31")
    assert (
        new.sh("nslookup kubernetes").out
        == "Server:\t\t10.96.0.10\nAddress:\t10.96.0.10:53\n\n" + KUBERNETES
    )
    old = Box("linux", name="docker.io/library/busybox:1.28")
    assert old.sh("nslookup kubernetes.default").out == (
        "Server:    10.96.0.10\nAddress 1: 10.96.0.10 kube-dns.kube-system.svc.cluster.local\n\n"
        "Name:      kubernetes.default\nAddress 1: 10.96.0.1 kubernetes.default.svc.cluster.local\n"
    )
    failed = old.sh("nslookup nope")
    assert (failed.code, failed.err) == (1, "nslookup: can't resolve 'nope'\n")


WINDOWS_SERVER = "Server:  kube-dns.kube-system.svc.cluster.local\r\nAddress:  10.96.0.10\r\n\r\n"
MISSING = "*** kube-dns.kube-system.svc.cluster.local can't find {}: Non-existent domain\r\n"
FOUND = "Name:    kubernetes.default.svc.cluster.local\r\nAddress:  10.96.0.1\r\n\r\n"
WINDOWS = [
    ("nslookup kubernetes", FOUND, ""),
    ("nslookup kubernetes.default", "", MISSING.format("kubernetes.default")),
    ("nslookup kubernetes.default.svc", "", MISSING.format("kubernetes.default.svc")),
    ("nslookup kubernetes.default.svc.cluster.local", FOUND, ""),
    ("nslookup db.other", "", MISSING.format("db.other")),
    ("nslookup 10.96.0.1", FOUND, ""),
    (
        "nslookup ext",
        (
            "Name:    www.example.com\r\nAddress:  192.0.2.53\r\nAliases:  "
            "ext.default.svc.cluster.local\r\n\r\n"
        ),
        "",
    ),
    (
        "nslookup -type=AAAA kubernetes",
        "",
        "*** No IPv6 address (AAAA) records available for kubernetes\r\n",
    ),
]


@pytest.mark.windows("DNS-02", "DNS-05", "DNS-07", "DNS-08", "WIN-DNS-002")
@pytest.mark.parametrize(("line", "out", "err"), WINDOWS, ids=[line for line, _, _ in WINDOWS])
def test_windows(windows: Box, line: str, out: str, err: str) -> None:
    result = windows.cmd(line)
    assert (result.code, result.out, result.err) == (0, WINDOWS_SERVER + out, err)


def test_nslookup_of_windows_without_an_answer(windows: Box) -> None:
    result = windows.cmd("nslookup kubernetes 192.0.2.9")
    waiting = "DNS request timed out.\r\n    timeout was 2 seconds.\r\n"
    assert result.out == f"{waiting}Server:  UnKnown\r\nAddress:  192.0.2.9\r\n\r\n{waiting}"
    assert result.err == "*** Request to UnKnown timed-out\r\n"


def rows(text: str) -> list[list[str]]:
    return [
        line.split()
        for line in text.split("\r\n")
        if line and not line.startswith(("Name ", "----"))
    ]


@pytest.mark.windows("SVC-06", "SVC-07", "DNS-05", "DNS-07", "DNS-09")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "Resolve-DnsName kubernetes",
            [["kubernetes.default.svc.cluster.local", "A", "30", "Answer", "10.96.0.1"]],
        ),
        (
            "Resolve-DnsName -Name kubernetes.default.svc.cluster.local -Type A -Server 10.96.0.10",
            [["kubernetes.default.svc.cluster.local", "A", "30", "Answer", "10.96.0.1"]],
        ),
        (
            "Resolve-DnsName ext",
            [
                ["ext.default.svc.cluster.local", "CNAME", "30", "Answer", "www.example.com"],
                ["www.example.com", "A", "3600", "Answer", "192.0.2.53"],
            ],
        ),
        (
            "Resolve-DnsName 10.96.0.1",
            [
                [
                    "1.0.96.10.in-addr.arpa",
                    "PTR",
                    "30",
                    "Answer",
                    "kubernetes.default.svc.cluster.local",
                ]
            ],
        ),
        (
            "Resolve-DnsName kubernetes AAAA",
            [
                [
                    "cluster.local",
                    "SOA",
                    "30",
                    "Authority",
                    "ns.dns.cluster.local",
                    "hostmaster.cluster.local",
                    "0",
                ]
            ],
        ),
        (
            "(Resolve-DnsName db.other.svc.cluster.local).IPAddress | Sort-Object",
            [["10.244.2.3"], ["10.244.2.4"]],
        ),
        (
            (
                "(Resolve-DnsName _sql._tcp.db.other.svc.cluster.local -Type SRV | Where-Object "
                "Type -eq SRV).Port"
            ),
            [["5432"]] * 2,
        ),
    ],
)
def test_resolve_dnsname(windows: Box, line: str, expected: list[list[str]]) -> None:
    result = windows.powershell(line)
    assert (rows(result.out), result.err) == (expected, "")


@pytest.mark.windows("DNS-02", "DNS-08", "WIN-DNS-002")
@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("Resolve-DnsName kubernetes.default", "kubernetes.default : DNS name does not exist"),
        (
            "Resolve-DnsName kubernetes.default.svc",
            "kubernetes.default.svc : DNS name does not exist",
        ),
        ("Resolve-DnsName db", "db : DNS name does not exist"),
        (
            "Resolve-DnsName a -Server 192.0.2.9",
            "a : This operation returned because the timeout period expired",
        ),
    ],
)
def test_resolve_dnsname_fails(windows: Box, line: str, error: str) -> None:
    result = windows.powershell(line)
    assert (result.code, result.err.split("\r\n")[0]) == (1, f"Resolve-DnsName : {error}")


@pytest.mark.windows("DNS-04", "DNS-06", "TRB-20", "TRB-40", "TRB-41", "WIN-DNS-003")
def test_ipconfig_knows_one_suffix(windows: Box) -> None:
    out = windows.run("ipconfig", "/all").out
    assert "   Connection-specific DNS Suffix  . : default.svc.cluster.local\r\n" in out
    assert " svc.cluster.local" not in out
    assert "   DNS Servers . . . . . . . . . . . : 10.96.0.10\r\n" in out


@pytest.mark.windows("LNET-03", "WIN-DNS-005")
def test_a_file_of_linux_changes_nothing_on_windows(windows: Box) -> None:
    windows.files.mkdir("C:\\etc")
    windows.files.write(
        "C:\\etc\\resolv.conf", b"nameserver 192.0.2.9\nsearch other.svc.cluster.local\n"
    )
    assert windows.powershell("(Resolve-DnsName kubernetes).IPAddress").out == "10.96.0.1\r\n"
    assert windows.powershell("Resolve-DnsName db").code == 1
    assert set(windows.requested) == {"10.96.0.10"}
