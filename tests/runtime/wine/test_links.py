"""Links in Windows images and in writable directories cannot lead processes outside of the
container astray.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pytest

from transom.runtime.wine import bundle, drives, jobs

UP = "../" * 30


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the machine, with a file that must not change."""
    made = tmp_path / "outside"
    (made / "inner").mkdir(parents=True)
    (made / "inner").chmod(0o755)
    (made / "passwd").write_text("root")
    return made


def target(outside: Path, absolute: bool) -> str:
    return str(outside) if absolute else f"{UP}{str(outside)[1:]}"


@pytest.mark.parametrize("absolute", [True, False])
def test_files_of_an_image_are_not_moved_out_of_it(
    tmp_path: Path, outside: Path, absolute: bool
) -> None:
    """The image has WINDOWS with files, and a link in the place of the template's windows."""
    template, layer, snapshot = (tmp_path / name for name in ("template", "layer", "snapshot"))
    (template / "windows").mkdir(parents=True)
    for place in (layer, snapshot):
        (place / "WINDOWS/inner").mkdir(parents=True)
        (place / "WINDOWS/passwd").write_text("evil")
        (place / "windows").symlink_to(target(outside, absolute))
    drives.join_windows_path(snapshot, template, [layer])
    assert (outside / "passwd").read_text() == "root"
    assert (snapshot / "windows/passwd").read_text() == "evil" and not (
        snapshot / "windows"
    ).is_symlink()


@pytest.mark.parametrize("absolute", [True, False])
def test_no_directory_outside_becomes_writable(
    tmp_path: Path, outside: Path, absolute: bool
) -> None:
    """A lower layer has a directory, an upper one a link in the place of the one that it is in."""
    layer, snapshot = tmp_path / "layer", tmp_path / "snapshot"
    (layer / "app/inner").mkdir(parents=True)
    (layer / "own/inner").mkdir(parents=True)
    (snapshot / "own/inner").mkdir(parents=True)
    (snapshot / "app").symlink_to(target(outside, absolute))
    bundle.let_users_write(snapshot, [layer])
    assert stat.S_IMODE((outside / "inner").stat().st_mode) == 0o755
    assert stat.S_IMODE((snapshot / "own/inner").stat().st_mode) == 0o1777


@pytest.mark.parametrize("absolute", [True, False])
def test_no_profile_and_no_hosts_file_is_written_outside(
    tmp_path: Path, outside: Path, absolute: bool
) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "Users").symlink_to(target(outside, absolute))
    (snapshot / "windows").symlink_to(target(outside, absolute))
    for write in (
        lambda: bundle.make_user_profile(snapshot, PurePosixPath("Users/ContainerUser"), 0),
        lambda: bundle.announce_names(snapshot, "host", ["10.0.0.1"]),
    ):
        with suppress(OSError):
            write()
    assert sorted(os.listdir(outside)) == ["inner", "passwd"]


def test_a_profile_is_made_once(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    (snapshot / "Real").mkdir(parents=True)
    (snapshot / "Users").symlink_to("Real")
    bundle.make_user_profile(snapshot, PurePosixPath("Users/me"), 0)
    assert (snapshot / "Real/me/AppData/Local/Temp").is_dir()
    (snapshot / "Real/me/Desktop").rmdir()
    bundle.make_user_profile(snapshot, PurePosixPath("Users/me"), 0)
    assert not (snapshot / "Real/me/Desktop").exists()


def test_a_job_is_not_written_through_a_link(tmp_path: Path, outside: Path) -> None:
    """A container can exchange everything in its prefix."""
    prefix = tmp_path / "prefix"
    prefix.mkdir()
    (prefix / "jobs").symlink_to(outside)
    with pytest.raises(OSError):
        jobs.write_job(prefix, "x", 0, cwd="C:\\", command="evil", env={})
    (outside / "x.status").write_text("exit 7\n")
    assert jobs.read_job(prefix, "x") == jobs.JobState()
    jobs.forget_job(prefix, "x")
    assert (outside / "x.status").exists()
    (prefix / "jobs").unlink()
    jobs.make_jobs_folder(prefix, 0)
    (prefix / "jobs/x.job").symlink_to(outside / "passwd")
    jobs.write_job(prefix, "x", 0, cwd="C:\\", command="dir", env={"A": "1"})
    assert (outside / "passwd").read_text() == "root"
    assert (prefix / "jobs/x.job").read_bytes() == b"C:\\\0dir\0A=1\0"
    assert stat.S_IMODE((prefix / "jobs/x.job").lstat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["pipe", "link", "endless", "directory"])
def test_the_state_of_a_job_is_never_waited_for(tmp_path: Path, outside: Path, kind: str) -> None:
    jobs.make_jobs_folder(tmp_path, 0)
    path = tmp_path / "jobs/x.status"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        (outside / "status").write_text("exit 7\n")
        path.symlink_to(outside / "status")
    elif kind == "endless":
        path.write_text("pid 5\n")
        os.truncate(path, 1 << 40)
    else:
        path.mkdir()
    begin = time.monotonic()
    assert jobs.read_job(tmp_path, "x") == (
        jobs.JobState("pid", 5) if kind == "endless" else jobs.JobState()
    )
    assert time.monotonic() - begin < 5
