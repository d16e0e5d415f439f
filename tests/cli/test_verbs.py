from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from transom.cli.main import VERBS, main

BARE = Path(__file__).with_name("bare_transom.py")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def env(isolated_environment: dict[str, str]) -> dict[str, str]:
    return isolated_environment


@pytest.fixture
def transom(env: dict[str, str]) -> Iterator[Run]:
    def run(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(BARE), *args]
        return subprocess.run(
            command, env={**env, **more}, capture_output=True, text=True, timeout=60
        )

    yield run
    run("down", "--all")


def status(transom: Run, *args: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(transom("status", "--output", "json", *args).stdout)
    return report


def test_life_of_a_cluster(transom: Run, env: dict[str, str]) -> None:
    config = Path(env["HOME"], ".kube", "config")
    config.parent.mkdir()
    other = {"name": "other", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
    config.write_text(
        yaml.safe_dump({"contexts": [other], "current-context": "other", "extra": {"kept": True}})
    )

    up = transom("up", "--no-nodes")
    assert up.returncode == 0, up.stderr
    first = status(transom)
    assert (first["state"], first["ready"], first["nodes"]) == ("running", True, False)
    merged = yaml.safe_load(config.read_text())
    assert merged["current-context"] == "transom"
    assert merged["contexts"][0] == other
    assert merged["extra"] == {"kept": True}
    assert [c["name"] for c in merged["clusters"]] == ["transom"]
    assert merged["clusters"][0]["cluster"]["server"] == first["url"]
    assert config.stat().st_mode & 0o777 == 0o600

    again = transom("up")
    assert again.returncode == 1
    assert "already running" in again.stderr
    assert "transom down" in again.stderr

    assert transom("down").returncode == 0
    left = yaml.safe_load(config.read_text())
    assert left["contexts"] == [other]
    assert left["clusters"] == left["users"] == []
    stopped = transom("status")
    assert stopped.returncode == 1
    assert "stopped" in stopped.stdout

    assert transom("up").returncode == 0
    second = status(transom)
    assert (second["url"], second["nodes"]) == (first["url"], False)  # as it was left
    assert second["pid"] != first["pid"]

    assert transom("delete").returncode == 0
    assert not Path(first["stateDir"]).exists()
    assert transom("status").returncode == 1
    assert "transom up" in transom("down").stderr
    again = transom("delete")
    assert (again.returncode, again.stdout) == (
        0,
        "There is no cluster transom; nothing to delete.\n",
    )


def test_two_clusters_leave_each_other_alone(
    transom: Run, env: dict[str, str], tmp_path: Path
) -> None:
    blue_config = tmp_path / "blue.yaml"
    assert transom("up").returncode == 0
    assert transom("up", "--name", "blue", "--kubeconfig", str(blue_config)).returncode == 0
    assert len(yaml.safe_load(Path(env["HOME"], ".kube", "config").read_text())["contexts"]) == 1
    assert transom("status", "--all").stdout.count("running") == 2
    assert transom("delete", "--name", "blue").returncode == 0
    assert status(transom)["ready"]
    assert yaml.safe_load(blue_config.read_text())["contexts"] == []


def test_port_that_is_taken(transom: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = transom("up", "--port", str(port))
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr
    assert "--port" in done.stderr
    assert transom("up", "--port", "0").returncode == 0


def test_failed_start_shows_the_log_and_leaves_no_context(
    transom: Run, env: dict[str, str]
) -> None:
    done = transom("up", BARE_FAIL="1")
    assert done.returncode == 1
    assert "the store is on fire" in done.stderr
    assert not Path(env["HOME"], ".kube", "config").exists()
    assert "the store is on fire" in transom("logs", "--tail", "3").stdout
    assert transom("up").returncode == 0


def test_unusable_kubeconfig_is_left_alone(transom: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("contexts: [")
    done = transom("up", "--kubeconfig", str(bad))
    assert done.returncode == 1
    assert "--kubeconfig" in done.stderr
    assert bad.read_text() == "contexts: ["
    assert transom("status", "--all", "--output", "json").stdout == "[]\n"  # nothing was started


def test_killed_cluster_is_stopped_and_comes_back(transom: Run) -> None:
    assert transom("up").returncode == 0
    pid = status(transom)["pid"]
    os.kill(pid, signal.SIGKILL)
    for _ in range(1000):
        if status(transom)["state"] == "stopped":
            break
    assert status(transom)["state"] == "stopped"
    assert transom("up").returncode == 0


def test_apiserver_in_the_foreground(env: dict[str, str], transom: Run) -> None:
    command = [sys.executable, str(BARE), "apiserver", "--name", "front"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("serves Kubernetes v1.20.15" in line for line in lines)
        report = status(transom, "--name", "front")
        assert report["ready"]
        assert report["pid"] == process.pid
        assert "already running" in transom("up", "--name", "front").stderr
        assert not Path(env["HOME"], ".kube").exists()
        process.terminate()
        assert process.wait(20) == 0


def test_kubeconfig_is_printed(transom: Run) -> None:
    assert transom("up", "--name", "blue").returncode == 0
    printed = yaml.safe_load(transom("kubeconfig", "--name", "blue").stdout)
    assert printed["current-context"] == "blue"
    assert printed["clusters"][0]["cluster"]["server"] == status(transom, "--name", "blue")["url"]
    assert json.loads(transom("kubeconfig", "--name", "blue", "-o", "json").stdout) == printed


@pytest.mark.parametrize(
    "args",
    [
        ("up", "--name", "Not/Valid"),
        ("up", "--name", ".."),
        ("down", "--name", "ghost"),
        ("logs", "--name", "ghost"),
        ("bench", "api", "--name", "ghost"),
    ],
)
def test_errors_say_what_to_do(transom: Run, args: tuple[str, ...]) -> None:
    done = transom(*args)
    assert done.returncode == (2 if args[0] == "up" else 1), done.stderr
    error, hint = done.stderr.strip().split("\n")
    assert error.startswith("error: ")
    assert hint


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert f"  transom {verb}" in text.partition("examples:")[2]


def test_overview_and_unknown_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert [verb for verb in VERBS if f"\n  {verb} " not in text] == []
    assert main(["statsu"]) == 2
    assert "transom status" in capsys.readouterr().err
    assert main([]) == 2


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["kubernetes"] == "v1.20.15"
