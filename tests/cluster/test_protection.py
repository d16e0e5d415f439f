"""Audit and encryption as options of a cluster: remembered, checked before the start, and in force
on a real one.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from transom.client.http import HttpClient
from transom.client.kubeconfig import load_kubeconfig
from transom.client.resources import SECRETS
from transom.cluster import config as configs
from transom.cluster import protection
from transom.cluster.config import ClusterConfig
from transom.cluster.protection import Protection
from transom.kit import keyring
from transom.kit.clock import RealClock
from transom.kit.user_errors import UserError

POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


def test_options_are_remembered_until_they_are_taken_back(policy_file: Path) -> None:
    config = protection.choose_protection(
        ClusterConfig(name="blue"), Protection(audit_policy=policy_file, encrypt=True)
    )
    configs.save_config(config)
    loaded = configs.load_config("blue")
    assert loaded == config and protection.choose_protection(config, Protection()) == config
    assert protection.audit_log(config) == config.state / "audit.log"
    keys = Path(config.encryption_key_file)
    assert keys == config.state / "encryption.keys" and keys.stat().st_mode & 0o777 == 0o600
    protection.check_protection(config)
    off = protection.choose_protection(config, Protection(no_audit=True, encrypt=False))
    assert off.audit_policy == "" and not off.encrypt
    # Needed to read what is there at the next start, and not any more afterwards.
    assert (off.encryption_key_file, off.former_key_files) == ("", (config.encryption_key_file,))


def test_a_key_file_is_never_made_anew(tmp_path: Path) -> None:
    config = protection.choose_protection(ClusterConfig(name="blue"), Protection(encrypt=True))
    keys = Path(config.encryption_key_file)
    before = keys.read_text()
    assert (
        protection.choose_protection(config, Protection(encrypt=True)) == config
        and keys.read_text() == before
    )
    keys.unlink()
    again = protection.choose_protection(config, Protection(encrypt=True))
    with pytest.raises(UserError, match="cannot read the key file"):
        protection.check_protection(again)


def test_wrong_files_are_reported_before_the_start(tmp_path: Path, policy_file: Path) -> None:
    loose = tmp_path / "keys"
    keyring.create_key_file(loose)
    loose.chmod(0o644)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("kind: Policy")
    for wanted, text in (
        (Protection(key_file=loose), "has mode 0644"),
        (Protection(key_file=tmp_path / "none"), "No such file"),
        (Protection(audit_policy=tmp_path / "none"), "No such file"),
        (Protection(audit_policy=wrong), "wrong.yaml cannot be used"),
        (
            Protection(audit_policy=policy_file, audit_log=tmp_path / "no" / "audit.log"),
            "cannot write the audit log",
        ),
    ):
        with pytest.raises(UserError, match=text):
            protection.check_protection(
                protection.choose_protection(ClusterConfig(name="blue"), wanted)
            )
    with pytest.raises(UserError, match="needs an audit policy"):
        protection.choose_protection(
            ClusterConfig(name="blue"), Protection(audit_log=tmp_path / "audit.log")
        )


# ---- a real cluster ----


class Cluster:
    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
        self.state = Path(env["XDG_DATA_HOME"]) / "transom" / "transom"

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "transom.cli.main", *args]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60)

    def up(self, *args: str) -> None:
        done = self.run("up", "--no-nodes", *args)
        assert done.returncode == 0, done.stderr

    def call(self, work: Callable[[HttpClient], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            client = HttpClient(load_kubeconfig(self.state / "kubeconfig"), RealClock())
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(main())

    def data(self) -> Any:
        return self.call(lambda client: client.get(SECRETS, "default", "s"))["data"]


def stored(path: Path) -> bytes:
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    values = [
        row[0]
        for row in connection.execute(
            "SELECT value FROM log WHERE key LIKE 'secrets/%' AND value IS NOT NULL"
        )
    ]
    connection.close()
    return b"".join(values)


@pytest.mark.e2e
def test_a_cluster_with_both_encrypts_secrets_and_writes_the_audit_log(
    isolated_environment: dict[str, str], tmp_path: Path, policy_file: Path
) -> None:
    cluster = Cluster(isolated_environment)
    try:
        cluster.up()
        secret = {"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}}
        cluster.call(lambda client: client.create(SECRETS, "default", secret))
        cluster.run("down")
        assert b"aHVudGVyMg==" in stored(cluster.state / "store.db")
        cluster.up("--encrypt", "--audit-policy", str(policy_file))
        assert cluster.data() == {"password": "aHVudGVyMg=="}
        cluster.run("down")
        files = b"".join(f.read_bytes() for f in cluster.state.glob("store.db*"))
        assert b"aHVudGVyMg==" not in files and b"hunter2" not in files
        audit = cluster.state / "audit.log"
        assert audit.stat().st_mode & 0o777 == 0o600
        events = [json.loads(line) for line in audit.read_text().splitlines()]
        assert any(
            e["objectRef"].get("name") == "s" and e["verb"] == "get"
            for e in events
            if "objectRef" in e
        )
        assert (
            b"aHVudGVyMg" not in audit.read_bytes() + (cluster.state / "transom.log").read_bytes()
        )
        keys = cluster.state / "encryption.keys"
        good = keys.read_bytes()
        keyring.create_key_file(keys)
        failed = cluster.run("up")
        assert failed.returncode == 1 and 'the key "key1" does not open it' in failed.stderr, (
            failed.stderr
        )
        assert "Traceback" not in failed.stderr.split("cannot use its data")[-1]
        keys.write_bytes(good)
        cluster.up("--no-encrypt")
        assert cluster.data() == {"password": "aHVudGVyMg=="}
        cluster.run("down")
        assert b"aHVudGVyMg==" in stored(cluster.state / "store.db")
    finally:
        cluster.run("delete")
