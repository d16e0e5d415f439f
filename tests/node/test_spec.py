"""Node specifications: the demo, the cluster file, and error messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transom.cluster.cluster_file import read_cluster_file
from transom.cluster.config import ClusterConfig, load_nodes, save_nodes
from transom.kit.user_errors import UserError
from transom.node import spec as nodes
from transom.node.machine import node_hardware
from transom.node.support_warnings import node_warnings

CONFIG = ClusterConfig(name="c")


@pytest.mark.windows("OS-28")
def test_the_demo_has_one_of_each_and_two_of_windows() -> None:
    made = nodes.demo_specs(CONFIG, None, None, None, taint=False)
    assert [(n.name, n.os, n.build, n.runtime, n.number) for n in made] == [
        ("control-plane", "linux", 0, "containerd", 1),
        ("linux-1", "linux", 0, "containerd", 2),
        ("windows-1", "windows", 17763, "docker", 3),
        ("windows-2", "windows", 17763, "docker", 4),
    ]
    assert not made[2].taints
    assert nodes.demo_specs(CONFIG, 0, 1, 20348, taint=True)[1].taints == (nodes.WINDOWS_TAINT,)
    assert [n.os for n in nodes.demo_specs(CONFIG, 0, 0, None, taint=False)] == ["linux"], (
        "a master there is always, on Linux"
    )


def test_a_row_of_the_file_can_stand_for_many() -> None:
    rows: list[Any] = [
        {"name": "cp", "role": "control-plane"},
        {
            "name": "w",
            "count": 2,
            "os": "windows",
            "taints": ["os=windows:NoSchedule"],
            "kubeReserved": {"memory": "1Gi"},
            "kubeletVersion": "1.19",
            "runtime": "containerd",
        },
    ]
    control_plane, first, second = nodes.specs_from_file(CONFIG, rows)
    assert control_plane.taints[0]["key"] == "node-role.kubernetes.io/master"
    assert (first.name, second.name, first.runtime_version, first.build) == (
        "w-1",
        "w-2",
        "1.4.3",
        17763,
    )
    assert first.taints == ({"key": "os", "value": "windows", "effect": "NoSchedule"},)
    assert nodes.kubelet_version(CONFIG, first) == "v1.19.16"
    assert nodes.kubelet_version(CONFIG, control_plane) == "v1.20.15"


@pytest.mark.windows(
    "OS-07",
    "OS-16",
    "OS-17",
    "OS-22",
    "OS-27",
    "FLAG-12",
    "W-NODE-14",
    "WIN-OS-002",
    "WIN-OS-003",
    "WIN-OS-011",
)
@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"name": "a", "os": "plan9"}, "unknown operating system 'plan9'"),
        ({"name": "A"}, "cannot be the name"),
        ({"name": "a", "os": "windows", "build": 1}, "unknown Windows build 1"),
        ({"name": "a", "os": "windows", "build": 17134}, "unknown Windows build 17134"),
        ({"name": "a", "os": "windows", "build": 16299}, "unknown Windows build 16299"),
        (
            {"name": "a", "os": "windows", "role": "control-plane"},
            "the control plane runs on Linux",
        ),
        ({"name": "a", "build": 17763}, "only Windows nodes have a build"),
        ({"name": "a", "runtime": "rkt"}, "unknown runtime 'rkt'"),
        ({"name": "a", "kubeletVersion": "1.21"}, "it must not be newer"),
        ({"name": "a", "kubeletVersion": "v1.17.4"}, "at most two minor versions older"),
        ({"name": "a", "kubeletVersion": "new"}, "is not the version of a kubelet"),
        ({"name": "a", "memory": "lots"}, "memory: "),
        (
            {"name": "a", "os": "windows", "priorityClass": "FAST"},
            "unknown priority class FAST, valid ones are available at",
        ),
        ({"name": "a", "taints": ["os:windows"]}, "is not a taint"),
        ({"name": "a", "taints": [{"key": "k", "effect": "Never"}]}, "k=:Never is not a taint"),
        ({"name": "a", "taints": ["a b=c:NoSchedule"]}, "a b=c:NoSchedule is not a taint"),
        ({"name": "a", "labels": {"a/b/c": "d"}}, "a/b/c=d is not a label"),
        ({"name": "a", "labels": {"zone": "a b"}}, "zone=a b is not a label"),
        ({"name": "a", "memory": "0"}, "memory: 0 is not more than 0"),
        ({"name": "a", "disk": "-1Gi"}, "disk: -1Gi is not more than 0"),
        ({"name": "a", "systemReserved": {"gpu": "1"}}, "systemReserved: "),
        ({"name": "a", "systemReserved": {"memory": "lots"}}, "systemReserved: "),
        ({"name": "a", "kubeReserved": {"cpu": "5"}}, "5 cpu is more than the node has (4)"),
        ({"name": "a", "evictionHard": {"moon": "1Gi"}}, "unsupported eviction signal moon"),
        ({"name": "a", "evictionSoft": {"memory.available": "x"}}, "evictionSoft: "),
        ({"name": "a", "maxPods": -1}, "maxPods -1"),
        ({"name": "a", "colour": "red"}, "unknown field 'colour'"),
        ({"name": "a", "cpus": "four"}, "cpus of the cluster file must be a number"),
        ({"name": "a", "imageGCHighThresholdPercent": 101}, "imageGCHighThresholdPercent 101"),
        ({"os": "linux"}, "has no name"),
        ({"name": "a", "macSpoofing": False}, "macSpoofing are for Windows nodes"),
        (
            {"name": "a", "os": "windows", "macSpoofing": "off"},
            "macSpoofing of the cluster file must be true or false",
        ),
        (
            {"name": "a", "userNamespaces": "no"},
            "userNamespaces of the cluster file must be true or false",
        ),
        ({"name": "a", "adapter": "Ethernet 2"}, "'Ethernet 2' cannot be its network adapter"),
        ({"name": "a", "os": "windows", "adapter": "a/b"}, "'a/b' cannot be its network adapter"),
        ({"name": "a", "os": "windows", "proxy": "proxy"}, "'proxy' is not the address of a proxy"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(row: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        nodes.specs_from_rows(CONFIG, [row])
    assert words in caught.value.message


def test_some_options_can_be_changed_while_a_node_runs() -> None:
    [node] = nodes.specs_from_rows(CONFIG, [{"name": "w", "os": "windows", "macSpoofing": False}])
    assert not node.mac_spoofing
    changed = nodes.changed_spec(
        CONFIG, node, {"macSpoofing": True, "proxy": "http://proxy.example.com:80/"}
    )
    assert changed == replace(node, mac_spoofing=True, proxy="http://proxy.example.com:80/")
    for values, words in (
        ({"cpus": 8}, "'cpus' of a running node cannot be set"),
        ({"proxy": "x"}, "not the address"),
    ):
        with pytest.raises(UserError, match=words):
            nodes.changed_spec(CONFIG, node, values)


@pytest.mark.windows("RES-11", "RES-18", "FLAG-01", "FLAG-02")
def test_reservations_as_the_guide_to_windows_spells_them() -> None:
    rows: list[Any] = [
        {
            "name": "w",
            "os": "windows",
            "kubeletReserve": {"memory": "1Gi"},
            "systemReserve": {"cpu": "500m"},
        }
    ]
    [node] = nodes.specs_from_rows(CONFIG, rows)
    assert (node.kube_reserved, node.system_reserved) == ({"memory": "1Gi"}, {"cpu": "500m"})


@pytest.mark.windows("RT-01", "RT-03", "RT-06", "RT-07", "RT-08", "TRB-111", "WIN-RUN-001")
@pytest.mark.parametrize(
    ("release", "docker", "pause", "containerd"),
    [
        ("1.14", "18.9.9", "mcr.microsoft.com/k8s/core/pause:1.2.0", False),
        ("1.17", "19.3.14", "mcr.microsoft.com/oss/kubernetes/pause:1.4.1", False),
        ("1.18", "19.3.14", "mcr.microsoft.com/oss/kubernetes/pause:1.4.1", True),
        ("1.20", "19.3.14", "mcr.microsoft.com/oss/kubernetes/pause:1.4.1", True),
    ],
)
def test_what_windows_nodes_of_a_release_have(
    release: str, docker: str, pause: str, containerd: bool
) -> None:
    config = replace(CONFIG, release=release)
    [node] = nodes.specs_from_rows(config, [{"name": "w", "os": "windows"}])
    assert (node.runtime, node.runtime_version, nodes.pause_image(config, node)) == (
        "docker",
        docker,
        pause,
    )
    requested: list[Any] = [{"name": "w", "os": "windows", "runtime": "containerd"}]
    if containerd:
        assert nodes.specs_from_rows(config, requested)[0].runtime_version == "1.4.3"
    else:
        with pytest.raises(UserError, match="cannot have containerd"):
            nodes.specs_from_rows(config, requested)


@pytest.mark.parametrize(
    ("release", "containerd"),
    [("1.24", "1.6.36"), ("1.30", "1.7.29"), ("1.34", "2.0.7"), ("1.36", "2.1.5")],
)
def test_nodes_of_later_releases_have_a_supported_containerd(release: str, containerd: str) -> None:
    config = replace(CONFIG, release=release)
    rows: list[Any] = [{"name": "w", "os": "windows"}, {"name": "l"}]
    found = nodes.specs_from_rows(config, rows)
    assert {(node.runtime, node.runtime_version) for node in found} == {("containerd", containerd)}
    assert node_warnings(config, found) == []


def test_two_nodes_cannot_have_one_name() -> None:
    with pytest.raises(UserError, match="two nodes have the name 'a'"):
        nodes.specs_from_rows(CONFIG, [{"name": "a"}, {"name": "a"}])


def test_what_is_saved_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert load_nodes(CONFIG) is None
    made = [replace(n, stopped=n.windows) for n in nodes.demo_specs(CONFIG, 2, 1, None, taint=True)]
    save_nodes(CONFIG, made)
    assert load_nodes(CONFIG) == made


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes: []", "must have apiVersion: transom.dev/v1 and kind: Cluster"),
        (
            "apiVersion: transom.dev/v1\nkind: Cluster\nrelease: 1.20",
            'put it in quotes: release: "1.2"',
        ),
        ("apiVersion: transom.dev/v1\nkind: Cluster\nnodes: {}", "nodes must be a list"),
        ("apiVersion: transom.dev/v1\nkind: Cluster\nnode: []", "unknown field 'node'"),
        ("a: [", "is not YAML"),
        ("- a", "is not a cluster file"),
    ],
)
def test_a_wrong_cluster_file_says_what_is_wrong(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_cluster_file(path)
    assert words in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("value", [None, True, False])
def test_user_namespaces_are_used_where_possible_unless_the_file_decides(
    value: bool | None,
) -> None:
    [node] = nodes.specs_from_rows(
        CONFIG, [{"name": "a"} if value is None else {"name": "a", "userNamespaces": value}]
    )
    assert node.user_namespaces is value


@pytest.mark.windows("OS-07", "OS-28", "WIN-OS-003")
@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"name": "w", "os": "windows"}],
        [{"name": "linux-1"}, {"name": "w", "os": "windows"}],
        [{"name": "linux-1", "role": "worker", "count": 3}],
    ],
)
def test_a_cluster_file_needs_a_linux_control_plane(rows: list[Any]) -> None:
    with pytest.raises(UserError, match="no Linux control-plane node") as caught:
        nodes.specs_from_file(CONFIG, rows)
    assert "role: control-plane" in caught.value.hint


def test_the_control_plane_node_need_not_be_the_first() -> None:
    made = nodes.specs_from_file(
        CONFIG,
        [{"name": "a"}, {"name": "w", "os": "windows"}, {"name": "cp", "role": "control-plane"}],
    )
    found = nodes.control_plane_node(made)
    assert found is not None and found.name == "cp"
    [alone] = nodes.specs_from_file(
        CONFIG, [{"name": "one", "role": "control-plane", "taints": []}]
    )
    assert alone.control_plane and not alone.taints


@pytest.mark.windows("RES-14", "RES-15", "RES-16")
def test_windows_nodes_reserve_memory_and_cpu_by_default() -> None:
    small, large, tiny, linux, own = nodes.specs_from_rows(
        CONFIG,
        [
            {"name": "a", "os": "windows"},
            {"name": "b", "os": "windows", "cpus": 32, "memory": "64Gi"},
            {"name": "c", "os": "windows", "memory": "2Gi"},
            {"name": "d"},
            {"name": "e", "os": "windows", "kubeReserved": {"memory": "3Gi"}},
        ],
    )
    assert small.system_reserved == {"memory": "2Gi"}
    assert large.system_reserved == {"memory": "2Gi", "cpu": "1600m"}
    assert tiny.system_reserved == linux.system_reserved == own.system_reserved == {}


@pytest.mark.windows("OS-05", "RES-14", "RES-15", "RT-06", "WIN-OS-001", "WIN-RUN-002")
@pytest.mark.parametrize(
    ("release", "row", "words"),
    [
        ("1.20", {}, []),
        (
            "1.20",
            {"build": 20348},
            ["does not support Windows build 20348 as a node; supported: 17763, 18363, 19041"],
        ),
        ("1.18", {"build": 18362}, []),
        ("1.20", {"build": 18362}, ["does not support Windows build 18362"]),
        (
            "1.20",
            {"runtimeVersion": "18.9.9"},
            ["docker 18.9.9 is not supported with Kubernetes 1.20"],
        ),
        ("1.14", {}, []),
        (
            "1.20",
            {"runtime": "containerd", "runtimeVersion": "1.3.9"},
            ["containerd 1.3.9 is not supported"],
        ),
        ("1.20", {"systemReserved": {}}, ["no memory is reserved"]),
        (
            "1.20",
            {"systemReserved": {}, "cpus": 8},
            ["no memory is reserved", "no CPU is reserved"],
        ),
        ("1.14", {"systemReserved": {}, "cpus": 8}, ["no memory is reserved"]),
        ("1.20", {"systemReserved": {"memory": "1Gi", "cpu": "1"}}, ["less than 2 GB of memory"]),
        (
            "1.20",
            {"systemReserved": {"memory": "1Gi"}, "kubeReserved": {"memory": "1Gi", "cpu": "100m"}},
            [],
        ),
    ],
)
def test_what_a_release_does_not_support_is_a_warning(
    release: str, row: dict[str, Any], words: list[str]
) -> None:
    config = replace(CONFIG, release=release)
    found = node_warnings(
        config, nodes.specs_from_rows(config, [{"name": "w", "os": "windows", **row}])
    )
    assert len(found) == len(words)
    assert all(
        word in text and text.startswith("w: ") for word, text in zip(words, found, strict=True)
    )


def test_fields_of_the_kubelets_configuration() -> None:
    rows: list[Any] = [
        {"name": "cp", "role": "control-plane", "kubeletConfig": {"enableSystemLogQuery": True}}
    ]
    assert nodes.specs_from_file(CONFIG, rows)[0].kubelet_config == {"enableSystemLogQuery": True}
    for wrong, text in (
        ({"nothing": 1}, "'nothing' cannot be set"),
        ({"enableSystemLogQuery": "yes"}, "must be true or false"),
        ({"crashLoopBackOff": {"maxContainerRestartPeriod": "soon"}}, "maxContainerRestartPeriod"),
    ):
        rows[0]["kubeletConfig"] = wrong
        with pytest.raises(UserError, match=text):
            nodes.specs_from_file(CONFIG, rows)


@pytest.mark.parametrize(
    ("release", "labels", "taints"),
    [
        ("1.23", {"control-plane", "master"}, ["master"]),
        ("1.24", {"control-plane"}, ["control-plane", "master"]),
        ("1.25", {"control-plane"}, ["control-plane"]),
    ],
)
def test_control_plane_nodes_have_the_names_of_the_release(
    release: str, labels: set[str], taints: list[str]
) -> None:
    config = ClusterConfig(name="c", port=6443, release=release)
    for [node] in (
        nodes.demo_specs(config, 0, 0, None, taint=False),
        nodes.specs_from_file(config, [{"name": "cp", "role": "control-plane"}]),
    ):
        prefix = "node-role.kubernetes.io/"
        assert {label.removeprefix(prefix) for label in node.labels} == labels
        assert [taint["key"].removeprefix(prefix) for taint in node.taints] == taints
        assert node.control_plane


@pytest.mark.parametrize(
    "row",
    [
        {"cpus": 8, "threadsPerCore": 3},
        {"cpus": 6, "threadsPerCore": 2, "numaNodes": 2},
        {"cpus": 32, "numaNodes": 16},
    ],
)
def test_cpus_form_equal_cores_and_numa_nodes(row: dict[str, int]) -> None:
    good = {"name": "n", "cpus": 8, "threadsPerCore": 2, "numaNodes": 2}
    [node] = nodes.complete_specs(CONFIG, nodes.specs_from_rows(CONFIG, [good]))
    found = node_hardware(node)
    assert (found.threads_per_core, found.numa_nodes) == (2, 2)
    with pytest.raises(UserError):
        nodes.complete_specs(CONFIG, nodes.specs_from_rows(CONFIG, [{"name": "n", **row}]))


@pytest.mark.parametrize("row", [{"swap": "-1"}, {"swap": "x"}, {"os": "windows", "swap": "1Gi"}])
def test_linux_nodes_can_have_swap(row: dict[str, str]) -> None:
    [node] = nodes.complete_specs(
        CONFIG, nodes.specs_from_rows(CONFIG, [{"name": "n", "swap": "2Gi"}])
    )
    assert node_hardware(node).swap == 2 << 30
    with pytest.raises(UserError):
        nodes.complete_specs(CONFIG, nodes.specs_from_rows(CONFIG, [{"name": "n", **row}]))
