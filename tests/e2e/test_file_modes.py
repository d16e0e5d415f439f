"""What `transom up` writes: keys and tokens are readable by their owner only, and no other user can
write, with any umask.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SECRET = re.compile(rb"PRIVATE KEY|client-key-data|\beyJ[\w-]{8,}\.eyJ|token: \S")
POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"


def transom(
    environment: dict[str, str], *arguments: str, umask: int = -1
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "transom.cli.main", *arguments]
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        umask=umask,
        check=False,
    )


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def written(
    request: pytest.FixtureRequest, tmp_path: Path, isolated_environment: dict[str, str]
) -> Iterator[Path]:
    """The folder in which a cluster with nodes, encryption, an audit log and a report has written
    everything.
    """
    (tmp_path / "policy.yaml").write_text(POLICY)
    name, env = f"modes-{secrets.token_hex(3)}", isolated_environment
    options = (
        "--kubeconfig",
        str(tmp_path / "out/kubeconfig"),
        "--encrypt",
        "--audit-policy",
        str(tmp_path / "policy.yaml"),
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out/kubeconfig").touch(0o644)
    up = transom(
        env, "up", "--name", name, "--linux", "1", "--windows", "1", *options, umask=request.param
    )
    assert up.returncode == 0, up.stderr
    report = transom(
        env,
        "report",
        "--name",
        name,
        "-o",
        str(tmp_path / "out/report.tar.gz"),
        umask=request.param,
    )
    assert report.returncode == 0, report.stderr
    yield tmp_path
    transom(env, "delete", "--name", name)


def test_modes(written: Path) -> None:
    state = next((written / "data/transom").glob("modes-*"))
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    files = [path for top in ("data", "out") for path in (written / top).rglob("*")]
    assert {
        "ca.key",
        "sa.key",
        "encryption.keys",
        "kubelet.key",
        "store.db",
        "transom.log",
        "audit.log",
        "kubeconfig",
    } <= {path.name for path in files}
    private = 0
    for path in files:
        found = path.lstat()
        assert found.st_uid == os.geteuid() and not found.st_mode & 0o022, path
        if stat.S_ISREG(found.st_mode):
            secret = (
                path.suffix in (".key", ".keys", ".log", ".db", ".gz")
                or SECRET.search(path.read_bytes()) is not None
            )
            assert not secret or stat.S_IMODE(found.st_mode) == 0o600, path
            private += secret
        assert not stat.S_ISSOCK(found.st_mode) or stat.S_IMODE(found.st_mode) == 0o600, path
    assert private > 10


def test_a_folder_that_is_open_to_others_is_closed(
    tmp_path: Path, isolated_environment: dict[str, str]
) -> None:
    state = tmp_path / "data/transom/open"
    state.mkdir(parents=True)
    state.parent.chmod(0o777)
    state.chmod(0o777)
    up = transom(
        isolated_environment,
        "up",
        "--name",
        "open",
        "--no-nodes",
        "--kubeconfig",
        str(tmp_path / "kubeconfig"),
    )
    transom(isolated_environment, "delete", "--name", "open")
    assert up.returncode == 0, up.stderr
    assert stat.S_IMODE(state.parent.stat().st_mode) == 0o755
