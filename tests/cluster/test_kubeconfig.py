from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from transom.cluster import kubeconfig
from transom.kit.user_errors import UserError


def entries(name: str, server: str = "https://127.0.0.1:1") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": "t"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


def test_merge_replaces_its_own_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "config"
    kubeconfig.merge_kubeconfig(path, entries("a"))
    kubeconfig.merge_kubeconfig(path, entries("b"))
    kubeconfig.merge_kubeconfig(path, entries("a", "https://127.0.0.1:2"))
    content = yaml.safe_load(path.read_text())
    assert [(c["name"], c["cluster"]["server"]) for c in content["clusters"]] == [
        ("b", "https://127.0.0.1:1"),
        ("a", "https://127.0.0.1:2"),
    ]
    assert content["current-context"] == "a"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["config"]


def test_remove_unsets_only_its_own_context(tmp_path: Path) -> None:
    path = tmp_path / "config"
    kubeconfig.merge_kubeconfig(path, entries("a"))
    kubeconfig.merge_kubeconfig(path, entries("b"))
    assert kubeconfig.remove_from_kubeconfig(path, "a")
    assert yaml.safe_load(path.read_text())["current-context"] == "b"
    before = path.read_bytes()
    assert not kubeconfig.remove_from_kubeconfig(path, "a")
    assert path.read_bytes() == before
    assert kubeconfig.remove_from_kubeconfig(path, "b")
    assert yaml.safe_load(path.read_text())["current-context"] == ""
    assert not kubeconfig.remove_from_kubeconfig(tmp_path / "absent", "a")


def test_symbolic_link_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    kubeconfig.merge_kubeconfig(link, entries("a"))
    assert link.is_symlink()
    assert yaml.safe_load(real.read_text())["current-context"] == "a"


@pytest.mark.parametrize("text", ["a: [", "[]", "contexts: {a: 1}", "clusters: [1]"])
def test_other_files_are_not_touched(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(UserError):
        kubeconfig.merge_kubeconfig(path, entries("a"))
    assert path.read_text() == text
    assert not (tmp_path / "config.lock").exists()


def test_locked_file_is_waited_for_and_then_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubeconfig, "_LOCK_SECONDS", 0.05)
    (tmp_path / "config.lock").touch()
    with pytest.raises(UserError, match="locked") as error:
        kubeconfig.merge_kubeconfig(tmp_path / "config", entries("a"))
    assert "config.lock" in error.value.hint
    assert (tmp_path / "config.lock").exists()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/x/a:/x/b", "/x/a"),
        (":/x/b", "/x/b"),
        ("", "/home/jane/.kube/config"),
    ],
)
def test_default_path(monkeypatch: pytest.MonkeyPatch, value: str, expected: str) -> None:
    monkeypatch.setenv("KUBECONFIG", value)
    monkeypatch.setenv("HOME", "/home/jane")
    assert str(kubeconfig.default_kubeconfig_path()) == expected


@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_a_file_that_is_not_regular_is_refused_without_reading_it(
    kind: str, tmp_path: Path
) -> None:
    path = Path("/dev/full")
    if kind == "pipe":
        path = tmp_path / "pipe"
        os.mkfifo(path)
    with pytest.raises(UserError, match="it is not a regular file"):
        kubeconfig.check_kubeconfig(path)
