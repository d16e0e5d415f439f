"""host-local: never one address for two, all files as the real one has them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.kit.clock import VirtualClock
from transom.machines.linux import LinuxHost
from transom.network.cni.plugin import CniCall, CniError, CniNode
from transom.network.cni.runner import in_process
from transom.network.stacks import Fabric

FOLDER = "/var/lib/cni/networks/net"


def ipam(*ranges: Any, **more: Any) -> dict[str, Any]:
    return {"type": "host-local", "ipam": {"type": "host-local", "ranges": list(ranges), **more}}


SMALL = ipam([{"subnet": "10.1.2.0/29"}])


def test_files_and_results(node: Any) -> None:
    conf = ipam(
        [
            {
                "subnet": "10.1.2.0/24",
                "rangeStart": "10.1.2.10",
                "rangeEnd": "10.1.2.12",
                "gateway": "10.1.2.11",
            }
        ],
        [{"subnet": "fd00::/64"}],
        routes=[{"dst": "0.0.0.0/0"}, {"dst": "10.0.0.0/8", "gw": "10.1.2.9"}],
    )
    assert node.add(conf) == {
        "cniVersion": "0.4.0",
        "ips": [
            {"version": "4", "address": "10.1.2.10/24", "gateway": "10.1.2.11"},
            {"version": "6", "address": "fd00::2/64", "gateway": "fd00::1"},
        ],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.0.0.0/8", "gw": "10.1.2.9"}],
        "dns": {},
    }
    assert node.files.listdir(FOLDER) == [
        "10.1.2.10",
        "fd00::2",
        "last_reserved_ip.0",
        "last_reserved_ip.1",
        "lock",
    ]
    assert (
        node.files.read(f"{FOLDER}/10.1.2.10")
        == node.files.read(f"{FOLDER}/fd00::2")
        == b"c1\r\neth0"
    )
    assert node.files.read(f"{FOLDER}/last_reserved_ip.0") == b"10.1.2.10"
    assert node.add(conf, "c2")["ips"][0]["address"] == "10.1.2.12/24"  # over the gateway
    full = (
        "failed to allocate for range 0: no IP addresses available in range set: "
        "10.1.2.10-10.1.2.12"
    )
    assert node.refused("ADD", conf, "c3") == full
    assert node.call("CHECK", conf) is None
    assert node.call("DEL", conf) is node.call("DEL", conf) is None
    assert node.files.listdir(FOLDER) == [
        "10.1.2.12",
        "fd00::3",
        "last_reserved_ip.0",
        "last_reserved_ip.1",
        "lock",
    ]
    assert node.refused("CHECK", conf) == "host-local: Failed to find address added by container c1"


def test_colons_are_written_otherwise_on_windows(cluster: Any) -> None:
    node = cluster.windows("w", 4)
    conf = ipam([{"subnet": "fd00::/64"}])
    assert node.add(conf)["ips"][0]["address"] == "fd00::2/64"
    folder = r"C:\var\lib\cni\networks\net"
    assert node.files.listdir(folder) == ["fd00__2", "last_reserved_ip.0", "lock"]
    node.machine.memory.clear()
    node.call("DEL", conf)
    assert node.files.listdir(folder) == ["last_reserved_ip.0", "lock"]


def test_the_files_are_the_truth(node: Any) -> None:
    for number in range(5):
        node.add(SMALL, f"c{number}")
    node.files.remove(f"{FOLDER}/10.1.2.4")  # cleaned up by hand
    assert node.add(SMALL, "new")["ips"][0]["address"] == "10.1.2.4/29"
    node.call("DEL", SMALL, "c2")  # whose it was
    assert node.files.read(f"{FOLDER}/10.1.2.4") == b"new\r\neth0"
    node.files.remove(FOLDER, recursive=True)
    assert node.add(SMALL, "c9")["ips"][0]["address"] == "10.1.2.2/29"
    node.files.remove(FOLDER, recursive=True)
    node.call("DEL", SMALL, "c9")
    node.files.mkdir(FOLDER)
    node.files.write(f"{FOLDER}/10.1.2.3", b"old")  # of a version that wrote no interface
    node.machine.memory.clear()
    assert node.refused("ADD", SMALL, "old") == (
        "failed to allocate for range 0: 10.1.2.3 has been allocated to old, duplicate "
        "allocation is not allowed"
    )
    node.call("DEL", SMALL, "old")
    assert not node.files.exists(f"{FOLDER}/10.1.2.3")


def test_the_search_continues_after_the_last_address(node: Any) -> None:
    assert node.add(SMALL, "a")["ips"][0]["address"] == "10.1.2.2/29"
    node.call("DEL", SMALL, "a")
    assert node.add(SMALL, "a")["ips"][0]["address"] == "10.1.2.3/29"
    node.files.write(f"{FOLDER}/last_reserved_ip.0", b"192.0.2.1")  # of no range of the set
    assert node.add(SMALL, "b")["ips"][0]["address"] == "10.1.2.2/29"
    node.files.write(f"{FOLDER}/last_reserved_ip.0", b"10.1.2.6")
    assert node.add(SMALL, "c")["ips"][0]["address"] == "10.1.2.4/29"


@pytest.mark.parametrize(
    ("conf", "args", "text"),
    [
        ({"type": "host-local"}, {}, "IPAM config missing 'ipam' key"),
        (ipam(), {}, "no IP ranges specified"),
        (ipam([]), {}, "invalid range set 0: empty range set"),
        (ipam([{"subnet": "10.1.2.0"}]), {}, "invalid CIDR address: 10.1.2.0"),
        (ipam([{"subnet": "10.1.2.0/33"}]), {}, "invalid CIDR address: 10.1.2.0/33"),
        (ipam([{"subnet": "10.1.2.0/24", "gateway": "xx"}]), {}, "invalid IP address: xx"),
        (
            ipam([{"subnet": "10.1.2.0/31"}]),
            {},
            "invalid range set 0: Network 10.1.2.0/31 too small to allocate from",
        ),
        (
            ipam([{"subnet": "10.1.2.1/24"}]),
            {},
            "invalid range set 0: Network has host bits set. For a subnet mask of length "
            "24 the network address is 10.1.2.0",
        ),
        (
            ipam([{"subnet": "10.1.2.0/24", "rangeStart": "10.1.3.1"}]),
            {},
            "invalid range set 0: RangeStart 10.1.3.1 not in network 10.1.2.0/24",
        ),
        (
            ipam([{"subnet": "10.1.2.0/24", "rangeEnd": "10.1.3.1"}]),
            {},
            "invalid range set 0: RangeEnd 10.1.3.1 not in network 10.1.2.0/24",
        ),
        (
            ipam([{"subnet": "10.1.2.0/24"}, {"subnet": "fd00::/64"}]),
            {},
            "invalid range set 0: mixed address families",
        ),
        (
            ipam([{"subnet": "10.1.2.0/24"}, {"subnet": "10.1.0.0/16"}]),
            {},
            "invalid range set 0: subnets 10.1.2.1-10.1.2.254 and 10.1.0.1-10.1.255.254 overlap",
        ),
        (
            ipam([{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.0.0/16"}]),
            {},
            "range set 0 overlaps with 1",
        ),
        (
            {
                **ipam([{"subnet": "10.1.2.0/24"}], [{"subnet": "10.9.0.0/16"}]),
                "cniVersion": "0.2.0",
            },
            {},
            "CNI version 0.2.0 does not support more than 1 address per family",
        ),
        (
            SMALL,
            {"IP": "10.1.2.1"},
            "failed to allocate for range 0: requested ip 10.1.2.1 is subnet's gateway",
        ),
        (SMALL, {"IP": "10.1.3.7"}, "failed to allocate all requested IPs: 10.1.3.7"),
        (SMALL, {"IP": "zz"}, 'ARGS: error parsing value of pair "IP=zz": invalid IP address: zz)'),
        (SMALL, {"FOO": "1"}, 'ARGS: unknown args ["FOO=1"]'),
        (
            ipam([{"subnet": "10.1.2.0/24"}], resolvConf="/none"),
            {},
            "open /none: no such file or directory",
        ),
    ],
)
def test_refusals(node: Any, conf: dict[str, Any], args: dict[str, str], text: str) -> None:
    assert node.refused("ADD", conf, **args) == text
    folder = [
        n
        for n in (node.files.listdir(FOLDER) if node.files.exists(FOLDER) else [])
        if n[0].isdigit()
    ]
    assert folder == []


def test_requested_addresses(node: Any) -> None:
    assert (
        node.add(SMALL, "a", IP="10.1.2.5", FOO="x", IgnoreUnknown="1")["ips"][0]["address"]
        == "10.1.2.5/29"
    )
    taken = "requested IP address 10.1.2.5 is not available in range set 10.1.2.1-10.1.2.6"
    assert node.refused("ADD", {**SMALL, "args": {"cni": {"ips": ["10.1.2.5"]}}}, "b") == (
        "failed to allocate for range 0: " + taken
    )
    assert (
        node.add({**SMALL, "args": {"cni": {"ips": ["10.1.2.4"]}}}, "b")["ips"][0]["address"]
        == "10.1.2.4/29"
    )
    by_runtime = {**ipam(), "runtimeConfig": {"ipRanges": [[{"subnet": "10.7.0.0/24"}]]}}
    assert node.add(by_runtime, "c")["ips"][0]["address"] == "10.7.0.2/24"


def test_name_servers_come_from_a_file(node: Any) -> None:
    node.files.write(
        "/etc/resolv.other",
        b"# x\nnameserver 1.1.1.1\nsearch a b\noptions ndots:5\ndomain d\nnameserver\n",
    )
    conf = ipam([{"subnet": "10.1.2.0/24"}], resolvConf="/etc/resolv.other")
    assert node.add(conf)["dns"] == {
        "nameservers": ["1.1.1.1"],
        "domain": "d",
        "search": ["a", "b"],
        "options": ["ndots:5"],
    }


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["ADD", "DEL", "forget"]), st.integers(0, 7)), max_size=60)
)
def test_no_address_is_ever_given_twice(steps: list[tuple[str, int]]) -> None:
    """Five addresses, eight containers: what is given belongs to one container; none is refused while one
    is free; DEL frees.
    """
    fabric = Fabric()
    machine = CniNode(
        LinuxHost("n", VirtualClock()).files,
        fabric.add("n", "node", "linux"),
        fabric,
        None,
        "linux",
    )
    run = in_process(machine)
    held: dict[int, str] = {}
    for command, number in steps:
        if command == "forget":  # the process ends and another one begins
            machine.memory.clear()
            continue
        conf = {"cniVersion": "0.4.0", "name": "net", **SMALL}
        call = CniCall(command, f"c{number}", "/ns", "eth0", {}, "/opt/cni/bin", conf)  # type: ignore[arg-type]
        if command == "DEL":
            run("host-local", call)
            held.pop(number, None)
            continue
        try:
            answer = run("host-local", call)
        except CniError as error:
            full = number not in held and len(held) == 5
            assert full or (number in held and "duplicate" in str(error))
            continue
        assert answer is not None
        address = answer["ips"][0]["address"]
        assert number not in held
        assert address not in held.values()
        held[number] = address
    files = (
        {n for n in machine.files.listdir(FOLDER) if n[0].isdigit()}
        if machine.files.exists(FOLDER)
        else set()
    )
    assert files == {address.split("/")[0] for address in held.values()}
