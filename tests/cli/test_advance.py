"""`transom advance`: the requests that it sends, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from transom.cli.main import main
from transom.cluster import lifecycle
from transom.cluster.cluster_file import ClusterFile
from transom.cluster.options import UpOptions, choose_config
from transom.kit.user_errors import UserError


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Any]]:
    calls: list[tuple[str, str, Any]] = []

    def call(method: str, path: str, body: Any) -> Any:
        calls.append((method, path, body))
        return {"time": "2026-01-01T00:00:00.000000Z", "virtual": True}

    monkeypatch.setattr(lifecycle, "existing_cluster", lambda name: SimpleNamespace(name=name))
    monkeypatch.setattr(lifecycle, "control_client", lambda config, timeout: call)
    return calls


def test_a_long_time_is_advanced_in_steps(
    sent: list[tuple[str, str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advance", "2m30s", "--name", "blue"]) == 0
    assert [(method, path) for method, path, _ in sent] == [("POST", "/transom/clock")] * 3
    assert [body["advanceSeconds"] for _, _, body in sent] == [60, 60, 30]
    assert capsys.readouterr().out == "The time in cluster blue is 2026-01-01T00:00:00.000000Z.\n"


@pytest.mark.parametrize("duration", ["0s", "-5m", "soon", ""])
def test_only_a_positive_duration_is_accepted(
    duration: str, sent: list[tuple[str, str, Any]]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["advance", "--name=blue", "--", duration])
    assert end.value.code == 2 and sent == []


def test_virtual_time_is_an_option_of_clusters_in_one_process() -> None:
    def choose(**more: Any) -> bool:
        options = UpOptions("blue", nodes=False, **more)
        config, _ = choose_config(None, options, ClusterFile(), "", lambda _text: None)
        return config.virtual_time

    assert choose() is False
    assert choose(virtual_time=True) is True
    with pytest.raises(UserError, match="one process"):
        choose(virtual_time=True, store="etcd://127.0.0.1:2379")
