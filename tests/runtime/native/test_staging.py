"""Mounts are gathered for runc: which of them Transom puts together itself, and what runc receives
of the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transom.machines import mounting, pinning
from transom.runtime.native.monitor.staging import PINNED, SHARED, MountStage

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[MountStage]:
    (tmp_path / "root").mkdir()
    made = MountStage(str(tmp_path / "stage"), str(tmp_path / "root"))
    yield made
    made.close()
    assert mounting.mount_points(str(tmp_path)) == []


def bind(source: Path, destination: str, *options: str, **more: Any) -> dict[str, Any]:
    source.mkdir(parents=True, exist_ok=True)
    given = ["rbind", "rprivate", *options]
    return {
        "destination": destination,
        "type": "bind",
        "source": str(source),
        "options": given,
        **more,
    }


def test_what_is_our_own_is_left_to_runc(stage: MountStage, tmp_path: Path) -> None:
    """As the folders of a Windows container: no other container can change them."""
    prefix, drive = tmp_path / "prefix", tmp_path / "drive"
    mounts = [bind(prefix, "/wine", "rw"), bind(drive, "/wine/drive_c", "rw", "nosuid", "nodev")]
    assert stage.gather(mounts, masked=True) == mounts
    assert not (tmp_path / "stage").exists()


def test_a_link_in_our_own_leads_to_a_volume(stage: MountStage, tmp_path: Path) -> None:
    """Of the image: what is mounted by that link is in the volume, where others can change
    things.
    """
    drive, volume, inner = tmp_path / "drive", tmp_path / "volume", tmp_path / "inner"
    drive.mkdir()
    (drive / "link").symlink_to("/wine/drive_c/data")
    mounts = [
        bind(drive, "/wine/drive_c", "rw"),
        bind(volume, "/wine/drive_c/data", "rw", pinned=True),
        bind(inner, "/wine/drive_c/link/in", "ro", "nosuid", "nodev", pinned=True),
    ]
    found = stage.gather(mounts, masked=True)
    assert [entry["destination"] for entry in found] == ["/wine/drive_c", "/wine/drive_c/data"]
    outer = Path(found[1]["source"])
    assert outer.parent == tmp_path / "stage"
    assert found[1]["options"] == ["rbind", "private", "rw"], (
        "what is in it has its own propagation"
    )
    (inner / "file").write_text("")
    assert os.listdir(outer / "in") == ["file"]
    flags = os.statvfs(outer / "in").f_flag
    assert flags & os.ST_RDONLY and flags & os.ST_NOSUID and flags & os.ST_NODEV
    assert not os.statvfs(outer).f_flag & os.ST_RDONLY


def test_shared_memory_is_put_together_too(stage: MountStage, tmp_path: Path) -> None:
    mounts = [
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []},
        bind(tmp_path / "shm", "/dev/shm", "rw", shared=True),
        bind(tmp_path / "v", "/dev/shm/a/b", "rw", pinned=True),
    ]
    found = stage.gather(mounts, masked=True)
    assert [entry["destination"] for entry in found] == ["/dev", "/dev/shm"]
    assert SHARED not in found[1]
    assert (tmp_path / "shm/a/b").is_dir()


def test_a_source_that_is_a_link_now(stage: MountStage, tmp_path: Path) -> None:
    (tmp_path / "v").symlink_to("/")
    entry = {
        "destination": "/v",
        "type": "bind",
        "source": str(tmp_path / "v"),
        "options": ["rbind"],
        PINNED: True,
    }
    with pytest.raises(OSError):
        stage.gather([entry], masked=False)


@pytest.mark.parametrize("has_openat2", [True, False])
def test_opening_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_openat2: bool
) -> None:
    """The same on kernels that have no openat2."""
    if not has_openat2:
        monkeypatch.setattr(pinning, "_OPENAT2", 100000)
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/file").write_text("content")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "a/last").symlink_to("file")
    for path in ("a", "a/b", "a/file"):
        fd = pinning.open_without_links(str(tmp_path / path))
        assert os.fstat(fd).st_ino == (tmp_path / path).stat().st_ino
        os.close(fd)
    fd = pinning.open_without_links(str(tmp_path / "a/file"), os.O_RDONLY)
    assert os.read(fd, 100) == b"content"
    os.close(fd)
    for path in ("link", "link/b", "a/last", "link/../a"):
        with pytest.raises(OSError, match="symbolic links"):
            pinning.open_without_links(str(tmp_path / path))
    with pytest.raises(FileNotFoundError):
        pinning.open_without_links(str(tmp_path / "a/none"))


@pytest.mark.parametrize("has_openat2", [True, False])
def test_mounts_are_not_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_openat2: bool
) -> None:
    if not has_openat2:
        monkeypatch.setattr(pinning, "_OPENAT2", 100000)
    (tmp_path / "tree/a/on-directory").mkdir(parents=True)
    (tmp_path / "tree/a/on-file").write_text("")
    (tmp_path / "kept/inner").mkdir(parents=True)
    (tmp_path / "kept/inner/file").write_text("kept")
    (tmp_path / "tree/out").symlink_to(tmp_path / "kept")
    mounting.mount_filesystem(
        str(tmp_path / "kept"), str(tmp_path / "tree/a/on-directory"), "", mounting.BIND
    )
    mounting.mount_filesystem(
        str(tmp_path / "kept/inner/file"), str(tmp_path / "tree/a/on-file"), "", mounting.BIND
    )
    pinning.remove_folder(str(tmp_path / "tree"))
    assert not (tmp_path / "tree").exists()
    assert (tmp_path / "kept/inner/file").read_text() == "kept"
    assert mounting.mount_points(str(tmp_path)) == []
