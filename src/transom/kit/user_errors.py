"""Errors for users: a sentence on what happened, and one on what to do about it."""

from __future__ import annotations

import errno
import os
import re
from typing import Final

# Exit codes of all commands; 0 is success, 1 any other failure. docs/install-and-run.md lists them
# for users.
EXIT_USAGE = 2  # the command line is wrong
EXIT_DISK = 4  # the disk is full, read-only or fails, or a file may not be read or written
EXIT_BUG = 70  # an error that transom does not know
EXIT_INTERRUPTED = 130  # Ctrl-C

_DISK_HINTS = {
    errno.ENOSPC: "free space on the disk, then try again",
    errno.EDQUOT: "free space, or have the quota raised, then try again",
    errno.EFBIG: "raise the limit of the size of files (ulimit -f), then try again",
    errno.EROFS: (
        "make the disk writable, or use another folder: $XDG_DATA_HOME for data, --kubeconfig "
        "for the kubeconfig"
    ),
    errno.EACCES: (
        "check owner and mode, or use another folder: $XDG_DATA_HOME for data, --kubeconfig for "
        "the kubeconfig"
    ),
    errno.EPERM: (
        "check owner and mode, or use another folder: $XDG_DATA_HOME for data, --kubeconfig for "
        "the kubeconfig"
    ),
    errno.EIO: "the disk fails; look at the kernel's log (dmesg)",
}
# Wrong names that users enter.
_NAMES = (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EEXIST)


class UserError(Exception):
    def __init__(self, message: str, hint: str = "", code: int = 1) -> None:
        """`code`: the exit code of the command that fails with it."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


def of_disk(error: OSError) -> UserError | None:
    """A user-facing error for an operating system error about a file or a disk; None for any other."""
    about = f"{error.filename}: " if error.filename else ""
    if error.errno in _DISK_HINTS:
        return UserError(f"{about}{os.strerror(error.errno)}", _DISK_HINTS[error.errno], EXIT_DISK)
    if error.errno in _NAMES and error.filename:
        return UserError(f"{about}{os.strerror(error.errno)}")
    return None


def of_system(error: OSError) -> UserError:
    """A user-facing error for any operating system error."""
    about = f"{error.filename}: " if error.filename else ""
    return of_disk(error) or UserError(f"{about}{error.strerror or error}")


_COMMAND: Final = re.compile(
    r"\btransom (?:node|cloud|hns|explain-schedule|up|down|logs|kubeconfig|snapshot|doctor(?= \S+;))\b"
    r"(?: (?!or\b|and\b|then\b)[\w/=:-]+(?:\.[\w/=:-]+)*)*"
)


def name_cluster(text: str, option: str) -> str:
    """Adds the option that names the cluster (" --name NAME") to the commands in a hint or a text, so that
    they run as printed.
    """
    if not option or f"{option} " in f"{text} ":
        return text

    def name(command: re.Match[str]) -> str:
        ours, separator, on_the_node = f"{command[0]} ".partition(" -- ")
        return f"{ours.rstrip()}{option}{separator}{on_the_node}".removesuffix(" ")

    return _COMMAND.sub(name, text)
