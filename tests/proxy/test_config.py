from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from transom.proxy.config import (
    ProxyConfig,
    ProxyConfigError,
    check_proxy_config,
    host_port,
    linux_mode,
    proxy_config_from_flags,
    read_proxy_config,
    validate_proxy_config,
    windows_mode,
)

HEAD = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}


def test_a_file_with_what_windows_reads() -> None:
    document = {
        **HEAD,
        "mode": "kernelspace",
        "clusterCIDR": "10.244.0.0/16",
        "hostnameOverride": "win1",
        "winkernel": {"networkName": "vxlan0", "sourceVip": "10.244.1.9", "enableDSR": True},
        "iptables": {"syncPeriod": "1m30s", "minSyncPeriod": "500ms", "masqueradeBit": None},
        "featureGates": {"WinDSR": True},
        "conntrack": {"maxPerCore": 1},
        "clientConnection": {"kubeconfig": "c:\\k\\config"},
        "metricsBindAddress": "0.0.0.0",
        "oomScoreAdj": -999,
    }
    config = read_proxy_config(document)
    check_proxy_config(config, "windows")
    assert (config.mode, config.network_name, config.source_vip, config.enable_dsr) == (
        "kernelspace",
        "vxlan0",
        "10.244.1.9",
        True,
    )
    assert (config.sync_period, config.min_sync_period, config.masquerade_bit) == (90.0, 0.5, 14)
    assert (config.metrics_bind_address, config.healthz_bind_address) == (
        "0.0.0.0:10249",
        "0.0.0.0:10256",
    )
    options = config.winkernel({"KUBE_NETWORK": "cbr0"}, node_ip="172.18.0.4")
    assert (
        options.network_name,
        options.gate("WinDSR"),
        options.gate("WinOverlay"),
        options.slices,
    ) == (
        "vxlan0",
        True,
        True,
        False,
    )
    assert read_proxy_config(config.document()) == config


def test_unknown_fields_are_only_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "transom.proxy"):
        assert read_proxy_config({**HEAD, "winkernel": {"nope": 1}}) == ProxyConfig()
    assert 'unknown field "winkernel.nope"' in caplog.text


def test_with_a_file_flags_count_for_nothing_but_the_name(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: "
        "kernelspace\n"
    )
    config = proxy_config_from_flags(
        {"proxy-mode": "userspace", "hostname-override": " WIN1 "}, file
    )
    assert (config.mode, config.hostname_override) == ("kernelspace", "win1")
    config = proxy_config_from_flags(
        {
            "proxy-mode": "userspace",
            "feature-gates": "WinDSR=true,WinOverlay=false",
            "enable-dsr": "true",
        }
    )
    assert (config.mode, config.enable_dsr) == ("userspace", True)
    assert config.gates == {"WinDSR": True, "WinOverlay": False}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "failed complete: couldn't get version/kind"),
        ({"kind": "Pod", "apiVersion": "v1"}, 'no kind "Pod" is registered for version "v1"'),
        ({**HEAD, "iptables": {"syncPeriod": "soon"}}, 'time: invalid duration "soon"'),
        ({**HEAD, "mode": 7}, "cannot unmarshal int into field mode"),
    ],
)
def test_files_that_are_none(document: Any, text: str) -> None:
    with pytest.raises(ProxyConfigError) as caught:
        read_proxy_config(document)
    assert text in str(caught.value)


