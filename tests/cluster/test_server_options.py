"""The options of several API servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from transom.cluster.cluster_file import ClusterFile
from transom.cluster.config import ClusterConfig, save_nodes
from transom.cluster.options import ServerSetOptions, UpOptions, choose_config
from transom.cluster.pki import ensure_cluster_pki
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.node.spec import NodeSpec, demo_specs


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def chosen(before: ClusterConfig | None, store: str | None = None, **options: Any) -> ClusterConfig:
    wanted = UpOptions(nodes=False, store=store, server_set=ServerSetOptions(**options))
    return choose_config(before, wanted, ClusterFile(), "", lambda _text: None)[0]


def test_a_server_advertises_the_address_that_it_listens_on() -> None:
    made = chosen(None, "etcd://10.0.0.9", bind_address="10.0.0.1")
    assert (made.bind, made.advertise_address) == ("10.0.0.1", "10.0.0.1")
    made = chosen(None, "etcd://10.0.0.9", bind_address="0.0.0.0", advertise_address="10.0.0.1")
    assert (made.bind, made.advertise_address) == ("0.0.0.0", "10.0.0.1")
    assert made.url == "https://10.0.0.1:0"
    assert chosen(None, "etcd://10.0.0.9").advertise_address == ""
    assert chosen(None, bind_address="10.0.0.1").advertise_address == ""


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "here"])
def test_an_address_that_others_cannot_reach_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="--advertise-address"):
        chosen(None, "etcd://10.0.0.9", advertise_address=address)


def test_names_of_a_load_balancer_are_in_the_certificate() -> None:
    extra = ("10.0.0.10", "api.example.com", "*.example.org")
    made = chosen(None, "etcd://10.0.0.9", bind_address="10.0.0.1", cert_extra_sans=extra)
    names = certificate_names(made)
    assert {"10.0.0.1", "kubernetes.default.svc", *extra} <= names
    # A later start keeps them unless others are given, and issues the certificate again if they are.
    assert chosen(made).cert_extra_sans == extra
    changed = chosen(made, cert_extra_sans=("10.0.0.11",))
    assert "10.0.0.11" in (names := certificate_names(changed)) and "10.0.0.10" not in names
    for wrong in ("10.0.0.256:1", "api_example", "https://api.example.com"):
        with pytest.raises(UserError, match="--apiserver-cert-extra-sans"):
            chosen(None, cert_extra_sans=(wrong,))


def certificate_names(config: ClusterConfig) -> set[str]:
    made = ensure_cluster_pki(config)
    certificate = x509.load_pem_x509_certificate(made.server_cert.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    return {*names.get_values_for_type(x509.DNSName), *(str(one) for one in addresses)}


def test_one_server_does_not_become_several() -> None:
    def wanted(number: int) -> ServerSetOptions:
        return ServerSetOptions(servers=number)

    def choose(before: ClusterConfig | None, number: int) -> ClusterConfig:
        options = UpOptions(nodes=False, server_set=wanted(number))
        return choose_config(before, options, ClusterFile(), "", lambda _text: None)[0]

    assert choose(None, 3).servers == 3
    assert choose(None, 1).servers == 0
    with pytest.raises(UserError, match="was created with 1 API servers") as raised:
        choose(ClusterConfig(), 3)
    assert raised.value.code == EXIT_USAGE
    assert "transom migrate --servers 3" in raised.value.hint
    several = ClusterConfig(servers=3, store="etcds://127.0.0.1:1", etcd_ports=(1, 2))
    with pytest.raises(UserError, match="was created with 3 API servers"):
        choose(several, 1)
    assert choose(several, 5).servers == 5
    assert chosen(several).servers == 3
    with pytest.raises(UserError, match="use another etcd"):
        chosen(several, "sqlite")


def test_servers_of_an_etcd_that_is_not_their_own_may_become_more_or_fewer() -> None:
    def choose(before: ClusterConfig, number: int) -> tuple[ClusterConfig, list[NodeSpec] | None]:
        options = UpOptions(server_set=ServerSetOptions(servers=number))
        return choose_config(before, options, ClusterFile(), "", lambda _text: None)

    one = ClusterConfig(store="etcd://127.0.0.1:1")
    save_nodes(one, demo_specs(one, 1, 0, None, False))
    config, nodes = choose(one, 3)
    assert config.servers == 3 and nodes is not None
    names = [node.name for node in nodes]
    assert names == ["control-plane", "linux-1", "control-plane-2", "control-plane-3"]
    config, nodes = choose(config, 1)
    assert config.servers == 0 and nodes is None
