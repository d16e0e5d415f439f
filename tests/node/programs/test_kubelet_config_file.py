"""The kubelet's configuration file and its drop-in files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from transom.kit.clock import VirtualClock
from transom.kubelet import os_linux
from transom.machines.linux import LinuxHost
from transom.node.programs.flags.gates import gate_problem
from transom.node.programs.flags.golang import FlagError
from transom.node.programs.flags.kubelet import kubelet_flags, parse_kubelet_flags
from transom.node.programs.kubelet_config_file import (
    ConfigFileError,
    apply_configuration,
    file_settings,
    read_kubelet_configuration,
)

HEAD = b"kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
BASE, FOLDER = "/etc/kubelet.yaml", "/etc/kubelet.conf.d"


@pytest.fixture
def start() -> Any:
    files = LinuxHost("n", VirtualClock()).files
    files.write(BASE, HEAD + b"maxPods: 7\npodsPerCore: 3\nevictionHard: {a: 1%, b: 2%}\n", 0o644)
    files.mkdir(FOLDER, 0o755)
    files.write(f"{FOLDER}/20-b.conf", HEAD + b"maxPods: 9\nevictionHard: {b: 3%}\n", 0o644)
    files.write(f"{FOLDER}/10-a.conf", HEAD + b"maxPods: 8\nimageMaximumGCAge: 1h\n", 0o644)
    files.write(f"{FOLDER}/README.md", b"not a drop-in file", 0o644)
    return SimpleNamespace(files=files, path=lambda path: path, rules=os_linux.RULES)


def test_drop_in_files_are_merged_in_the_order_of_their_names(start: Any) -> None:
    content = read_kubelet_configuration(start, BASE, FOLDER)
    assert content["maxPods"] == 9
    assert content["podsPerCore"] == 3
    assert content["evictionHard"] == {"a": "1%", "b": "3%"}
    assert read_kubelet_configuration(start, BASE, "")["maxPods"] == 7
    assert file_settings(content) == {"image_maximum_gc_age": 3600.0}


def test_flags_win(start: Any) -> None:
    parsed = parse_kubelet_flags(["--max-pods=5", f"--config-dir={FOLDER}"], (1, 36))
    assert kubelet_flags(parsed).config_dir == FOLDER
    apply_configuration(read_kubelet_configuration(start, BASE, FOLDER), parsed)
    assert parsed.values["max-pods"] == 5
    assert parsed.values["pods-per-core"] == 3


def test_the_flag_exists_since_1_28() -> None:
    with pytest.raises(FlagError, match="unknown flag: --config-dir"):
        parse_kubelet_flags([f"--config-dir={FOLDER}"], (1, 20))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"maxPods: 3\n", "no apiVersion/kind"),
        (b"kind: Pod\napiVersion: v1\n", "unknown apiVersion/kind: v1, Kind=Pod"),
    ],
)
def test_bad_drop_in_files(start: Any, text: bytes, error: str) -> None:
    start.files.write(f"{FOLDER}/30-c.conf", text, 0o644)
    with pytest.raises(ConfigFileError) as failure:
        read_kubelet_configuration(start, BASE, FOLDER)
    assert str(failure.value) == (
        "failed to merge kubelet configs: failed to load kubelet dropin file, path: "
        f"{FOLDER}/30-c.conf, {error}"
    )


def test_settings_without_a_flag() -> None:
    assert file_settings(
        {
            "crashLoopBackOff": {"maxContainerRestartPeriod": "30s"},
            "enableSystemLogQuery": True,
            "shutdownGracePeriod": "1m",
        }
    ) == {
        "max_container_restart_period": 30.0,
        "enable_system_log_query": True,
        "shutdown_grace_period": 60.0,
    }
    with pytest.raises(ConfigFileError, match="shutdownGracePeriod"):
        file_settings({"shutdownGracePeriod": "soon"})


def test_gates_of_the_release() -> None:
    assert not gate_problem({"SidecarContainers": True}, (1, 30))
    assert gate_problem({"SidecarContainers": True}, (1, 20)) == (
        "unrecognized feature gate: SidecarContainers"
    )
    assert gate_problem({"Nothing": True}, (1, 36)) == "unrecognized feature gate: Nothing"
