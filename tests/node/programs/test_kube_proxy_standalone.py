"""`transom proxy` where it needs no network namespace of its own: settings, printing, the machine's
addresses.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.conftest import Cluster

from transom.kit.user_errors import UserError
from transom.node.programs import kube_proxy_standalone as standalone

TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
     |-- 172.18.0.0
        /16 link UNICAST
     |-- 172.18.0.4
        /32 host LOCAL
     |-- 172.18.255.255
        /32 link BROADCAST
Local:
     |-- 172.18.0.4
        /32 host LOCAL
"""
SIX = """\
00000000000000000000000000000001 01 80 10 80       lo
fd000001000000000000000000000004 02 40 00 80     eth0
fe800000000000000042acfffe120004 02 40 20 80     eth0
"""

OBJECTS = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "win1", "labels": {"kubernetes.io/os": "windows"}},
        "spec": {"podCIDR": "10.244.1.0/24"},
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {
            "type": "NodePort",
            "clusterIP": "10.96.7.7",
            "ports": [{"port": 80, "targetPort": 8080}],
        },
    },
    {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "web"},
        "subsets": [
            {
                "addresses": [
                    {"ip": "10.244.1.5", "nodeName": "win1"},
                    {"ip": "10.244.2.5", "nodeName": "lin1"},
                ],
                "ports": [{"port": 8080}],
            }
        ],
    },
]


def test_addresses_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "fib_trie").write_text(TRIE)
    (tmp_path / "if_inet6").write_text(SIX)
    assert standalone.machine_addresses(tmp_path) == ["172.18.0.4", "fd00:1::4"]
    assert standalone.machine_addresses(tmp_path / "none") == []


def test_settings_are_checked_before_anything_else(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="empty hostname-override is invalid"):
        standalone.run_kube_proxy(standalone.KubeProxyOptions(flags={"hostname-override": " "}))
    with pytest.raises(UserError, match="failed complete"):
        standalone.run_kube_proxy(standalone.KubeProxyOptions(config=tmp_path / "none.yaml"))
    with pytest.raises(UserError, match=r'invalid argument "x" for "--enable-dsr" flag'):
        standalone.print_proxy_rules(standalone.KubeProxyOptions(flags={"enable-dsr": "x"}))


@pytest.mark.e2e
def test_what_nodes_would_receive(fresh_cluster: Cluster) -> None:
    """Against a real API server, with a Linux and a Windows node that are objects only."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"apiVersion": "v1", "kind": "List", "items": OBJECTS}, file)
        file.flush()
        if shutil.which("kubectl") is None:
            pytest.skip("no kubectl on this machine")
        subprocess.run(
            ["kubectl", "apply", "--filename", file.name],
            env=fresh_cluster.env,
            check=True,
            capture_output=True,
        )
    target = ("--kubeconfig", str(fresh_cluster.kubeconfig))
    recorded = json.loads(
        fresh_cluster.transom(
            "proxy", *target, "--hostname-override=WIN1", "--output", "hns"
        ).stdout
    )
    remotes = [each["IpConfigurations"][0]["IpAddress"] for each in recorded["remoteEndpoints"]]
    assert remotes == ["10.244.2.5"]
    vips = {(each.get("FrontendVIPs") or [""])[0]: each for each in recorded["loadBalancers"]}
    assert set(vips) == {"10.96.7.7", ""} and len(vips["10.96.7.7"]["HostComputeEndpoints"]) == 2
    rules = fresh_cluster.transom("proxy", *target, "--hostname-override=lin1", "--dry-run").stdout
    assert "table ip transom-proxy {" in rules and "10.96.7.7 . tcp . 80" in rules
    refused = fresh_cluster.transom("proxy", *target, "--hostname-override=win1", check=False)
    assert (
        refused.returncode == 1
        and "win1 is a Windows node, but this machine does not run Windows" in refused.stderr
    )
