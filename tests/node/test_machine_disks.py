"""Where the disks of simulated machines are stored, and their state after failures."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from transom.kit import keyring
from transom.machines.saving import SavedContents
from transom.node.machine_disks import MachineDisks, MachineState
from transom.store.sealing import Sealing


def state(name: str, text: str, *contents: bytes) -> MachineState:
    return MachineState(
        name, {"text": text, "files": list(range(len(contents)))}, SavedContents(contents)
    )


def read(disks: MachineDisks, name: str) -> tuple[str, list[bytes]] | None:
    found = disks.load(name)
    return None if found is None else (found.document["text"], found.contents.items)


def test_machines_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "machines.db"
    disks = MachineDisks(path)
    assert disks.load("a") is None
    # a cluster that is never stopped, or has no simulated nodes, has no such file
    assert not path.exists()
    large = os.urandom(1 << 20)
    disks.save([state("a", "first", b"small", large), state("b", "second")])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    disks.close()
    disks = MachineDisks(path)
    assert read(disks, "a") == ("first", [b"small", large])
    assert read(disks, "b") == ("second", [])
    disks.save([state("a", "third", large)])
    assert read(disks, "a") == ("third", [large])
    assert read(disks, "b") == ("second", [])
    disks.save([state("a", "fourth")])
    disks.forget(lambda name: name == "b")
    assert read(disks, "a") == ("fourth", [])
    assert disks.load("b") is None
    disks.close()
    assert sqlite3.connect(path).execute("SELECT count(*) FROM content").fetchone() == (0,)


def test_large_contents_are_written_once(tmp_path: Path) -> None:
    disks = MachineDisks(tmp_path / "machines.db")
    large = os.urandom(4 << 20)
    disks.save([state("a", "x", large)])
    disks.close()
    size = (tmp_path / "machines.db").stat().st_size
    disks = MachineDisks(tmp_path / "machines.db")
    for number in range(5):
        disks.save([state("a", str(number), large)])
    assert (tmp_path / "machines.db-wal").stat().st_size < size / 10
    disks.close()


def test_a_process_that_is_killed_leaves_whole_machines(tmp_path: Path) -> None:
    path = tmp_path / "machines.db"
    disks = MachineDisks(path)
    disks.save([state("a", "whole"), state("b", "whole")])

    with pytest.raises(TypeError):  # in the middle of it
        disks.save([state("a", "torn"), MachineState("b", object(), SavedContents())])
    assert read(MachineDisks(path), "a") == ("whole", [])
    assert read(MachineDisks(path), "b") == ("whole", [])


def test_a_damaged_file_is_put_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "machines.db"
    path.write_bytes(b"this is not a database" * 100)
    disks = MachineDisks(path)
    assert disks.load("a") is None
    assert "is damaged" in caplog.text
    assert (tmp_path / "machines.db.damaged").exists()
    disks.save([state("a", "new")])
    assert read(disks, "a") == ("new", [])


def test_a_damaged_machine_starts_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "machines.db"
    disks = MachineDisks(path)
    disks.save([state("a", "x"), state("b", "y")])
    disks.close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE machine SET state = substr(state, 1, 30) WHERE name = 'a'")
    disks = MachineDisks(path)
    assert disks.load("a") is None
    assert "the disk of machine a cannot be read" in caplog.text
    assert read(disks, "b") == ("y", [])


def test_a_disk_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"machines\.db"):
        MachineDisks(tmp_path / "missing" / "machines.db").save([state("a", "x")])


def test_machines_of_an_encrypted_cluster_are_encrypted(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keyring.create_key_file(keys)
    path, secret = tmp_path / "machines.db", b"password of a Secret volume" * 20000
    disks = MachineDisks(path, Sealing(keyring.load_key_file(keys), ("secrets",)))
    disks.save([state("a", "a short password", secret)])
    disks.close()
    assert b"password" not in path.read_bytes()
    assert read(MachineDisks(path, Sealing(keyring.load_key_file(keys), ("secrets",))), "a") == (
        "a short password",
        [secret],
    )
    assert MachineDisks(path).load("a") is None
