"""Command lines of runc, or of crun where there is no runc, and the words of their errors."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from transom.runtime.native import cgroups
from transom.runtime.native.monitor.tasks import CONSOLE

PID_FILE, LOG = "pid", "runc.log"


class Runc(NamedTuple):
    program: str
    root: Path  # where it keeps what it knows
    rootless: bool = False

    def _start(self, log: Path) -> list[str]:
        # In a user namespace it takes itself for root, and would insist on control groups.
        own = ["--rootless=true"] if self.rootless and self.program.endswith("runc") else []
        return [self.program, *own, "--root", str(self.root), "--log", str(log), "--log-format", "json"]

    def run(self, identity: str, bundle: Path, *, tty: bool) -> list[str]:
        command = [*self._start(bundle / LOG), "run", "--detach", "--bundle", str(bundle), "--pid-file", str(bundle / PID_FILE)]
        return [*command, *(("--console-socket", CONSOLE) if tty else ()), identity]

    def exec(self, identity: str, process: Path, pid_file: Path, log: Path, console: str = "") -> list[str]:
        command = [*self._start(log), "exec", "--detach", "--process", str(process), "--pid-file", str(pid_file)]
        return [*command, *(("--console-socket", console) if console else ()), identity]

    def delete(self, identity: str) -> list[str]:
        """What is left of one that has ended; one that has not is killed."""
        return [self.program, "--root", str(self.root), "delete", "--force", identity]


def find() -> tuple[str, str]:
    """The program, or "" and why there is none."""
    if runc := shutil.which("runc"):
        return runc, ""
    crun = shutil.which("crun")
    if crun is None:
        return "", "neither runc nor crun is installed"
    if cgroups.hybrid():
        return "", "crun does not work with control groups of both versions at once, and runc is not installed"
    return crun, ""


# What runc 1.1 says, and what the runc of containerd 1.4 said: people search for the latter.
_PREFIXES: Final = re.compile(r"^(?:runc|crun)? ?(?:run|create|exec|start) failed: ")
_WORDS: Final = (
    ("unable to start container process: ", "container_linux.go:370: starting container process caused: "),
    ("error during container init: ", "process_linux.go:459: container init caused: "),
    ("error mounting ", "rootfs_linux.go:59: mounting "),
    ("unable to apply cgroup configuration: ", "process_linux.go:422: applying cgroup configuration for process caused: "),
)
_CRUN_NOT_FOUND: Final = re.compile(r"^executable file `(.*)` not found(?: in \$PATH)?: No such file or directory$")


def reworded(text: str) -> str:
    text = _PREFIXES.sub("", text.strip())
    if missing := _CRUN_NOT_FOUND.match(text):
        text = f'unable to start container process: exec: "{missing[1]}": executable file not found in $PATH'
    for ours, theirs in _WORDS:
        text = text.replace(ours, theirs)
    if text.startswith("exec: "):  # runc exec leaves the beginning out
        text = f"{_WORDS[0][1]}{text}"
    return text
