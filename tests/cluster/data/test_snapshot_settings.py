"""Which settings of a snapshot are accepted without --trust-settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.cluster.data.test_snapshots import RECORD, foreign_snapshot

from transom.cluster import config as configs
from transom.cluster.config import ClusterConfig, nodes_document
from transom.cluster.data import snapshot_restore
from transom.cluster.data.snapshot_settings import machine_settings
from transom.kit.user_errors import UserError
from transom.node.network_settings import NetworkSettings
from transom.node.settings import clusters_dir
from transom.node.spec import NodeSpec


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def restore(path: Path, *, trust_settings: bool = False) -> ClusterConfig:
    snapshot_restore.restore_snapshot(
        path,
        "new",
        key_file=None,
        replace_existing=False,
        bump=1,
        report_progress=print,
        trust_settings=trust_settings,
    )
    restored = configs.load_config("new")
    assert restored is not None
    return restored


# Settings with which a snapshot made `transom up` listen, read, write or run programs.
REACHING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bind 0.0.0.0": ({"bind": "0.0.0.0"}, {}),
    "bind ::": ({"bind": "::"}, {}),
    "bind example.com": ({"bind": "example.com"}, {}),
    "engine auto": ({"engine": "auto"}, {}),
    "audit_log /etc/cron.d/x": ({"audit_log": "/etc/cron.d/x"}, {}),
    "audit_policy /dev/zero": ({"audit_policy": "/dev/zero"}, {}),
    "images /etc/shadow": ({"images": "/etc/shadow"}, {}),
    "encryption_key_file /etc/shadow": ({"encryption_key_file": "/etc/shadow"}, {}),
    "access_flags authorization-mode=AlwaysAllow": (
        {"access_flags": ["authorization-mode=AlwaysAllow"]},
        {},
    ),
    "node_ports 22, 443": ({"node_ports": [22, 443]}, {}),
    "network.dataplane kernel": ({"network": {"dataplane": "kernel"}}, {}),
    "network.upstreams 192.0.2.1": ({"network": {"upstreams": ["192.0.2.1"]}}, {}),
    "network.outgoing 10.0.0.1:22": ({"network": {"outgoing": ["10.0.0.1:22"]}}, {}),
    "node a: engine oci": ({}, {"engine": "oci"}),
    "node a: engine unix:///run/x.sock": ({}, {"engine": "unix:///run/x.sock"}),
    "node a: static_pods /home/user": ({}, {"static_pods": "/home/user"}),
    "node a: volume_plugins /home/user": ({}, {"volume_plugins": "/home/user"}),
}


@pytest.mark.parametrize("shown", REACHING)
def test_settings_that_reach_the_machine_need_trust(home: Path, shown: str) -> None:
    settings, node = REACHING[shown]
    path = foreign_snapshot(
        home / "a.snapshot",
        [RECORD],
        **{"cluster.json": settings, "nodes.json": [{"name": "a"} | node]},
    )
    with pytest.raises(UserError) as refused:
        restore(path)
    assert str(refused.value).endswith(f"reach this machine: {shown}")
    assert "--trust-settings" in refused.value.hint
    assert configs.load_config("new") is None and not (clusters_dir() / "new").exists()
    restored = restore(path, trust_settings=True)
    assert machine_settings(restored, configs.load_nodes(restored) or []) == [shown]


def test_keys_in_the_users_own_clusters_need_no_trust(home: Path) -> None:
    own = str(clusters_dir() / "blue" / "encryption.keys")
    path = foreign_snapshot(
        home / "a.snapshot", [RECORD], **{"cluster.json": {"encryption_key_file": own}}
    )
    assert restore(path).encryption_key_file == own
    outside = clusters_dir() / ".." / "elsewhere"
    assert machine_settings(ClusterConfig(encryption_key_file=str(outside)), []) != []


@pytest.mark.parametrize(
    "node",
    [
        {"name": "../../escaped"},
        {"name": "/etc"},
        {"name": ".."},
        {"name": ""},
        {"name": 5},
        {"name": "a", "number": -1},
        {"name": "a", "number": True},
        {"name": "a", "number": 1 << 40},
        {"name": "a", "cpus": "4"},
        {"name": "a", "labels": []},
        {"name": "a", "memory": "lots"},
        {"name": "a", "taints": 5},
        {"name": "a", "eviction_hard": "x"},
        {"name": "a", "user_namespaces": "yes"},
        {"os": "linux"},
        "a",
    ],
    ids=str,
)
def test_nodes_that_no_option_can_make_are_refused_even_with_trust(home: Path, node: Any) -> None:
    path = foreign_snapshot(home / "a.snapshot", [RECORD], **{"nodes.json": [node]})
    with pytest.raises(UserError, match="node"):
        restore(path, trust_settings=True)
    assert configs.load_config("new") is None


def test_every_setting_of_a_simulated_cluster_is_restored(home: Path) -> None:
    nodes = [NodeSpec("a", labels={"x": "y"}), NodeSpec("b", os="windows", build=20348)]
    path = foreign_snapshot(
        home / "a.snapshot",
        [RECORD],
        **{
            "cluster.json": dataclasses.asdict(
                ClusterConfig(release="1.36", engine="sim", virtual_time=True)
            ),
            "nodes.json": orjson.loads(nodes_document(nodes)),
        },
    )
    restored = restore(path)
    assert (restored.release, restored.virtual_time) == ("1.36", True)
    assert [node.name for node in configs.load_nodes(restored) or []] == ["a", "b"]


def test_an_unlisted_setting_reaches_the_machine() -> None:
    """A new setting needs trust until it is listed as harmless."""
    harmful = {
        text.split()[0]
        for text in machine_settings(
            ClusterConfig(
                bind="10.0.0.1",
                engine="oci",
                audit_policy="x",
                audit_log="x",
                images="x",
                encryption_key_file="/x",
                access_flags=("x",),
                node_ports=(1, 2),
                network=NetworkSettings(
                    dataplane="kernel",
                    upstreams=("x",),
                    outgoing=("x",),
                    stub_domains={"a": ("b",)},
                ),
            ),
            [],
        )
    }
    assert harmful == {
        "bind",
        "engine",
        "audit_policy",
        "audit_log",
        "images",
        "encryption_key_file",
        "access_flags",
        "node_ports",
        "network.dataplane",
        "network.upstreams",
        "network.outgoing",
        "network.stub_domains",
    }


def test_private_keys_of_a_snapshot_are_readable_by_the_owner_only(home: Path) -> None:
    from transom.store.snapshot_file import SnapshotWriter, pack_records

    writer = SnapshotWriter(
        home / "a.snapshot", {"cluster": "x", "revision": 9, "records": 1, "id": ""}
    )
    writer.add_file("cluster.json", 0o666, b"{}")
    writer.add_file("pki/sa.key", 0o666, b"key")
    writer.add_file("pki/ca.crt", 0o4777, b"certificate")
    writer.add_records(pack_records([RECORD]))
    writer.finish()
    pki = restore(home / "a.snapshot").pki
    assert {one.name: oct(one.stat().st_mode & 0o7777) for one in pki.iterdir()} == {
        "sa.key": "0o600",
        "ca.crt": "0o644",
    }
