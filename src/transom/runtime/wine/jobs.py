r"""What a process is to be and what has become of it: the files that the helper `winrun` reads and writes. No processes here.

They are in the container's prefix, beside its registry, where no path of C:\ leads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

MAIN: Final = "main"
PREFIX: Final = "/wine"  # in the container
_FOLDER: Final = "jobs"
TERMINATED: Final = 0xFFFFFFFF  # what Windows says of a process that somebody has ended
_SIGNALLED: Final = 128


class State(NamedTuple):
    """`number` is Windows' id of the process, its exit code, or the error that kept it from starting."""

    what: Literal["nothing", "pid", "exit", "error"] = "nothing"
    number: int = 0


def folder(prefix: Path) -> Path:
    return prefix / _FOLDER


def make_folder(prefix: Path, owner: int) -> None:
    made = folder(prefix)
    made.mkdir(mode=0o700)
    if owner:
        os.chown(made, owner, owner)


def inside(name: str) -> str:
    """What winrun is told, in the container."""
    return f"{PREFIX}/{_FOLDER}/{name}"


def write(prefix: Path, name: str, owner: int, *, cwd: str, command: str, env: Mapping[str, str]) -> None:
    fields = (cwd, command, *(f"{key}={value}" for key, value in env.items()))
    path = prefix / _FOLDER / f"{name}.job"
    path.write_bytes("".join(f"{_clean(field)}\0" for field in fields).encode("utf-8", "replace"))
    if owner:
        os.chown(path, owner, owner)


def _clean(field: str) -> str:
    return field.replace("\0", "")


def read(prefix: Path, name: str) -> State:
    """The last line that is complete."""
    try:
        content = (prefix / _FOLDER / f"{name}.status").read_text()
    except OSError:
        return State()
    lines = [line.split() for line in content.splitlines(keepends=True) if line.endswith("\n")]
    for what, number in reversed([line for line in lines if len(line) == 2]):
        if what in ("pid", "exit", "error") and number.isdigit():
            return State(what, int(number))  # type: ignore[arg-type]
    return State()


def forget(prefix: Path, name: str) -> None:
    for ending in ("job", "status"):
        (prefix / _FOLDER / f"{name}.{ending}").unlink(missing_ok=True)


def exit_code(state: State, status: int) -> int:
    """`status` is what Unix knows. CRI's exit codes are signed: 0xC000013A is -1073741510."""
    code = state.number if state.what == "exit" else TERMINATED if status >= _SIGNALLED and state.what == "pid" else status
    return (code + 0x80000000) % 0x100000000 - 0x80000000
