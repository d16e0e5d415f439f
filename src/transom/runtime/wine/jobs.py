r"""Process requests and results: the files that the helper `winrun` reads and writes. This module
starts no processes.

The files are in the container's prefix, next to its registry, outside of C:\. The container can
write there, so nothing is followed or waited for: a link, a pipe or an endless file in place of one
of these files is ignored.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple

MAIN: Final = "main"
SHUTDOWN: Final = "shutdown"  # where the helper winctrl writes how long Windows waits
PREFIX: Final = "/wine"  # in the container
_FOLDER: Final = "jobs"
TERMINATED: Final = 0xFFFFFFFF  # the exit code of a process that was terminated
_SIGNALLED: Final = 128
_LONGEST: Final = 65536


class JobState(NamedTuple):
    """`number` is Windows' process id, its exit code, or the error that prevented its start."""

    what: Literal["nothing", "pid", "exit", "error"] = "nothing"
    number: int = 0


def jobs_folder(prefix: Path) -> Path:
    return prefix / _FOLDER


def make_jobs_folder(prefix: Path, owner: int) -> None:
    made = jobs_folder(prefix)
    made.mkdir(mode=0o700)
    if owner:
        os.chown(made, owner, owner)


def job_path_inside(name: str) -> str:
    """The input of winrun, in the container."""
    return f"{PREFIX}/{_FOLDER}/{name}"


def write_job(
    prefix: Path, name: str, owner: int, *, cwd: str, command: str, env: Mapping[str, str]
) -> None:
    fields = (cwd, command, *(f"{key}={value}" for key, value in env.items()))
    data = memoryview("".join(f"{_clean(field)}\0" for field in fields).encode("utf-8", "replace"))
    with _opened_folder(prefix) as at:
        with suppress(FileNotFoundError):
            os.unlink(f"{name}.job", dir_fd=at)
        file = os.open(
            f"{name}.job",
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
            dir_fd=at,
        )
        try:
            while data:
                data = data[os.write(file, data) :]
            if owner:
                os.fchown(file, owner, owner)
        finally:
            os.close(file)


@contextmanager
def _opened_folder(prefix: Path) -> Iterator[int]:
    fd = os.open(jobs_folder(prefix), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _clean(field: str) -> str:
    return field.replace("\0", "")


def read_job(prefix: Path, name: str) -> JobState:
    """The last complete line."""
    try:
        content = _read(prefix, f"{name}.status")
    except OSError:
        return JobState()
    lines = [line.split() for line in content.splitlines(keepends=True) if line.endswith("\n")]
    for what, number in reversed([line for line in lines if len(line) == 2]):
        if what in ("pid", "exit", "error") and number.isdigit():
            return JobState(what, int(number))  # type: ignore[arg-type]
    return JobState()


def _read(prefix: Path, name: str) -> str:
    with _opened_folder(prefix) as at:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return ""
            return os.pread(file, _LONGEST, 0).decode(errors="replace")
        finally:
            os.close(file)


def job_shutdown_seconds(prefix: Path) -> float | None:
    """How long Windows waits for the processes of a container that shuts down; None: not known
    yet.
    """
    try:
        content = _read(prefix, SHUTDOWN)
    except OSError:
        return None
    match = re.fullmatch(r"timeout ([0-9]{1,9})\n", content)
    return int(match[1]) / 1000 if match is not None else None


def forget_job(prefix: Path, name: str) -> None:
    with suppress(OSError), _opened_folder(prefix) as at:
        for ending in ("job", "status"):
            with suppress(FileNotFoundError):
                os.unlink(f"{name}.{ending}", dir_fd=at)


def job_exit_code(state: JobState, status: int) -> int:
    """`status` is the Unix exit status. CRI's exit codes are signed: 0xC000013A is -1073741510."""
    code = (
        state.number
        if state.what == "exit"
        else TERMINATED
        if status >= _SIGNALLED and state.what == "pid"
        else status
    )
    return (code + 0x80000000) % 0x100000000 - 0x80000000
