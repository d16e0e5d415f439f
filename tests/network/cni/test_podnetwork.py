"""Sandboxes get addresses and lose them: on Linux by flannel and bridge, on Windows by flannel,
win-bridge and HNS.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from transom.network.api import DnsConfig, NetworkFailure, PortMapping, SandboxNetwork

CLUSTER, CIDR = "10.244.0.0/16", "10.244.1.0/24"


def waits(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))

    return run


def sandbox(name: str, **more: Any) -> SandboxNetwork:
    return SandboxNetwork(name, "default", "web-0", "uid", **more)


async def refused(network: Any, wish: SandboxNetwork) -> str:
    with pytest.raises(NetworkFailure) as caught:
        await network.add(wish)
    return str(caught.value)


@waits
async def test_a_linux_sandbox_has_a_veth_on_the_bridge_and_goes_without_a_trace(
    cluster: Any, node: Any
) -> None:
    pods = cluster.pods(node, CIDR)
    assert pods.ready() == ""
    assert await pods.add(sandbox("s1")) == ["10.244.1.2"]
    assert await pods.add(sandbox("s2")) == ["10.244.1.3"]
    assert await pods.add(sandbox("s1")) == ["10.244.1.2"]
    stack = cluster.fabric.owner("10.244.1.2")
    assert (stack.name, stack.sandbox, stack.node, stack.role) == ("n1/s1", "s1", "n1", "sandbox")
    assert stack.route("10.244.7.7").via == "10.244.1.1"
    assert stack.route("203.0.113.9").via == "10.244.1.1"
    host_end = node.machine.stack.links[stack.links["eth0"].peer[1]]
    assert (host_end.master, host_end.hairpin) == ("cni0", True)
    assert [str(a) for a in node.machine.stack.links["cni0"].addresses] == ["10.244.1.1/24"]
    assert node.machine.stack.forwarding
    for name in ("s1", "s1", "s2", "never"):
        await pods.remove(name)
    assert set(cluster.fabric.stacks) == {"n1"}
    assert set(node.machine.stack.links) == {"lo", "eth0", "cni0"}
    assert node.files.listdir("/var/lib/cni/networks/cbr0") == ["last_reserved_ip.0", "lock"]
    assert (
        node.files.listdir("/var/lib/cni/results")
        == node.files.listdir("/var/lib/cni/flannel")
        == []
    )
    assert not node.machine.namespaces


@waits
async def test_missing_parts_are_reported_and_nothing_is_left(cluster: Any, node: Any) -> None:
    pods = cluster.pods(node, CIDR)
    node.files.remove("/run/flannel/subnet.env")
    assert (
        await refused(pods, sandbox("s1"))
        == "open /run/flannel/subnet.env: no such file or directory"
    )
    assert set(cluster.fabric.stacks) == {"n1"}
    node.files.remove("/etc/cni/net.d/10-flannel.conflist")
    assert pods.ready() == "cni config uninitialized"
    assert pods.network() == "no network config found in /etc/cni/net.d: cni plugin not initialized"
    assert await refused(pods, sandbox("s1")) == "cni config uninitialized"


@pytest.mark.parametrize(
    ("labelled", "prefix"), [(False, ""), (True, 'plugin type="flannel" failed (add): ')]
)
@waits
async def test_newer_runtimes_say_which_plugin_it_was(
    cluster: Any, node: Any, labelled: bool, prefix: str
) -> None:
    pods = cluster.pods(node, CIDR, labelled=labelled)
    node.files.remove("/run/flannel/subnet.env")
    assert (
        await refused(pods, sandbox("s1"))
        == prefix + "open /run/flannel/subnet.env: no such file or directory"
    )


@waits
async def test_docker_passes_over_a_configuration_whose_plugin_is_not_there(
    cluster: Any, node: Any
) -> None:
    pods = cluster.pods(node, CIDR, "docker")
    node.files.write(
        "/etc/cni/net.d/05-other.conf", b'{"cniVersion":"0.3.1","name":"x","type":"calico"}'
    )
    assert await pods.add(sandbox("s1")) == ["10.244.1.2"]
    other = cluster.pods(cluster.linux("n2", 4), "10.244.2.0/24", "containerd")
    other.machine.files.write(
        "/etc/cni/net.d/05-other.conf", b'{"cniVersion":"0.3.1","name":"x","type":"calico"}'
    )
    assert (
        await refused(other, sandbox("s1"))
        == 'failed to find plugin "calico" in path [/opt/cni/bin]'
    )


@waits
async def test_while_there_is_a_fault_nothing_works(cluster: Any, node: Any) -> None:
    pods = cluster.pods(node, CIDR)
    await pods.add(sandbox("s1"))
    pods.fault = "network is down"
    assert pods.ready() == "network is down"
    assert await refused(pods, sandbox("s2")) == "network is down"
    with pytest.raises(NetworkFailure, match="network is down"):
        await pods.remove("s1")
    pods.fault = ""
    await pods.remove("s1")
    assert cluster.fabric.owner("10.244.1.2") is None


@waits
async def test_a_host_port_is_one_sandboxs(cluster: Any, node: Any) -> None:
    pods = cluster.pods(node, CIDR)
    await pods.add(sandbox("s1", ports=[PortMapping(80, 8080), PortMapping(9000, 0)]))
    rules = node.machine.stack.tables["ip transom-hostports"].chains["hostports"].rules
    assert len(rules) == 3
    text = (
        "cannot open hostport 8080 for pod web-0_default: listen tcp4 :8080: bind: address "
        "already in use"
    )
    assert await refused(pods, sandbox("s2", ports=[PortMapping(81, 8080)])) == text
    assert await pods.add(sandbox("s3", ports=[PortMapping(81, 8080, "UDP")])) == ["10.244.1.3"]
    await pods.remove("s1")
    assert await pods.add(sandbox("s2", ports=[PortMapping(81, 8080)])) == ["10.244.1.4"]
    await pods.remove("s2")
    await pods.remove("s3")
    assert "ip transom-hostports" not in node.machine.stack.tables


@waits
async def test_bandwidth_comes_from_annotations(cluster: Any, node: Any) -> None:
    pods = cluster.pods(node, CIDR)
    conf = json.loads(node.files.read("/etc/cni/net.d/10-flannel.conflist"))
    conf["plugins"].append({"type": "bandwidth", "capabilities": {"bandwidth": True}})
    node.files.write("/etc/cni/net.d/10-flannel.conflist", json.dumps(conf).encode())
    await pods.add(sandbox("s1", annotations={"kubernetes.io/ingress-bandwidth": "10M"}))
    assert node.machine.memory["bandwidth"]["s1"] == {
        "ingressRate": 10_000_000,
        "ingressBurst": 2**31 - 1,
        "egressRate": 0,
        "egressBurst": 0,
    }
    words = "failed to get pod bandwidth from annotations: resource is unreasonably small (< 1kbit)"
    assert (
        await refused(pods, sandbox("s2", annotations={"kubernetes.io/egress-bandwidth": "10"}))
        == words
    )


@waits
async def test_docker_wants_the_nodes_range_for_ip_ranges(cluster: Any, node: Any) -> None:
    pods = cluster.pods(node, CIDR, "docker")
    node.files.write(
        "/etc/cni/net.d/10-flannel.conflist",
        json.dumps(
            {
                "name": "b",
                "cniVersion": "0.3.1",
                "plugins": [
                    {
                        "type": "bridge",
                        "capabilities": {"ipRanges": True},
                        "ipam": {"type": "host-local"},
                    }
                ],
            }
        ).encode(),
    )
    pods.cidr = ""
    assert pods.ready() == "cni config needs ipRanges but no PodCIDR set"
    pods.use("10.244.9.0/24")
    assert await pods.add(sandbox("s1")) == ["10.244.9.2"]


@pytest.mark.parametrize("runtime", ["docker", "containerd"])
@pytest.mark.parametrize(
    ("mode", "first", "gateway"),
    [("l2bridge", "10.244.2.3", "10.244.2.2"), ("overlay", "10.244.2.2", "10.244.2.1")],
)
@waits
async def test_a_windows_sandbox_has_the_endpoints_adapter(
    cluster: Any, runtime: str, mode: str, first: str, gateway: str
) -> None:
    node = cluster.windows("w1", 4)
    pods = cluster.pods(node, "10.244.2.0/24", runtime, mode)
    dns = DnsConfig(("10.96.0.10",), ("default.svc.cluster.local", "svc.cluster.local"))
    before = len(node.hns.endpoints)
    assert await pods.add(sandbox("s1", dns=dns, ports=[PortMapping(80, 8080)])) == [first]
    stack = cluster.fabric.owner(first)
    assert (stack.name, stack.os) == ("w1/s1", "windows")
    link = stack.links["Ethernet"]
    endpoint = node.hns.endpoints[link.endpoint]
    assert endpoint["Name"] == f"s1_{'cbr0' if mode == 'l2bridge' else 'vxlan0'}"
    assert (link.kind, link.mtu) == ("vnic", 1500 if mode == "l2bridge" else 1450)
    assert stack.route("203.0.113.9").via == gateway
    assert stack.route("10.244.2.77").via == ""
    assert endpoint["Dns"]["ServerList"] == ["10.96.0.10"]
    kinds = {policy["Type"]: policy["Settings"] for policy in endpoint["Policies"]}
    exceptions = [CLUSTER, "10.96.0.0/12"] + (["172.18.0.0/16"] if mode == "l2bridge" else [])
    assert set(exceptions) <= set(kinds["OutBoundNAT"]["Exceptions"])
    if (runtime, mode) != ("docker", "overlay"):  # win-overlay maps no ports
        assert kinds["PortMapping"]["ExternalPort"] == 8080
    kind, whose = node.hns.attachment(endpoint["ID"])
    if runtime == "docker":
        assert (kind, whose) == ("container", "s1")
        assert pods.status("s1") == [first]  # docker adds again to know the address
    else:
        assert kind == "namespace"
        assert whose in node.hns.namespaces
    await pods.remove("s1")
    await pods.remove("s1")
    assert len(node.hns.endpoints) == before
    assert not node.hns.namespaces or runtime == "docker"
    assert set(cluster.fabric.stacks) == {"w1"}
    assert await pods.add(sandbox("s1")) != [first]  # round robin


@waits
async def test_a_windows_sandbox_whose_endpoint_hns_refuses_leaves_nothing(cluster: Any) -> None:
    node = cluster.windows("w1", 4)
    pods = cluster.pods(node, "10.244.2.0/24", "docker")
    node.hns.delete("network", node.hns.list("network", Name="cbr0")[0]["ID"])
    assert await refused(pods, sandbox("s1")) == (
        "error while executing ADD command: error while GETHNSNewtorkByName(cbr0): Network "
        "cbr0 not found"
    )
    assert set(cluster.fabric.stacks) == {"w1"}
    names = node.files.listdir(r"C:\var\lib\cni\networks\cbr0")
    assert names == ["10.244.2.2"]  # the host's endpoint


@pytest.mark.windows("TRB-50", "TRB-51", "TRB-76", "NET-01", "NET-43")
@waits
async def test_files_of_a_windows_node_decide(cluster: Any) -> None:
    """Configuration, plugins and subnet.env are files of the node; what is changed counts for the
    next pod.
    """
    node = cluster.windows("w1", 4)
    pods = cluster.pods(node, "10.244.2.0/24", "docker")
    await pods.add(sandbox("s1"))
    path = r"c:\k\cni\config\cni.conf"
    conf = json.loads(node.files.read(path))
    node.files.write(path, b"{ # a comment")
    assert pods.ready() == ""  # the kubelet goes on with what it had
    conf["delegate"]["policies"][0]["Value"]["ExceptionList"].append("192.0.2.0/24")
    node.files.write(path, json.dumps(conf).encode())
    await pods.add(sandbox("s2"))
    kept = [
        "192.0.2.0/24" in str(node.hns.list("endpoint", Name=f"{name}_cbr0")[0]["Policies"])
        for name in ("s1", "s2")
    ]
    assert kept == [False, True]
    node.files.remove(r"c:\k\cni\win-bridge.exe")
    assert (
        await refused(pods, sandbox("s3"))
        == r'failed to find plugin "win-bridge" in path [c:\k\cni]'
    )
    node.files.remove(path)
    assert pods.ready() == "cni config uninitialized"
    assert pods.network() == r"no networks found in c:\k\cni\config"


@pytest.mark.windows("CNI-01", "CNI-02", "WIN-NET-004", "WIN-NET-005")
@pytest.mark.parametrize("mode", ["l2bridge", "overlay"])
@waits
async def test_windows_plugins_do_not_know_0_4_0(cluster: Any, mode: str) -> None:
    node = cluster.windows("w1", 4)
    pods = cluster.pods(node, "10.244.2.0/24", "docker", mode)
    path = r"c:\k\cni\config\cni.conf"
    node.files.write(path, node.files.read(path).replace(b'"0.2.0"', b'"0.4.0"'))
    assert await refused(pods, sandbox("s1")) == (
        'incompatible CNI versions; config is "0.4.0", plugin supports ["0.1.0" "0.2.0" "0.3.0"]'
    )


@pytest.mark.windows("TRB-93", "TRB-94", "SUP-TRB-014")
@waits
async def test_subnet_env_that_is_missing_on_windows(cluster: Any) -> None:
    node = cluster.windows("w1", 4)
    pods = cluster.pods(node, "10.244.2.0/24", "docker")
    node.files.remove(r"C:\run\flannel", recursive=True)
    text = "open /run/flannel/subnet.env: The system cannot find the path specified."
    assert await refused(pods, sandbox("s1")) == text
    cluster.flannel(node, "10.244.2.0/24")  # started again
    assert await pods.add(sandbox("s1")) == ["10.244.2.3"]
