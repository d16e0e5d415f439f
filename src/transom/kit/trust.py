"""Which programs Transom may start: `programs` starts them, and the monitor of real containers with
`spawn_program`.

A program runs only if it comes from the cluster's owner: the file and every directory on the way to
it belong to root or to the user who runs Transom, and no other account can write to them. No other
user can therefore replace the file between the check and the start. Files that containers can write
(the folders of nodes, image layers) may belong to the same user; callers whose programs could be
there pass those folders as `outside`.

Imports nothing that costs memory, because every cluster with real containers has a monitor.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from functools import cache
from typing import Final

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LONGEST_LINK_CHAIN: Final = 40
_FIRST_USER_GROUP: Final = (
    1000  # lower ids are system groups, like Debian's `staff`, which may write to /usr/local
)


class UntrustedProgram(PermissionError):
    """The program does not come from the cluster's owner; `reason` names the file or directory."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(13, "permission denied", path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.filename}: permission denied: {self.reason}"


def clean_environment(**variables: str) -> dict[str, str]:
    """The default environment of a program, plus these variables."""
    return {"PATH": search_path(), "LANG": "C.UTF-8", **variables}


def search_path() -> str:
    """PATH of the user who runs Transom, without relative directories, which depend on the working
    directory.
    """
    own = [part for part in os.environ.get("PATH", "").split(":") if part.startswith("/")]
    return ":".join(own) or SYSTEM_PATH


def find_program(name: str) -> str | None:
    """Its absolute path if it is on the search path."""
    for directory in search_path().split(":"):
        path = os.path.join(directory, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def check_program(path: str, outside: Sequence[str] = ()) -> str:
    """The path with all links resolved. Raises UntrustedProgram, or OSError if there is no such
    file.

    `outside`: folders that containers can write to. The path to the program must not pass through
    any of them.
    """
    if path == sys.executable:
        return path  # this very program: a user who can replace it gains nothing
    resolved, found = _walk(
        path, [_identity(os.stat(folder)) for folder in outside if os.path.isdir(folder)]
    )
    if not stat.S_ISREG(found.st_mode):
        raise UntrustedProgram(path, "not a regular file")
    if not found.st_mode & 0o111:
        raise UntrustedProgram(path, "not executable")
    return resolved


def spawn_program(argv: Sequence[str], stdio: Sequence[int], reset_signals: Sequence[int]) -> int:
    """Starts a program with these descriptors as its first ones and no other non-inheritable one;
    returns its pid. For the monitor, which has a clean environment and waits for all of its
    children itself. Raises OSError.
    """
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(stdio)]
    return os.posix_spawn(
        executable(argv),
        list(argv),
        os.environ,
        file_actions=actions,
        setsigdef=reset_signals,
        setsigmask=(),
    )


def executable(argv: Sequence[str], outside: Sequence[str] = ()) -> str:
    """What to start for a command line whose first word is an absolute path or a name. Raises like
    `check_program`.
    """
    name = argv[0]
    path = name if name.startswith("/") else None if "/" in name else find_program(name)
    if path is None:
        raise FileNotFoundError(2, "No such file or directory", name)
    checked = check_program(path, outside)
    # Some programs depend on the name they are called by (busybox, a Python in a virtual
    # environment); the directories of that name have been checked, too.
    return path if path == sys.executable else checked


def _walk(path: str, forbidden: Sequence[tuple[int, int]]) -> tuple[str, os.stat_result]:
    """Follows a path step by step and checks each file and directory, including those behind links."""
    if not path.startswith("/"):
        raise UntrustedProgram(path, "not an absolute path")
    left, here, links = [part for part in reversed(path.split("/")) if part not in ("", ".")], "", 0
    found = os.lstat("/")
    _check_owner(path, "/", found)
    while left:
        name = left.pop()
        if name == "..":
            here = here.rpartition("/")[0]
            continue
        step = f"{here}/{name}"
        found = os.lstat(step)
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _LONGEST_LINK_CHAIN:
                raise OSError(40, "Too many levels of symbolic links", path)
            if found.st_uid not in _owners():
                raise UntrustedProgram(path, f"{step} belongs to user {found.st_uid}")
            target = os.readlink(step)
            here = "" if target.startswith("/") else here
            left += [part for part in reversed(target.split("/")) if part not in ("", ".")]
            continue
        if _identity(found) in forbidden:
            raise UntrustedProgram(path, f"containers can write to {step}")
        _check_owner(path, step, found)
        here = step
    return here or "/", os.lstat(here or "/")


def _check_owner(path: str, step: str, found: os.stat_result) -> None:
    if found.st_uid not in _owners():
        raise UntrustedProgram(path, f"{step} belongs to user {found.st_uid}")
    directory = stat.S_ISDIR(found.st_mode)
    if directory and found.st_mode & stat.S_ISVTX:
        return  # others can add files there, but cannot replace the owner's
    if found.st_mode & 0o002:
        raise UntrustedProgram(path, f"every user can write to {step}")
    if found.st_mode & 0o020 and found.st_gid != os.getegid() and found.st_gid >= _FIRST_USER_GROUP:
        raise UntrustedProgram(path, f"group {found.st_gid} can write to {step}")


@cache
def _owners() -> frozenset[int]:
    """Root and the user who runs Transom. The monitor of a non-root user runs in a user namespace
    that maps only that user: root's files appear to belong to the overflow user there, so the
    caller outside checks programs for it as well.
    """
    owners = {0, os.geteuid()}
    with open("/proc/self/uid_map") as file:
        ids = [line.split() for line in file]
    if len(ids) == 1 and ids[0][2] == "1":
        with open("/proc/sys/kernel/overflowuid") as file:
            owners.add(int(file.read()))
    return frozenset(owners)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