@pytest.mark.windows("TRB-58")
@pytest.mark.parametrize(
    ("os", "config", "text"),
    [
        (
            "windows",
            ProxyConfig(mode="iptables"),
            'KubeProxyConfiguration.Mode.ProxyMode: Invalid value: "iptables": must be '
            "kernelspace,userspace or blank (blank "
            "means the most-available proxy [currently userspace])",
        ),
        (
            "linux",
            ProxyConfig(mode="kernelspace"),
            'KubeProxyConfiguration.Mode.ProxyMode: Invalid value: "kernelspace": must be '
            "iptables,ipvs,userspace or blank "
            "(blank means the best-available proxy [currently iptables])",
        ),
        (
            "linux",
            ProxyConfig(bind_address="x"),
            (
                'KubeProxyConfiguration.BindAddress: Invalid value: "x": not a valid textual '
                "representation of an IP address"
            ),
        ),
        (
            "linux",
            ProxyConfig(cluster_cidr="10.244.0.0/16,fd00::/64"),
            'KubeProxyConfiguration.ClusterCIDR: Invalid value: "10.244.0.0/16,fd00::/64": '
            "only one CIDR allowed (e.g. "
            "10.100.0.0/16 or fde4:8dba:82e1::/48)",
        ),
        (
            "linux",
            ProxyConfig(healthz_bind_address="1.2.3.4:0"),
            'KubeProxyConfiguration.HealthzBindAddress: Invalid value: "0": must be a valid port',
        ),
        (
            "linux",
            ProxyConfig(masquerade_bit=32),
            "KubeProxyConfiguration.KubeProxyIPTablesConfiguration.MasqueradeBit: Invalid "
            "value: 32: must be within the "
            "range [0, 31]",
        ),
    ],
)
def test_checks(os: Any, config: ProxyConfig, text: str) -> None:
    with pytest.raises(ProxyConfigError) as caught:
        check_proxy_config(config, os)
    assert str(caught.value) == f"failed validate: {text}"


@pytest.mark.windows("W-SVC-01", "SUP-SVC-101")
@pytest.mark.parametrize(
    ("os", "mode", "since", "until"),
    [
        ("windows", "kernelspace", 20, 37),
        ("windows", "userspace", 20, 25),
        ("windows", "iptables", 0, 0),
        ("windows", "nftables", 0, 0),
        ("linux", "userspace", 20, 25),
        ("linux", "ipvs", 20, 37),
        ("linux", "nftables", 31, 37),
        ("linux", "kernelspace", 0, 0),
    ],
)
def test_modes_by_release(os: Any, mode: str, since: int, until: int) -> None:
    for minor in range(20, 38):
        found = validate_proxy_config(ProxyConfig(mode=mode), os, (1, minor))
        assert (not found) is (since <= minor <= until), minor
    if until == 0:
        text = str(validate_proxy_config(ProxyConfig(mode=mode), os, (1, 36))[0])
        usual = {
            "windows": "must be kernelspace or blank (blank means the most-available proxy "
            "[currently 'kernelspace'])",
            "linux": "must be iptables, ipvs, nftables or blank (blank means the best-available "
            "proxy [currently iptables])",
        }
        assert text.endswith(usual[os])


def test_the_gate_of_nftables() -> None:
    gated = ProxyConfig(mode="nftables", gates={"NFTablesProxyMode": True})
    assert validate_proxy_config(gated, "linux", (1, 29)) == []
    assert validate_proxy_config(gated, "linux", (1, 28)) != []


def test_two_ranges_need_dual_stack() -> None:
    check_proxy_config(
        ProxyConfig(cluster_cidr="10.244.0.0/16,fd00::/64", gates={"IPv6DualStack": True}), "linux"
    )


@pytest.mark.parametrize(
    ("wanted", "compatible", "mode", "text"),
    [
        ("kernelspace", True, "kernelspace", "Using Kernelspace Proxier."),
        ("", True, "userspace", "Using userspace Proxier."),
        ("userspace", True, "userspace", "Using userspace Proxier."),
        (
            "kernelspace",
            False,
            "userspace",
            "Can't determine whether to use windows kernel proxy, using userspace proxier: "
            "Windows kernel is not "
            "compatible for Kernel mode",
        ),
    ],
)
def test_modes_of_windows(
    wanted: str, compatible: bool, mode: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "transom.proxy"):
        assert windows_mode(wanted, compatible=compatible) == mode
    assert text in caplog.messages


def test_modes_of_linux(caplog: pytest.LogCaptureFixture) -> None:
    assert linux_mode("") == "iptables"
    assert 'Unknown proxy mode "", assuming iptables proxy' in caplog.messages


def test_small_things() -> None:
    assert host_port("[::]:10256") == ("::", 10256)
