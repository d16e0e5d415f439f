"""Command lines of runc, or of crun where there is no runc, and their error texts."""

from __future__ import annotations

import mmap
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from transom.kit.trust import UntrustedProgram, check_program, find_program
from transom.runtime.native import cgroups
from transom.runtime.native.monitor.tasks import CONSOLE

PID_FILE, LOG = "pid", "runc.log"


class Runc(NamedTuple):
    program: str
    root: Path  # where it keeps its state
    rootless: bool = False

    def _start(self, log: Path) -> list[str]:
        # In a user namespace it assumes that it is root, and would require cgroups.
        own = ["--rootless=true"] if self.rootless and self.program.endswith("runc") else []
        return [
            self.program,
            *own,
            "--root",
            str(self.root),
            "--log",
            str(log),
            "--log-format",
            "json",
        ]

    def run(self, identity: str, bundle: Path, *, tty: bool) -> list[str]:
        command = [
            *self._start(bundle / LOG),
            "run",
            "--detach",
            "--bundle",
            str(bundle),
            "--pid-file",
            str(bundle / PID_FILE),
        ]
        return [*command, *(("--console-socket", CONSOLE) if tty else ()), identity]

    def exec(
        self, identity: str, process: Path, pid_file: Path, log: Path, console: str = ""
    ) -> list[str]:
        command = [
            *self._start(log),
            "exec",
            "--detach",
            "--process",
            str(process),
            "--pid-file",
            str(pid_file),
        ]
        return [*command, *(("--console-socket", console) if console else ()), identity]

    def delete(self, identity: str) -> list[str]:
        """Removes the remains of one that has ended; kills one that still runs."""
        return [self.program, "--root", str(self.root), "delete", "--force", identity]


@cache
def verifies_directory(program: str) -> bool:
    """Whether it checks that a process's working directory is in the container (CVE-2024-21626).
    Distributions have backported that to older version numbers, so the binary itself is searched
    for the check's error text.
    """
    if not program.endswith("runc"):
        return True  # crun leaves no descriptor open
    with (
        open(program, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.find(b"possible container breakout detected") >= 0


def find_runc() -> tuple[str, str]:
    """The program, or "" and the reason why there is none."""
    if runc := find_program("runc"):
        return _checked(runc)
    crun = find_program("crun")
    if crun is None:
        return "", "neither runc nor crun is installed"
    if cgroups.is_hybrid():
        return (
            "",
            (
                "crun does not work with control groups of both versions at once, and runc is "
                "not installed"
            ),
        )
    return _checked(crun)


def _checked(program: str) -> tuple[str, str]:
    try:
        check_program(program)
    except UntrustedProgram as problem:
        return "", f"{program} is not run: {problem.reason}"
    return program, ""


# What runc 1.1 prints, and what the runc of containerd 1.4 printed: users search for the latter.
_PREFIXES: Final = re.compile(r"^(?:runc|crun)? ?(?:run|create|exec|start) failed: ")
_WORDS: Final = (
    (
        "unable to start container process: ",
        "container_linux.go:370: starting container process caused: ",
    ),
    ("error during container init: ", "process_linux.go:459: container init caused: "),
    ("error mounting ", "rootfs_linux.go:59: mounting "),
    (
        "unable to apply cgroup configuration: ",
        "process_linux.go:422: applying cgroup configuration for process caused: ",
    ),
)
_CRUN_NOT_FOUND: Final = re.compile(
    r"^executable file `(.*)` not found(?: in \$PATH)?: No such file or directory$"
)


def reword_runc_error(text: str) -> str:
    text = _PREFIXES.sub("", text.strip())
    if missing := _CRUN_NOT_FOUND.match(text):
        text = (
            f'unable to start container process: exec: "{missing[1]}": executable file not found '
            "in $PATH"
        )
    for ours, theirs in _WORDS:
        text = text.replace(ours, theirs)
    if text.startswith("exec: "):  # runc exec omits the prefix
        text = f"{_WORDS[0][1]}{text}"
    return text
