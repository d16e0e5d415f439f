"""The processes of a cluster with several API servers."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from transom.cluster.config import ClusterConfig
from transom.cluster.ha import layout
from transom.kit.user_errors import UserError
from transom.node.spec import demo_specs
from transom.store.etcd.client import parse_etcd_address


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterConfig:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(layout, "find_program", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(layout, "check_program", lambda path: path)
    return ClusterConfig(name="blue", servers=3)


def test_ports_are_chosen_once(config: ClusterConfig) -> None:
    chosen = layout.choose_layout(config)
    assert len(set(chosen.server_ports + chosen.etcd_ports)) == 3 + 6
    assert layout.choose_layout(chosen) == chosen
    more = layout.choose_layout(replace(chosen, servers=5))
    assert more.server_ports[:3] == chosen.server_ports and len(more.server_ports) == 5
    assert more.etcd_ports == chosen.etcd_ports  # its members know each other by them
    assert layout.choose_layout(replace(chosen, servers=2)).server_ports == chosen.server_ports[:2]


def test_an_existing_etcd_is_used(config: ClusterConfig) -> None:
    chosen = layout.choose_layout(replace(config, store="etcd://10.0.0.1"))
    assert (chosen.store, chosen.etcd_ports) == ("etcd://10.0.0.1", ())
    assert layout.server_config(chosen, 2, []).store == "etcd://10.0.0.1"


def test_without_etcd_the_error_says_how_to_install_it(
    config: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "find_program", lambda _name: None)
    with pytest.raises(UserError, match="no program etcd") as raised:
        layout.choose_layout(config)
    assert "apt install etcd-server" in raised.value.hint


def test_the_number_of_members_is_odd() -> None:
    assert [layout.members_for(number) for number in range(1, 8)] == [1, 1, 3, 3, 5, 5, 5]


def test_each_server_asks_its_own_member_first(config: ClusterConfig) -> None:
    chosen = layout.choose_layout(config)
    specs = demo_specs(chosen, 0, 0, None, False, 3)
    assert [spec.name for spec in specs] == [f"control-plane-{n}" for n in (1, 2, 3)]
    made = [layout.server_config(chosen, number, specs) for number in (1, 2, 3)]
    first = [parse_etcd_address(one.store).endpoints[0][1] for one in made]
    assert tuple(first) == chosen.etcd_ports[::2]
    assert [one.port for one in made] == list(chosen.server_ports)
    # Each is the control-plane node that stands for it.
    assert [one.advertise_address for one in made] == ["172.20.0.2", "172.20.0.3", "172.20.0.4"]
    address = parse_etcd_address(made[0].store)
    assert address.tls and address.cert.endswith("apiserver-etcd-client.crt")


def test_certificates_of_etcd_are_its_own_and_private(config: ClusterConfig) -> None:
    made = layout.ensure_etcd_pki(config)
    for key in config.pki.rglob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    for name in ("server.crt", "peer.crt"):
        cert = x509.load_pem_x509_certificate(made.file(name).read_bytes())
        usages = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert set(usages) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    before = made.client_cert.read_bytes()
    assert layout.ensure_etcd_pki(config).client_cert.read_bytes() == before


def test_members_accept_clients_with_certificates_only(config: ClusterConfig) -> None:
    chosen = layout.choose_layout(config)
    command = layout.etcd_command(chosen, 2)
    for option in (
        "--name=etcd-2",
        "--client-cert-auth=true",
        "--peer-client-cert-auth=true",
        f"--listen-client-urls=https://127.0.0.1:{chosen.etcd_ports[2]}",
    ):
        assert option in command
    assert f"etcd-3=https://127.0.0.1:{chosen.etcd_ports[5]}" in " ".join(command)
