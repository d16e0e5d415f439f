"""Where the Unix half of stand-ins comes from."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import transom
from transom.runtime.wine.standin import unix_half

PACKAGE = (str(Path(transom.__file__).parent), "/standin/transom")


@pytest.mark.parametrize(
    "seen, more", [(("/usr",), [("/opt/python", "/opt/python")]), (("/usr", "/opt"), [])]
)
def test_a_python_that_containers_do_not_see_is_mounted_where_it_is(
    monkeypatch: pytest.MonkeyPatch, seen: tuple[str, ...], more: list[tuple[str, str]]
) -> None:
    monkeypatch.setattr(sys, "base_prefix", "/opt/python")
    assert unix_half.binds(seen) == [PACKAGE, *more]


def test_a_package_in_an_archive_cannot_be_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transom, "__file__", "/x/transom.zip/transom/__init__.py")
    assert unix_half.binds(("/usr",)) == []


def test_the_script_runs_by_the_real_python_and_leaves_at_the_end_of_its_input(
    tmp_path: Path,
) -> None:
    folder = tmp_path / unix_half.FOLDER
    folder.mkdir()
    (folder / "transom").symlink_to(PACKAGE[0])
    script = tmp_path / unix_half.START
    script.write_text(unix_half.script().replace(f"'/{unix_half.FOLDER}'", repr(str(folder))))
    script.chmod(0o755)
    python = unix_half.script().partition(" ")[0].removeprefix("#!")
    assert os.access(python, os.X_OK) and not os.path.islink(python)
    ours, theirs = socket.socketpair()
    running = subprocess.Popen(
        [str(script)], stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE, env={}
    )
    theirs.close()
    ours.close()
    assert (running.wait(30), running.stderr.read() if running.stderr else b"") == (0, b"")
