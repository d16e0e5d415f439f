from __future__ import annotations

from pathlib import Path

import pytest

from transom.cluster.cluster_file import WindowsOptions, read_cluster_file
from transom.cluster.config import ClusterConfig
from transom.cluster.options import apply_windows_options, windows_policy
from transom.kit.user_errors import UserError
from transom.windows.policy import WarningPolicy

HEAD = "apiVersion: transom.dev/v1\nkind: Cluster\n"


def test_options_count_before_the_file_and_the_file_before_the_last_start() -> None:
    before = ClusterConfig(reject_windows=("WIN-POD-002",))
    assert apply_windows_options(before, WindowsOptions(), WindowsOptions()) == before
    file = WindowsOptions(warn=False, reject=("win-sto-*",))
    assert apply_windows_options(before, WindowsOptions(), file).reject_windows == ("WIN-STO-*",)
    chosen = apply_windows_options(before, WindowsOptions(reject=()), file)
    assert (chosen.warn_windows, chosen.reject_windows) == (False, ())


def test_an_id_that_is_not_there_is_an_error_with_a_hint() -> None:
    with pytest.raises(UserError) as caught:
        apply_windows_options(
            ClusterConfig(), WindowsOptions(reject=("WIN-PODS-003",)), WindowsOptions()
        )
    assert "WIN-POD-003" in caught.value.hint


def test_the_cluster_file_says_it_too(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(HEAD + "windows:\n  reject: [WIN-STO-010]\n  warn: false\n")
    assert read_cluster_file(file).windows == WindowsOptions(False, ("WIN-STO-010",))


@pytest.mark.parametrize(
    "text", ["{reject: WIN-STO-010}", "{warn: 1}", "{warning: true}", "{reject: [1]}", "[]"]
)
def test_mistakes_in_the_file_are_reported(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(f"{HEAD}windows: {text}\n")
    with pytest.raises(UserError, match="windows"):
        read_cluster_file(file)


def test_a_control_plane_alone_says_nothing() -> None:
    assert windows_policy(ClusterConfig()) == WarningPolicy()
    assert windows_policy(ClusterConfig(warn_windows=False)) is None
    assert windows_policy(ClusterConfig(no_nodes=True)) is None
    assert windows_policy(ClusterConfig(no_nodes=True, reject_windows=("WIN-*",))) == WarningPolicy(
        reject=("WIN-*",)
    )
