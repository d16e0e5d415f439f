from __future__ import annotations

from pathlib import Path

import pytest

from transom.cluster.config import ClusterConfig
from transom.cluster.errors import ClusterError
from transom.cluster.file import read
from transom.cluster.windows import Windows, choose, policy
from transom.windows.policy import Policy

HEAD = "apiVersion: transom.dev/v1\nkind: Cluster\n"


def test_options_count_before_the_file_and_the_file_before_the_last_start() -> None:
    before = ClusterConfig(reject_windows=("WIN-POD-002",))
    assert choose(before, Windows(), Windows()) == before
    file = Windows(warn=False, reject=("win-sto-*",))
    assert choose(before, Windows(), file).reject_windows == ("WIN-STO-*",)
    chosen = choose(before, Windows(reject=()), file)
    assert (chosen.warn_windows, chosen.reject_windows) == (False, ())


def test_an_id_that_is_not_there_is_an_error_with_a_hint() -> None:
    with pytest.raises(ClusterError) as caught:
        choose(ClusterConfig(), Windows(reject=("WIN-PODS-003",)), Windows())
    assert "WIN-POD-003" in caught.value.hint


def test_the_cluster_file_says_it_too(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(HEAD + "windows:\n  reject: [WIN-STO-010]\n  warn: false\n")
    assert read(file).windows == Windows(False, ("WIN-STO-010",))


@pytest.mark.parametrize("text", ["{reject: WIN-STO-010}", "{warn: 1}", "{warning: true}", "{reject: [1]}", "[]"])
def test_mistakes_in_the_file_are_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(f"{HEAD}windows: {text}\n")
    with pytest.raises(ClusterError, match="windows"):
        read(file)


def test_a_control_plane_alone_says_nothing() -> None:
    assert policy(ClusterConfig()) == Policy()
    assert policy(ClusterConfig(warn_windows=False)) is None
    assert policy(ClusterConfig(no_nodes=True)) is None
    assert policy(ClusterConfig(no_nodes=True, reject_windows=("WIN-*",))) == Policy(reject=("WIN-*",))
