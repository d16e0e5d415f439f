"""flannel: the plugin's delegates, net-conf.json, leases, and what the agent makes on nodes of both
systems.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from transom.network.cni import defaults, flannelconf
from transom.network.cni.flannel import delegate_config, read_subnet, write_subnet
from transom.network.cni.flannelconf import FlannelError
from transom.network.cni.flanneld import Flanneld
from transom.network.cni.flanneld_windows import NO_HOST_ROUTE
from transom.network.cni.leases import SubnetLease, SubnetLeases
from transom.network.cni.plugin import CniError
from transom.network.cni.sourcevip import FILE, source_vip
from transom.network.nft import Masquerade

ENV = write_subnet("10.244.0.0/16", "10.244.1.0/24", 1450, True)
PATH = "/run/flannel/subnet.env"
VXLAN = {"Type": "vxlan", "VNI": 4096, "Port": 4789, "Name": "vxlan0"}


# ---- the plugin ----


def test_subnet_env() -> None:
    assert ENV == (
        b"FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
    )
    env = read_subnet(ENV, PATH)
    assert (env.network, env.subnet, env.mtu, env.masquerade) == (
        "10.244.0.0/16",
        "10.244.1.0/24",
        1450,
        True,
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            b"",
            f"{PATH} is missing FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET, "
            "FLANNEL_IPV6_SUBNET, FLANNEL_MTU, "
            "FLANNEL_IPMASQ",
        ),
        (ENV.replace(b"FLANNEL_MTU", b"X"), f"{PATH} is missing FLANNEL_MTU"),
        (ENV.replace(b"1450", b"many"), 'strconv.ParseUint: parsing "many": invalid syntax'),
        (ENV.replace(b"10.244.1.1/24", b"10.244.1.1"), "invalid CIDR address: 10.244.1.1"),
    ],
)
def test_invalid_subnet_env(data: bytes, text: str) -> None:
    with pytest.raises(CniError) as caught:
        read_subnet(data, PATH)
    assert str(caught.value) == text


def test_the_delegate_on_linux_and_on_windows() -> None:
    env = read_subnet(ENV, PATH)
    conf = {"name": "cbr0", "cniVersion": "0.3.1", "delegate": {"isDefaultGateway": True}}
    assert delegate_config(conf, env, "linux") == {
        "name": "cbr0",
        "cniVersion": "0.3.1",
        "type": "bridge",
        "isDefaultGateway": True,
        "isGateway": True,
        "ipMasq": False,
        "mtu": 1450,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": "10.244.1.0/24"}]],
            "routes": [{"dst": "10.244.0.0/16"}],
        },
    }
    assert delegate_config({"name": "cbr0", "runtimeConfig": {"dns": {}}}, env, "windows") == {
        "name": "cbr0",
        "cniVersion": "0.2.0",
        "type": "win-bridge",
        "ipMasq": True,
        "ipMasqNetwork": "10.244.0.0/16",
        "runtimeConfig": {"dns": {}},
        "ipam": {"type": "host-local", "subnet": "10.244.1.0/24"},
    }


@pytest.mark.parametrize(
    ("delegate", "text"),
    [
        ({"type": 5}, "'delegate' dictionary, if present, must have (string) 'type' field"),
        (
            {"name": "x"},
            "'delegate' dictionary must not have 'name' field, it'll be set by flannel",
        ),
        ({"ipam": {}}, "'delegate' dictionary must not have 'ipam' field, it'll be set by flannel"),
    ],
)
def test_delegates_that_are_refused(delegate: dict[str, Any], text: str) -> None:
    with pytest.raises(CniError) as caught:
        delegate_config({"name": "n", "delegate": delegate}, read_subnet(ENV, PATH), "linux")
    assert str(caught.value) == text


def test_what_was_handed_over_is_kept_until_del(node: Any, cluster: Any) -> None:
    node.files.mkdir("/run/flannel")
    node.files.write(PATH, ENV)
    node.sandbox("c1")
    conf = {"type": "flannel", "name": "cbr0", "delegate": {"isDefaultGateway": True}}
    assert node.add(conf)["ips"][0]["address"] == "10.244.1.2/24"
    scratch = json.loads(node.files.read("/var/lib/cni/flannel/c1"))
    assert scratch["type"] == "bridge"
    node.files.remove(PATH)  # not needed any more
    node.call("DEL", conf)
    assert node.files.listdir("/var/lib/cni/flannel") == []
    assert node.files.listdir("/var/lib/cni/networks/cbr0") == ["last_reserved_ip.0", "lock"]
    node.call("DEL", conf)
    windows = cluster.windows("w", 9)
    assert windows.refused("ADD", {"type": "flannel", "cniVersion": "0.2.0"}) == (
        "open /run/flannel/subnet.env: The system cannot find the path specified."
    )
    windows.files.mkdir(r"C:\run\flannel")
    assert windows.refused("ADD", {"type": "flannel", "cniVersion": "0.2.0"}) == (
        "open /run/flannel/subnet.env: The system cannot find the file specified."
    )


# ---- net-conf.json ----


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("{", "error parsing subnet config: unexpected end of JSON input"),
        (
            "[]",
            (
                "error parsing subnet config: json: cannot unmarshal array into Go value of type "
                "subnet.Config"
            ),
        ),
        ('{"Network":"10.0.0.0"}', "error parsing subnet config: invalid CIDR address: 10.0.0.0"),
        ("{}", "unknown backend type: udp"),
        ('{"Backend":{"Type":"Wireguard"}}', "unknown backend type: wireguard"),
        ('{"EnableIPv4":false,"Backend":{"Type":"vxlan"}}', "none defined stack"),
    ],
)
def test_net_conf_that_is_refused(data: str, text: str) -> None:
    with pytest.raises(FlannelError) as caught:
        flannelconf.parse_flannel_conf(data)
    assert str(caught.value) == text


@pytest.mark.windows("WIN-NET-008", "WIN-NET-009")
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"VNI": 1}, "VNI [1] must be greater than or equal to 4096 on Windows"),
        (
            {"Port": 8472},
            "Port [8472] is not supported on Windows. Omit the setting to default to port 4789",
        ),
        ({"DirectRouting": True}, "DirectRouting is not supported on Windows"),
        ({"GBP": True}, "GBP is not supported on Windows"),
    ],
)
def test_vxlan_that_windows_refuses(settings: dict[str, Any], text: str) -> None:
    conf = flannelconf.parse_flannel_conf(
        defaults.net_conf("10.244.0.0/16", {"Type": "vxlan", **settings})
    )
    with pytest.raises(FlannelError) as caught:
        flannelconf.vxlan_settings(conf, "windows")
    assert str(caught.value) == "invalid VXLAN backend config. " + text
    assert flannelconf.vxlan_settings(conf, "linux").vni == settings.get("VNI", 1)


def test_vxlan_without_settings() -> None:
    conf = flannelconf.parse_flannel_conf(defaults.net_conf("10.244.0.0/16", {"Type": "vxlan"}))
    linux, windows = (
        flannelconf.vxlan_settings(conf, "linux"),
        flannelconf.vxlan_settings(conf, "windows"),
    )
    assert (linux.vni, linux.port, linux.name) == (1, 8472, "flannel.1")
    assert (windows.vni, windows.port, windows.name) == (4096, 4789, "flannel.4096")


# ---- leases ----


def test_the_backend_data_of_a_lease_has_the_vni_and_the_mac_address() -> None:
    lease = SubnetLease(
        "n1", "10.244.1.0/24", "172.18.0.3", '{"VNI":4096,"VtepMAC":"0e:00:00:00:00:01"}', "vxlan"
    )
    assert lease.vtep() == (4096, "0e:00:00:00:00:01")


# ---- the agent ----


def test_host_gw_on_both_systems_and_only_when_read(cluster: Any) -> None:
    linux, windows = cluster.linux("n1", 3), cluster.windows("w1", 4)
    one = cluster.flannel(linux, "10.244.1.0/24")
    two = cluster.flannel(windows, "10.244.2.0/24")
    assert one.annotations() == {
        "flannel.alpha.coreos.com/backend-type": "host-gw",
        "flannel.alpha.coreos.com/backend-data": "null",
        "flannel.alpha.coreos.com/public-ip": "172.18.0.3",
        "flannel.alpha.coreos.com/kube-subnet-manager": "true",
    }
    assert linux.machine.stack.route("10.244.2.5").destination.prefixlen == 0
    assert one.dirty
    cluster.fabric.refresh_node("n1")
    assert not one.dirty
    assert two.dirty
    route = linux.machine.stack.route("10.244.2.5")
    assert (route.via, route.link) == ("172.18.0.4", "eth0")
    cluster.fabric.refresh_node("w1")
    route = windows.machine.stack.route("10.244.1.5")
    assert (route.via, route.link) == ("172.18.0.3", "vEthernet (Ethernet)")
    assert windows.machine.stack.forwarding
    network = windows.hns.list("network", Name="cbr0")[0]
    assert network["Type"] == "L2Bridge"
    assert windows.hns.attachment(windows.hns.list("endpoint", Name="cbr0_ep")[0]["ID"]) == (
        "host",
        "1",
    )
    assert [str(a) for a in windows.machine.stack.links["vEthernet (cbr0_ep)"].addresses] == [
        "10.244.2.2/24"
    ]
    assert windows.files.read(r"C:\run\flannel\subnet.env") == write_subnet(
        "10.244.0.0/16", "10.244.2.0/24", 1500, True
    )
    # a node that gets another subnet, and one that goes
    cluster.leases.put(SubnetLease("n9", "10.244.9.0/24", "172.18.0.9"))
    cluster.leases.put(SubnetLease("n9", "10.244.8.0/24", "172.18.0.9"))
    cluster.leases.remove("w1")
    cluster.leases.put(SubnetLease("other", "10.244.7.0/24", "172.18.0.7", "null", "vxlan"))
    cluster.fabric.refresh_node("n1")
    assert linux.machine.stack.route("10.244.8.1").via == "172.18.0.9"
    for gone in ("10.244.9.1", "10.244.2.1", "10.244.7.1"):
        assert linux.machine.stack.route(gone).destination.prefixlen == 0
    # started again: the same network is used
    endpoint = windows.hns.list("endpoint", Name="cbr0_ep")[0]["ID"]
    cluster.flannel(windows, "10.244.2.0/24")
    assert windows.hns.list("endpoint", Name="cbr0_ep")[0]["ID"] == endpoint
    assert windows.hns.list("network", Name="cbr0")[0]["ID"] == network["ID"]
    cluster.flannel(windows, "10.244.3.0/24")
    assert windows.hns.list("network", Name="cbr0")[0]["ID"] != network["ID"]


def test_unread_agents_cost_nothing(cluster: Any) -> None:
    node = cluster.linux("n1", 3)
    agent = cluster.flannel(node, "10.244.1.0/24")
    recorded: list[str] = []
    cluster.fabric.listeners.append(lambda _stack, what, name: recorded.append(what))
    for number in range(2, 200):
        cluster.leases.put(SubnetLease(f"n{number}", f"10.244.{number}.0/24", f"172.18.1.{number}"))
    assert recorded == []
    agent.sync()
    assert recorded == ["route"] * 198
    agent.sync()
    assert len(recorded) == 198


def test_vxlan_on_linux(cluster: Any) -> None:
    one, two = cluster.linux("n1", 3), cluster.linux("n2", 4)
    cluster.flannel(one, "10.244.1.0/24", VXLAN)
    agent = cluster.flannel(two, "10.244.2.0/24", VXLAN)
    mac = two.machine.stack.links["flannel.4096"].mac
    assert json.loads(agent.annotations()["flannel.alpha.coreos.com/backend-data"]) == {
        "VNI": 4096,
        "VtepMAC": mac,
    }
    assert one.files.read("/run/flannel/subnet.env").endswith(
        b"FLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
    )
    cluster.fabric.refresh_node("n1")
    stack = one.machine.stack
    link = stack.links["flannel.4096"]
    assert (link.vni, link.port, link.local, link.mtu, link.fdb) == (
        4096,
        4789,
        "172.18.0.3",
        1450,
        {mac: "172.18.0.4"},
    )
    assert [str(a) for a in link.addresses] == ["10.244.1.0/32"]
    assert stack.neighbours == {"10.244.2.0": (mac, "flannel.4096")}
    route = stack.route("10.244.2.9")
    assert (route.via, route.link, route.onlink) == ("10.244.2.0", "flannel.4096", True)
    cluster.leases.remove("n2")
    cluster.fabric.refresh_node("n1")
    assert (stack.neighbours, link.fdb, stack.route("10.244.2.9").destination.prefixlen) == (
        {},
        {},
        0,
    )


def test_direct_routing_needs_no_tunnel_in_one_segment(cluster: Any) -> None:
    one = cluster.linux("n1", 3)
    cluster.flannel(one, "10.244.1.0/24", {**VXLAN, "DirectRouting": True})
    data = '{"VNI":4096,"VtepMAC":"0e:00:00:00:00:01"}'
    cluster.leases.put(SubnetLease("near", "10.244.2.0/24", "172.18.0.4", data, "vxlan"))
    cluster.leases.put(SubnetLease("far", "10.244.3.0/24", "198.51.100.4", data, "vxlan"))
    cluster.fabric.refresh_node("n1")
    assert one.machine.stack.route("10.244.2.1").link == "eth0"
    assert one.machine.stack.route("10.244.3.1").link == "flannel.4096"


def test_vxlan_on_windows(cluster: Any) -> None:
    linux, windows = cluster.linux("n1", 3), cluster.windows("w1", 4)
    log: list[str] = []
    first = cluster.flannel(linux, "10.244.1.0/24", VXLAN)
    agent = cluster.flannel(windows, "10.244.2.0/24", VXLAN, log=log.append, version="0.14.0")
    network = windows.hns.list("network", Name="vxlan0")[0]
    kinds = {policy["Type"]: policy.get("Settings") for policy in network["Policies"]}
    mac = kinds["DrMacAddress"]["Address"].replace("-", ":").lower()
    assert json.loads(agent.annotations()["flannel.alpha.coreos.com/backend-data"]) == {
        "VNI": 4096,
        "VtepMAC": mac,
    }
    assert network["Flags"] == 8
    assert network["Ipams"][0]["Subnets"][0]["Policies"] == [
        {"Type": "VSID", "Settings": {"IsolationId": 4096}}
    ]
    cluster.leases.put(
        SubnetLease(
            "old", "10.244.7.0/24", "172.18.0.7", '{"VNI":1,"VtepMAC":"0e:00:00:00:00:07"}', "vxlan"
        )
    )
    cluster.fabric.refresh_node("w1")

    def remote() -> list[dict[str, Any]]:
        policies = windows.hns.list("network", Name="vxlan0")[0]["Policies"]
        return [policy["Settings"] for policy in policies if policy["Type"] == "RemoteSubnetRoute"]

    assert first.lease is not None
    assert remote() == [
        {
            "DestinationPrefix": "10.244.1.0/24",
            "IsolationId": 4096,
            "ProviderAddress": "172.18.0.3",
            "DistributedRouterMacAddress": first.lease.vtep()[1],
        }
    ]
    assert "VNI is 1 but it is required to be greater than or equal to 4096 on Windows." in log
    cluster.leases.put(
        SubnetLease("n1", "10.244.1.0/24", "172.18.0.33", first.lease.backend_data, "vxlan")
    )
    cluster.fabric.refresh_node("w1")
    assert [settings["ProviderAddress"] for settings in remote()] == ["172.18.0.33"]
    cluster.leases.remove("n1")
    cluster.fabric.refresh_node("w1")
    assert remote() == []


def test_masquerading_as_flanneld_has_it(cluster: Any) -> None:
    node = cluster.linux("n1", 3)
    cluster.flannel(node, "10.244.1.0/24")
    rules = node.machine.stack.tables["ip transom-masq"].chains["postrouting"].rules
    shown = [
        (
            " ".join(f"{'!' if m.negate else ''}{m.field}={m.value[0]}" for m in rule.matches),
            rule.statements == (Masquerade(),),
        )
        for rule in rules
    ]
    assert shown == [
        ("mark=0x4000/0x4000", False),
        ("saddr=10.244.1.0/24 daddr=10.244.0.0/16", False),
        ("saddr=10.244.0.0/16 daddr=10.244.1.0/24", False),
        ("!saddr=10.244.0.0/16 daddr=10.244.1.0/24", False),
        ("saddr=10.244.0.0/16 !daddr=224.0.0.0/4", True),
        ("!saddr=10.244.0.0/16 daddr=10.244.0.0/16", True),
    ]
    other = cluster.linux("n2", 4)
    cluster.flannel(other, "10.244.2.0/24", masquerade=False)
    assert other.machine.stack.tables == {}
    assert b"FLANNEL_IPMASQ=false" in other.files.read("/run/flannel/subnet.env")


@pytest.mark.parametrize(
    ("cidrs", "more", "text"),
    [
        ([], {}, 'failed to acquire lease: node "n1" pod cidr not assigned'),
        (
            ["10.9.0.0/24"],
            {},
            'failed to acquire lease: subnet "10.244.0.0/16" specified in the flannel net '
            "config doesn't "
            'contain "10.9.0.0/24" PodCIDR of the "n1" node',
        ),
        (
            ["10.244.1.0/24"],
            {"public_ip": "198.51.100.1"},
            "Failed to find any valid interface to use: error looking up "
            "interface 198.51.100.1: no interface with given IP found",
        ),
        (
            ["10.244.1.0/24"],
            {"public_ip": "198.51.100.1", "interface": "eth0"},
            "your PublicIP differs from interface IP, "
            "meaning that probably you're on a NAT, which is not supported by host-gw backend",
        ),
        (
            ["10.244.1.0/24"],
            {"interface": "eth7"},
            "Failed to find interface to use that matches the interfaces and/or regexes provided",
        ),
    ],
)
def test_why_flanneld_does_not_start(
    node: Any, cidrs: list[str], more: dict[str, str], text: str
) -> None:
    conf = flannelconf.parse_flannel_conf(
        defaults.net_conf("10.244.0.0/16", defaults.host_gw_net_conf())
    )
    agent = Flanneld(
        "n1", node.machine, SubnetLeases(), conf, **{"public_ip": "172.18.0.3", **more}
    )  # type: ignore[arg-type]
    with pytest.raises(FlannelError) as caught:
        agent.start(cidrs)
    assert str(caught.value) == text
    assert agent.annotations() == {}


@pytest.mark.parametrize(
    ("version", "flags", "isolation", "host_route"),
    [
        ("0.11.0", 0, [4096], False),
        ("v0.12.0", 8, [4096], True),
        ("0.13.0", 8, [4096], True),
        ("0.14.0", 8, [5000], True),
    ],
)
def test_old_versions_of_vxlan_on_windows(
    cluster: Any, version: str, flags: int, isolation: list[int], host_route: bool
) -> None:
    windows = cluster.windows("w1", 4)
    log: list[str] = []
    settings = {**VXLAN, "VNI": 5000}
    cluster.flannel(windows, "10.244.2.0/24", settings, version=version, log=log.append)
    data = '{"VNI":5000,"VtepMAC":"0e:00:00:00:00:07"}'
    cluster.leases.put(SubnetLease("n7", "10.244.7.0/24", "172.18.0.7", data, "vxlan"))
    cluster.fabric.refresh_node("w1")
    [network] = windows.hns.list("network", Name="vxlan0")
    policies = network["Policies"]
    remote = [p["Settings"] for p in policies if p["Type"] == "RemoteSubnetRoute"]
    assert network.get("Flags", 0) == flags
    assert [policy["IsolationId"] for policy in remote] == isolation
    tried = "HostRoute" in [policy["Type"] for policy in policies] or NO_HOST_ROUTE in log
    assert tried is host_route


@pytest.mark.parametrize("backend", [{"Type": "host-gw"}, VXLAN])
def test_flannel_before_0_11_has_no_backend_for_windows(
    cluster: Any, backend: dict[str, Any]
) -> None:
    windows, log = cluster.windows("w1", 4), []
    with pytest.raises(FlannelError, match=f"unknown backend type: {backend['Type']}"):
        cluster.flannel(windows, "10.244.2.0/24", backend, log=log.append, version="0.10.0")
    assert log == [f"{backend['Type'].replace('-', '')} is not supported on this platform"]
    assert not windows.hns.networks


def test_alloc_only_gives_subnets_away(cluster: Any) -> None:
    node = cluster.linux("n1", 3)
    agent = cluster.flannel(node, "10.244.1.0/24", {"Type": "alloc"})
    cluster.leases.put(SubnetLease("n2", "10.244.2.0/24", "172.18.0.4", "null", ""))
    cluster.fabric.refresh_node("n1")
    assert node.machine.stack.route("10.244.2.1").destination.prefixlen == 0
    assert agent.annotations()["flannel.alpha.coreos.com/backend-type"] == ""


def test_the_source_vip_is_asked_for_once(cluster: Any) -> None:
    node = cluster.windows("w1", 4)
    assert source_vip(node.machine, "vxlan0", "10.244.2.0/24") == "10.244.2.2"
    assert node.files.read(r"C:\var\lib\cni\networks\vxlan0\10.244.2.2") == b"dummy\r\ndummy"
    assert json.loads(node.files.read(FILE))["ip4"]["gateway"] == "10.244.2.1"
    # stale, and not noticed
    assert source_vip(node.machine, "vxlan0", "10.244.9.0/24") == "10.244.2.2"


@pytest.mark.windows("TRB-86", "TRB-89", "TRB-90", "SUP-TRB-013")
@pytest.mark.parametrize(
    ("backend", "kind"), [(None, "HNSNetwork cbr0"), (VXLAN, "HostComputeNetwork vxlan0")]
)
def test_an_address_that_comes_late_is_there_at_the_next_start(
    cluster: Any, backend: Any, kind: str
) -> None:
    node = cluster.windows("w1", 4)
    log: list[str] = []
    conf = flannelconf.parse_flannel_conf(
        defaults.net_conf("10.244.0.0/16", backend or defaults.host_gw_net_conf())
    )
    agent = Flanneld(
        "w1",
        node.machine,
        cluster.leases,
        conf,
        public_ip=node.ip,
        interface=node.ip,
        log=log.append,
    )
    agent.late = True
    with pytest.raises(
        FlannelError,
        match=f"timeout, failed to get management IP from {kind}: context deadline exceeded",
    ):
        agent.start(["10.244.2.0/24"])
    assert log == ["Waiting for the Network to be created"]
    assert not node.files.exists(r"C:\run\flannel\subnet.env")
    agent.start(["10.244.2.0/24"])
    assert node.files.exists(r"C:\run\flannel\subnet.env")


@pytest.mark.windows("CNI-04", "WIN-NET-007")
@pytest.mark.parametrize(
    ("version", "there"), [("0.11.0", False), ("v0.12.0", True), ("0.13.0-rc1", True)]
)
def test_a_node_reaches_its_own_pods_since_flannel_0_12(
    cluster: Any, version: str, there: bool
) -> None:
    node = cluster.windows("w1", 4)
    cluster.flannel(node, "10.244.2.0/24", VXLAN, version=version)
    network = node.hns.list("network", Name="vxlan0")[0]
    assert any(policy["Type"] == "HostRoute" for policy in network["Policies"]) is there
