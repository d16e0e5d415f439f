"""The options of several API servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.cluster.cluster_file import ClusterFile
from transom.cluster.config import ClusterConfig, save_nodes
from transom.cluster.options import ServerSetOptions, UpOptions, choose_config
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.node.spec import NodeSpec, demo_specs


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def chosen(before: ClusterConfig | None, store: str | None = None, **options: str) -> ClusterConfig:
    wanted = UpOptions(nodes=False, store=store, server_set=ServerSetOptions(**options))  # type: ignore[arg-type]
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
