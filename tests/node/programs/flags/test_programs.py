"""The lines of the documents, as kubelet, kube-proxy and flanneld read them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from transom.kit.argv import parse_command_line
from transom.kubelet.config import KubeletConfig
from transom.node.programs.flags import flanneld, gates, klog, kube_proxy, kubelet
from transom.node.programs.flags.golang import FlagError

KUBELET = parse_command_line(
    r"--hostname-override=minion --v=6 "
    r"--pod-infra-container-image=mcr.microsoft.com/oss/kubernetes/pause:1.4.1 "
    r'--resolv-conf="" --allow-privileged=true --enable-debugging-handlers '
    r"--cluster-dns=10.96.0.10 "
    r"--cluster-domain=cluster.local --kubeconfig=c:\k\config --hairpin-mode=promiscuous-bridge "
    r"--image-pull-progress-deadline=20m --cgroups-per-qos=false  --log-dir=C:\k\logs "
    r"--logtostderr=false "
    r'--enforce-node-allocatable="" --network-plugin=cni --cni-bin-dir=c:\k\cni '
    r"--cni-conf-dir=c:\k\cni\config"
)
BASE = KubeletConfig("w", "10.0.0.3")


@pytest.mark.windows(
    "TRB-33", "TRB-34", "TRB-35", "TRB-38", "TRB-43", "TRB-44", "TRB-46", "TRB-47", "TRB-49"
)
def test_the_kubelets_line_of_the_document() -> None:
    parsed = kubelet.parse_kubelet_flags(KUBELET)
    wanted = kubelet.kubelet_flags(parsed)
    assert wanted.unused == () and not wanted.service
    assert wanted.logging == klog.KlogSettings(to_stderr=False, directory=r"C:\k\logs", verbosity=6)
    assert (wanted.kubeconfig, wanted.network_plugin) == (r"c:\k\config", "cni")
    assert (wanted.cni_bin_dir, wanted.cni_conf_dir) == (r"c:\k\cni", r"c:\k\cni\config")
    assert kubelet.kubelet_config_from_flags(parsed, BASE, str) == replace(
        BASE,
        node_name="minion",
        pod_infra_image="mcr.microsoft.com/oss/kubernetes/pause:1.4.1",
        resolv_conf="",
        cluster_dns=("10.96.0.10",),
        cgroups_per_qos=False,
        enforce_node_allocatable=(),
        image_pull_progress_deadline=1200.0,
    )
    assert any("--allow-privileged" in text and "1.15" in text for text in wanted.deprecated)


@pytest.mark.windows("RES-11", "RES-18", "FLAG-01", "FLAG-02", "FLAG-04")
def test_flags_as_the_document_spells_them() -> None:
    parsed = kubelet.parse_kubelet_flags(
        [
            "--kubelet-reserve=memory=1Gi,cpu=100m",
            "--system-reserve",
            "memory=2Gi",
            "--enforce-node-allocable=",
        ]
    )
    wanted = kubelet.kubelet_flags(parsed)
    assert wanted.unused == ()
    config = kubelet.kubelet_config_from_flags(parsed, BASE, str)
    assert config.kube_reserved == {"memory": "1Gi", "cpu": "100m"}
    assert config.system_reserved == {"memory": "2Gi"} and config.enforce_node_allocatable == ()
    with pytest.raises(FlagError, match="unknown flag: --kubelet-reserved"):
        kubelet.parse_kubelet_flags(["--kubelet-reserved=memory=1Gi"])


# What kubeadm, kops and the documentation's scripts pass, with the releases that have it.
FLAGS_BY_RELEASE = (
    ("--network-plugin=cni", 20, 23),
    ("--cni-bin-dir=x", 20, 23),
    ("--cni-conf-dir=x", 20, 23),
    ("--image-pull-progress-deadline=20m", 20, 23),
    ("--allow-privileged=true", 20, 23),
    ("--log-dir=x", 20, 25),
    ("--log-file=x", 20, 25),
    ("--logtostderr=false", 20, 25),
    ("--container-runtime=remote", 20, 26),
    ("--pod-infra-container-image=x", 20, 34),
    ("--register-schedulable=true", 20, 33),
    ("--seccomp-default", 22, 37),
    ("--config-dir=x", 28, 37),
    ("--container-runtime-endpoint=x", 20, 37),
    ("--v=2", 20, 37),
    ("--vmodule=a=2", 20, 37),
)


@pytest.mark.windows("W-NODE-39", "W-NODE-41", "W-NODE-42", "W-NODE-43")
@pytest.mark.parametrize(("flag", "first", "last"), FLAGS_BY_RELEASE)
def test_kubelets_accept_the_flags_of_their_release(flag: str, first: int, last: int) -> None:
    for minor in range(20, 38):
        if first <= minor <= last:
            assert kubelet.parse_kubelet_flags([flag], (1, minor)).texts
        else:
            name = flag.partition("=")[0]
            with pytest.raises(FlagError, match=f"^unknown flag: {name}$"):
                kubelet.parse_kubelet_flags([flag], (1, minor))


def test_only_kubelets_of_windows_have_its_flags() -> None:
    with pytest.raises(FlagError, match="unknown flag: --windows-service"):
        kubelet.parse_kubelet_flags(["--windows-service"], (1, 36), windows=False)


@pytest.mark.windows("W-NODE-44")
@pytest.mark.parametrize(
    ("flag", "minor", "text"),
    [
        ("--network-plugin=cni", 20, ""),
        ("--network-plugin=cni", 21, "will be removed along with dockershim."),
        ("--log-dir=x", 22, ""),
        ("--log-dir=x", 23, "2845-deprecate-klog-specific-flags-in-k8s-components"),
        ("--container-runtime=remote", 24, "will be removed in 1.27 as the only valid value"),
        ("--pod-infra-container-image=x", 26, "will be removed in 1.27. Image garbage"),
        ("--pod-infra-container-image=x", 31, "will be removed in a future release. Image"),
        ("--pod-infra-container-image=x", 34, "will be removed in 1.35. Image garbage"),
    ],
)
def test_flags_are_deprecated_before_they_are_removed(flag: str, minor: int, text: str) -> None:
    release = (1, minor)
    found = kubelet.kubelet_flags(kubelet.parse_kubelet_flags([flag], release), release).deprecated
    assert text in "".join(found) and bool(found) == bool(text)


def test_the_runtime_without_a_flag() -> None:
    assert kubelet.kubelet_flags(kubelet.parse_kubelet_flags([]), (1, 23)).runtime == "docker"
    assert kubelet.kubelet_flags(kubelet.parse_kubelet_flags([]), (1, 24)).runtime == "remote"


@pytest.mark.windows("FLAG-11")
def test_the_priority_class_came_with_1_19() -> None:
    assert kubelet.parse_kubelet_flags(
        ["--windows-priorityclass=HIGH_PRIORITY_CLASS"], (1, 19)
    ).values
    with pytest.raises(FlagError, match="unknown flag: --windows-priorityclass"):
        kubelet.parse_kubelet_flags(["--windows-priorityclass=HIGH_PRIORITY_CLASS"], (1, 18))


@pytest.mark.windows("TRB-10")
@pytest.mark.parametrize("flag", ["--service", "--windows-service", "--windows_service=true"])
def test_both_spellings_of_the_service_flag(flag: str) -> None:
    assert kubelet.kubelet_flags(kubelet.parse_kubelet_flags([flag])).service
    assert kube_proxy.kube_proxy_flags(kube_proxy.parse_kube_proxy_flags([flag])).service


@pytest.mark.windows("TRB-56", "TRB-57", "TRB-62")
def test_kube_proxys_line_as_it_is_printed() -> None:
    """The space before --kubeconfig is missing: it becomes a part of the host's name."""
    line = (
        r"--v=4 --proxy-mode=kernelspace --hostname-override=w{}--kubeconfig=c:\k\config "
        r"--enable-dsr=false "
        r"--log-dir=C:\k --logtostderr=false"
    )
    meant = kube_proxy.kube_proxy_flags(kube_proxy.parse_kube_proxy_flags(line.format(" ").split()))
    assert (meant.flags["hostname-override"], meant.flags["kubeconfig"]) == ("w", r"c:\k\config")
    assert meant.logging == klog.KlogSettings(to_stderr=False, directory=r"C:\k", verbosity=4)
    printed = kube_proxy.kube_proxy_flags(
        kube_proxy.parse_kube_proxy_flags(line.format("").split())
    )
    assert (
        printed.flags["hostname-override"] == r"w--kubeconfig=c:\k\config"
        and "kubeconfig" not in printed.flags
    )


