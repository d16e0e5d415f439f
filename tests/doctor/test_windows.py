"""Windows nodes: texts of events, states of nodes, and the record of the limitation that each
indicates.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.doctor.patients import CIDR, event, healthy, node, pod, service, windows_node

from transom.doctor.examine import examine, pods_with_useful_logs
from transom.doctor.findings import DoctorFinding, is_safe_command
from transom.doctor.node_state import check_name_servers
from transom.doctor.pod_messages import windows_finding
from transom.doctor.texts import recognised_texts
from transom.windows.registry import RECORDS
from transom.windows.wording import record_remedy

MISMATCH = (
    "hcsshim::CreateComputeSystem: The container operating system does not match the host "
    "operating system."
)
SILENT = (
    "Get https://mcr.microsoft.com/v2/: net/http: request canceled while waiting for connection "
    "(Client.Timeout exceeded)"
)


def found(record: str, **more: Any) -> DoctorFinding:
    """The one finding with a record."""
    all_ = examine(healthy(**more))
    [one] = [one for one in all_ if one.record == record]
    return one


def test_a_node_that_is_well() -> None:
    assert examine(healthy(inside=windows_node())) == []


@pytest.mark.windows("TRB-72")
def test_mac_spoofing() -> None:
    one = found("SUP-TRB-009", inside=windows_node(mac_spoofing=False))
    assert (one.severity, one.where, one.statements) == ("error", ("node/windows-1",), ("TRB-72",))
    assert (
        record_remedy(RECORDS["SUP-TRB-009"]) in one.remedy
        and "transom node set windows-1 mac-spoofing=on" in one.remedy
    )


@pytest.mark.windows("TRB-56", "TRB-84", "TRB-85")
@pytest.mark.parametrize(
    ("hostname", "record", "what", "do"),
    [
        (
            r"windows-1--kubeconfig=c:\k\config",
            "SUP-TRB-007",
            "the flag --kubeconfig was swallowed",
            "Write --hostname-override=windows-1 --kubeconfig=...",
        ),
        (
            "win-abc",
            "SUP-TRB-011",
            "takes win-abc for its node's name",
            "kube-proxy.exe --hostname-override=windows-1",
        ),
    ],
)
def test_a_proxy_that_does_not_know_its_node(
    hostname: str, record: str, what: str, do: str
) -> None:
    one = found(record, inside=windows_node(kube_proxy_hostname=hostname))
    assert what in one.what and one.remedy == do and one.where == ("node/windows-1",)


@pytest.mark.windows("TRB-56", "TRB-84")
@pytest.mark.parametrize(
    ("argument", "record"),
    [
        ("--hostname-override=windows-1--kubeconfig=/k/config", "SUP-TRB-007"),
        ("--hostname-override other", "SUP-TRB-011"),
        ("--hostname-override=windows-1", ""),
        ("--hostname-override=$env:NODE_NAME", ""),
        ("--v=4", ""),
    ],
)
def test_a_proxy_in_a_pod(argument: str, record: str) -> None:
    proxy = pod("kube-proxy-windows-x", ready=True, phase="Running")
    proxy["spec"]["containers"][0]["args"] = ["-Command", f"kube-proxy.exe {argument} --v=6"]
    assert [one.record for one in examine(healthy(pods=[proxy]))] == ([record] if record else [])


def test_a_proxy_that_does_not_work() -> None:
    inside = windows_node(kube_proxy_problem="it ended for a reason of its own")
    [one] = examine(healthy(inside=inside))
    assert (
        one.what == "kube-proxy does not work: it ended for a reason of its own" and not one.record
    )


def test_programs_that_do_not_run() -> None:
    both = examine(
        healthy(
            inside=windows_node(stopped={"kube-proxy": "F1116 no configuration", "flanneld": ""})
        )
    )
    assert [one.what for one in both] == [
        "kube-proxy does not run; its log ends with: F1116 no configuration",
        "flanneld does not run",
    ]
    assert both[1].remedy.endswith("Start-Service flanneld")


@pytest.mark.windows("TRB-86", "TRB-87", "TRB-88")
def test_a_source_vip_of_the_subnet_before() -> None:
    one = found("SUP-TRB-012", inside=windows_node(source_vip="10.244.9.2"))
    assert one.what == f"the source VIP 10.244.9.2 is not of the node's subnet {CIDR}"
    assert one.remedy == (
        r"Remove C:\k\SourceVip.json and C:\k\SourceVipRequest.json. Then start kube-proxy "
        r"again: transom node reboot windows-1"
    )
    assert examine(healthy(inside=windows_node(source_vip="10.244.2.9"))) == []


@pytest.mark.windows("TRB-89", "TRB-90", "TRB-91", "TRB-92")
@pytest.mark.parametrize(
    "more",
    [
        {
            "networks": {},
            "fault": (
                "cni config uninitialized: timeout, failed to get management IP from HNSNetwork "
                "cbr0: late"
            ),
        },
        {"networks": {"cbr0": ""}},
    ],
)
def test_flanneld_that_waits(more: dict[str, Any]) -> None:
    assert "NODE_NAME" in found("SUP-TRB-013", inside=windows_node(**more)).remedy


@pytest.mark.windows("TRB-93", "TRB-94", "TRB-95", "TRB-97")
def test_subnet_env() -> None:
    one = found("SUP-TRB-014", inside=windows_node(subnet_env=None))
    assert one.what == r"C:\run\flannel\subnet.env is missing" and "Restart flanneld" in one.remedy
    other = found("SUP-TRB-014", inside=windows_node(subnet_env="FLANNEL_SUBNET=10.244.7.1/24\n"))
    assert other.severity == "warning" and "10.244.7.1/24" in other.what
    assert examine(healthy(inside=windows_node(subnet_env=None, plugin="win-bridge"))) == []
    text = "open /run/flannel/subnet.env: The system cannot find the path specified."
    recorded = found(
        "SUP-TRB-014",
        pods=[pod("a", waiting={"reason": "ContainerCreating"})],
        events=[event("a", "FailedCreatePodSandBox", text)],
    )
    assert recorded.where == ("pod/default/a",) and text in recorded.what


@pytest.mark.windows("TRB-104")
def test_the_virtual_network_was_not_made() -> None:
    one = found(
        "SUP-TRB-015", inside=windows_node(networks={"nat": "172.20.0.3"}, adapters=("Ethernet",))
    )
    assert (
        one.what
        == "the host networking service has no network cbr0, and the machine no vEthernet adapter"
    )
    assert "-InterfaceName" in one.remedy
    # made with the first pod
    assert examine(healthy(inside=windows_node(networks={}, network=""))) == []


@pytest.mark.windows("TRB-116", "TRB-117", "TRB-118")
def test_a_node_behind_a_proxy() -> None:
    proxy = "http://proxy.example.com:80/"
    one = found("SUP-TRB-018", inside=windows_node(proxy=proxy))
    for variable in ("HTTP_PROXY", "HTTPS_PROXY"):
        assert (
            f'SetEnvironmentVariable("{variable}", "{proxy}", [EnvironmentVariableTarget]::Machine)'
            in one.remedy
        )
    one = found("SUP-TRB-018", inside=windows_node(proxy=proxy, variables={"https_proxy": proxy}))
    assert "HTTP_PROXY is not set" in one.what
    variables = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    assert examine(healthy(inside=windows_node(proxy=proxy, variables=variables))) == []


@pytest.mark.windows("TRB-107", "TRB-109", "TRB-116")
@pytest.mark.parametrize(
    ("reason", "text", "record", "why"),
    [
        (
            "FailedCreatePodSandBox",
            MISMATCH,
            "WIN-OS-004",
            "The pause image of the node is for another Windows build",
        ),
        (
            "FailedCreatePodSandBox",
            'failed to get sandbox image "p": no match for platform in manifest: not found',
            "WIN-OS-004",
            "The pause image of the node",
        ),
        ("CrashLoopBackOff", MISMATCH, "WIN-OS-004", ""),
        (
            "ErrImagePull",
            "no matching manifest for windows/amd64 10.0.17763 in the manifest list entries",
            "WIN-OS-005",
            "",
        ),
        (
            "ErrImagePull",
            "a Windows version 10.0.20348-based image is incompatible with a 10.0.17763 host",
            "WIN-OS-005",
            "",
        ),
        ("ErrImagePull", "no match for platform in manifest: not found", "WIN-OS-006", ""),
        (
            "ErrImagePull",
            'image operating system "linux" cannot be used on this platform',
            "WIN-OS-007",
            "",
        ),
        ("ErrImagePull", SILENT, "SUP-TRB-018", ""),
        ("FailedCreatePodSandBox", 'RuntimeHandler "gvisor" not supported', "WIN-RUN-003", ""),
    ],
)
def test_texts_that_are_known(reason: str, text: str, record: str, why: str) -> None:
    one = recognised_texts(reason, text, "it fails", "pod/default/a")
    assert one is not None and one.record == record and re.search(why, one.why)


@pytest.mark.windows("TRB-108", "TRB-109")
def test_which_builds_do_not_go_together() -> None:
    old = pod(
        "a", waiting={"reason": "CrashLoopBackOff"}, last={"exitCode": 1, "message": MISMATCH}
    )
    old["spec"]["containers"][0]["image"] = "microsoft/iis:windowsservercore-1803"
    assert found("WIN-OS-004", pods=[old]).why.startswith(
        "microsoft/iis:windowsservercore-1803 is of build 17134 (1803), the node of 17763 "
        "(Windows Server 2019, 1809). "
    )


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("Unhealthy", SILENT),
        ("FailedMount", "The system cannot find the file specified."),
        ("", ""),
    ],
)
def test_texts_that_are_not(reason: str, text: str) -> None:
    assert recognised_texts(reason, text, "it fails") is None


@pytest.mark.windows("OS-11", "WIN-OS-007")
def test_a_linux_image_on_a_windows_node_is_not_an_image_that_lacks_a_build() -> None:
    text = (
        'Failed to pull image "app:1": rpc error: code = Unknown desc = no matching manifest for '
        "windows/amd64 10.0.17763"
    )
    waiting = {"reason": "ImagePullBackOff"}
    more = {"events": [event("a", "Failed", text)]}
    assert found("WIN-OS-005", pods=[pod("a", waiting=waiting)], **more)
    assert found("WIN-OS-007", pods=[pod("a", waiting=waiting, nodeSelector={})], **more)


@pytest.mark.windows("OS-11", "WIN-POD-010")
def test_pods_that_may_land_on_either_system() -> None:
    taint = {"key": "os", "value": "windows", "effect": "NoSchedule"}
    free, tolerant = (
        pod("free", "linux-1", ready=True, nodeSelector={}),
        pod("ready", "windows-1", ready=True, phase="Running"),
    )
    assert found("WIN-POD-010", pods=[free, tolerant]).where == ("pod/default/free",)
    tainted = [node("linux-1", "linux"), node("windows-1", taints=[taint])]
    assert examine(healthy(nodes=tainted, pods=[free])) == []
    everything = pod(
        "all", "linux-1", ready=True, nodeSelector={}, tolerations=[{"operator": "Exists"}]
    )
    assert found("WIN-POD-010", nodes=tainted, pods=[everything]).where == ("pod/default/all",)
    assert examine(healthy(nodes=[node("linux-1", "linux")], pods=[free])) == []


@pytest.mark.windows("TRB-112")
@pytest.mark.parametrize(
    ("line", "severity", "remedy", "record"),
    [
        (
            "curl: (6) Could not resolve host: web.shop",
            "error",
            "Write web.shop.svc.cluster.local.",
            "WIN-DNS-002",
        ),
        (
            "dial tcp: lookup web.shop.svc on 10.96.0.10:53: no such host",
            "error",
            "Write web.shop.svc.",
            "WIN-DNS-002",
        ),
        (
            "Ping request could not find host web.shop. Please check the name",
            "error",
            "Write web.shop.svc.",
            "WIN-DNS-002",
        ),
        (
            "The remote name could not be resolved: 'www.example.invalid'",
            "warning",
            "Check the name.",
            "WIN-DNS-002",
        ),
        (
            "getaddrinfo ENOTFOUND db",
            "warning",
            "Make it, or write NAME.NAMESPACE",
            "no service db in default",
        ),
    ],
)
def test_names_that_a_program_does_not_find(
    line: str, severity: str, remedy: str, record: str
) -> None:
    one = found(
        "SUP-TRB-017",
        pods=[pod("a", restarts=1, phase="Running")],
        services=[service("web", namespace="shop")],
        logs={("default", "a"): f"starting\n{line}\n"},
    )
    assert one.severity == severity and remedy in one.remedy and one.where == ("pod/default/a",)
    assert record in one.why + one.remedy


def test_whose_logs_are_read() -> None:
    patient = healthy(
        pods=[
            pod("well", ready=True, phase="Running"),
            pod("again", ready=True, restarts=2),
            pod("late"),
            pod("other", "linux-1"),
        ]
    )
    assert pods_with_useful_logs(patient) == [("default", "again"), ("default", "late")]
    assert ("default", "well") in pods_with_useful_logs(patient, ["pod/default/well"])


def test_logs_of_a_silent_kubelet_are_not_requested() -> None:
    nodes = [node("linux-1", "linux"), node("windows-1", ready="Unknown")]
    patient = healthy(nodes=nodes, pods=[pod("late"), pod("again", restarts=2)])
    assert pods_with_useful_logs(patient) == []


def test_name_servers_of_pods_on_the_network_of_their_node() -> None:
    """A kubelet with an empty --resolv-conf gives such a pod its own address."""
    on_node = pod("a", node="windows-1", hostNetwork=True)
    inside = windows_node(pod_name_servers={"default/a": ("127.0.0.1",)})
    [one] = check_name_servers(healthy(pods=[on_node], inside=inside))
    assert one.what == "its name server 127.0.0.1 does not answer"
    assert "ClusterFirstWithHostNet" in one.remedy
    own = pod("a", node="windows-1", dnsConfig={"nameservers": ["127.0.0.1"]})
    [one] = check_name_servers(healthy(pods=[own], inside=inside))
    assert one.what == "the name server 127.0.0.1 of its dnsConfig does not answer"


def test_a_host_process_container_on_a_node_with_docker() -> None:
    text = "failed to start sandbox container for pod: network host not found"
    for options, record in (({}, "WIN-POD-002"), ({"hostProcess": True}, "WIN-HP-108")):
        asking = pod(
            "a",
            node="windows-1",
            hostNetwork=True,
            securityContext={"windowsOptions": options},
        )
        s = healthy(pods=[asking])
        one = windows_finding(s, asking, "FailedCreatePodSandBox", text, "x", "pod/default/a")
        assert one is not None and one.record == record


def test_a_linux_container_in_a_windows_pod_is_removed_not_moved() -> None:
    text = 'image operating system "linux" cannot be used on this platform'
    for images, record in (
        (["envoy:1"], "WIN-OS-007"),
        (["envoy:1", "mcr.microsoft.com/windows/nanoserver:1809"], "WIN-POD-001"),
    ):
        containers = [{"name": f"c{i}", "image": image} for i, image in enumerate(images)]
        mixed = pod("a", node="windows-1", containers=containers)
        one = windows_finding(healthy(pods=[mixed]), mixed, "ErrImagePull", text, "x", "pod/a")
        assert one is not None and one.record == record


def test_a_kube_proxy_with_an_old_source_vip() -> None:
    inside = windows_node(
        mode="overlay", source_vip="10.244.2.2", kube_proxy_source_vip="10.244.2.9"
    )
    one = found("SUP-TRB-012", inside=inside)
    assert one.what == (
        "kube-proxy runs with --source-vip=10.244.2.9, and the node's source VIP is 10.244.2.2"
    )
    [command] = one.commands
    assert is_safe_command(command) and '"--source-vip=10.244.2.2"' in command
    same = windows_node(mode="overlay", source_vip="10.244.2.2", kube_proxy_source_vip="10.244.2.2")
    assert examine(healthy(inside=same)) == []


def test_a_missing_plugin_comes_back_when_the_cluster_starts() -> None:
    problem = r'failed to find plugin "flannel" in path [c:\k\cni]'
    [one] = examine(healthy(inside=windows_node(cni_problem=problem, simulated=True)))
    assert problem in one.what and one.commands == ("transom down", "transom up")
