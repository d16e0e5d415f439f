"""Configuration files: which one is the node's network, and what is reported about invalid ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from transom.network.cni import config
from transom.network.cni.config import CniConfigError, build_plugin_config, parse_list, parse_single
from transom.network.cni.plugin import CniError
from transom.network.cni.plugins import plugin_table
from transom.network.cni.runner import CniRunner, RuntimeConf, in_process


def installed_versions(kind: str) -> Sequence[str] | None:
    found = plugin_table("linux").get(kind)
    return None if found is None else found.versions


LIST = "error parsing configuration list: "
ONE = "error parsing configuration: "


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"{", LIST + "unexpected end of JSON input"),
        (b"{x}", LIST + "invalid character 'x' looking for beginning of object key string"),
        (
            b"[]",
            LIST + "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (b"{}", LIST + "no name"),
        (b'{"name":5}', LIST + "invalid name type float64"),
        (b'{"name":"n","cniVersion":[]}', LIST + "invalid cniVersion type []interface {}"),
        (b'{"name":"n","disableCheck":"yes"}', LIST + "invalid disableCheck type string"),
        (b'{"name":"n"}', LIST + "no 'plugins' key"),
        (b'{"name":"n","plugins":{}}', LIST + "invalid 'plugins' type map[string]interface {}"),
        (b'{"name":"n","plugins":[]}', LIST + "no plugins in list"),
        (
            b'{"name":"n","plugins":[{"type":"a"},{}]}',
            "failed to parse plugin config 1: " + ONE + "missing 'type'",
        ),
    ],
)
def test_lists_that_cannot_be_read(data: bytes, text: str) -> None:
    with pytest.raises(CniConfigError) as caught:
        parse_list(data)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ONE + "unexpected end of JSON input"),
        (b'{"name":"n"}', ONE + "missing 'type'"),
        (
            b'{"type":5}',
            ONE + "json: cannot unmarshal number into Go struct field NetConf.type of type string",
        ),
    ],
)
def test_single_configurations_that_cannot_be_read(data: bytes, text: str) -> None:
    with pytest.raises(CniConfigError) as caught:
        parse_single(data)
    assert str(caught.value) == text


def test_a_single_configuration_is_a_list_of_one() -> None:
    network = parse_single(
        b'{"name":"n","cniVersion":"0.3.0","type":"bridge","capabilities":{"dns":true,"other":false}}'
    )
    assert (network.name, network.version, network.capabilities) == (
        "n",
        "0.3.0",
        frozenset({"dns"}),
    )
    assert [plugin.type for plugin in network.plugins] == ["bridge"]


def test_what_a_plugin_is_given() -> None:
    network = parse_list(
        b'{"name":"n","cniVersion":"0.4.0","plugins":[{"type":"a","name":"own","capabilities":{"dns":true,"portMappings":true}}]}'
    )
    config_of = build_plugin_config(
        network.plugins[0], network, {"ips": []}, {"portMappings": [1], "bandwidth": {}}
    )
    assert config_of == {
        "type": "a",
        "name": "n",
        "cniVersion": "0.4.0",
        "capabilities": {"dns": True, "portMappings": True},
        "prevResult": {"ips": []},
        "runtimeConfig": {"portMappings": [1]},
    }
    assert "runtimeConfig" not in build_plugin_config(
        network.plugins[0], network, None, {"bandwidth": {}}
    )


def test_the_first_valid_file_in_lexical_order(node: Any) -> None:
    files, directory = node.files, config.LINUX_DIRECTORY
    runner = CniRunner(node.machine, in_process(node.machine), installed_versions)
    for validate, text in (
        (runner.problem, f"no networks found in {directory}"),
        (None, f"no network config found in {directory}: cni plugin not initialized"),
    ):
        with pytest.raises(CniConfigError) as caught:
            config.load_network_list(files, directory, validate)
        assert str(caught.value) == text
    files.mkdir(directory + "/05-folder.conf")
    files.write(
        directory + "/20-good.conflist",
        b'{"name":"good","cniVersion":"0.3.1","plugins":[{"type":"bridge"}]}',
    )
    files.write(directory + "/10-none.txt", b"{")
    files.write(
        directory + "/15-missing.json", b'{"name":"m","cniVersion":"0.3.1","type":"calico"}'
    )
    files.write(directory + "/16-old.conf", b'{"name":"o","cniVersion":"0.9.0","type":"bridge"}')
    assert config.load_network_list(files, directory, runner.problem).name == "good"
    assert config.load_network_list(files, directory).name == "m"
    files.write(directory + "/01-broken.conflist", b"{}")
    assert config.load_network_list(files, directory, runner.problem).name == "good"
    with pytest.raises(CniConfigError) as caught:
        config.load_network_list(files, directory)
    text = (
        f"failed to load CNI config list file {directory}/01-broken.conflist: {LIST}no name: "
        "invalid cni config"
    )
    assert str(caught.value) == text
    files.remove(directory + "/20-good.conflist")
    with pytest.raises(CniConfigError, match=f"^no valid networks found in {directory}$"):
        config.load_network_list(files, directory, runner.problem)
    assert runner.problem(parse_single(b'{"name":"o","cniVersion":"0.9.0","type":"bridge"}')) == (
        '[plugin bridge does not support config version "0.9.0"]'
    )


def test_a_list_runs_forwards_and_is_taken_down_backwards(node: Any) -> None:
    """Every plugin gets the result before it; what came last is kept for CHECK and DEL."""
    recorded: list[Any] = []

    def execute(kind: str, call: Any) -> Any:
        recorded.append((kind, call.command, call.config.get("prevResult")))
        number = len(recorded)
        return {
            "cniVersion": "0.4.0",
            "ips": [{"version": "4", "address": f"10.0.0.{number}/8"}],
            "dns": {},
        }

    runner = CniRunner(node.machine, execute, installed_versions)
    runtime = RuntimeConf("c1", "/ns", "eth0", {"A": "b"}, {"dns": {}})
    for version in ("0.3.1", "0.4.0", "1.0.0"):
        recorded.clear()
        data = f'{{"name":"n","cniVersion":"{version}","plugins":[{{"type":"one"}},{{"type":"two"}}]}}'.encode()
        network = parse_list(data)
        result = runner.add(network, runtime)
        kept = node.files.read("/var/lib/cni/results/n-c1-eth0")
        assert b'"kind":"cniCacheV1"' in kept
        assert [t[:2] for t in recorded] == [("one", "ADD"), ("two", "ADD")]
        assert recorded[0][2] is None
        assert recorded[1][2]["cniVersion"] == version
        recorded.clear()
        if version == "0.3.1":
            with pytest.raises(
                CniError, match=r'configuration version "0.3.1" does not support the CHECK command'
            ):
                runner.check(network, runtime)
        else:
            runner.check(network, runtime)
            assert [t[0] for t in recorded] == ["one", "two"]
            assert recorded[0][2] == result
        recorded.clear()
        runner.delete(network, runtime)
        assert [t[:2] for t in recorded] == [("two", "DEL"), ("one", "DEL")]
        assert recorded[0][2] == (None if version == "0.3.1" else result)
        assert not node.files.exists("/var/lib/cni/results/n-c1-eth0")


@pytest.mark.parametrize(
    ("command", "change", "code", "text"),
    [
        (
            "ADD",
            {"container_id": "", "netns": "", "ifname": "", "path": ""},
            4,
            "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing",
        ),
        ("DEL", {"netns": "", "path": ""}, 4, "required env variables [CNI_PATH] missing"),
        ("GC", {}, 4, "unknown CNI_COMMAND: GC"),
        ("ADD", {"config": {"cniVersion": "0.4.0"}}, 7, "missing network name"),
        ("ADD", {"config": {"name": "a b"}}, 7, "invalid characters found in network name; a b"),
        ("ADD", {"container_id": "a/b"}, 4, "invalid characters in containerID; a/b"),
        ("ADD", {"ifname": "a b"}, 4, "interface name contains / or : or whitespace characters"),
        ("ADD", {"ifname": ".."}, 4, "interface name is . or .."),
        (
            "ADD",
            {"ifname": "x" * 16},
            4,
            "interface name is too long; interface name should be less than 16 characters",
        ),
        (
            "CHECK",
            {"config": {"name": "n", "cniVersion": "0.3.1"}},
            1,
            "config version does not allow CHECK",
        ),
        (
            "CHECK",
            {"config": {"name": "n", "cniVersion": "2.0.0"}},
            1,
            "plugin version does not allow CHECK",
        ),
        (
            "ADD",
            {"config": {"name": "n", "cniVersion": "1.1.0"}},
            1,
            'incompatible CNI versions; config is "1.1.0", plugin supports '
            '["0.1.0" "0.2.0" "0.3.0" "0.3.1" "0.4.0" "1.0.0"]',
        ),
        (
            "ADD",
            {"config": {"name": "n", "cniVersion": "0.4.0"}},
            999,
            "IPAM config missing 'ipam' key",
        ),
    ],
)
def test_what_every_plugin_refuses(
    node: Any, command: Any, change: dict[str, Any], code: int, text: str
) -> None:
    from transom.network.cni.plugin import CniCall

    given: dict[str, Any] = {
        "container_id": "c",
        "netns": "/ns",
        "ifname": "eth0",
        "args": {},
        "path": "/opt/cni/bin",
        "config": {"name": "n", "cniVersion": "0.4.0"},
    }
    with pytest.raises(CniError) as caught:
        in_process(node.machine)("host-local", CniCall(command, **{**given, **change}))
    assert (caught.value.code, str(caught.value)) == (code, text)


def test_a_plugin_that_is_not_installed(node: Any) -> None:
    assert (
        node.refused("ADD", {"type": "win-bridge"})
        == 'failed to find plugin "win-bridge" in path [/opt/cni/bin]'
    )