@pytest.mark.windows("TRB-66")
def test_kube_proxys_line_for_overlay_networks() -> None:
    line = (
        r"--v=4 --proxy-mode=kernelspace --feature-gates=WinOverlay=true "
        r"--hostname-override=w --kubeconfig=c:\k\config "
        r"--network-name=vxlan0 --source-vip=10.244.1.2 --enable-dsr=false --log-dir=C:\k "
        r"--logtostderr=false"
    )
    wanted = kube_proxy.kube_proxy_flags(kube_proxy.parse_kube_proxy_flags(line.split()))
    assert (
        wanted.flags["network-name"] == "vxlan0"
        and wanted.flags["source-vip"] == "10.244.1.2"
        and wanted.unused == ()
    )


@pytest.mark.windows("TRB-24")
def test_flannelds_line() -> None:
    line = r"--kubeconfig-file=c:\k\config --iface=10.0.0.3 --ip-masq=1 --kube-subnet-mgr=1"
    wanted = flanneld.flanneld_flags(flanneld.parse_flanneld_flags(line.split()))
    assert wanted == flanneld.FlanneldFlags(
        kubeconfig=r"c:\k\config",
        interfaces=("10.0.0.3",),
        masquerade=True,
        kube_subnet_manager=True,
        etcd="http://127.0.0.1:4001,http://127.0.0.1:2379",
    )
    with pytest.raises(FlagError, match="Invalid subnet-lease-renew-margin"):
        flanneld.flanneld_flags(flanneld.parse_flanneld_flags(["-subnet-lease-renew-margin=0"]))


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--node-labels=a=b"], "node_labels", {"a": "b"}),
        (
            ["--register-with-taints=os=windows:NoSchedule"],
            "register_with_taints",
            ({"key": "os", "value": "windows", "effect": "NoSchedule"},),
        ),
        (["--kube-reserved=cpu=1"], "kube_reserved", {"cpu": "1"}),
        (
            ["--eviction-hard=memory.available<500Mi"],
            "eviction_hard",
            {"memory.available": "500Mi"},
        ),
        (["--feature-gates=WinDSR=true"], "feature_gates", {"WinDSR": True}),
        (["--max-pods=50"], "max_pods", 50),
        (["--container-log-max-size=5Mi"], "container_log_max_size", 5 << 20),
        (["--node-ip=10.0.0.3, fd00::3"], "secondary_node_ip", "fd00::3"),
        (["--root-dir=/k"], "root_dir", "here /k"),
        (["--hostname-override= Minion "], "node_name", "minion"),
        (["--enable-debugging-handlers=false"], "enable_debugging_handlers", False),
    ],
)
def test_flags_that_are_fields(argv: list[str], field: str, value: Any) -> None:
    assert (
        getattr(
            kubelet.kubelet_config_from_flags(
                kubelet.parse_kubelet_flags(argv), BASE, "here {}".format
            ),
            field,
        )
        == value
    )


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (
            ["--hairpin-mode=yes"],
            'invalid configuration: option "yes" specified for hairpinMode (--hairpin-mode). '
            "Valid options "
            'are "none", "hairpin-veth" or "promiscuous-bridge"',
        ),
        (["--hostname-override= "], "failed to run Kubelet: empty hostname is invalid"),
    ],
)
def test_what_the_kubelet_refuses(argv: list[str], text: str) -> None:
    with pytest.raises(FlagError) as refused:
        kubelet.kubelet_config_from_flags(kubelet.parse_kubelet_flags(argv), BASE, str)
    assert str(refused.value) == text


