from __future__ import annotations

from pathlib import Path

import pytest

from transom.cluster import config as configs
from transom.cluster.config import ClusterConfig
from transom.kit.user_errors import UserError


def test_configuration_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert configs.load_config("blue") is None
    config = ClusterConfig(name="blue", port=7443, node_ports=(30000, 30100), no_nodes=True)
    configs.save_config(config)
    assert configs.load_config("blue") == config
    assert configs.known_clusters() == ["blue"]
    assert config.state.stat().st_mode & 0o777 == 0o700
    (config.state / "cluster.json").write_text(
        '{"name": "blue", "from-a-later-version": 1, "port": 1}'
    )
    assert configs.load_config("blue") == ClusterConfig(name="blue", port=1)


@pytest.mark.parametrize("text", ["{", '{"release": "9.9"}'])
def test_damage_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    configs.save_config(ClusterConfig(name="blue"))
    (tmp_path / "transom" / "blue" / "cluster.json").write_text(text)
    with pytest.raises(UserError, match=r"cluster\.json"):
        configs.load_config("blue")


def test_relative_data_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/jane")
    assert str(ClusterConfig().state) == "/home/jane/.local/share/transom/transom"


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "-a", "a" * 64])
def test_bad_names(name: str) -> None:
    with pytest.raises(UserError):
        configs.check_cluster_name(name)
