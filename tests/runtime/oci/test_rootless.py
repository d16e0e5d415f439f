"""Without root: the monitor is root in its own namespaces, and what cannot work there is reported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.runtime import behaviour

ROOT = Path(__file__).parents[3]
NOBODY = 65534


def _why_not() -> str:
    if os.geteuid() == 0 and behaviour.unavailable("oci"):
        return behaviour.unavailable("oci")
    for tool in ("runc", "unshare", "setpriv"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    if subprocess.run(
        [*_become(), "unshare", "-Urm", "true"], capture_output=True, check=False
    ).returncode:
        return "users may not have namespaces of their own here"
    if _python() is None:
        return "no Python that others may run"
    return ""


def _become() -> list[str]:
    """The beginning of a command for a user who is not root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env"]


def _python() -> str | None:
    for program in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        command = [*_become(), program, "-c", "import transom.runtime.native.runtime"]
        if Path(program).exists():
            tried = subprocess.run(
                command, cwd="/", env=_environment(), capture_output=True, check=False
            )
            if tried.returncode == 0:
                return program
    return None


def _environment() -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ":".join([str(ROOT), *filter(None, sys.path)]),
        "HOME": "/",
    }


def test_containers_without_root() -> None:
    why = _why_not()
    if why:
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="transom-rootless"))
    try:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        command = [*_become(), str(_python()), "-m", "tests.runtime.oci.rootless", str(folder)]
        done = subprocess.run(
            command,
            cwd="/",
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "everything is gone"
    finally:
        shutil.rmtree(folder)