def test_words_after_the_flags() -> None:
    with pytest.raises(FlagError, match="unknown command: run"):
        kubelet.parse_kubelet_flags(["run"])
    with pytest.raises(FlagError, match=r'"kube-proxy" does not take any arguments, got \["run"\]'):
        kube_proxy.parse_kube_proxy_flags(["run"])


def test_gates() -> None:
    assert gates.gate_problem({"WinOverlay": True, "AllAlpha": False}) == ""
    assert gates.gate_problem({"WinUnderlay": True}) == "unrecognized feature gate: WinUnderlay"


@pytest.mark.windows("W-GATE-01", "W-GATE-02", "W-GATE-03", "W-GATE-06", "W-GATE-10")
@pytest.mark.parametrize(
    ("gate", "value", "minor", "problem"),
    [
        ("WinDSR", False, 33, ""),
        ("WinDSR", True, 34, ""),
        ("WinDSR", False, 34, "cannot set feature gate WinDSR to false, feature is locked to true"),
        ("WinOverlay", False, 33, ""),
        ("WinOverlay", False, 36, "feature is locked to true"),
        ("HyperVContainer", True, 20, ""),
        ("HyperVContainer", True, 21, "unrecognized feature gate: HyperVContainer"),
        ("WindowsGMSA", True, 20, ""),
        ("WindowsGMSA", True, 36, "unrecognized feature gate: WindowsGMSA"),
        ("WindowsRunAsUserName", True, 36, "unrecognized feature gate: WindowsRunAsUserName"),
        ("ContextualLogging", True, 36, ""),
        ("AllBeta", True, 36, ""),
    ],
)
def test_gates_by_release(gate: str, value: bool, minor: int, problem: str) -> None:
    found = gates.gate_problem({gate: value}, (1, minor))
    assert problem in found and bool(found) == bool(problem)


def test_flags_without_effect_are_reported() -> None:
    assert kubelet.kubelet_flags(
        kubelet.parse_kubelet_flags(["--oom-score-adj=1", "--v=2"])
    ).unused == ("oom-score-adj",)
    assert kube_proxy.kube_proxy_flags(
        kube_proxy.parse_kube_proxy_flags(["--conntrack-min=1"])
    ).unused == ("conntrack-min",)
    assert flanneld.flanneld_flags(flanneld.parse_flanneld_flags(["--healthz-port=1"])).unused == (
        "healthz-port",
    )


@pytest.mark.parametrize(
    ("flag", "accepted", "refused"),
    [
        ("--cleanup-ipvs", 20, 21),
        ("--udp-timeout=1s", 25, 26),
        ("--proxy-port-range=1-2", 30, 31),
        ("--forward-healthcheck-vip", 24, 23),
        ("--conntrack-udp-timeout=1s", 29, 28),
    ],
)
def test_flags_of_kube_proxy_by_release(flag: str, accepted: int, refused: int) -> None:
    assert kube_proxy.parse_kube_proxy_flags([flag], (1, accepted)).texts
    with pytest.raises(FlagError, match="unknown flag"):
        kube_proxy.parse_kube_proxy_flags([flag], (1, refused))
