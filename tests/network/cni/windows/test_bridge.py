"""win-bridge, release by release: endpoints in the host networking service, results, and error
messages.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.network.cni.windows.conftest import LOCAL, SUBNET, MakeNode, Node

from transom.network.cni.plugin import CniCall, CniError, CniNode, Result
from transom.network.cni.plugins import plugin_table
from transom.network.cni.runner import in_process
from transom.network.cni.windows import setup
from transom.network.cni.windows.netconf import Release

CONF: dict[str, Any] = {"name": "cbr0", "type": "win-bridge", "ipam": LOCAL}
V2: dict[str, Any] = {**CONF, "ApiVersion": 2}
EXCEPTIONS = ["10.244.0.0/16", "10.96.0.0/12"]
NAT: dict[str, Any] = {
    "name": "EndpointPolicy",
    "value": {"Type": "OutBoundNAT", "ExceptionList": EXCEPTIONS},
}
PANIC = (
    'netplugin failed: "panic: runtime error: invalid memory address or nil pointer dereference"'
)


def namespace(node: Node) -> str:
    return str(node.hns.create("namespace", {})["ID"])


@pytest.mark.windows("NET-06", "NET-13", "NET-41", "IPAM-01", "SUP-NET-009", "SUP-NET-030")
def test_a_pod_gets_an_endpoint_on_the_bridge(node: Node) -> None:
    result = node.add(
        {**CONF, "dns": {"Nameservers": ["10.96.0.10"], "Search": ["default.svc.cluster.local"]}}
    )
    endpoint = node.endpoint("sandbox1_cbr0")
    assert result == {
        "interfaces": [{"name": "sandbox1_cbr0", "mac": endpoint["MacAddress"]}],
        "ips": [{"version": "4", "address": "10.244.3.5/24", "gateway": "10.244.3.2"}],
        "dns": {"nameservers": ["10.96.0.10"], "search": ["default.svc.cluster.local"]},
    }
    assert endpoint["IpConfigurations"] == [{"IpAddress": "10.244.3.5", "PrefixLength": 24}]
    assert endpoint["Routes"] == [{"NextHop": "10.244.3.2", "DestinationPrefix": "0.0.0.0/0"}]
    assert endpoint["MacAddress"].startswith("00-15-5D-")
    assert node.hns.attachment(endpoint["ID"]) == ("container", "sandbox1")


def test_texts_without_names_are_split_all_the_same(node: Node) -> None:
    assert node.add(CONF)["dns"] == {"nameservers": [""], "search": [""]}
    assert node.add(V2, "sandbox2", namespace(node))["dns"] == {}


def test_an_address_is_read_by_adding_again_and_other_containers_share_the_endpoint(
    node: Node,
) -> None:
    first = node.add(CONF)
    assert node.add(CONF) == first
    assert node.add(CONF, "web", "container:sandbox1") == first
    # the endpoint was there, no plugin was called again
    assert node.calls == [("host-local", "ADD")]
    endpoint = node.endpoint("sandbox1_cbr0")
    assert node.hns.containers(endpoint["ID"]) == ("sandbox1", "web")
    node.delete(CONF, "web", "container:sandbox1")
    assert node.hns.containers(endpoint["ID"]) == ("sandbox1",)
    node.delete(CONF)
    node.delete(CONF)
    assert not node.hns.list("endpoint", Name="sandbox1_cbr0")


def test_nothing_of_an_endpoint_goes_without_a_namespace(node: Node) -> None:
    node.add(CONF)
    node.delete(CONF, netns="")
    assert node.endpoint("sandbox1_cbr0")


def test_an_endpoint_of_another_network_is_made_anew(node: Node) -> None:
    other = setup.make_l2bridge_network(node.hns, "other", ["10.244.9.0/24"])
    stale = node.hns.create(
        "endpoint", {"Name": "sandbox1_cbr0", "HostComputeNetwork": other["ID"]}
    )
    node.add(CONF)
    assert node.endpoint("sandbox1_cbr0")["ID"] != stale["ID"]


def test_refused_deletes_leave_an_unreported_endpoint(node: Node) -> None:
    node.add(CONF)
    node.hns.faults.refuse_deletes = "Access is denied."
    node.delete(CONF)
    assert node.endpoint("sandbox1_cbr0")


@pytest.mark.windows("IPAM-02", "SUP-NET-031")
def test_without_ipam_the_service_gives_the_address(node: Node) -> None:
    result = node.add({"name": "cbr0", "type": "win-bridge"})
    (ip,) = result["ips"]
    # its own gateway, not the bridge's
    assert ip["address"].startswith("10.244.3.") and ip["gateway"] == "10.244.3.1"
    assert node.calls == []
    node.delete({"name": "cbr0", "type": "win-bridge"})
    assert not node.hns.list("endpoint", Name="sandbox1_cbr0")


# ---- policies ----


@pytest.mark.parametrize(
    ("policies", "masq", "exceptions"),
    [
        ([], "", None),
        ([], "10.244.0.0/16", ["10.244.0.0/16"]),
        ([NAT], "", ["10.244.0.0/16", "10.96.0.0/12"]),
        ([NAT], "10.244.0.0/16", ["10.96.0.0/12", "10.244.0.0/16"]),
        ([NAT], "10.0.0.0/8", ["10.244.0.0/16", "10.96.0.0/12", "10.0.0.0/8"]),
        (
            [{"Name": "endpointpolicy", "Value": {"Type": "outboundnat"}}],
            "10.0.0.0/8",
            ["10.0.0.0/8"],
        ),
        (
            [{"name": "NetworkPolicy", "value": {"Type": "OutBoundNAT", "ExceptionList": []}}],
            "",
            None,
        ),
    ],
)
@pytest.mark.windows("NET-12", "SUP-NET-008")
def test_exceptions_of_snat(
    node: Node, policies: list[Any], masq: str, exceptions: list[str] | None
) -> None:
    node.add({**CONF, "policies": policies, "ipMasqNetwork": masq})
    found = [
        p["Settings"]["Exceptions"]
        for p in node.policies("sandbox1_cbr0")
        if p["Type"] == "OutBoundNAT"
    ]
    assert found == ([] if exceptions is None else [exceptions])


RUNTIME = {
    "portMappings": [
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "172.20.0.4"}
    ]
}


@pytest.mark.parametrize(
    ("release", "api", "expected"),
    [
        (
            "0.9.1",
            1,
            {
                "OutBoundNAT": {"Exceptions": ["10.244.0.0/16"]},
                "PortMapping": {"InternalPort": 80, "ExternalPort": 8080, "Protocol": 6},
            },
        ),
        ("0.8.6", 2, {}),  # what the helpers add is for version 1 alone
        ("0.9.1", 2, {}),
        (
            "1.0",
            2,
            {
                "OutBoundNAT": {"Exceptions": ["10.244.0.0/16"]},
                "PortMapping": {
                    "InternalPort": 80,
                    "ExternalPort": 8080,
                    "Protocol": 6,
                    "VIP": "172.20.0.4",
                },
            },
        ),
    ],
)
def test_version_2_loses_what_is_added(
    make_node: MakeNode, release: Release, api: int, expected: dict[str, Any]
) -> None:
    node = make_node(release=release)
    setup.make_l2bridge_network(node.hns, "cbr0", [SUBNET])
    node.add(
        {**CONF, "ApiVersion": api, "ipMasqNetwork": "10.244.0.0/16", "runtimeConfig": RUNTIME},
        netns=namespace(node) if api == 2 else "none",
    )
    found = {
        p["Type"]: {k: v for k, v in p["Settings"].items() if v}
        for p in node.policies("sandbox1_cbr0")
    }
    assert found == expected


def test_hcn_policy_args_are_for_version_2_up_to_0_9_1(node: Node) -> None:
    acl = {
        "Type": "ACL",
        "Settings": {"Action": "Block", "Direction": "Out", "RemoteAddresses": "10.0.0.0/8"},
    }
    node.add({**V2, "HcnPolicyArgs": [acl], "policies": [NAT]}, netns=namespace(node))
    assert [p["Type"] for p in node.policies("sandbox1_cbr0")] == ["ACL"]


@pytest.mark.parametrize("api", [1, 2])
def test_loopback_dsr(node: Node, api: int) -> None:
    node.add(
        {**CONF, "ApiVersion": api, "loopbackDSR": True},
        netns=namespace(node) if api == 2 else "none",
    )
    (policy,) = node.policies("sandbox1_cbr0")
    assert policy["Type"] == "OutBoundNAT" and policy["Settings"]["Destinations"] == ["10.244.3.5"]


@pytest.mark.parametrize(
    ("fixed", "given", "servers", "search"),
    [
        ({"nameservers": ["1.1.1.1"], "search": ["a"]}, {}, ["1.1.1.1"], ["a"]),
        (
            {"nameservers": ["1.1.1.1"], "search": ["a"]},
            {"servers": ["2.2.2.2"]},
            ["2.2.2.2"],
            ["a"],
        ),
        (
            {"nameservers": ["1.1.1.1"], "search": ["a"]},
            {"searches": ["b", "c"]},
            ["1.1.1.1"],
            ["b", "c"],
        ),
    ],
)
@pytest.mark.windows("LNET-04", "SUP-NET-005")
def test_dns_of_the_runtime_comes_first(
    node: Node, fixed: dict[str, Any], given: dict[str, Any], servers: list[str], search: list[str]
) -> None:
    result = node.add({**CONF, "dns": fixed, "runtimeConfig": {"dns": given}})
    assert result["dns"] == {"nameservers": servers, "search": search}
    assert node.endpoint("sandbox1_cbr0")["Dns"] == {"ServerList": servers, "Search": search}


# ---- version 2 ----


@pytest.mark.windows("NET-07", "LNET-01", "SUP-NET-002")
def test_version_2_joins_the_namespace(node: Node) -> None:
    inside = namespace(node)
    result = node.add({**V2, "dns": {"search": ["a"]}}, netns=inside)
    endpoint = node.endpoint("sandbox1_cbr0")
    assert node.hns.attachment(endpoint["ID"]) == ("namespace", inside)
    assert result["ips"] == [{"version": "4", "address": "10.244.3.5/24", "gateway": "10.244.3.2"}]
    assert result["dns"] == {"search": ["a"]}
    error = node.refused({**V2, "ipam": {}}, netns=inside)
    assert str(error).endswith(
        'error while GenerateHcnEndpoint: endpoint "sandbox1_cbr0" already exits'
    )
    node.delete(V2, netns=inside)
    node.delete(V2, netns=inside)
    assert not node.hns.list("endpoint", Name="sandbox1_cbr0")


def test_version_2_of_1_0_finds_its_endpoint(make_node: MakeNode) -> None:
    node = make_node(release="1.0")
    setup.make_l2bridge_network(node.hns, "cbr0", [SUBNET])
    error = node.refused(V2, netns="8A4A0B46-7C1C-4A7B-9B9C-0D5B1B7D6C11")
    words = (
        "failed to add HostComputeEndpoint sandbox1_cbr0 to HostComputeNamespace "
        "8A4A0B46-7C1C-4A7B-9B9C-0D5B1B7D6C11: "
    )
    assert str(error).startswith(f"error while adding HostComputeEndpoint: {words}")
    assert not node.hns.list("endpoint", Name="sandbox1_cbr0")
    assert node.calls == [("host-local", "ADD"), ("host-local", "DEL")]


# ---- what fails ----


def nothing(call: CniCall, machine: CniNode, delegate: Any) -> Result:
    return {"ips": [], "dns": {}}


@pytest.mark.parametrize(
    ("change", "netns", "text"),
    [
        (
            {"name": "gone"},
            "none",
            "ADD: error while GETHNSNewtorkByName(gone): Network gone not found",
        ),
        (
            {"name": "gone", "ApiVersion": 2},
            "none",
            'ADD: error while GetNetworkByName(gone): Network name "gone" not found',
        ),
        ({"name": "nat0"}, "none", "ADD: network nat0 is of an unexpected type: nat"),
        ({"name": "nat0", "ApiVersion": 2}, "none", "ADD: network nat0 is of unexpected type: NAT"),
        (
            {},
            "container:other",
            "ADD: error while ProvisionEndpoint(other_cbr0,{id},sandbox1): "
            "failed to find HNSEndpoint other_cbr0: Endpoint other_cbr0 not found",
        ),
        (
            {"ApiVersion": 2, "ipam": {"type": "nothing"}},
            "none",
            "ADD: error while "
            "AddHcnEndpoint(sandbox1_cbr0,{id},none): failed to make a new HNSEndpoint: "
            "error while ProcessEndpointArgs: "
            "IPAM plugin return is missing IP config",
        ),
        (
            {"policies": [{"name": "EndpointPolicy", "value": {"Type": "PA", "PA": "x"}}]},
            "none",
            "ADD: error while ProvisionEndpoint(sandbox1_cbr0,{id},sandbox1): failed to create the "
            "new HNSEndpoint: hns failed with error : The provided policy configuration is "
            "invalid or missing parameters. ",
        ),
        # Up to 0.9.1 the plugin falls over where the IPAM plugin fails.
        (
            {"ipam": {"type": "missing"}},
            "none",
            f"{PANIC}; error while processing endpoint args: error while ipam.ExecAdd: "
            'failed to find plugin "missing" in path '
            "[C:\\k\\cni]",
        ),
        ({"ApiVersion": 2}, "8A4A0B46-7C1C-4A7B-9B9C-0D5B1B7D6C11", f"{PANIC}; *"),
    ],
)
def test_texts(node: Node, change: dict[str, Any], netns: str, text: str) -> None:
    setup.make_nat_network(node.hns, "nat0")
    node.plugins["nothing"] = nothing
    id = node.hns.list("network", Name="cbr0")[0]["ID"]
    error = str(node.refused({**CONF, **change}, netns=netns))
    wanted = text.replace("{id}", id).replace("ADD: ", "error while executing ADD command: ")
    assert error.startswith(wanted[:-1]) if wanted.endswith("*") else error == wanted


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "gone"}, "error while getting network gone: Network gone not found"),
        ({"name": "nat0", "ApiVersion": 2}, "network nat0 is of unexpected type: NAT"),
        (
            {"ipam": {"type": "missing"}},
            "error while adding HNSEndpoint: failed to make a new HNSEndpoint: error while "
            "processing endpoint args: error while executing IPAM addition: failed to find "
            'plugin "missing" in path [C:\\k\\cni]',
        ),
    ],
)
def test_texts_of_1_0(make_node: MakeNode, change: dict[str, Any], text: str) -> None:
    node = make_node(release="1.0")
    setup.make_l2bridge_network(node.hns, "cbr0", [SUBNET])
    setup.make_nat_network(node.hns, "nat0")
    assert str(node.refused({**CONF, **change})) == text


def test_an_address_is_given_back_if_the_service_refuses_and_kept_if_the_plugin_falls_over(
    node: Node,
) -> None:
    node.hns.faults.fail_next("CreateEndpoint", 0x803B002F)
    assert "An address provided is invalid or reserved." in str(node.refused(CONF))
    assert node.calls == [("host-local", "ADD"), ("host-local", "DEL")]
    node.calls.clear()
    node.refused(V2, netns="8A4A0B46-7C1C-4A7B-9B9C-0D5B1B7D6C11")
    assert node.calls == [("host-local", "ADD")]


def test_attaching_fails(node: Node) -> None:
    node.hns.faults.fail_next("Attach", 0x80070490)
    assert "Element not found." in str(node.refused(CONF))
    assert not node.hns.list("endpoint", Name="sandbox1_cbr0")


def test_nothing_happens_on_another_system(node: Node) -> None:
    node.machine.hns = None
    with pytest.raises(CniError, match="The specified module could not be found"):
        node.run("ADD", CONF)
    assert node.run("CHECK", CONF) is None


@pytest.mark.parametrize("kind", ["win-bridge", "win-overlay"])
@pytest.mark.windows("WIN-NET-004", "WIN-NET-005", "CNI-01", "CNI-02")
def test_no_version_with_check(make_node: MakeNode, kind: str) -> None:
    """Before anything is made; from 1.0 on there is."""
    node = make_node()
    setup.make_l2bridge_network(node.hns, "cbr0", [SUBNET])
    call = CniCall(
        "ADD",
        "sandbox1",
        "none",
        "eth0",
        {},
        r"C:\k\cni",
        {**CONF, "type": kind, "cniVersion": "0.4.0"},
    )
    with pytest.raises(CniError) as caught:
        in_process(node.machine)(kind, call)
    assert caught.value.code == 1
    assert str(caught.value) == (
        'incompatible CNI versions; config is "0.4.0", plugin supports ["0.1.0" "0.2.0" "0.3.0"]'
    )
    assert "0.4.0" in plugin_table("windows", "1.0")[kind].versions
